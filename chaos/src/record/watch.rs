//! The record of one watcher: what it asked for, and what it was sent, connection by connection.
//!
//! Plain data. Times are offsets from one monotonic start, so those of different watchers and of
//! the writers compare.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::watch_create_request::FilterType;
use meerkat_proto::pb::etcdserver::{
    WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse, watch_request,
};
use meerkat_proto::pb::mvcc::event::EventType;
use meerkat_proto::pb::mvcc::{Event, KeyValue};

/// The request metadata that says what becomes of watchers that fall behind. Meerkat only.
pub const SLOW: &str = "meerkat-watch-slow";

/// What a watcher that fell behind is told when it is canceled, before the revision to resume at.
pub const FELL_BEHIND: &str = "meerkat: the watcher fell behind; resume at revision ";

/// What a watcher asks for, but for the number it wants to be known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchSpec {
    /// The key, or the first of the range.
    pub key: Bytes,
    /// Empty for one key, a zero byte for all from `key` on, else the end, exclusive.
    pub range_end: Bytes,
    /// The first revision wanted; zero for whatever comes next.
    pub start_revision: i64,
    /// Leave puts out.
    pub no_put: bool,
    /// Leave deletions out.
    pub no_delete: bool,
    /// Send what was there before.
    pub prev_kv: bool,
    /// Send a mark now and then.
    pub progress_notify: bool,
    /// Large responses may come in pieces.
    pub fragment: bool,
}

impl WatchSpec {
    /// A watcher of everything.
    pub fn of_all() -> Self {
        Self::of_range(b"\0", b"\0")
    }

    /// A watcher of one key.
    pub fn of_key(key: &[u8]) -> Self {
        Self { key: Bytes::copy_from_slice(key), ..Self::default() }
    }

    /// A watcher of a range as it goes over the wire.
    pub fn of_range(key: &[u8], end: &[u8]) -> Self {
        Self { range_end: Bytes::copy_from_slice(end), ..Self::of_key(key) }
    }

    /// A watcher of all keys with a prefix, which must end in a byte below 255.
    pub fn of_prefix(prefix: &[u8]) -> Self {
        let mut end = prefix.to_vec();
        if let Some(last) = end.last_mut() {
            *last = last.checked_add(1).expect("the prefixes of the harness end in a letter or a slash");
        }
        Self::of_range(prefix, &end)
    }

    /// The same from a revision on.
    #[must_use]
    pub fn from(self, start_revision: i64) -> Self {
        Self { start_revision, ..self }
    }

    /// Whether an event of this kind on this key is wanted.
    pub fn wants(&self, kind: Kind, key: &[u8]) -> bool {
        let filtered = match kind {
            Kind::Put => self.no_put,
            Kind::Delete => self.no_delete,
        };
        let inside = match self.range_end.as_ref() {
            [] => key == self.key,
            [0] => self.key <= key,
            end => self.key <= key && key < end,
        };
        inside && !filtered
    }

    /// The request that creates it from a revision on. The server chooses its number.
    pub fn request(&self, start_revision: i64) -> WatchRequest {
        let filters = [(self.no_put, FilterType::Noput), (self.no_delete, FilterType::Nodelete)];
        let create = WatchCreateRequest {
            key: self.key.clone(),
            range_end: self.range_end.clone(),
            start_revision,
            progress_notify: self.progress_notify,
            filters: filters.iter().filter(|(on, _)| *on).map(|(_, filter)| *filter as i32).collect(),
            prev_kv: self.prev_kv,
            watch_id: 0,
            fragment: self.fragment,
        };
        WatchRequest { request_union: Some(watch_request::RequestUnion::CreateRequest(create)) }
    }
}

/// The request that cancels a watcher.
pub fn cancel_request(watch_id: i64) -> WatchRequest {
    let cancel = WatchCancelRequest { watch_id };
    WatchRequest { request_union: Some(watch_request::RequestUnion::CancelRequest(cancel)) }
}

/// The request for a mark.
pub fn progress_request() -> WatchRequest {
    WatchRequest {
        request_union: Some(watch_request::RequestUnion::ProgressRequest(WatchProgressRequest {})),
    }
}

/// All that one watcher was sent.
#[derive(Clone, Debug, Default)]
pub struct WatchLog {
    /// Names it in findings.
    pub name: String,
    /// What it asked for at first.
    pub spec: WatchSpec,
    /// Whether it lets the server leave out what a later event of the same key has overtaken.
    pub coalesces: bool,
    /// One for each connection, in order.
    pub sessions: Vec<Session>,
}

impl WatchLog {
    /// A watcher that has not connected yet.
    pub fn new(name: impl Into<String>, spec: WatchSpec) -> Self {
        Self { name: name.into(), spec, coalesces: false, sessions: Vec::new() }
    }

    /// The responses of all connections, in order.
    pub fn replies(&self) -> impl Iterator<Item = &Reply> {
        self.sessions.iter().flat_map(|session| &session.replies)
    }

    /// The events of all connections, in order.
    pub fn events(&self) -> impl Iterator<Item = &Seen> {
        self.replies().flat_map(|reply| &reply.events)
    }
}

impl WatchLog {
    /// Leaves out what lies beyond a revision, for a judge who knows only what happened up to it.
    /// False if the watcher began beyond it: then nothing is owed to it.
    pub fn cut(&mut self, upto: i64) -> bool {
        let mut began = false;
        for at in 0..self.sessions.len() {
            let from_now = self.sessions[at].asked <= 0;
            let replies = &mut self.sessions[at].replies;
            // Who asked for a revision is owed it, however far the store was when that was heard.
            for created in replies.iter_mut().filter(|reply| reply.created && !from_now) {
                created.revision = created.revision.min(upto);
            }
            let beyond = replies.iter().position(|reply| reply.reaches_beyond(upto));
            began |= replies.first().is_some_and(|first| !first.created || beyond != Some(0));
            let Some(beyond) = beyond else { continue };
            replies.truncate(beyond + 1);
            let last = &mut replies[beyond];
            last.events.retain(|event| event.revision() <= upto);
            last.fragment = false;
            if last.events.is_empty() {
                replies.pop();
            }
            self.sessions.truncate(at + 1);
            break;
        }
        began
    }
}

/// One connection of a watcher.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The member it connected to.
    pub member: usize,
    /// The revision it asked for there.
    pub asked: i64,
    /// When it asked.
    pub opened: Duration,
    /// What it was sent, in order.
    pub replies: Vec<Reply>,
    /// Whether the client asked for the end of the watcher.
    pub canceled_by_client: bool,
    /// Why it ended, if the client knows.
    pub ended: Option<String>,
}

/// One response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// When it arrived.
    pub at: Duration,
    /// Whom it is for; -1 for all watchers of the stream.
    pub watch_id: i64,
    /// The revision in its header.
    pub revision: i64,
    /// The watcher now exists.
    pub created: bool,
    /// The watcher is no more.
    pub canceled: bool,
    /// Where history begins, when what was asked for lies before it.
    pub compact_revision: i64,
    /// Why it was canceled.
    pub cancel_reason: String,
    /// The next response belongs to this one.
    pub fragment: bool,
    /// What happened.
    pub events: Vec<Seen>,
}

impl Reply {
    /// The record of a response.
    pub fn record(response: &WatchResponse, at: Duration) -> Self {
        Self {
            at,
            watch_id: response.watch_id,
            revision: response.header.as_ref().map_or(0, |header| header.revision),
            created: response.created,
            canceled: response.canceled,
            compact_revision: response.compact_revision,
            cancel_reason: response.cancel_reason.clone(),
            fragment: response.fragment,
            events: response.events.iter().map(Seen::record).collect(),
        }
    }

    /// Whether it says anything about revisions beyond this one.
    fn reaches_beyond(&self, upto: i64) -> bool {
        let told = self.events.iter().any(|event| upto < event.revision());
        told || upto < self.compact_revision || (self.created || self.is_mark()) && upto < self.revision
    }

    /// Whether it says only how far the stream has come.
    pub fn is_mark(&self) -> bool {
        self.events.is_empty() && !self.created && !self.canceled && !self.fragment
    }
}

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// It was put.
    Put,
    /// It was deleted.
    Delete,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What happened.
    pub kind: Kind,
    /// To which key. A copy, so that a record never keeps a whole message alive.
    pub key: Bytes,
    /// The key afterwards; of a deletion only its revision.
    pub now: Stored,
    /// The key before, if it was sent.
    pub prev: Option<Stored>,
}

impl Seen {
    /// The record of an event.
    pub fn record(event: &Event) -> Self {
        let kind = if event.r#type == EventType::Delete as i32 { Kind::Delete } else { Kind::Put };
        let kv = event.kv.as_ref();
        Self {
            kind,
            key: kv.map_or_else(Bytes::new, |kv| Bytes::copy_from_slice(&kv.key)),
            now: kv.map(Stored::record).unwrap_or_default(),
            prev: event.prev_kv.as_ref().map(Stored::record),
        }
    }

    /// The revision it happened at.
    pub fn revision(&self) -> i64 {
        self.now.mod_revision
    }
}

/// One version of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// When the key came to be.
    pub create_revision: i64,
    /// When this version did.
    pub mod_revision: i64,
    /// Which version since then.
    pub version: i64,
    /// Its lease.
    pub lease: i64,
    /// Its value.
    pub value: ValuePrint,
}

impl Stored {
    /// The record of a key.
    pub fn record(kv: &KeyValue) -> Self {
        Self {
            create_revision: kv.create_revision,
            mod_revision: kv.mod_revision,
            version: kv.version,
            lease: kv.lease,
            value: ValuePrint::of(&kv.value),
        }
    }
}

/// Stands for a value: its length and a hash of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ValuePrint {
    len: usize,
    hash: u64,
}

impl ValuePrint {
    /// The print of a value; that of the empty value is the default.
    pub fn of(value: &[u8]) -> Self {
        if value.is_empty() {
            return Self::default();
        }
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Self { len: value.len(), hash: hasher.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_on_the_wire() {
        let wants = |spec: &WatchSpec, key: &[u8]| spec.wants(Kind::Put, key);
        let one = WatchSpec::of_key(b"b");
        assert!(wants(&one, b"b") && !wants(&one, b"b\0") && !wants(&one, b"a"));
        let open = WatchSpec::of_range(b"b", b"\0");
        assert!(wants(&open, b"b") && wants(&open, b"\xff") && !wants(&open, b"a"));
        let prefix = WatchSpec::of_prefix(b"b/");
        assert!(wants(&prefix, b"b/") && wants(&prefix, b"b/\xff") && !wants(&prefix, b"b0"));
        assert!(wants(&WatchSpec::of_all(), b"\0"));
    }

    #[test]
    fn filters_leave_out_their_kind_only() {
        let no_put = WatchSpec { no_put: true, ..WatchSpec::of_key(b"k") };
        assert!(!no_put.wants(Kind::Put, b"k") && no_put.wants(Kind::Delete, b"k"));
        let no_delete = WatchSpec { no_delete: true, ..WatchSpec::of_key(b"k") };
        assert!(no_delete.wants(Kind::Put, b"k") && !no_delete.wants(Kind::Delete, b"k"));
    }

    #[test]
    fn a_cut_leaves_out_what_lies_beyond_and_all_that_follows() {
        let seen = |revision| Seen {
            kind: Kind::Put,
            key: Bytes::new(),
            now: Stored { mod_revision: revision, ..Stored::default() },
            prev: None,
        };
        let events = |revisions: &[i64]| Reply {
            revision: 90,
            events: revisions.iter().copied().map(seen).collect(),
            ..Reply::default()
        };
        let created = |revision| Reply { created: true, revision, ..Reply::default() };
        let mark = |revision| Reply { revision, ..Reply::default() };
        let session = |replies: Vec<Reply>| Session { replies, ..Session::default() };
        let log = WatchLog {
            sessions: vec![
                session(vec![created(5), events(&[6, 7]), mark(8), events(&[9, 11])]),
                session(vec![created(12)]),
            ],
            ..WatchLog::default()
        };
        let lengths = |upto| {
            let mut cut = log.clone();
            let began = cut.cut(upto);
            (began, cut.sessions.len(), cut.replies().count(), cut.events().count())
        };
        assert_eq!(lengths(50), (true, 2, 5, 4));
        assert_eq!(lengths(10), (true, 1, 4, 3));
        assert_eq!(lengths(7), (true, 1, 2, 2));
        assert_eq!(lengths(4), (false, 1, 0, 0));
        let mut asked = log.clone();
        asked.sessions[0].asked = 3;
        assert!(asked.cut(4) && asked.replies().count() == 1);
    }

    #[test]
    fn values_that_differ_have_prints_that_differ() {
        assert_ne!(ValuePrint::of(b"one"), ValuePrint::of(b"two"));
        assert_ne!(ValuePrint::of(b""), ValuePrint::of(b"\0"));
        assert_eq!(ValuePrint::of(b"one"), ValuePrint::of(b"one"));
    }
}
