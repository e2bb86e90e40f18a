//! Where a cluster stands, and what can be done to it there.
//!
//! Nemeses and runs speak to a ground only, so that the same faults meet processes on loopback,
//! containers and network namespaces. A ground that lacks an ability says so, and the schedule then
//! leaves out what needs it: a fault is never pretended.
//!
//! Members are numbered from 0 in the order in which they were first known. A number is never given
//! again: a member that was removed keeps it, and is no longer `enlisted`.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::Failure;
use crate::endpoint::Endpoint;

/// Whose servers to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Product {
    /// The product.
    #[default]
    Meerkat,
    /// The control.
    Etcd,
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meerkat => "meerkat",
            Self::Etcd => "etcd",
        })
    }
}

/// Memory, processor time and open files of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now.
    pub rss_bytes: u64,
    /// The most it ever was.
    pub peak_rss_bytes: u64,
    /// User and system time since it started.
    pub cpu_millis: u64,
    /// Open file descriptors now.
    pub open_files: u64,
    /// Which process.
    pub pid: u32,
}

/// What a ground may be able to do beyond killing and starting members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ability {
    /// SIGTERM.
    Terminate,
    /// SIGSTOP and SIGCONT.
    Pause,
    /// Taking down a link between two members, both ways.
    Cut,
    /// Taking down one direction of a link.
    OneWay,
    /// Delaying what goes over a link.
    Slow,
    /// Losing some of what goes over a link.
    Lossy,
    /// Starting a member with other flags or variables (fault points, interposed libraries).
    Changed,
    /// A data directory on a small file system of its own.
    SmallDisk,
    /// Adding members and removing them.
    Membership,
}

/// What becomes of the bytes that one member sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// They arrive.
    Up,
    /// Nothing arrives and nothing is closed.
    Down,
    /// Each piece arrives this much later, give or take the second.
    Slow(Duration, Duration),
    /// So many in a thousand pieces are lost; over TCP that is a stall or a broken connection.
    Lossy(u32),
}

/// How a member's process is started differently, once.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// Whole `--flag=value`s that replace its own of the same name.
    pub flags: Vec<String>,
}

/// What every call on a ground ends with.
pub type Done<'a, T = ()> = BoxFuture<'a, Result<T, Failure>>;

/// Where a cluster stands.
pub trait Ground: Send {
    /// Whose servers stand there.
    fn product(&self) -> Product;

    /// Whether it can do this here and now.
    fn can(&self, ability: Ability) -> bool;

    /// How many members were ever known; their numbers are below this.
    fn members(&self) -> usize;

    /// Whether this one belongs to the cluster still.
    fn enlisted(&self, member: usize) -> bool;

    /// Its name.
    fn name(&self, member: usize) -> String;

    /// The stubs to talk to it, past any fault between members.
    fn endpoint(&self, member: usize) -> Endpoint;

    /// Whether its process is there (a paused one is).
    fn is_running(&mut self, member: usize) -> Done<'_, bool>;

    /// `kill -9`; no error if it has already ended.
    fn kill(&mut self, member: usize) -> Done<'_>;

    /// SIGTERM, and waits for the end.
    fn terminate(&mut self, member: usize) -> Done<'_>;

    /// Starts it as it was, or with a change for this one life. Does not wait until it serves.
    fn start(&mut self, member: usize, change: Change) -> Done<'_>;

    /// SIGSTOP.
    fn pause(&mut self, member: usize) -> Done<'_>;

    /// SIGCONT; no error if it has ended meanwhile.
    fn resume(&mut self, member: usize) -> Done<'_>;

    /// What becomes of bytes that `from` sends `to`, from now on; on connections dialed by either.
    fn set_link(&mut self, from: usize, to: usize, link: Link) -> Done<'_>;

    /// All links up.
    fn heal_links(&mut self) -> Done<'_>;

    /// Lays out one more member, not started and not yet told to the cluster; returns its number.
    /// Its peer URL is `peer_url`. It will be started as joining an existing cluster.
    fn enlist(&mut self) -> Done<'_, usize>;

    /// The member was removed from the cluster: ends its process if it is there. Its data stays for
    /// tests of what it must not do.
    fn discharge(&mut self, member: usize) -> Done<'_>;

    /// Where the others reach it.
    fn peer_url(&self, member: usize) -> String;

    /// Where it keeps its data, where that can be reached from here.
    fn data_dir(&self, member: usize) -> Option<std::path::PathBuf>;

    /// Memory, processor time and open files of its present life, if known here.
    fn usage(&self, member: usize) -> Option<Usage>;

    /// The end of its log.
    fn tail(&self, member: usize) -> String;

    /// Ends a run that succeeded: nothing is left behind. A ground that is merely dropped ends its
    /// members too, but may keep logs and data, and says where.
    fn finish(self: Box<Self>) -> Done<'static> {
        drop(self);
        Box::pin(async { Ok(()) })
    }
}

/// Who belongs to the cluster now.
pub fn enlisted(ground: &dyn Ground) -> Vec<usize> {
    (0..ground.members()).filter(|member| ground.enlisted(*member)).collect()
}
