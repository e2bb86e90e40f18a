//! The hand-written message against one that prost derives from the same fields.

use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct Twin {
    #[prost(message, optional, tag = "1")]
    header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    more: bool,
    #[prost(int64, tag = "4")]
    count: i64,
}

fn kvs(count: usize) -> Vec<KeyValue> {
    (0..count)
        .map(|n| KeyValue {
            key: Bytes::from(format!("key-{n}")),
            // Lengths on both sides of where a length takes a second byte.
            value: Bytes::from(vec![n as u8; n * 60]),
            create_revision: 2,
            mod_revision: 2 + n as i64,
            version: 1,
            lease: n as i64,
        })
        .collect()
}

fn wire(kvs: &[KeyValue]) -> KvList {
    let mut bytes = Vec::new();
    for kv in kvs {
        bytes.push(0x12);
        bytes.extend_from_slice(&kv.encode_length_delimited_to_vec());
    }
    KvList::Wire { bytes: bytes.into(), len: kvs.len() }
}

/// Everything from the empty message to one with every field set.
fn twins() -> Vec<Twin> {
    let header = ResponseHeader { cluster_id: u64::MAX, member_id: 2, revision: -3, raft_term: 4 };
    let mut twins = Vec::new();
    for header in [None, Some(ResponseHeader::default()), Some(header)] {
        for len in [0, 1, 5] {
            for (more, count) in [(false, 0), (true, 5), (false, i64::MAX), (true, -1)] {
                twins.push(Twin { header, kvs: kvs(len), more, count });
            }
        }
    }
    twins
}

fn like(twin: &Twin, kvs: KvList) -> RangeResponse {
    RangeResponse { header: twin.header, kvs, more: twin.more, count: twin.count }
}

#[test]
fn both_forms_encode_as_the_derived_message_does() {
    for twin in twins() {
        let expected = twin.encode_to_vec();
        for form in [KvList::Decoded(twin.kvs.clone()), wire(&twin.kvs)] {
            let message = like(&twin, form);
            assert_eq!(message.encoded_len(), expected.len(), "{message:?}");
            assert_eq!(message.encode_to_vec(), expected, "{message:?}");
        }
    }
}

#[test]
fn what_the_derived_message_wrote_is_read_back_decoded() {
    for twin in twins() {
        let message = RangeResponse::decode(Bytes::from(twin.encode_to_vec())).expect("valid bytes");
        assert_eq!(message.kvs(), twin.kvs);
        assert_eq!(message, like(&twin, KvList::Decoded(twin.kvs.clone())));
    }
}

#[test]
fn the_wire_form_can_be_taken_apart() {
    let page = wire(&kvs(3));
    assert_eq!((page.len(), page.is_empty()), (3, false));
    let message = RangeResponse { kvs: page, ..Default::default() };
    assert_eq!(message.into_kvs().expect("own bytes"), kvs(3));
    assert_eq!(wire(&[]).into_decoded().expect("no bytes"), []);
}

#[test]
fn merging_into_either_form_adds_to_it() {
    let more = Twin { kvs: kvs(2), count: 9, ..Default::default() }.encode_to_vec();
    for form in [KvList::Decoded(kvs(1)), wire(&kvs(1))] {
        let mut message = RangeResponse { kvs: form, count: 1, ..Default::default() };
        message.merge(&more[..]).expect("valid bytes");
        assert_eq!(message.count, 9);
        assert_eq!(message.into_kvs().expect("decoded"), [kvs(1), kvs(2)].concat());
    }
}

#[test]
fn a_field_from_the_future_is_skipped() {
    let mut bytes = Twin { count: 3, ..Default::default() }.encode_to_vec();
    bytes.extend_from_slice(&[0x78, 1]);
    let message = RangeResponse::decode(&bytes[..]).expect("valid bytes");
    assert_eq!(message, RangeResponse { count: 3, ..Default::default() });
}

#[test]
fn broken_bytes_are_an_error_and_say_where() {
    // A key-value that claims to be longer than the message, and a flag of the wrong type.
    for (bytes, field) in [(&[0x12u8, 5, 0x0a][..], "RangeResponse.kvs"), (&[0x1a, 0], "RangeResponse.more")]
    {
        let error = RangeResponse::decode(bytes).expect_err("broken");
        assert!(error.to_string().contains(field), "{error}");
        let mut cut = wire(&kvs(1));
        if let KvList::Wire { bytes: page, .. } = &mut cut {
            *page = Bytes::copy_from_slice(bytes);
        }
        assert!(cut.into_decoded().is_err());
    }
}

#[test]
fn clearing_leaves_the_default() {
    let mut message = RangeResponse { kvs: wire(&kvs(1)), more: true, count: 1, header: None };
    message.clear();
    assert_eq!(message, RangeResponse::default());
}

#[test]
#[should_panic(expected = "into_kvs")]
fn looking_into_the_wire_form_is_a_mistake() {
    let message = RangeResponse { kvs: wire(&kvs(1)), ..Default::default() };
    message.kvs();
}
