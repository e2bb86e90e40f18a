//! A node agent: registers its node, renews its lease, and "runs" the pods that are bound to it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use meerkat_client::listwatch::{Door, Objects};
use serde_json::{Value, json};

use super::board::Board;
use super::cache::{self, Cache};
use super::object::{self, is_going, is_running, name, uid};
use super::wall_clock;

const RENEW_EVERY: Duration = Duration::from_secs(2);
const LEASE_SECONDS: u64 = 10;

/// What an agent has to do.
#[derive(Debug, PartialEq)]
pub enum Action<'a> {
    /// Start it, if it does not run here yet, and say that it runs.
    Run(&'a Value),
    /// Stop it and let it go.
    Release(&'a Value),
    /// It is gone.
    Stop(String),
}

/// What is bound to this node, held against what runs here.
pub fn decide<'a>(pods: &[&'a Value], running: &BTreeSet<String>) -> Vec<Action<'a>> {
    let mut actions = Vec::new();
    for &pod in pods {
        let runs = is_running(pod) && running.contains(uid(pod));
        match (is_going(pod), object::has_finalizer(pod)) {
            (true, true) => actions.push(Action::Release(pod)),
            (true, false) => {}
            (false, _) if runs => {}
            (false, _) => actions.push(Action::Run(pod)),
        }
    }
    let bound: BTreeSet<&str> = pods.iter().map(|pod| uid(pod)).collect();
    let gone = running.iter().filter(|uid| !bound.contains(uid.as_str()));
    actions.extend(gone.map(|uid| Action::Stop(uid.clone())));
    actions
}

pub async fn run(node: &'static str, door: Door, board: Board) {
    let mine = object::pods().fields(format!("spec.nodeName={node}"));
    let mut pods = Cache::start(&door, mine, &format!("{node}/pods"), &board);
    let writes_pods = door.objects(&object::pods());
    let mut agent = Agent { node, door, board, writes_pods, running: BTreeSet::new(), renewed: None };
    loop {
        agent.renew_if_due().await;
        cache::stirred(&mut [&mut pods]).await;
        if !pods.reached(0) {
            continue;
        }
        let seen = pods.informer.store().list();
        let seen: Vec<&Value> = seen.iter().map(|object| &object.value).collect();
        for action in decide(&seen, &agent.running) {
            agent.carry_out(action).await;
        }
        agent.board.runs(node, agent.running.len());
    }
}

struct Agent {
    node: &'static str,
    door: Door,
    board: Board,
    writes_pods: Objects,
    /// Uids of the pods that run here.
    running: BTreeSet<String>,
    /// Nothing before it is registered.
    renewed: Option<Instant>,
}

impl Agent {
    async fn carry_out(&mut self, action: Action<'_>) {
        match action {
            Action::Run(pod) => {
                if self.running.insert(uid(pod).to_owned()) {
                    self.board.started(uid(pod), self.node);
                }
                let done = self.writes_pods.patch_status(name(pod), &running_status(pod)).await;
                self.board.note_failure(self.node, done);
            }
            Action::Release(pod) => {
                self.running.remove(uid(pod));
                let done = self.writes_pods.patch(name(pod), &object::release(pod)).await;
                self.board.note_failure(self.node, done);
            }
            Action::Stop(uid) => {
                self.running.remove(&uid);
            }
        }
    }

    async fn renew_if_due(&mut self) {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() < RENEW_EVERY) {
            return;
        }
        if self.renewed.is_none() && !self.register().await {
            return;
        }
        let patch = json!({ "spec": { "renewTime": wall_clock::micro_time() } });
        let done = self.door.objects(&object::leases()).patch(self.node, &patch).await;
        if done.is_ok() {
            self.renewed = Some(Instant::now());
            self.board.renewed(self.node);
        }
        self.board.note_failure(self.node, done);
    }

    /// Whether the node and its lease are there.
    async fn register(&self) -> bool {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": self.node } });
        let spec = json!({ "holderIdentity": self.node, "leaseDurationSeconds": LEASE_SECONDS });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.node },
            "spec": spec,
        });
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "reason": "AgentReady" }] } });
        let nodes = self.door.objects(&object::nodes());
        self.there(&nodes, &node).await
            && self.there(&self.door.objects(&object::leases()), &lease).await
            && self.said(nodes.patch_status(self.node, &ready).await)
    }

    async fn there(&self, objects: &Objects, object: &Value) -> bool {
        match objects.create(object).await {
            Err(error) if error.is_already_exists() => true,
            done => self.said(done),
        }
    }

    fn said(&self, done: Result<Value, meerkat_client::listwatch::Error>) -> bool {
        let ok = done.is_ok();
        self.board.note_failure(self.node, done);
        ok
    }
}

/// The status of a pod whose containers all run.
fn running_status(pod: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let started = wall_clock::seconds();
    let container = |container: &Value| {
        json!({
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": true,
            "restartCount": 0,
            "state": { "running": { "startedAt": started } },
        })
    };
    let containers: Vec<Value> = containers.iter().map(container).collect();
    json!({ "status": {
        "phase": "Running",
        "startTime": started,
        "conditions": [{ "type": "Ready", "status": "True" }],
        "containerStatuses": containers,
    } })
}

#[cfg(test)]
mod tests {
    use super::super::object::sample::{going, pod};
    use super::*;

    fn check(pods: &[Value], running: &[&str], expected: &[&str]) {
        let pods: Vec<&Value> = pods.iter().collect();
        let running = running.iter().map(|name| format!("uid-{name}")).collect();
        let told = |action: &Action<'_>| match action {
            Action::Run(pod) => format!("run {}", name(pod)),
            Action::Release(pod) => format!("release {}", name(pod)),
            Action::Stop(uid) => format!("stop {uid}"),
        };
        assert_eq!(decide(&pods, &running).iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn bound_pods_run_and_others_stop() {
        check(&[pod("a", "n1", false)], &[], &["run a"]);
        check(&[pod("a", "n1", true)], &["a"], &[]);
        // Said to run, but this agent has forgotten it; and the other way round.
        check(&[pod("a", "n1", true)], &[], &["run a"]);
        check(&[pod("a", "n1", false)], &["a"], &["run a"]);
        check(&[], &["a"], &["stop uid-a"]);
    }

    #[test]
    fn a_pod_that_goes_is_let_go_once() {
        check(&[going(pod("a", "n1", true))], &["a"], &["release a"]);
        let mut released = going(pod("a", "n1", true));
        released["metadata"]["finalizers"] = json!([]);
        check(&[released], &[], &[]);
    }

    #[test]
    fn every_container_is_told_of() {
        let status = running_status(&pod("a", "n1", false));
        assert_eq!(status["status"]["containerStatuses"][0]["name"], "main");
        assert_eq!(status["status"]["containerStatuses"][0]["ready"], true);
    }
}
