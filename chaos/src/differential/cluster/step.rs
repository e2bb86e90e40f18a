//! One step of a run.

use super::learner::Errand;

/// Something done to both clusters. Members are numbered in the order in which they were first known,
/// and keep their numbers for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request to one member, with one answer.
    Ask {
        /// Whom.
        at: usize,
        /// What.
        ask: Ask,
    },
    /// A request to a learner that is not about membership.
    AtLearner {
        /// Which learner.
        at: usize,
        /// What.
        errand: Errand,
    },
    /// Starts a member that was added, and waits until it serves.
    Start(usize),
    /// `kill -9`.
    Kill(usize),
    /// Starts a killed member again, and waits until it serves.
    Restart(usize),
    /// Starts a member that was removed: it must end by itself.
    StartRemoved(usize),
    /// Waits until all voters have been connected for so long that the cluster counts as healthy.
    Rest,
}

/// A request about membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// MemberList.
    List {
        /// Whether the read barrier is wanted.
        linearizable: bool,
    },
    /// MemberAdd.
    Add {
        /// As what.
        learner: bool,
        /// Where.
        urls: Urls,
    },
    /// MemberRemove.
    Remove(Target),
    /// MemberUpdate.
    Update {
        /// Whom.
        target: Target,
        /// Where.
        urls: Urls,
    },
    /// MemberPromote.
    Promote(Target),
    /// MoveLeader.
    MoveLeader(Target),
    /// Status, for who leads and who is a learner.
    Status,
}

/// Whom a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A member there is or was.
    Mate(usize),
    /// An id that no cluster has ever had.
    Unknown,
    /// The id 0.
    Zero,
}

/// Peer URLs of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Urls {
    /// Those of a member that can be started.
    Newcomer,
    /// These, as they are; nobody listens there.
    Plain(Vec<String>),
    /// One that another member has, after so many that nobody has.
    UsedBy(usize, Vec<String>),
    /// The member's own.
    Own,
    /// Words that are no peer URLs.
    Bad(Vec<String>),
}
