//! Who leads, followed revision by revision: the line of an election as it is known here.
//!
//! Always true: [`Race::follow`] answers with a leader exactly when the leader or its value is another
//! than the one answered last.

use crate::{Event, EventKind, KeyValue, Revision};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};

#[derive(Debug, Default)]
pub(super) struct Race {
    /// In the order of the line. Two keys of one revision are ordered by name, as servers do.
    line: BTreeMap<(Revision, Bytes), KeyValue>,
    created: HashMap<Bytes, Revision>,
    /// The write that was told last.
    told: Option<(Bytes, Revision)>,
}

impl Race {
    /// The line was listed anew.
    pub(super) fn restart(&mut self, listed: Vec<KeyValue>) -> Option<KeyValue> {
        self.line.clear();
        self.created.clear();
        listed.into_iter().for_each(|kv| self.put(kv));
        self.news()
    }

    /// One revision changed the line.
    pub(super) fn follow(&mut self, events: &[Event]) -> Option<KeyValue> {
        for event in events {
            match &event.kind {
                EventKind::Put(kv) => self.put(kv.clone()),
                EventKind::Delete { key, .. } => self.delete(key),
            }
        }
        self.news()
    }

    fn put(&mut self, kv: KeyValue) {
        self.delete(&kv.key);
        self.created.insert(kv.key.clone(), kv.created);
        self.line.insert((kv.created, kv.key.clone()), kv);
    }

    fn delete(&mut self, key: &Bytes) {
        if let Some(created) = self.created.remove(key) {
            self.line.remove(&(created, key.clone()));
        }
    }

    fn news(&mut self) -> Option<KeyValue> {
        let (_, leader) = self.line.first_key_value()?;
        let write = (leader.key.clone(), leader.modified);
        if self.told.as_ref() == Some(&write) {
            return None;
        }
        self.told = Some(write);
        Some(leader.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &'static str, created: i64, modified: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: format!("{key}@{modified}").into(),
            created: Revision::new(created),
            modified: Revision::new(modified),
            version: 1,
            lease: None,
        }
    }

    fn put(key: &'static str, created: i64, modified: i64) -> Event {
        Event { kind: EventKind::Put(kv(key, created, modified)), previous: None }
    }

    fn delete(key: &'static str, modified: i64) -> Event {
        let kind = EventKind::Delete { key: key.into(), modified: Revision::new(modified) };
        Event { kind, previous: None }
    }

    fn told(news: Option<KeyValue>) -> Option<String> {
        news.map(|kv| String::from_utf8_lossy(&kv.value).into_owned())
    }

    #[test]
    fn every_change_of_leader_or_value_is_told_once_and_in_order() {
        let mut race = Race::default();
        assert_eq!(told(race.restart(vec![])), None);
        let steps: [(Vec<Event>, Option<&str>); 9] = [
            (vec![put("a", 2, 2)], Some("a@2")),
            (vec![put("b", 3, 3)], None),
            (vec![put("a", 2, 4)], Some("a@4")),
            (vec![put("b", 3, 5)], None),
            (vec![delete("a", 6)], Some("b@5")),
            (vec![put("b", 3, 7)], Some("b@7")),
            // Deleted and created by one transaction is a new place in line.
            (vec![put("c", 8, 8)], None),
            (vec![delete("b", 9), put("d", 9, 9)], Some("c@8")),
            (vec![delete("c", 10), delete("d", 10)], None),
        ];
        for (events, expected) in steps {
            assert_eq!(told(race.follow(&events)).as_deref(), expected, "{events:?}");
        }
        // The same session leads again, under the same key.
        assert_eq!(told(race.follow(&[put("c", 11, 11)])).as_deref(), Some("c@11"));
    }

    #[test]
    fn a_new_list_tells_only_what_is_new() {
        let mut race = Race::default();
        assert_eq!(told(race.restart(vec![kv("b", 3, 3), kv("a", 2, 4)])).as_deref(), Some("a@4"));
        assert_eq!(told(race.restart(vec![kv("b", 3, 3), kv("a", 2, 4)])), None);
        assert_eq!(told(race.restart(vec![kv("b", 3, 9)])).as_deref(), Some("b@9"));
        assert_eq!(told(race.restart(vec![])), None);
        assert_eq!(told(race.follow(&[delete("unknown", 12)])), None);
    }
}
