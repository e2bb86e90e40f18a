//! Many watches over one stream: pure, responses in and requests out.
//!
//! Promises:
//! * Every response reaches the watch it is for, on the stream it was created on. Ids are chosen here
//!   and never used twice, so what is still on its way to a watch that left is known by its id and
//!   dropped. Creations that are refused may be answered with the id −1; they are told apart by order,
//!   as servers answer them in the order they were asked.
//! * **A slow watch holds up nobody.** When its buffer is full it is *parked*: cancelled at the member,
//!   what is on its way dropped, and created again from its next owed revision once half the buffer was
//!   read. So the stream is always read, its other watches see nothing of it, and the member keeps
//!   nothing for it but the history it has anyway. The roads not taken: not reading the stream stops
//!   its neighbours; a stream of its own that is not read still takes its share of the connection's
//!   flow-control window, so a handful of them stop every other stream of the connection, and the
//!   member has to keep a queue and a half-sent response for each. The price is one creation for each
//!   buffer of revisions read; a response that was begun is taken whole to keep that low.
//! * **Marks are believed only where they are true.** A requested progress mark (id −1) stands for all
//!   watches of the stream. etcd before 3.5.8 answers it past events still queued (etcd-io/etcd#15220);
//!   believing it would lose them. Such a server can be told by a habit: it answers also when the stream
//!   has no watch yet, and later ones do not. So the first thing asked on a stream is progress, and if
//!   an answer comes before the first creation's, marks of this kind are not used on it. Newer servers
//!   keep marks in order with events, but not with creations: a mark may be queued first, and a creation
//!   that was asked for later answered before it. Such a mark knows nothing of that watch. A watch believes
//!   only marks that are certainly younger than its creation: those whose revision is above the one that
//!   the creation was answered with, and, as a store may stand still, those that can only be answers to
//!   what was asked after that answer: a request is answered once at most and in order, so once more marks
//!   came than had been asked for by then, the last one is.
//! * **Every stream can be asked for a sign of life.** Progress requests may be left unanswered while a
//!   watch is catching up or starts in the future, so they prove nothing. A creation that has to be
//!   refused is always answered (see `wire::probe`).

use super::hub::{Inbox, News, Serial, Start};
use super::mailbox::Look;
use super::resume::Resume;
use super::verdict::{self, Cancelled};
use super::wire::{self, Malformed};
use super::{Changes, ResponseHeader, WatchError, WatchResponse};
use crate::{Error, Fate, retry};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_types::Revision;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tonic::{Code, Status};

mod entry;
#[cfg(test)]
mod model;
mod stream;
#[cfg(test)]
mod tests;

use entry::{Entry, Place};
use stream::{Marks, Stream};

/// Creations asked for and not answered yet. Bounds what a member has to do before it can answer a
/// probe.
const UNANSWERED_MAX: usize = 256;
/// Times in a row a watch may be cancelled for no good reason before the application is told.
const SETBACKS_MAX: u8 = 3;
/// The id of probes. Servers echo it or say −1.
const PROBE_ID: i64 = i64::MAX;
/// Stands for no watch, or for all.
const NO_ID: i64 = -1;

/// The watches of one stream slot, through all the streams it has.
pub(crate) struct Multiplex {
    inbox: Arc<Inbox>,
    watches: HashMap<Serial, Entry>,
    stream: Stream,
    next_id: i64,
    /// A full buffer stops the reading of the stream, instead of its watch being parked.
    on_demand: bool,
    /// Kept to be used again.
    whole: Vec<Changes>,
}

/// What a response means for the whole stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Fine,
    /// The stream's token is refused. It is to be renewed, and the stream opened again.
    Token,
    /// The member does not make sense. Try another.
    Nonsense,
}

impl Multiplex {
    pub(crate) fn new(inbox: Arc<Inbox>, on_demand: bool) -> Multiplex {
        Multiplex {
            inbox,
            watches: HashMap::new(),
            stream: Stream::default(),
            next_id: 1,
            on_demand,
            whole: Vec::new(),
        }
    }

    /// Nothing more is to be read before an application has read.
    pub(crate) fn is_held_up(&self) -> bool {
        self.on_demand && self.watches.values().any(|entry| entry.mailbox.holds_up())
    }

    /// No watch wants a stream. Parked ones do not.
    pub(crate) fn is_idle(&self) -> bool {
        self.watches.values().all(|entry| entry.place == Place::Parked)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Whether some watch wants marks often.
    pub(crate) fn wants_marks(&self) -> bool {
        self.watches.values().any(|entry| entry.order.marks && !entry.order.verbatim)
    }

    /// A stream is being opened. `renewable` says that there are credentials to get a token with.
    pub(crate) fn open(&mut self, endpoint: Arc<str>, renewable: bool, now: Instant) {
        let to_create = self.watches.iter().filter(|(_, entry)| entry.place == Place::Waiting);
        self.stream = Stream {
            endpoint: Some(endpoint),
            opened: Some(now),
            renewable,
            to_create: to_create.map(|(serial, _)| *serial).collect(),
            ..Stream::default()
        };
    }

    /// The stream is gone; every watch on it waits for the next.
    pub(crate) fn lost(&mut self, now: Instant, why: &str) {
        self.stream = Stream::default();
        let why = Arc::from(why);
        for entry in self.watches.values_mut() {
            entry.lose(now, &why);
        }
    }

    /// What watches have to say.
    pub(crate) fn attend(&mut self) {
        for news in self.inbox.take() {
            match news {
                News::Start(start) => self.add(start),
                News::Look(serial) => self.look(serial),
                News::Progress => {
                    self.stream.application_asked = true;
                    self.ask_progress();
                }
            }
        }
    }

    /// Asks for a sign of life.
    pub(crate) fn ask_probe(&mut self) {
        self.stream.wants_probe = true;
    }

    /// Asks how far all watches have come.
    pub(crate) fn ask_progress(&mut self) {
        self.stream.wants_progress = true;
    }

    /// Ends all watches.
    pub(crate) fn refuse_all(&mut self, why: &Error) {
        self.end_all(|| WatchError::Refused(why.clone()));
    }

    pub(crate) fn end_all(&mut self, why: impl Fn() -> WatchError) {
        self.inbox.left(self.watches.len());
        for (_, entry) in self.watches.drain() {
            entry.mailbox.end(why());
        }
        self.stream.ids.clear();
    }

    fn add(&mut self, start: Start) {
        let serial = start.mailbox.serial();
        let entry = Entry {
            order: start.order,
            resume: Resume::new(start.from),
            mailbox: start.mailbox,
            place: Place::Waiting,
            created_at: Revision::new(0),
            asked_before: 0,
            lost: None,
            setbacks: 0,
            denied: false,
        };
        self.watches.insert(serial, entry);
        self.stream.create(serial);
    }

    fn look(&mut self, serial: Serial) {
        let Some(entry) = self.watches.get_mut(&serial) else { return };
        match entry.mailbox.look() {
            Look::Dropped => drop(self.remove(serial)),
            Look::Roomy if entry.place == Place::Parked => {
                entry.wait();
                self.stream.create(serial);
            }
            Look::Roomy | Look::Busy => {}
        }
    }

    fn remove(&mut self, serial: Serial) -> Option<Entry> {
        let entry = self.watches.remove(&serial)?;
        if let Place::Asked(id) | Place::Live(id) = entry.place {
            self.stream.take_off(id);
        }
        self.inbox.left(1);
        Some(entry)
    }
}

/// Requests, in the order in which they matter.
impl Multiplex {
    pub(crate) fn has_request(&self) -> bool {
        let stream = &self.stream;
        let creates = !stream.to_create.is_empty() && stream.unanswered.len() < UNANSWERED_MAX;
        stream.opened.is_some()
            && (!stream.greeted
                || !stream.to_cancel.is_empty()
                || stream.wants_probe
                || stream.wants_progress
                || creates)
    }

    pub(crate) fn next_request(&mut self) -> Option<pb::WatchRequest> {
        let stream = &mut self.stream;
        if !std::mem::replace(&mut stream.greeted, true) {
            return Some(wire::progress());
        }
        if let Some(id) = stream.to_cancel.pop_front() {
            return Some(wire::cancel(id));
        }
        if std::mem::take(&mut stream.wants_probe) {
            stream.unanswered.push_back(PROBE_ID);
            return Some(wire::probe(PROBE_ID));
        }
        if let Some(create) = self.next_create() {
            return Some(create);
        }
        let wanted = std::mem::take(&mut self.stream.wants_progress);
        // The greeting is not counted: where marks are believed it is never answered.
        self.stream.progress_asked += u64::from(wanted);
        wanted.then(wire::progress)
    }

    fn next_create(&mut self) -> Option<pb::WatchRequest> {
        let stream = &mut self.stream;
        while stream.unanswered.len() < UNANSWERED_MAX {
            let serial = stream.to_create.pop_front()?;
            // It may have been dropped since.
            let Some(entry) = self.watches.get_mut(&serial) else { continue };
            if entry.place != Place::Waiting {
                continue;
            }
            let id = self.next_id;
            self.next_id += 1;
            entry.place = Place::Asked(id);
            stream.ids.insert(id, serial);
            stream.unanswered.push_back(id);
            return Some(wire::create(&entry.order, id, entry.resume.start()));
        }
        None
    }
}

/// Responses.
impl Multiplex {
    pub(crate) fn response(&mut self, response: pb::WatchResponse, now: Instant) -> Heard {
        if response.created {
            return self.created(response, now);
        }
        if response.watch_id == NO_ID {
            if !response.canceled && response.events.is_empty() {
                self.mark_all(ResponseHeader::of(&response));
            }
            return Heard::Fine;
        }
        // Of a watch that has left, unless the server makes ids up.
        let Some(serial) = self.stream.ids.get(&response.watch_id).copied() else { return Heard::Fine };
        if response.canceled {
            self.stream.take_off(response.watch_id);
            return self.cancelled(serial, &response, now);
        }
        if response.events.is_empty() && !response.fragment {
            self.mark(serial, ResponseHeader::of(&response));
            return Heard::Fine;
        }
        match self.events(serial, response) {
            Ok(()) => Heard::Fine,
            Err(Malformed) => Heard::Nonsense,
        }
    }

    fn created(&mut self, response: pb::WatchResponse, now: Instant) -> Heard {
        let stream = &mut self.stream;
        if stream.marks == Marks::Unknown {
            stream.marks = Marks::True;
        }
        let Some(id) = stream.answered(response.watch_id) else { return Heard::Fine };
        let Some(serial) = stream.ids.get(&id).copied() else { return Heard::Fine };
        if response.canceled {
            stream.ids.remove(&id);
            return self.cancelled(serial, &response, now);
        }
        let (endpoint, asked_before) = (stream.endpoint.clone(), stream.progress_asked);
        if let Some(entry) = self.watches.get_mut(&serial) {
            entry.place = Place::Live(id);
            entry.denied = false;
            entry.created_at = wire::header_revision(&ResponseHeader::of(&response));
            entry.asked_before = asked_before;
            entry.resume.created(entry.created_at);
            entry.tell_live(endpoint, now);
        }
        Heard::Fine
    }

    fn events(&mut self, serial: Serial, response: pb::WatchResponse) -> Result<(), Malformed> {
        let Some(entry) = self.watches.get_mut(&serial) else { return Ok(()) };
        if entry.mailbox.is_full() && !self.on_demand {
            self.park(serial);
            return Ok(());
        }
        let (header, more) = (ResponseHeader::of(&response), response.fragment);
        let events = wire::events(&entry.order.namespace, response.events)?;
        entry.resume.response(events, more, &mut self.whole);
        if !self.whole.is_empty() {
            entry.setbacks = 0;
        }
        entry.mailbox.deliver(&mut self.whole, header, more, entry.resume.owed());
        Ok(())
    }

    fn park(&mut self, serial: Serial) {
        let Some(entry) = self.watches.get_mut(&serial) else { return };
        if let Place::Live(id) | Place::Asked(id) = entry.place {
            self.stream.take_off(id);
        }
        entry.resume.lost();
        entry.place = Place::Parked;
        match entry.mailbox.park() {
            Look::Busy => {}
            Look::Dropped => drop(self.remove(serial)),
            Look::Roomy => {
                entry.wait();
                self.stream.create(serial);
            }
        }
    }

    fn mark_all(&mut self, header: ResponseHeader) {
        if self.stream.marks != Marks::Unknown && std::mem::take(&mut self.stream.application_asked) {
            let live = self.watches.values().filter(|entry| matches!(entry.place, Place::Live(_)));
            live.filter(|entry| entry.order.verbatim).for_each(|entry| entry.mailbox.mark(header));
        }
        match self.stream.marks {
            // Answered with no watch created: this server answers always, and so too early.
            Marks::Unknown => self.stream.marks = Marks::Early,
            Marks::Early => {}
            Marks::True => {
                self.stream.marks_heard += 1;
                let heard = self.stream.marks_heard;
                let at = wire::header_revision(&header);
                for entry in self.watches.values_mut().filter(|entry| entry.is_known_at(at, heard)) {
                    entry.mark(header);
                }
            }
        }
    }

    fn mark(&mut self, serial: Serial, header: ResponseHeader) {
        if let Some(entry) = self.watches.get_mut(&serial) {
            entry.mark(header);
            if entry.order.marks && entry.order.verbatim {
                entry.mailbox.mark(header);
            }
        }
    }

    /// The member has cancelled a watch; it is off the stream already.
    fn cancelled(&mut self, serial: Serial, response: &pb::WatchResponse, now: Instant) -> Heard {
        let Some(entry) = self.watches.get_mut(&serial) else { return Heard::Fine };
        entry.leave(now);
        // etcd 3.5.1 denies what it should call an unknown token, be it expired or forgotten in a restart.
        // A token of the minute tells one from the other.
        let renew = self.stream.renewable && !std::mem::replace(&mut entry.denied, true);
        let next = entry.resume.owed();
        let error = match verdict::cancelled(response.compact_revision, &response.cancel_reason) {
            Cancelled::Compacted { oldest } => compacted(oldest, next),
            // Only this watch: those that run may go on without a token.
            Cancelled::Token(known) if !self.stream.renewable => {
                Some(self.refusal(known.code(), known.message()))
            }
            token @ Cancelled::Token(_) => {
                self.set_back(serial, &token);
                return Heard::Token;
            }
            Cancelled::Denied { .. } if renew => {
                self.set_back(serial, &Cancelled::Token(EtcdError::InvalidAuthToken));
                return Heard::Token;
            }
            Cancelled::Denied { code, text } | Cancelled::Refused { code, text } => {
                Some(self.refusal(code, &text))
            }
            Cancelled::Silently => None,
        };
        match error {
            Some(error) => self.end_in_words(serial, error, response),
            // Nobody said why, or what is owed is there still in spite of a compaction.
            None => self.set_back(serial, &Cancelled::Silently),
        }
        Heard::Fine
    }

    /// Creates a watch again that was cancelled for a reason that may pass, but not for ever.
    fn set_back(&mut self, serial: Serial, why: &Cancelled) {
        let Some(entry) = self.watches.get_mut(&serial) else { return };
        entry.setbacks += 1;
        if entry.setbacks <= SETBACKS_MAX {
            return self.stream.create(serial);
        }
        let error = match why {
            Cancelled::Token(known) => self.refusal(known.code(), known.message()),
            _ => self
                .refusal(Code::Unknown, "the member cancels the watch again and again, and does not say why"),
        };
        self.end(serial, error);
    }

    fn refusal(&self, code: Code, text: &str) -> WatchError {
        WatchError::Refused(refusal(&Status::new(code, text), self.stream.endpoint.clone()))
    }

    /// Ends a watch that its member has cancelled.
    fn end_in_words(&mut self, serial: Serial, why: WatchError, response: &pb::WatchResponse) {
        if let Some(entry) = self.watches.get(&serial).filter(|entry| entry.order.verbatim) {
            entry.mailbox.last_word(WatchResponse::canceled(response));
        }
        self.end(serial, why);
    }

    fn end(&mut self, serial: Serial, why: WatchError) {
        if let Some(entry) = self.remove(serial) {
            entry.mailbox.end(why);
        }
    }
}

/// The error for what a member has answered no to.
pub(crate) fn refusal(status: &Status, endpoint: Option<Arc<str>>) -> Error {
    Error::from_status(Fate::Refused, retry::look(status), status, endpoint)
}

/// `None` if the next revision is there in spite of the compaction. `oldest` is the wire's.
fn compacted(oldest: i64, next: Option<Revision>) -> Option<WatchError> {
    let told = wire::is_revision(oldest).then(|| Revision::new(oldest));
    let next = next.or(told)?;
    match told {
        Some(oldest) if oldest <= next => None,
        Some(oldest) => Some(WatchError::Compacted { oldest, next }),
        None => Some(WatchError::Compacted { oldest: next, next }),
    }
}
