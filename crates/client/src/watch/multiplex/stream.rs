//! One gRPC stream, as `multiplex` keeps it in mind: which id is whose, and what is to be sent.

use super::NO_ID;
use crate::watch::hub::Serial;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// What is known of the present stream; begins anew with each.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) endpoint: Option<Arc<str>>,
    /// When it was opened; `None` between streams.
    pub(super) opened: Option<Instant>,
    pub(super) renewable: bool,
    pub(super) ids: HashMap<i64, Serial>,
    /// Creations in the order they were asked for; probes among them.
    pub(super) unanswered: VecDeque<i64>,
    pub(super) to_create: VecDeque<Serial>,
    pub(super) to_cancel: VecDeque<i64>,
    pub(super) greeted: bool,
    pub(super) wants_probe: bool,
    pub(super) wants_progress: bool,
    /// The application has asked for a mark that has not come yet.
    pub(super) application_asked: bool,
    /// Requests for marks, and marks that came.
    pub(super) progress_asked: u64,
    pub(super) marks_heard: u64,
    pub(super) marks: Marks,
}

/// Whether requested marks are to be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Marks {
    #[default]
    Unknown,
    True,
    Early,
}

impl Stream {
    pub(super) fn create(&mut self, serial: Serial) {
        // Between streams it is enough that the watch waits; `open` collects them.
        if self.opened.is_some() {
            self.to_create.push_back(serial);
        }
    }

    pub(super) fn take_off(&mut self, id: i64) {
        if self.ids.remove(&id).is_some() {
            self.to_cancel.push_back(id);
        }
    }

    /// Which creation was answered with this id.
    pub(super) fn answered(&mut self, id: i64) -> Option<i64> {
        match self.unanswered.iter().position(|asked| *asked == id) {
            Some(position) => self.unanswered.remove(position),
            None if id == NO_ID => self.unanswered.pop_front(),
            None => None,
        }
    }
}
