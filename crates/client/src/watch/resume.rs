//! What one watch has been told, what it is still owed, and so where it has to go on.
//!
//! Promise: whatever happens to streams and members in between, the revisions that come out are whole,
//! in order, each once, and none that is owed is missing. Pure: a response or a loss goes in, whole
//! revisions come out, and [`Resume::start`] says what to ask the next member for.
//!
//! ```text
//!            floor          owed                    an ordinary watch: floor = owed
//!   ---------|--------------|----------------->     revisions
//!    dropped   taken if sent   asked for again after a loss
//! ```
//!
//! * `owed` moves only past what was delivered whole: to the last event's revision + 1, or past a
//!   progress mark. Never to a response's header, which tells how far the *member* is, not this watch.
//! * `floor` is below `owed` only on the first creation of a watch that starts *now*. Its `created`
//!   answer carries revision R, and everything after R is owed from then on, heard of or not: an
//!   application that has seen the watch created may write and count on being told. etcd 3.5.1 takes R
//!   before it registers the watcher, so what it sends starts at R + 1 exactly. Later versions take it
//!   after, and may send revisions of R or below that fell in between. Those are taken too, and then
//!   nothing after the first of them may be missing, so `owed` steps back behind it.
//! * A revision in pieces is kept back until its last piece is here, and is owed until then.
//!
//! Callers must tell of every loss before they ask again, and must not pass on progress marks that may
//! have overtaken events (see `multiplex`).

use super::Changes;
use meerkat_types::{Event, EventKind, Revision, WatchStart};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// The bookkeeping of one watch.
#[derive(Debug)]
pub(crate) struct Resume {
    owed: WatchStart,
    floor: Revision,
    /// A revision of which more pieces are to come.
    open: Option<Changes>,
}

impl Resume {
    pub(crate) fn new(start: WatchStart) -> Resume {
        let floor = match start {
            WatchStart::Live => Revision::EMPTY_STORE,
            WatchStart::At(first) => first,
        };
        Resume { owed: start, floor, open: None }
    }

    /// What to ask a member for.
    pub(crate) fn start(&self) -> WatchStart {
        self.owed
    }

    /// The first revision not delivered yet; `None` before the first creation of a watch from now on.
    pub(crate) fn owed(&self) -> Option<Revision> {
        match self.owed {
            WatchStart::Live => None,
            WatchStart::At(first) => Some(first),
        }
    }

    /// A member has created the watch, at a time when its store was at `at`.
    pub(crate) fn created(&mut self, at: Revision) {
        if self.owed == WatchStart::Live && Revision::EMPTY_STORE <= at {
            self.owed = WatchStart::At(at.next());
        }
    }

    /// Takes the events of one response and adds the revisions that are whole by now to `whole`.
    /// `more` says that the response is continued by the next one.
    pub(crate) fn response(&mut self, events: Vec<Event>, more: bool, whole: &mut Vec<Changes>) {
        for event in events {
            let revision = revision_of(&event);
            match &mut self.open {
                Some(open) if open.revision == revision => open.events.push(event),
                // Sent before, on this stream or on another.
                Some(open) if revision < open.revision => {}
                None if revision < self.floor => {}
                _ => {
                    self.close(whole);
                    self.open = Some(Changes { revision, events: vec![event] });
                }
            }
        }
        if !more {
            self.close(whole);
        }
    }

    /// All events up to `at` were sent. True if that is news.
    pub(crate) fn mark(&mut self, at: Revision) -> bool {
        // Between the pieces of a revision no mark can be right.
        let news = self.open.is_none() && self.owed().is_some_and(|owed| owed <= at);
        if news {
            self.delivered(at);
        }
        news
    }

    /// The stream is gone, or the watch was taken off it. What came of a revision in pieces will be
    /// sent again.
    pub(crate) fn lost(&mut self) {
        self.open = None;
        if let WatchStart::At(owed) = self.owed {
            self.floor = owed;
        }
    }

    fn close(&mut self, whole: &mut Vec<Changes>) {
        if let Some(changes) = self.open.take() {
            self.delivered(changes.revision);
            whole.push(changes);
        }
    }

    fn delivered(&mut self, last: Revision) {
        self.floor = last.next();
        self.owed = WatchStart::At(last.next());
    }
}

/// When an event happened.
pub(crate) fn revision_of(event: &Event) -> Revision {
    match &event.kind {
        EventKind::Put(kv) => kv.modified,
        EventKind::Delete { modified, .. } => *modified,
    }
}
