//! What a scenario tells of itself: operations, faults and verdicts. They end in the story, the report
//! and the judgement that a composed run has.

use std::path::PathBuf;
use std::time::Instant;

use crate::Failure;
use crate::driver::{Cluster, Product};
use crate::endpoint::{Endpoint, Roster};
use crate::record::history::History;
use crate::record::trace::Blow;
use crate::record::{Trace, Verdict};
use crate::report::Story;
use crate::run::conduct::version;
use crate::run::judgement;
use crate::run::sample::Lookout;

/// Members by name, to be asked after a run.
pub type Members = Vec<(String, Endpoint)>;

/// Those of a cluster.
pub fn members_of(cluster: &Cluster) -> Members {
    let members = cluster.members().iter();
    members.map(|member| (member.name().to_owned(), member.endpoint().clone())).collect()
}

/// What is told of a run in progress.
#[derive(Debug)]
pub struct Account {
    /// Where clients tell what they do.
    pub trace: Trace,
    scenario: &'static str,
    product: Product,
    seed: u64,
    replay: String,
    report: Option<PathBuf>,
    verdicts: Vec<Verdict>,
    troubles: Vec<String>,
    failure: Option<Failure>,
    lookout: Option<Lookout>,
}

impl Account {
    /// Begins, and prints what does the same again. A scenario that draws nothing has seed 0.
    pub fn open(scenario: &'static str, product: Product, seed: u64, replay: String) -> Self {
        println!("{scenario}: again with: {replay}");
        Self {
            trace: Trace::new(Instant::now()),
            scenario,
            product,
            seed,
            replay,
            report: None,
            verdicts: Vec::new(),
            troubles: Vec::new(),
            failure: None,
            lookout: None,
        }
    }

    /// Writes the report to this file, if to any.
    #[must_use]
    pub fn reporting(self, report: Option<PathBuf>) -> Self {
        Self { report, ..self }
    }

    /// Looks from now on who of these leads. Must be called on a runtime.
    pub fn look(&mut self, roster: &Roster) {
        self.lookout = Some(Lookout::start(roster.clone(), self.trace.clone()));
    }

    /// Tells of a fault that was just made; its index for `Trace::healed`.
    pub fn struck(&self, kind: &str, what: impl Into<String>, members: Vec<usize>) -> usize {
        let fault = self.trace.struck(kind);
        self.trace.tell(fault, &Blow::made(what, members));
        fault
    }

    /// Keeps what was found about promises.
    pub fn verdicts(&mut self, found: impl IntoIterator<Item = Verdict>) {
        self.verdicts.extend(found);
    }

    /// Keeps what the harness could not do: nothing is proved then.
    pub fn trouble(&mut self, what: impl Into<String>) {
        self.troubles.push(what.into());
    }

    /// Keeps how a part of the run ended: whatever is found besides is told with it.
    pub fn ended(&mut self, part: Result<(), Failure>) {
        if let Err(failure) = part {
            self.failure = Some(match self.failure.take() {
                Some(earlier) => earlier.and(failure),
                None => failure,
            });
        }
    }

    /// Judges the history against what each member holds, and the members against each other. Expects
    /// every member running and nobody writing.
    pub async fn judge(&mut self, members: &Members, history: &History, started_at: i64) {
        let (found, ended) = super::settle::verdicts(members, self.product, history, started_at).await;
        self.verdicts.extend(found);
        self.ended(ended);
    }

    /// Ends: reports, prints, and fails if anything was found or nothing could be proved.
    pub async fn close(mut self, members: Members) -> Result<Story, Failure> {
        drop(self.lookout.take());
        let (members, endpoints): (Vec<String>, Vec<Endpoint>) = members.into_iter().unzip();
        let story = Story {
            scenario: self.scenario.to_owned(),
            seed: self.seed,
            target: self.product.to_string(),
            driver: "local".to_owned(),
            version: version(endpoints).await,
            replay: std::mem::take(&mut self.replay),
            length: self.trace.began().elapsed(),
            record: self.trace.take(),
            verdicts: std::mem::take(&mut self.verdicts),
            members,
            troubles: std::mem::take(&mut self.troubles),
        };
        self.ended(judgement::judge(&story, self.report.as_deref()));
        self.failure.map_or(Ok(story), Err)
    }
}
