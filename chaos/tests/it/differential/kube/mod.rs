//! Everything that kube-apiserver and kubeadm ask of etcd, asked of etcd 3.5.1 and of Meerkat: the answers
//! have to be the same, and what Kubernetes makes use of in them is looked at one by one.
//!
//! The lines of the contract's section I are [`ROWS`]; a run that leaves one out fails. Of the two that are
//! not there, `Client` is about connections (`meerkat::` tests of TLS), and `Not used` is about nothing.
//! Where etcd 3.5.1 is older than what Kubernetes now expects (its version, `RangeStream`, `/readyz`),
//! Meerkat is held to the contract, and etcd to being older: it shows that the question means something.

mod shapes;
mod standing;
mod table;
mod version;
mod watch;

use std::collections::BTreeSet;
use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::differential::engine::shown;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use tonic::Status;

use table::{Book, ENDS, LISTS, OBJECTS};

/// For one answer, on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(20);
const BUDGET: Duration = Duration::from_secs(180);

const ROWS: &[&str] = &[
    "Get",
    "Create",
    "Update",
    "Delete",
    "List",
    "Watch-cache init",
    "Watch",
    "Errors matched",
    "Consistent reads",
    "Feature detection",
    "Periodic progress",
    "Count",
    "Keys",
    "Leases",
    "Compaction",
    "Db size",
    "Health/ready",
    "Consistency checker",
    "Version floor",
    "kubeadm",
    "1.37 extra",
    "Load shape",
];

/// Which lines were put to the test.
#[derive(Debug, Default)]
struct Rows(BTreeSet<&'static str>);

impl Rows {
    fn saw(&mut self, row: &'static str) {
        self.0.insert(row);
    }

    fn missing(&self) -> Vec<String> {
        let lines = ROWS.iter().filter(|row| !self.0.contains(*row)).map(|row| format!("{row} was left out"));
        let others = self.0.iter().filter(|row| !ROWS.contains(row)).map(|row| format!("{row} is no line"));
        lines.chain(others).collect()
    }
}

fn broken(status: Status) -> Failure {
    status.into()
}

async fn start(product: Product) -> Result<Cluster, Failure> {
    // In etcd 3.5 it is an experiment.
    let interval = match product {
        Product::Meerkat => "--watch-progress-notify-interval=1s",
        Product::Etcd => "--experimental-watch-progress-notify-interval=1s",
    };
    Cluster::start(&ClusterSpec::new(product, 1).with_flags(&[interval])).await
}

/// Every row of the tables: the same answer from both, and the one that the contract asks for.
async fn compare_table(etcd: &Cluster, other: &Cluster, rows: &mut Rows) -> Result<Vec<String>, Failure> {
    let (mut theirs, mut ours) = (Book::default(), Book::default());
    let mut findings = Vec::new();
    for step in OBJECTS.iter().chain(LISTS).chain(ENDS) {
        let what = format!("{}, {}", step.row, step.what);
        let (request, same) = ((step.ask)(&theirs), (step.ask)(&ours));
        let one = request.send(etcd.members()[0].endpoint()).await.without_identity();
        let two = same.send(other.members()[0].endpoint()).await.without_identity();
        if request != same || one != two {
            findings.push(format!("{what}\n    etcd: {}\n    here: {}", shown(&one), shown(&two)));
        }
        for (answer, book, whose) in [(&one, &mut theirs, "etcd"), (&two, &mut ours, "here")] {
            if !(step.expect)(book, answer) {
                findings.push(format!("{what}: not as expected, {whose}: {}", shown(&answer)));
            }
            book.note(step, answer);
        }
        rows.saw(step.row);
    }
    Ok(findings)
}

async fn compare(product: Product) -> Result<(), Failure> {
    let (etcd, other) = (start(Product::Etcd).await?, start(product).await?);
    let mut rows = Rows::default();
    let mut findings = compare_table(&etcd, &other, &mut rows).await?;
    let mut told = Vec::new();
    for cluster in [&etcd, &other] {
        told.push(watch::hear(cluster, &mut rows).await?);
    }
    if told[0].said != told[1].said {
        findings.push(format!("watchers\n    etcd: {:#?}\n    here: {:#?}", told[0].said, told[1].said));
    }
    findings.extend(told.into_iter().flat_map(|told| told.findings));
    findings.extend(standing::compare(&etcd, &other, product, &mut rows).await?);
    findings.extend(rows.missing());
    Failure::from_findings("kube-apiserver is answered as by etcd", findings)?;
    etcd.finish()?;
    other.finish()
}

#[test]
fn what_kube_apiserver_sends_is_answered_as_by_etcd() {
    run_test("kube-apiserver", BUDGET, compare(Product::Meerkat));
}
