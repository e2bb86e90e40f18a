//! Rows, out of what the state and the watch hub give.
//!
//! Keys and values are copied: a slice of a page or of a log entry would keep all of it in memory for as
//! long as somebody caches one small row.

use super::error::LocalError;
use bytes::Bytes;
use meerkat_proto::pb::etcdserver::KvList;
use meerkat_proto::pb::mvcc;
use meerkat_types::{Event, EventKind, KeyValue, KvPage, LeaseId, Revision};

/// A key as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRow {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of the last write.
    pub modified: u64,
    /// 0 for none.
    pub lease: i64,
}

/// What happened to one key in a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalChange {
    pub key: Bytes,
    /// `None` for a deletion.
    pub after: Option<LocalRow>,
}

pub(super) fn unsigned(revision: Revision) -> u64 {
    u64::try_from(revision.get()).unwrap_or(0)
}

impl From<&KeyValue> for LocalRow {
    fn from(kv: &KeyValue) -> LocalRow {
        LocalRow {
            key: Bytes::copy_from_slice(&kv.key),
            value: Bytes::copy_from_slice(&kv.value),
            modified: unsigned(kv.modified),
            lease: kv.lease.map_or(0, LeaseId::get),
        }
    }
}

impl From<&mvcc::KeyValue> for LocalRow {
    fn from(kv: &mvcc::KeyValue) -> LocalRow {
        LocalRow {
            key: Bytes::copy_from_slice(&kv.key),
            value: Bytes::copy_from_slice(&kv.value),
            modified: u64::try_from(kv.mod_revision).unwrap_or(0),
            lease: kv.lease,
        }
    }
}

/// All rows of a page.
pub(super) fn rows(page: KvPage) -> Result<Vec<LocalRow>, LocalError> {
    let kvs = KvList::from(page).into_decoded().map_err(|error| {
        LocalError::Unavailable(format!("a page of this member's state cannot be read: {error}"))
    })?;
    Ok(kvs.iter().map(LocalRow::from).collect())
}

pub(super) fn change(event: &Event) -> LocalChange {
    match &event.kind {
        EventKind::Put(kv) => {
            LocalChange { key: Bytes::copy_from_slice(&kv.key), after: Some(LocalRow::from(kv)) }
        }
        EventKind::Delete { key, .. } => LocalChange { key: Bytes::copy_from_slice(key), after: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(version: i64) -> KeyValue {
        KeyValue {
            key: Bytes::from_static(b"k"),
            value: Bytes::from_static(b"v"),
            created: Revision::new(2),
            modified: Revision::new(2 + version),
            version,
            lease: LeaseId::from_wire(7),
        }
    }

    #[test]
    fn a_row_is_a_copy_with_its_revision_and_lease() {
        let kv = kv(1);
        let row = LocalRow::from(&kv);
        assert_eq!(
            (row.modified, row.lease, row.key.as_ref(), row.value.as_ref()),
            (3, 7, &b"k"[..], &b"v"[..])
        );
        assert_ne!(row.value.as_ptr(), kv.value.as_ptr());
        let wire = mvcc::KeyValue::from(kv.clone());
        assert_eq!(rows(KvPage::Decoded(vec![kv])), Ok(vec![LocalRow::from(&wire)]));
    }

    #[test]
    fn an_event_is_told_by_what_it_leaves() {
        let put = change(&Event { kind: EventKind::Put(kv(2)), previous: None });
        assert_eq!((put.key.as_ref(), put.after), (&b"k"[..], Some(LocalRow::from(&kv(2)))));
        let deleted = EventKind::Delete { key: Bytes::from_static(b"k"), modified: Revision::new(9) };
        let gone = change(&Event { kind: deleted, previous: Some(kv(2)) });
        assert_eq!((gone.key.as_ref(), gone.after), (&b"k"[..], None));
    }
}
