//! One connection full of watchers, without the socket: bytes in, bytes out, events noted.
//!
//! The streams of the connection are opened together when the server's settings are known, and stay
//! open; the watchers of each are created when [`Session::create`] says so, either all at once or, as
//! etcd's Go client does it, each after the answer to the one before. Any end of a stream or cancelled
//! watcher is an error, since no bench cancels one. Never feed the same bytes twice.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::interest::Interest;
use super::response::Response;
use super::watched::Watched;
use crate::bench::http2::{self, Frame, MESSAGE_HEAD_BYTES, framed, next_message, stream_id};

const WATCH_PATH: &str = "/etcdserverpb.Watch/Watch";
/// No response of a bench comes near: etcd keeps a thousand revisions in one, each of a small value.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// How the watchers of a stream are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Pipelined,
    OneAtATime,
}

pub struct Session {
    authority: String,
    interest: Rc<Interest>,
    pace: Pace,
    streams: Vec<Stream>,
    /// Whether the server's settings have come, and with them the streams.
    opened: bool,
    /// From which revision the watchers watch, once they may be created.
    creating: Option<i64>,
    /// What we may send before the server says more, in total and on a stream yet to be opened.
    send_window: i64,
    stream_send_window: i64,
    /// Data received since we last gave the server room for more.
    received: u32,
    out: Vec<u8>,
}

struct Stream {
    watchers: Range<usize>,
    asked: usize,
    ids: Ids,
    send_window: i64,
    received: u32,
    /// The beginning of a message whose end is in a later frame.
    partial: Vec<u8>,
}

impl Session {
    /// `streams` has the watchers of each stream.
    pub fn new(
        authority: String,
        interest: Rc<Interest>,
        pace: Pace,
        streams: impl Iterator<Item = Range<usize>>,
    ) -> Session {
        let mut out = Vec::new();
        http2::write_opening(&mut out);
        let streams = streams.map(|watchers| Stream {
            watchers,
            asked: 0,
            ids: Ids::default(),
            send_window: 0,
            received: 0,
            partial: Vec::new(),
        });
        Session {
            authority,
            interest,
            pace,
            streams: streams.collect(),
            opened: false,
            creating: None,
            send_window: i64::from(http2::WINDOW_BYTES_DEFAULT),
            stream_send_window: i64::from(http2::WINDOW_BYTES_DEFAULT),
            received: 0,
            out,
        }
    }

    /// What is to be written to the socket. The caller drains it.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether the streams are open.
    pub fn is_opened(&self) -> bool {
        self.opened
    }

    /// Begins to create the watchers. The streams must be open.
    pub fn create(&mut self, start_revision: i64) {
        assert!(self.opened, "watchers need their streams");
        self.creating = Some(start_revision);
        for stream in 0..self.streams.len() {
            self.ask(stream);
        }
    }

    /// Takes what came from the socket, and says how many of the bytes it is done with.
    pub fn feed(&mut self, bytes: &[u8], now_ns: u64, watched: &mut Watched) -> Result<usize, String> {
        let mut done = 0;
        while let Some((frame, length)) = http2::next_frame(&bytes[done..])? {
            self.frame(&frame, now_ns, watched)?;
            done += length;
        }
        Ok(done)
    }

    fn frame(&mut self, frame: &Frame<'_>, now_ns: u64, watched: &mut Watched) -> Result<(), String> {
        match frame.kind {
            http2::DATA => self.data(frame, now_ns, watched),
            http2::HEADERS if frame.flags & http2::END_STREAM != 0 => {
                Err("the server ended a stream of watchers".to_owned())
            }
            http2::RST_STREAM => {
                Err(format!("the server reset a stream of watchers with HTTP/2 error {}", frame.number()?))
            }
            http2::GOAWAY => Err("the server is closing the connection".to_owned()),
            http2::SETTINGS if frame.flags & http2::ACK == 0 => self.settings(frame),
            http2::PING if frame.flags & http2::ACK == 0 => {
                http2::write_frame(&mut self.out, http2::PING, http2::ACK, 0, frame.payload);
                Ok(())
            }
            http2::WINDOW_UPDATE => self.window_update(frame),
            _ => Ok(()),
        }
    }

    fn settings(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        for (name, value) in frame.settings() {
            match name {
                http2::SETTING_STREAM_WINDOW => {
                    let change = i64::from(value) - self.stream_send_window;
                    self.stream_send_window += change;
                    self.streams.iter_mut().for_each(|stream| stream.send_window += change);
                }
                http2::SETTING_STREAMS_MAX if (value as usize) < self.streams.len() => {
                    return Err(format!(
                        "the server allows {value} streams on a connection, and {} are wanted: spread them \
                         over more with --watch-conns",
                        self.streams.len()
                    ));
                }
                _ => {}
            }
        }
        http2::write_frame(&mut self.out, http2::SETTINGS, http2::ACK, 0, &[]);
        if !self.opened {
            self.open();
        }
        Ok(())
    }

    fn open(&mut self) {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.send_window = self.stream_send_window;
            http2::write_call(&mut self.out, stream_id(index), &self.authority, WATCH_PATH);
        }
        self.opened = true;
    }

    fn window_update(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let bytes = i64::from(frame.number()?);
        if frame.stream == 0 {
            self.send_window += bytes;
            (0..self.streams.len()).for_each(|stream| self.ask(stream));
        } else {
            let stream = self.stream_of(frame.stream)?;
            self.streams[stream].send_window += bytes;
            self.ask(stream);
        }
        Ok(())
    }

    /// Asks for as many more watchers of a stream as its pace and the windows allow.
    fn ask(&mut self, stream: usize) {
        let Some(start_revision) = self.creating else { return };
        let id = stream_id(stream);
        let stream = &mut self.streams[stream];
        while stream.asked < stream.watchers.len() {
            if self.pace == Pace::OneAtATime && stream.ids.len() < stream.asked {
                return;
            }
            let watcher = stream.watchers.start + stream.asked;
            let message = framed(&self.interest.create_request(watcher, start_revision));
            let length = message.len() as i64;
            if self.send_window < length || stream.send_window < length {
                return;
            }
            self.send_window -= length;
            stream.send_window -= length;
            stream.asked += 1;
            http2::write_frame(&mut self.out, http2::DATA, 0, id, &message);
        }
    }

    fn data(&mut self, frame: &Frame<'_>, now_ns: u64, watched: &mut Watched) -> Result<(), String> {
        if frame.flags & http2::END_STREAM != 0 {
            return Err("the server ended a stream of watchers".to_owned());
        }
        let index = self.stream_of(frame.stream)?;
        self.give_room(index, frame.payload.len() as u32);
        let data = frame.data()?;
        if self.streams[index].partial.is_empty() {
            let done = self.messages(index, data, now_ns, watched)?;
            self.streams[index].partial.extend_from_slice(&data[done..]);
        } else {
            let mut partial = std::mem::take(&mut self.streams[index].partial);
            partial.extend_from_slice(data);
            let done = self.messages(index, &partial, now_ns, watched)?;
            partial.drain(..done);
            self.streams[index].partial = partial;
        }
        Ok(())
    }

    /// Lets the server send more, once it has used a quarter of its room.
    fn give_room(&mut self, index: usize, bytes: u32) {
        let stream = &mut self.streams[index];
        stream.received += bytes;
        self.received += bytes;
        if stream.received >= http2::STREAM_WINDOW_BYTES / 4 {
            http2::write_window_update(&mut self.out, stream_id(index), std::mem::take(&mut stream.received));
        }
        if self.received >= http2::CONNECTION_WINDOW_BYTES / 4 {
            http2::write_window_update(&mut self.out, 0, std::mem::take(&mut self.received));
        }
    }

    /// Takes the whole messages at the beginning of `data`, and says how many bytes they were.
    fn messages(
        &mut self,
        index: usize,
        data: &[u8],
        now_ns: u64,
        watched: &mut Watched,
    ) -> Result<usize, String> {
        let mut done = 0;
        while let Some(message) = next_message(&data[done..], MESSAGE_BYTES_MAX)? {
            self.message(index, message, now_ns, watched)?;
            done += MESSAGE_HEAD_BYTES + message.len();
        }
        Ok(done)
    }

    fn message(
        &mut self,
        index: usize,
        message: &[u8],
        now_ns: u64,
        watched: &mut Watched,
    ) -> Result<(), String> {
        let malformed = |_| "a malformed watch response".to_owned();
        let response = Response::read(message).map_err(malformed)?;
        if response.canceled {
            return Err(format!(
                "the server canceled watcher {}: {:?} (compact revision {})",
                response.watch_id,
                String::from_utf8_lossy(response.cancel_reason),
                response.compact_revision
            ));
        }
        let stream = &mut self.streams[index];
        if response.created {
            stream.ids.add(response.watch_id, stream.watchers.len())?;
            watched.created += 1;
            self.ask(index);
        }
        let stream = &self.streams[index];
        let mut unknown = false;
        response
            .events(|event| match stream.ids.position(response.watch_id) {
                Some(position) => watched.event(stream.watchers.start + position, &event, now_ns),
                None => unknown = true,
            })
            .map_err(malformed)?;
        if unknown {
            return Err(format!("an event for watcher {}, which nobody created", response.watch_id));
        }
        Ok(())
    }

    fn stream_of(&self, id: u32) -> Result<usize, String> {
        let index = (id / 2) as usize;
        if id.is_multiple_of(2) || index >= self.streams.len() {
            return Err(format!("a frame of stream {id}, which nobody opened"));
        }
        Ok(index)
    }
}

/// The ids of a stream's watchers, in the order of their creation. Servers count them up, so the
/// position is nearly always the distance from the first; any others work too.
#[derive(Default)]
struct Ids {
    in_order: Vec<i64>,
    positions: HashMap<i64, usize>,
}

impl Ids {
    fn len(&self) -> usize {
        self.in_order.len()
    }

    fn add(&mut self, id: i64, most: usize) -> Result<(), String> {
        if self.in_order.len() == most {
            return Err("the server created a watcher that nobody asked for".to_owned());
        }
        if self.positions.insert(id, self.in_order.len()).is_some() {
            return Err(format!("the server gave id {id} to two watchers of a stream"));
        }
        self.in_order.push(id);
        Ok(())
    }

    fn position(&self, id: i64) -> Option<usize> {
        let distance = id.wrapping_sub(*self.in_order.first()?) as usize;
        if self.in_order.get(distance) == Some(&id) {
            return Some(distance);
        }
        self.positions.get(&id).copied()
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
