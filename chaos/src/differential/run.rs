//! The run itself: ask both, compare, count, and say how to see a failure again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::range_request::SortTarget;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeRequest};

use super::allow_list;
use super::compare::{HiddenValues, difference};
use super::coverage::Coverage;
use super::generator::{Generator, Seen};
use super::request::{Answer, Request};
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::describe;

const BARRIER_WITHIN: Duration = Duration::from_secs(10);
/// Requests shown before the one that failed.
const CONTEXT: usize = 4;
/// Differences collected before the run gives up. One run then shows the kinds there are, as long
/// as the two stores themselves stay in step.
const FINDINGS_MAX: usize = 8;
/// Revisions compared whole at the end, the newest ones.
const REVISIONS_COMPARED: i64 = 400;

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

/// What happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// Counts.
    pub coverage: Coverage,
    /// Differences that a row of the allow-list covers.
    pub allowed: u64,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Report, Failure> {
    let replay = format!("meerkat-chaos differential --seed {} --requests {}", plan.seed, plan.requests);
    println!("differential: seed {}; again with: {replay}", plan.seed);
    let etcd = Cluster::start(&ClusterSpec::new(Product::Etcd, 1)).await?;
    let other = Cluster::start(&ClusterSpec::new(plan.product, members_of(plan.product))).await?;
    let mut both = Both::new(&etcd, &other);
    let mut generator = Generator::new(plan.seed);
    let began = Instant::now();
    for index in 0..plan.requests {
        let request = generator.next(both.seen);
        both.ask(index, request).await.map_err(|failure| with_replay(failure, &replay))?;
    }
    both.compare_history(plan.requests).await.map_err(|failure| with_replay(failure, &replay))?;
    println!(
        "differential: {} requests in {:?}, {} allowed differences, revision {}\n{}",
        plan.requests,
        began.elapsed(),
        both.allowed,
        both.seen.revision,
        both.coverage
    );
    Failure::from_findings("every kind of request and error is exercised", both.coverage.gaps())
        .map_err(|failure| with_replay(failure, &replay))?;
    let report = Report { coverage: both.coverage, allowed: both.allowed };
    etcd.finish()?;
    other.finish()?;
    Ok(report)
}

/// Etcd is compared with one member only, as the reference too has one: in 3.5.1 a member drops the
/// reads from a transaction that another member's client sent, so a transaction which such a read
/// should refuse takes effect there alone, and its members differ among themselves.
fn members_of(product: Product) -> usize {
    match product {
        Product::Meerkat => 3,
        Product::Etcd => 1,
    }
}

fn with_replay(failure: Failure, replay: &str) -> Failure {
    failure.put(|what| format!("{what}\nagain with: {replay}"))
}

struct Both {
    etcd: Endpoint,
    others: Vec<Endpoint>,
    seen: Seen,
    coverage: Coverage,
    allowed: u64,
    recent: VecDeque<String>,
    findings: Vec<String>,
}

impl Both {
    fn new(etcd: &Cluster, other: &Cluster) -> Self {
        Self {
            etcd: etcd.members()[0].endpoint().clone(),
            others: other.endpoints(),
            seen: Seen { revision: 1, compacted: -1 },
            coverage: Coverage::default(),
            allowed: 0,
            recent: VecDeque::new(),
            findings: Vec::new(),
        }
    }

    /// Sends one request to both and compares. The members of the other cluster take turns.
    async fn ask(&mut self, index: usize, request: Request) -> Result<(), Failure> {
        let member = self.others[index % self.others.len()].clone();
        if request.may_be_answered_locally() {
            let level = member.linearizable_probe(BARRIER_WITHIN).await;
            level.map_err(|status| Failure::broken(format!("cannot read: {}", describe(&status))))?;
        }
        let (etcd, other) = tokio::join!(request.send(&self.etcd), request.send(&member));
        let (etcd, other) = (etcd.without_identity(), other.without_identity());
        let hidden = self.hidden_values(&request).await?;
        if let Some(what) = difference(&request, &etcd, &other, &hidden) {
            if allow_list::allowed(&request, &etcd, &other).is_some() {
                self.allowed += 1;
            } else {
                self.findings.push(self.explain(index, &request, &what, &etcd, &other));
                if FINDINGS_MAX <= self.findings.len() || !self.in_step(&member).await {
                    return self.verdict();
                }
            }
        }
        self.coverage.note(&request, &etcd, self.seen);
        self.learn(&request, &etcd);
        self.recent.push_back(format!("#{index} {} -> {}", request.shown(), etcd.shown()));
        if CONTEXT < self.recent.len() {
            self.recent.pop_front();
        }
        Ok(())
    }

    fn learn(&mut self, request: &Request, answer: &Answer) {
        if let Some(header) = answer.header() {
            self.seen.revision = header.revision;
        }
        if let (Request::Compact(CompactionRequest { revision, .. }), Answer::Compact(_)) = (request, answer)
        {
            self.seen.compacted = *revision;
        }
    }

    /// The values that a keys-only range sorted by value hides, without which its order cannot be
    /// judged.
    async fn hidden_values(&self, request: &Request) -> Result<HiddenValues, Failure> {
        let Request::Range(range) = request else { return Ok(HiddenValues::new()) };
        if !range.keys_only || range.sort_target != SortTarget::Value as i32 {
            return Ok(HiddenValues::new());
        }
        let whole = RangeRequest {
            key: range.key.clone(),
            range_end: range.range_end.clone(),
            revision: range.revision,
            ..Default::default()
        };
        match self.etcd.range(whole, BARRIER_WITHIN).await {
            Ok(answer) => Ok(answer.kvs().iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect()),
            // The range itself was refused too, then; there is no order to judge.
            Err(_) => Ok(HiddenValues::new()),
        }
    }

    fn explain(&self, index: usize, request: &Request, what: &str, etcd: &Answer, other: &Answer) -> String {
        format!(
            "request #{index}: {what}\n    {}\n    etcd:  {}\n    other: {}\n    state: {:?}",
            request.shown(),
            etcd.shown(),
            other.shown(),
            self.seen
        )
    }

    /// Whether both stores are at one revision, so that later answers can still be compared.
    async fn in_step(&self, member: &Endpoint) -> bool {
        let (etcd, other) = tokio::join!(
            self.etcd.linearizable_probe(BARRIER_WITHIN),
            member.linearizable_probe(BARRIER_WITHIN)
        );
        matches!((etcd, other), (Ok(etcd), Ok(other)) if etcd == other)
    }

    fn verdict(&self) -> Result<(), Failure> {
        if self.findings.is_empty() {
            return Ok(());
        }
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        Err(Failure::broken(format!(
            "{} answer(s) differ\n  {}\n  before the last of them:\n    {}",
            self.findings.len(),
            self.findings.join("\n  "),
            recent.join("\n    ")
        )))
    }

    /// Everything there is to read at each of the last revisions, as one more set of requests.
    async fn compare_history(&mut self, first_index: usize) -> Result<(), Failure> {
        let newest = self.seen.revision;
        let oldest = self.seen.compacted.max(1).max(newest - REVISIONS_COMPARED);
        for (offset, revision) in (oldest..=newest).enumerate() {
            let everything = Request::Range(RangeRequest {
                key: Bytes::from_static(b"\0"),
                range_end: Bytes::from_static(b"\0"),
                revision,
                ..Default::default()
            });
            self.ask(first_index + offset, everything).await?;
        }
        self.verdict()
    }
}
