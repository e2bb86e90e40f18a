//! The rows of etcd's buckets, to bytes and back.

use super::protobuf::{Value, each_field, put_bytes, put_number};

const SEPARATOR: u8 = b'_';
const DELETION: u8 = b't';
pub(super) const REVISION_BYTES: usize = 17;

/// The row of bucket `meta` that names the layout.
pub(super) const STORAGE_VERSION: &[u8] = b"storageVersion";

/// A key and a value of some bucket.
pub type Row = (Vec<u8>, Vec<u8>);

/// One event of the store's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredEvent<'a> {
    pub revision: i64,
    /// Its place among the events of its revision.
    pub sub: i64,
    pub change: Change<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Put(KeyValue<'a>),
    Delete {
        key: &'a [u8],
    },
    /// What a restore with a bumped revision leaves: a revision in which nothing happened.
    Nothing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyValue<'a> {
    pub key: &'a [u8],
    pub created: i64,
    pub modified: i64,
    pub version: i64,
    pub value: &'a [u8],
    pub lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    pub id: i64,
    pub ttl_seconds: i64,
    /// 0 if nobody noted what was left.
    pub remaining_seconds: i64,
}

pub(super) fn revision_key(revision: i64, sub: i64) -> [u8; REVISION_BYTES] {
    let mut key = [SEPARATOR; REVISION_BYTES];
    key[..8].copy_from_slice(&revision.to_be_bytes());
    key[9..].copy_from_slice(&sub.to_be_bytes());
    key
}

pub(super) fn deletion_key(revision: i64, sub: i64) -> [u8; REVISION_BYTES + 1] {
    let mut key = [DELETION; REVISION_BYTES + 1];
    key[..REVISION_BYTES].copy_from_slice(&revision_key(revision, sub));
    key
}

pub(super) fn deletion_value(key: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(key.len() + 6);
    put_bytes(&mut value, 1, key);
    value
}

/// Revision, sub, and whether it is a deletion.
pub(super) fn decode_revision(key: &[u8]) -> Option<(i64, i64, bool)> {
    let deletion = match key.get(REVISION_BYTES..)? {
        [] => false,
        [DELETION] => true,
        _ => return None,
    };
    let revision = i64::from_be_bytes(key[..8].try_into().ok()?);
    let sub = i64::from_be_bytes(key[9..REVISION_BYTES].try_into().ok()?);
    (key[8] == SEPARATOR && 0 <= revision && 0 <= sub).then_some((revision, sub, deletion))
}

pub(super) fn decode_event<'a>(key: &[u8], value: &'a [u8]) -> Option<StoredEvent<'a>> {
    let (revision, sub, deletion) = decode_revision(key)?;
    let kv = decode_key_value(value)?;
    let change = match (kv.key.is_empty(), deletion) {
        (true, _) => Change::Nothing,
        (false, true) => Change::Delete { key: kv.key },
        (false, false) => Change::Put(kv),
    };
    Some(StoredEvent { revision, sub, change })
}

fn decode_key_value(message: &[u8]) -> Option<KeyValue<'_>> {
    let mut kv = KeyValue::default();
    each_field(message, |field, value| {
        match (field, value) {
            (1, Value::Bytes(key)) => kv.key = key,
            (2, Value::Number(number)) => kv.created = number as i64,
            (3, Value::Number(number)) => kv.modified = number as i64,
            (4, Value::Number(number)) => kv.version = number as i64,
            (5, Value::Bytes(bytes)) => kv.value = bytes,
            (6, Value::Number(number)) => kv.lease = number as i64,
            (1..=6, _) => return None,
            _ => {}
        }
        Some(())
    })?;
    Some(kv)
}

impl LeaseRow {
    pub(super) fn key(&self) -> [u8; 8] {
        self.id.to_be_bytes()
    }

    pub(super) fn value(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(24);
        put_number(&mut value, 1, self.id);
        put_number(&mut value, 2, self.ttl_seconds);
        put_number(&mut value, 3, self.remaining_seconds);
        value
    }

    pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<LeaseRow> {
        let id = i64::from_be_bytes(key.try_into().ok()?);
        let mut lease = LeaseRow { id: 0, ttl_seconds: 0, remaining_seconds: 0 };
        each_field(value, |field, value| {
            let Value::Number(number) = value else { return Some(()) };
            match field {
                1 => lease.id = number as i64,
                2 => lease.ttl_seconds = number as i64,
                3 => lease.remaining_seconds = number as i64,
                _ => {}
            }
            Some(())
        })?;
        (lease.id == id && id != 0).then_some(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_back_and_order_as_they_happened() {
        let put = revision_key(300, 2);
        let deletion = deletion_key(300, 3);
        assert!(put.as_slice() < deletion.as_slice());
        assert_eq!(decode_revision(&put), Some((300, 2, false)));
        assert_eq!(decode_revision(&deletion), Some((300, 3, true)));
        assert_eq!(decode_revision(&put[..16]), None);
        let gone = deletion_value(b"k");
        let event = decode_event(&deletion, &gone).expect("an event");
        assert_eq!(event, StoredEvent { revision: 300, sub: 3, change: Change::Delete { key: b"k" } });
        let value = [0x0a, 1, b'k', 0x10, 2, 0x18, 0xac, 0x02, 0x20, 1, 0x2a, 1, b'v', 0x30, 5];
        let Some(Change::Put(kv)) = decode_event(&put, &value).map(|event| event.change) else {
            panic!("a put")
        };
        assert_eq!((kv.created, kv.modified, kv.version, kv.lease), (2, 300, 1, 5));
        assert_eq!((kv.key, kv.value), (b"k".as_slice(), b"v".as_slice()));
        assert_eq!(decode_event(&put, &[]).map(|event| event.change), Some(Change::Nothing));
    }

    #[test]
    fn leases_read_back() {
        let lease = LeaseRow { id: -7, ttl_seconds: 60, remaining_seconds: 3 };
        assert_eq!(LeaseRow::decode(&lease.key(), &lease.value()), Some(lease));
        assert_eq!(LeaseRow::decode(&8i64.to_be_bytes(), &lease.value()), None);
    }
}
