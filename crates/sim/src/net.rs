//! The network between members and clients: byte streams whose chunks take time, and links that fail.
//!
//! Always true: the bytes of one stream arrive in order and unchanged, or not at all; a cut link
//! delivers nothing until it heals; nothing arrives at the instant it was sent. A machine that is gone
//! answers nothing; a process that is gone has its streams reset. All delays come from one generator, so a seed
//! decides them, and everything that arrives goes into one running hash.

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::task::Waker;

use crate::stream::SimStream;

/// A machine: the clients' is the first, then come the members'.
pub type Machine = usize;

/// Bytes of one stream that may be on their way or unread.
const WINDOW_BYTES: usize = 256 << 10;
/// Between two tries to open a connection over a dead link.
const SYN_AGAIN: u64 = 250;
/// What a lost packet costs.
const RESEND: u64 = 200;

#[derive(Clone)]
pub struct Net {
    pub(crate) shared: Arc<Mutex<Wires>>,
}

pub(crate) struct Wires {
    now: u64,
    random: StdRng,
    /// Ordered by time, then by when it was put there.
    due: BinaryHeap<Reverse<(u64, u64, Due)>>,
    sequence: u64,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) dials: Vec<Dial>,
    pub(crate) ports: BTreeMap<(Machine, u16), Port>,
    links: Vec<Vec<Link>>,
    /// Machines that are switched off.
    off: Vec<bool>,
    trace: DefaultHasher,
    delivered: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Chunk(usize),
    Syn(usize),
    SynAck(usize),
}

#[derive(Clone, Copy, Default)]
struct Link {
    cut: bool,
    /// Added to each delay, at most.
    slow: u64,
    /// Of a thousand packets, so many are lost at first.
    lossy: u32,
}

/// One direction of a stream. Its other direction is the one whose number differs in the last bit.
pub(crate) struct Pipe {
    from: Machine,
    to: Machine,
    queue: VecDeque<Chunk>,
    /// Chunks that were due while the link was cut.
    held: usize,
    pub(crate) ready: BytesMut,
    pub(crate) room: usize,
    pub(crate) ended: bool,
    pub(crate) reset: bool,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    fate: Reader,
    pub(crate) closed: bool,
}

enum Chunk {
    Data(Bytes),
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Reads,
    /// The process let go of the stream: what still comes is answered with a reset.
    Gone,
    /// So did its whole machine: nothing is answered until it is back.
    Vanished,
}

pub(crate) struct Dial {
    from: Machine,
    to: Machine,
    port: u16,
    pub(crate) outcome: DialOutcome,
    pub(crate) waker: Option<Waker>,
}

pub(crate) enum DialOutcome {
    Waiting,
    /// The stream's client end, while the answer is on its way.
    Accepted(SimStream),
    Refused,
    Ready(SimStream),
    ReadyRefused,
    Over,
}

#[derive(Default)]
pub(crate) struct Port {
    pub(crate) queue: VecDeque<SimStream>,
    pub(crate) waker: Option<Waker>,
}

impl Net {
    pub fn new(machines: usize, seed: u64) -> Net {
        Net {
            shared: Arc::new(Mutex::new(Wires {
                now: 0,
                random: StdRng::seed_from_u64(seed),
                due: BinaryHeap::new(),
                sequence: 0,
                pipes: Vec::new(),
                dials: Vec::new(),
                ports: BTreeMap::new(),
                links: vec![vec![Link::default(); machines]; machines],
                off: vec![false; machines],
                trace: DefaultHasher::new(),
                delivered: 0,
            })),
        }
    }

    /// Brings what is due by `now` to those who wait for it.
    pub fn deliver(&self, now: u64) {
        let mut woken = Vec::new();
        let mut wires = self.shared.lock();
        wires.now = now;
        while let Some(Reverse((at, _, due))) = wires.due.peek().copied()
            && at <= now
        {
            wires.due.pop();
            match due {
                Due::Chunk(pipe) => wires.chunk_due(pipe, &mut woken),
                Due::Syn(dial) => wires.syn_due(dial, self, &mut woken),
                Due::SynAck(dial) => wires.syn_ack_due(dial, &mut woken),
            }
        }
        drop(wires);
        woken.into_iter().for_each(Waker::wake);
    }

    pub fn cut(&self, from: Machine, to: Machine, cut: bool) {
        let mut wires = self.shared.lock();
        wires.links[from][to].cut = cut;
        if cut {
            return;
        }
        for pipe in 0..wires.pipes.len() {
            if (wires.pipes[pipe].from, wires.pipes[pipe].to) == (from, to) {
                for _ in 0..std::mem::take(&mut wires.pipes[pipe].held) {
                    wires.schedule_chunk(pipe);
                }
            }
        }
    }

    pub fn set_quality(&self, from: Machine, to: Machine, slow: u64, lossy: u32) {
        let link = &mut self.shared.lock().links[from][to];
        link.slow = slow;
        link.lossy = lossy;
    }

    /// The machine is switched off: whoever speaks to it hears nothing. Before its process is dropped.
    pub fn vanish(&self, machine: Machine) {
        let wires = &mut *self.shared.lock();
        wires.off[machine] = true;
        for pipe in &mut wires.pipes {
            if pipe.to == machine && pipe.fate == Reader::Reads {
                pipe.fate = Reader::Vanished;
            }
            if pipe.from == machine {
                // Nothing of what it would still say, its farewell included, leaves it.
                pipe.closed = true;
            }
        }
    }

    /// The machine is back, and knows none of its old streams.
    pub fn reappear(&self, machine: Machine) {
        let wires = &mut *self.shared.lock();
        wires.off[machine] = false;
        for pipe in &mut wires.pipes {
            if pipe.to == machine && pipe.fate == Reader::Vanished {
                pipe.fate = Reader::Gone;
            }
        }
    }

    /// A hash of everything that was delivered, when and to whom, and how many chunks that was.
    pub fn trace(&self) -> (u64, u64) {
        let wires = self.shared.lock();
        (wires.trace.finish(), wires.delivered)
    }

    /// Puts something that is not a message into the trace.
    pub fn note(&self, what: &str) {
        let mut wires = self.shared.lock();
        let now = wires.now;
        wires.trace.write_u64(now);
        wires.trace.write(what.as_bytes());
    }
}

impl Wires {
    fn delay(&mut self, from: Machine, to: Machine) -> u64 {
        let link = self.links[from][to];
        let lost = self.random.random_ratio(link.lossy.min(1_000), 1_000);
        1 + self.random.random_range(0..6)
            + self.random.random_range(0..=link.slow)
            + if lost { RESEND + self.random.random_range(0..RESEND) } else { 0 }
    }

    fn schedule(&mut self, at: u64, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse((at, self.sequence, due)));
    }

    fn schedule_chunk(&mut self, pipe: usize) {
        let (from, to) = (self.pipes[pipe].from, self.pipes[pipe].to);
        let at = self.now + self.delay(from, to);
        self.schedule(at, Due::Chunk(pipe));
    }

    fn is_cut(&self, from: Machine, to: Machine) -> bool {
        self.links[from][to].cut
    }

    fn new_pipes(&mut self, from: Machine, to: Machine) -> usize {
        let number = self.pipes.len();
        for (from, to) in [(from, to), (to, from)] {
            self.pipes.push(Pipe {
                from,
                to,
                queue: VecDeque::new(),
                held: 0,
                ready: BytesMut::new(),
                room: WINDOW_BYTES,
                ended: false,
                reset: false,
                reader: None,
                writer: None,
                fate: Reader::Reads,
                closed: false,
            });
        }
        number
    }

    /// Takes as much as there is room for.
    pub(crate) fn send(&mut self, pipe: usize, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.pipes[pipe].room);
        self.pipes[pipe].room -= taken;
        self.pipes[pipe].queue.push_back(Chunk::Data(Bytes::copy_from_slice(&bytes[..taken])));
        self.schedule_chunk(pipe);
        taken
    }

    /// Says that no more will come.
    pub(crate) fn end(&mut self, pipe: usize) {
        if !std::mem::replace(&mut self.pipes[pipe].closed, true) {
            self.pipes[pipe].queue.push_back(Chunk::End);
            self.schedule_chunk(pipe);
        }
    }

    /// The reader lets go of it.
    pub(crate) fn leave(&mut self, pipe: usize) {
        if self.pipes[pipe].fate == Reader::Reads {
            self.pipes[pipe].fate = Reader::Gone;
        }
    }

    fn chunk_due(&mut self, number: usize, woken: &mut Vec<Waker>) {
        let (from, to) = (self.pipes[number].from, self.pipes[number].to);
        if self.is_cut(from, to) {
            self.pipes[number].held += 1;
            return;
        }
        let Some(chunk) = self.pipes[number].queue.pop_front() else { return };
        match self.pipes[number].fate {
            Reader::Vanished => return,
            Reader::Gone => {
                if matches!(chunk, Chunk::Data(_)) {
                    self.reset(number, woken);
                    self.reset(number ^ 1, woken);
                }
                return;
            }
            Reader::Reads => {}
        }
        self.delivered += 1;
        self.trace.write_u64(self.now);
        self.trace.write_usize(number);
        let pipe = &mut self.pipes[number];
        match chunk {
            Chunk::Data(bytes) => {
                self.trace.write(&bytes);
                pipe.ready.extend_from_slice(&bytes);
            }
            Chunk::End => pipe.ended = true,
        }
        woken.extend(pipe.reader.take());
    }

    fn reset(&mut self, number: usize, woken: &mut Vec<Waker>) {
        let pipe = &mut self.pipes[number];
        pipe.reset = true;
        woken.extend(pipe.reader.take());
        woken.extend(pipe.writer.take());
    }

    pub(crate) fn dial(&mut self, from: Machine, to: Machine, port: u16) -> usize {
        let number = self.dials.len();
        self.dials.push(Dial { from, to, port, outcome: DialOutcome::Waiting, waker: None });
        let at = self.now + self.delay(from, to);
        self.schedule(at, Due::Syn(number));
        number
    }

    fn syn_due(&mut self, number: usize, net: &Net, woken: &mut Vec<Waker>) {
        let Dial { from, to, port, .. } = self.dials[number];
        if !matches!(self.dials[number].outcome, DialOutcome::Waiting) {
            return;
        }
        if self.is_cut(from, to) || self.off[to] {
            return self.schedule(self.now + SYN_AGAIN, Due::Syn(number));
        }
        let outcome = if self.ports.contains_key(&(to, port)) {
            let pipe = self.new_pipes(from, to);
            let port = self.ports.get_mut(&(to, port)).expect("it was just there");
            port.queue.push_back(SimStream::new(net.clone(), pipe ^ 1, pipe));
            woken.extend(port.waker.take());
            DialOutcome::Accepted(SimStream::new(net.clone(), pipe, pipe ^ 1))
        } else {
            DialOutcome::Refused
        };
        self.dials[number].outcome = outcome;
        let at = self.now + self.delay(to, from);
        self.schedule(at, Due::SynAck(number));
    }

    fn syn_ack_due(&mut self, number: usize, woken: &mut Vec<Waker>) {
        let Dial { from, to, .. } = self.dials[number];
        if self.is_cut(to, from) {
            return self.schedule(self.now + SYN_AGAIN, Due::SynAck(number));
        }
        let dial = &mut self.dials[number];
        dial.outcome = match std::mem::replace(&mut dial.outcome, DialOutcome::Over) {
            DialOutcome::Accepted(stream) => DialOutcome::Ready(stream),
            DialOutcome::Refused => DialOutcome::ReadyRefused,
            other => other,
        };
        woken.extend(dial.waker.take());
    }
}
