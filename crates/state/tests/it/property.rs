//! Random commands: answers, events, reads of every live revision, and agreement of two machines.

use crate::answers::{decoded, decoded_outcome, decoded_txn, key_values};
use crate::generate::Generator;
use crate::model::Model;
use crate::rig::{Log, Rig, Seed, seeds};
use meerkat_state::{LogEntry, Payload, ReadError, ReadStrategy};
use meerkat_types::{
    Command, Consistency, HistoryQuery, KeyRange, KvPage, LeaseId, RangeAnswer, RangeQuery, Refusal,
    Revision, RevisionBounds, Sort, Txn,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const ROUNDS: usize = 120;

pub fn whole_range(at: i64) -> RangeQuery {
    RangeQuery {
        keys: KeyRange::everything(),
        at: Some(Revision::new(at)),
        limit: None,
        sort: Sort::BY_KEY,
        consistency: Consistency::Serializable,
        keys_only: false,
        count_only: false,
        bounds: RevisionBounds::default(),
    }
}

fn whole_history(model: &Model) -> HistoryQuery {
    HistoryQuery {
        first: Revision::new(model.compacted.max(1)),
        last: Revision::new(model.current()),
        events_max: usize::MAX,
        bytes_max: usize::MAX,
        with_previous: true,
        newest_only: false,
    }
}

fn refusal(error: ReadError) -> Refusal {
    match error {
        ReadError::Refused(refusal) => refusal,
        ReadError::State(error) => panic!("{error}"),
    }
}

struct World {
    rng: StdRng,
    model: Model,
    log: Log,
    rig: Rig,
}

impl World {
    fn new(seed: u64) -> World {
        World { rng: StdRng::seed_from_u64(seed), model: Model::new(), log: Log::default(), rig: Rig::new() }
    }

    fn generator(&mut self) -> Generator<'_> {
        let (current, compacted, term) = (self.model.current(), self.model.compacted, self.log.term());
        let granted = self.model.leases.iter().map(|(id, lease)| (*id, lease.granted)).collect();
        Generator { current, compacted, term, granted, rng: &mut self.rng }
    }

    /// A few entries in one batch, each answer and event compared.
    fn apply_some(&mut self) {
        let number = self.rng.random_range(1..8);
        let (mut entries, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..number {
            if self.rng.random_range(0..30) == 0 {
                entries.push(self.log.push(Payload::Blank).clone());
                expected.push((None, None));
                continue;
            }
            let command = self.generator().command();
            let before = self.model.current();
            let entry = self.log.command(command);
            let Payload::Command(proposal) = &entry.payload else { panic!("a command") };
            let outcome = self.model.apply_at(proposal.stamp_ms, entry.position, &proposal.command);
            let events = (before < self.model.current()).then(|| self.model.current());
            entries.push(entry);
            expected.push((Some(outcome), events));
        }
        let applied = self.rig.apply(&entries);
        for (applied, ((outcome, revision), entry)) in
            applied.into_iter().zip(expected.into_iter().zip(&entries))
        {
            assert_eq!(applied.outcome.map(decoded_outcome), outcome, "{entry:?}");
            assert_eq!(applied.events.as_ref().map(|events| events.revision.get()), revision, "{entry:?}");
            if let Some(events) = applied.events {
                assert_eq!(
                    events.events.as_ref(),
                    self.model.events[events.revision.get() as usize],
                    "{entry:?}"
                );
            }
        }
    }

    fn read_some(&mut self) {
        for _ in 0..6 {
            let query = self.generator().query();
            let expected = self.model.range(&query);
            for way in [ReadStrategy::Cheapest, ReadStrategy::Undo, ReadStrategy::Walk] {
                let answer = self.rig.reader.pin().range_by(&query, way).map(decoded).map_err(refusal);
                assert_eq!(answer, expected, "{way:?} {query:?}");
            }
        }
        let txn = self.generator().read_only_txn();
        let answer = self.rig.reader.read_txn(&txn).map(decoded_txn).map_err(refusal);
        assert_eq!(answer, self.model_read(&txn), "{txn:?}");
        self.read_pages();
        self.read_times();
        self.read_leases();
    }

    /// Every lease, and the keys of each, also of one that is not there.
    fn read_leases(&mut self) {
        let pinned = self.rig.reader.pin();
        let mut leases = pinned.leases().expect("leases");
        leases.sort_by_key(|lease| lease.id);
        assert_eq!(leases, self.model.leases.values().copied().collect::<Vec<_>>());
        for id in [7, 8, -9, 10].map(|id| LeaseId::from_wire(id).expect("not zero")) {
            assert_eq!(pinned.lease(id).expect("a lease"), self.model.leases.get(&id).copied());
            assert_eq!(pinned.lease_keys(id).expect("keys"), self.model.lease_keys(id), "{id}");
        }
    }

    /// Around the stamp of some revision, gone or not, and the times of some keys.
    fn read_times(&mut self) {
        let near = self.rng.random_range(1..self.model.stamps_ms.len());
        let unix_ms = (self.model.stamps_ms[near] + self.rng.random_range(0..3)).saturating_sub(1);
        let pinned = self.rig.reader.pin();
        for unix_ms in [unix_ms, 0, u64::MAX] {
            let found = pinned.revision_at_time(unix_ms).expect("a revision");
            assert_eq!(found, self.model.revision_at_time(unix_ms), "{unix_ms}");
            let earlier = &self.model.stamps_ms[..found.revision.get() as usize];
            let missed = earlier.iter().skip(2).any(|stamp| unix_ms <= *stamp);
            assert!(found.before_history || !missed, "{unix_ms}: an earlier revision fits too");
        }
        let keys = self.generator().keys();
        let limit = self.rng.random::<bool>().then(|| self.rng.random_range(0..4));
        let times = pinned.key_times(&keys, limit).expect("times");
        assert_eq!(times, self.model.key_times(&keys, limit), "{keys:?} {limit:?}");
    }

    fn model_read(&mut self, txn: &Txn) -> Result<meerkat_types::TxnDone, Refusal> {
        match self.model.apply(&Command::Txn(txn.clone())) {
            meerkat_types::Outcome::Txn(done) => Ok(done),
            meerkat_types::Outcome::Refused(refusal) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// A long answer in pieces is the same as in one.
    fn read_pages(&mut self) {
        let at = self.rng.random_range(self.model.compacted.max(1)..=self.model.current());
        let query = RangeQuery { keys: self.generator().keys(), ..whole_range(at) };
        let Ok(expected) = self.model.range(&query) else { panic!("{at} is live") };
        let mut pages = self.rig.reader.pin().pages(&query).expect("pages");
        let mut all = Vec::new();
        while let Some(page) = pages.next_page(self.rng.random_range(1..5), 40).expect("page") {
            all.extend(key_values(&page));
        }
        assert!(pages.is_finished());
        assert_eq!(pages.count().expect("count"), expected.count);
        assert_eq!(KvPage::Decoded(all), expected.kvs, "{query:?}");
    }

    fn check_every_live_revision(&mut self) {
        let pinned = self.rig.reader.pin();
        for at in self.model.compacted.max(1)..=self.model.current() {
            let expected = self.model.range(&whole_range(at)).expect("live");
            for way in [ReadStrategy::Undo, ReadStrategy::Walk] {
                let answer = pinned.range_by(&whole_range(at), way).expect("live");
                assert_eq!(decoded(answer), expected, "{way:?} at {at}");
            }
        }
        self.check_history();
    }

    fn check_history(&mut self) {
        for (with_previous, newest_only) in [(true, false), (false, false), (true, true), (false, true)] {
            let (events_max, bytes_max) = (self.rng.random_range(0..9), self.rng.random_range(0..300));
            let all = whole_history(&self.model);
            let query = HistoryQuery { events_max, bytes_max, with_previous, newest_only, ..all };
            self.check_history_as(query);
        }
        let below = Revision::new(self.model.compacted - 1);
        let query = HistoryQuery { first: below, ..whole_history(&self.model) };
        assert!(matches!(
            self.rig.reader.pin().history(&query),
            Err(ReadError::Refused(Refusal::Compacted { .. }))
        ));
    }

    /// Piece by piece gives exactly what the model has, cut where the bounds say.
    fn check_history_as(&self, mut query: HistoryQuery) {
        let (pinned, last) = (self.rig.reader.pin(), query.last);
        while query.first <= last {
            let history = pinned.history(&query).expect("history");
            assert!(query.first < history.next, "history moves on");
            let expected = self.model.history(&query);
            assert_eq!(history.next, expected.next, "{query:?}");
            assert_eq!(history.batches.len(), expected.batches.len(), "{query:?}");
            for (batch, (revision, events)) in history.batches.iter().zip(&expected.batches) {
                assert_eq!(batch.revision, *revision, "{query:?}");
                assert_eq!(batch.events.as_ref(), events, "events of {revision}, {query:?}");
                assert_eq!(batch.stamp_ms, self.model.stamps_ms[revision.get() as usize], "{query:?}");
            }
            query.first = history.next;
        }
    }

    fn disturb(&mut self) {
        match self.rng.random_range(0..12) {
            0..=4 => {
                let step = self.rng.random_range(1..6);
                self.rig.compactor().step(step).expect("step");
            }
            5 => self.rig.compact_fully(),
            6 => self.rig.db().flush().expect("flush"),
            7 => {
                self.rig.db().flush().expect("flush");
                self.rig.crash();
            }
            8 => {
                self.rig.crash();
                let lost = self.rig.machine().applied().map_or(0, |applied| applied.index.0 as usize + 1);
                self.rig.apply(&self.log.entries[lost..]);
            }
            _ => {}
        }
    }
}

/// Applies a log in other batches, with compaction steps at other moments.
fn twin(entries: &[LogEntry], rng: &mut StdRng) -> Rig {
    let mut twin = Rig::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let (batch, after) = rest.split_at(rng.random_range(1..=rest.len().min(40)));
        twin.machine().set_publish_events(rng.random());
        twin.apply(batch);
        if rng.random() {
            twin.compactor().step(rng.random_range(1..50)).expect("step");
        }
        rest = after;
    }
    twin
}

pub fn same_answers(a: &Rig, b: &Rig, query: &RangeQuery) -> RangeAnswer {
    let answer = decoded(a.reader.range(query).expect("live"));
    assert_eq!(answer, decoded(b.reader.range(query).expect("live")), "{query:?}");
    answer
}

#[test]
fn random_commands_answer_and_read_as_in_a_naive_store_and_alike_on_two_machines() {
    for seed in seeds(16) {
        let _repeat = Seed(seed);
        let mut world = World::new(seed);
        for _ in 0..ROUNDS {
            world.apply_some();
            world.read_some();
            world.disturb();
        }
        world.check_every_live_revision();
        assert!(world.model.stamps_ms.is_sorted(), "time goes on");
        let twin = twin(&world.log.entries, &mut world.rng);
        assert_eq!(world.rig.reader.digest(), twin.reader.digest());
        for at in world.model.compacted.max(1)..=world.model.current() {
            let revision = Some(Revision::new(at));
            let hash = world.rig.reader.hash_kv(revision).expect("live");
            assert_eq!(hash, twin.reader.hash_kv(revision).expect("live"), "at {at}");
            same_answers(&world.rig, &twin, &whole_range(at));
        }
        crate::backups::check(&world.rig, world.model.compacted, world.model.current());
        let everything = KeyRange::everything();
        let times =
            [&world.rig, &twin].map(|rig| rig.reader.pin().key_times(&everything, None).expect("times"));
        assert_eq!(times[0], times[1]);
        twin.compact_fully();
        world.rig.compact_fully();
        // Readers still hold the point before the last steps; a new batch shows them gone.
        let blank = world.log.push(Payload::Blank).clone();
        let before = world.rig.reader.hash_kv(None).expect("hash");
        world.rig.apply(std::slice::from_ref(&blank));
        assert_eq!(before, world.rig.reader.hash_kv(None).expect("hash"), "removing changes no hash");
        world.check_every_live_revision();
    }
}
