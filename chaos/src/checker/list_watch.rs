//! What an informer of the list-watch door was told is what happened, by the other door's account.
//!
//! Both doors count the same revisions, so the changes that the etcd door tells say exactly which
//! events an informer with a selector is owed after its list: which type, which object, in which
//! order. An informer that was moved to another member is judged as if it had never moved, but that it may
//! be told a revision of several objects again, from its first.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The label that chooses objects, if not all are wanted.
pub type Selector = Option<(String, String)>;

/// One object as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub labels: BTreeMap<String, String>,
    pub uid: String,
    pub print: String,
}

impl Object {
    /// Of an object in JSON, as stored or as shown.
    pub fn of(value: &Value) -> Object {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = value["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect();
        Object { labels, uid: text(&value["metadata"]["uid"]), print: print(value) }
    }

    fn is_chosen(&self, selector: &Selector) -> bool {
        selector.as_ref().is_none_or(|(key, value)| self.labels.get(key) == Some(value))
    }
}

/// All of an object but its revision and what lists may leave out, the same for equal objects.
pub fn print(value: &Value) -> String {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        object.remove("apiVersion");
        object.remove("kind");
    }
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    let mut printed = String::new();
    write_sorted(&value, &mut printed);
    printed
}

fn write_sorted(value: &Value, to: &mut String) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            to.push('{');
            for (name, value) in sorted {
                to.push_str(name);
                to.push(':');
                write_sorted(value, to);
                to.push(',');
            }
            to.push('}');
        }
        Value::Array(items) => {
            to.push('[');
            for item in items {
                write_sorted(item, to);
                to.push(',');
            }
            to.push(']');
        }
        other => to.push_str(&other.to_string()),
    }
}

/// What became of one object at one revision; no object: it was deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub revision: u64,
    pub name: String,
    pub object: Option<Object>,
}

/// All changes of one resource, in order.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    changes: Vec<Change>,
}

/// The types of events about objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Added,
    Modified,
    Deleted,
}

/// An event about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: Type,
    pub name: String,
    pub rv: u64,
    pub print: String,
}

/// What an informer wrote down, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A whole list, or all initial events up to their bookmark: each object's own revision and print.
    Listed {
        rv: u64,
        objects: BTreeMap<String, (u64, String)>,
    },
    Told(Told),
    Bookmark {
        rv: u64,
    },
    /// It asked for what came after this revision.
    Resumed {
        after: u64,
    },
    /// It was told that this revision is no longer there.
    Expired {
        after: u64,
    },
}

/// One informer.
#[derive(Clone, Debug)]
pub struct Record {
    pub name: String,
    pub selector: Selector,
    pub notes: Vec<Note>,
}

impl Truth {
    /// From changes in the order of their revisions.
    pub fn new(changes: Vec<Change>) -> Truth {
        debug_assert!(changes.is_sorted_by_key(|change| change.revision));
        Truth { changes }
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// What happened up to a revision.
    pub fn until(&self, revision: u64) -> Truth {
        let changes = self.changes.iter().take_while(|change| change.revision <= revision);
        Truth { changes: changes.cloned().collect() }
    }

    /// The events that a selector is owed after a revision.
    pub fn owed(&self, selector: &Selector, after: u64) -> Vec<Told> {
        let mut objects: BTreeMap<&str, &Object> = BTreeMap::new();
        let mut owed = Vec::new();
        for change in &self.changes {
            let before = match &change.object {
                Some(object) => objects.insert(&change.name, object),
                None => objects.remove(change.name.as_str()),
            };
            let before = before.filter(|object| object.is_chosen(selector));
            let now = change.object.as_ref().filter(|object| object.is_chosen(selector));
            let (kind, shown) = match (before, now) {
                (None, None) => continue,
                (None, Some(now)) => (Type::Added, now),
                (Some(_), Some(now)) => (Type::Modified, now),
                (Some(before), None) => (Type::Deleted, before),
            };
            if after < change.revision {
                let (name, print) = (change.name.clone(), shown.print.clone());
                owed.push(Told { kind, name, rv: change.revision, print });
            }
        }
        owed
    }

    /// What a list at a revision shows.
    pub fn listed(&self, selector: &Selector, at: u64) -> BTreeMap<String, (u64, String)> {
        let mut objects = BTreeMap::new();
        for change in self.changes.iter().take_while(|change| change.revision <= at) {
            match change.object.as_ref().filter(|object| object.is_chosen(selector)) {
                Some(object) => objects.insert(change.name.clone(), (change.revision, object.print.clone())),
                None => objects.remove(&change.name),
            };
        }
        objects
    }
}

/// What is wrong with what one informer was told. `expired_below`: revisions that may be refused.
pub fn check(record: &Record, truth: &Truth, expired_below: u64) -> Vec<String> {
    let owed = truth.owed(&record.selector, 0);
    let mut reading =
        Reading { record, truth, owed: &owed, next: 0, position: None, again: None, state: State::New };
    let mut findings = Vec::new();
    let mut told = BTreeSet::new();
    for note in &record.notes {
        let found = match note {
            Note::Listed { rv, objects } => reading.listed(*rv, objects),
            Note::Told(one) => reading.told(one, &mut told),
            Note::Bookmark { rv } => reading.bookmark(*rv),
            Note::Resumed { after } => reading.resumed(*after),
            Note::Expired { after } => reading.expired(*after, expired_below),
        };
        findings.extend(found.into_iter().map(|found| format!("{}: {found}", record.name)));
    }
    if reading.position.is_none() {
        findings.push(format!("{}: it never had a list", record.name));
    }
    for missing in owed.iter().skip(reading.next) {
        findings.push(format!("{}: lost: {} is missing at the end", record.name, short(missing)));
    }
    findings
}

#[derive(PartialEq, Eq)]
enum State {
    New,
    Level,
    Expired,
}

struct Reading<'a> {
    record: &'a Record,
    truth: &'a Truth,
    owed: &'a [Told],
    /// The first event in `owed` that was not told yet.
    next: usize,
    /// What the informer would resume from.
    position: Option<u64>,
    /// The revision of several objects that may come again now.
    again: Option<u64>,
    state: State,
}

impl Reading<'_> {
    fn listed(&mut self, rv: u64, objects: &BTreeMap<String, (u64, String)>) -> Vec<String> {
        let mut findings = Vec::new();
        if self.state == State::Level {
            findings.push(format!("relist without 410, at {rv}"));
        }
        if self.position.is_some_and(|position| rv < position) {
            findings.push(format!("a list at {rv} after {:?} was known", self.position));
        }
        let expected = self.truth.listed(&self.record.selector, rv);
        for (name, (at, print)) in &expected {
            match objects.get(name) {
                None => findings.push(format!("lost: the list at {rv} lacks {name} of {at}")),
                Some((shown, _)) if shown != at => {
                    findings.push(format!("wrong rv: the list at {rv} has {name} at {shown}, not {at}"));
                }
                Some((_, shown)) if shown != print => {
                    findings
                        .push(format!("wrong object: the list at {rv} has {name} as {shown}, not {print}"));
                }
                Some(_) => {}
            }
        }
        let extra = objects.keys().filter(|name| !expected.contains_key(*name));
        findings.extend(extra.map(|name| format!("the list at {rv} has {name}, which is not there")));
        self.next = self.owed.partition_point(|owed| owed.rv <= rv);
        self.position = Some(rv);
        self.state = State::Level;
        self.again = self.of_several(rv);
        findings
    }

    /// The revision, if several objects are told of with it.
    fn of_several(&self, rv: u64) -> Option<u64> {
        let first = self.owed.partition_point(|owed| owed.rv < rv);
        self.owed.get(first + 1).filter(|second| second.rv == rv).map(|second| second.rv)
    }

    fn told(&mut self, told: &Told, seen: &mut BTreeSet<(u64, String)>) -> Vec<String> {
        let mut findings = Vec::new();
        let again = !seen.insert((told.rv, told.name.clone()));
        let first = self.owed.partition_point(|owed| owed.rv < told.rv);
        let of_rv = self.owed[first..].iter().take_while(|owed| owed.rv == told.rv);
        let Some(place) = of_rv.zip(first..).find(|(owed, _)| owed.name == told.name).map(|(_, at)| at)
        else {
            return vec![format!("wrong rv: {} is nothing that happened to it", short(told))];
        };
        let owed = &self.owed[place];
        if owed.kind != told.kind {
            findings.push(format!("wrong type: {} is {:?}", short(told), owed.kind));
        }
        if owed.print != told.print {
            findings.push(format!("wrong object: {} is {}, not {}", short(told), told.print, owed.print));
        }
        let may_repeat = self.again.take() == Some(told.rv);
        if may_repeat && place == first && place < self.next {
            self.next = place + 1;
            return findings;
        }
        if place < self.next {
            let what = if again { "repeated" } else { "reordered" };
            findings.push(format!("{what}: {} comes after {:?}", short(told), self.position));
            return findings;
        }
        for missing in &self.owed[self.next..place] {
            findings.push(format!("lost: {} is missing before {}", short(missing), short(told)));
        }
        self.next = place + 1;
        self.position = Some(told.rv);
        findings
    }

    fn bookmark(&mut self, rv: u64) -> Vec<String> {
        let mut findings = Vec::new();
        let missing: Vec<&Told> = self.owed[self.next..].iter().take_while(|owed| owed.rv <= rv).collect();
        if let Some(first) = missing.first() {
            findings.push(format!("bookmark {rv} is ahead of what was told: {} is missing", short(first)));
        }
        if self.position.is_none_or(|position| rv < position) {
            findings.push(format!("bookmark {rv} goes back from {:?}", self.position));
        }
        self.position = self.position.max(Some(rv));
        findings
    }

    fn resumed(&mut self, after: u64) -> Vec<String> {
        self.again = self.of_several(after);
        if self.position == Some(after) {
            return Vec::new();
        }
        vec![format!("the informer resumed after {after}, though it was at {:?}", self.position)]
    }

    fn expired(&mut self, after: u64, expired_below: u64) -> Vec<String> {
        self.state = State::Expired;
        if after < expired_below {
            return Vec::new();
        }
        vec![format!("expired: {after} is refused, though it is within the window")]
    }
}

fn short(told: &Told) -> String {
    format!("{:?} {} at {}", told.kind, told.name, told.rv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: u64, color: &str) -> Object {
        Object::of(&json!({
            "kind": "ConfigMap", "metadata": {"uid": "u", "labels": {"color": color}}, "data": {"v": value},
        }))
    }

    fn change(revision: u64, name: &str, object: Option<Object>) -> Change {
        Change { revision, name: name.to_owned(), object }
    }

    /// a: red, red again, blue, red, gone; b: blue.
    fn truth() -> Truth {
        Truth::new(vec![
            change(2, "a", Some(object(1, "red"))),
            change(3, "b", Some(object(2, "blue"))),
            change(4, "a", Some(object(3, "red"))),
            change(5, "a", Some(object(4, "blue"))),
            change(7, "a", Some(object(5, "red"))),
            change(8, "a", None),
        ])
    }

    fn red() -> Selector {
        Some(("color".to_owned(), "red".to_owned()))
    }

    fn told(kind: Type, rv: u64, value: u64, color: &str) -> Note {
        Note::Told(Told { kind, name: "a".to_owned(), rv, print: object(value, color).print })
    }

    /// What an informer of red objects is told, correctly.
    fn good() -> Vec<Note> {
        let objects = BTreeMap::from([("a".to_owned(), (2, object(1, "red").print))]);
        vec![
            Note::Listed { rv: 3, objects },
            told(Type::Modified, 4, 3, "red"),
            Note::Resumed { after: 4 },
            told(Type::Deleted, 5, 3, "red"),
            Note::Bookmark { rv: 6 },
            Note::Resumed { after: 6 },
            told(Type::Added, 7, 5, "red"),
            told(Type::Deleted, 8, 5, "red"),
        ]
    }

    fn findings(notes: Vec<Note>) -> Vec<String> {
        check(&Record { name: "i".to_owned(), selector: red(), notes }, &truth(), 0)
    }

    fn only(notes: Vec<Note>, what: &str) {
        let found = findings(notes);
        assert!(!found.is_empty() && found.iter().any(|found| found.contains(what)), "{what}: {found:?}");
    }

    #[test]
    fn a_good_record_has_no_findings() {
        assert_eq!(findings(good()), Vec::<String>::new());
        let all = Record { name: "i".to_owned(), selector: None, notes: vec![] };
        assert_eq!(truth().owed(&all.selector, 4).len(), 3);
    }

    #[test]
    fn an_event_that_is_lost_is_found_in_the_middle_and_at_the_end() {
        let mut notes = good();
        notes.remove(1);
        only(notes, "lost");
        let mut notes = good();
        notes.pop();
        only(notes, "lost");
        only(vec![], "never had a list");
    }

    #[test]
    fn repeated_and_reordered_events_are_told_apart() {
        let mut notes = good();
        notes.insert(2, notes[1].clone());
        only(notes, "repeated");
        let mut notes = good();
        notes.swap(6, 7);
        only(notes, "reordered");
    }

    #[test]
    fn a_revision_of_several_objects_may_come_again_after_a_resume_and_only_whole() {
        let truth = Truth::new(vec![
            change(2, "a", Some(object(1, "red"))),
            change(3, "a", Some(object(2, "red"))),
            change(3, "b", Some(object(3, "red"))),
            change(3, "c", Some(object(4, "red"))),
            change(4, "a", None),
        ]);
        let told: Vec<Note> = truth.owed(&None, 0).into_iter().map(Note::Told).collect();
        let list = Note::Listed { rv: 1, objects: BTreeMap::new() };
        let resumed = |after| Note::Resumed { after };
        let found = |parts: &[&[Note]]| {
            let notes = [&[list.clone()][..], &parts.concat()].concat();
            check(&Record { name: "i".to_owned(), selector: None, notes }, &truth, 0)
        };
        let none = Vec::<String>::new();
        assert_eq!(found(&[&told[..2], &[resumed(3)], &told[1..]]), none);
        assert_eq!(found(&[&told[..4], &[resumed(3)], &told[1..]]), none);
        assert_eq!(found(&[&told[..4], &[resumed(3)], &told[4..]]), none);
        assert!(found(&[&told[..4], &told[1..]])[0].contains("repeated"), "without a resume");
        assert!(found(&[&told[..4], &[resumed(3)], &told[2..]])[0].contains("repeated"), "half of it");
        assert!(found(&[&told[..2], &[resumed(3)], &told[4..]])[0].contains("lost"));
        assert!(found(&[&told[..4], &[resumed(3)], &told[1..2], &told[4..]])[0].contains("lost"));
        assert!(found(&[&told[..1], &[resumed(2)], &told[..]])[0].contains("repeated"), "one object");
    }

    #[test]
    fn a_wrong_type_revision_or_object_is_found() {
        let mut notes = good();
        notes[3] = told(Type::Modified, 5, 3, "red");
        only(notes, "wrong type");
        let mut notes = good();
        // The content after the change, where the one before it is due.
        notes[3] = told(Type::Deleted, 5, 4, "blue");
        only(notes, "wrong object");
        let mut notes = good();
        notes[3] = told(Type::Deleted, 6, 3, "red");
        only(notes, "wrong rv");
        let mut notes = good();
        let objects = BTreeMap::from([("a".to_owned(), (3, object(1, "red").print))]);
        notes[0] = Note::Listed { rv: 3, objects };
        only(notes, "wrong rv");
        let mut notes = good();
        notes[0] = Note::Listed { rv: 3, objects: BTreeMap::new() };
        only(notes, "lost: the list");
    }

    #[test]
    fn a_bookmark_promises_that_all_before_it_was_told() {
        let mut notes = good();
        notes.insert(3, Note::Bookmark { rv: 5 });
        only(notes, "ahead of what was told");
        let mut notes = good();
        notes[4] = Note::Bookmark { rv: 4 };
        only(notes, "goes back");
    }

    #[test]
    fn a_relist_needs_a_410_and_a_410_needs_age() {
        let list = Note::Listed { rv: 8, objects: BTreeMap::new() };
        let mut notes = good();
        notes.push(list.clone());
        only(notes, "relist without 410");
        let mut notes = good();
        notes.truncate(2);
        notes.extend([Note::Resumed { after: 4 }, Note::Expired { after: 4 }, list]);
        only(notes.clone(), "within the window");
        let record = Record { name: "i".to_owned(), selector: red(), notes };
        assert_eq!(check(&record, &truth(), 5), Vec::<String>::new());
    }

    #[test]
    fn a_resume_from_elsewhere_is_the_informers_own_fault() {
        let mut notes = good();
        notes[2] = Note::Resumed { after: 3 };
        only(notes, "resumed after 3");
    }
}
