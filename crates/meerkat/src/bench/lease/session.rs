//! One connection full of streams that renew leases, without the socket: bytes in, bytes out.
//!
//! Each stream goes round its own leases. *Closed*: it asks again as soon as it was answered, as long as
//! the budget lasts. *Paced*: it asks at intended moments, whether answered or not, and latency counts
//! from them; while it is paused the moments stand still. Every answer is checked: it must be for the
//! lease that was asked for, in order. Any end of a stream is an error, since no bench ends one.
//! Never feed the same bytes twice.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

use crate::bench::http2::{self, Frame, MESSAGE_HEAD_BYTES, framed, next_message, stream_id};
use crate::bench::report::Tally;

const KEEP_ALIVE_PATH: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
/// An answer is a header and two numbers.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// When a stream asks again.
#[derive(Clone)]
pub enum Pace {
    Closed(Rc<Budget>),
    /// Nanoseconds between two requests of a stream that has `1` lease; with more it asks more often.
    Round(u64),
}

/// How many requests may still be made, and until when. Shared by all connections.
pub struct Budget {
    requests: Cell<u64>,
    end_ns: Cell<u64>,
}

impl Budget {
    pub fn new(requests: u64) -> Budget {
        Budget { requests: Cell::new(requests), end_ns: Cell::new(u64::MAX) }
    }

    pub fn end_at(&self, end_ns: u64) {
        self.end_ns.set(end_ns);
    }

    fn take(&self, now_ns: u64) -> bool {
        let left = self.requests.get();
        let may = left > 0 && now_ns < self.end_ns.get();
        self.requests.set(left - u64::from(may));
        may
    }
}

pub struct Session {
    authority: String,
    leases: Rc<[i64]>,
    pace: Pace,
    streams: Vec<Stream>,
    /// Whether the server's settings have come, and with them the streams.
    opened: bool,
    running: bool,
    paused_ns: u64,
    /// What we may send before the server says more, in total and on a stream yet to be opened.
    send_window: i64,
    stream_send_window: i64,
    /// Data received since we last gave the server room for more.
    received: u32,
    out: Vec<u8>,
}

struct Stream {
    leases: Range<usize>,
    /// How many times it has asked: which lease is next.
    asked: usize,
    /// When the next request is due, and how much later the one after it.
    due_ns: u64,
    interval_ns: u64,
    /// Due and not sent, for want of room at the server.
    waiting: VecDeque<u64>,
    /// Sent and not answered: the lease and the intended moment.
    in_flight: VecDeque<(i64, u64)>,
    send_window: i64,
    received: u32,
    /// The beginning of a message whose end is in a later frame.
    partial: Vec<u8>,
}

impl Session {
    /// `streams` has the leases of each stream, by their places in `leases`; none is empty.
    pub fn new(
        authority: String,
        leases: Rc<[i64]>,
        pace: Pace,
        streams: impl Iterator<Item = Range<usize>>,
    ) -> Session {
        let mut out = Vec::new();
        http2::write_opening(&mut out);
        let streams = streams.map(|range| {
            let round_ns = if let Pace::Round(ns) = pace { ns } else { 0 };
            let interval_ns = (round_ns / range.len().max(1) as u64).max(1);
            // Streams begin at different moments, as clients do.
            let due_ns = round_ns * (range.start as u64 % 997) / 997 % interval_ns;
            Stream {
                leases: range,
                asked: 0,
                due_ns,
                interval_ns,
                waiting: VecDeque::new(),
                in_flight: VecDeque::new(),
                send_window: 0,
                received: 0,
                partial: Vec::new(),
            }
        });
        Session {
            authority,
            leases,
            streams: streams.collect(),
            pace,
            opened: false,
            running: false,
            paused_ns: 0,
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

    /// Whether [`Session::tick`] has something to do from time to time.
    pub fn needs_ticks(&self) -> bool {
        self.running && matches!(self.pace, Pace::Round(_))
    }

    /// Requests that are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.streams.iter().map(|stream| stream.in_flight.len()).sum()
    }

    /// Begins to renew, or goes on. The streams must be open.
    pub fn resume(&mut self, now_ns: u64) {
        assert!(self.opened, "renewals need their streams");
        if self.running {
            return;
        }
        self.running = true;
        let stood_still_ns = now_ns.saturating_sub(self.paused_ns);
        for index in 0..self.streams.len() {
            self.streams[index].due_ns += stood_still_ns;
            self.ask_again(index, now_ns);
        }
    }

    /// Nothing more is asked; what was asked is still answered.
    pub fn pause(&mut self, now_ns: u64) {
        // Told twice, it stands still since the first time.
        if std::mem::take(&mut self.running) {
            self.paused_ns = now_ns;
        }
    }

    /// Asks what has become due. An error if the server is so late that a whole round is unanswered.
    pub fn tick(&mut self, now_ns: u64) -> Result<(), String> {
        for index in 0..self.streams.len() {
            loop {
                let stream = &mut self.streams[index];
                if !self.running || now_ns < stream.due_ns {
                    break;
                }
                if stream.waiting.len() + stream.in_flight.len() > stream.leases.len() {
                    return Err("the leases were not renewed in a third of their time".to_owned());
                }
                stream.waiting.push_back(stream.due_ns);
                stream.due_ns += stream.interval_ns;
                self.send(index);
            }
        }
        Ok(())
    }

    /// Takes what came from the socket, and says how many of the bytes it is done with.
    pub fn feed(&mut self, bytes: &[u8], now_ns: u64, tally: &mut Tally) -> Result<usize, String> {
        let mut done = 0;
        while let Some((frame, length)) = http2::next_frame(&bytes[done..])? {
            self.frame(&frame, now_ns, tally)?;
            done += length;
        }
        Ok(done)
    }

    fn frame(&mut self, frame: &Frame<'_>, now_ns: u64, tally: &mut Tally) -> Result<(), String> {
        match frame.kind {
            http2::DATA => self.data(frame, now_ns, tally),
            http2::HEADERS if frame.flags & http2::END_STREAM != 0 => {
                Err("the server ended a stream of renewals".to_owned())
            }
            http2::RST_STREAM => {
                Err(format!("the server reset a stream of renewals with HTTP/2 error {}", frame.number()?))
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
                        "the server allows {value} streams on a connection, and {} are wanted: use more \
                         connections",
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
            http2::write_call(&mut self.out, stream_id(index), &self.authority, KEEP_ALIVE_PATH);
        }
        self.opened = true;
    }

    fn window_update(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let bytes = i64::from(frame.number()?);
        if frame.stream == 0 {
            self.send_window += bytes;
            (0..self.streams.len()).for_each(|index| self.send(index));
        } else {
            let index = self.stream_of(frame.stream)?;
            self.streams[index].send_window += bytes;
            self.send(index);
        }
        Ok(())
    }

    /// The next request of a closed loop.
    fn ask_again(&mut self, index: usize, now_ns: u64) {
        let Pace::Closed(budget) = &self.pace else { return };
        if self.running && budget.take(now_ns) {
            self.streams[index].waiting.push_back(now_ns);
            self.send(index);
        }
    }

    /// Sends what is waiting, as far as the windows allow.
    fn send(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        while let Some(intended_ns) = stream.waiting.front().copied() {
            let lease = self.leases[stream.leases.start + stream.asked % stream.leases.len()];
            let message = framed(&pb::LeaseKeepAliveRequest { id: lease }.encode_to_vec());
            let length = message.len() as i64;
            if self.send_window < length || stream.send_window < length {
                return;
            }
            self.send_window -= length;
            stream.send_window -= length;
            stream.waiting.pop_front();
            stream.asked += 1;
            stream.in_flight.push_back((lease, intended_ns));
            http2::write_frame(&mut self.out, http2::DATA, 0, stream_id(index), &message);
        }
    }

    fn data(&mut self, frame: &Frame<'_>, now_ns: u64, tally: &mut Tally) -> Result<(), String> {
        if frame.flags & http2::END_STREAM != 0 {
            return Err("the server ended a stream of renewals".to_owned());
        }
        let index = self.stream_of(frame.stream)?;
        self.give_room(index, frame.payload.len() as u32);
        let data = frame.data()?;
        let mut partial = std::mem::take(&mut self.streams[index].partial);
        if partial.is_empty() {
            let done = self.answers(index, data, now_ns, tally)?;
            partial.extend_from_slice(&data[done..]);
        } else {
            partial.extend_from_slice(data);
            let done = self.answers(index, &partial, now_ns, tally)?;
            partial.drain(..done);
        }
        self.streams[index].partial = partial;
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

    /// Takes the whole answers at the beginning of `data`, and says how many bytes they were.
    fn answers(
        &mut self,
        index: usize,
        data: &[u8],
        now_ns: u64,
        tally: &mut Tally,
    ) -> Result<usize, String> {
        let mut done = 0;
        while let Some(message) = next_message(&data[done..], ANSWER_BYTES_MAX)? {
            self.answer(index, message, now_ns, tally)?;
            done += MESSAGE_HEAD_BYTES + message.len();
        }
        Ok(done)
    }

    fn answer(&mut self, index: usize, message: &[u8], now_ns: u64, tally: &mut Tally) -> Result<(), String> {
        let response = pb::LeaseKeepAliveResponse::decode(message)
            .map_err(|error| format!("a malformed answer to a renewal: {error}"))?;
        let Some((lease, intended_ns)) = self.streams[index].in_flight.pop_front() else {
            return Err("an answer to a renewal that nobody asked for".to_owned());
        };
        if response.id != lease {
            return Err(format!("the renewal of lease {lease:x} was answered for {:x}", response.id));
        }
        if response.ttl > 0 {
            tally.answered_us(now_ns.saturating_sub(intended_ns) / 1_000);
        } else {
            tally.failed("the lease was gone");
        }
        self.ask_again(index, now_ns);
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
