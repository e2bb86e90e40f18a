//! A revision that is written out piece by piece, as fast as its client reads.
//!
//! What is kept between pieces is a place in it; the revision itself is held by the hub, which may
//! need its memory. A watcher that agreed to fragments gets it as several responses, each below the
//! limit unless a single event is above it; any other gets one response, however large.

use super::message::{Chosen, put_head};
use bytes::{BufMut, BytesMut};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_watch::{Form, Wire};
use prost::Message;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Large {
    head: pb::WatchResponse,
    chosen: Chosen,
    pub(super) form: Form,
    /// The chosen events of each response.
    messages: Vec<Range<usize>>,
    message: usize,
    event: usize,
    offset: usize,
    head_written: bool,
}

impl Large {
    pub(super) fn new(
        head: pb::WatchResponse,
        chosen: Chosen,
        form: Form,
        wire: &Wire,
        fragment_bytes: Option<usize>,
    ) -> Large {
        let sizes = |n| chosen.event(wire, n).len();
        let messages = match fragment_bytes {
            Some(limit) => cut(chosen.count(), sizes, head.encoded_len(), limit),
            None => std::iter::once(0..chosen.count()).collect(),
        };
        Large { head, chosen, form, messages, message: 0, event: 0, offset: 0, head_written: false }
    }

    pub(super) fn is_done(&self) -> bool {
        self.message == self.messages.len()
    }

    pub(super) fn events(&self) -> usize {
        self.chosen.count()
    }

    pub(super) fn responses(&self) -> usize {
        self.messages.len()
    }

    /// Goes on writing until the buffer holds `target` bytes or all is written.
    pub(super) fn write(&mut self, wire: &Wire, target: usize, buffer: &mut BytesMut) {
        while buffer.len() < target && !self.is_done() {
            let events = self.messages[self.message].clone();
            if !self.head_written {
                self.write_head(wire, &events, buffer);
            }
            if self.event == events.end {
                self.message += 1;
                self.head_written = false;
                continue;
            }
            let event = self.chosen.event(wire, self.event);
            let piece = (event.len() - self.offset).min(target.saturating_sub(buffer.len()));
            buffer.put_slice(&event[self.offset..self.offset + piece]);
            self.offset += piece;
            if self.offset == event.len() {
                (self.event, self.offset) = (self.event + 1, 0);
            }
        }
    }

    fn write_head(&mut self, wire: &Wire, events: &Range<usize>, buffer: &mut BytesMut) {
        let bytes = events.clone().map(|n| self.chosen.event(wire, n).len()).sum();
        let last = self.message + 1 == self.messages.len();
        let head = pb::WatchResponse { fragment: !last, ..self.head.clone() };
        put_head(&head, bytes, buffer);
        self.head_written = true;
    }
}

/// Which events go together so that each response stays below the limit, or has one event only.
fn cut(count: usize, size: impl Fn(usize) -> usize, head_bytes: usize, limit: usize) -> Vec<Range<usize>> {
    // The flag that says that more follows.
    let head_bytes = head_bytes + 2;
    let mut messages = Vec::new();
    let (mut first, mut bytes) = (0, head_bytes);
    for n in 0..count {
        if first < n && limit <= bytes + size(n) {
            messages.push(first..n);
            (first, bytes) = (n, head_bytes);
        }
        bytes += size(n);
    }
    messages.push(first..count);
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sizes: &[usize], limit: usize, expected: &[(usize, usize)]) {
        let messages = cut(sizes.len(), |n| sizes[n], 8, limit);
        let messages: Vec<(usize, usize)> =
            messages.iter().map(|events| (events.start, events.end)).collect();
        assert_eq!(messages, expected);
    }

    #[test]
    fn responses_stay_below_the_limit_unless_one_event_is_above_it() {
        check(&[10, 10, 10], 1_000, &[(0, 3)]);
        check(&[40, 40, 40], 100, &[(0, 2), (2, 3)]);
        check(&[500, 10, 500, 10], 100, &[(0, 1), (1, 2), (2, 3), (3, 4)]);
        check(&[500], 100, &[(0, 1)]);
        // Exactly at the limit is too much, as in etcd.
        check(&[45, 45], 100, &[(0, 1), (1, 2)]);
        check(&[45, 44], 100, &[(0, 2)]);
    }
}
