//! Random selectors at random revisions: the list is what a scan of the store gives, page by page.

use std::time::Duration;

use meerkat_proto::pb::etcdserver::DeleteRangeRequest;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Plan, shown};
use crate::Failure;
use crate::driver::Cluster;
use crate::endpoint::Endpoint;
use crate::listwatch::chosen::{self, Term};
use crate::listwatch::http::Kept;
use crate::listwatch::stock::{self, Item, Row};

const NAMESPACE: &str = "diff";
const NAMES: usize = 120;
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// Writes between two comparisons, at most.
const WRITES_MAX: usize = 6;

/// Writes and compares in turn.
pub async fn run(plan: &Plan, cluster: &Cluster) -> Result<(), Failure> {
    let member = &cluster.members()[0];
    let mut scene = Scene {
        endpoint: member.endpoint().clone(),
        kept: Kept::open(&member.listwatch_url()).await?,
        random: StdRng::seed_from_u64(plan.seed),
        marks: 0,
        revisions: Vec::new(),
    };
    for _ in 0..2 * NAMES {
        scene.write().await?;
    }
    let (mut exact, mut pages, mut found) = (0, 0, 0);
    for number in 0..plan.comparisons {
        for _ in 0..scene.random.random_range(0..=WRITES_MAX) {
            scene.write().await?;
        }
        let terms = chosen::draw(&mut scene.random);
        let question = scene.question(terms);
        let seen = scene
            .compare(&question)
            .await
            .map_err(|failure| failure.during(&format!("comparison {number}, {question:?}")))?;
        exact += usize::from(question.exact.is_some());
        pages += seen.pages - 1;
        found += usize::from(0 < seen.objects);
    }
    println!(
        "listwatch-index: {} random selectors, {exact} of them at an exact revision, {pages} further pages, {found} \
         that found something: all as a scan of the store",
        plan.comparisons
    );
    if found * 3 < plan.comparisons || exact == 0 || pages == 0 {
        return Err(Failure::harness("the selectors found too little to prove anything"));
    }
    Ok(())
}

#[derive(Debug)]
struct Question {
    terms: Vec<Term>,
    exact: Option<u64>,
    limit: Option<usize>,
    /// In all namespaces, among all other objects.
    everywhere: bool,
}

struct Seen {
    pages: usize,
    objects: usize,
}

struct Scene {
    endpoint: Endpoint,
    kept: Kept,
    random: StdRng,
    marks: u64,
    revisions: Vec<u64>,
}

impl Scene {
    async fn write(&mut self) -> Result<(), Failure> {
        let mut labels = chosen::labels(&mut self.random);
        labels.insert("set".to_owned(), NAMESPACE.to_owned());
        let name = format!("d{:03}", self.random.random_range(0..NAMES));
        let item = Item { namespace: NAMESPACE.to_owned(), name, labels };
        self.marks += 1;
        let revision = if self.random.random_range(0..6) == 0 {
            let request = DeleteRangeRequest { key: item.key(), ..Default::default() };
            let answer = self.endpoint.delete(request, ASK_WITHIN).await?;
            answer.header.map_or(0, |header| u64::try_from(header.revision).unwrap_or(0))
        } else {
            stock::put(&self.endpoint, &item, self.marks).await?
        };
        self.revisions.push(revision);
        Ok(())
    }

    fn question(&mut self, terms: Vec<Term>) -> Question {
        let at = self.random.random_range(0..self.revisions.len());
        Question {
            terms,
            exact: self.random.random_bool(0.5).then(|| self.revisions[at]),
            limit: self.random.random_bool(0.5).then(|| self.random.random_range(1..30)),
            everywhere: self.random.random_bool(0.3),
        }
    }

    async fn compare(&mut self, question: &Question) -> Result<Seen, Failure> {
        let base = match question.everywhere {
            true => format!(
                "/api/v1/configmaps?labelSelector=set%3D{NAMESPACE},{}",
                chosen::text(&question.terms)
            ),
            false => {
                let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
                format!("{collection}?labelSelector={}", chosen::text(&question.terms))
            }
        };
        let limit = question.limit.map_or_else(String::new, |limit| format!("&limit={limit}"));
        let at = question.exact;
        let at =
            at.map_or_else(String::new, |rv| format!("&resourceVersion={rv}&resourceVersionMatch=Exact"));
        let mut path = format!("{base}{limit}{at}");
        let (mut all, mut pages, mut revision) = (Vec::new(), 0, question.exact);
        loop {
            let answered = self.kept.ask("GET", &path, None).await?;
            let list = answered.json()?;
            if answered.status != 200 {
                return Err(Failure::broken(format!("{path}: {}: {list}", answered.status)));
            }
            let (rv, rows) = shown(&list)?;
            if *revision.get_or_insert(rv) != rv {
                return Err(Failure::broken(format!("{path}: a page of {rv}, not of {revision:?}")));
            }
            if question.limit.is_some_and(|limit| limit < rows.len()) {
                return Err(Failure::broken(format!("{path}: {} items", rows.len())));
            }
            all.extend(rows);
            pages += 1;
            match list["metadata"]["continue"].as_str() {
                None | Some("") => break,
                Some(token) => path = format!("{base}{limit}&continue={token}"),
            }
            // What happens now is not on the next page.
            self.write().await?;
        }
        let revision = revision.unwrap_or(0);
        let mut scan: Vec<Row> = stock::rows(&self.endpoint, &format!("{NAMESPACE}/"), revision).await?;
        scan.retain(|row| chosen::holds(&question.terms, &row.labels));
        if scan != all {
            let at = scan.iter().zip(&all).position(|(scan, shown)| scan != shown);
            return Err(Failure::broken(format!(
                "at {revision} a scan finds {} objects, the list has {}; the first that differs is {at:?}",
                scan.len(),
                all.len()
            )));
        }
        Ok(Seen { pages, objects: all.len() })
    }
}
