//! The scheduler: every pod without a node gets the one with the least to do.

use std::collections::BTreeMap;

use meerkat_client::listwatch::Door;
use serde_json::{Value, json};

use super::board::Board;
use super::cache::{self, Cache};
use super::object::{self, is_going, name, node_of, version};

/// Which of the pending pods goes where: pods by name, each to the node with the fewest, of equals the
/// first. Nothing is placed while no node is ready.
pub fn place<'a>(pending: &[&'a Value], bound: &[&Value], nodes: &[&Value]) -> Vec<(&'a Value, String)> {
    let ready = nodes.iter().filter(|node| is_ready(node) && !is_going(node));
    let mut loads: BTreeMap<&str, usize> = ready.map(|node| (name(node), 0)).collect();
    for pod in bound {
        if let Some(load) = loads.get_mut(node_of(pod)) {
            *load += 1;
        }
    }
    let mut waiting: Vec<&Value> =
        pending.iter().copied().filter(|pod| node_of(pod).is_empty() && !is_going(pod)).collect();
    waiting.sort_by(|one, other| name(one).cmp(name(other)));
    let mut placed = Vec::new();
    for pod in waiting {
        let Some((node, load)) = loads.iter_mut().min_by_key(|(_, load)| **load) else { break };
        *load += 1;
        placed.push((pod, (*node).to_owned()));
    }
    placed
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

pub async fn run(door: Door, board: Board) {
    let mut pending =
        Cache::start(&door, object::pods().fields("spec.nodeName="), "scheduler/pending", &board);
    let mut bound = Cache::start(&door, object::pods().fields("spec.nodeName!="), "scheduler/bound", &board);
    let mut nodes = Cache::start(&door, object::nodes(), "scheduler/nodes", &board);
    let pods = door.objects(&object::pods());
    // Both caches must show its last choice, or it would choose by loads of yesterday.
    let mut written = 0;
    loop {
        cache::stirred(&mut [&mut pending, &mut bound, &mut nodes]).await;
        if !(pending.reached(written) && bound.reached(written) && nodes.reached(0)) {
            continue;
        }
        let stores = [&pending, &bound, &nodes].map(|cache| cache.informer.store().list());
        let [waiting, placed, nodes] = stores.each_ref().map(|objects| {
            let values: Vec<&Value> = objects.iter().map(|object| &object.value).collect();
            values
        });
        for (pod, node) in place(&waiting, &placed, &nodes) {
            // Only as it was seen: a pod is bound once, or not at all.
            let version_seen = &pod["metadata"]["resourceVersion"];
            let patch =
                json!({ "metadata": { "resourceVersion": version_seen }, "spec": { "nodeName": node } });
            let done = pods.patch(name(pod), &patch).await;
            if let Ok(pod) = &done {
                written = written.max(version(pod));
            }
            board.note_failure("scheduler", done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::object::sample::{going, pod};
    use super::*;

    fn node(name: &str, ready: bool) -> Value {
        let status = if ready { "True" } else { "False" };
        let conditions = json!([{ "type": "Ready", "status": status }]);
        json!({ "metadata": { "name": name }, "status": { "conditions": conditions } })
    }

    fn check(pending: &[Value], bound: &[Value], nodes: &[Value], expected: &[(&str, &str)]) {
        let [pending, bound, nodes] = [pending, bound, nodes].map(|all| all.iter().collect::<Vec<_>>());
        let placed = place(&pending, &bound, &nodes);
        let placed: Vec<(&str, &str)> = placed.iter().map(|(pod, node)| (name(pod), node.as_str())).collect();
        assert_eq!(placed, expected);
    }

    #[test]
    fn the_least_loaded_node_is_chosen_and_its_load_counts_at_once() {
        let pending = [pod("c", "", false), pod("a", "", false), pod("b", "", false)];
        let bound = [pod("x", "n1", true)];
        let nodes = [node("n1", true), node("n2", true)];
        check(&pending, &bound, &nodes, &[("a", "n2"), ("b", "n1"), ("c", "n2")]);
    }

    #[test]
    fn nodes_that_are_not_ready_and_pods_that_go_are_left_out() {
        let pending = [pod("a", "", false), going(pod("b", "", false))];
        check(&pending, &[], &[node("n1", false), node("n2", true)], &[("a", "n2")]);
        check(&pending, &[], &[node("n1", false)], &[]);
    }
}
