//! A state saved as a backup file and made from it again: it answers as the one that was saved.

use crate::property::{same_answers, whole_range};
use crate::rig::Rig;
use bytes::Bytes;
use meerkat_backup::snapshot::{Change, Head, SnapshotFile, write};
use meerkat_state::{AuthBook, Import, ImportEnd, ImportedEvent, ImportedVersion};
use meerkat_types::{
    Alarm, AlarmBy, AlarmKind, AuthRevision, Event, EventKind, HistoryQuery, Lease, LeaseId, LogIndex,
    LogPosition, MemberId, Password, Revision, Term,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

const POSITION: LogPosition = LogPosition { term: Term(1), node: MemberId(9), index: LogIndex(1) };

/// Everything that a backup of the state has, and what it says is compacted.
fn save(rig: &Rig) -> (SnapshotFile<File>, Vec<Lease>) {
    let pinned = rig.reader.pin();
    let compacted = pinned.compacted_revision().map(Revision::get).filter(|compacted| 0 < *compacted);
    let head = Head { compacted, ..Head::default() };
    let file = tempfile::tempfile().expect("a file");
    let (file, bytes) = write::<io::Error>(file, &head, |keys| {
        pinned
            .each_event(|event| {
                match event.key_value {
                    Some(kv) => keys.put(event.revision.get(), event.sub, kv).expect("written"),
                    None => keys.delete(event.revision.get(), event.sub, event.key).expect("written"),
                }
                ControlFlow::Continue(())
            })
            .expect("events");
        Ok(())
    })
    .expect("a backup");
    let leases =
        pinned.leases().expect("leases").into_iter().map(|lease| Lease { granted: LogIndex(0), ..lease });
    (SnapshotFile::from_source(Path::new("backup"), file, bytes).expect("a backup"), leases.collect())
}

fn restore(file: &SnapshotFile<File>, leases: &[Lease], revision: i64, compacted: i64) -> Rig {
    Rig::prepared(|db| {
        let mut import = Import::begin(db.clone()).expect("empty");
        for lease in leases {
            import.lease(*lease).expect("a lease");
        }
        let mut events = file.events().expect("events");
        while let Some(event) = events.next_event().expect("an event") {
            let (key, version) = match event.change {
                Change::Put(kv) => {
                    let (created, lease) = (Revision::new(kv.created), LeaseId::from_wire(kv.lease));
                    let version = ImportedVersion { created, version: kv.version, value: kv.value, lease };
                    (kv.key, Some(version))
                }
                Change::Delete { key } => (key, None),
                Change::Nothing => panic!("every event is about a key"),
            };
            let sub = u32::try_from(event.sub).expect("a small number");
            let revision = Revision::new(event.revision);
            import.event(&ImportedEvent { revision, sub, key, version }).expect("an event in order");
        }
        import
            .finish(&end(Revision::new(revision), Revision::compacted_from_wire(compacted)))
            .expect("a state");
        assert!(Import::begin(db).is_err(), "a state is not written over");
    })
}

fn end(revision: Revision, compacted: Option<Revision>) -> ImportEnd {
    ImportEnd { revision, compacted, position: POSITION, membership: Bytes::from_static(b"members") }
}

fn events(rig: &Rig, first: i64, last: i64) -> Vec<(Revision, Vec<Event>)> {
    let query = HistoryQuery {
        first: Revision::new(first),
        last: Revision::new(last),
        events_max: usize::MAX,
        bytes_max: usize::MAX,
        with_previous: true,
        newest_only: false,
    };
    let history = rig.reader.pin().history(&query).expect("history");
    history.batches.into_iter().map(|batch| (batch.revision, batch.events.to_vec())).collect()
}

/// Of the compacted revision itself a backup has what it left, as etcd does: of two changes of one key,
/// the later; a deletion too, since watchers that begin there are owed it.
fn last_of_each_key(rig: &Rig, compacted: i64) -> BTreeMap<Bytes, EventKind> {
    let at = compacted.max(1);
    let batches = events(rig, at, at);
    let all = batches.into_iter().flat_map(|(_, events)| events);
    all.map(|event| (key_of(&event.kind), event.kind)).collect()
}

fn key_of(kind: &EventKind) -> Bytes {
    match kind {
        EventKind::Put(kv) => kv.key.clone(),
        EventKind::Delete { key, .. } => key.clone(),
    }
}

/// `compacted` and `current` are those of the rig.
pub fn check(rig: &Rig, compacted: i64, current: i64) {
    let (file, leases) = save(rig);
    let restored = restore(&file, &leases, current, compacted);
    for at in compacted.max(1)..=current {
        same_answers(rig, &restored, &whole_range(at));
    }
    assert_eq!(last_of_each_key(rig, compacted), last_of_each_key(&restored, compacted), "at {compacted}");
    if compacted.max(1) < current {
        let first = compacted.max(1) + 1;
        assert!(events(rig, first, current) == events(&restored, first, current), "from {first} on");
    }
    let (saved, found) = (rig.reader.pin(), restored.reader.pin());
    assert_eq!(found.leases().expect("leases"), leases);
    for lease in &leases {
        assert_eq!(found.lease_keys(lease.id).expect("keys"), saved.lease_keys(lease.id).expect("keys"));
    }
    let now = found.revision_at_time(1).expect("times are answered");
    assert_eq!(now.revision.get(), current + 1, "what was restored has no times");
    let again = restore(&file, &leases, current, compacted);
    assert_eq!(again.reader.digest(), restored.reader.digest());
    assert_eq!(again.reader.hash_kv(None).expect("hash"), restored.reader.hash_kv(None).expect("hash"));
    // Removing what is compacted changes nothing, and a backup of the restored state is the same backup.
    restored.compact_fully();
    let (second, _) = save(&restored);
    let same = |file: &SnapshotFile<File>| file.status().expect("a status");
    assert_eq!(same(&second).hash, same(&file).hash);
    check_bumped(rig, &file, &leases, current);
}

fn check_bumped(rig: &Rig, file: &SnapshotFile<File>, leases: &[Lease], current: i64) {
    let high = current + 1_000;
    let bumped = restore(file, leases, high, high);
    bumped.compact_fully();
    let mut saved = crate::answers::decoded(rig.reader.range(&whole_range(current)).expect("live"));
    saved.revision = Revision::new(high);
    let found = bumped.reader.range(&whole_range(high)).expect("live");
    assert_eq!(crate::answers::decoded(found), saved);
    assert!(bumped.reader.range(&whole_range(high - 1)).is_err(), "compacted");
    assert_eq!(bumped.reader.pin().revision_at_time(1).expect("answered").revision.get(), high + 1);
}

/// A state without keys, with these rules and alarms.
fn ruled(book: &AuthBook, alarms: &[Alarm]) -> Rig {
    Rig::prepared(|db| {
        let mut import = Import::begin(db).expect("empty");
        import.auth(book);
        alarms.iter().for_each(|alarm| import.alarm(*alarm, AlarmBy::Cluster));
        import.finish(&end(Revision::EMPTY_STORE, None)).expect("a state");
    })
}

#[test]
fn users_and_alarms_of_a_backup_are_those_of_the_state_and_in_its_digest() {
    let root = AuthBook::with_root(Password::Hash(Bytes::from_static(b"$2b$04$x")), LogIndex(0));
    let other = AuthBook::with_root(Password::Hash(Bytes::from_static(b"$2b$04$y")), LogIndex(0));
    let open = AuthBook::restored(false, AuthRevision(3), BTreeMap::new(), BTreeMap::new());
    let alarm = Alarm { kind: AlarmKind::Corrupt, member: MemberId(7) };
    let cases: [(&AuthBook, &[Alarm]); 5] =
        [(&AuthBook::default(), &[]), (&root, &[]), (&other, &[]), (&open, &[]), (&root, &[alarm])];
    let mut digests = Vec::new();
    for (book, alarms) in cases {
        let rig = ruled(book, alarms);
        assert_eq!(rig.reader.auth().as_ref(), book);
        assert_eq!(rig.reader.auth_enabled(), book.is_enabled());
        let found: Vec<Alarm> = rig.reader.alarms().into_iter().map(|(alarm, _)| alarm).collect();
        assert_eq!(found, alarms);
        let digest = rig.reader.digest().bytes;
        assert_eq!(ruled(book, alarms).reader.digest().bytes, digest, "every member comes out the same");
        digests.push(digest);
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), cases.len(), "members with other rules are strangers");
}
