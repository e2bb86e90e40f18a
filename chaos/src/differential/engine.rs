//! The run of every comparison: the same random steps to real etcd and to another product, one at a
//! time, each answer judged.
//!
//! A [`Surface`] says what a step is, how it is drawn, taken and judged. Everything else is here, once:
//! both clusters, the loop, what has come up, the differences and the steps before them. A difference
//! does not end a run while the two stores are still in step, so that one run shows the kinds there are.
//! The wanted ones stand in the surface's [`Row`]s, each with the contract's.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Instant;

use super::allow_list::{Row, allowed};
use super::coverage::Coverage;
use crate::Failure;
use crate::driver::{Cluster, Product};

/// Differences collected before a run gives up.
const FINDINGS_MAX: usize = 8;
/// Steps shown before the first that went wrong.
const CONTEXT: usize = 12;
/// Longer texts in a report would hide what matters.
const SHOWN_CHARS_MAX: usize = 2_000;

/// How to run one.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides all steps.
    pub seed: u64,
    /// How many.
    pub steps: usize,
    /// Members that each cluster begins with, unless its surface says otherwise.
    pub members: usize,
    /// What is compared with etcd: Meerkat, or etcd again to test the test.
    pub product: Product,
}

/// A part of the API that is compared, and what a run of it has built up, as etcd answered it.
pub trait Surface: Sized {
    /// What the run is called.
    const NAME: &'static str;
    /// Wanted differences between answers.
    const ALLOWED: &'static [Row<Self::Step, Self::Answer>] = &[];
    /// Something done to both clusters.
    type Step: Debug + 'static;
    /// What is compared.
    type Answer: Debug + 'static;
    /// One of the two clusters.
    type Side;
    /// The source of steps.
    type Generator;

    /// All kinds of steps and answers.
    fn coverage(&self) -> Coverage {
        Coverage::default()
    }

    /// How many times its steps a run may take until every kind has come up; none if it need not see
    /// them all.
    fn patience(&self) -> Option<usize> {
        Some(1)
    }

    /// Where a run is, as `at revision 7`: shown beside each step.
    fn at(&self) -> String {
        String::new()
    }

    /// Starts one cluster.
    fn start(&self, product: Product, members: usize) -> impl Future<Output = Result<Self::Side, Failure>>;

    /// The cluster, when nothing is open to it any more.
    fn cluster(side: Self::Side) -> Cluster;

    /// Draws the step of this number; before it, does what is due.
    fn next(both: &mut Both<Self>, number: usize) -> impl Future<Output = Result<Self::Step, Failure>>;

    /// Takes a step on both, and judges what comes of it.
    fn take(both: &mut Both<Self>, step: &Self::Step) -> impl Future<Output = Result<(), Failure>>;

    /// The last act, which may end the clusters.
    fn close(_: &mut Both<Self>) -> impl Future<Output = Result<(), Failure>> {
        std::future::ready(Ok(()))
    }
}

/// Runs it; what came up. `again` is how to see the same once more.
pub async fn run<S: Surface>(
    plan: &Plan,
    world: S,
    generator: S::Generator,
    again: &str,
) -> Result<Coverage, Failure> {
    println!("{}: seed {}; again with: {again}", S::NAME, plan.seed);
    let etcd = world.start(Product::Etcd, plan.members);
    let other = world.start(plan.product, plan.members);
    let (etcd, other) = tokio::try_join!(etcd, other)?;
    let (coverage, now) = (world.coverage(), String::new());
    let (taken, recent, findings) = Default::default();
    let mut both = Both { etcd, other, world, generator, coverage, taken, now, recent, findings };
    let began = Instant::now();
    let result = both.take_all(plan).await;
    println!(
        "{}: {} steps, {} member(s), in {:?} {}\n{}",
        S::NAME,
        both.taken,
        plan.members,
        began.elapsed(),
        both.world.at(),
        both.coverage
    );
    // If the stores fell out of step, the differences before that say why.
    both.verdict().and(result).map_err(|failure| both.explain(failure, again))?;
    let Both { etcd, other, world, coverage, .. } = both;
    drop(world);
    S::cluster(etcd).finish()?;
    S::cluster(other).finish()?;
    Ok(coverage)
}

/// Both clusters in step.
pub struct Both<S: Surface> {
    /// What is compared with.
    pub etcd: S::Side,
    /// What is compared.
    pub other: S::Side,
    /// What has been built up.
    pub world: S,
    /// The source of steps.
    pub generator: S::Generator,
    /// What came up.
    pub coverage: Coverage,
    /// How many steps were taken, with the one under way.
    pub taken: usize,
    /// That one.
    now: String,
    /// Those before it, until there is a difference.
    recent: VecDeque<String>,
    findings: Vec<String>,
}

impl<S: Surface> Both<S> {
    async fn take_all(&mut self, plan: &Plan) -> Result<(), Failure> {
        let patience = self.world.patience();
        for number in 0..plan.steps * patience.unwrap_or(1) {
            if plan.steps <= number && self.coverage.gaps().is_empty() {
                break;
            }
            let step = S::next(self, number).await?;
            self.take(&step).await?;
        }
        S::close(self).await?;
        let gaps = if patience.is_some() { self.coverage.gaps() } else { Vec::new() };
        Failure::from_findings("every kind of step and answer is exercised", gaps)
    }

    /// Takes one step.
    pub async fn take(&mut self, step: &S::Step) -> Result<(), Failure> {
        let now = format!("#{} {} {}", self.taken, shown(step), self.world.at());
        let now = std::mem::replace(&mut self.now, now);
        self.taken += 1;
        if self.findings.is_empty() && 1 < self.taken {
            self.recent.push_back(now);
        }
        if CONTEXT < self.recent.len() {
            self.recent.pop_front();
        }
        // A step may take others on its way.
        Box::pin(S::take(self, step)).await
    }

    /// Judges two answers that differ in this, if in anything; whether that is wanted.
    pub fn judge(
        &mut self,
        step: &S::Step,
        difference: Option<&str>,
        etcd: &S::Answer,
        other: &S::Answer,
    ) -> Result<bool, Failure> {
        let Some(what) = difference else { return Ok(true) };
        if let Some(row) = allowed(S::ALLOWED, step, etcd, other) {
            self.coverage.allow(row.what);
            return Ok(true);
        }
        self.differ(what, etcd, other).map(|()| false)
    }

    /// Notes that the answers to the step under way differ. Fails when that is enough.
    pub fn differ(&mut self, what: &str, etcd: &impl Debug, other: &impl Debug) -> Result<(), Failure> {
        let (etcd, other) = (shown(etcd), shown(other));
        self.findings.push(format!("{}\n    {what}\n    etcd:  {etcd}\n    other: {other}", self.now));
        if self.findings.len() < FINDINGS_MAX { Ok(()) } else { self.verdict() }
    }

    /// Fails if there were differences: where nothing after could be compared.
    pub fn verdict(&self) -> Result<(), Failure> {
        Failure::from_findings("both answer the same", self.findings.clone())
    }

    fn explain(&self, failure: Failure, again: &str) -> Failure {
        let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
        let (recent, now) = (recent.join("\n    "), &self.now);
        failure
            .put(|what| format!("{what}\n  steps before:\n    {recent}\n  last: {now}\nagain with: {again}"))
    }
}

/// Anything on a few lines, cut if huge.
pub fn shown(what: &impl Debug) -> String {
    let text = format!("{what:?}");
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::allow_list::Handling;

    /// Answers of two that count; the other's are as in a table.
    struct Counting {
        others: &'static [usize],
        patience: usize,
    }

    impl Surface for Counting {
        const NAME: &'static str = "counting";
        const ALLOWED: &'static [Row<usize, usize>] = &[Row {
            contract: "none",
            what: "a hundred too many",
            handling: Handling::Accepted(|_, etcd, other| etcd + 100 == *other),
        }];
        type Step = usize;
        type Answer = usize;
        type Side = ();
        type Generator = ();

        fn coverage(&self) -> Coverage {
            Coverage::of("step: 0; 1; 2")
        }

        fn patience(&self) -> Option<usize> {
            Some(self.patience)
        }

        async fn start(&self, _: Product, _: usize) -> Result<(), Failure> {
            Ok(())
        }

        fn cluster((): ()) -> Cluster {
            unreachable!("there is none")
        }

        async fn next(_: &mut Both<Self>, number: usize) -> Result<usize, Failure> {
            Ok(number)
        }

        async fn take(both: &mut Both<Self>, step: &usize) -> Result<(), Failure> {
            both.coverage.count_known(&format!("step: {step}"));
            let other = both.world.others[*step];
            both.judge(step, (*step != other).then_some("another count"), step, &other).map(drop)
        }
    }

    fn judged(steps: usize, patience: usize, others: &'static [usize]) -> (u64, Result<(), Failure>) {
        let world = Counting { others, patience };
        let coverage = world.coverage();
        let (etcd, other, generator, taken, now, recent, findings) = Default::default();
        let mut both = Both { etcd, other, world, generator, coverage, taken, now, recent, findings };
        let plan = Plan { seed: 1, steps, members: 1, product: Product::Meerkat };
        let result = futures::executor::block_on(both.take_all(&plan));
        (both.coverage.allowed(), both.verdict().and(result))
    }

    #[test]
    fn equal_answers_to_every_kind_of_step_pass() {
        assert!(matches!(judged(3, 1, &[0, 1, 2]), (0, Ok(()))));
    }

    #[test]
    fn every_difference_is_told_with_its_step() {
        let Err(Failure::Broken(what)) = judged(3, 1, &[0, 7, 8]).1 else { panic!("they differ") };
        assert!(what.contains("#1 1 \n    another count\n    etcd:  1\n    other: 7"), "{what}");
        assert!(what.contains("other: 8"), "{what}");
    }

    #[test]
    fn a_wanted_difference_is_counted_and_passes() {
        assert!(matches!(judged(3, 1, &[0, 101, 2]), (1, Ok(()))));
    }

    #[test]
    fn a_kind_that_never_came_up_fails_the_run_unless_patience_brings_it() {
        assert!(judged(2, 1, &[0, 1]).1.is_err());
        assert!(judged(2, 2, &[0, 1, 2]).1.is_ok());
    }
}
