//! What a run of requests is.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::range_request::SortTarget;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeRequest};

use super::allow_list::ROWS;
use super::coverage;
use super::generator::{Generator, Seen};
use crate::Failure;
use crate::differential::allow_list::Row;
use crate::differential::compare::{HiddenValues, difference};
use crate::differential::coverage::Coverage;
use crate::differential::engine::{self, Both, Surface};
use crate::differential::members::Members;
use crate::differential::request::{Answer, Request, everything};
use crate::driver::{Cluster, ClusterSpec, Product};

const READ_WITHIN: Duration = Duration::from_secs(10);
/// Revisions compared whole at the end, the newest ones.
const REVISIONS_COMPARED: i64 = 400;
/// Of what is compared with one etcd.
const MEMBERS: usize = 3;

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides all requests.
    pub seed: u64,
    /// How many.
    pub requests: usize,
    /// What is compared with etcd: Meerkat, or etcd again to test the test.
    pub product: Product,
}

/// Runs it; what came up.
pub async fn run(plan: &Plan) -> Result<Coverage, Failure> {
    let Plan { seed, requests, product } = *plan;
    let again = format!("meerkat-chaos differential --seed {seed} --requests {requests}");
    let plan = engine::Plan { seed, steps: requests, members: MEMBERS, product };
    let seen = Seen { revision: 1, compacted: -1 };
    engine::run(&plan, seen, Generator::new(seed), &again).await
}

impl Surface for Seen {
    const NAME: &'static str = "differential";
    const ALLOWED: &'static [Row<Request, Answer>] = ROWS;
    type Step = Request;
    type Answer = Answer;
    type Side = Members;
    type Generator = Generator;

    fn coverage(&self) -> Coverage {
        coverage::table()
    }

    fn at(&self) -> String {
        format!("at revision {}, compacted at {}", self.revision, self.compacted)
    }

    /// Of etcd one member only: in 3.5.1 a member drops the reads from a transaction that another
    /// member's client sent, so a transaction which such a read should refuse takes effect there alone,
    /// and its members differ among themselves.
    async fn start(&self, product: Product, members: usize) -> Result<Members, Failure> {
        let members = if product == Product::Etcd { 1 } else { members };
        Members::start(&ClusterSpec::new(product, members)).await
    }

    fn cluster(side: Members) -> Cluster {
        side.cluster
    }

    async fn next(both: &mut Both<Self>, _: usize) -> Result<Request, Failure> {
        Ok(both.generator.next(both.world))
    }

    async fn take(both: &mut Both<Self>, request: &Request) -> Result<(), Failure> {
        let member = (both.taken - 1) % both.other.endpoints.len();
        if request.may_be_answered_locally() {
            both.other.level(member).await?;
        }
        let (etcd, other) = tokio::join!(both.etcd.change(0, request), both.other.change(member, request));
        let what = difference(request, &etcd, &other, &hidden_values(&both.etcd, request).await);
        if !both.judge(request, what.as_deref(), &etcd, &other)? && !in_step(both, member).await {
            return both.verdict();
        }
        coverage::note(&mut both.coverage, request, &etcd, both.world);
        if let Some(header) = etcd.header() {
            both.world.revision = header.revision;
        }
        if let (Request::Compact(CompactionRequest { revision, .. }), Answer::Compact(_)) = (request, &etcd) {
            both.world.compacted = *revision;
        }
        Ok(())
    }

    /// Everything there is to read at each of the last revisions, as one more set of requests.
    async fn close(both: &mut Both<Self>) -> Result<(), Failure> {
        let Seen { revision: newest, compacted } = both.world;
        for revision in compacted.max(1).max(newest - REVISIONS_COMPARED)..=newest {
            both.take(&Request::Range(RangeRequest { revision, ..everything() })).await?;
        }
        Ok(())
    }
}

/// The values that a keys-only range sorted by value hides, without which its order cannot be judged.
async fn hidden_values(etcd: &Members, request: &Request) -> HiddenValues {
    let Request::Range(range) = request else { return HiddenValues::new() };
    if !range.keys_only || range.sort_target != SortTarget::Value as i32 {
        return HiddenValues::new();
    }
    let whole = RangeRequest {
        key: range.key.clone(),
        range_end: range.range_end.clone(),
        revision: range.revision,
        ..Default::default()
    };
    match etcd.endpoints[0].range(whole, READ_WITHIN).await {
        Ok(answer) => answer.kvs().iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect(),
        // The range itself was refused too, then; there is no order to judge.
        Err(_) => HiddenValues::new(),
    }
}

/// Whether both stores are at one revision, so that later answers can still be compared.
async fn in_step(both: &Both<Seen>, member: usize) -> bool {
    let (etcd, other) = tokio::join!(both.etcd.level(0), both.other.level(member));
    matches!((etcd, other), (Ok(etcd), Ok(other)) if etcd == other)
}
