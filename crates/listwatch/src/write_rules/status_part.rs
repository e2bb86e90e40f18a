//! What a write of the status may change beside the status.
//!
//! Most built-in kinds take the metadata along as they are sent: labels, annotations, finalizers. Deployments
//! keep their labels and pods their owners, as in Kubernetes. Custom kinds, definitions and volume attachments
//! keep all of their metadata. Who manages which field is told by every way.

use meerkat_kubernetes::crd;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;

/// The metadata that a write of the status leaves as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptMetadata {
    All,
    Fields(&'static [&'static str]),
}

pub fn kept_metadata(kind: &Kind) -> KeptMetadata {
    if kind.custom().is_some() {
        return KeptMetadata::All;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        (crd::GROUP, crd::KIND) | ("storage.k8s.io", "VolumeAttachment") => KeptMetadata::All,
        ("apps", "Deployment") => KeptMetadata::Fields(&["labels"]),
        ("", "Pod") => KeptMetadata::Fields(&["ownerReferences"]),
        _ => KeptMetadata::Fields(&[]),
    }
}

/// `stored` with the status of `object`, and with what of its metadata this way can write.
pub(super) fn only_status(stored: &Object, object: &Object, kind: &Kind) -> Object {
    let mut kept = stored.clone();
    kept.set("status", object.get("status").cloned());
    match kept_metadata(kind) {
        KeptMetadata::All => kept.set_managed_fields(object.managed_fields().to_vec()),
        KeptMetadata::Fields(fields) => {
            kept.take_all_metadata(object);
            for field in fields {
                kept.take_metadata(field, stored);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{object, widget};
    use super::*;
    use meerkat_kubernetes::registry::Registry;
    use serde_json::{Value, json};

    fn built_in(group: &str, plural: &str) -> Kind {
        let registry = Registry::built_in();
        let kind = registry.kinds().find(|kind| kind.group == group && kind.plural == plural);
        (**kind.expect("built in")).clone()
    }

    /// What of the metadata comes through, by name.
    fn taken(kind: &Kind) -> Vec<&'static str> {
        let owner = |uid: &str| json!([{ "apiVersion": "v1", "kind": "A", "name": "a", "uid": uid }]);
        let metadata = |to: &str, uid: &str| {
            json!({
                "name": "x", "labels": { "l": to }, "annotations": { "a": to }, "finalizers": [to],
                "ownerReferences": owner(uid), "managedFields": [{ "manager": to }],
            })
        };
        let stored = object(json!({ "metadata": metadata("old", "1"), "spec": 1, "status": 1 }));
        let sent = object(json!({ "metadata": metadata("new", "2"), "spec": 2, "status": 2 }));
        let made = only_status(&stored, &sent, kind).into_value();
        assert_eq!((&made["spec"], &made["status"]), (&json!(1), &json!(2)));
        let is_new = |field: &&str| made["metadata"][*field] == sent.to_value()["metadata"][*field];
        let fields = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];
        fields.into_iter().filter(is_new).collect()
    }

    #[test]
    fn metadata_go_with_the_status_as_the_kind_has_it() {
        let all = ["labels", "annotations", "finalizers", "ownerReferences", "managedFields"];
        assert_eq!(taken(&built_in("", "nodes")), all);
        assert_eq!(taken(&built_in("batch", "jobs")), all);
        assert_eq!(taken(&built_in("apps", "deployments")), all[1..]);
        assert_eq!(
            taken(&built_in("", "pods")),
            ["labels", "annotations", "finalizers", "managedFields"],
            "old kubelets lose owners"
        );
        let none = ["managedFields"];
        assert_eq!(taken(&widget()), none);
        assert_eq!(taken(&built_in(crd::GROUP, "customresourcedefinitions")), none);
        assert_eq!(taken(&built_in("storage.k8s.io", "volumeattachments")), none);
    }

    #[test]
    fn metadata_that_are_left_out_are_taken_away() {
        let stored = object(json!({ "metadata": { "name": "x", "labels": { "l": "1" } }, "status": 1 }));
        let bare = object(json!({ "metadata": { "name": "x" } }));
        let made = only_status(&stored, &bare, &built_in("", "nodes"));
        assert_eq!((made.labels().count(), made.get("status")), (0, None::<&Value>));
        let made = only_status(&stored, &bare, &built_in("apps", "deployments"));
        assert_eq!(made.labels().collect::<Vec<_>>(), [("l", "1")]);
    }
}
