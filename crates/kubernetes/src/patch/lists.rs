//! Which lists are more than lists: those whose elements have names, and those that are sets.
//!
//! For the built-in kinds this is a table, after what their definitions say. It is keyed by the field and
//! by the field that holds it, list elements not counted: `containers` is a map by `name` wherever a `spec`
//! holds it. A list that the table does not know is replaced whole.

use serde_json::Value;
use std::collections::BTreeMap;

/// How a list is merged with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Replaced whole.
    Atomic,
    /// Of plain values, each of them once.
    Set,
    /// Of objects that are told apart by these fields.
    Map(&'static [&'static str]),
}

struct Row {
    /// Fields that may hold it; empty stands for the object itself.
    parents: &'static [&'static str],
    field: &'static str,
    strategic: ListType,
    applied: ListType,
}

const SPEC: &[&str] = &["spec"];
const STATUS: &[&str] = &["status"];
const CONTAINERS: &[&str] = &["containers", "initContainers", "ephemeralContainers"];
const ROOT: &[&str] = &[""];
const METADATA: &[&str] = &["metadata"];

/// Strategic patches know the elements by the first key only.
const fn map(parents: &'static [&'static str], field: &'static str, keys: &'static [&'static str]) -> Row {
    Row { parents, field, strategic: ListType::Map(keys.split_at(1).0), applied: ListType::Map(keys) }
}

const fn set(parents: &'static [&'static str], field: &'static str) -> Row {
    Row { parents, field, strategic: ListType::Set, applied: ListType::Set }
}

/// For applied objects more than a list, for strategic patches a list.
const fn applied_only(parents: &'static [&'static str], field: &'static str, applied: ListType) -> Row {
    Row { parents, field, strategic: ListType::Atomic, applied }
}

const ROWS: &[Row] = &[
    map(METADATA, "ownerReferences", &["uid"]),
    set(METADATA, "finalizers"),
    map(STATUS, "conditions", &["type"]),
    map(STATUS, "addresses", &["type"]),
    map(STATUS, "podIPs", &["ip"]),
    Row { parents: STATUS, field: "hostIPs", strategic: ListType::Map(&["ip"]), applied: ListType::Atomic },
    map(STATUS, "resourceClaimStatuses", &["name"]),
    map(SPEC, "containers", &["name"]),
    map(SPEC, "initContainers", &["name"]),
    map(SPEC, "ephemeralContainers", &["name"]),
    map(SPEC, "volumes", &["name"]),
    map(SPEC, "imagePullSecrets", &["name"]),
    map(SPEC, "hostAliases", &["ip"]),
    map(SPEC, "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    map(SPEC, "schedulingGates", &["name"]),
    map(SPEC, "resourceClaims", &["name"]),
    map(SPEC, "drivers", &["name"]),
    map(SPEC, "variables", &["name"]),
    map(&["spec", "webhooks"], "matchConditions", &["name"]),
    set(SPEC, "podCIDRs"),
    map(SPEC, "ports", &["port", "protocol"]),
    map(CONTAINERS, "ports", &["containerPort", "protocol"]),
    map(CONTAINERS, "env", &["name"]),
    map(CONTAINERS, "volumeMounts", &["mountPath"]),
    map(CONTAINERS, "volumeDevices", &["devicePath"]),
    map(
        &["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"],
        "volumeMounts",
        &["mountPath"],
    ),
    applied_only(&["resources"], "claims", ListType::Map(&["name"])),
    map(ROOT, "secrets", &["name"]),
    map(ROOT, "webhooks", &["name"]),
    applied_only(&["endpoints"], "addresses", ListType::Set),
];

fn row(path: &[&str]) -> Option<&'static Row> {
    let (field, parents) = path.split_last()?;
    let parent = parents.last().copied().unwrap_or_default();
    ROWS.iter().find(|row| row.field == *field && row.parents.contains(&parent))
}

/// The list at `path` of a built-in object, for a strategic patch.
pub fn strategic(path: &[&str]) -> ListType {
    row(path).map_or(ListType::Atomic, |row| row.strategic)
}

/// The list at `path` of a built-in object, for an applied one.
pub fn applied(path: &[&str]) -> ListType {
    row(path).map_or(ListType::Atomic, |row| row.applied)
}

/// What a key field of a list element counts as where it is left out.
pub fn key_default(field: &str) -> Option<&'static str> {
    if field == "protocol" { Some("TCP") } else { None }
}

/// The maps of built-in kinds that are applied whole, by their field: half a selector selects too much.
pub fn is_atomic_map(field: &str) -> bool {
    const ATOMIC: &[&str] = &[
        "selector",
        "labelSelector",
        "namespaceSelector",
        "podSelector",
        "objectSelector",
        "nodeSelector",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "claimRef",
        "secretRef",
        "roleRef",
    ];
    ATOMIC.contains(&field)
}

/// The elements of a merged list in their order. Those that `order` names come as it says; one that it does
/// not name stays in front of the named ones that it was in front of in `before`.
pub fn arrange(
    list: Vec<(Option<String>, Value)>,
    before: &[Option<String>],
    order: &[String],
) -> Vec<Value> {
    let order: BTreeMap<&str, usize> =
        order.iter().enumerate().rev().map(|(at, name)| (name.as_str(), at)).collect();
    let before: BTreeMap<&str, usize> =
        before.iter().enumerate().rev().filter_map(|(at, name)| Some((name.as_deref()?, at))).collect();
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for (name, value) in list {
        let name = name.as_deref();
        let was = name.and_then(|name| before.get(name).copied());
        match name.and_then(|name| order.get(name)) {
            Some(place) => named.push((*place, was, value)),
            None => others.push((was, value)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    let mut others = others.into_iter().peekable();
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    for (_, was, value) in named {
        while let Some((Some(other), _)) = others.peek()
            && was.is_some_and(|was| *other < was)
        {
            arranged.extend(others.next().map(|(_, value)| value));
        }
        arranged.push(value);
    }
    arranged.extend(others.map(|(_, value)| value));
    arranged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_field_is_told_apart_by_what_holds_it() {
        for (path, by_patch, by_apply) in [
            (&["spec", "ports"][..], ListType::Map(&["port"]), ListType::Map(&["port", "protocol"])),
            (
                &["spec", "template", "spec", "containers", "ports"],
                ListType::Map(&["containerPort"]),
                ListType::Map(&["containerPort", "protocol"]),
            ),
            (&["metadata", "finalizers"], ListType::Set, ListType::Set),
            (&["spec", "finalizers"], ListType::Atomic, ListType::Atomic),
            (&["spec", "tolerations"], ListType::Atomic, ListType::Atomic),
            (&["status", "hostIPs"], ListType::Map(&["ip"]), ListType::Atomic),
            (&["endpoints", "addresses"], ListType::Atomic, ListType::Set),
            (&["secrets"], ListType::Map(&["name"]), ListType::Map(&["name"])),
            (&["data", "secrets"], ListType::Atomic, ListType::Atomic),
            (&[], ListType::Atomic, ListType::Atomic),
        ] {
            assert_eq!((strategic(path), applied(path)), (by_patch, by_apply), "{path:?}");
        }
    }
}
