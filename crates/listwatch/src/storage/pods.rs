//! What is done to a pod by creating something else: a Binding gives it its node, an Eviction deletes it if no
//! disruption budget forbids that.

use super::read::object;
use super::swap::{Absent, Decided};
use super::update::present;
use super::{Place, Storage, Writer, now};
use crate::write_options::DeleteOptions;
use crate::write_rules::{Decision, Write, stored_bytes};
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Cause, GroupResource, Reason, Refusal};
use meerkat_kubernetes::timestamp::Timestamp;
use meerkat_kubernetes::values;
use meerkat_watchcache::cacher::filter::{Filter, Scope};
use meerkat_watchcache::list_plan::{ListPlan, ReadAt};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Pods of one budget that are on their way out, as far as its controller knows.
const DISRUPTED_MAX: usize = 2_000;
const RETRY_S: u32 = 10;

/// How often an eviction is judged anew, because its pod was changed meanwhile.
const EVICTIONS_MAX: usize = 5;

/// Why a pod may go.
#[derive(Debug, PartialEq)]
enum Permit {
    /// Whatever becomes of it meanwhile.
    Given,
    /// As long as it is what was read: it does not run yet.
    NotRunning,
    /// The same, by the budget of this name: it is not ready.
    NotReady(String),
}

/// What a budget says to the eviction of one of its pods.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It does not count against the budget.
    Free,
    Counted(Object),
    Refused(Box<Refusal>),
}

impl Storage {
    pub async fn bind(&self, place: Place<'_>, body: Value, dry_run: bool) -> Result<(), Refusal> {
        let (binding, _) = Object::decode(body)?;
        let decide = |current: Option<&Object>| {
            let stored = current.ok_or_else(|| not_found(place))?;
            let decision = replaced(bound(stored, &binding, place.name, now())?, place.kind);
            Ok(Decided { decision, warnings: Vec::new(), schema: None })
        };
        self.swap(place, dry_run, Absent::Refused, decide).await.map(drop)
    }

    pub async fn evict(&self, place: Place<'_>, body: &Value, dry_run: bool) -> Result<(), Refusal> {
        check_name(body.pointer("/metadata/name").and_then(Value::as_str), place.name)?;
        let mut options = match body.get("deleteOptions").filter(|options| !options.is_null()) {
            Some(options) => DeleteOptions::from_body(options)?,
            None => DeleteOptions::default(),
        };
        options.dry_run |= dry_run;
        for _ in 1..EVICTIONS_MAX {
            let evicted = self.evict_as_read(place, &self.read_pod(place).await?, &options).await?;
            if evicted.is_ok() {
                return Ok(());
            }
        }
        self.evict_as_read(place, &self.read_pod(place).await?, &options).await?
    }

    async fn read_pod(&self, place: Place<'_>) -> Result<Object, Refusal> {
        let entry = self.get(place, ReadAt::MostRecent).await?;
        object(place.kind, entry.key(), entry.json(), entry.revision())
    }

    /// The inner refusal is one that another look at the pod may lift.
    pub(super) async fn evict_as_read(
        &self,
        place: Place<'_>,
        pod: &Object,
        options: &DeleteOptions,
    ) -> Result<Result<(), Refusal>, Refusal> {
        let permit = match is_guarded(pod) {
            true => self.ask_budget(place, pod, options.dry_run).await?,
            false if is_over(pod) => Permit::Given,
            false => Permit::NotRunning,
        };
        let mut options = options.clone();
        // The pod that was asked about, and no newer one of its name.
        options.preconditions.uid.get_or_insert_with(|| pod.uid().to_owned());
        let is_pinned = permit != Permit::Given && options.preconditions.resource_version.is_none();
        if is_pinned {
            options.preconditions.resource_version = Some(pod.resource_version().to_owned());
        }
        match (self.disrupt(place, options).await, permit) {
            (Err(refusal), Permit::NotRunning) if is_pinned && refusal.reason == Reason::Conflict => {
                Ok(Err(refusal))
            }
            (Err(refusal), Permit::NotReady(name)) if is_pinned && refusal.reason == Reason::Conflict => {
                Err(being_processed(&name))
            }
            (done, _) => done.map(Ok),
        }
    }

    /// Notes on the pod why it goes, and deletes it.
    async fn disrupt(&self, place: Place<'_>, mut options: DeleteOptions) -> Result<(), Refusal> {
        if !options.dry_run {
            let rules = self.rules(place, "").await?;
            let decide = |current: Option<&Object>| {
                let stored = present(current, &rules)?;
                rules.delete(stored, &options)?;
                let decision = match disrupted(stored, now()) {
                    Some(pod) => replaced(pod, place.kind),
                    None => Decision { write: Write::Nothing, object: stored.clone() },
                };
                Ok(Decided { decision, warnings: Vec::new(), schema: None })
            };
            let noted = self.swap(place, false, Absent::Refused, decide).await?.object;
            if let Some(version) = &mut options.preconditions.resource_version {
                noted.resource_version().clone_into(version);
            }
        }
        self.delete(place, &options).await.map(drop)
    }

    async fn ask_budget(&self, place: Place<'_>, pod: &Object, dry_run: bool) -> Result<Permit, Refusal> {
        let registry = self.kinds.now();
        let Some(kind) = registry.by_resource("policy", "v1", "poddisruptionbudgets").cloned() else {
            return Ok(Permit::Given);
        };
        let filter = Filter::new(Scope::namespace(place.namespace), Vec::new());
        let plan = ListPlan { at: ReadAt::MostRecent, resume: None, limit: None };
        let mut names = Vec::new();
        for entry in self.list(&kind, &filter, &plan).await?.entries {
            let budget = object(&kind, entry.key(), entry.json(), entry.revision())?;
            if guards(&budget, pod) {
                names.push(entry.name().to_owned());
            }
        }
        match names.as_slice() {
            [] => Ok(Permit::Given),
            [name] => self.count(&kind, name, place, pod, dry_run).await,
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                           support.";
                Err(Refusal::new(Reason::InternalError, why))
            }
        }
    }

    /// Takes one disruption from the budget. That is the door's to do, whoever evicts.
    async fn count(
        &self,
        kind: &Arc<Kind>,
        name: &str,
        pod_place: Place<'_>,
        pod: &Object,
        dry_run: bool,
    ) -> Result<Permit, Refusal> {
        let place = Place { kind, namespace: pod_place.namespace, name, writer: Writer::Door };
        let rules = self.rules(place, "").await?;
        let mut permit = Permit::Given;
        let decide = |current: Option<&Object>| {
            permit = Permit::Given;
            let budget = present(current, &rules)?;
            let decision = match verdict(budget, pod, now()) {
                Verdict::Refused(refusal) => return Err(*refusal),
                Verdict::Free => {
                    permit = Permit::NotReady(name.to_owned());
                    Decision { write: Write::Nothing, object: budget.clone() }
                }
                Verdict::Counted(budget) => replaced(budget, kind),
            };
            Ok(Decided { decision, warnings: Vec::new(), schema: None })
        };
        self.swap(place, dry_run, Absent::Refused, decide).await?;
        Ok(permit)
    }
}

fn not_found(place: Place<'_>) -> Refusal {
    Refusal::not_found(&place.kind.group_resource(), place.name)
}

fn replaced(object: Object, kind: &Kind) -> Decision {
    Decision { write: Write::Replace(stored_bytes(&object, kind)), object }
}

fn check_name(said: Option<&str>, name: &str) -> Result<(), Refusal> {
    match said.filter(|said| !said.is_empty() && *said != name) {
        Some(_) => Err(Refusal::bad_request("name in URL does not match name in the object")),
        None => Ok(()),
    }
}

/// The pod on its node. Only one that has none, and is not held back, is given one.
fn bound(pod: &Object, binding: &Object, name: &str, now: Timestamp) -> Result<Object, Refusal> {
    check_name(Some(binding.name()), name)?;
    let conflict = |why: &str| Err(Refusal::conflict(&GroupResource::new("", "pods/binding"), name, why));
    let target = |field: &str| {
        let value = binding.get("target").and_then(|target| target.get(field));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let mut causes = Vec::new();
    if !matches!(target("kind"), "" | "Node") {
        causes.push(Cause::not_supported("target.kind", &json!(target("kind")), &["Node", "<empty>"]));
    }
    if target("name").is_empty() {
        causes.push(Cause::required("target.name", ""));
    }
    if !causes.is_empty() {
        return Err(Refusal::invalid("", "Binding", name, causes));
    }
    for (said, is) in [(binding.uid(), pod.uid()), (binding.resource_version(), pod.resource_version())] {
        if !said.is_empty() && said != is {
            return conflict("the pod is not the one that the binding names");
        }
    }
    let text = |path: &str| pod.get("spec").and_then(|spec| spec.get(path)).and_then(Value::as_str);
    if pod.is_being_deleted() {
        return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = text("nodeName").filter(|node| !node.is_empty()) {
        return conflict(&format!("pod {name} is already assigned to node {node:?}"));
    }
    let gates = pod.get("spec").and_then(|spec| spec.get("schedulingGates")).and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    let mut spec = map(pod.get("spec"));
    spec.insert("nodeName".to_owned(), json!(target("name")));
    bound.set("spec", Some(Value::Object(spec)));
    for (name, value) in binding.annotations() {
        bound.set_annotation(name, Some(value));
    }
    for (name, value) in binding.labels() {
        bound.set_label(name, value);
    }
    let mut status = map(pod.get("status"));
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastTransitionTime": now.to_seconds().to_string(),
    }));
    status.insert("conditions".to_owned(), Value::Array(conditions));
    bound.set("status", Some(Value::Object(status)));
    Ok(bound)
}

fn map(value: Option<&Value>) -> Map<String, Value> {
    value.and_then(Value::as_object).cloned().unwrap_or_default()
}

/// One that does not run, or goes already, disturbs nothing.
fn is_guarded(pod: &Object) -> bool {
    let phase = pod.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str);
    !pod.is_being_deleted() && !matches!(phase, None | Some("" | "Pending" | "Succeeded" | "Failed"))
}

/// It has run, or goes already: it can not become ready again.
fn is_over(pod: &Object) -> bool {
    let phase = pod.get("status").and_then(|status| status.get("phase")).and_then(Value::as_str);
    pod.is_being_deleted() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// With the condition that says so, unless it has it.
fn disrupted(pod: &Object, now: Timestamp) -> Option<Object> {
    let mut noted = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": now.to_seconds().to_string(),
    });
    let mut status = map(pod.get("status"));
    let mut conditions = match status.remove("conditions") {
        Some(Value::Array(conditions)) => conditions,
        _ => Vec::new(),
    };
    match conditions.iter_mut().find(|known| known["type"] == noted["type"]) {
        Some(known) => {
            if known["status"] == noted["status"] {
                noted["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            if *known == noted {
                return None;
            }
            *known = noted;
        }
        None => conditions.push(noted),
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
    let mut pod = pod.clone();
    pod.set("status", Some(Value::Object(status)));
    Some(pod)
}

fn guards(budget: &Object, pod: &Object) -> bool {
    let labels: Map<String, Value> =
        pod.labels().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let selector = budget.get("spec").and_then(|spec| spec.get("selector")).filter(|given| !given.is_null());
    selector.is_some_and(|selector| values::selects(selector, &Value::Object(labels)))
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

fn too_many(why: String) -> Refusal {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut refusal = Refusal::too_many_requests(message, RETRY_S);
    refusal.causes = vec![Cause { reason: "DisruptionBudget", message: why, field: String::new() }];
    refusal
}

fn being_processed(budget: &str) -> Refusal {
    too_many(format!("The disruption budget {budget} is still being processed by the server."))
}

fn verdict(budget: &Object, pod: &Object, now: Timestamp) -> Verdict {
    let name = budget.name();
    let mut status = map(budget.get("status"));
    let number = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or_default();
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    if !is_ready(pod) {
        let policy = budget.get("spec").and_then(|spec| spec.get("unhealthyPodEvictionPolicy"));
        let always = policy.and_then(Value::as_str) == Some("AlwaysAllow");
        if always || (desired <= healthy && 0 < desired) {
            return Verdict::Free;
        }
    }
    let too_many = |why: String| Verdict::Refused(Box::new(too_many(why)));
    if number("observedGeneration") < budget.generation() {
        return Verdict::Refused(Box::new(being_processed(name)));
    }
    let allowed = number("disruptionsAllowed");
    if allowed <= 0 {
        let why =
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        return too_many(why);
    }
    let mut disrupted = map(status.get("disruptedPods"));
    if DISRUPTED_MAX <= disrupted.len() {
        return too_many(format!("The disruption budget {name} has too many pods that are being evicted"));
    }
    disrupted.insert(pod.name().to_owned(), json!(now.to_seconds().to_string()));
    status.insert("disruptionsAllowed".to_owned(), json!(allowed - 1));
    status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
    let mut counted = budget.clone();
    counted.set("status", Some(Value::Object(status)));
    Verdict::Counted(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 0, nanos: 0 };

    fn object(value: Value) -> Object {
        Object::decode(value).expect("a good object").0
    }

    fn pod(spec: Value, status: Value) -> Object {
        let metadata = json!({ "name": "p", "uid": "u", "resourceVersion": "7", "labels": { "app": "a" } });
        object(json!({ "metadata": metadata, "spec": spec, "status": status }))
    }

    #[test]
    fn binding_assigns_a_pod_once() {
        let binding = |value: Value| bound(&pod(json!({}), json!({})), &object(value), "p", NOW);
        let made = binding(json!({
            "metadata": { "name": "p", "uid": "u", "annotations": { "a": "b" } }, "target": { "kind": "Node", "name": "n" },
        }));
        let made = made.expect("bound");
        assert_eq!(made.get("spec"), Some(&json!({ "nodeName": "n" })));
        assert_eq!(made.annotations().collect::<Vec<_>>(), [("a", "b")]);
        let condition = &made.get("status").expect("a status")["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
        let good = || json!({ "target": { "name": "n" } });
        for (spec, why) in [
            (json!({ "nodeName": "m" }), "is already assigned to node \"m\""),
            (json!({ "schedulingGates": [{ "name": "g" }] }), "has non-empty .spec.schedulingGates"),
        ] {
            let refusal = bound(&pod(spec, json!({})), &object(good()), "p", NOW).expect_err(why);
            assert!(refusal.code() == 409 && refusal.message.contains(why), "{refusal}");
        }
        for (value, code) in [
            (json!({}), 422),
            (json!({ "target": { "name": "n", "kind": "Shelf" } }), 422),
            (json!({ "metadata": { "name": "q" }, "target": { "name": "n" } }), 400),
            (json!({ "metadata": { "uid": "v" }, "target": { "name": "n" } }), 409),
        ] {
            assert_eq!(binding(value.clone()).expect_err("refused").code(), code, "{value}");
        }
    }

    #[test]
    fn budget_counts_evictions_of_ready_pods() {
        let ready = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
        let (ready, unready) = (pod(json!({}), ready), pod(json!({}), json!({ "phase": "Running" })));
        let budget = |spec: Value, status: Value| {
            object(json!({ "metadata": { "name": "b", "generation": 1 }, "spec": spec, "status": status }))
        };
        let status = |allowed: i64| {
            json!({
                "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2,
            })
        };
        let Verdict::Counted(counted) = verdict(&budget(json!({}), status(1)), &ready, NOW) else {
            panic!("one is allowed")
        };
        let after = counted.get("status").expect("a status");
        assert_eq!(
            (&after["disruptionsAllowed"], after["disruptedPods"]["p"].is_string()),
            (&json!(0), true)
        );
        for (status, why) in [
            (status(0), "needs 2 healthy pods and has 2 currently"),
            (json!({ "disruptionsAllowed": 1 }), "is still being processed by the server"),
        ] {
            let Verdict::Refused(refusal) = verdict(&budget(json!({}), status), &ready, NOW) else {
                panic!("{why}")
            };
            assert_eq!((refusal.code(), refusal.retry_after_s), (429, Some(RETRY_S)));
            assert!(refusal.causes[0].message.contains(why), "{:?}", refusal.causes);
        }
        assert_eq!(verdict(&budget(json!({}), status(0)), &unready, NOW), Verdict::Free);
        let always = json!({ "unhealthyPodEvictionPolicy": "AlwaysAllow" });
        assert_eq!(verdict(&budget(always, json!({})), &unready, NOW), Verdict::Free);
    }
}
