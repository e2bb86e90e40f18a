//! List, watch, resume, list again: which of them is next is decided here, and nowhere else. Pure.
//!
//! The shell around it asks the source and reports each answer as an [`Input`]; the answer is a
//! [`Step`]: what may be shown now, and what to do next. Time and chance are handed in.
//!
//! Always true:
//! * Only whole lists are shown. Pages are held here until the last one has come, so the cache never
//!   looks half empty, and whatever happens in the middle of a list starts it again.
//! * A change is shown only if it is not below anything shown before. A source may tell the newest
//!   revision in pieces, or all of it again: the cache knows which of it is new. A mark that is not
//!   above is old news. Events below mean that the source went back in time: nothing it said can be
//!   trusted, and the range is listed again.
//! * A watch that fails without losing history goes on after what was shown. Only compaction (or a
//!   source that broke its word) costs a list.

use bytes::Bytes;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::list_watch::{Page, PageRequest};
use crate::watch::Changes;
use crate::{KeyValue, Revision};

/// A watch that ends without having said anything within this time has failed. Opening it again at
/// once could spin for ever.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// How much larger the pages become when history was compacted under a list: fewer pages take less
/// time, and at some size the list is one page, which no compaction can interrupt.
const PAGE_GROWTH: u64 = 4;

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// The answer to [`Next::List`].
    Listed(Page),
    /// The page could not be had.
    ListFailed(Loss),
    /// The watch said something: one whole revision, or a mark if it has no events.
    Changed(Changes),
    /// The watch is over.
    WatchFailed(Loss),
    /// The time given by [`Next::Wait`] is over.
    Waited,
}

/// Why an answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The history asked for is gone.
    Compacted,
    /// Anything else: it may work later.
    Failed,
    /// The stream ended without an error.
    Ended,
}

/// What to show, and what to do next.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    /// To be applied whole, before `next`.
    pub(crate) show: Option<Show>,
    pub(crate) next: Next,
}

/// What the cache is to become.
#[derive(Debug, PartialEq)]
pub(crate) enum Show {
    /// Exactly these, at this revision.
    Replace { revision: Revision, kvs: Vec<KeyValue> },
    /// The same with these changes. No events: the same, at a later revision.
    Apply(Changes),
}

/// What to ask of the source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for a page.
    List(PageRequest),
    /// Open a watch whose first revision is this one.
    Watch { from: Revision },
    /// Go on with the watch that is open.
    Listen,
    /// Do nothing for this long, then say [`Input::Waited`]. A watch that was open is dropped.
    Wait(Duration),
}

#[derive(Debug)]
enum State {
    Listing(Pages),
    Watching {
        shown: Revision,
        opened: Instant,
        heard: bool,
    },
    /// Resting before the watch is opened again after `shown`.
    Resuming {
        shown: Revision,
    },
    /// Resting before a list from the start.
    Unlisted,
}

/// The part of a list that has come so far.
#[derive(Debug, Default)]
struct Pages {
    /// The revision of the first page, to which the others are pinned.
    pinned: Option<Revision>,
    kvs: Vec<KeyValue>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Machine {
    state: State,
    backoff: Backoff,
    page_size: u64,
    /// The size asked for now: `page_size`, or more after compactions in the middle of a list.
    page_size_now: u64,
    /// Lists lost to compaction since something was last shown by a watch. The first one is followed
    /// by a list at once; after more of them there is a wait.
    compactions: u32,
}

impl Machine {
    /// A machine that has seen nothing, and its first request.
    pub(crate) fn start(page_size: u64) -> (Machine, Next) {
        let page_size = page_size.max(1);
        let mut machine = Machine {
            state: State::Unlisted,
            backoff: Backoff::new(),
            page_size,
            page_size_now: page_size,
            compactions: 0,
        };
        let next = machine.list_from_the_start();
        (machine, next)
    }

    /// Takes in what happened at `now`. `chance` is a fresh draw from 0 to 1.
    pub(crate) fn step(&mut self, input: Input, now: Instant, chance: f64) -> Step {
        let next = match input {
            Input::Listed(page) => return self.listed(page, now, chance),
            Input::Changed(changes) => return self.changed(changes, now, chance),
            Input::ListFailed(loss) => self.list_failed(loss, now, chance),
            Input::WatchFailed(loss) => self.watch_failed(loss, now, chance),
            Input::Waited => self.waited(now),
        };
        Step { show: None, next }
    }

    fn listed(&mut self, page: Page, now: Instant, chance: f64) -> Step {
        let State::Listing(pages) = &mut self.state else {
            return Step { show: None, next: self.list_later(now, chance) };
        };
        if !continues(pages, &page) {
            return Step { show: None, next: self.list_later(now, chance) };
        }
        let pinned = *pages.pinned.get_or_insert(page.revision);
        pages.kvs.extend(page.kvs);
        if page.more {
            let after = pages.kvs.last().map(|kv| kv.key.clone());
            let next = Next::List(PageRequest { at: Some(pinned), after, limit: self.page_size_now });
            return Step { show: None, next };
        }
        let kvs = std::mem::take(&mut pages.kvs);
        self.page_size_now = self.page_size;
        let show = Some(Show::Replace { revision: pinned, kvs });
        Step { show, next: self.watch_after(pinned, now) }
    }

    fn changed(&mut self, changes: Changes, now: Instant, chance: f64) -> Step {
        let State::Watching { shown, heard, .. } = &mut self.state else {
            return Step { show: None, next: self.list_later(now, chance) };
        };
        if changes.revision > *shown {
            *heard = true;
            *shown = changes.revision;
            self.compactions = 0;
            return Step { show: Some(Show::Apply(changes)), next: Next::Listen };
        }
        if changes.events.is_empty() {
            return Step { show: None, next: Next::Listen };
        }
        if changes.revision == *shown {
            return Step { show: Some(Show::Apply(changes)), next: Next::Listen };
        }
        Step { show: None, next: self.list_later(now, chance) }
    }

    fn list_failed(&mut self, loss: Loss, now: Instant, chance: f64) -> Next {
        match loss {
            Loss::Compacted => {
                self.page_size_now = self.page_size_now.saturating_mul(PAGE_GROWTH);
                self.list_after_compaction(now, chance)
            }
            Loss::Failed | Loss::Ended => self.list_later(now, chance),
        }
    }

    fn watch_failed(&mut self, loss: Loss, now: Instant, chance: f64) -> Next {
        let State::Watching { shown, opened, heard } = self.state else {
            return self.list_later(now, chance);
        };
        let lived = heard || now.saturating_duration_since(opened) >= SHORT_WATCH;
        match loss {
            Loss::Compacted => self.list_after_compaction(now, chance),
            Loss::Ended if lived => self.watch_after(shown, now),
            Loss::Ended | Loss::Failed => {
                self.state = State::Resuming { shown };
                Next::Wait(self.backoff.after_failure(now, chance))
            }
        }
    }

    fn waited(&mut self, now: Instant) -> Next {
        match self.state {
            State::Resuming { shown } => self.watch_after(shown, now),
            State::Unlisted | State::Listing(_) | State::Watching { .. } => self.list_from_the_start(),
        }
    }

    fn list_from_the_start(&mut self) -> Next {
        self.state = State::Listing(Pages::default());
        Next::List(PageRequest { at: None, after: None, limit: self.page_size_now })
    }

    fn list_after_compaction(&mut self, now: Instant, chance: f64) -> Next {
        self.compactions = self.compactions.saturating_add(1);
        if self.compactions == 1 { self.list_from_the_start() } else { self.list_later(now, chance) }
    }

    fn list_later(&mut self, now: Instant, chance: f64) -> Next {
        self.state = State::Unlisted;
        Next::Wait(self.backoff.after_failure(now, chance))
    }

    fn watch_after(&mut self, shown: Revision, now: Instant) -> Next {
        self.state = State::Watching { shown, opened: now, heard: false };
        Next::Watch { from: shown.next() }
    }
}

/// Whether `page` can follow what is there: at the pinned revision, its keys rising and above all of
/// them, and not empty if more is to come.
fn continues(pages: &Pages, page: &Page) -> bool {
    let pinned = pages.pinned.is_none_or(|pinned| pinned == page.revision);
    let moves = !page.more || !page.kvs.is_empty();
    let mut below: Option<&Bytes> = pages.kvs.last().map(|kv| &kv.key);
    let rising = page.kvs.iter().all(|kv| below.replace(&kv.key).is_none_or(|lower| lower < &kv.key));
    pinned && moves && rising
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
