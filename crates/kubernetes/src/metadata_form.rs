//! Objects and lists reduced to their metadata, for clients that need no more.

use serde_json::{Value, json};

/// The versions of `meta.k8s.io` in which these forms, and Tables, are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    /// As in the `v` parameter of a media type.
    pub fn parse(text: &str) -> Option<MetaVersion> {
        match text {
            "v1" => Some(MetaVersion::V1),
            "v1beta1" => Some(MetaVersion::V1Beta1),
            _ => None,
        }
    }

    pub fn api_version(self) -> &'static str {
        match self {
            MetaVersion::V1 => "meta.k8s.io/v1",
            MetaVersion::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

pub fn of_object(object: &Value, version: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": metadata })
}

/// `list`: any list, with `metadata` and `items`.
pub fn of_list(list: &Value, version: MetaVersion) -> Value {
    let items = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let items: Vec<Value> = items.iter().map(|item| of_object(item, version)).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": version.api_version(),
        "metadata": list.get("metadata").cloned().unwrap_or_else(|| json!({})),
        "items": items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_metadata_is_left() {
        let pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "a" }, "spec": {} });
        let list = json!({ "kind": "PodList", "metadata": { "resourceVersion": "7" }, "items": [pod] });
        let reduced = of_list(&list, MetaVersion::V1);
        let item = json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": { "name": "a" },
        });
        let expected = json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
            "metadata": { "resourceVersion": "7" }, "items": [item],
        });
        assert_eq!(reduced, expected);
        assert_eq!(of_object(&json!({}), MetaVersion::V1Beta1)["apiVersion"], "meta.k8s.io/v1beta1");
    }
}
