//! Server-side apply: a client says what it wants of an object, and owns what it said.
//!
//! What it says is merged into the object. What it said the last time, says no more, and nobody else owns,
//! is taken out. A field that somebody else owns and that would change is a conflict, unless the client
//! forces its way: then it is the new owner. Two who want the same value own the field together.
//!
//! Every other write is tracked too: who changes a field owns it, and who owned it before does not.
//! A change that is none leaves the entries as they are, time and all, so that it is no write.

use super::field_set::FieldSet;
use super::last_applied;
use super::managers::{Manager, Managers, Operation, Owned, stamp};
use super::typed::{Difference, Place, fields_of, merge, prune};
use crate::object::Object;
use crate::status::{Cause, GroupResource, Reason, Refusal};
use crate::timestamp::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bytes of a manager's name.
pub const MANAGER_NAME_MAX: usize = 128;
/// Who owns the fields of an object that nobody tracked before it was first applied.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Conflicts that are told of by name.
const CONFLICTS_TOLD_MAX: usize = 64;

/// Who writes, and by which way.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The parameter `fieldManager`, or for writes that are no apply what stands in for it.
    pub manager: &'a str,
    pub api_version: &'a str,
    /// `status` and the like; empty for the object itself.
    pub subresource: &'a str,
    /// The paths of the object that this way cannot write, such as `status`.
    pub ignored: &'a [&'a [&'a str]],
    pub now: Timestamp,
    /// [`Place::BUILT_IN`], or the root of the kind's schema.
    pub place: Place<'a>,
}

impl Writer<'_> {
    fn identity(&self, operation: Operation) -> Manager {
        let name = if self.manager.is_empty() { "unknown" } else { self.manager };
        Manager {
            name: name.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// What nobody owns is taken out of a set.
    fn strip(&self, set: &mut FieldSet) {
        let metadata = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
        ];
        for field in ["apiVersion", "kind"] {
            set.forget(&[field]);
        }
        for path in self.ignored {
            set.forget(path);
        }
        for field in metadata {
            set.forget(&["metadata", field]);
        }
        let step = super::field_set::Step::Field("metadata".to_owned());
        if let Some(mut metadata) = set.children.remove(&step) {
            metadata.member = false;
            set.insert(step, metadata);
        }
        set.member = false;
    }

    fn difference(&self, old: &Object, new: &Object) -> Difference {
        let mut difference = Difference::between(self.place, &untracked(old), &untracked(new));
        self.strip(&mut difference.changed);
        self.strip(&mut difference.removed);
        difference
    }
}

/// Who owns what is no part of what is owned.
pub(super) fn untracked(object: &Object) -> Value {
    let mut object = object.clone();
    object.set_managed_fields(Vec::new());
    object.into_value()
}

/// The object that `config` makes of `live`, or by itself. It still has to go through the write rules.
pub fn apply(
    live: Option<&Object>,
    config: Object,
    what: &GroupResource,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Object, Refusal> {
    check(&config, live, what, writer)?;
    let me = writer.identity(Operation::Apply);
    let nothing = Object::default();
    let old = live.unwrap_or(&nothing);
    let mut managers = Managers::of(old);
    if live.is_some() && managers.is_empty() {
        own_all(&mut managers, old, writer);
    }
    let annotation = last_applied::annotation_of(writer, old, &config);
    let config = without_nulls(config.into_value());
    let said = fields_of(writer.place, &config);
    let mut merged = merge(writer.place, untracked(old), config)?;
    let last = managers.0.get(&me).cloned().unwrap_or_default();
    // What names the object is said each time and owned by nobody, so it counts before it is stripped.
    let mut kept = managers.others(&me);
    kept.add(&said);
    prune(writer.place, &mut merged, &last.fields, &kept);
    let (mut object, _) = Object::decode(merged)?;

    let difference = writer.difference(old, &object);
    let released = if force { FieldSet::default() } else { last_applied::released(writer, old) };
    let mut contested: BTreeMap<&Manager, FieldSet> = BTreeMap::new();
    for (manager, owned) in managers.0.iter().filter(|(manager, _)| **manager != me) {
        let mut both = owned.fields.intersection(&difference.changed);
        both.subtract(&released);
        if !both.is_empty() {
            contested.insert(manager, both);
        }
    }
    if !force && !contested.is_empty() {
        return Err(conflict(&contested, &managers));
    }
    managers.take(&difference.changed, &me);
    managers.take(&difference.removed, &me);
    let mut fields = said;
    writer.strip(&mut fields);
    let is_change = difference != Difference::default() || fields != last.fields;
    let time = if is_change || last.time.is_empty() { stamp(writer.now) } else { last.time };
    managers.0.remove(&me);
    if !fields.is_empty() {
        managers.0.insert(me, Owned { fields, time });
    }
    object.set_managed_fields(managers.encode());
    if let Some(annotation) = annotation {
        last_applied::put(&mut object, &annotation);
    }
    Ok(object)
}

fn check(
    config: &Object,
    live: Option<&Object>,
    what: &GroupResource,
    writer: &Writer<'_>,
) -> Result<(), Refusal> {
    check_manager(writer.manager)?;
    if config.api_version() != writer.api_version {
        return Err(Refusal::bad_request(format!(
            "the applied object is of version {:?}, and {:?} is what is asked for",
            config.api_version(),
            writer.api_version
        )));
    }
    if !config.managed_fields().is_empty() {
        return Err(Refusal::bad_request("metadata.managedFields must be nil"));
    }
    if live.is_none() && !config.uid().is_empty() {
        let why = format!("the object is to have the uid {}, and there is none", config.uid());
        return Err(Refusal::conflict(what, config.name(), &why));
    }
    Ok(())
}

/// Whoever applies says who it is.
fn check_manager(name: &str) -> Result<(), Refusal> {
    let cause = if name.is_empty() {
        Cause::required("fieldManager", "is required for apply patch")
    } else if MANAGER_NAME_MAX < name.len() {
        Cause::too_long("fieldManager", MANAGER_NAME_MAX)
    } else if name.chars().any(char::is_control) {
        Cause::invalid("fieldManager", &json!(name), "has characters that cannot be printed")
    } else {
        return Ok(());
    };
    Err(Refusal::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]))
}

fn own_all(managers: &mut Managers, old: &Object, writer: &Writer<'_>) {
    let mut fields = fields_of(writer.place, &untracked(old));
    // Whichever way it came: nobody knows any more.
    Writer { ignored: &[], ..*writer }.strip(&mut fields);
    let manager = Manager {
        name: BEFORE_FIRST_APPLY.to_owned(),
        operation: Operation::Update,
        api_version: writer.api_version.to_owned(),
        subresource: String::new(),
    };
    if !fields.is_empty() {
        managers.0.insert(manager, Owned { fields, time: stamp(writer.now) });
    }
}

/// A null in what is applied wants nothing and owns nothing.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

fn conflict(contested: &BTreeMap<&Manager, FieldSet>, managers: &Managers) -> Refusal {
    let (mut causes, mut lines, mut count) = (Vec::new(), Vec::new(), 0);
    for (manager, fields) in contested {
        let shown = manager.show(managers.0.get(manager).map_or("", |owned| owned.time.as_str()));
        let paths = fields.paths();
        count += paths.len();
        lines.push(format!("conflicts with {shown}:"));
        for path in paths {
            if CONFLICTS_TOLD_MAX <= causes.len() {
                break;
            }
            lines.push(format!("- {path}"));
            let message = format!("conflict with {shown}");
            causes.push(Cause { reason: "FieldManagerConflict", message, field: path });
        }
    }
    let message = match causes.as_slice() {
        [one] if count == 1 => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        _ => format!("Apply failed with {count} conflicts: {}", lines.join("\n")),
    };
    let mut refusal = Refusal::new(Reason::Conflict, message);
    refusal.causes = causes;
    refusal
}

/// Notes in `object`, which is about to be written, who changed what. An object that nobody ever tracked
/// stays untracked; a new one (`live` is `None`) is tracked from its first day.
pub fn track(live: Option<&Object>, object: &mut Object, writer: &Writer<'_>) {
    let nothing = Object::default();
    let old = live.unwrap_or(&nothing);
    // A client may edit the entries, or clear them by a single empty one. By the way of a subresource it
    // may not, and one that sends none means no harm.
    let is_reset = writer.subresource.is_empty() && object.managed_fields() == [json!({})];
    let sent = if writer.subresource.is_empty() { Managers::decode(object.managed_fields()) } else { None };
    let mut managers = match sent {
        _ if is_reset => Managers::default(),
        Some(sent) if !sent.is_empty() => sent,
        _ => Managers::of(old),
    };
    if managers.is_empty() && live.is_some() {
        object.set_managed_fields(Vec::new());
        return;
    }
    let difference = writer.difference(old, object);
    let me = writer.identity(Operation::Update);
    let mut mine = managers.0.get(&me).cloned().unwrap_or_default();
    managers.take(&difference.changed, &me);
    managers.take(&difference.removed, &me);
    mine.fields.subtract(&difference.removed);
    mine.fields.add(&difference.changed);
    if !difference.changed.is_empty() {
        mine.time = stamp(writer.now);
    }
    managers.0.remove(&me);
    if !mine.fields.is_empty() {
        managers.0.insert(me, mine);
    }
    managers.cap();
    object.set_managed_fields(managers.encode());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::decode(value).expect("a good object").0
    }

    fn writer(manager: &str, now: i64) -> Writer<'_> {
        Writer {
            manager,
            api_version: "v1",
            subresource: "",
            ignored: &[&["status"]],
            now: Timestamp { seconds: now, nanos: 0 },
            place: Place::BUILT_IN,
        }
    }

    fn config(data: Value) -> Object {
        object(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data }))
    }

    fn what() -> GroupResource {
        GroupResource::new("", "configmaps")
    }

    fn by(live: Option<&Object>, manager: &str, now: i64, data: Value) -> Result<Object, Refusal> {
        apply(live, config(data), &what(), &writer(manager, now), false)
    }

    fn owners(object: &Object) -> Vec<(String, Vec<String>)> {
        let managers = Managers::of(object).0.into_iter();
        managers.map(|(manager, owned)| (manager.name, owned.fields.paths())).collect()
    }

    fn owner(name: &str, paths: &[&str]) -> (String, Vec<String>) {
        (name.to_owned(), paths.iter().map(|path| (*path).to_owned()).collect())
    }

    #[test]
    fn who_applies_owns_what_it_said() {
        let made = by(None, "me", 1, json!({ "a": "1" })).expect("good");
        assert_eq!(made.get("data"), Some(&json!({ "a": "1" })));
        let expected = json!([{
            "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": "1970-01-01T00:00:01Z",
            "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { "f:a": {} } },
        }]);
        assert_eq!(json!(made.managed_fields()), expected);
        let again = by(Some(&made), "me", 99, json!({ "a": "1" })).expect("good");
        assert_eq!(again, made, "the same again changes nothing, not even a time");
    }

    #[test]
    fn what_is_said_no_more_is_taken_out_unless_another_owns_it() {
        let made = by(None, "me", 1, json!({ "a": "1", "b": "2" })).expect("good");
        let both =
            by(Some(&made), "you", 2, json!({ "b": "2", "c": "3" })).expect("the same value is no conflict");
        assert_eq!(
            owners(&both),
            [owner("me", &[".data.a", ".data.b"]), owner("you", &[".data.b", ".data.c"])]
        );
        let less = by(Some(&both), "me", 3, json!({})).expect("good");
        assert_eq!(less.get("data"), Some(&json!({ "b": "2", "c": "3" })));
        assert_eq!(less.name(), "a");
        let none = by(Some(&less), "you", 4, json!({ "c": "3" })).expect("good");
        assert_eq!(none.get("data"), Some(&json!({ "c": "3" })));
    }

    #[test]
    fn another_value_of_a_field_that_is_owned_is_a_conflict() {
        let made = by(None, "me", 1, json!({ "a": "1", "b": "1" })).expect("good");
        let refusal = by(Some(&made), "you", 2, json!({ "a": "2" })).expect_err("a conflict");
        assert_eq!((refusal.code(), refusal.reason), (409, Reason::Conflict));
        assert_eq!(refusal.message, "Apply failed with 1 conflict: conflict with \"me\": .data.a");
        let cause = &refusal.causes[0];
        assert_eq!((cause.reason, cause.field.as_str()), ("FieldManagerConflict", ".data.a"));
        assert_eq!(cause.message, "conflict with \"me\"");
        let refusal = by(Some(&made), "you", 2, json!({ "a": "2", "b": "2" })).expect_err("two");
        assert_eq!(
            refusal.message,
            "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.a\n- .data.b"
        );

        let forced = apply(Some(&made), config(json!({ "a": "2" })), &what(), &writer("you", 2), true)
            .expect("forced");
        assert_eq!(owners(&forced), [owner("me", &[".data.b"]), owner("you", &[".data.a"])]);
        assert_eq!(forced.get("data"), Some(&json!({ "a": "2", "b": "1" })));
    }

    #[test]
    fn updates_take_what_they_change_and_are_named_with_their_time() {
        let mut made = by(None, "me", 1, json!({ "a": "1", "b": "1" })).expect("good");
        let before = made.clone();
        made.set("data", Some(json!({ "a": "2", "c": "1" })));
        track(Some(&before), &mut made, &writer("hand", 5));
        assert_eq!(owners(&made), [owner("hand", &[".data.a", ".data.c"])]);
        let refusal = by(Some(&made), "me", 6, json!({ "a": "1" })).expect_err("a conflict");
        assert_eq!(refusal.causes[0].message, "conflict with \"hand\" using v1 at 1970-01-01T00:00:05Z");
        let mut same = made.clone();
        track(Some(&made), &mut same, &writer("hand", 9));
        assert_eq!(same, made, "no change, no trace");
    }

    #[test]
    fn status_and_names_are_nobodys_by_this_way() {
        let mut new = object(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "labels": { "x": "y" }, "uid": "u" },
            "spec": { "n": 1 }, "status": { "phase": "x" },
        }));
        track(None, &mut new, &writer("hand", 1));
        assert_eq!(
            owners(&new),
            [owner("hand", &[".metadata.labels", ".metadata.labels.x", ".spec", ".spec.n"])]
        );
        let old = new.clone();
        new.set("status", Some(json!({ "phase": "y" })));
        let status =
            Writer { subresource: "status", ignored: &[&["metadata"], &["spec"]], ..writer("agent", 2) };
        track(Some(&old), &mut new, &status);
        let entry = new.managed_fields().iter().find(|entry| entry["manager"] == "agent").expect("an entry");
        assert_eq!(
            (&entry["subresource"], &entry["fieldsV1"]),
            (&json!("status"), &json!({ "f:status": { "f:phase": {} } }))
        );
    }

    #[test]
    fn what_was_there_before_the_first_apply_has_an_owner() {
        let old = object(
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "a": "1" } }),
        );
        let refusal = by(Some(&old), "me", 1, json!({ "a": "2" })).expect_err("a conflict");
        assert!(refusal.message.contains("\"before-first-apply\" using v1 at"), "{refusal}");
        let joined = by(Some(&old), "me", 1, json!({ "a": "1", "b": "2" })).expect("good");
        assert_eq!(
            owners(&joined),
            [owner("before-first-apply", &[".data.a"]), owner("me", &[".data.a", ".data.b"])]
        );
        let mut untracked = old.clone();
        untracked.set("data", Some(json!({})));
        track(Some(&old), &mut untracked, &writer("hand", 1));
        assert!(untracked.managed_fields().is_empty(), "who never tracked does not begin with an update");
    }

    #[test]
    fn elements_of_lists_have_owners_of_their_own() {
        let pod = |containers: Value| {
            object(
                json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": { "containers": containers } }),
            )
        };
        let of = |live: Option<&Object>, manager: &str, containers: Value| {
            apply(live, pod(containers), &what(), &writer(manager, 1), false).expect("good")
        };
        let made = of(None, "me", json!([{ "name": "x", "image": "1" }]));
        let both = of(Some(&made), "mesh", json!([{ "name": "side", "image": "2" }]));
        let names = |object: &Object| {
            let containers =
                object.get("spec").and_then(|spec| spec.get("containers")).and_then(Value::as_array);
            containers
                .into_iter()
                .flatten()
                .filter_map(|one| one["name"].as_str().map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&both), ["x", "side"]);
        let swapped = of(Some(&both), "me", json!([{ "name": "y", "image": "3" }]));
        let mut left = names(&swapped);
        left.sort();
        assert_eq!(left, ["side", "y"], "mine went, the other's stays");
        assert_eq!(names(&of(Some(&swapped), "mesh", json!([]))), ["y"]);
    }

    #[test]
    fn bad_applies_are_refused() {
        let refused = |value: Value, manager: &str| {
            apply(None, object(value), &what(), &writer(manager, 1), false).expect_err("a refusal").code()
        };
        let good = || json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } });
        assert_eq!(refused(good(), ""), 422);
        assert_eq!(refused(good(), &"m".repeat(129)), 422);
        assert_eq!(refused(good(), "a\nb"), 422);
        assert_eq!(refused(json!({ "apiVersion": "v2" }), "m"), 400);
        let with = |field: &str, value: Value| {
            let mut whole = good();
            whole["metadata"][field] = value;
            whole
        };
        assert_eq!(refused(with("managedFields", json!([{ "manager": "x" }])), "m"), 400);
        assert_eq!(refused(with("uid", json!("u")), "m"), 409);
    }

    #[test]
    fn entries_may_be_cleared_and_are_not_lost_by_those_who_know_none() {
        let made = by(None, "me", 1, json!({ "a": "1" })).expect("good");
        let mut cleared = made.clone();
        cleared.set_managed_fields(vec![json!({})]);
        track(Some(&made), &mut cleared, &writer("hand", 2));
        assert!(cleared.managed_fields().is_empty());
        let mut ignorant = made.clone();
        ignorant.set_managed_fields(Vec::new());
        track(Some(&made), &mut ignorant, &writer("hand", 2));
        assert_eq!(ignorant, made);
    }

    /// Against a model that knows of each key its value and its owners.
    #[test]
    fn random_appliers_agree_with_a_naive_model() {
        use rand::{Rng, SeedableRng, rngs::StdRng};
        use std::collections::BTreeSet;
        let mut random = StdRng::seed_from_u64(23);
        let (mut conflicts, mut forced) = (0, 0);
        for _ in 0..300 {
            let mut live: Option<Object> = None;
            let mut model: BTreeMap<&str, (String, BTreeSet<&str>)> = BTreeMap::new();
            for now in 0..12 {
                let me = ["x", "y", "z"][random.random_range(0..3)];
                let force = random.random_bool(0.4);
                let mut said: BTreeMap<&str, String> = BTreeMap::new();
                for key in ["a", "b", "c", "d"] {
                    if random.random_bool(0.5) {
                        said.insert(key, random.random_range(0..2).to_string());
                    }
                }
                let contested = said.iter().any(|(key, value)| {
                    model
                        .get(key)
                        .is_some_and(|(old, owners)| old != value && owners.iter().any(|one| *one != me))
                });
                let found = apply(live.as_ref(), config(json!(said)), &what(), &writer(me, now), force);
                if contested && !force {
                    conflicts += 1;
                    assert_eq!(found.expect_err("a conflict").code(), 409);
                    continue;
                }
                forced += usize::from(contested);
                for (key, value) in &said {
                    let (old, owners) = model.entry(key).or_default();
                    if old != value {
                        owners.clear();
                        old.clone_from(value);
                    }
                    owners.insert(me);
                }
                model.retain(|key, (_, owners)| {
                    said.contains_key(key) || !owners.remove(me) || !owners.is_empty()
                });
                let object = found.expect("no conflict");
                let data: BTreeMap<&str, &String> =
                    model.iter().map(|(key, (value, _))| (*key, value)).collect();
                assert_eq!(object.get("data").cloned().unwrap_or(json!({})), json!(data));
                for (manager, owned) in Managers::of(&object).0 {
                    let mine = model.iter().filter(|(_, (_, owners))| owners.contains(manager.name.as_str()));
                    let mine: Vec<String> = mine.map(|(key, _)| format!(".data.{key}")).collect();
                    let held: Vec<String> =
                        owned.fields.paths().into_iter().filter(|path| path != ".data").collect();
                    assert_eq!(held, mine);
                }
                live = Some(object);
            }
        }
        assert!(100 < conflicts && 100 < forced, "{conflicts} conflicts, {forced} forced");
    }
}
