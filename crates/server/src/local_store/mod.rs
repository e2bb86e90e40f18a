//! The member's store for doors that run inside its process.
//!
//! The same promises as the gRPC API's, without its wire: a read without a revision covers every write
//! that was acknowledged before it, a write is one transaction through the log, a watch tells whole
//! revisions in order. The same limits hold, and the same time-outs.
//!
//! A member that is cut off from the majority answers nothing that is of now, and ends its watches about
//! three election time-outs after it last heard of a leader, as it does for clients that ask for one.

mod access;
mod error;
mod row;
mod watch;

pub use access::{BadToken, LocalAccess, LocalKeys, LocalRules};
pub use error::LocalError;
pub use row::{LocalChange, LocalRow};
pub use watch::{LocalBatch, LocalWatch};

use crate::config::Config;
use crate::member::{By, INLINE_KEYS_MAX, Member};
use bytes::Bytes;
use meerkat_raft::Renewal;
use meerkat_state::Pinned;
use meerkat_types::{
    Asker, AuthRevision, Compare, CompareOperator, CompareTarget, Consistency, DeleteRange, Key, KeyRange,
    LeaseId, NewLease, NewValue, Put, RangeQuery, Revision, RevisionBounds, Sort, Txn, TxnDone, TxnOp,
    TxnOpDone, UserName, Way,
};
use meerkat_watch::Hub;
use prost::encoding::encoded_len_varint;
use prost::length_delimiter_len;
use row::{rows, unsigned};
use std::time::Duration;
use tokio::sync::watch as channel;

/// A page ends with the row that reaches this.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Some rows in the order of keys, all as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPage {
    pub rows: Vec<LocalRow>,
    pub revision: u64,
    /// There are more behind the last one.
    pub more: bool,
}

/// What becomes of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalWrite {
    /// A lease of 0 is none.
    Put {
        value: Bytes,
        lease: i64,
    },
    Delete,
}

/// In whose name a write is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAsker {
    /// The member itself, which may do everything.
    Member,
    /// Who was let in by [`LocalRules`] of this revision. The write is judged again when it is applied: it
    /// needs write on its key, and the same revision. What else it needs, the door has judged by that one.
    User { name: Option<String>, rules: u64 },
}

impl From<LocalAsker> for Option<Asker> {
    fn from(asker: LocalAsker) -> Option<Asker> {
        match asker {
            LocalAsker::Member => None,
            LocalAsker::User { name, rules } => Some(Asker {
                user: name.as_deref().and_then(UserName::new),
                revision: AuthRevision(rules),
                way: Way::Door,
            }),
        }
    }
}

/// What a write came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalWritten {
    Done {
        revision: u64,
    },
    /// Nothing was done: the key is otherwise, as of `revision`.
    Otherwise {
        found: Option<LocalRow>,
        revision: u64,
    },
}

/// A handle to the store of this member. Clones are the same store.
#[derive(Clone)]
pub struct LocalStore {
    member: Member,
    hub: Hub,
    access: LocalAccess,
    /// How long a read waits for a leader when none has been heard of for a while.
    patience: Duration,
}

impl LocalStore {
    pub(crate) fn new(member: Member, hub: Hub, config: &Config) -> LocalStore {
        LocalStore {
            access: LocalAccess::new(member.guard.clone()),
            member,
            hub,
            patience: Duration::from_millis(config.election_timeout_ms),
        }
    }

    /// Who may do what here. Doors ask before they read, and before they write in somebody's name.
    pub fn access(&self) -> LocalAccess {
        self.access.clone()
    }

    /// The revision of the newest write that was acknowledged before the call, or a later one.
    pub async fn now(&self) -> Result<u64, LocalError> {
        self.become_fresh().await?;
        Ok(unsigned(self.member.raft.reader().current_revision()))
    }

    /// Rows of a prefix from a key on, at most so many, as of a revision or as of now.
    pub async fn read(
        &self,
        prefix: Bytes,
        from: Bytes,
        limit: usize,
        at: Option<u64>,
    ) -> Result<LocalPage, LocalError> {
        let asked = at.map(|at| signed(at).ok_or(LocalError::Future { asked: at })).transpose()?;
        // A past revision is what it is on every member, once the member has it.
        if asked.is_none_or(|at| self.member.raft.reader().current_revision() < at) {
            self.become_fresh().await?;
        }
        let Some(keys) = span(&prefix, from) else {
            let pinned = self.member.raft.reader().pin();
            let revision = at.unwrap_or_else(|| unsigned(pinned.current_revision()));
            return Ok(LocalPage { rows: Vec::new(), revision, more: false });
        };
        if limit <= INLINE_KEYS_MAX && asked.is_none() {
            return read_page(&self.member.raft.reader().pin(), keys, limit, asked);
        }
        self.member.read_long(move |pinned| Ok(read_page(pinned, keys, limit, asked))).await?
    }

    /// A key as of now, and the revision that this is as of.
    pub async fn get(&self, key: Bytes) -> Result<(Option<LocalRow>, u64), LocalError> {
        meerkat_fault::poisoned("poisoned_request", &key);
        let key = named(key)?;
        self.become_fresh().await?;
        let answer = self.member.raft.reader().range(&query(KeyRange::One(key), None))?;
        let revision = unsigned(answer.revision);
        Ok((rows(answer.kvs)?.pop(), revision))
    }

    /// Changes one key if its last write was at revision `expected`; 0 if it is not to be there.
    pub async fn write(
        &self,
        key: Bytes,
        expected: u64,
        write: LocalWrite,
        asker: LocalAsker,
    ) -> Result<LocalWritten, LocalError> {
        meerkat_fault::poisoned("poisoned_request", &key);
        let expected = signed(expected).ok_or(LocalError::Future { asked: expected })?;
        self.member.check_size(bytes_on_the_wire(key.len(), expected, &write))?;
        let txn = guarded(named(key)?, expected, write);
        written(self.member.txn(By::Judged(asker.into()), txn).await?)
    }

    /// Every change under a prefix after a revision, and how far the member has come: at once when it is
    /// behind what somebody awaits (0 for nobody), else every second.
    pub fn watch(&self, prefix: &[u8], after: u64, awaited: channel::Receiver<u64>) -> LocalWatch {
        let reader = self.member.raft.reader().clone();
        let applied = self.member.raft.applied().clone();
        LocalWatch::new(&self.hub, reader, applied, awaited, prefix, after)
    }

    /// A lease that ends by itself.
    pub async fn grant(&self, ttl_s: u64) -> Result<i64, LocalError> {
        let asked = i64::try_from(ttl_s).unwrap_or(i64::MAX);
        let ttl = self.member.lease_ttl(asked);
        let ttl = ttl.ok_or_else(|| LocalError::Unavailable("a lease cannot live so long".to_owned()))?;
        let (id, _) = self.member.grant(By::Judged(None), None, ttl).await?;
        Ok(id.get())
    }

    /// Gives a lease its whole time again; false if it has ended. Nothing is written.
    pub async fn renew(&self, lease: i64) -> Result<bool, LocalError> {
        let Some(lease) = LeaseId::from_wire(lease) else { return Ok(false) };
        match self.member.raft.leases().renew(&[lease]).await?.first() {
            Some(Renewal::Renewed(_)) => Ok(true),
            Some(Renewal::Gone) => Ok(false),
            Some(Renewal::Expiring) | None => {
                Err(LocalError::Unavailable("the lease is about to end, or is not known".to_owned()))
            }
        }
    }

    async fn become_fresh(&self) -> Result<(), LocalError> {
        let fresh = self.member.become_fresh(Consistency::Linearizable);
        if self.member.raft.leadership().known().is_some() {
            return Ok(fresh.await?);
        }
        // There may be one in a moment. If not, whoever reads is better served elsewhere.
        Ok(tokio::time::timeout(self.patience, fresh).await.map_err(|_| LocalError::NoLeader)??)
    }
}

fn read_page(
    pinned: &Pinned,
    keys: KeyRange,
    limit: usize,
    at: Option<Revision>,
) -> Result<LocalPage, LocalError> {
    let mut pages = pinned.pages(&query(keys, at))?;
    let page = pages.next_page(limit, PAGE_BYTES_MAX)?;
    let revision = unsigned(at.unwrap_or_else(|| pages.revision()));
    let rows = page.map_or(Ok(Vec::new()), rows)?;
    Ok(LocalPage { rows, revision, more: !pages.is_finished() })
}

fn named(key: Bytes) -> Result<Key, LocalError> {
    Key::new(key).ok_or_else(|| LocalError::Unavailable("a key is not empty".to_owned()))
}

fn query(keys: KeyRange, at: Option<Revision>) -> RangeQuery {
    RangeQuery {
        keys,
        at,
        limit: None,
        sort: Sort::BY_KEY,
        // Whoever asks has waited already, if it was to be waited.
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

/// The keys of a prefix from `from` on; `None` if there can be none.
fn span(prefix: &[u8], from: Bytes) -> Option<KeyRange> {
    let all = KeyRange::prefix(prefix);
    let from = match Key::new(from) {
        Some(from) if all.first() < &from => from,
        Some(_) | None => return Some(all),
    };
    match all {
        KeyRange::Span { end, .. } => {
            (from.as_bytes() < end.as_ref()).then_some(KeyRange::Span { first: from, end })
        }
        KeyRange::From(_) => Some(KeyRange::From(from)),
        KeyRange::One(_) => None,
    }
}

/// A write of `key` if its last one was at `expected`, else a look at it.
fn guarded(key: Key, expected: Revision, write: LocalWrite) -> Txn {
    let compare = Compare {
        keys: KeyRange::One(key.clone()),
        target: CompareTarget::Modified(expected),
        operator: CompareOperator::Equal,
    };
    let look =
        RangeQuery { consistency: Consistency::Linearizable, ..query(KeyRange::One(key.clone()), None) };
    let change = match write {
        LocalWrite::Put { value, lease } => TxnOp::Put(Put {
            key,
            value: NewValue::Set(value),
            lease: NewLease::Set(LeaseId::from_wire(lease)),
            want_previous: false,
        }),
        LocalWrite::Delete => {
            TxnOp::DeleteRange(DeleteRange { keys: KeyRange::One(key), want_previous: false })
        }
    };
    Txn { compares: vec![compare], success: vec![change], failure: vec![TxnOp::Range(look)] }
}

/// What that transaction weighs as a client would send it, so that the same is too large.
fn bytes_on_the_wire(key: usize, expected: Revision, write: &LocalWrite) -> usize {
    // Every field has a tag of one byte. What is empty or zero is left out, but for the compared revision.
    let message = |length: usize| 1 + length_delimiter_len(length) + length;
    let bytes = |length: usize| if length == 0 { 0 } else { message(length) };
    let number = |number: i64| 1 + encoded_len_varint(number.cast_unsigned());
    let compare = number(2) + bytes(key) + number(expected.get());
    let change = match write {
        LocalWrite::Put { value, lease: 0 } => bytes(key) + bytes(value.len()),
        LocalWrite::Put { value, lease } => bytes(key) + bytes(value.len()) + number(*lease),
        LocalWrite::Delete => bytes(key),
    };
    message(compare) + message(message(change)) + message(message(bytes(key)))
}

fn written(done: TxnDone) -> Result<LocalWritten, LocalError> {
    let revision = unsigned(done.revision);
    if done.succeeded {
        return Ok(LocalWritten::Done { revision });
    }
    match done.ops.into_iter().next() {
        Some(TxnOpDone::Range(answer)) => {
            Ok(LocalWritten::Otherwise { found: rows(answer.kvs)?.pop(), revision })
        }
        _ => Err(LocalError::mismatched_outcome()),
    }
}

fn signed(revision: u64) -> Option<Revision> {
    i64::try_from(revision).ok().map(Revision::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prefix: &'static [u8], from: &'static [u8], inside: &[&[u8]], outside: &[&[u8]]) {
        let range = span(prefix, Bytes::from_static(from));
        let holds = |key: &[u8]| range.as_ref().is_some_and(|range| range.contains(key));
        for key in inside {
            assert!(holds(key), "{range:?} should hold {key:?}");
        }
        for key in outside {
            assert!(!holds(key), "{range:?} should not hold {key:?}");
        }
    }

    #[test]
    fn a_span_is_the_prefix_from_a_key_on() {
        check(b"a/", b"", &[b"a/", b"a/1"], &[b"a", b"a0"]);
        check(b"a/", b"a/2", &[b"a/2", b"a/20"], &[b"a/1", b"a0"]);
        check(b"a/", b"A", &[b"a/", b"a/1"], &[b"A", b"a"]);
        check(b"a/", b"a0", &[], &[b"a/1", b"a0"]);
        check(b"", b"b", &[b"b", b"c"], &[b"a"]);
        check(b"\xff", b"\xff\x01", &[b"\xff\x01"], &[b"\xff"]);
    }

    #[test]
    fn a_write_is_what_a_client_would_send_and_weighs_as_much() {
        use meerkat_proto::pb::etcdserver as pb;
        use pb::request_op::Request;
        use prost::Message;
        let op = |request| vec![pb::RequestOp { request: Some(request) }];
        let (key, none) = (Bytes::from_static(b"a/key"), Bytes::new());
        let put = |length, lease| LocalWrite::Put { value: vec![0; length].into(), lease };
        for (expected, write) in [
            (0, put(0, 0)),
            (127, put(1, 7)),
            (128, put(200, -1)),
            (i64::MAX, put(1 << 20, i64::MAX)),
            (9, LocalWrite::Delete),
        ] {
            let (key, range_end) = (key.clone(), none.clone());
            let compare = pb::Compare {
                target: pb::compare::CompareTarget::Mod.into(),
                key: key.clone(),
                target_union: Some(pb::compare::TargetUnion::ModRevision(expected)),
                ..Default::default()
            };
            let look = pb::RangeRequest { key: key.clone(), ..Default::default() };
            let change = match write.clone() {
                LocalWrite::Put { value, lease } => {
                    Request::RequestPut(pb::PutRequest { key, value, lease, ..Default::default() })
                }
                LocalWrite::Delete => {
                    Request::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end, prev_kv: false })
                }
            };
            let failure = op(Request::RequestRange(look));
            let wire = pb::TxnRequest { compare: vec![compare], success: op(change), failure };
            let expected = Revision::new(expected);
            assert_eq!(bytes_on_the_wire(5, expected, &write), wire.encoded_len(), "{write:?}");
            let read = meerkat_proto::convert::txn::txn(wire, 1).expect("a transaction");
            assert_eq!(guarded(Key::new("a/key".into()).expect("a key"), expected, write), read);
        }
    }

    #[test]
    fn what_is_found_otherwise_is_told() {
        let done = TxnDone { revision: Revision::new(9), succeeded: true, ops: Vec::new() };
        assert_eq!(written(done), Ok(LocalWritten::Done { revision: 9 }));
        let answer = meerkat_types::RangeAnswer {
            kvs: meerkat_types::KvPage::empty(),
            more: false,
            count: 0,
            revision: Revision::new(9),
        };
        let ops = vec![TxnOpDone::Range(answer)];
        let done = TxnDone { revision: Revision::new(9), succeeded: false, ops };
        assert_eq!(written(done), Ok(LocalWritten::Otherwise { found: None, revision: 9 }));
    }
}
