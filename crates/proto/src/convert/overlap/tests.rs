//! Which writes clash, as a table; and the set of deletes against a naive one.

use super::*;
use bytes::Bytes;
use meerkat_types::{DeleteRange, Key, NewLease, NewValue, Put};

fn put(key: &'static str) -> TxnOp {
    TxnOp::Put(Put {
        key: Key::new(Bytes::from_static(key.as_bytes())).expect("test key"),
        value: NewValue::Set(Bytes::new()),
        lease: NewLease::Set(None),
        want_previous: false,
    })
}

fn delete(key: &'static str, end: &'static str) -> TxnOp {
    let key = Key::new(Bytes::from_static(key.as_bytes())).expect("test key");
    let keys = KeyRange::from_wire(key, Bytes::from_static(end.as_bytes()));
    TxnOp::DeleteRange(DeleteRange { keys, want_previous: false })
}

fn txn(success: Vec<TxnOp>, failure: Vec<TxnOp>) -> TxnOp {
    TxnOp::Txn(Txn { compares: vec![], success, failure })
}

/// Holds in either branch, since the rule is the same for both.
#[track_caller]
fn clash(ops: Vec<TxnOp>) {
    for txn in both(ops) {
        assert_eq!(check(&txn), Err(BadRequest::DuplicateKey), "{txn:?}");
    }
}

#[track_caller]
fn no_clash(ops: Vec<TxnOp>) {
    for txn in both(ops) {
        assert_eq!(check(&txn), Ok(()), "{txn:?}");
    }
}

fn both(ops: Vec<TxnOp>) -> [Txn; 2] {
    [
        Txn { compares: vec![], success: ops.clone(), failure: vec![] },
        Txn { compares: vec![], success: vec![], failure: ops },
    ]
}

#[test]
fn a_key_is_put_once_in_a_branch() {
    clash(vec![put("a"), put("a")]);
    clash(vec![put("a"), put("b"), put("a")]);
    no_clash(vec![put("a"), put("b")]);
}

#[test]
fn the_two_branches_of_a_transaction_do_not_clash() {
    let txn = Txn { compares: vec![], success: vec![put("a")], failure: vec![put("a"), delete("b", "")] };
    assert_eq!(check(&txn), Ok(()));
}

#[test]
fn a_put_clashes_with_a_delete_of_its_key_before_or_after_it() {
    clash(vec![delete("a", ""), put("a")]);
    clash(vec![put("a"), delete("a", "")]);
    clash(vec![delete("a", "c"), put("b")]);
    clash(vec![put("a"), delete("a", "c")]);
    no_clash(vec![delete("a", ""), put("a\0")]);
    no_clash(vec![delete("a", "c"), put("c")]);
    no_clash(vec![delete("b", "c"), put("a")]);
    no_clash(vec![delete("c", "a"), put("b")]);
}

#[test]
fn deletes_do_not_clash_with_deletes() {
    no_clash(vec![delete("a", ""), delete("a", ""), delete("a", "c"), delete("b", "d")]);
    clash(vec![delete("a", "c"), delete("b", "d"), put("c")]);
    clash(vec![delete("a", "z"), delete("b", "c"), put("d")]);
}

#[test]
fn a_delete_without_an_upper_end_clashes_with_nothing() {
    no_clash(vec![delete("a", "\0"), put("a")]);
    no_clash(vec![delete("\0", "\0"), put("b")]);
    no_clash(vec![txn(vec![delete("a", "\0")], vec![]), put("b")]);
}

#[test]
fn nested_puts_clash_with_each_other_and_with_their_parents() {
    clash(vec![txn(vec![put("a")], vec![]), put("a")]);
    clash(vec![put("a"), txn(vec![], vec![put("a")])]);
    clash(vec![txn(vec![put("a")], vec![]), txn(vec![put("a")], vec![])]);
    clash(vec![txn(vec![put("a")], vec![]), txn(vec![], vec![put("a")])]);
    clash(vec![txn(vec![txn(vec![put("a")], vec![])], vec![]), put("a")]);
    clash(vec![txn(vec![put("a"), put("a")], vec![])]);
    clash(vec![txn(vec![], vec![put("a"), put("a")])]);
}

#[test]
fn the_branches_of_a_nested_transaction_may_put_the_same_key() {
    no_clash(vec![txn(vec![put("a")], vec![put("a")])]);
    clash(vec![txn(vec![put("a")], vec![put("a")]), put("a")]);
    clash(vec![txn(vec![put("a")], vec![put("a")]), txn(vec![], vec![put("a")])]);
}

#[test]
fn nested_puts_clash_with_deletes_of_their_parent() {
    clash(vec![delete("a", "c"), txn(vec![put("b")], vec![])]);
    clash(vec![txn(vec![], vec![put("b")]), delete("a", "c")]);
}

#[test]
fn a_put_clashes_with_deletes_nested_below_its_level() {
    clash(vec![txn(vec![delete("a", "")], vec![]), put("a")]);
    clash(vec![put("b"), txn(vec![], vec![delete("a", "c")])]);
    clash(vec![txn(vec![txn(vec![delete("a", "")], vec![])], vec![]), put("a")]);
}

#[test]
fn nested_writes_clash_with_nested_deletes_of_earlier_siblings_only() {
    clash(vec![txn(vec![delete("a", "")], vec![]), txn(vec![put("a")], vec![])]);
    no_clash(vec![txn(vec![put("a")], vec![]), txn(vec![delete("a", "")], vec![])]);
    no_clash(vec![txn(vec![put("a")], vec![delete("a", "")])]);
}

#[test]
fn merged_spans_cover_exactly_what_was_deleted() {
    // All sets of up to three spans over a small alphabet, inverted and empty ones included.
    let ends: Vec<[u8; 1]> = (0..6).map(|n| [b'a' + n]).collect();
    let spans: Vec<(&[u8], &[u8])> =
        ends.iter().flat_map(|first| ends.iter().map(move |end| (&first[..], &end[..]))).collect();
    for one in &spans {
        for two in &spans {
            for three in &spans {
                let mut deletes = Deletes::default();
                for (first, end) in [one, two, three] {
                    deletes.insert_span(first, end);
                }
                for key in &ends {
                    let naive =
                        [one, two, three].iter().any(|(first, end)| *first <= &key[..] && &key[..] < *end);
                    assert_eq!(deletes.covers(key), naive, "{one:?} {two:?} {three:?} {key:?}");
                }
                let flat: Vec<&[u8]> = deletes.spans.iter().flat_map(|(first, end)| [*first, *end]).collect();
                assert!(flat.is_sorted_by(|low, high| low < high), "spans are disjoint: {flat:?}");
            }
        }
    }
}

#[test]
fn a_hundred_thousand_writes_are_checked_without_comparing_all_with_all() {
    let ops: Vec<TxnOp> = (0..100_000u32)
        .map(|n| {
            let key = Key::new(Bytes::from(format!("{n:08}"))).expect("test key");
            if n % 2 == 0 {
                let end = Bytes::from(format!("{:08}", n + 1));
                TxnOp::DeleteRange(DeleteRange {
                    keys: KeyRange::Span { first: key, end },
                    want_previous: false,
                })
            } else {
                let value = NewValue::Set(Bytes::new());
                TxnOp::Put(Put { key, value, lease: NewLease::Set(None), want_previous: false })
            }
        })
        .collect();
    let started = std::time::Instant::now();
    no_clash(ops);
    // Comparing every put with every delete would take minutes.
    let took = started.elapsed();
    assert!(took < std::time::Duration::from_secs(30), "too slow: {took:?}");
}
