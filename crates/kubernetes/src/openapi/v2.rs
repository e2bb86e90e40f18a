//! `/openapi/v2`: all kinds in one document, as JSON or as the protobuf of the gnostic library.
//!
//! kubectl up to 1.24 will create nothing without it. It refuses fields that a schema does not have, so a
//! schema that is here says everything or leaves it free.

use super::schema::{Definitions, define};
use super::{Dialect, info, operation};
use crate::negotiation::{Answer, Media, Offer};
use crate::registry::Registry;
use serde_json::{Map, Value, json};

/// What the document can be given in.
pub const OFFER: Offer<'static> =
    Offer { answer: Answer::Plain, whole: &[Media::Json, Media::OpenApiV2Protobuf], metadata: &[] };

pub fn document(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Definitions::new());
    for kind in registry.kinds() {
        operation::add(kind, Dialect::V2, &mut paths);
        define(kind, Dialect::V2, &mut definitions);
    }
    json!({ "swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions })
}

/// In either of the offered media; all but the protobuf is JSON.
pub fn body(registry: &Registry, media: Media) -> Vec<u8> {
    let document = document(registry);
    if media == Media::OpenApiV2Protobuf {
        return super::gnostic::encode(&document);
    }
    document.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;
    use crate::negotiation::negotiate;

    #[test]
    fn old_clients_know_every_kind() {
        let object = crd::tests::established(crd::tests::example());
        let definition = crd::Definition::parse(&object).expect("good");
        let registry = Registry::built_in().with(&definition.name, definition.kinds());
        let document = document(&registry);
        let tagged =
            |name: &str| document["definitions"][name].get("x-kubernetes-group-version-kind").is_some();
        assert!(tagged("io.k8s.api.core.v1.ConfigMap"));
        assert!(tagged("com.example.stable.v1.CronTab"));
        assert!(tagged("io.k8s.api.core.v1.Pod"));
        let pods = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(pods["x-kubernetes-group-version-kind"]["kind"], "Pod");
    }

    #[test]
    fn a_custom_kind_that_is_free_as_a_whole_stays_so() {
        let mut object = crd::tests::example();
        object["spec"]["versions"][0]["selectableFields"] = json!([]);
        object["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let definition = crd::Definition::parse(&crd::tests::established(object)).expect("good");
        let document = document(&Registry::built_in().with(&definition.name, definition.kinds()));
        let schema = &document["definitions"]["com.example.stable.v1.CronTab"];
        assert!(schema.get("properties").is_none());
        assert_eq!(schema["type"], "object");
    }

    #[test]
    fn the_form_is_what_the_client_can_read() {
        let kubectl = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let chosen = |accept: &str| {
            negotiate(accept, &OFFER).map(|form| form.content_type()).map_err(|refusal| refusal.code())
        };
        assert_eq!(chosen(kubectl), Ok("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"));
        assert_eq!(chosen("application/json, */*"), Ok("application/json"));
        assert_eq!(chosen(""), Ok("application/json"));
        assert_eq!(chosen("text/html"), Err(406));
    }
}
