//! The run itself: ask both, compare, count, and say how to see a failure again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::side::{Reply, Side};
use super::step::{Ask, FURNISH, Generator, Who};
use crate::Failure;
use crate::driver::Product;

/// Steps shown before the one that failed.
const CONTEXT: usize = 6;
/// Steps between two times of setting users and roles up again.
const FURNISH_EVERY: usize = 60;
const FINDINGS_MAX: usize = 6;

/// Refusals that every run must have seen, or it has shown little.
const REFUSALS: &[&str] = &[
    "etcdserver: permission denied",
    "etcdserver: user name is empty",
    "etcdserver: invalid auth token",
    "etcdserver: authentication failed, invalid user ID or password",
    "etcdserver: authentication is not enabled",
    "etcdserver: user name already exists",
    "etcdserver: user name not found",
    "etcdserver: role name already exists",
    "etcdserver: role name not found",
    "etcdserver: role name is empty",
    "etcdserver: role is not granted to the user",
    "etcdserver: permission is not granted to the role",
    "etcdserver: permission not given",
    "etcdserver: invalid auth management",
    "auth: authentication failed, password was given for no password user",
];

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides all steps.
    pub seed: u64,
    /// How many.
    pub steps: usize,
    /// Of what is compared with one etcd.
    pub members: usize,
    /// What is compared with etcd: Meerkat, or etcd again to test the test.
    pub product: Product,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<(), Failure> {
    println!("auth differential: MEERKAT_SEED={} repeats it", plan.seed);
    let (etcd, other) =
        tokio::try_join!(Side::start(Product::Etcd, 1), Side::start(plan.product, plan.members))?;
    let mut both = Both::new(etcd, other);
    let mut generator = Generator::new(plan.seed);
    let began = Instant::now();
    for index in 0..plan.steps {
        if index % FURNISH_EVERY == 0 {
            for ask in FURNISH {
                both.step(&Who::User("root"), ask).await?;
                both.step(&Who::Nobody, ask).await?;
            }
        }
        let (who, ask) = generator.step();
        both.step(&who, &ask).await?;
    }
    println!(
        "auth differential: {} steps in {:?}, {} allowed differences; refusals: {:#?}",
        both.steps,
        began.elapsed(),
        both.allowed,
        both.refusals
    );
    let mut gaps = both.findings;
    gaps.extend(
        REFUSALS
            .iter()
            .filter(|text| !both.refusals.contains_key(**text))
            .map(|text| format!("no step was refused with {text:?}; take more steps or another seed")),
    );
    Failure::from_findings("users and roles are as in etcd", gaps)?;
    both.etcd.finish()?;
    both.other.finish()
}

struct Both {
    etcd: Side,
    other: Side,
    steps: usize,
    allowed: usize,
    refusals: BTreeMap<String, usize>,
    recent: VecDeque<String>,
    findings: Vec<String>,
}

impl Both {
    fn new(etcd: Side, other: Side) -> Self {
        Self {
            etcd,
            other,
            steps: 0,
            allowed: 0,
            refusals: BTreeMap::new(),
            recent: VecDeque::new(),
            findings: Vec::new(),
        }
    }

    /// One step on both. The members of the other cluster take turns.
    async fn step(&mut self, who: &Who, ask: &Ask) -> Result<(), Failure> {
        let member = self.steps % self.other.members();
        self.steps += 1;
        // What a member answers by what it knows itself.
        if matches!(ask, Ask::Watch(_) | Ask::LeaseTimeToLive { .. }) && 1 < self.other.members() {
            self.other.level(member).await;
        }
        let (theirs, ours) = tokio::join!(self.etcd.ask(0, who, ask), self.other.ask(member, who, ask));
        if let Reply::Refused(_, text) = &theirs {
            *self.refusals.entry(text.clone()).or_default() += 1;
        }
        if theirs != ours {
            if allowed(ask, &theirs, &ours) {
                self.allowed += 1;
            } else {
                let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
                self.findings.push(format!(
                    "step {} by {who:?} at member {member}: {ask:?}\n  etcd: {theirs:?}\n  ours: {ours:?}\n  after:\n    {}",
                    self.steps,
                    recent.join("\n    ")
                ));
            }
        }
        if self.recent.len() == CONTEXT {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{who:?} {ask:?} -> {theirs:?}"));
        if FINDINGS_MAX <= self.findings.len() {
            return Failure::from_findings(
                "users and roles are as in etcd",
                std::mem::take(&mut self.findings),
            );
        }
        Ok(())
    }
}

/// What late releases do otherwise; see the module's own words.
fn allowed(ask: &Ask, theirs: &Reply, ours: &Reply) -> bool {
    const DENIED: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    match (ask, theirs, ours) {
        (Ask::Watch((_, end)), Reply::Told(theirs), Reply::Told(ours)) => {
            let says_more = theirs.contains(DENIED) && ours.contains("true true \"rpc error: code = ");
            let let_in = *end == "\0" && theirs.starts_with("true false") && ours.contains(DENIED);
            says_more || let_in
        }
        (Ask::RoleGet("root"), Reply::Told(_), Reply::Told(ours)) => ours == "[(b\"\", b\"\\0\", 2)]",
        (Ask::LeaseTimeToLive { .. }, Reply::Told(_), Reply::Refused(_, text)) => [
            "etcdserver: user name is empty",
            "etcdserver: invalid auth token",
            "etcdserver: permission denied",
        ]
        .contains(&text.as_str()),
        _ => false,
    }
}
