//! The replica controller: as many pods as each ReplicaSet wants, no more and no fewer.
//!
//! It acts on what its caches show, and only when they show its own last writes: otherwise it would make
//! a pod twice that it has not yet seen.

use meerkat_client::Fate;
use meerkat_client::listwatch::{Door, Objects};
use serde_json::{Value, json};

use super::board::Board;
use super::cache::{self, Cache};
use super::object::{self, is_going, is_owned_by, is_running, name, version};

/// What to do about a difference.
#[derive(Debug, PartialEq)]
pub enum Action {
    Create(Value),
    Delete(String),
    /// A pod that goes and that no agent ever ran.
    Release(Value),
    Status {
        set: String,
        status: Value,
    },
}

/// What is wanted, held against what is there.
pub fn decide(sets: &[&Value], pods: &[&Value]) -> Vec<Action> {
    let unrun =
        |pod: &&&Value| is_going(pod) && object::node_of(pod).is_empty() && object::has_finalizer(pod);
    let mut actions: Vec<Action> =
        pods.iter().filter(unrun).map(|pod| Action::Release((*pod).clone())).collect();
    for set in sets.iter().filter(|set| !is_going(set)) {
        let mut own: Vec<&Value> =
            pods.iter().copied().filter(|pod| is_owned_by(pod, set) && !is_going(pod)).collect();
        let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1) as usize;
        actions.extend((own.len()..wanted).map(|_| Action::Create(object::pod_of(set))));
        // Those that do not run yet go first, then the youngest.
        own.sort_by_key(|pod| (is_running(pod), std::cmp::Reverse(version(pod))));
        let excess = own.len().saturating_sub(wanted);
        actions.extend(own.iter().take(excess).map(|pod| Action::Delete(name(pod).to_owned())));
        actions.extend(status(set, &own));
    }
    actions
}

/// The status that the set should have, if it does not.
fn status(set: &Value, own: &[&Value]) -> Option<Action> {
    let ready = own.iter().filter(|pod| is_running(pod)).count();
    let wanted = json!({
        "replicas": own.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "fullyLabeledReplicas": own.len(),
        "observedGeneration": set["metadata"]["generation"],
    });
    let differs = wanted.as_object()?.iter().any(|(field, value)| &set["status"][field] != value);
    differs.then(|| Action::Status { set: name(set).to_owned(), status: wanted })
}

pub async fn run(door: Door, board: Board) {
    let mut sets = Cache::start(&door, object::replica_sets(), "replicas/replicasets", &board);
    let mut pods = Cache::start(&door, object::pods(), "replicas/pods", &board);
    let mut controller = Controller {
        writes_sets: door.objects(&object::replica_sets()),
        writes_pods: door.objects(&object::pods()),
        board,
    };
    let mut written = Written::default();
    loop {
        cache::stirred(&mut [&mut sets, &mut pods]).await;
        if sets.reached(written.sets) && pods.reached(written.pods) {
            let (seen_sets, seen_pods) = (sets.informer.store().list(), pods.informer.store().list());
            let seen_sets: Vec<&Value> = seen_sets.iter().map(|object| &object.value).collect();
            let seen_pods: Vec<&Value> = seen_pods.iter().map(|object| &object.value).collect();
            for action in decide(&seen_sets, &seen_pods) {
                controller.carry_out(action, &mut written).await;
            }
        }
    }
}

/// The last of its own writes, which the caches have to show before it acts again.
#[derive(Default)]
struct Written {
    sets: i64,
    pods: i64,
}

struct Controller {
    writes_sets: Objects,
    writes_pods: Objects,
    board: Board,
}

impl Controller {
    async fn carry_out(&mut self, action: Action, written: &mut Written) {
        let done = match &action {
            Action::Create(pod) => self.writes_pods.create(pod).await,
            Action::Delete(name) => self.writes_pods.delete(name).await,
            Action::Release(pod) => self.writes_pods.patch(name(pod), &object::release(pod)).await,
            Action::Status { set, status } => {
                let done = self.writes_sets.patch_status(set, &json!({ "status": status })).await;
                if let Ok(set) = &done {
                    written.sets = written.sets.max(version(set));
                }
                return self.board.note_failure("replicas", done);
            }
        };
        match &done {
            Ok(pod) => written.pods = written.pods.max(version(pod)),
            // It may have happened: whatever is there now has to be seen first.
            Err(error) if error.fate() == Fate::Unknown => {
                if let Ok(there) = self.writes_pods.list().await {
                    written.pods = there.items.iter().map(version).fold(written.pods, i64::max);
                }
            }
            Err(_) => {}
        }
        self.board.note_failure("replicas", done);
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::sample::{going, pod, set};
    use super::*;

    fn names(actions: &[Action]) -> Vec<String> {
        let told = |action: &Action| match action {
            Action::Create(pod) => {
                format!("create {}", pod["metadata"]["generateName"].as_str().unwrap_or(""))
            }
            Action::Delete(name) => format!("delete {name}"),
            Action::Release(pod) => format!("release {}", name(pod)),
            Action::Status { status, .. } => {
                format!("status {}/{}", status["readyReplicas"], status["replicas"])
            }
        };
        actions.iter().map(told).collect()
    }

    fn check(wanted: usize, pods: &[Value], expected: &[&str]) {
        let pods: Vec<&Value> = pods.iter().collect();
        assert_eq!(names(&decide(&[&set(wanted)], &pods)), expected);
    }

    #[test]
    fn missing_pods_are_made_and_excess_ones_deleted() {
        check(2, &[], &["create web-", "create web-", "status 0/0"]);
        let three = [pod("a", "n1", true), pod("b", "", false), pod("c", "n2", true)];
        check(3, &three, &["status 2/3"]);
        check(2, &three, &["delete b", "status 2/3"]);
        check(0, &three[..1], &["delete a", "status 1/1"]);
    }

    #[test]
    fn the_youngest_of_those_that_run_goes_first() {
        let (old, mut young) = (pod("a", "n1", true), pod("b", "n1", true));
        young["metadata"]["resourceVersion"] = json!("70");
        check(1, &[young, old], &["delete b", "status 2/2"]);
    }

    #[test]
    fn a_pod_that_goes_is_replaced_and_let_go_if_nobody_runs_it() {
        check(1, &[going(pod("a", "n1", true))], &["create web-", "status 0/0"]);
        check(1, &[going(pod("a", "", false))], &["release a", "create web-", "status 0/0"]);
    }

    #[test]
    fn pods_of_others_and_sets_that_go_are_left_alone() {
        let mut other = pod("a", "n1", true);
        other["metadata"]["ownerReferences"][0]["uid"] = json!("set-2");
        check(0, &[other], &["status 0/0"]);
        assert_eq!(decide(&[&going(set(3))], &[&pod("a", "n1", true)]), []);
    }

    #[test]
    fn a_status_that_is_right_is_not_written_again() {
        let mut set = set(1);
        let running = pod("a", "n1", true);
        let Some(Action::Status { status, .. }) = status(&set, &[&running]) else { panic!("none yet") };
        set["status"] = status;
        assert_eq!(decide(&[&set], &[&running]), []);
    }
}
