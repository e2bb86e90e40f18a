//! Watches as a client on the wire sees them, written down for the checkers.
//!
//! Reading order: `recorder` keeps the records (`record::watch`) of many watchers of one stream, and
//! `pumps` read many such; `follower` is one watcher that reconnects, `fleet` a motley lot of them;
//! `writers` give them something to see; `archive` reads what really happened, and `scribes` keep a
//! `book` of it in a store shared with others; `stage` holds all of these for one test.
//!
//! Nothing here judges, repairs or leaves out: what the server sent is what the record says. Values
//! are kept as fingerprints, so that thousands of watchers of large values cost little.

pub mod archive;
pub mod book;
pub mod fleet;
pub mod follower;
pub mod pumps;
pub mod recorder;
pub mod scribes;
pub mod stage;
pub mod writers;

pub use crate::endpoint::{WatchStream, watch as stream};
pub use crate::record::watch::{Kind, Reply, Seen, Session, Stored, ValuePrint, WatchLog, WatchSpec};
pub use archive::Archive;
pub use pumps::Pumps;
pub use recorder::Recorder;
pub use stage::Stage;
