//! Tables: what each request becomes, and why each kind of bad one is refused.

use super::*;

fn bytes(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

fn key(text: &'static [u8]) -> Key {
    Key::new(bytes(text)).expect("test key")
}

fn range_of(text: &'static [u8]) -> pb::RangeRequest {
    pb::RangeRequest { key: bytes(text), ..Default::default() }
}

fn plain_query() -> RangeQuery {
    RangeQuery {
        keys: KeyRange::One(key(b"a")),
        at: None,
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Linearizable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

#[test]
fn a_range_of_a_key_alone_asks_for_the_present_without_limits() {
    assert_eq!(RangeQuery::try_from(range_of(b"a")), Ok(plain_query()));
}

#[test]
fn every_field_of_a_range_has_its_place() {
    let wire = pb::RangeRequest {
        key: bytes(b"a"),
        range_end: bytes(b"c"),
        limit: 7,
        revision: 5,
        sort_order: WireOrder::Descend as i32,
        sort_target: WireTarget::Mod as i32,
        serializable: true,
        keys_only: true,
        count_only: true,
        min_mod_revision: 1,
        max_mod_revision: 2,
        min_create_revision: 3,
        max_create_revision: 4,
    };
    let expected = RangeQuery {
        keys: KeyRange::Span { first: key(b"a"), end: bytes(b"c") },
        at: Some(Revision::new(5)),
        limit: Some(7),
        sort: Sort { order: SortOrder::Descend, target: SortTarget::Modified },
        consistency: Consistency::Serializable,
        keys_only: true,
        count_only: true,
        bounds: RevisionBounds {
            modified_first: Some(Revision::new(1)),
            modified_last: Some(Revision::new(2)),
            created_first: Some(Revision::new(3)),
            created_last: Some(Revision::new(4)),
        },
    };
    assert_eq!(RangeQuery::try_from(wire), Ok(expected));
}

#[test]
fn a_limit_of_zero_or_less_is_none_and_so_is_a_revision_of_zero() {
    for limit in [0, -1, i64::MIN] {
        let wire = pb::RangeRequest { limit, revision: 0, ..range_of(b"a") };
        assert_eq!(RangeQuery::try_from(wire), Ok(plain_query()), "{limit}");
    }
    let wire = pb::RangeRequest { revision: -1, ..range_of(b"a") };
    assert_eq!(
        RangeQuery::try_from(wire).expect("valid").at,
        Some(Revision::new(-1)),
        "for the store to judge"
    );
    let wire = pb::RangeRequest { limit: i64::MAX, revision: i64::MAX, ..range_of(b"a") };
    let query = RangeQuery::try_from(wire).expect("valid");
    assert_eq!((query.limit, query.at), (Some(i64::MAX as usize), Some(Revision::new(i64::MAX))));
}

#[test]
fn a_negative_upper_bound_admits_nothing_and_a_negative_lower_one_everything() {
    let upper = pb::RangeRequest { max_mod_revision: -1, ..range_of(b"a") };
    let lower = pb::RangeRequest { min_mod_revision: -1, ..range_of(b"a") };
    let written = Revision::new(2);
    assert!(!RangeQuery::try_from(upper).expect("valid").bounds.admits(written, written));
    assert!(RangeQuery::try_from(lower).expect("valid").bounds.admits(written, written));
}

#[test]
fn every_sort_of_the_wire_is_known() {
    let orders = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend];
    let targets =
        [SortTarget::Key, SortTarget::Version, SortTarget::Created, SortTarget::Modified, SortTarget::Value];
    for (wire_order, order) in (0..).zip(orders) {
        for (wire_target, target) in (0..).zip(targets) {
            let wire =
                pb::RangeRequest { sort_order: wire_order, sort_target: wire_target, ..range_of(b"a") };
            assert_eq!(RangeQuery::try_from(wire).expect("valid").sort, Sort { order, target });
        }
    }
}

#[test]
fn a_bad_range_is_refused_for_its_key_before_its_sort() {
    let table = [
        (range_of(b""), BadRequest::EmptyKey),
        (pb::RangeRequest { range_end: bytes(b"z"), ..range_of(b"") }, BadRequest::EmptyKey),
        (pb::RangeRequest { sort_order: 3, ..range_of(b"") }, BadRequest::EmptyKey),
        (pb::RangeRequest { sort_order: 3, ..range_of(b"a") }, BadRequest::UnknownSort),
        (pb::RangeRequest { sort_order: -1, ..range_of(b"a") }, BadRequest::UnknownSort),
        (pb::RangeRequest { sort_target: 5, ..range_of(b"a") }, BadRequest::UnknownSort),
    ];
    for (wire, refusal) in table {
        assert_eq!(RangeQuery::try_from(wire.clone()), Err(refusal), "{wire:?}");
    }
}

#[test]
fn a_streamed_range_is_by_key_and_unbounded_or_refused() {
    let sorted = |order: WireOrder, target: WireTarget| pb::RangeRequest {
        sort_order: order as i32,
        sort_target: target as i32,
        ..range_of(b"a")
    };
    for taken in [
        range_of(b"a"),
        sorted(WireOrder::Ascend, WireTarget::Key),
        sorted(WireOrder::None, WireTarget::Version),
    ] {
        assert_eq!(range_stream(taken.clone()), Ok(plain_query()), "{taken:?}");
    }
    let table = [
        (range_of(b""), BadRequest::EmptyKey),
        (pb::RangeRequest { sort_order: 9, ..range_of(b"a") }, BadRequest::UnknownSort),
        (sorted(WireOrder::Descend, WireTarget::Key), BadRequest::StreamSorted),
        (sorted(WireOrder::Ascend, WireTarget::Value), BadRequest::StreamSorted),
        (pb::RangeRequest { min_mod_revision: 1, ..range_of(b"a") }, BadRequest::StreamBounded),
        (pb::RangeRequest { max_create_revision: 1, ..range_of(b"a") }, BadRequest::StreamBounded),
    ];
    for (wire, refusal) in table {
        assert_eq!(range_stream(wire.clone()), Err(refusal), "{wire:?}");
    }
}

fn put_of(text: &'static [u8]) -> pb::PutRequest {
    pb::PutRequest { key: bytes(text), ..Default::default() }
}

#[test]
fn a_put_says_what_becomes_of_value_and_lease() {
    let empty = || NewValue::Set(Bytes::new());
    let table = [
        (put_of(b"a"), empty(), NewLease::Set(None)),
        (
            pb::PutRequest { value: bytes(b"v"), lease: -7, ..put_of(b"a") },
            NewValue::Set(bytes(b"v")),
            NewLease::Set(LeaseId::from_wire(-7)),
        ),
        (
            pb::PutRequest { ignore_value: true, lease: 7, ..put_of(b"a") },
            NewValue::KeepCurrent,
            NewLease::Set(LeaseId::from_wire(7)),
        ),
        (
            pb::PutRequest { ignore_lease: true, value: bytes(b"v"), ..put_of(b"a") },
            NewValue::Set(bytes(b"v")),
            NewLease::KeepCurrent,
        ),
    ];
    for (wire, value, lease) in table {
        let expected = Put { key: key(b"a"), value, lease, want_previous: false };
        assert_eq!(Put::try_from(wire.clone()), Ok(expected), "{wire:?}");
    }
    let asking = pb::PutRequest { prev_kv: true, ..put_of(b"a") };
    assert!(Put::try_from(asking).expect("valid").want_previous);
}

#[test]
fn a_bad_put_is_refused_for_its_key_then_its_value_then_its_lease() {
    let both = pb::PutRequest {
        value: bytes(b"v"),
        ignore_value: true,
        lease: 1,
        ignore_lease: true,
        ..put_of(b"a")
    };
    let table = [
        (pb::PutRequest { key: Bytes::new(), ..both.clone() }, BadRequest::EmptyKey),
        (both.clone(), BadRequest::ValueProvided),
        (pb::PutRequest { value: Bytes::new(), ..both }, BadRequest::LeaseProvided),
    ];
    for (wire, refusal) in table {
        assert_eq!(Put::try_from(wire.clone()), Err(refusal), "{wire:?}");
    }
}

#[test]
fn a_delete_names_its_keys_or_is_refused() {
    let wire = pb::DeleteRangeRequest { key: bytes(b"a"), range_end: bytes(b"\0"), prev_kv: true };
    let expected = DeleteRange { keys: KeyRange::From(key(b"a")), want_previous: true };
    assert_eq!(DeleteRange::try_from(wire), Ok(expected));

    let nameless = pb::DeleteRangeRequest { range_end: bytes(b"\0"), ..Default::default() };
    assert_eq!(DeleteRange::try_from(nameless), Err(BadRequest::EmptyKey));
}

#[test]
fn a_compaction_passes_whatever_its_revision() {
    for revision in [-1, 0, 9] {
        for physical in [false, true] {
            let expected = (Compact { revision: Revision::new(revision) }, physical);
            assert_eq!(compaction(pb::CompactionRequest { revision, physical }), expected);
        }
    }
}

#[test]
fn a_key_value_goes_to_the_wire_and_back() {
    for lease in [None, LeaseId::from_wire(-3)] {
        let kv = KeyValue {
            key: bytes(b"k\0"),
            value: bytes(b"\xff"),
            created: Revision::new(2),
            modified: Revision::new(3),
            version: 4,
            lease,
        };
        let wire = mvcc::KeyValue {
            key: bytes(b"k\0"),
            create_revision: 2,
            mod_revision: 3,
            version: 4,
            value: bytes(b"\xff"),
            lease: lease.map_or(0, LeaseId::get),
        };
        assert_eq!(mvcc::KeyValue::from(kv.clone()), wire);
        assert_eq!(KeyValue::from(wire), kv);
    }
}
