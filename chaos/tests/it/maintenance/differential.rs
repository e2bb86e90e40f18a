//! The same random requests to etcd 3.5.1 and to Meerkat, mostly of the Maintenance service; every
//! answer must be the same, but for ids, sizes and hashes, and for what is listed in [`is_wanted`].

use std::collections::BTreeMap;

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::downgrade_request::DowngradeAction;
use meerkat_proto::pb::etcdserver::request_op::Request as Op;
use meerkat_proto::pb::etcdserver::{
    AlarmType, CompactionRequest, DeleteRangeRequest, DowngradeRequest, LeaseGrantRequest, PutRequest,
    RangeRequest, RequestOp, ResponseHeader, TxnRequest,
};
use tonic::Status;

use super::steps::{At, Generator, Step, Whom};
use super::{BUDGET, WITHIN, alarm_request, broken, calm};

const SEED: u64 = 20_251_117;
const STEPS_ALONE: usize = 250;
const STEPS_OF_THREE: usize = 100;
const LEASE: i64 = 77;
/// An id that no member has.
const NOBODY: u64 = 0x0bad_cafe_0bad_cafe;

/// One product.
struct Side {
    cluster: Cluster,
    /// The leader first.
    endpoints: Vec<Endpoint>,
    ids: Vec<u64>,
    /// Minor version of the cluster.
    minor: u64,
    newest: i64,
    compacted: i64,
}

impl Side {
    async fn start(product: Product, members: usize) -> Result<Self, Failure> {
        let cluster = Cluster::start(&calm(product, members)).await?;
        let leader = cluster.leader(WITHIN).await?;
        let mut endpoints = cluster.endpoints();
        endpoints.swap(0, leader);
        let mut ids = Vec::new();
        for endpoint in &endpoints {
            let status = endpoint.status(WITHIN).await.map_err(broken)?;
            ids.push(status.header.unwrap_or_default().member_id);
        }
        let minor = match product {
            Product::Meerkat => 6,
            Product::Etcd => 5,
        };
        Ok(Self { cluster, endpoints, ids, minor, newest: 1, compacted: -1 })
    }

    fn id(&self, whom: Whom) -> u64 {
        match whom {
            Whom::Member(index) => self.ids[index],
            Whom::Nobody => NOBODY,
            Whom::Zero => 0,
        }
    }

    fn name(&self, id: u64) -> String {
        match self.ids.iter().position(|known| *known == id) {
            Some(index) => format!("member {index}"),
            None => format!("{id:x}"),
        }
    }

    fn revision(&self, at: At) -> i64 {
        match at {
            At::Plain(revision) => revision,
            At::Newest(more) => self.newest + more,
            At::Compacted(more) => self.compacted + more,
        }
    }

    fn header(&mut self, header: Option<ResponseHeader>) -> String {
        match header {
            None => "no header".to_owned(),
            Some(header) => {
                self.newest = self.newest.max(header.revision);
                format!("at {} by {}", header.revision, self.name(header.member_id))
            }
        }
    }

    /// What it said, in words that fit both.
    async fn ask(&mut self, at: usize, step: &Step) -> String {
        match self.answer(at, step).await {
            Ok(said) => said,
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        }
    }

    async fn answer(&mut self, at: usize, step: &Step) -> Result<String, Status> {
        let endpoint = self.endpoints[at].clone();
        if matches!(step, Step::Status | Step::HashKv(_)) {
            // Answered from what the member itself has: let it have everything.
            endpoint.linearizable_probe(WITHIN).await?;
        }
        let said = match step {
            Step::Alarm { action, whom, kind } => {
                let request = alarm_request(*action, self.id(*whom), *kind);
                let answer = endpoint.alarm(request, WITHIN).await?;
                let mut alarms: Vec<String> = answer
                    .alarms
                    .iter()
                    .map(|on| format!("{:?} of {}", AlarmType::try_from(on.alarm), self.name(on.member_id)))
                    .collect();
                alarms.sort();
                format!("{} {alarms:?}", self.header(answer.header))
            }
            Step::Status => self.status(&endpoint).await?,
            Step::HashKv(revision) => {
                let answer = endpoint.hash_kv(self.revision(*revision), WITHIN).await?;
                format!("{}, compacted {}", self.header(answer.header), answer.compact_revision)
            }
            Step::Defragment => self.header(endpoint.defragment(WITHIN).await?.header),
            Step::Downgrade(action, target) => self.downgrade(&endpoint, *action, *target).await?,
            Step::MoveLeader(whom) => self.header(endpoint.move_leader(self.id(*whom), WITHIN).await?.header),
            step => self.of_the_store(&endpoint, step).await?,
        };
        Ok(said)
    }

    async fn status(&mut self, endpoint: &Endpoint) -> Result<String, Status> {
        let status = endpoint.status(WITHIN).await?;
        let mut errors: Vec<String> = status.errors.iter().map(|error| self.error_text(error)).collect();
        errors.sort();
        let sized = 0 < status.db_size_in_use && status.db_size_in_use <= status.db_size;
        let (leader, learner) = (self.name(status.leader), status.is_learner);
        let behind = status.raft_index < status.raft_applied_index;
        let header = self.header(status.header);
        Ok(format!("{header}, led by {leader}, learner {learner}, sized {sized}, odd {behind}, {errors:?}"))
    }

    /// Ids by name, and one space between words: etcd's are not stable.
    fn error_text(&self, error: &str) -> String {
        let words = error.split_whitespace().map(|word| match word.strip_prefix("memberID:") {
            Some(id) => id.parse().map_or_else(|_| word.to_owned(), |id| self.name(id)),
            None => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    async fn downgrade(
        &mut self,
        endpoint: &Endpoint,
        action: DowngradeAction,
        target: Result<u64, &str>,
    ) -> Result<String, Status> {
        let version = match target {
            Ok(below) => format!("3.{}.0", self.minor - below),
            Err(text) => text.to_owned(),
        };
        let request = DowngradeRequest { action: action.into(), version };
        let answer = endpoint.downgrade(request, WITHIN).await?;
        let own = format!("3.{}", self.minor);
        let version = if answer.version.starts_with(&own) { "own version" } else { &answer.version };
        Ok(format!("{}, {version}", self.header(answer.header)))
    }

    async fn of_the_store(&mut self, endpoint: &Endpoint, step: &Step) -> Result<String, Status> {
        let put = |lease| PutRequest { key: "k".into(), value: "v".into(), lease, ..PutRequest::default() };
        let delete = DeleteRangeRequest { key: "k".into(), ..DeleteRangeRequest::default() };
        let read = RangeRequest { key: "k".into(), ..RangeRequest::default() };
        let txn = |success: Option<Op>, failure: Option<Op>| TxnRequest {
            compare: Vec::new(),
            success: success.into_iter().map(|op| RequestOp { request: Some(op) }).collect(),
            failure: failure.into_iter().map(|op| RequestOp { request: Some(op) }).collect(),
        };
        let header = match step {
            Step::Put { lease } => endpoint.put(put(*lease), WITHIN).await?.header,
            Step::Delete => endpoint.delete(delete, WITHIN).await?.header,
            Step::Read => endpoint.range(read, WITHIN).await?.header,
            Step::PutInFailure => {
                let txn = txn(Some(Op::RequestRange(read)), Some(Op::RequestPut(put(0))));
                endpoint.txn(txn, WITHIN).await?.header
            }
            Step::DeleteInTxn => {
                endpoint.txn(txn(Some(Op::RequestDeleteRange(delete)), None), WITHIN).await?.header
            }
            Step::ReadInTxn => endpoint.txn(txn(Some(Op::RequestRange(read)), None), WITHIN).await?.header,
            Step::Grant => {
                endpoint.lease_grant(LeaseGrantRequest { ttl: 900, id: LEASE }, WITHIN).await?.header
            }
            Step::Revoke => endpoint.lease_revoke(LEASE, WITHIN).await?.header,
            Step::Compact(at) => {
                let revision = self.revision(*at);
                let request = CompactionRequest { revision, physical: true };
                let header = endpoint.compact(request, WITHIN).await?.header;
                self.compacted = revision;
                header
            }
            other => unreachable!("{other:?} is not of the store"),
        };
        Ok(self.header(header))
    }
}

/// Wanted differences, each with the contract's row. The contract says: behave as late 3.6.
fn is_wanted(step: &Step, asked: Option<i64>, etcd: &str, meerkat: &str) -> bool {
    match step {
        // B.6 'HashKV': only what is below the compacted revision is refused; 3.5.1 refuses at it too.
        Step::HashKv(_) => {
            let at_the_bound = asked.is_some_and(|asked| meerkat.ends_with(&format!(", compacted {asked}")));
            etcd.ends_with(EtcdError::Compacted.message()) && at_the_bound
        }
        // E.2 'Downgrade': to take back what was not begun is refused by 3.5 and nothing by 3.6.
        Step::Downgrade(DowngradeAction::Cancel, _) => {
            etcd.ends_with(EtcdError::NoInflightDowngrade.message()) && meerkat.ends_with("own version")
        }
        _ => false,
    }
}

async fn compare(members: usize, steps: usize, product: Product) -> Result<(), Failure> {
    let (mut etcd, mut other) =
        (Side::start(Product::Etcd, members).await?, Side::start(product, members).await?);
    let mut generator = Generator::new(crate::seed(SEED), members);
    let (mut findings, mut answers) = (Vec::new(), BTreeMap::<String, usize>::new());
    for number in 0..steps {
        let (at, step) = generator.next();
        let asked = match &step {
            Step::HashKv(at) => Some(other.revision(*at)),
            _ => None,
        };
        let (theirs, ours) = (etcd.ask(at, &step).await, other.ask(at, &step).await);
        if theirs != ours && !is_wanted(&step, asked, &theirs, &ours) {
            findings.push(format!("step {number}, {step:?} at member {at}: etcd {theirs:?}, here {ours:?}"));
        }
        let kind = if ours.contains("etcdserver: ") { ours } else { "answered".to_owned() };
        *answers.entry(kind).or_default() += 1;
    }
    println!("seed {}: {steps} steps, {answers:#?}", crate::seed(SEED));
    Failure::from_findings("every answer is etcd's", findings)?;
    let seen = |error: EtcdError| answers.keys().any(|said| said.ends_with(error.message()));
    let expected = [EtcdError::NoSpace, EtcdError::Corrupt, EtcdError::Compacted, EtcdError::FutureRev];
    let expected = expected.into_iter().filter(|_| members == 1);
    let unseen = expected.filter(|error| !seen(*error)).map(|error| error.to_string());
    Failure::from_findings("every kind of answer came up", unseen.collect())?;
    etcd.cluster.finish()?;
    other.cluster.finish()
}

#[test]
fn one_member_answers_maintenance_as_etcd_does() {
    run_test("maintenance differential", BUDGET, compare(1, STEPS_ALONE, Product::Meerkat));
}

#[test]
fn three_members_answer_maintenance_as_etcd_does() {
    run_test("maintenance differential of three", BUDGET, compare(3, STEPS_OF_THREE, Product::Meerkat));
}
