//! What really happened to the store, replayed from all its events since it was empty.
//!
//! A history is built from one authoritative list of events and proves itself while it is built:
//! revisions rise by one, no deletion finds nothing, create revisions and versions follow from what
//! came before. So it also knows what was there before each event, whoever asked. It is then held
//! against the writers' acknowledgements and against what a read finds at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;

use crate::outcome::Outcome;
use crate::record::watch::{Kind, Seen, Stored, ValuePrint, WatchLog, WatchSpec};

/// An empty store is at this revision; its first change makes the next.
pub const EMPTY_AT: i64 = 1;

/// One compaction that was asked for, whether or not it was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// History before this revision goes.
    pub revision: i64,
    /// When it was asked for.
    pub asked: Duration,
}

/// All events, in order, each with what was there before it.
#[derive(Clone, Debug, Default)]
pub struct WatchHistory {
    events: Vec<Seen>,
    state: BTreeMap<Bytes, Stored>,
    /// Every compaction that may have happened.
    pub compactions: Vec<Compaction>,
    /// The revision up to which others, who do not say when, have compacted.
    pub compacted_by_others: i64,
    part: Option<Part>,
}

/// Says that a history is not the whole one: only some keys, and only from a revision on.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// It begins after this revision.
    base: i64,
    /// All is known up to this one, whether or not it changed any of these keys.
    reached: i64,
}

/// One change that a write makes to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The key.
    pub key: Bytes,
    /// What was put; none for a deletion.
    pub put: Option<ValuePrint>,
}

/// One write, from its client's side. Values are never used twice, so that a change tells who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Its effects, if it happens. A deletion is listed only if the answer says that it deleted.
    pub effects: Vec<Effect>,
    /// What its client knows; the revision it was given.
    pub outcome: Outcome<i64>,
}

impl WatchHistory {
    /// Replays all events since the store was empty; also returns where they contradict themselves.
    pub fn replay(events: Vec<Seen>) -> (Self, Vec<String>) {
        let mut history = Self::default();
        let mut findings = Vec::new();
        for event in events {
            findings.extend(history.append(event));
        }
        (history, findings)
    }

    /// Of some keys of a store only, from what they were at a revision on.
    pub fn of_part(base: i64, state: BTreeMap<Bytes, Stored>) -> Self {
        Self { state, part: Some(Part { base, reached: base }), ..Self::default() }
    }

    /// All is known up to this revision.
    pub fn reach(&mut self, revision: i64) {
        if let Some(part) = &mut self.part {
            part.reached = part.reached.max(revision);
        }
    }

    /// The revision after which it begins.
    pub fn base(&self) -> i64 {
        self.part.map_or(EMPTY_AT, |part| part.base)
    }

    /// The keys as they are at the end.
    pub fn state(&self) -> &BTreeMap<Bytes, Stored> {
        &self.state
    }

    /// Replays one more event; returns what is wrong with it.
    pub fn append(&mut self, mut event: Seen) -> Vec<String> {
        let mut findings = Vec::new();
        let revision = event.revision();
        let at = self.events.last().map_or(self.base(), Seen::revision);
        let opens = if self.part.is_some() { at < revision } else { revision == at + 1 };
        if !opens && (revision != at || self.events.is_empty()) {
            findings.push(format!("an event at revision {revision} follows revision {at}: {event:?}"));
        }
        let before = self.state.get(&event.key).copied();
        let expected = match (event.kind, before) {
            (Kind::Put, None) => (revision, 1),
            (Kind::Put, Some(before)) => (before.create_revision, before.version + 1),
            (Kind::Delete, _) => (0, 0),
        };
        if (event.now.create_revision, event.now.version) != expected {
            findings.push(format!("create revision and version should be {expected:?}: {event:?}"));
        }
        if event.kind == Kind::Delete && before.is_none() {
            findings.push(format!("a key that was not there was deleted: {event:?}"));
        }
        if event.prev.is_some() && event.prev != before {
            findings.push(format!("before it was {before:?}: {event:?}"));
        }
        match event.kind {
            Kind::Put => self.state.insert(event.key.clone(), event.now),
            Kind::Delete => self.state.remove(&event.key),
        };
        event.prev = before;
        self.events.push(event);
        findings
    }

    /// All events, in order.
    pub fn events(&self) -> &[Seen] {
        &self.events
    }

    /// The newest revision.
    pub fn last_revision(&self) -> i64 {
        let reached = self.part.map_or(EMPTY_AT, |part| part.reached);
        self.events.last().map_or(reached, |event| event.revision().max(reached))
    }

    /// The events of one revision.
    pub fn at(&self, revision: i64) -> &[Seen] {
        let from = self.events.partition_point(|event| event.revision() < revision);
        let upto = self.events.partition_point(|event| event.revision() <= revision);
        &self.events[from..upto]
    }

    /// The revision of the last event that a watcher wants, whenever it started; zero if there is none.
    pub fn last_wanted(&self, spec: &WatchSpec) -> i64 {
        let last = self.events.iter().rev().find(|event| spec.wants(event.kind, &event.key));
        last.map_or(0, Seen::revision)
    }

    /// Whether a watcher of one connection has been sent the last event it is owed, or has ended.
    pub fn is_told_in(&self, log: &WatchLog) -> bool {
        let Some(session) = log.sessions.last() else { return false };
        let from = match session.replies.first() {
            Some(created) if session.asked == 0 => created.revision + 1,
            Some(_) => session.asked,
            None => return false,
        };
        let last = self.last_wanted(&log.spec);
        let sent = session.replies.iter().rev().find_map(|reply| reply.events.last());
        let over = session.replies.last().is_some_and(|reply| reply.canceled);
        over || last < from || sent.is_some_and(|event| last <= event.revision())
    }

    /// Whether a compaction that took this revision's past away may have happened by then.
    pub fn may_be_compacted(&self, revision: i64, by: Duration) -> bool {
        revision <= self.compacted_by_others
            || self.compactions.iter().any(|one| revision <= one.revision && one.asked <= by)
    }

    /// Whether a member may have said by then that history begins at this revision.
    pub fn may_begin_at(&self, revision: i64, by: Duration) -> bool {
        revision <= self.compacted_by_others
            || self.compactions.iter().any(|one| one.revision == revision && one.asked <= by)
    }

    /// Where a read of all keys at the newest revision differs from the replay.
    pub fn compare_state(&self, read: &BTreeMap<Bytes, Stored>) -> Vec<String> {
        let mut findings = Vec::new();
        for (key, stored) in &self.state {
            if read.get(key) != Some(stored) {
                findings.push(format!("{key:?} should be {stored:?}, and reads as {:?}", read.get(key)));
            }
        }
        let extra = read.iter().filter(|(key, _)| !self.state.contains_key(*key));
        findings.extend(extra.map(|(key, stored)| format!("{key:?} reads as {stored:?}, but was deleted")));
        findings
    }

    /// Where the history differs from what the writers were told.
    pub fn compare_writes(&self, writes: &[Wrote]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut found: HashMap<(&Bytes, ValuePrint), usize> = HashMap::new();
        for event in self.events.iter().filter(|event| event.kind == Kind::Put) {
            *found.entry((&event.key, event.now.value)).or_default() += 1;
        }
        let mut sent = HashSet::new();
        for write in writes {
            let puts = write.effects.iter().filter_map(|effect| Some((&effect.key, effect.put?)));
            for put in puts {
                sent.insert(put);
                match (found.get(&put).copied().unwrap_or(0), &write.outcome) {
                    (0, Outcome::Ok(_)) => {
                        findings.push(format!("acknowledged, but never happened: {write:?}"))
                    }
                    (1.., Outcome::Failed(_)) => findings.push(format!("refused, but happened: {write:?}")),
                    (2.., _) => findings.push(format!("happened more than once: {write:?}")),
                    _ => {}
                }
            }
            if let Outcome::Ok(revision) = write.outcome {
                findings.extend(self.compare_effects(write, revision));
            }
        }
        let unsent = found.keys().filter(|put| !sent.contains(*put));
        findings.extend(unsent.map(|(key, _)| format!("a put of {key:?} that nobody sent")));
        findings
    }

    fn compare_effects(&self, write: &Wrote, revision: i64) -> Option<String> {
        let happened = |effect: &Effect| {
            self.at(revision).iter().any(|event| {
                event.key == effect.key
                    && match effect.put {
                        Some(value) => event.kind == Kind::Put && event.now.value == value,
                        None => event.kind == Kind::Delete,
                    }
            })
        };
        let all = write.effects.iter().all(happened);
        (!all).then(|| format!("not at revision {revision} as acknowledged: {write:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, revision: i64, create_revision: i64, version: i64) -> Seen {
        let value = ValuePrint::of(format!("{key}@{revision}").as_bytes());
        let now = Stored { create_revision, mod_revision: revision, version, lease: 0, value };
        Seen { kind: Kind::Put, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
    }

    fn delete(key: &str, revision: i64) -> Seen {
        let now = Stored { mod_revision: revision, ..Stored::default() };
        Seen { kind: Kind::Delete, key: Bytes::copy_from_slice(key.as_bytes()), now, prev: None }
    }

    fn found(events: Vec<Seen>) -> usize {
        WatchHistory::replay(events).1.len()
    }

    fn wrote(key: &str, revision: i64, outcome: Outcome<i64>) -> Wrote {
        let event = put(key, revision, 0, 0);
        Wrote { effects: vec![Effect { key: event.key, put: Some(event.now.value) }], outcome }
    }

    #[test]
    fn a_key_that_comes_goes_and_comes_again_is_created_twice() {
        let (history, findings) = WatchHistory::replay(vec![
            put("a", 2, 2, 1),
            put("a", 3, 2, 2),
            delete("a", 4),
            put("a", 5, 5, 1),
            put("b", 5, 5, 1),
        ]);
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(history.events()[2].prev, Some(put("a", 3, 2, 2).now));
        assert_eq!((history.events()[3].prev, history.last_revision(), history.at(5).len()), (None, 5, 2));
    }

    #[test]
    fn a_part_begins_from_what_was_there_and_need_not_be_dense() {
        let base = put("a", 7, 3, 4);
        let mut part = WatchHistory::of_part(9, BTreeMap::from([(base.key.clone(), base.now)]));
        assert_eq!(part.append(put("a", 12, 3, 5)), Vec::<String>::new());
        assert_eq!(part.events()[0].prev, Some(base.now));
        part.reach(20);
        assert_eq!((part.base(), part.last_revision()), (9, 20));
        assert_eq!(part.append(put("b", 11, 11, 1)).len(), 1, "back in time");
        assert_eq!(WatchHistory::of_part(9, BTreeMap::new()).append(put("a", 9, 9, 1)).len(), 1, "before it");
    }

    #[test]
    fn compactions_of_others_excuse_what_lies_below_them() {
        let now = Duration::from_secs(1);
        let mut part = WatchHistory::of_part(9, BTreeMap::new());
        assert!(!part.may_be_compacted(5, now) && !part.may_begin_at(5, now));
        part.compacted_by_others = 5;
        assert!(part.may_be_compacted(5, now) && part.may_begin_at(5, now) && !part.may_begin_at(6, now));
    }

    #[test]
    fn a_history_that_contradicts_itself_is_found() {
        assert_eq!(found(vec![put("a", 3, 3, 1)]), 1, "the first revision is missing");
        assert_eq!(found(vec![put("a", 2, 2, 1), put("b", 4, 4, 1)]), 1, "a gap");
        assert_eq!(found(vec![put("a", 2, 2, 1), put("b", 3, 3, 1), put("c", 2, 2, 1)]), 1, "back in time");
        assert_eq!(found(vec![put("a", 2, 1, 1)]), 1, "created before it was put");
        assert_eq!(found(vec![put("a", 2, 2, 1), put("a", 3, 2, 3)]), 1, "a version left out");
        assert_eq!(found(vec![delete("a", 2)]), 1, "nothing to delete");
        let wrong = Seen { prev: Some(Stored::default()), ..put("a", 2, 2, 1) };
        assert_eq!(found(vec![wrong]), 1, "nothing was there before");
    }

    #[test]
    fn a_state_that_differs_from_the_replay_is_found() {
        let (history, _) = WatchHistory::replay(vec![put("a", 2, 2, 1), put("b", 3, 3, 1), delete("a", 4)]);
        let b = put("b", 3, 3, 1);
        let right = BTreeMap::from([(b.key.clone(), b.now)]);
        assert_eq!(history.compare_state(&right).len(), 0);
        assert_eq!(history.compare_state(&BTreeMap::new()).len(), 1);
        let mut more = right;
        more.insert(Bytes::from_static(b"a"), Stored::default());
        assert_eq!(history.compare_state(&more).len(), 1);
    }

    #[test]
    fn what_the_writers_were_told_is_held_against_the_history() {
        let (history, _) = WatchHistory::replay(vec![put("a", 2, 2, 1)]);
        let found = |write| history.compare_writes(&[write]).len();
        assert_eq!(found(wrote("a", 2, Outcome::Ok(2))), 0);
        assert_eq!(found(wrote("a", 2, Outcome::Unknown("lost".into()))), 0);
        assert_eq!(found(wrote("a", 2, Outcome::Ok(3))), 1, "at another revision");
        assert_eq!(found(wrote("a", 2, Outcome::Failed("no".into()))), 1, "refused, but there");
        assert_eq!(history.compare_writes(&[]).len(), 1, "nobody sent it");
        let lost = [wrote("a", 2, Outcome::Ok(2)), wrote("b", 9, Outcome::Ok(9))];
        assert!(!history.compare_writes(&lost).is_empty(), "acknowledged, but not there");
    }

    #[test]
    fn a_write_that_happened_twice_is_found() {
        let again = Seen {
            now: Stored { value: put("a", 2, 0, 0).now.value, ..put("a", 3, 2, 2).now },
            ..put("a", 3, 2, 2)
        };
        let (history, findings) = WatchHistory::replay(vec![put("a", 2, 2, 1), again]);
        assert!(findings.is_empty());
        assert_eq!(history.compare_writes(&[wrote("a", 2, Outcome::Ok(2))]).len(), 1);
    }
}
