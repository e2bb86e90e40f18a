//! Writers of config maps over HTTP: they create, patch labels to and fro, delete, and note what
//! was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::http::{self, Answered};
use crate::Failure;
use crate::checker::list_watch::{Truth, print};

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
/// Names of one writer.
const SLOTS: u64 = 6;
const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_millis(5);
const COLORS: [&str; 3] = ["red", "green", "blue"];

/// A write that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object is this, at this revision.
    Written { name: String, rv: u64, print: String },
    /// The object that had this uid is gone.
    Deleted { name: String, uid: String },
    /// This value was refused.
    Refused { value: String },
}

/// All writers of a run.
#[derive(Debug)]
pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Result<Ledger, Failure>>,
}

/// What became of the writes.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub answers: Vec<Answer>,
    /// Writes that nobody answered.
    pub unknown: usize,
}

impl Writers {
    /// Each begins with another server, and goes to the next when one does not answer.
    pub fn start(servers: &[String], count: usize, seed: u64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let writer = Writer {
                number,
                servers: servers.to_vec(),
                turn: number,
                random: StdRng::seed_from_u64(seed ^ (number as u64) << 32),
                uids: BTreeMap::new(),
                values: 0,
                ledger: Ledger::default(),
            };
            tasks.spawn(writer.run(stop.clone()));
        }
        Writers { stop, tasks }
    }

    /// Lets each end its last write.
    pub async fn finish(mut self) -> Result<Ledger, Failure> {
        self.stop.store(true, Ordering::Release);
        let mut all = Ledger::default();
        while let Some(ended) = self.tasks.join_next().await {
            let one = ended.map_err(|error| Failure::harness(format!("a writer ended: {error}")))??;
            all.answers.extend(one.answers);
            all.unknown += one.unknown;
        }
        Ok(all)
    }
}

struct Writer {
    number: usize,
    servers: Vec<String>,
    turn: usize,
    random: StdRng,
    /// What is known of each name: its uid, or that it is not there. Nothing after a write without answer.
    uids: BTreeMap<String, Option<String>>,
    values: u64,
    ledger: Ledger,
}

impl Writer {
    async fn run(mut self, stop: Arc<AtomicBool>) -> Result<Ledger, Failure> {
        while !stop.load(Ordering::Acquire) {
            let name = format!("w{}-{}", self.number, self.random.random_range(0..SLOTS));
            match self.uids.get(&name).cloned() {
                None => self.look(&name).await?,
                Some(None) => self.create(&name).await?,
                Some(Some(uid)) if self.random.random_range(0..5) == 0 => self.delete(&name, uid).await?,
                Some(Some(_)) => self.patch(&name).await?,
            }
            tokio::time::sleep(REST).await;
        }
        Ok(self.ledger)
    }

    async fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Option<Answered> {
        let server = &self.servers[self.turn % self.servers.len()];
        match tokio::time::timeout(ANSWER_WITHIN, http::ask(server, method, path, body)).await {
            // Nobody knows what became of it.
            Ok(Ok(answered)) if answered.status < 500 => Some(answered),
            Ok(_) | Err(_) => {
                self.turn += 1;
                None
            }
        }
    }

    async fn look(&mut self, name: &str) -> Result<(), Failure> {
        let path = format!("{COLLECTION}/{name}");
        let Some(answered) = self.ask("GET", &path, None).await else { return Ok(()) };
        let uid = match answered.status {
            200 => Some(text(&answered.json()?["metadata"]["uid"])),
            404 => None,
            _ => return Ok(()),
        };
        self.uids.insert(name.to_owned(), uid);
        Ok(())
    }

    fn value(&mut self) -> String {
        self.values += 1;
        format!("{}-{}", self.number, self.values)
    }

    fn color(&mut self) -> &'static str {
        COLORS[self.random.random_range(0..COLORS.len())]
    }

    async fn create(&mut self, name: &str) -> Result<(), Failure> {
        let (value, color) = (self.value(), self.color());
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"color": color}}, "data": {"v": value},
        });
        let answered = self.ask("POST", COLLECTION, Some(&body)).await;
        self.written(name, value, answered)
    }

    async fn patch(&mut self, name: &str) -> Result<(), Failure> {
        let (value, color) = (self.value(), self.color());
        let body = json!({"metadata": {"labels": {"color": color}}, "data": {"v": value}});
        let answered = self.ask("PATCH", &format!("{COLLECTION}/{name}"), Some(&body)).await;
        self.written(name, value, answered)
    }

    fn written(&mut self, name: &str, value: String, answered: Option<Answered>) -> Result<(), Failure> {
        match answered {
            None => {
                self.ledger.unknown += 1;
                self.uids.remove(name);
            }
            Some(answered) if answered.status == 200 || answered.status == 201 => {
                let object = answered.json()?;
                let rv = text(&object["metadata"]["resourceVersion"]);
                let rv = rv.parse().map_err(|_| Failure::broken(format!("no resourceVersion: {object}")))?;
                self.uids.insert(name.to_owned(), Some(text(&object["metadata"]["uid"])));
                let name = format!("default/{name}");
                self.ledger.answers.push(Answer::Written { name, rv, print: print(&object) });
            }
            Some(_) => {
                self.uids.remove(name);
                self.ledger.answers.push(Answer::Refused { value });
            }
        }
        Ok(())
    }

    async fn delete(&mut self, name: &str, uid: String) -> Result<(), Failure> {
        let answered = self.ask("DELETE", &format!("{COLLECTION}/{name}"), None).await;
        self.uids.remove(name);
        match answered {
            None => self.ledger.unknown += 1,
            Some(answered) if answered.status == 200 => {
                self.uids.insert(name.to_owned(), None);
                self.ledger.answers.push(Answer::Deleted { name: format!("default/{name}"), uid });
            }
            Some(_) => {}
        }
        Ok(())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What was acknowledged and is not in the truth, and what was refused and is.
pub fn compare(ledger: &Ledger, truth: &Truth) -> Vec<String> {
    let mut written: BTreeMap<(&str, u64), &str> = BTreeMap::new();
    let mut deleted: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for change in truth.changes() {
        match &change.object {
            Some(object) => {
                written.insert((&change.name, change.revision), &object.print);
                last.insert(&change.name, &object.uid);
            }
            None => {
                let uid = last.remove(change.name.as_str()).unwrap_or_default();
                deleted.insert((&change.name, uid), change.revision);
            }
        }
    }
    let mut findings = Vec::new();
    for answer in &ledger.answers {
        match answer {
            Answer::Written { name, rv, print } => match written.get(&(name.as_str(), *rv)) {
                None => {
                    findings.push(format!("{name} was acknowledged at {rv}, where nothing happened to it"))
                }
                Some(there) if there != print => {
                    findings.push(format!("{name} was acknowledged at {rv} as {print}, but is {there}"));
                }
                Some(_) => {}
            },
            Answer::Deleted { name, uid } if !deleted.contains_key(&(name.as_str(), uid.as_str())) => {
                findings.push(format!("the deletion of {name}, uid {uid}, was acknowledged, but is nowhere"));
            }
            Answer::Deleted { .. } => {}
            Answer::Refused { value } => {
                let mark = format!("v:\"{value}\",");
                if written.values().any(|print| print.contains(&mark)) {
                    findings.push(format!("the value {value} was refused, but is there"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::list_watch::{Change, Object};

    #[test]
    fn what_was_acknowledged_must_be_there_and_what_was_refused_must_not() {
        let value = json!({"metadata": {"uid": "u"}, "data": {"v": "0-1"}});
        let change = |revision, object| Change { revision, name: "default/a".to_owned(), object };
        let truth = Truth::new(vec![change(2, Some(Object::of(&value))), change(3, None)]);
        let of = |answer| compare(&Ledger { answers: vec![answer], unknown: 0 }, &truth).len();
        let written = |rv, print| Answer::Written { name: "default/a".to_owned(), rv, print };
        let deleted = |uid: &str| Answer::Deleted { name: "default/a".to_owned(), uid: uid.to_owned() };
        assert_eq!(of(written(2, print(&value))), 0);
        assert_eq!(of(written(4, print(&value))), 1);
        assert_eq!(of(written(2, "another".to_owned())), 1);
        assert_eq!(of(deleted("u")), 0);
        assert_eq!(of(deleted("other")), 1);
        assert_eq!(of(Answer::Refused { value: "0-2".to_owned() }), 0);
        assert_eq!(of(Answer::Refused { value: "0-1".to_owned() }), 1);
    }
}
