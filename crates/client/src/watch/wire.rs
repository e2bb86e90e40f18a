//! One watch on the wire: its request, and the events of its responses.
//!
//! What a server sends is outside input: an event without a key, or at a revision that cannot be, makes
//! the whole response [`Malformed`]; nothing is guessed and nothing left out. Keys and values are copied
//! out of the message they came in. Slices of it would keep megabytes alive for one small value in a
//! cache, and no bound on a buffer could be honest.

use super::response::ResponseHeader;
use crate::namespace::Namespace;
use bytes::Bytes;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::watch_create_request::FilterType;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::mvcc;
use meerkat_types::{Event, EventKind, Filter, KeyRange, KeyValue, Revision, WatchStart};

/// What a watch asks for, but for where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// As the server knows it.
    pub(crate) range: KeyRange,
    pub(crate) namespace: Namespace,
    pub(crate) previous: bool,
    pub(crate) filter: Filter,
    pub(crate) marks: bool,
    /// Read response by response, so marks are passed on as the member sends them.
    pub(crate) verbatim: bool,
}

/// The server sent something that is no event of this watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) fn create(order: &Order, id: i64, start: WatchStart) -> pb::WatchRequest {
    let mut filters = Vec::new();
    if order.filter.no_put {
        filters.push(FilterType::Noput.into());
    }
    if order.filter.no_delete {
        filters.push(FilterType::Nodelete.into());
    }
    union(RequestUnion::CreateRequest(pb::WatchCreateRequest {
        key: order.range.first().bytes().clone(),
        range_end: order.range.range_end(),
        start_revision: match start {
            WatchStart::Live => 0,
            WatchStart::At(first) => first.get(),
        },
        progress_notify: true,
        filters,
        prev_kv: order.previous,
        watch_id: id,
        fragment: true,
    }))
}

/// Asks for a watch of no keys. Every server refuses it at once, whatever else it is doing, and keeps
/// nothing of it; being answered is all it is for.
pub(crate) fn probe(id: i64) -> pb::WatchRequest {
    union(RequestUnion::CreateRequest(pb::WatchCreateRequest {
        key: Bytes::from_static(b"b"),
        range_end: Bytes::from_static(b"a"),
        watch_id: id,
        ..Default::default()
    }))
}

pub(crate) fn cancel(id: i64) -> pb::WatchRequest {
    union(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: id }))
}

pub(crate) fn progress() -> pb::WatchRequest {
    union(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}))
}

fn union(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(union) }
}

/// The revision that a header tells; zero when it cannot be.
pub(crate) fn header_revision(header: &ResponseHeader) -> Revision {
    if is_revision(header.revision.get()) { header.revision } else { Revision::new(0) }
}

/// The last revision there is has no next one to go on from, so it counts as nonsense.
pub(crate) fn is_revision(number: i64) -> bool {
    0 < number && number < i64::MAX
}

pub(crate) fn events(namespace: &Namespace, wire: Vec<mvcc::Event>) -> Result<Vec<Event>, Malformed> {
    wire.into_iter().map(|event| self::event(namespace, event)).collect()
}

fn event(namespace: &Namespace, wire: mvcc::Event) -> Result<Event, Malformed> {
    let is_delete = match mvcc::event::EventType::try_from(wire.r#type) {
        Ok(mvcc::event::EventType::Put) => false,
        Ok(mvcc::event::EventType::Delete) => true,
        Err(_) => return Err(Malformed),
    };
    let kv = key_value(namespace, wire.kv.ok_or(Malformed)?)?;
    if !is_revision(kv.modified.get()) {
        return Err(Malformed);
    }
    let previous = wire.prev_kv.map(|kv| key_value(namespace, kv)).transpose()?;
    let kind = match is_delete {
        true => EventKind::Delete { key: kv.key, modified: kv.modified },
        false => EventKind::Put(kv),
    };
    Ok(Event { kind, previous })
}

fn key_value(namespace: &Namespace, wire: mvcc::KeyValue) -> Result<KeyValue, Malformed> {
    let mut kv = namespace.strip(KeyValue::from(wire)).ok_or(Malformed)?;
    kv.key = Bytes::copy_from_slice(&kv.key);
    kv.value = Bytes::copy_from_slice(&kv.value);
    Ok(kv)
}

/// What an event takes in memory, about.
pub(crate) fn weight(event: &Event) -> usize {
    let of = |kv: &KeyValue| kv.key.len() + kv.value.len();
    let own = match &event.kind {
        EventKind::Put(kv) => of(kv),
        EventKind::Delete { key, .. } => key.len(),
    };
    size_of::<Event>() + own + event.previous.as_ref().map_or(0, of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static [u8], modified: i64) -> mvcc::Event {
        let kv = mvcc::KeyValue { key: key.into(), mod_revision: modified, ..Default::default() };
        mvcc::Event { kv: Some(kv), ..Default::default() }
    }

    fn check(namespace: &[u8], event: mvcc::Event, key: Option<&[u8]>) {
        let found = events(&Namespace::default().inside(namespace), vec![event]).ok();
        let found = found.and_then(|events| events.into_iter().next()).map(|event| match event.kind {
            EventKind::Put(kv) => kv.key,
            EventKind::Delete { key, .. } => key,
        });
        assert_eq!(found.as_deref(), key);
    }

    #[test]
    fn an_event_is_taken_only_if_it_can_be_one() {
        check(b"", put(b"k", 5), Some(b"k"));
        check(b"n/", put(b"n/k", 5), Some(b"k"));
        check(b"n/", put(b"m/k", 5), None);
        check(b"", put(b"k", 0), None);
        check(b"", put(b"k", -3), None);
        check(b"", put(b"k", i64::MAX), None);
        check(b"", mvcc::Event::default(), None);
        check(b"", mvcc::Event { r#type: 9, ..put(b"k", 5) }, None);
        check(b"", mvcc::Event { r#type: 1, ..put(b"k", 5) }, Some(b"k"));
    }

    #[test]
    fn a_header_without_sense_has_no_revision() {
        let told = |revision| {
            let header = Some(pb::ResponseHeader { revision, ..Default::default() });
            header_revision(&ResponseHeader::of(&pb::WatchResponse { header, ..Default::default() })).get()
        };
        assert_eq!([told(7), told(-7), told(i64::MAX)], [7, 0, 0]);
        assert_eq!(header_revision(&ResponseHeader::of(&pb::WatchResponse::default())).get(), 0);
    }
}
