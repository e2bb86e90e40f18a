//! Turns answers into a form that can be compared: spliced wire bytes become key-values again.

use bytes::Bytes;
use meerkat_types::{KeyValue, KvPage, LeaseId, Outcome, RangeAnswer, Revision, TxnDone, TxnOpDone};

/// The same answer with its key-values decoded.
pub fn decoded(answer: RangeAnswer) -> RangeAnswer {
    RangeAnswer { kvs: KvPage::Decoded(key_values(&answer.kvs)), ..answer }
}

pub fn decoded_outcome(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Txn(done) => Outcome::Txn(decoded_txn(done)),
        other => other,
    }
}

pub fn decoded_txn(done: TxnDone) -> TxnDone {
    let ops = done.ops.into_iter().map(|op| match op {
        TxnOpDone::Range(answer) => TxnOpDone::Range(decoded(answer)),
        TxnOpDone::Txn(done) => TxnOpDone::Txn(decoded_txn(done)),
        other => other,
    });
    TxnDone { ops: ops.collect(), ..done }
}

pub fn key_values(page: &KvPage) -> Vec<KeyValue> {
    match page {
        KvPage::Decoded(kvs) => kvs.clone(),
        KvPage::Wire { bytes, len } => {
            let mut rest: &[u8] = bytes;
            let mut kvs = Vec::new();
            while !rest.is_empty() {
                assert_eq!(byte(&mut rest), 0x12, "each element is field 2");
                let len = varint(&mut rest) as usize;
                kvs.push(key_value(cut(&mut rest, len)));
            }
            assert_eq!(kvs.len(), *len, "a page knows its length");
            kvs
        }
    }
}

/// A plain protobuf reader that insists on ascending fields and on no field with its default value,
/// as an encoder would write them.
fn key_value(mut rest: &[u8]) -> KeyValue {
    let mut kv = KeyValue {
        key: Bytes::new(),
        value: Bytes::new(),
        created: Revision::new(0),
        modified: Revision::new(0),
        version: 0,
        lease: None,
    };
    let mut last_field = 0;
    while !rest.is_empty() {
        let tag = byte(&mut rest);
        assert!(last_field < tag >> 3, "fields ascend");
        last_field = tag >> 3;
        let number = varint(&mut rest);
        assert_ne!(number, 0, "defaults are left out");
        match tag {
            0x0a => kv.key = Bytes::copy_from_slice(cut(&mut rest, number as usize)),
            0x10 => kv.created = Revision::new(number as i64),
            0x18 => kv.modified = Revision::new(number as i64),
            0x20 => kv.version = number as i64,
            0x2a => kv.value = Bytes::copy_from_slice(cut(&mut rest, number as usize)),
            0x30 => kv.lease = LeaseId::from_wire(number as i64),
            other => panic!("field tag {other:#x}"),
        }
    }
    kv
}

fn byte(rest: &mut &[u8]) -> u8 {
    cut(rest, 1)[0]
}

fn cut<'a>(rest: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, left) = rest.split_at(len);
    *rest = left;
    taken
}

fn varint(rest: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let next = byte(rest);
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return value;
        }
    }
    unreachable!("the loop has no end but the return")
}
