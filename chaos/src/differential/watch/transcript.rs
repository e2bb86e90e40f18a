//! What one watch stream has said, sorted by watcher.
//!
//! An id may be used by one watcher after another; each is a [`Life`] of its own. How events were
//! batched into responses is not kept, only judged on arrival: whatever no server may ever do is a
//! violation at once, without a second server to compare with. What depends on what was asked for
//! is left to the comparison.

use std::collections::BTreeMap;

use meerkat_proto::pb::etcdserver::WatchResponse;
use meerkat_proto::pb::mvcc::Event;
use prost::Message;
use tonic::{Code, Status};

/// Replies that concern no watcher carry this id.
pub const NO_WATCHER: i64 = -1;

/// Whose stream it is: every header must say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster: u64,
    /// The member.
    pub member: u64,
}

/// One watcher, from its creation on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Life {
    /// The store's revision in the reply to its creation.
    pub created_at: i64,
    /// All its events, in the order of arrival.
    pub events: Vec<Event>,
    /// Every reply that said it was canceled: after a compaction there may be two.
    pub ends: Vec<End>,
    /// Progress marks.
    pub marks: Vec<i64>,
    /// Responses with events, a response in pieces counted once.
    pub responses: usize,
    /// Pieces other than the last of a response.
    pub pieces: usize,
    /// The largest message with events.
    pub response_bytes_max: usize,
    /// Whether the next response continues the last one.
    unfinished: bool,
    /// The revision in the header of the response that is unfinished.
    header: i64,
}

/// A reply that a watcher was canceled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The header's revision.
    pub revision: i64,
    /// Not zero if history it asked for is compacted.
    pub compact_revision: i64,
    /// Why.
    pub reason: String,
}

/// A reply that concerns no watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum General {
    /// A watcher was refused.
    Refused {
        /// The header's revision.
        revision: i64,
        /// Why.
        reason: String,
    },
    /// An answer to a request for progress.
    Progress {
        /// The header's revision.
        revision: i64,
    },
}

/// Everything one stream has said.
#[derive(Clone, Debug)]
pub struct Transcript {
    identity: Identity,
    lives: BTreeMap<i64, Vec<Life>>,
    /// Replies that concern no watcher, in order.
    pub general: Vec<General>,
    /// Replies to requests so far. A compaction answers nothing, so it is not counted.
    pub replies: usize,
    /// The id in the last reply to a creation.
    pub last_created: i64,
    violations: Vec<String>,
    ended: Option<(Code, String)>,
}

impl Transcript {
    /// Nothing heard yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            lives: BTreeMap::new(),
            general: Vec::new(),
            replies: 0,
            last_created: 0,
            violations: Vec::new(),
            ended: None,
        }
    }

    /// The watchers that have had an id, in order.
    pub fn lives(&self, id: i64) -> &[Life] {
        self.lives.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Every id that a watcher has had.
    pub fn ids(&self) -> impl Iterator<Item = i64> + '_ {
        self.lives.keys().copied()
    }

    /// What no server may do and this one did.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// How the stream ended, if it did.
    pub fn ended(&self) -> Option<&(Code, String)> {
        self.ended.as_ref()
    }

    /// Takes down the end of the stream.
    pub fn note_end(&mut self, status: Option<&Status>) {
        let how =
            status.map_or((Code::Ok, String::new()), |status| (status.code(), status.message().to_owned()));
        self.ended = Some(how);
    }

    /// Takes down one response.
    pub fn note(&mut self, response: &WatchResponse) {
        let revision = self.check_header(response);
        if response.created {
            self.note_created(response, revision);
        } else if response.canceled {
            self.note_canceled(response, revision);
        } else if response.events.is_empty() {
            self.note_progress(response, revision);
        } else {
            self.note_events(response, revision);
        }
        if (response.created || response.canceled) && !response.events.is_empty() {
            self.violate(format!("watcher {}: events in a control reply", response.watch_id));
        }
    }

    fn violate(&mut self, what: String) {
        self.violations.push(what);
    }

    fn check_header(&mut self, response: &WatchResponse) -> i64 {
        let Some(header) = &response.header else {
            self.violate(format!("watcher {}: a response without a header", response.watch_id));
            return 0;
        };
        let identity = Identity { cluster: header.cluster_id, member: header.member_id };
        if identity != self.identity {
            self.violate(format!("a header names {identity:x?}, the stream is of {:x?}", self.identity));
        }
        header.revision
    }

    fn note_created(&mut self, response: &WatchResponse, revision: i64) {
        self.replies += 1;
        self.last_created = response.watch_id;
        if response.canceled {
            if response.watch_id != NO_WATCHER {
                self.violate(format!("a refused watcher was given the id {}", response.watch_id));
            }
            self.general.push(General::Refused { revision, reason: response.cancel_reason.clone() });
            return;
        }
        let lives = self.lives.entry(response.watch_id).or_default();
        let replaced = lives.last().is_some_and(|life| !life.is_canceled());
        lives.push(Life { created_at: revision, ..Life::default() });
        if replaced {
            self.violate(format!("the id {} was given away while in use", response.watch_id));
        }
    }

    fn note_canceled(&mut self, response: &WatchResponse, revision: i64) {
        if response.compact_revision == 0 {
            self.replies += 1;
        }
        let end = End {
            revision,
            compact_revision: response.compact_revision,
            reason: response.cancel_reason.clone(),
        };
        match self.lives.get_mut(&response.watch_id).and_then(|lives| lives.last_mut()) {
            Some(life) => life.ends.push(end),
            None => self.violate(format!("watcher {} was canceled before it was created", response.watch_id)),
        }
    }

    fn note_progress(&mut self, response: &WatchResponse, revision: i64) {
        if response.watch_id == NO_WATCHER {
            self.replies += 1;
            self.general.push(General::Progress { revision });
            return;
        }
        let id = response.watch_id;
        let wrong = match self.lives.get_mut(&id).and_then(|lives| lives.last_mut()) {
            None => Some(format!("watcher {id}: a progress mark before its creation")),
            Some(life) => life.mark(revision).map(|what| format!("watcher {id}: {what}")),
        };
        if let Some(what) = wrong {
            self.violate(what);
        }
    }

    fn note_events(&mut self, response: &WatchResponse, revision: i64) {
        let id = response.watch_id;
        let wrong = match self.lives.get_mut(&id).and_then(|lives| lives.last_mut()) {
            None => vec![format!("watcher {id}: events before its creation")],
            Some(life) => life.receive(response, revision),
        };
        for what in wrong {
            self.violate(format!("watcher {id}: {what}"));
        }
    }
}

impl Life {
    /// Whether it has ended in any way.
    pub fn is_canceled(&self) -> bool {
        !self.ends.is_empty()
    }

    /// The revision of its last event.
    pub fn last_revision(&self) -> i64 {
        self.events.last().map_or(0, revision_of)
    }

    fn mark(&mut self, revision: i64) -> Option<String> {
        let before = self.marks.last().copied().unwrap_or(0).max(self.last_revision());
        self.marks.push(revision);
        if revision < before {
            return Some(format!("a progress mark at {revision} after {before}"));
        }
        self.is_canceled().then(|| "a progress mark after its end".to_owned())
    }

    fn receive(&mut self, response: &WatchResponse, header: i64) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.is_canceled() {
            wrong.push("events after its end".to_owned());
        }
        let (first, last) =
            (response.events.first().map_or(0, revision_of), response.events.last().map_or(0, revision_of));
        if header < last {
            wrong.push(format!("the header is at {header}, an event at {last}"));
        }
        if self.marks.last().is_some_and(|mark| first <= *mark) {
            wrong.push(format!("an event at {first} after a progress mark at {:?}", self.marks.last()));
        }
        if self.unfinished {
            if header != self.header {
                wrong.push("pieces of one response have different headers".to_owned());
            }
        } else {
            self.responses += 1;
            if !self.events.is_empty() && first == self.last_revision() {
                wrong.push(format!("revision {first} is split over two responses"));
            }
        }
        for event in &response.events {
            if revision_of(event) < self.last_revision() {
                wrong.push(format!("revision {} after {}", revision_of(event), self.last_revision()));
            }
            self.events.push(event.clone());
        }
        self.pieces += usize::from(response.fragment);
        self.response_bytes_max = self.response_bytes_max.max(response.encoded_len());
        (self.unfinished, self.header) = (response.fragment, header);
        wrong
    }
}

/// The revision of an event.
pub fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::ResponseHeader;
    use meerkat_proto::pb::mvcc::KeyValue;

    const SELF: Identity = Identity { cluster: 7, member: 9 };

    fn reply(revision: i64) -> WatchResponse {
        let header = ResponseHeader { cluster_id: 7, member_id: 9, revision, raft_term: 2 };
        WatchResponse { header: Some(header), watch_id: 4, ..Default::default() }
    }

    fn created() -> WatchResponse {
        WatchResponse { created: true, ..reply(1) }
    }

    fn events(revisions: &[i64]) -> WatchResponse {
        let event = |revision: &i64| {
            let kv = KeyValue { mod_revision: *revision, ..Default::default() };
            Event { kv: Some(kv), ..Default::default() }
        };
        WatchResponse { events: revisions.iter().map(event).collect(), ..reply(9) }
    }

    fn violations(responses: &[WatchResponse]) -> usize {
        let mut transcript = Transcript::new(SELF);
        responses.iter().for_each(|response| transcript.note(response));
        transcript.violations().len()
    }

    #[test]
    fn a_watcher_that_is_created_given_events_and_canceled_is_in_order() {
        let canceled = WatchResponse { canceled: true, ..reply(9) };
        let all = [created(), events(&[2, 2, 3]), reply(9), canceled, created(), events(&[2])];
        assert_eq!(violations(&all), 0);
    }

    #[test]
    fn a_revision_over_two_responses_is_split_unless_it_was_cut() {
        assert_eq!(violations(&[created(), events(&[2, 3]), events(&[3])]), 1);
        let piece = WatchResponse { fragment: true, ..events(&[2, 3]) };
        assert_eq!(violations(&[created(), piece, events(&[3])]), 0);
    }

    #[test]
    fn events_outside_a_life_are_violations() {
        let canceled = WatchResponse { canceled: true, ..reply(9) };
        assert_eq!(violations(&[events(&[2])]), 1);
        assert_eq!(violations(&[created(), canceled, events(&[2])]), 1);
    }

    #[test]
    fn nothing_comes_late() {
        assert_eq!(violations(&[created(), events(&[3, 2])]), 1);
        assert_eq!(violations(&[created(), reply(5), events(&[5])]), 1);
        assert_eq!(violations(&[created(), reply(5), reply(4)]), 1);
    }

    #[test]
    fn headers_say_whose_they_are_and_how_far() {
        assert_eq!(violations(&[WatchResponse { header: None, ..created() }]), 1);
        let mut foreign = created();
        foreign.header.as_mut().expect("has one").member_id = 8;
        assert_eq!(violations(&[foreign]), 1);
        assert_eq!(violations(&[created(), events(&[10])]), 1);
    }

    #[test]
    fn an_id_in_use_is_not_given_away() {
        assert_eq!(violations(&[created(), created()]), 1);
    }
}
