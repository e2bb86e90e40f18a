//! What a stream says, as gRPC messages: a length, the head of a response, and events that were
//! encoded once for everybody.

use super::large::Large;
use bytes::{BufMut, BytesMut};
use meerkat_proto::convert::watch::encode_event;
use meerkat_proto::error_text::{EtcdError, WATCH_ID_DUPLICATE, WATCH_RANGE_EMPTY};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_types::{Event, Revision};
use meerkat_watch::{Control, Delivery, Encode, Encoded, Form, Refused, WatchSpec, Wire};
use prost::Message;

/// A message above this is written out piece by piece.
pub(super) const SMALL_MAX: usize = 16 << 10;

/// gRPC counts in 32 bits; the head needs some of them.
const MESSAGE_BYTES_MAX: usize = u32::MAX as usize - 1024;

/// The field of `WatchResponse` that holds the id.
const WATCH_ID: u32 = 2;

/// The id of no watcher.
const NO_WATCHER: i64 = -1;

pub(super) struct EtcdEvents;

impl Encode for EtcdEvents {
    fn encode(&self, event: &Event, form: Form, out: &mut Vec<u8>) {
        encode_event(event, form == Form::WithPrevious, out);
    }
}

/// Which events of a revision a watcher is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    All { count: usize },
    Some(Vec<u32>),
}

impl Chosen {
    pub(super) fn of(spec: &WatchSpec, batch: &Encoded) -> Chosen {
        let events = batch.events();
        // The hub gives a revision only to those it concerns.
        if events.len() == 1 {
            return Chosen::All { count: 1 };
        }
        let wanted: Vec<u32> =
            (0u32..).zip(events).filter(|(_, event)| spec.wants(event)).map(|(index, _)| index).collect();
        if wanted.len() == events.len() { Chosen::All { count: events.len() } } else { Chosen::Some(wanted) }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Chosen::All { count } => *count,
            Chosen::Some(wanted) => wanted.len(),
        }
    }

    /// The n-th chosen event.
    pub(super) fn event<'a>(&self, wire: &'a Wire, n: usize) -> &'a [u8] {
        match self {
            Chosen::All { .. } => wire.event(n),
            Chosen::Some(wanted) => wire.event(wanted[n] as usize),
        }
    }

    pub(super) fn bytes(&self, wire: &Wire) -> usize {
        match self {
            Chosen::All { .. } => wire.all().len(),
            Chosen::Some(wanted) => wanted.iter().map(|index| wire.event(*index as usize).len()).sum(),
        }
    }

    fn put(&self, wire: &Wire, buffer: &mut BytesMut) {
        match self {
            Chosen::All { .. } => buffer.put_slice(wire.all()),
            Chosen::Some(wanted) => {
                wanted.iter().for_each(|index| buffer.put_slice(wire.event(*index as usize)));
            }
        }
    }
}

/// Writes the answers of one stream.
pub(super) struct Writer {
    /// As of now, but for its revision.
    header: pb::ResponseHeader,
    current: Revision,
    fragment_bytes: usize,
    /// The field of the header at some revision: answers in a row mostly have the same.
    encoded: Vec<u8>,
    encoded_at: Option<Revision>,
}

/// What was written.
pub(super) enum Written {
    /// This many events, all of them.
    Whole(usize),
    /// Nothing yet: it is too large for one piece.
    Large(Large),
    /// Nothing: this many bytes have no length in gRPC.
    TooLarge(usize),
}

impl Writer {
    pub(super) fn new(header: pb::ResponseHeader, fragment_bytes: usize) -> Writer {
        let current = Revision::new(header.revision);
        Writer { header, current, fragment_bytes, encoded: Vec::new(), encoded_at: None }
    }

    pub(super) fn delivery(&mut self, delivery: &Delivery, buffer: &mut BytesMut) -> Written {
        let wires = || delivery.batches().map(|batch| batch.wire(delivery.form, &EtcdEvents));
        let (id, last) = (delivery.spec.id.get(), delivery.last().revision());
        // Nearly always there is nothing to choose from.
        if delivery.batches().all(|batch| batch.events().len() == 1) {
            let bytes: usize = wires().map(|wire| wire.all().len()).sum();
            if bytes <= SMALL_MAX {
                self.put_delivery_head(id, last, bytes, buffer);
                wires().for_each(|wire| buffer.put_slice(wire.all()));
                return Written::Whole(1 + delivery.more.len());
            }
        }
        let chosen: Vec<Chosen> = delivery.batches().map(|batch| Chosen::of(&delivery.spec, batch)).collect();
        let bytes: usize = chosen.iter().zip(wires()).map(|(chosen, wire)| chosen.bytes(wire)).sum();
        if bytes > SMALL_MAX && delivery.more.is_empty() {
            let [chosen] = <[Chosen; 1]>::try_from(chosen).expect("one for each batch");
            let fragment_bytes = delivery.spec.fragment.then_some(self.fragment_bytes);
            let wire = delivery.first.wire(delivery.form, &EtcdEvents);
            let head = self.head(id, last);
            if fragment_bytes.is_none() && MESSAGE_BYTES_MAX < bytes {
                return Written::TooLarge(bytes);
            }
            return Written::Large(Large::new(head, chosen, delivery.form, wire, fragment_bytes));
        }
        self.put_delivery_head(id, last, bytes, buffer);
        chosen.iter().zip(wires()).for_each(|(chosen, wire)| chosen.put(wire, buffer));
        Written::Whole(chosen.iter().map(Chosen::count).sum())
    }

    /// As [`put_head`] of [`Writer::head`], with the header's bytes kept for the next one.
    fn put_delivery_head(&mut self, id: i64, revision: Revision, events_bytes: usize, buffer: &mut BytesMut) {
        if self.encoded_at != Some(revision) {
            self.encoded_at = Some(revision);
            self.encoded.clear();
            let head = pb::WatchResponse { watch_id: 0, ..self.head(0, revision) };
            head.encode_raw(&mut self.encoded);
        }
        let id_bytes = if id == 0 { 0 } else { prost::encoding::int64::encoded_len(WATCH_ID, &id) };
        put_prefix(self.encoded.len() + id_bytes + events_bytes, buffer);
        buffer.put_slice(&self.encoded);
        if id != 0 {
            prost::encoding::int64::encode(WATCH_ID, &id, buffer);
        }
    }

    pub(super) fn control(&self, control: &Control, buffer: &mut BytesMut) {
        put_head(&self.answer(control), 0, buffer);
    }

    fn answer(&self, control: &Control) -> pb::WatchResponse {
        let current = self.current;
        match control {
            Control::Created { id, revision } => {
                pb::WatchResponse { created: true, ..self.head(id.get(), *revision) }
            }
            Control::Refused(refused) => pb::WatchResponse {
                created: true,
                canceled: true,
                cancel_reason: match refused {
                    Refused::EmptyRange => WATCH_RANGE_EMPTY.to_owned(),
                    Refused::DuplicateId => WATCH_ID_DUPLICATE.to_owned(),
                    Refused::BeforeHistory => EtcdError::Compacted.message().to_owned(),
                    Refused::NotPermitted(reason) => (*reason).to_owned(),
                    Refused::OutOfMemory => {
                        "meerkat: the keys of all watchers take more than --meerkat-watch-memory-bytes"
                            .to_owned()
                    }
                },
                ..self.head(NO_WATCHER, current)
            },
            Control::Canceled { id, revision } => {
                pb::WatchResponse { canceled: true, ..self.head(id.get(), *revision) }
            }
            // etcd leaves the header's revision at zero here, and says no reason.
            Control::Compacted { id, oldest } => pb::WatchResponse {
                canceled: true,
                compact_revision: oldest.get(),
                ..self.head(id.get(), Revision::new(0))
            },
            Control::FellBehind { id, resume } => pb::WatchResponse {
                canceled: true,
                cancel_reason: format!("meerkat: the watcher fell behind; resume at revision {resume}"),
                ..self.head(id.get(), resume.previous())
            },
            Control::Progress { id, revision } => self.head(id.map_or(NO_WATCHER, |id| id.get()), *revision),
        }
    }

    fn head(&self, watch_id: i64, revision: Revision) -> pb::WatchResponse {
        let header = pb::ResponseHeader { revision: revision.get(), ..self.header };
        pb::WatchResponse { header: Some(header), watch_id, ..Default::default() }
    }
}

/// Writes gRPC's prefix and a response whose events, of `events_bytes`, follow.
pub(super) fn put_head(head: &pb::WatchResponse, events_bytes: usize, buffer: &mut BytesMut) {
    put_prefix(head.encoded_len() + events_bytes, buffer);
    head.encode_raw(buffer);
}

fn put_prefix(length: usize, buffer: &mut BytesMut) {
    buffer.reserve(5 + length.min(SMALL_MAX + 256));
    // Not compressed.
    buffer.put_u8(0);
    buffer.put_u32(u32::try_from(length).expect("what is larger was refused"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{EventBatch, EventKind, Filter, KeyRange, KeyValue, WatchRequest, WatchStart};
    use meerkat_watch::{Core, Horizon, Out, StreamOptions, WatchConfig};

    #[test]
    fn a_kept_header_changes_no_byte() {
        let header = pb::ResponseHeader { cluster_id: 1 << 63, member_id: 7, revision: 0, raft_term: 3 };
        let mut writer = Writer::new(header, 1 << 20);
        for (id, revision) in [(0, 5), (0, 5), (-7, 5), (300, 6), (0, 1 << 40)] {
            let revision = Revision::new(revision);
            let (mut plain, mut kept) = (BytesMut::new(), BytesMut::new());
            put_head(&writer.head(id, revision), 17, &mut plain);
            writer.put_delivery_head(id, revision, 17, &mut kept);
            assert_eq!(plain, kept, "watcher {id} at {revision}");
        }
    }

    /// A watcher's delivery of one event of 256 bytes, as the hub gives it.
    fn delivery() -> Delivery {
        let meter = std::sync::Arc::default();
        let mut core =
            Core::new(WatchConfig::default(), Revision::EMPTY_STORE, std::sync::Arc::clone(&meter));
        let stream = core.open(StreamOptions::default());
        let request = WatchRequest {
            id: None,
            range: KeyRange::prefix(b"key"),
            start: WatchStart::Live,
            filter: Filter::default(),
            previous: false,
            fragment: false,
            progress: false,
        };
        let horizon = Horizon { current: Revision::EMPTY_STORE, oldest: None };
        core.register(stream, request, horizon);
        let revision = Revision::new(2);
        let kv = KeyValue {
            key: "key/of/some/length".into(),
            value: vec![7; 256].into(),
            created: revision,
            modified: revision,
            version: 1,
            lease: None,
        };
        let events = [Event { kind: EventKind::Put(kv), previous: None }].into();
        core.publish(&Encoded::new(EventBatch { revision, stamp_ms: 0, events }, &meter));
        let mut out = Vec::new();
        let _ = core.take(stream, usize::MAX, std::task::Waker::noop(), &mut out);
        match out.pop() {
            Some(Out::Events(delivery)) => delivery,
            other => panic!("the event was to be told last, not {other:?}"),
        }
    }

    #[test]
    fn copying_encoded_bytes_is_cheaper_than_encoding_them_for_each_stream() {
        const STREAMS: u32 = 20_000;
        let delivery = delivery();
        let header =
            pb::ResponseHeader { cluster_id: 1 << 63, member_id: 1 << 62, revision: 2, raft_term: 3 };
        let mut writer = Writer::new(header, 1 << 20);
        let mut buffer = BytesMut::with_capacity(1 << 20);
        let best = |act: &mut dyn FnMut(&mut BytesMut), buffer: &mut BytesMut| {
            let rounds = (0..7).map(|_| {
                let began = std::time::Instant::now();
                for _ in 0..STREAMS {
                    buffer.clear();
                    act(buffer);
                }
                began.elapsed() / STREAMS
            });
            rounds.min().expect("seven rounds")
        };
        let copied = best(&mut |buffer| drop(writer.delivery(&delivery, buffer)), &mut buffer);
        let copied_bytes = buffer.clone();
        // What a generated service does with each message of each stream.
        let mut again = |buffer: &mut BytesMut| {
            let mut event = Vec::new();
            encode_event(&delivery.first.events()[0], false, &mut event);
            let head = pb::WatchResponse { header: Some(header), watch_id: 0, ..Default::default() };
            put_head(&head, event.len(), buffer);
            buffer.put_slice(&event);
        };
        let encoded = best(&mut again, &mut buffer);
        println!("a delivery of 256 bytes: {copied:?} copied, {encoded:?} encoded again");
        assert_eq!(copied_bytes, buffer, "the same bytes");
        assert!(copied < encoded, "{copied:?} copied, {encoded:?} encoded again");
    }
}
