//! The refusals that etcd clients know by heart: one table of name, gRPC code and text.
//!
//! Clients find out what went wrong by comparing the text, so every text is a contract: it never
//! changes, no two are alike, and [`EtcdError::from_message`] undoes [`EtcdError::message`]. Never
//! write one of these texts anywhere else; name the variant.

use std::fmt;
use tonic::Code;

/// A watcher asked for a range that holds no key. Only ever a `cancel_reason`, so it has no code.
pub const WATCH_RANGE_EMPTY: &str = "mvcc: watcher range is empty";

/// A watcher asked for an id that its stream already uses. Only ever a `cancel_reason`.
pub const WATCH_ID_DUPLICATE: &str = "mvcc: duplicate watch ID provided on the WatchStream";

macro_rules! table {
    ($($name:ident, $code:ident, $message:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EtcdError {
            $($name,)*
        }

        impl EtcdError {
            pub const ALL: &[EtcdError] = &[$(EtcdError::$name,)*];

            pub const fn code(self) -> Code {
                match self {
                    $(EtcdError::$name => Code::$code,)*
                }
            }

            pub const fn message(self) -> &'static str {
                match self {
                    $(EtcdError::$name => $message,)*
                }
            }

            /// The error whose text this is, to the letter.
            pub fn from_message(message: &str) -> Option<EtcdError> {
                match message {
                    $($message => Some(EtcdError::$name),)*
                    _ => None,
                }
            }
        }
    };
}

table! {
    EmptyKey, InvalidArgument, "etcdserver: key is not provided";
    KeyNotFound, InvalidArgument, "etcdserver: key not found";
    ValueProvided, InvalidArgument, "etcdserver: value is provided";
    LeaseProvided, InvalidArgument, "etcdserver: lease is provided";
    TooManyOps, InvalidArgument, "etcdserver: too many operations in txn request";
    DuplicateKey, InvalidArgument, "etcdserver: duplicate key given in txn request";
    InvalidClientApiVersion, InvalidArgument, "etcdserver: invalid client api version";
    InvalidSortOption, InvalidArgument, "etcdserver: invalid sort option";
    Compacted, OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    FutureRev, OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    NoSpace, ResourceExhausted, "etcdserver: mvcc: database space exceeded";

    LeaseNotFound, NotFound, "etcdserver: requested lease not found";
    LeaseExist, FailedPrecondition, "etcdserver: lease already exists";
    LeaseTtlTooLarge, OutOfRange, "etcdserver: too large lease TTL";
    WatchCanceled, Cancelled, "etcdserver: watch canceled";

    MemberExist, FailedPrecondition, "etcdserver: member ID already exist";
    PeerUrlExist, FailedPrecondition, "etcdserver: Peer URLs already exists";
    MemberNotEnoughStarted, FailedPrecondition,
        "etcdserver: re-configuration failed due to not enough started members";
    MemberBadUrls, InvalidArgument, "etcdserver: given member URLs are invalid";
    MemberNotFound, NotFound, "etcdserver: member not found";
    MemberNotLearner, FailedPrecondition, "etcdserver: can only promote a learner member";
    LearnerNotReady, FailedPrecondition,
        "etcdserver: can only promote a learner member which is in sync with leader";
    TooManyLearners, FailedPrecondition, "etcdserver: too many learner members in cluster";
    ClusterIdMismatch, FailedPrecondition, "etcdserver: cluster ID mismatch";

    RequestTooLarge, InvalidArgument, "etcdserver: request is too large";
    TooManyRequests, ResourceExhausted, "etcdserver: too many requests";

    RootUserNotExist, FailedPrecondition, "etcdserver: root user does not exist";
    RootRoleNotExist, FailedPrecondition, "etcdserver: root user does not have root role";
    UserAlreadyExist, FailedPrecondition, "etcdserver: user name already exists";
    UserEmpty, InvalidArgument, "etcdserver: user name is empty";
    UserNotFound, FailedPrecondition, "etcdserver: user name not found";
    RoleAlreadyExist, FailedPrecondition, "etcdserver: role name already exists";
    RoleNotFound, FailedPrecondition, "etcdserver: role name not found";
    RoleEmpty, InvalidArgument, "etcdserver: role name is empty";
    AuthFailed, InvalidArgument, "etcdserver: authentication failed, invalid user ID or password";
    PermissionNotGiven, InvalidArgument, "etcdserver: permission not given";
    PermissionDenied, PermissionDenied, "etcdserver: permission denied";
    RoleNotGranted, FailedPrecondition, "etcdserver: role is not granted to the user";
    PermissionNotGranted, FailedPrecondition, "etcdserver: permission is not granted to the role";
    AuthNotEnabled, FailedPrecondition, "etcdserver: authentication is not enabled";
    InvalidAuthToken, Unauthenticated, "etcdserver: invalid auth token";
    InvalidAuthMgmt, InvalidArgument, "etcdserver: invalid auth management";
    AuthOldRevision, InvalidArgument, "etcdserver: revision of auth store is old";

    NoLeader, Unavailable, "etcdserver: no leader";
    NotLeader, FailedPrecondition, "etcdserver: not leader";
    LeaderChanged, Unavailable, "etcdserver: leader changed";
    NotCapable, FailedPrecondition, "etcdserver: not capable";
    Stopped, Unavailable, "etcdserver: server stopped";
    Timeout, Unavailable, "etcdserver: request timed out";
    TimeoutDueToLeaderFail, Unavailable,
        "etcdserver: request timed out, possibly due to previous leader failure";
    TimeoutDueToConnectionLost, Unavailable,
        "etcdserver: request timed out, possibly due to connection lost";
    TimeoutWaitAppliedIndex, Unavailable,
        "etcdserver: request timed out, waiting for the applied index took too long";
    Unhealthy, Unavailable, "etcdserver: unhealthy cluster";
    Corrupt, DataLoss, "etcdserver: corrupt cluster";
    NotSupportedForLearner, FailedPrecondition, "etcdserver: rpc not supported for learner";
    BadLeaderTransferee, FailedPrecondition, "etcdserver: bad leader transferee";

    WrongDowngradeVersionFormat, InvalidArgument, "etcdserver: wrong downgrade target version format";
    InvalidDowngradeTargetVersion, InvalidArgument, "etcdserver: invalid downgrade target version";
    ClusterVersionUnavailable, FailedPrecondition,
        "etcdserver: cluster version not found during downgrade";
    DowngradeInProcess, FailedPrecondition, "etcdserver: cluster has a downgrade job in progress";
    NoInflightDowngrade, FailedPrecondition, "etcdserver: no inflight downgrade job";

    Canceled, Cancelled, "etcdserver: request canceled";
    DeadlineExceeded, DeadlineExceeded, "etcdserver: context deadline exceeded";
    // What servers answer in practice, in place of the two above.
    ContextCanceled, Cancelled, "context canceled";
    ContextDeadlineExceeded, DeadlineExceeded, "context deadline exceeded";

    // etcd forgot to give these a code. Clients see `Unknown`, and so do ours.
    LeaderTransferTimeout, Unknown, "etcdserver: request timed out, leader transfer took too long";
    RequestCancelled, Unknown, "etcdserver: request cancelled";
    UnknownMethod, Unknown, "etcdserver: unknown method";
    NotPrimaryLessor, Unknown, "not a primary lessor";
    PasswordOfNoPasswordUser, Unknown,
        "auth: authentication failed, password was given for no password user";
    MutexSessionExpired, Unknown, "mutex: session is expired";
    ElectionSessionExpired, Unknown, "election: session is expired";
    ElectionNoLeader, Unknown, "election: no leader";
    ElectionNotLeader, Unknown, "election: not leader";
    ElectionLeaderMissing, Unknown, "\"leader\" field must be provided";
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for EtcdError {}

#[cfg(test)]
mod tests;
