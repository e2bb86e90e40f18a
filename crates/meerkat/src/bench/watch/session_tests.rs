//! A session fed by hand, as a server would feed it.

use meerkat_proto::pb::{etcdserver as pb, mvcc};
use prost::Message;

use super::*;
use crate::bench::watch::interest::Target;
use crate::bench::watch::watched::Owed;

/// A session with so many watchers on each of its streams, and a server's end of it.
struct Talk {
    session: Session,
    watched: Watched,
    interest: Rc<Interest>,
}

impl Talk {
    fn new(pace: Pace, per_stream: &[usize]) -> Talk {
        let interest = Rc::new(Interest::new(Target::OwnKey, 1));
        let ends = per_stream.iter().scan(0, |end, watchers| {
            *end += watchers;
            Some(*end)
        });
        let streams: Vec<Range<usize>> = ends.zip(per_stream).map(|(end, count)| end - count..end).collect();
        let session = Session::new("server:1".to_owned(), Rc::clone(&interest), pace, streams.into_iter());
        let watched = Watched::new(per_stream.iter().sum(), false);
        let mut talk = Talk { session, watched, interest };
        talk.session.out().clear();
        talk
    }

    /// The same, after the server's settings and with the watchers asked for.
    fn creating(pace: Pace, per_stream: &[usize]) -> Talk {
        let mut talk = Talk::new(pace, per_stream);
        talk.feed(&frame(http2::SETTINGS, 0, 0, &[])).expect("settings");
        talk.session.out().clear();
        talk.session.create(0);
        talk
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<usize, String> {
        self.session.feed(bytes, 0, &mut self.watched)
    }

    /// Feeds a response on a stream, in data frames of at most so many bytes.
    fn respond(&mut self, stream: usize, response: &pb::WatchResponse, frame_bytes: usize) {
        for chunk in framed(&response.encode_to_vec()).chunks(frame_bytes) {
            let bytes = frame(http2::DATA, 0, stream_id(stream), chunk);
            assert_eq!(self.feed(&bytes), Ok(bytes.len()));
        }
    }

    /// The kinds and streams of the frames that wait to be sent; they are then sent.
    fn sent(&mut self) -> Vec<(u8, u32)> {
        let bytes = std::mem::take(self.session.out());
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some((frame, length)) = http2::next_frame(rest).expect("our own") {
            frames.push((frame.kind, frame.stream));
            rest = &rest[length..];
        }
        assert!(rest.is_empty(), "only whole frames are sent");
        frames
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    http2::write_frame(&mut bytes, kind, flags, stream, payload);
    bytes
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    let mut payload = name.to_be_bytes().to_vec();
    payload.extend(value.to_be_bytes());
    frame(http2::SETTINGS, 0, 0, &payload)
}

fn created(watch_id: i64) -> pb::WatchResponse {
    pb::WatchResponse { watch_id, created: true, ..Default::default() }
}

fn events(watch_id: i64, revisions: &[i64]) -> pb::WatchResponse {
    let event = |revision: &i64| mvcc::Event {
        kv: Some(mvcc::KeyValue {
            mod_revision: *revision,
            value: vec![7; 300].into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    pb::WatchResponse { watch_id, events: revisions.iter().map(event).collect(), ..Default::default() }
}

fn owed(revisions: &[i64]) -> Owed {
    let mut owed = Owed::default();
    revisions.iter().for_each(|revision| owed.written(*revision));
    owed
}

#[test]
fn streams_are_opened_once_the_servers_settings_are_known() {
    let mut talk = Talk::new(Pace::Pipelined, &[1, 1]);
    assert!(!talk.session.is_opened());
    talk.feed(&frame(http2::SETTINGS, 0, 0, &[])).expect("settings");
    assert!(talk.session.is_opened());
    assert_eq!(talk.sent(), [(http2::SETTINGS, 0), (http2::HEADERS, 1), (http2::HEADERS, 3)]);
    talk.feed(&frame(http2::SETTINGS, 0, 0, &[])).expect("more settings");
    assert_eq!(talk.sent(), [(http2::SETTINGS, 0)], "the streams are not opened again");
}

#[test]
fn a_server_that_allows_fewer_streams_is_told_of_and_not_overrun() {
    let mut talk = Talk::new(Pace::Pipelined, &[1, 1]);
    let refusal = talk.feed(&setting(http2::SETTING_STREAMS_MAX, 1)).expect_err("two are wanted");
    assert!(refusal.contains("--watch-conns"), "{refusal}");
}

#[test]
fn a_pipelined_stream_asks_for_all_its_watchers_at_once() {
    let mut talk = Talk::creating(Pace::Pipelined, &[2, 1]);
    assert_eq!(talk.sent(), [(http2::DATA, 1), (http2::DATA, 1), (http2::DATA, 3)]);
}

#[test]
fn one_at_a_time_means_after_the_answer() {
    let mut talk = Talk::creating(Pace::OneAtATime, &[3]);
    assert_eq!(talk.sent().len(), 1);
    talk.respond(0, &created(0), 9_000);
    assert_eq!(talk.sent().len(), 1);
    talk.respond(0, &created(1), 9_000);
    talk.respond(0, &created(2), 9_000);
    assert_eq!(talk.sent().len(), 1, "there are no more than three");
    assert_eq!(talk.watched.created, 3);
}

#[test]
fn requests_wait_for_the_servers_window() {
    let mut talk = Talk::new(Pace::Pipelined, &[2]);
    talk.feed(&setting(http2::SETTING_STREAM_WINDOW, 60)).expect("settings");
    talk.session.out().clear();
    talk.session.create(0);
    assert_eq!(talk.sent().len(), 1, "the second does not fit into 60 bytes");
    talk.feed(&frame(http2::WINDOW_UPDATE, 0, 1, &60_u32.to_be_bytes())).expect("room");
    assert_eq!(talk.sent().len(), 1);
}

#[test]
fn events_reach_their_watcher_however_they_are_cut() {
    for frame_bytes in [1, 4, 5, 6, 100, 16_000] {
        let mut talk = Talk::creating(Pace::Pipelined, &[1, 2]);
        talk.respond(0, &created(0), frame_bytes);
        talk.respond(1, &created(i64::MAX), frame_bytes);
        talk.respond(1, &created(-5), frame_bytes);
        talk.respond(1, &events(-5, &[7, 8]), frame_bytes);
        talk.respond(0, &events(0, &[5]), frame_bytes);
        talk.respond(1, &events(i64::MAX, &[6]), frame_bytes);
        let faults = talk.watched.faults(&talk.interest, &[owed(&[5]), owed(&[6]), owed(&[7, 8])]);
        assert_eq!(faults, [""; 0], "in frames of {frame_bytes}");
    }
}

#[test]
fn several_messages_in_one_frame_are_all_read() {
    let mut talk = Talk::creating(Pace::Pipelined, &[1]);
    let mut data = framed(&created(4).encode_to_vec());
    data.extend(framed(&events(4, &[5]).encode_to_vec()));
    data.extend(framed(&events(4, &[6]).encode_to_vec()));
    talk.feed(&frame(http2::DATA, 0, 1, &data)).expect("good");
    assert_eq!(talk.watched.faults(&talk.interest, &[owed(&[5, 6])]), [""; 0]);
}

#[test]
fn half_a_frame_is_left_for_later() {
    let mut talk = Talk::creating(Pace::Pipelined, &[1]);
    let mut bytes = frame(http2::DATA, 0, 1, &framed(&created(0).encode_to_vec()));
    let whole = bytes.len();
    bytes.extend_from_slice(&frame(http2::PING, 0, 0, &[1; 8])[..10]);
    assert_eq!(talk.feed(&bytes), Ok(whole));
}

#[test]
fn a_ping_is_answered_with_what_it_said() {
    let mut talk = Talk::creating(Pace::Pipelined, &[1]);
    talk.session.out().clear();
    talk.feed(&frame(http2::PING, 0, 0, b"12345678")).expect("a ping");
    assert_eq!(*talk.session.out(), frame(http2::PING, http2::ACK, 0, b"12345678"));
}

#[test]
fn the_server_is_given_room_as_data_comes() {
    let mut talk = Talk::creating(Pace::Pipelined, &[1]);
    talk.respond(0, &created(0), 9_000);
    talk.session.out().clear();
    let bytes = frame(http2::DATA, 0, 1, &framed(&events(0, &[1; 40]).encode_to_vec()));
    let payload = bytes.len() - 9;
    let mut updates = Vec::new();
    for _ in 0..http2::CONNECTION_WINDOW_BYTES as usize / 4 / payload + 1 {
        talk.feed(&bytes).expect("good");
        updates.extend(talk.sent());
    }
    let of = |stream: u32| updates.iter().filter(|sent| **sent == (http2::WINDOW_UPDATE, stream)).count();
    assert_eq!(
        (of(1), of(0)),
        (3, 1),
        "a stream's quarter is used up four times as fast, less the overshoot"
    );
}

#[test]
fn whatever_ends_a_watcher_fails_the_run() {
    let check = |bytes: Vec<u8>, expected: &str| {
        let mut talk = Talk::creating(Pace::Pipelined, &[1]);
        talk.respond(0, &created(0), 9_000);
        let failure = talk.feed(&bytes).expect_err(expected);
        assert!(failure.contains(expected), "{failure}");
    };
    let data = |response: pb::WatchResponse| frame(http2::DATA, 0, 1, &framed(&response.encode_to_vec()));
    let canceled = pb::WatchResponse {
        canceled: true,
        cancel_reason: "compacted".to_owned(),
        compact_revision: 12,
        ..Default::default()
    };
    check(data(canceled), "canceled watcher 0: \"compacted\" (compact revision 12)");
    check(frame(http2::HEADERS, http2::END_STREAM, 1, &[]), "ended a stream");
    check(frame(http2::RST_STREAM, 0, 1, &[0, 0, 0, 8]), "HTTP/2 error 8");
    check(frame(http2::GOAWAY, 0, 0, &[0; 8]), "closing the connection");
    check(data(events(9, &[5])), "which nobody created");
    check(data(created(1)), "nobody asked for");
    check(frame(http2::DATA, 0, 1, &[1, 0, 0, 0, 1, 0]), "compressed");
    check(frame(http2::DATA, 0, 7, &[]), "which nobody opened");
    check(frame(http2::DATA, 0, 1, &framed(&[0x0b])), "malformed");
}

#[test]
fn an_id_given_twice_is_refused() {
    let mut ids = Ids::default();
    assert_eq!(ids.add(3, 2), Ok(()));
    assert!(ids.add(3, 2).is_err());
}
