//! The store: every version of every key from the compacted revision on.
//!
//! ```text
//! head      key                       -> newest version           the present
//! log       revision, sub             -> event, with its links    history in order
//! versions  key, revision descending  -> what the key was then    the past of one key
//! counts    first key of a bucket     -> live keys in the bucket  how many, without a scan
//!
//!    1 ........ compacted ............ current
//!    |  gone    |  readable, in log    |  in head
//! ```
//!
//! One put of a key writes one row to each of `head`, `log` and `versions`, in one batch. An event in
//! `log` links to the version that its key had before the event's revision: undoing, previous values
//! and compaction all follow that link.
//!
//! Only `write` and `compaction` change rows; everything else reads through a view.

pub(crate) mod compaction;
pub(crate) mod counts;
pub(crate) mod event_id;
pub(crate) mod export;
pub(crate) mod hash;
pub(crate) mod head_row;
pub(crate) mod history;
pub(crate) mod log_row;
pub(crate) mod past;
pub(crate) mod present;
pub(crate) mod range;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod times;
pub(crate) mod version_row;
pub(crate) mod weight;
pub(crate) mod wire;
pub(crate) mod write;
