//! `/openapi/v2`: all kinds in one document, as JSON or as the protobuf of the gnostic library.
//!
//! kubectl up to 1.24 will create nothing without it. It refuses fields that a schema does not have, so a
//! schema that is here says everything or leaves it free.

use super::schema::{Definitions, define};
use super::{Dialect, info, operation};
use crate::registry::Registry;
use crate::status::{Reason, Refusal};
use serde_json::{Map, Value, json};

/// How the document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Protobuf,
}

impl Form {
    /// The first clause of an Accept header that can be served.
    pub fn negotiate(accept: &str) -> Result<Form, Refusal> {
        if accept.trim().is_empty() {
            return Ok(Form::Json);
        }
        let of_clause = |clause: &str| match clause.split(';').next().unwrap_or_default().trim() {
            "application/json" | "application/*" | "*/*" => Some(Form::Json),
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
            | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" => Some(Form::Protobuf),
            _ => None,
        };
        accept.split(',').find_map(of_clause).ok_or_else(|| {
            Refusal::new(Reason::NotAcceptable, "only JSON and the protobuf form of OpenAPI v2 are accepted")
        })
    }

    /// Of the answer. The name that clients ask by has a character that a media type may not have.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Protobuf => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        }
    }
}

pub fn document(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Definitions::new());
    for kind in registry.kinds() {
        operation::add(kind, Dialect::V2, &mut paths);
        define(kind, Dialect::V2, &mut definitions);
    }
    json!({ "swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions })
}

/// In either form.
pub fn body(registry: &Registry, form: Form) -> Vec<u8> {
    let document = document(registry);
    match form {
        Form::Json => document.to_string().into_bytes(),
        Form::Protobuf => super::gnostic::encode(&document),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;

    #[test]
    fn old_clients_know_the_kinds_of_which_all_is_told_and_no_others() {
        let object = crd::tests::established(crd::tests::example());
        let definition = crd::Definition::parse(&object).expect("good");
        let registry = Registry::built_in().with(&definition.name, definition.kinds());
        let document = document(&registry);
        let tagged =
            |name: &str| document["definitions"][name].get("x-kubernetes-group-version-kind").is_some();
        assert!(tagged("io.k8s.api.core.v1.ConfigMap"));
        assert!(tagged("com.example.stable.v1.CronTab"));
        assert!(!tagged("io.k8s.api.core.v1.Pod"));
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
        assert_eq!(Form::negotiate(kubectl), Ok(Form::Protobuf));
        assert_eq!(Form::negotiate("application/json, */*"), Ok(Form::Json));
        assert_eq!(Form::negotiate(""), Ok(Form::Json));
        assert_eq!(Form::negotiate("text/html").expect_err("neither").code(), 406);
    }
}
