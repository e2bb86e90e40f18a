//! What a load consists of: which keys, which values, which requests. No clock, no network.
//!
//! The same workload and seed give the same requests. Keys are zero-padded numbers, so that their
//! order is numeric and a range of a thousand keys is a thousand neighbours.

use bytes::Bytes;
use clap::ValueEnum;
use meerkat_proto::pb::etcdserver as pb;
use pb::request_op::Request;
use prost::Message;

use super::wire::Call;

/// Every key begins with this, so that a bench is easy to find and to delete.
pub const KEY_PREFIX: &str = "bench/";

/// Values are slices of one pool of random bytes: making one costs a reference count.
const VALUE_POOL_EXTRA_BYTES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Write one key.
    Put,
    /// Read one key, linearizably.
    Get,
    /// Read one key from whichever member is asked.
    GetSerializable,
    /// Read many neighbouring keys, linearizably.
    Range,
    /// Compare one key's revision, then write it.
    Txn,
    /// Reads and writes of one key in a given proportion.
    Mixed,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::GetSerializable => "get-serializable",
            Kind::Range => "range",
            Kind::Txn => "txn",
            Kind::Mixed => "mixed",
        }
    }

    pub fn reads(self) -> bool {
        matches!(self, Kind::Get | Kind::GetSerializable | Kind::Range | Kind::Mixed)
    }
}

/// A workload that is known to make sense.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
    key_space: u64,
    range_keys: u64,
    read_percent: u64,
    sequential: bool,
    /// Keys below this number exist for sure.
    prefilled: u64,
    pool: Bytes,
}

/// The sizes of a workload, as asked for.
#[derive(Clone, Debug)]
pub struct Shape {
    pub kind: Kind,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub key_space: u64,
    pub range_keys: u64,
    pub read_percent: u64,
    pub sequential: bool,
    pub prefilled: u64,
}

impl Workload {
    pub fn new(shape: Shape) -> Result<Workload, String> {
        if shape.key_space == 0 {
            return Err("--key-space must be at least 1".to_owned());
        }
        let digits = (shape.key_space.saturating_add(shape.range_keys)).to_string().len();
        let needed = KEY_PREFIX.len() + digits;
        if shape.key_bytes < needed {
            return Err(format!(
                "--key-size {} is too short: this key space needs {needed}",
                shape.key_bytes
            ));
        }
        if shape.read_percent > 100 {
            return Err("--read-percent is at most 100".to_owned());
        }
        if shape.kind == Kind::Range && !(1..=shape.key_space).contains(&shape.range_keys) {
            return Err("--range-keys must be between 1 and --key-space".to_owned());
        }
        let mut random = Random::new(0x6d65_6572_6b61_7421);
        let pool = (0..(shape.value_bytes + VALUE_POOL_EXTRA_BYTES).div_ceil(8))
            .flat_map(|_| random.next().to_le_bytes())
            .collect::<Vec<u8>>();
        Ok(Workload {
            kind: shape.kind,
            key_bytes: shape.key_bytes,
            value_bytes: shape.value_bytes,
            key_space: shape.key_space,
            range_keys: shape.range_keys,
            read_percent: shape.read_percent,
            sequential: shape.sequential,
            prefilled: shape.prefilled,
            pool: pool.into(),
        })
    }

    /// The request with that number.
    pub fn call(&self, number: u64, random: &mut Random) -> Call {
        let key = if self.sequential { number % self.key_space } else { random.below(self.key_space) };
        match self.kind {
            Kind::Put => self.put(key, random),
            Kind::Get => Call::Range(self.get(key)),
            Kind::GetSerializable => Call::Range(pb::RangeRequest { serializable: true, ..self.get(key) }),
            Kind::Range => {
                let first = key % (self.key_space - self.range_keys + 1);
                let end = self.key(first + self.range_keys);
                Call::Range(pb::RangeRequest { range_end: end, ..self.get(first) })
            }
            Kind::Txn => Call::Txn(self.compare_and_put(key, random)),
            Kind::Mixed if random.below(100) < self.read_percent => Call::Range(self.get(key)),
            Kind::Mixed => self.put(key, random),
        }
    }

    /// Writes of all keys in `[first, end)`, in one transaction.
    pub fn fill(&self, first: u64, end: u64, random: &mut Random) -> Call {
        let puts = (first..end)
            .map(|key| pb::RequestOp { request: Some(Request::RequestPut(self.put_request(key, random))) });
        Call::Txn(pb::TxnRequest { success: puts.collect(), ..Default::default() })
    }

    /// Whether an answer can be right. Decodes it, so callers look at a sample only.
    pub fn check(&self, call: &Call, answer: Bytes) -> Result<(), String> {
        let header = match call {
            Call::Put(_) => pb::PutResponse::decode(answer).map(|answer| answer.header),
            Call::Txn(_) => match pb::TxnResponse::decode(answer) {
                Ok(answer) if !answer.succeeded => return Err("a comparison that holds failed".to_owned()),
                answer => answer.map(|answer| answer.header),
            },
            Call::Status(_) => pb::StatusResponse::decode(answer).map(|answer| answer.header),
            Call::LeaseGrant(_) => pb::LeaseGrantResponse::decode(answer).map(|answer| answer.header),
            Call::LeaseRevoke(_) => pb::LeaseRevokeResponse::decode(answer).map(|answer| answer.header),
            Call::Range(request) => {
                let answer = pb::RangeResponse::decode(answer).map_err(|error| error.to_string())?;
                self.check_page(request, &answer)?;
                Ok(answer.header)
            }
        };
        match header.map_err(|error| error.to_string())? {
            Some(header) if header.revision > 0 => Ok(()),
            _ => Err("an answer without a revision".to_owned()),
        }
    }

    fn check_page(&self, request: &pb::RangeRequest, answer: &pb::RangeResponse) -> Result<(), String> {
        let asked = if request.range_end.is_empty() { 1 } else { self.range_keys };
        let got = answer.kvs.len() as u64;
        if got > asked || (self.prefilled >= self.key_space && got < asked) {
            return Err(format!("a page of {got} keys instead of {asked}"));
        }
        match answer.kvs().iter().find(|kv| kv.value.len() != self.value_bytes) {
            Some(kv) => Err(format!("a value of {} bytes instead of {}", kv.value.len(), self.value_bytes)),
            None => Ok(()),
        }
    }

    fn key(&self, number: u64) -> Bytes {
        let digits = self.key_bytes - KEY_PREFIX.len();
        format!("{KEY_PREFIX}{number:0digits$}").into()
    }

    fn value(&self, random: &mut Random) -> Bytes {
        let start = random.below(VALUE_POOL_EXTRA_BYTES as u64) as usize;
        self.pool.slice(start..start + self.value_bytes)
    }

    fn put_request(&self, key: u64, random: &mut Random) -> pb::PutRequest {
        pb::PutRequest { key: self.key(key), value: self.value(random), ..Default::default() }
    }

    fn put(&self, key: u64, random: &mut Random) -> Call {
        Call::Put(self.put_request(key, random))
    }

    fn get(&self, key: u64) -> pb::RangeRequest {
        pb::RangeRequest { key: self.key(key), ..Default::default() }
    }

    /// The shape of an orchestrator's update. The comparison always holds, so each run writes
    /// equally much.
    fn compare_and_put(&self, key: u64, random: &mut Random) -> pb::TxnRequest {
        let compare = pb::Compare {
            result: pb::compare::CompareResult::Greater.into(),
            target: pb::compare::CompareTarget::Mod.into(),
            key: self.key(key),
            target_union: Some(pb::compare::TargetUnion::ModRevision(-1)),
            ..Default::default()
        };
        let put = Request::RequestPut(self.put_request(key, random));
        let get = Request::RequestRange(self.get(key));
        pb::TxnRequest {
            compare: vec![compare],
            success: vec![pb::RequestOp { request: Some(put) }],
            failure: vec![pb::RequestOp { request: Some(get) }],
        }
    }
}

/// SplitMix64: a few instructions a number, and good enough to choose keys.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `[0, end)`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kind: Kind) -> Shape {
        Shape {
            kind,
            key_bytes: 16,
            value_bytes: 256,
            key_space: 1_000,
            range_keys: 100,
            read_percent: 50,
            sequential: false,
            prefilled: 1_000,
        }
    }

    fn workload(kind: Kind) -> Workload {
        Workload::new(shape(kind)).expect("a good shape")
    }

    #[test]
    fn keys_and_values_have_the_sizes_asked_for() {
        let Call::Put(put) = workload(Kind::Put).call(0, &mut Random::new(1)) else { panic!("a put") };
        assert_eq!((put.key.len(), put.value.len()), (16, 256));
        assert!(put.key.starts_with(KEY_PREFIX.as_bytes()));
    }

    #[test]
    fn a_range_covers_its_keys_and_stays_inside_the_key_space() {
        let workload = workload(Kind::Range);
        let number = |key: &[u8]| -> u64 {
            let digits = std::str::from_utf8(&key[KEY_PREFIX.len()..]).expect("digits");
            digits.parse().expect("digits")
        };
        let mut random = Random::new(7);
        for count in 0..500 {
            let Call::Range(range) = workload.call(count, &mut random) else { panic!("a range") };
            assert_eq!(number(&range.range_end) - number(&range.key), 100);
            assert!(number(&range.range_end) <= 1_000);
        }
    }

    #[test]
    fn sequential_keys_go_round_the_key_space() {
        let workload =
            Workload::new(Shape { sequential: true, key_space: 3, ..shape(Kind::Get) }).expect("good");
        let keys: Vec<Bytes> = (0..4)
            .map(|n| match workload.call(n, &mut Random::new(0)) {
                Call::Range(range) => range.key,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys[0], keys[3]);
        assert!(keys[0] < keys[1] && keys[1] < keys[2]);
    }

    #[test]
    fn one_seed_gives_one_load() {
        let requests = |seed| {
            let mut random = Random::new(seed);
            (0..50).map(|n| format!("{:?}", workload(Kind::Mixed).call(n, &mut random))).collect::<Vec<_>>()
        };
        assert_eq!(requests(3), requests(3));
        assert_ne!(requests(3), requests(4));
    }

    #[test]
    fn shapes_that_make_no_sense_are_refused() {
        let refused = |shape: Shape| Workload::new(shape).is_err();
        assert!(refused(Shape { key_bytes: 8, ..shape(Kind::Put) }));
        assert!(refused(Shape { key_space: 0, ..shape(Kind::Put) }));
        assert!(refused(Shape { range_keys: 1_001, ..shape(Kind::Range) }));
        assert!(refused(Shape { read_percent: 101, ..shape(Kind::Mixed) }));
    }

    #[test]
    fn a_short_page_of_a_full_store_is_a_wrong_answer() {
        let workload = workload(Kind::Range);
        let call = workload.call(0, &mut Random::new(1));
        let answer = pb::RangeResponse {
            header: Some(pb::ResponseHeader { revision: 5, ..Default::default() }),
            ..Default::default()
        };
        let verdict = workload.check(&call, answer.encode_to_vec().into());
        assert_eq!(verdict, Err("a page of 0 keys instead of 100".to_owned()));
    }
}
