//! A store so naive that it can be checked by eye: it keeps the whole content of every revision.

use bytes::Bytes;
use meerkat_state::{KeyTime, KeyTimes, RevisionAtTime};
use meerkat_types::{
    Command, Compare, CompareTarget, Deleted, Event, EventKind, GrantLease, HistoryQuery, KeyRange, KeyValue,
    KvPage, Lease, LeaseGranted, LeaseId, LogIndex, LogPosition, NewLease, NewValue, Outcome, Put, PutDone,
    RangeAnswer, RangeQuery, Refusal, Revision, SortOrder, SortTarget, Txn, TxnDone, TxnOp, TxnOpDone,
};
use std::collections::BTreeMap;

pub type Content = BTreeMap<Bytes, KeyValue>;

pub struct Model {
    /// What the store held at each revision from 1 on, compacted or not.
    pub contents: Vec<Content>,
    /// The events of each revision, beside the contents.
    pub events: Vec<Vec<Event>>,
    /// When each revision was made, beside the contents.
    pub stamps_ms: Vec<u64>,
    pub compacted: i64,
    pub leases: BTreeMap<LeaseId, Lease>,
    /// The latest stamp of any command.
    now_ms: u64,
}

impl Model {
    pub fn new() -> Model {
        // Revisions count from 1: slot 0 stands for no revision.
        Model {
            contents: vec![Content::new(), Content::new()],
            events: vec![Vec::new(), Vec::new()],
            stamps_ms: vec![0, 0],
            compacted: -1,
            leases: BTreeMap::new(),
            now_ms: 0,
        }
    }

    pub fn current(&self) -> i64 {
        self.contents.len() as i64 - 1
    }

    fn now(&self) -> &Content {
        &self.contents[self.contents.len() - 1]
    }

    /// As [`Model::apply`], of a proposal whose proposer's clock showed `stamp_ms`, at this
    /// place of the log.
    pub fn apply_at(&mut self, stamp_ms: u64, at: LogPosition, command: &Command) -> Outcome {
        self.now_ms = self.now_ms.max(stamp_ms);
        match command {
            Command::ExpireLease { term: decided, .. } | Command::NoteLeases { term: decided, .. }
                if *decided != at.term =>
            {
                Outcome::Refused(Refusal::OtherTerm)
            }
            Command::ExpireLease { lease, granted, .. }
                if self.leases.get(lease).is_some_and(|lease| lease.granted != *granted) =>
            {
                Outcome::Refused(Refusal::LeaseNotFound)
            }
            Command::ExpireLease { lease, .. } | Command::RevokeLease(lease) => self.end_lease(*lease),
            Command::GrantLease(grant) => self.grant(*grant, at.index),
            Command::NoteLeases { notes, .. } => {
                let noted = notes.iter().filter(|note| match self.leases.get_mut(&note.id) {
                    Some(lease) if lease.granted == note.granted => {
                        lease.remaining = note.remaining;
                        true
                    }
                    Some(_) | None => false,
                });
                Outcome::LeasesNoted(noted.count() as u64)
            }
            other => self.apply(other),
        }
    }

    fn grant(&mut self, grant: GrantLease, index: LogIndex) -> Outcome {
        if self.leases.contains_key(&grant.id) {
            return Outcome::Refused(Refusal::LeaseExists);
        }
        let lease = Lease { id: grant.id, granted: index, ttl: grant.ttl, remaining: None };
        self.leases.insert(grant.id, lease);
        let revision = Revision::new(self.current());
        Outcome::LeaseGranted(LeaseGranted { revision, ttl: grant.ttl })
    }

    fn end_lease(&mut self, lease: LeaseId) -> Outcome {
        if !self.leases.contains_key(&lease) {
            return Outcome::Refused(Refusal::LeaseNotFound);
        }
        let keys = self.lease_keys(lease);
        self.leases.remove(&lease);
        let delete = |key: Bytes| {
            let keys = KeyRange::One(meerkat_types::Key::new(key).expect("a key"));
            TxnOp::DeleteRange(meerkat_types::DeleteRange { keys, want_previous: false })
        };
        let success = keys.into_iter().map(delete).collect();
        let done = self.txn(&Txn { compares: Vec::new(), success, failure: Vec::new() }).expect("no refusal");
        Outcome::LeaseRevoked(done.revision)
    }

    pub fn lease_keys(&self, lease: LeaseId) -> Vec<Bytes> {
        self.now().values().filter(|kv| kv.lease == Some(lease)).map(|kv| kv.key.clone()).collect()
    }

    pub fn apply(&mut self, command: &Command) -> Outcome {
        if let Command::Compact(compact) = command {
            return self.compact(compact.revision);
        }
        let as_txn = |op| Txn { compares: Vec::new(), success: vec![op], failure: Vec::new() };
        let done = match command {
            // Outside a transaction an unknown lease is named before a missing key.
            Command::Put(Put { lease: NewLease::Set(Some(lease)), .. })
                if !self.leases.contains_key(lease) =>
            {
                Err(Refusal::LeaseNotFound)
            }
            Command::Put(put) => self.txn(&as_txn(TxnOp::Put(put.clone()))),
            Command::DeleteRange(delete) => self.txn(&as_txn(TxnOp::DeleteRange(delete.clone()))),
            Command::Txn(txn) => return self.txn(txn).map_or_else(Outcome::Refused, Outcome::Txn),
            other => unreachable!("{other:?}"),
        };
        match done.map(|mut done| done.ops.remove(0)) {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(TxnOpDone::Put(done)) => Outcome::Put(done),
            Ok(TxnOpDone::DeleteRange(done)) => Outcome::DeleteRange(done),
            Ok(other) => unreachable!("{other:?}"),
        }
    }

    fn compact(&mut self, asked: Revision) -> Outcome {
        let (oldest, current) = (Revision::new(self.compacted), Revision::new(self.current()));
        if asked <= oldest {
            return Outcome::Refused(Refusal::Compacted { asked, oldest });
        }
        if current < asked {
            return Outcome::Refused(Refusal::Future { asked, current });
        }
        self.compacted = asked.get();
        Outcome::Compact(current)
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnDone, Refusal> {
        let flat = self.flatten(txn);
        self.check(&flat)?;
        let mut run = Run {
            before: self.now().clone(),
            now: self.now().clone(),
            next: self.current() + 1,
            events: Vec::new(),
        };
        let done = self.run(txn, &mut run);
        if !run.events.is_empty() {
            self.contents.push(run.now);
            self.events.push(run.events);
            self.stamps_ms.push(self.now_ms);
        }
        Ok(done)
    }

    fn taken<'t>(&self, txn: &'t Txn) -> &'t [TxnOp] {
        let holds = txn.compares.iter().all(|compare| holds(self.now(), compare));
        if holds { &txn.success } else { &txn.failure }
    }

    /// All operations that will run, in order.
    fn flatten<'t>(&self, txn: &'t Txn) -> Vec<&'t TxnOp> {
        let mut flat = Vec::new();
        for op in self.taken(txn) {
            match op {
                TxnOp::Txn(inner) => flat.extend(self.flatten(inner)),
                other => flat.push(other),
            }
        }
        flat
    }

    fn check(&self, flat: &[&TxnOp]) -> Result<(), Refusal> {
        let mut alive: Vec<Bytes> = self.now().keys().cloned().collect();
        for op in flat {
            match op {
                TxnOp::Range(query) => self.check_txn_range(query)?,
                TxnOp::Put(put) => {
                    let keeps = put.value == NewValue::KeepCurrent || put.lease == NewLease::KeepCurrent;
                    let key = put.key.bytes();
                    if keeps && !(self.now().contains_key(key) && alive.contains(key)) {
                        return Err(Refusal::KeyNotFound);
                    }
                    if let NewLease::Set(Some(lease)) = put.lease
                        && !self.leases.contains_key(&lease)
                    {
                        return Err(Refusal::LeaseNotFound);
                    }
                    alive.push(key.clone());
                }
                TxnOp::DeleteRange(delete) => alive.retain(|key| !delete.keys.contains(key)),
                TxnOp::Txn(_) => unreachable!("flattened"),
            }
        }
        Ok(())
    }

    fn check_txn_range(&self, query: &RangeQuery) -> Result<(), Refusal> {
        match query.at.map(Revision::get) {
            None | Some(0) => Ok(()),
            Some(at) if self.current() < at => {
                Err(Refusal::Future { asked: Revision::new(at), current: Revision::new(self.current()) })
            }
            Some(at) if at < self.compacted => {
                Err(Refusal::Compacted { asked: Revision::new(at), oldest: Revision::new(self.compacted) })
            }
            Some(_) => Ok(()),
        }
    }

    fn run(&self, txn: &Txn, run: &mut Run) -> TxnDone {
        let ops = self.taken(txn).iter().map(|op| match op {
            TxnOp::Range(query) => {
                let content = match query.at.map(Revision::get) {
                    Some(at) if 0 < at => &self.contents[at as usize],
                    _ => &run.now,
                };
                TxnOpDone::Range(range(content, query, run.revision()))
            }
            TxnOp::Put(put) => TxnOpDone::Put(run.put(put)),
            TxnOp::DeleteRange(delete) => {
                let doomed: Vec<_> =
                    run.now.values().filter(|kv| delete.keys.contains(&kv.key)).cloned().collect();
                doomed.iter().for_each(|kv| run.delete(&kv.key));
                let deleted = doomed.len() as u64;
                let previous = if delete.want_previous { doomed } else { Vec::new() };
                TxnOpDone::DeleteRange(Deleted { revision: run.revision(), deleted, previous })
            }
            TxnOp::Txn(inner) => TxnOpDone::Txn(self.run(inner, run)),
        });
        let ops = ops.collect();
        let succeeded = txn.compares.iter().all(|compare| holds(self.now(), compare));
        TxnDone { revision: run.revision(), succeeded, ops }
    }

    /// A range outside a transaction.
    pub fn range(&self, query: &RangeQuery) -> Result<RangeAnswer, Refusal> {
        let current = Revision::new(self.current());
        let at = query.at.filter(|at| 0 < at.get()).unwrap_or(current);
        if current < at {
            return Err(Refusal::Future { asked: at, current });
        }
        if at.get() < self.compacted {
            return Err(Refusal::Compacted { asked: at, oldest: Revision::new(self.compacted) });
        }
        Ok(range(&self.contents[at.get() as usize], query, current))
    }
}

/// What a read of history gives: events by revision, and where the next read goes on.
pub struct ModelHistory {
    pub batches: Vec<(Revision, Vec<Event>)>,
    pub next: Revision,
}

impl Model {
    pub fn history(&self, query: &HistoryQuery) -> ModelHistory {
        let (mut walked, mut weight, mut batches) = (0, 0, Vec::new());
        let last = query.last.get().min(self.current());
        let mut at = query.first.get();
        while at <= last {
            let events = &self.events[at as usize];
            walked += events.len();
            let mut given = Vec::new();
            for (sub, event) in events.iter().enumerate() {
                if query.newest_only && self.changes_after(key_of(event), at, sub) {
                    continue;
                }
                let mut event = event.clone();
                if !query.with_previous || at <= self.compacted {
                    event.previous = None;
                }
                let values = [event.previous.as_ref(), put_of(&event)];
                let values = values.iter().flatten().map(|kv| kv.value.len()).sum::<usize>();
                weight += key_of(&event).len() * (1 + usize::from(event.previous.is_some())) + values;
                given.push(event);
            }
            if !given.is_empty() {
                batches.push((Revision::new(at), given));
            }
            at += 1;
            // A revision without events (the empty store's) ends no read.
            if !events.is_empty() && (query.events_max <= walked || query.bytes_max <= weight) {
                break;
            }
        }
        ModelHistory { batches, next: Revision::new(at) }
    }

    pub fn revision_at_time(&self, unix_ms: u64) -> RevisionAtTime {
        let oldest = self.compacted.max(2);
        let found = (oldest..=self.current()).find(|at| unix_ms <= self.stamps_ms[*at as usize]);
        RevisionAtTime {
            revision: Revision::new(found.unwrap_or(self.current() + 1)),
            stamp_ms: found.map(|at| self.stamps_ms[at as usize]),
            before_history: found == Some(oldest) && 2 < oldest,
        }
    }

    pub fn key_times(&self, keys: &KeyRange, limit: Option<usize>) -> KeyTimes {
        let inside = self.now().values().filter(|kv| keys.contains(&kv.key));
        let mut times: Vec<_> = inside
            .map(|kv| KeyTime {
                key: kv.key.clone(),
                created: kv.created,
                modified: kv.modified,
                created_ms: self.stamps_ms[kv.created.get() as usize],
                modified_ms: self.stamps_ms[kv.modified.get() as usize],
            })
            .collect();
        let more = limit.is_some_and(|limit| limit < times.len());
        times.truncate(limit.unwrap_or(usize::MAX));
        KeyTimes { times, more, revision: Revision::new(self.current()) }
    }

    fn changes_after(&self, key: &Bytes, revision: i64, sub: usize) -> bool {
        let same = self.events[revision as usize].iter().skip(sub + 1);
        let later = self.events.iter().skip(revision as usize + 1).flatten();
        same.chain(later).any(|event| key_of(event) == key)
    }
}

fn put_of(event: &Event) -> Option<&KeyValue> {
    match &event.kind {
        EventKind::Put(kv) => Some(kv),
        EventKind::Delete { .. } => None,
    }
}

fn key_of(event: &Event) -> &Bytes {
    match &event.kind {
        EventKind::Put(kv) => &kv.key,
        EventKind::Delete { key, .. } => key,
    }
}

/// A transaction under way.
struct Run {
    before: Content,
    now: Content,
    next: i64,
    events: Vec<Event>,
}

impl Run {
    fn revision(&self) -> Revision {
        Revision::new(if self.events.is_empty() { self.next - 1 } else { self.next })
    }

    fn put(&mut self, put: &Put) -> PutDone {
        let key = put.key.bytes().clone();
        let old = self.now.get(&key).cloned();
        let kept = || old.clone().expect("checked");
        let kv = KeyValue {
            key: key.clone(),
            value: match &put.value {
                NewValue::Set(value) => value.clone(),
                NewValue::KeepCurrent => kept().value,
            },
            created: old.as_ref().map_or(Revision::new(self.next), |old| old.created),
            modified: Revision::new(self.next),
            version: old.as_ref().map_or(0, |old| old.version) + 1,
            lease: match put.lease {
                NewLease::Set(lease) => lease,
                NewLease::KeepCurrent => kept().lease,
            },
        };
        let previous = self.before.get(&key).cloned();
        self.events.push(Event { kind: EventKind::Put(kv.clone()), previous });
        self.now.insert(key, kv);
        PutDone { revision: self.revision(), previous: old.filter(|_| put.want_previous) }
    }

    fn delete(&mut self, key: &Bytes) {
        self.now.remove(key);
        let kind = EventKind::Delete { key: key.clone(), modified: Revision::new(self.next) };
        self.events.push(Event { kind, previous: self.before.get(key).cloned() });
    }
}

fn holds(content: &Content, compare: &Compare) -> bool {
    let agrees = |version: i64, created: i64, modified: i64, value: &[u8], lease: i64| {
        let ordering = match &compare.target {
            CompareTarget::Version(operand) => version.cmp(operand),
            CompareTarget::Created(operand) => created.cmp(&operand.get()),
            CompareTarget::Modified(operand) => modified.cmp(&operand.get()),
            CompareTarget::Value(operand) => value.cmp(operand),
            CompareTarget::Lease(operand) => lease.cmp(&operand.map_or(0, LeaseId::get)),
        };
        compare.operator.holds(ordering)
    };
    let mut inside = content.values().filter(|kv| compare.keys.contains(&kv.key)).peekable();
    if inside.peek().is_none() {
        return !matches!(compare.target, CompareTarget::Value(_)) && agrees(0, 0, 0, b"", 0);
    }
    inside.all(|kv| {
        let lease = kv.lease.map_or(0, LeaseId::get);
        agrees(kv.version, kv.created.get(), kv.modified.get(), &kv.value, lease)
    })
}

fn range(content: &Content, query: &RangeQuery, revision: Revision) -> RangeAnswer {
    let mut kvs: Vec<KeyValue> =
        content.values().filter(|kv| contains(&query.keys, &kv.key)).cloned().collect();
    let count = kvs.len() as u64;
    if query.count_only {
        return RangeAnswer { kvs: KvPage::empty(), more: false, count, revision };
    }
    let limit = query.limit.filter(|limit| 0 < *limit);
    let sort = query.sort;
    if let (SortOrder::None, true, Some(limit)) = (sort.order, query.bounds.is_unbounded(), limit) {
        kvs.truncate(limit + 1);
    }
    kvs.retain(|kv| query.bounds.admits(kv.created, kv.modified));
    kvs.sort_by(|a, b| {
        let ascending = match sort.target {
            SortTarget::Key => a.key.cmp(&b.key),
            SortTarget::Version => a.version.cmp(&b.version),
            SortTarget::Created => a.created.cmp(&b.created),
            SortTarget::Modified => a.modified.cmp(&b.modified),
            SortTarget::Value => a.value.cmp(&b.value),
        };
        if sort.order == SortOrder::Descend { ascending.reverse() } else { ascending }
    });
    let more = limit.is_some_and(|limit| limit < kvs.len());
    kvs.truncate(limit.unwrap_or(usize::MAX));
    if query.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    RangeAnswer { kvs: KvPage::Decoded(kvs), more, count, revision }
}

fn contains(keys: &KeyRange, key: &[u8]) -> bool {
    keys.contains(key)
}
