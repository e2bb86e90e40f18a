//! One watch on a stream slot: what it wants, where it stands, and what is told of it.

use crate::watch::mailbox::Mailbox;
use crate::watch::response::ResponseHeader;
use crate::watch::resume::Resume;
use crate::watch::status::WatchPhase;
use crate::watch::wire::{self, Order};
use meerkat_types::Revision;
use std::sync::Arc;
use std::time::Instant;

/// A watch.
pub(super) struct Entry {
    pub(super) order: Order,
    pub(super) resume: Resume,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) place: Place,
    /// How far the member was when it created the watch on this stream.
    pub(super) created_at: Revision,
    /// How many marks had been asked for on this stream when that was heard.
    pub(super) asked_before: u64,
    /// Since when it has been without a stream, if it had one.
    pub(super) lost: Option<Instant>,
    pub(super) setbacks: u8,
    /// It was denied since it was last created, and a new token asked for.
    pub(super) denied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// To be created.
    Waiting,
    /// Asked for, not answered.
    Asked(i64),
    Live(i64),
    Parked,
}

impl Entry {
    /// Its stream is lost, or the one it waited for.
    pub(super) fn lose(&mut self, now: Instant, why: &Arc<str>) {
        let was_live = matches!(self.place, Place::Live(_));
        if self.place != Place::Parked {
            self.mailbox.update(|status| {
                status.losses += u64::from(was_live);
                status.last_loss = Some(why.clone());
            });
        }
        self.leave(now);
    }

    /// It is not on a stream any more.
    pub(super) fn leave(&mut self, now: Instant) {
        let was_live = match self.place {
            Place::Live(_) => true,
            Place::Asked(_) => false,
            Place::Waiting | Place::Parked => return,
        };
        if was_live {
            self.lost.get_or_insert(now);
        }
        self.resume.lost();
        self.wait();
    }

    pub(super) fn wait(&mut self) {
        self.place = Place::Waiting;
        self.mailbox.leave(|status| {
            status.phase = WatchPhase::Connecting;
            status.endpoint = None;
        });
    }

    /// Whether a mark that stands for the whole stream, the `heard`th on it, was made with this watch on it.
    pub(super) fn is_known_at(&self, mark: Revision, heard: u64) -> bool {
        matches!(self.place, Place::Live(_)) && (self.created_at < mark || self.asked_before < heard)
    }

    /// A mark of the member's, to be believed.
    pub(super) fn mark(&mut self, header: ResponseHeader) {
        if !self.resume.mark(wire::header_revision(&header)) {
            return;
        }
        self.setbacks = 0;
        let next = self.resume.owed();
        self.mailbox.update(|status| status.next = next);
        if self.order.marks && !self.order.verbatim {
            self.mailbox.mark(header);
        }
    }

    pub(super) fn tell_live(&mut self, endpoint: Option<Arc<str>>, now: Instant) {
        let gap = self.lost.take().map(|lost| now.saturating_duration_since(lost));
        let next = self.resume.owed();
        self.mailbox.update(|status| {
            status.phase = WatchPhase::Live;
            status.endpoint = endpoint;
            status.next = next;
            if gap.is_some() {
                status.resumes += 1;
                status.last_gap = gap;
                status.resumed_from = next;
            }
        });
    }
}
