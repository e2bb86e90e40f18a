//! Random questions and commands, over few enough keys that they meet.

use bytes::Bytes;
use meerkat_types::{
    Command, Compact, Compare, CompareOperator, CompareTarget, Consistency, DeleteRange, GrantLease, Key,
    KeyRange, LeaseId, LeaseNote, LeaseTtl, LogIndex, NewLease, NewValue, Put, RangeQuery, Revision,
    RevisionBounds, Sort, SortOrder, SortTarget, Term, Txn, TxnOp,
};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeMap;
use std::time::Duration;

/// Zero and 0xff are where orders go wrong.
const ALPHABET: [u8; 4] = [0, b'a', b'b', 0xff];

/// A value at least this large goes to a blob file.
const LARGE: usize = 1_500;

pub struct Generator<'a> {
    pub rng: &'a mut StdRng,
    pub current: i64,
    pub compacted: i64,
    /// Of the entry that a command will be in.
    pub term: Term,
    /// The grants of the leases there are.
    pub granted: BTreeMap<LeaseId, LogIndex>,
}

impl Generator<'_> {
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    pub fn key(&mut self) -> Key {
        let len = self.rng.random_range(1..=3);
        let bytes: Vec<u8> = (0..len).map(|_| *ALPHABET.choose(self.rng).expect("letters")).collect();
        Key::new(bytes.into()).expect("not empty")
    }

    pub fn keys(&mut self) -> KeyRange {
        let first = self.key();
        match self.rng.random_range(0..10) {
            0..=2 => KeyRange::One(first),
            3..=7 => KeyRange::Span { first, end: self.key().into_bytes() },
            8 => KeyRange::From(first),
            _ => KeyRange::everything(),
        }
    }

    fn value(&mut self) -> Bytes {
        match self.rng.random_range(0..20) {
            0 => Bytes::new(),
            1 => vec![self.rng.random(); LARGE].into(),
            _ => vec![b'v', self.rng.random_range(0..8)].into(),
        }
    }

    /// Mostly a revision that can be read; now and then one just out of reach.
    pub fn revision(&mut self) -> Revision {
        let low = self.compacted.max(1);
        let at = match self.rng.random_range(0..20) {
            0 => self.current + self.rng.random_range(1..3),
            1 => self.compacted - self.rng.random_range(0..3),
            2 => self.current,
            3 => low,
            _ => self.rng.random_range(low..=self.current),
        };
        Revision::new(at)
    }

    pub fn query(&mut self) -> RangeQuery {
        RangeQuery {
            keys: self.keys(),
            at: self.chance(50).then(|| self.revision()),
            limit: self.chance(50).then(|| self.rng.random_range(0..6)),
            sort: self.sort(),
            consistency: Consistency::Serializable,
            keys_only: self.chance(25),
            count_only: self.chance(15),
            bounds: self.bounds(),
        }
    }

    fn sort(&mut self) -> Sort {
        if self.chance(50) {
            return Sort::BY_KEY;
        }
        let order =
            *[SortOrder::None, SortOrder::Ascend, SortOrder::Descend].choose(self.rng).expect("orders");
        let targets = [
            SortTarget::Key,
            SortTarget::Version,
            SortTarget::Created,
            SortTarget::Modified,
            SortTarget::Value,
        ];
        Sort { order, target: *targets.choose(self.rng).expect("targets") }
    }

    fn bounds(&mut self) -> RevisionBounds {
        if self.chance(75) {
            return RevisionBounds::default();
        }
        let mut bound = || self.chance(40).then(|| Revision::new(self.rng.random_range(1..=self.current)));
        RevisionBounds {
            modified_first: bound(),
            modified_last: bound(),
            created_first: bound(),
            created_last: bound(),
        }
    }

    fn put(&mut self) -> Put {
        let lease = match self.rng.random_range(0..20) {
            0..=4 => NewLease::Set(Some(self.lease())),
            5 | 6 => NewLease::KeepCurrent,
            _ => NewLease::Set(None),
        };
        let value = if self.chance(10) { NewValue::KeepCurrent } else { NewValue::Set(self.value()) };
        Put { key: self.key(), value, lease, want_previous: self.chance(50) }
    }

    /// Few, so that they meet; one of them negative, which sorts last on disk.
    fn lease(&mut self) -> LeaseId {
        LeaseId::from_wire([7, 8, -9][self.rng.random_range(0..3)]).expect("not zero")
    }

    fn lease_command(&mut self) -> Command {
        let (lease, term) = (self.lease(), Term(self.term.0.saturating_sub(self.rng.random_range(0..2))));
        let millis = self.rng.random_range(0..9_000);
        // Mostly the lease that is there, sometimes one of that name before it.
        let current = self.granted.get(&lease).copied().unwrap_or_default();
        let granted = if self.chance(80) { current } else { LogIndex(current.0.saturating_sub(1)) };
        match self.rng.random_range(0..10) {
            0..=4 => {
                let ttl = LeaseTtl::from_seconds(self.rng.random_range(1..100)).expect("in range");
                Command::GrantLease(GrantLease { id: lease, ttl })
            }
            5 | 6 => Command::RevokeLease(lease),
            7 => Command::ExpireLease { lease, granted, term },
            _ => {
                let remaining = self.chance(70).then(|| Duration::from_millis(millis));
                let first = LeaseNote { id: lease, granted, remaining };
                let id = self.lease();
                let granted = self.granted.get(&id).copied().unwrap_or_default();
                let second = LeaseNote { id, granted, remaining: None };
                Command::NoteLeases { term, notes: vec![first, second] }
            }
        }
    }

    fn delete(&mut self) -> DeleteRange {
        DeleteRange { keys: self.keys(), want_previous: self.chance(50) }
    }

    fn compare(&mut self) -> Compare {
        let small = self.rng.random_range(0..4);
        let target = match self.rng.random_range(0..5) {
            0 => CompareTarget::Version(small),
            1 => CompareTarget::Created(self.revision()),
            2 => CompareTarget::Modified(self.revision()),
            3 => CompareTarget::Value(self.value()),
            _ if small == 0 => CompareTarget::Lease(None),
            _ => CompareTarget::Lease(Some(self.lease())),
        };
        let operators = [
            CompareOperator::Equal,
            CompareOperator::Greater,
            CompareOperator::Less,
            CompareOperator::NotEqual,
        ];
        Compare { keys: self.keys(), target, operator: *operators.choose(self.rng).expect("operators") }
    }

    pub fn read_only_txn(&mut self) -> Txn {
        let compares = (0..self.rng.random_range(0..2)).map(|_| self.compare()).collect();
        let success = (0..self.rng.random_range(0..3)).map(|_| TxnOp::Range(self.query())).collect();
        let failure = (0..self.rng.random_range(0..3)).map(|_| TxnOp::Range(self.query())).collect();
        Txn { compares, success, failure }
    }

    /// Of any shape, also of those that the wire's checks turn away: the machine stands more.
    fn txn(&mut self, depth: usize) -> Txn {
        let compares = (0..self.rng.random_range(0..3)).map(|_| self.compare()).collect();
        Txn { compares, success: self.ops(depth), failure: self.ops(depth) }
    }

    fn ops(&mut self, depth: usize) -> Vec<TxnOp> {
        let number = self.rng.random_range(0..5);
        (0..number)
            .map(|_| match self.rng.random_range(0..10) {
                0..=2 => TxnOp::Range(self.query()),
                3..=6 => TxnOp::Put(self.put()),
                7 | 8 => TxnOp::DeleteRange(self.delete()),
                _ if depth == 0 => TxnOp::Put(self.put()),
                _ => TxnOp::Txn(self.txn(depth - 1)),
            })
            .collect()
    }

    pub fn command(&mut self) -> Command {
        match self.rng.random_range(0..100) {
            0..=54 => Command::Put(self.put()),
            55..=69 => Command::DeleteRange(self.delete()),
            70..=86 => Command::Txn(self.txn(2)),
            87..=94 => self.lease_command(),
            _ => Command::Compact(Compact { revision: self.compact_to() }),
        }
    }

    /// Every boundary: the old bound, the next revision, the current one, one too far, and between.
    fn compact_to(&mut self) -> Revision {
        let low = (self.compacted + 1).min(self.current);
        let at = match self.rng.random_range(0..10) {
            0 => self.compacted,
            1 => self.current,
            2 => self.current + 1,
            3 => self.rng.random_range(-1..=1),
            4..=6 => low,
            _ => self.rng.random_range(low..=self.current),
        };
        Revision::new(at)
    }
}
