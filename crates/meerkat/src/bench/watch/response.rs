//! Just enough protobuf to count events: reads a `WatchResponse` where it lies, and copies nothing.
//!
//! One put becomes a thousand deliveries, and decoding each into a message of its own would cost the
//! generator more than it costs the server to send it. Unknown fields are skipped, fields may come in
//! any order, and what is not protobuf is [`Malformed`] and never a panic: the bytes are a server's.

/// Bytes that are no protobuf message of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A `WatchResponse`, except its events: see [`Response::events`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Response<'a> {
    pub watch_id: i64,
    pub created: bool,
    pub canceled: bool,
    pub compact_revision: i64,
    pub cancel_reason: &'a [u8],
    /// More of the same revision follows in the next response.
    pub fragment: bool,
    message: &'a [u8],
}

/// The parts of an event that the measuring needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    pub mod_revision: i64,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

impl<'a> Response<'a> {
    pub fn read(message: &'a [u8]) -> Result<Response<'a>, Malformed> {
        let mut response = Response { message, ..Response::default() };
        let mut fields = Fields { rest: message };
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Value::Number(id)) => response.watch_id = id as i64,
                (3, Value::Number(flag)) => response.created = flag != 0,
                (4, Value::Number(flag)) => response.canceled = flag != 0,
                (5, Value::Number(revision)) => response.compact_revision = revision as i64,
                (6, Value::Bytes(reason)) => response.cancel_reason = reason,
                (7, Value::Number(flag)) => response.fragment = flag != 0,
                _ => {}
            }
        }
        Ok(response)
    }

    /// Hands each event to `each`, in the order of the wire.
    pub fn events(&self, mut each: impl FnMut(Event<'a>)) -> Result<(), Malformed> {
        let mut fields = Fields { rest: self.message };
        while let Some((number, value)) = fields.next()? {
            if let (11, Value::Bytes(event)) = (number, value) {
                each(Event::read(event)?);
            }
        }
        Ok(())
    }
}

impl<'a> Event<'a> {
    fn read(message: &'a [u8]) -> Result<Event<'a>, Malformed> {
        let mut event = Event::default();
        let mut fields = Fields { rest: message };
        while let Some((number, value)) = fields.next()? {
            if let (2, Value::Bytes(kv)) = (number, value) {
                event.read_kv(kv)?;
            }
        }
        Ok(event)
    }

    fn read_kv(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        let mut fields = Fields { rest: message };
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Bytes(key)) => self.key = key,
                (3, Value::Number(revision)) => self.mod_revision = revision as i64,
                (5, Value::Bytes(value)) => self.value = value,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The revision in the header of any of etcd's answers: the header is field 1 of all of them.
pub fn header_revision(answer: &[u8]) -> Result<i64, Malformed> {
    let mut fields = Fields { rest: answer };
    while let Some((number, value)) = fields.next()? {
        let (1, Value::Bytes(header)) = (number, value) else { continue };
        let mut fields = Fields { rest: header };
        while let Some((number, value)) = fields.next()? {
            if let (3, Value::Number(revision)) = (number, value) {
                return Ok(revision as i64);
            }
        }
    }
    Err(Malformed)
}

/// Walks over the fields of one message.
struct Fields<'a> {
    rest: &'a [u8],
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes: no message of the Watch service has such a field, but a later one may.
    Fixed,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| Malformed)?)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for (at, byte) in self.rest.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        if self.rest.len() < length {
            return Err(Malformed);
        }
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use meerkat_proto::pb::{etcdserver as pb, mvcc};
    use prost::Message;

    use super::*;

    fn event(key: &[u8], revision: i64, value: &[u8]) -> mvcc::Event {
        let kv = mvcc::KeyValue {
            key: key.to_vec().into(),
            value: value.to_vec().into(),
            create_revision: 1,
            mod_revision: revision,
            version: 3,
            lease: i64::MAX,
        };
        let previous = mvcc::KeyValue { mod_revision: 1, key: b"not me".to_vec().into(), ..kv.clone() };
        mvcc::Event { r#type: 0, kv: Some(kv), prev_kv: Some(previous) }
    }

    fn response() -> pb::WatchResponse {
        pb::WatchResponse {
            header: Some(pb::ResponseHeader {
                cluster_id: u64::MAX,
                member_id: 1 << 63,
                revision: 1_234_567,
                raft_term: 5,
            }),
            watch_id: 7,
            ..Default::default()
        }
    }

    /// Reads what prost wrote, and compares everything that is read.
    fn check(wire: &pb::WatchResponse) {
        let bytes = wire.encode_to_vec();
        let read = Response::read(&bytes).expect("well formed");
        assert_eq!(read.watch_id, wire.watch_id);
        assert_eq!(
            (read.created, read.canceled, read.fragment),
            (wire.created, wire.canceled, wire.fragment)
        );
        assert_eq!(read.compact_revision, wire.compact_revision);
        assert_eq!(read.cancel_reason, wire.cancel_reason.as_bytes());
        let mut events = Vec::new();
        read.events(|event| events.push((event.key.to_vec(), event.mod_revision, event.value.to_vec())))
            .expect("well formed");
        let written = wire.events.iter().map(|event| {
            let kv = event.kv.clone().unwrap_or_default();
            (kv.key.to_vec(), kv.mod_revision, kv.value.to_vec())
        });
        assert_eq!(events, written.collect::<Vec<_>>());
    }

    #[test]
    fn several_events_come_in_the_order_of_the_wire() {
        let events = vec![event(b"a", 300, &[1; 400]), event(b"b", 301, b""), event(b"c", i64::MAX, b"v")];
        check(&pb::WatchResponse { events, ..response() });
    }

    #[test]
    fn ids_may_be_negative_or_as_large_as_they_get() {
        for watch_id in [i64::MIN, -1, 0, 1, 127, 128, i64::MAX] {
            check(&pb::WatchResponse { watch_id, ..response() });
        }
    }

    #[test]
    fn fragments_creations_and_cancellations_are_told_apart() {
        check(&pb::WatchResponse { fragment: true, events: vec![event(b"a", 9, b"v")], ..response() });
        check(&pb::WatchResponse { created: true, ..response() });
        check(&pb::WatchResponse {
            created: true,
            canceled: true,
            compact_revision: 1 << 40,
            cancel_reason: "etcdserver: mvcc: required revision has been compacted".to_owned(),
            ..response()
        });
    }

    #[test]
    fn an_event_of_a_deletion_has_a_key_and_a_revision_and_no_value() {
        let kv = mvcc::KeyValue { key: b"gone".to_vec().into(), mod_revision: 12, ..Default::default() };
        let deletion = mvcc::Event { r#type: 1, kv: Some(kv), prev_kv: None };
        check(&pb::WatchResponse { events: vec![deletion], ..response() });
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let mut bytes = vec![];
        // Field 100 as a number, as bytes, as four and as eight bytes.
        bytes.extend([0xa0, 0x06, 0x05, 0xa2, 0x06, 0x02, 9, 9, 0xa5, 0x06, 1, 2, 3, 4]);
        bytes.extend([0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8]);
        bytes.extend(response().encode_to_vec());
        assert_eq!(Response::read(&bytes).map(|read| read.watch_id), Ok(7));
    }

    #[test]
    fn the_header_tells_the_revision() {
        assert_eq!(header_revision(&response().encode_to_vec()), Ok(1_234_567));
        assert_eq!(header_revision(&pb::PutResponse::default().encode_to_vec()), Err(Malformed));
    }

    #[test]
    fn bytes_cut_short_are_malformed_and_never_a_panic() {
        let whole = pb::WatchResponse { events: vec![event(b"a", 300, b"value")], ..response() };
        let bytes = whole.encode_to_vec();
        let read_all = |bytes: &[u8]| Response::read(bytes).and_then(|read| read.events(|_| {}));
        assert_eq!(read_all(&bytes), Ok(()));
        // Between two fields is a good end; inside one is not.
        let good = (0..bytes.len()).filter(|end| read_all(&bytes[..*end]).is_ok()).count();
        assert_eq!(good, 3, "empty, after the header, after the id");
        assert_eq!(read_all(&[0xff; 11]), Err(Malformed), "a number without an end");
        assert_eq!(read_all(&[0x0b]), Err(Malformed), "a group");
    }
}
