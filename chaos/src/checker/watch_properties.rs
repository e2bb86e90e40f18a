//! The nine properties of a watch, and four smaller ones, judged for one watcher.
//!
//! The judge walks a watcher's record beside the history, as a client would: it knows at any moment
//! which revision is owed next, and carries that from one connection to the next. Everything sent
//! must be the next thing owed; what is not is a finding under the property it breaks, once.
//!
//! A revision that comes in pieces counts only when its last piece has come: a client that loses
//! its connection before that throws the pieces away and asks for the revision again. A watcher
//! that agreed to it may miss an event that a later one of the same key has overtaken.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use super::watch_history::WatchHistory;
use crate::Failure;
use crate::record::watch::FELL_BEHIND;
use crate::record::watch::{Reply, Seen, Session, WatchLog};

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Each event matches the request's range and filters.
    Filter,
    /// Revisions never decrease.
    Ordered,
    /// No event twice, across reconnects too.
    Unique,
    /// A revision is never split over responses, unless fragments were asked for.
    Atomic,
    /// A mark says that everything up to it has been sent; marks never decrease.
    Bookmarkable,
    /// The first event is the first match at or after the requested revision.
    Resumable,
    /// Exactly the matching events of history, none missing.
    Reliable,
    /// The create revision equals the revision exactly when the key was created.
    CreateFlag,
    /// The previous value is right where it was asked for and is not compacted.
    PreviousValue,
    /// Nothing below the requested revision.
    Floor,
    /// A watcher is told of compaction only if what it is owed was really compacted.
    Compacted,
    /// Created first, nothing after the end, no end without a reason.
    Lifecycle,
    /// Not about the server: the record says that the client did not ask for what it was owed.
    Record,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The property that does not hold.
    pub property: Property,
    /// What shows it.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.property, self.what)
    }
}

/// What a run can hold a watcher to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Everything up to the end of history must have come.
    pub complete: bool,
    /// Marks are binding. Not so on servers that are known to get them wrong.
    pub marks: bool,
}

/// The strictest.
pub const STRICT: Demand = Demand { complete: true, marks: true };

/// All that is wrong with one watcher's record.
pub fn check(log: &WatchLog, history: &WatchHistory, demand: Demand) -> Vec<Finding> {
    let mut judge = Judge::new(log, history, demand);
    for (index, session) in log.sessions.iter().enumerate() {
        judge.session(index, session);
    }
    judge.finish()
}

/// The findings on many watchers as one failure.
pub fn check_all(logs: &[WatchLog], history: &WatchHistory, demand: Demand) -> Result<(), Failure> {
    let mut findings = Vec::new();
    for log in logs {
        let found = check(log, history, demand);
        findings.extend(found.iter().map(|finding| format!("watcher {}: {finding}", log.name)));
    }
    Failure::from_findings("every watcher is sent exactly what happened", findings)
}

/// Why an event that was due has not come when something after it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Skip {
    /// The first event of a connection lies beyond it.
    AtFirst,
    /// A later event came.
    Between,
    /// A mark claims that it was sent.
    ByMark(i64),
    /// Nothing more came.
    AtLast,
}

/// What is known of one connection while it is walked.
struct Connection {
    index: usize,
    by_client: bool,
    /// The lowest revision that may be sent; known once asked for, or told when created.
    floor: Option<i64>,
    created: bool,
    ended: bool,
    any_event: bool,
    /// The last revision of the last whole response.
    last_of_response: i64,
}

struct Judge<'a> {
    log: &'a WatchLog,
    history: &'a WatchHistory,
    demand: Demand,
    /// Positions in history of the events this watcher wants.
    wanted: Vec<usize>,
    sent: Vec<bool>,
    /// For each event of history the next one of the same key.
    overtaken_by: Vec<Option<usize>>,
    /// The first of `wanted` that is still to come.
    cursor: usize,
    skipped: BTreeMap<usize, Skip>,
    /// The lowest revision the client has yet to hear of.
    next: Option<i64>,
    /// The highest revision sent, and the highest mark.
    last: i64,
    mark: i64,
    findings: Vec<Finding>,
}

impl<'a> Judge<'a> {
    fn new(log: &'a WatchLog, history: &'a WatchHistory, demand: Demand) -> Self {
        let wants = |event: &Seen| log.spec.wants(event.kind, &event.key);
        let wanted: Vec<usize> =
            history.events().iter().enumerate().filter(|(_, event)| wants(event)).map(|(at, _)| at).collect();
        let sent = vec![false; wanted.len()];
        let overtaken_by = if log.coalesces { chain(history) } else { Vec::new() };
        Self {
            log,
            history,
            demand,
            wanted,
            sent,
            overtaken_by,
            cursor: 0,
            skipped: BTreeMap::new(),
            next: None,
            last: 0,
            mark: 0,
            findings: Vec::new(),
        }
    }

    fn found(&mut self, property: Property, what: String) {
        self.findings.push(Finding { property, what });
    }

    fn truth(&self, position: usize) -> &'a Seen {
        &self.history.events()[self.wanted[position]]
    }

    fn position_of(&self, revision: i64) -> usize {
        self.wanted.partition_point(|at| self.history.events()[*at].revision() < revision)
    }

    /// Nothing before this revision is owed any more.
    fn owe_from(&mut self, revision: i64) {
        self.next = Some(revision);
        self.cursor = self.cursor.max(self.position_of(revision));
    }

    fn session(&mut self, index: usize, session: &'a Session) {
        let expected = self.next.unwrap_or(self.log.spec.start_revision);
        if session.asked != expected {
            let asked = session.asked;
            self.found(
                Property::Record,
                format!("connection {index} asked for revision {asked}, {expected} was next"),
            );
        }
        let mut connection = Connection {
            index,
            by_client: session.canceled_by_client,
            floor: (0 < session.asked).then_some(session.asked),
            created: false,
            ended: false,
            any_event: false,
            last_of_response: 0,
        };
        if 0 < session.asked {
            self.owe_from(session.asked);
        }
        let mut pieces: Vec<&Seen> = Vec::new();
        for reply in &session.replies {
            self.reply(&mut connection, &mut pieces, reply);
        }
    }

    fn reply(&mut self, connection: &mut Connection, pieces: &mut Vec<&'a Seen>, reply: &'a Reply) {
        self.lifecycle(connection, reply);
        if !pieces.is_empty() && reply.events.is_empty() {
            self.found(
                Property::Atomic,
                format!("something came between the pieces of a response: {reply:?}"),
            );
        }
        if reply.created {
            self.created(connection, reply);
        }
        if reply.fragment && !self.log.spec.fragment {
            self.found(
                Property::Atomic,
                format!("pieces were sent, but not asked for, at {}", reply.revision),
            );
        }
        pieces.extend(&reply.events);
        if !reply.fragment && !reply.events.is_empty() {
            let whole = std::mem::take(pieces);
            self.response(connection, &whole, reply);
        }
        if reply.canceled {
            self.canceled(connection, reply);
        } else if reply.is_mark() && self.demand.marks {
            self.marked(connection, reply.revision);
        }
    }

    fn lifecycle(&mut self, connection: &mut Connection, reply: &Reply) {
        if reply.created == connection.created {
            let what = if reply.created { "created twice" } else { "not yet created" };
            self.found(Property::Lifecycle, format!("connection {}: {what}: {reply:?}", connection.index));
        }
        // A cancel that the client asked for is answered even if the watcher ended meanwhile.
        if connection.ended && !(reply.canceled && connection.by_client) {
            self.found(Property::Lifecycle, format!("sent after its end: {reply:?}"));
        }
        connection.created |= reply.created;
    }

    fn created(&mut self, connection: &mut Connection, reply: &Reply) {
        if reply.canceled {
            if 0 <= self.log.spec.start_revision {
                self.found(Property::Lifecycle, format!("refused: {}", reply.cancel_reason));
            }
            return;
        }
        if self.history.last_revision() < reply.revision {
            self.found(
                Property::Bookmarkable,
                format!("created at revision {}, ahead of the store", reply.revision),
            );
        }
        if connection.floor.is_none() {
            connection.floor = Some(reply.revision + 1);
            self.owe_from(reply.revision + 1);
        }
    }

    fn canceled(&mut self, connection: &mut Connection, reply: &Reply) {
        let again = connection.ended;
        connection.ended = true;
        if reply.created || again {
            return;
        }
        let next = self.next.unwrap_or(0);
        let bound = reply.compact_revision;
        if bound != 0 {
            if bound <= next {
                self.found(
                    Property::Compacted,
                    format!("told of compaction at {bound}, but owed only from {next} on"),
                );
            }
            if !self.history.may_begin_at(bound, reply.at) {
                self.found(Property::Compacted, format!("nobody had compacted at {bound}"));
            }
            self.owe_from(bound);
        } else if let Some(resume) = reply.cancel_reason.strip_prefix(FELL_BEHIND) {
            self.fell_behind(next, resume);
        } else if !connection.by_client {
            self.found(Property::Lifecycle, format!("canceled by nobody: {:?}", reply.cancel_reason));
        }
    }

    /// A watcher that is told where to resume must find there exactly what it has not had.
    fn fell_behind(&mut self, next: i64, resume: &str) {
        match resume.parse::<i64>() {
            Ok(revision) if next <= revision && self.position_of(revision) <= self.cursor => {
                self.owe_from(revision);
            }
            _ => self.found(
                Property::Resumable,
                format!("told to resume at {resume}, but {next} is the next it has not had"),
            ),
        }
    }

    fn marked(&mut self, connection: &Connection, mark: i64) {
        if connection.floor.is_some_and(|floor| mark + 1 < floor) {
            self.found(
                Property::Floor,
                format!("a mark at {mark}, below the requested {:?}", connection.floor),
            );
            return;
        }
        if mark < self.mark || mark < self.last {
            let (before, last) = (self.mark, self.last);
            self.found(
                Property::Bookmarkable,
                format!("a mark at {mark} after one at {before} and an event at {last}"),
            );
        }
        if self.history.last_revision() < mark {
            self.found(Property::Bookmarkable, format!("a mark at {mark}, ahead of the store"));
        }
        let upto = self.position_of(mark + 1);
        self.skip(upto, Skip::ByMark(mark));
        if self.log.coalesces {
            // What was passed over earlier must have been overtaken by now, not just some day.
            let passed = self.skipped.range(..upto).map(|(position, _)| *position);
            let open: Vec<usize> = passed.filter(|position| !self.is_overtaken(*position, mark)).collect();
            for position in open {
                self.skipped.insert(position, Skip::ByMark(mark));
            }
        }
        self.mark = self.mark.max(mark);
        self.next = self.next.map(|next| next.max(mark + 1));
    }

    fn skip(&mut self, upto: usize, why: Skip) {
        for position in self.cursor..upto {
            // A mark must be true when it is sent; for the rest, what overtakes may still come.
            let excused = matches!(why, Skip::ByMark(mark) if self.is_overtaken(position, mark));
            if !self.sent[position] && !excused {
                self.skipped.insert(position, why);
            }
        }
        self.cursor = self.cursor.max(upto);
    }

    /// Whether a watcher that agreed to it may miss this event: a later one of the same key was sent,
    /// or is of a kind that it does not want and happened by `upto`.
    fn is_overtaken(&self, position: usize, upto: i64) -> bool {
        let mut at = self.wanted[position];
        while let Some(later) = self.overtaken_by.get(at).copied().flatten() {
            let overtakes = match self.wanted.binary_search(&later) {
                Ok(position) => self.sent[position],
                Err(_) => self.history.events()[later].revision() <= upto,
            };
            if overtakes {
                return true;
            }
            at = later;
        }
        false
    }

    fn response(&mut self, connection: &mut Connection, events: &[&'a Seen], reply: &Reply) {
        let highest = events.iter().map(|event| event.revision()).max().unwrap_or(0);
        if reply.revision < highest {
            self.found(
                Property::Bookmarkable,
                format!("a header at {}, below its event at {highest}", reply.revision),
            );
        }
        let mut split = false;
        for event in events {
            split |= self.event(connection, event, reply.at);
        }
        if split {
            let revision = connection.last_of_response;
            self.found(Property::Atomic, format!("revision {revision} came in more than one response"));
        }
        connection.last_of_response = highest;
    }

    /// Judges one event; whether it belongs to the last revision of an earlier response.
    fn event(&mut self, connection: &mut Connection, event: &Seen, at: Duration) -> bool {
        let revision = event.revision();
        if !self.log.spec.wants(event.kind, &event.key) {
            self.found(Property::Filter, format!("not asked for: {event:?}"));
            return false;
        }
        // Whatever comes next begins, on a member that lags, with what came before this record.
        if self.log.spec.start_revision == 0 && revision <= self.history.base() {
            return false;
        }
        let from = self.position_of(revision);
        let upto = self.position_of(revision + 1);
        let same = |position: &usize| {
            let truth = self.truth(*position);
            truth.key == event.key && truth.kind == event.kind
        };
        // Nearly always it is the next one owed, and a revision may have very many.
        let ahead = self.cursor.clamp(from, upto);
        let Some(position) = (ahead..upto).chain(from..ahead).find(same) else {
            self.found(Property::Reliable, format!("this never happened: {event:?}"));
            return false;
        };
        self.contents(event, self.truth(position), at);
        if std::mem::replace(&mut self.sent[position], true) {
            self.found(Property::Unique, format!("sent again: {event:?}"));
            return false;
        }
        if connection.floor.is_some_and(|floor| revision < floor) {
            self.found(
                Property::Floor,
                format!("below the requested revision {:?}: {event:?}", connection.floor),
            );
            return false;
        }
        if position < self.cursor {
            self.late(position, event);
            return false;
        }
        let why = if connection.any_event { Skip::Between } else { Skip::AtFirst };
        self.skip(position, why);
        self.cursor = position + 1;
        self.last = self.last.max(revision);
        self.next = self.next.map(|next| next.max(revision + 1));
        connection.any_event = true;
        revision == connection.last_of_response
    }

    /// An event that comes after something that should have followed it.
    fn late(&mut self, position: usize, event: &Seen) {
        match self.skipped.remove(&position) {
            Some(Skip::ByMark(mark)) => {
                self.found(Property::Bookmarkable, format!("sent after the mark at {mark}: {event:?}"));
            }
            _ => {
                let last = self.last;
                self.found(Property::Ordered, format!("sent after revision {last}: {event:?}"));
            }
        }
    }

    fn contents(&mut self, event: &Seen, truth: &Seen, at: Duration) {
        if (event.now.value, event.now.lease) != (truth.now.value, truth.now.lease) {
            self.found(Property::Reliable, format!("another value was put, {truth:?}: {event:?}"));
        }
        let flags = |seen: &Seen| (seen.now.create_revision, seen.now.version);
        if flags(event) != flags(truth) {
            self.found(
                Property::CreateFlag,
                format!("create revision and version are {:?}: {event:?}", flags(truth)),
            );
        }
        let right = match (self.log.spec.prev_kv, event.prev) {
            (false, prev) => prev.is_none(),
            (true, None) => truth.prev.is_none() || self.history.may_be_compacted(event.revision(), at),
            (true, prev) => prev == truth.prev,
        };
        if !right {
            let prev = truth.prev;
            self.found(Property::PreviousValue, format!("before it was {prev:?}: {event:?}"));
        }
    }

    fn finish(mut self) -> Vec<Finding> {
        if self.demand.complete {
            self.skip(self.wanted.len(), Skip::AtLast);
        }
        let mut missing: BTreeMap<Skip, (usize, usize)> = BTreeMap::new();
        for (position, why) in &self.skipped {
            if matches!(why, Skip::ByMark(_)) || !self.is_overtaken(*position, i64::MAX) {
                missing.entry(*why).or_insert((*position, 0)).1 += 1;
            }
        }
        for (why, (first, count)) in missing {
            let first = self.truth(first);
            let (property, when) = match why {
                Skip::AtFirst => (Property::Resumable, "before the first that came".to_owned()),
                Skip::Between => (Property::Reliable, "between others".to_owned()),
                Skip::ByMark(mark) => (Property::Bookmarkable, format!("before the mark at {mark}")),
                Skip::AtLast => (Property::Reliable, "after the last that came".to_owned()),
            };
            self.found(property, format!("{count} missing {when}, the first of them {first:?}"));
        }
        self.findings
    }
}

/// For each event the next one of the same key.
fn chain(history: &WatchHistory) -> Vec<Option<usize>> {
    let mut later: HashMap<&[u8], usize> = HashMap::new();
    let mut next = vec![None; history.events().len()];
    for (at, event) in history.events().iter().enumerate().rev() {
        next[at] = later.insert(&event.key, at);
    }
    next
}

#[cfg(test)]
mod tests;
