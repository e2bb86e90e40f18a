//! Watches, from the wire and to it.
//!
//! Events are written once, by themselves, and an answer is its head with such events behind it:
//! the field of the events has the highest number, so the two put together are the message.

use crate::pb::etcdserver as pb;
use crate::pb::etcdserver::watch_create_request::FilterType;
use crate::pb::etcdserver::watch_request::RequestUnion;
use crate::pb::mvcc;
use bytes::Bytes;
use meerkat_types::{Event, EventKind, Filter, Key, KeyRange, Revision, WatchId, WatchRequest, WatchStart};

/// The field of `WatchResponse` that holds its events.
const EVENTS: u32 = 11;

/// What a client says on its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchCall {
    Create(WatchRequest),
    Cancel(WatchId),
    Progress,
}

/// `None` for a request without content or of a later version: it is passed over, as in etcd.
pub fn call(wire: pb::WatchRequest) -> Option<WatchCall> {
    Some(match wire.request_union? {
        RequestUnion::CreateRequest(create) => WatchCall::Create(request(&create)),
        RequestUnion::CancelRequest(cancel) => WatchCall::Cancel(WatchId::new(cancel.watch_id)),
        RequestUnion::ProgressRequest(_) => WatchCall::Progress,
    })
}

fn request(wire: &pb::WatchCreateRequest) -> WatchRequest {
    // Copied: a watcher outlives by far the buffer its request came in.
    let key = if wire.key.is_empty() { Bytes::from_static(&[0]) } else { Bytes::copy_from_slice(&wire.key) };
    let key = Key::new(key).expect("an empty key was replaced");
    let range = KeyRange::from_wire(key, Bytes::copy_from_slice(&wire.range_end));
    let start = match wire.start_revision {
        0 => WatchStart::Live,
        first => WatchStart::At(Revision::new(first)),
    };
    let has = |kind: FilterType| wire.filters.contains(&(kind as i32));
    WatchRequest {
        id: Some(wire.watch_id).filter(|id| *id != 0).map(WatchId::new),
        range,
        start,
        filter: Filter { no_put: has(FilterType::Noput), no_delete: has(FilterType::Nodelete) },
        previous: wire.prev_kv,
        fragment: wire.fragment,
        progress: wire.progress_notify,
    }
}

/// Appends an event as it stands in a `WatchResponse`.
pub fn encode_event(event: &Event, with_previous: bool, out: &mut Vec<u8>) {
    // A key that is created had nothing before, even if the same transaction deleted it first.
    let created = matches!(&event.kind, EventKind::Put(kv) if kv.created == kv.modified);
    let previous = event.previous.as_ref().filter(|_| with_previous && !created);
    let event = Event { kind: event.kind.clone(), previous: previous.cloned() };
    prost::encoding::message::encode(EVENTS, &mvcc::Event::from(event), out);
}

impl From<Event> for mvcc::Event {
    fn from(event: Event) -> mvcc::Event {
        let (kind, kv) = match event.kind {
            EventKind::Put(kv) => (mvcc::event::EventType::Put, kv.into()),
            EventKind::Delete { key, modified } => {
                let kv = mvcc::KeyValue { key, mod_revision: modified.get(), ..Default::default() };
                (mvcc::event::EventType::Delete, kv)
            }
        };
        mvcc::Event { r#type: kind.into(), kv: Some(kv), prev_kv: event.previous.map(Into::into) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{KeyValue, LeaseId};
    use prost::Message;

    fn create(change: impl FnOnce(&mut pb::WatchCreateRequest)) -> WatchRequest {
        let mut wire = pb::WatchCreateRequest { key: Bytes::from_static(b"k"), ..Default::default() };
        change(&mut wire);
        let union = RequestUnion::CreateRequest(wire);
        match call(pb::WatchRequest { request_union: Some(union) }) {
            Some(WatchCall::Create(request)) => request,
            other => panic!("not a creation: {other:?}"),
        }
    }

    #[test]
    fn the_special_values_of_a_creation_end_here() {
        let plain = create(|_| {});
        assert_eq!((plain.id, plain.start, plain.filter), (None, WatchStart::Live, Filter::default()));
        let all = create(|wire| {
            wire.key = Bytes::new();
            wire.range_end = Bytes::from_static(&[0]);
        });
        assert_eq!(all.range, KeyRange::everything());
        let zero = create(|wire| wire.key = Bytes::new());
        assert_eq!(zero.range.first().as_bytes(), [0]);
        assert!(matches!(zero.range, KeyRange::One(_)), "an empty key without end is the key of one zero");
        let empty = create(|wire| wire.range_end = Bytes::from_static(b"a"));
        assert!(empty.range.is_empty());
        let chosen = create(|wire| {
            wire.watch_id = -7;
            wire.start_revision = -1;
            wire.filters = vec![1, 17];
        });
        assert_eq!(chosen.id, Some(WatchId::new(-7)));
        assert_eq!(chosen.start, WatchStart::At(Revision::new(-1)));
        assert_eq!(chosen.filter, Filter { no_put: false, no_delete: true });
    }

    #[test]
    fn a_request_without_content_is_nothing() {
        assert_eq!(call(pb::WatchRequest { request_union: None }), None);
    }

    #[test]
    fn a_creation_has_no_previous_value_even_after_a_deletion_in_the_same_revision() {
        let kv = |created: i64, modified: i64| KeyValue {
            key: Bytes::from_static(b"key"),
            value: Bytes::new(),
            created: Revision::new(created),
            modified: Revision::new(modified),
            version: 1,
            lease: None,
        };
        for (created, expected) in [(5, false), (4, true)] {
            let event = Event { kind: EventKind::Put(kv(created, 5)), previous: Some(kv(3, 4)) };
            let mut bytes = Vec::new();
            encode_event(&event, true, &mut bytes);
            let response = pb::WatchResponse::decode(bytes.as_slice()).expect("a message");
            assert_eq!(response.events[0].prev_kv.is_some(), expected, "created at {created}");
        }
    }

    #[test]
    fn a_head_and_encoded_events_are_the_whole_message() {
        let kv = |modified: i64| KeyValue {
            key: Bytes::from_static(b"key"),
            value: Bytes::from_static(b"value"),
            created: Revision::new(3),
            modified: Revision::new(modified),
            version: 2,
            lease: LeaseId::from_wire(9),
        };
        let put = Event { kind: EventKind::Put(kv(5)), previous: Some(kv(3)) };
        let gone = EventKind::Delete { key: Bytes::from_static(b"key"), modified: Revision::new(6) };
        let delete = Event { kind: gone, previous: Some(kv(5)) };
        let head = pb::WatchResponse { watch_id: -1, ..Default::default() };
        for with_previous in [false, true] {
            let mut bytes = head.encode_to_vec();
            encode_event(&put, with_previous, &mut bytes);
            encode_event(&delete, with_previous, &mut bytes);
            let whole = pb::WatchResponse::decode(bytes.as_slice()).expect("a message");
            assert_eq!(whole.encode_to_vec(), bytes, "byte for byte as the whole would be");
            assert_eq!(whole.events.len(), 2);
            assert_eq!(whole.events[0].kv, Some(kv(5).into()));
            assert_eq!(whole.events[0].prev_kv.is_some(), with_previous);
            let tombstone = whole.events[1].kv.as_ref().expect("a key");
            assert_eq!((tombstone.mod_revision, tombstone.create_revision), (6, 0));
        }
    }
}
