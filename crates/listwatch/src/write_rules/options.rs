//! How a delete is to be done, as its client says.

use crate::object::check::shown;
use crate::status::{Cause, Refusal};
use serde_json::{Value, json};

/// What becomes of the objects that an object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay, and have one owner less.
    Orphan,
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
}

/// The options of a delete. A body that has any is all that counts; else the query is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// For kinds that take their time to stop. None does here: what is deleted is gone, or waits for its
    /// finalizers however long they take.
    pub grace_period_s: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    /// From the body of a request, as JSON.
    pub fn decode(body: &Value) -> Result<DeleteOptions, Refusal> {
        if !body.is_object() || body.get("kind").is_some_and(|kind| kind != "DeleteOptions") {
            return Err(Refusal::bad_request("the body of a delete is no DeleteOptions"));
        }
        let preconditions = body.get("preconditions").unwrap_or(&Value::Null);
        let dry_run = match present(body, "dryRun") {
            None => Vec::new(),
            Some(Value::Array(words)) => words.iter().map(|word| word.as_str().unwrap_or_default()).collect(),
            Some(_) => return Err(Refusal::bad_request("dryRun must be a list of strings")),
        };
        DeleteOptions::new(
            number(body, "gracePeriodSeconds")?,
            text(body, "propagationPolicy")?,
            flag(body, "orphanDependents")?,
            &dry_run,
        )
        .and_then(|options| {
            Ok(DeleteOptions {
                uid: text(preconditions, "uid")?.map(str::to_owned),
                resource_version: text(preconditions, "resourceVersion")?.map(str::to_owned),
                ..options
            })
        })
    }

    /// From the parameters of a query, or from the fields of a body.
    pub fn new(
        grace_period_s: Option<i64>,
        propagation_policy: Option<&str>,
        orphan_dependents: Option<bool>,
        dry_run: &[&str],
    ) -> Result<DeleteOptions, Refusal> {
        let mut causes = Vec::new();
        let propagation = match propagation_policy {
            None | Some("") => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let known = ["Background", "Foreground", "Orphan"];
                causes.push(Cause::not_supported("propagationPolicy", &shown(other), &known));
                None
            }
        };
        if propagation_policy.is_some() && orphan_dependents.is_some() {
            let why = "orphanDependents and propagationPolicy exclude each other";
            causes.push(Cause::invalid("propagationPolicy", &json!(propagation_policy), why));
        }
        for word in dry_run.iter().filter(|word| **word != "All") {
            causes.push(Cause::not_supported("dryRun", &shown(word), &["All"]));
        }
        if !causes.is_empty() {
            return Err(Refusal::invalid("meta.k8s.io", "DeleteOptions", "", causes));
        }
        let older = orphan_dependents.map(|orphan| match orphan {
            true => Propagation::Orphan,
            false => Propagation::Background,
        });
        Ok(DeleteOptions {
            grace_period_s,
            propagation: propagation.or(older),
            uid: None,
            resource_version: None,
            dry_run: !dry_run.is_empty(),
        })
    }
}

fn present<'a>(body: &'a Value, field: &str) -> Option<&'a Value> {
    body.get(field).filter(|value| !value.is_null())
}

fn text<'a>(body: &'a Value, field: &str) -> Result<Option<&'a str>, Refusal> {
    present(body, field)
        .map(|value| value.as_str().ok_or_else(|| Refusal::bad_request(format!("{field} must be a string"))))
        .transpose()
}

fn number(body: &Value, field: &str) -> Result<Option<i64>, Refusal> {
    present(body, field)
        .map(|value| {
            value.as_i64().ok_or_else(|| Refusal::bad_request(format!("{field} must be an integer")))
        })
        .transpose()
}

fn flag(body: &Value, field: &str) -> Result<Option<bool>, Refusal> {
    present(body, field)
        .map(|value| {
            value.as_bool().ok_or_else(|| Refusal::bad_request(format!("{field} must be a boolean")))
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_whole() {
        let options = DeleteOptions::decode(&json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 3,
            "propagationPolicy": "Foreground", "dryRun": ["All"],
            "preconditions": { "uid": "u", "resourceVersion": "7" },
        }));
        let expected = DeleteOptions {
            grace_period_s: Some(3),
            propagation: Some(Propagation::Foreground),
            uid: Some("u".to_owned()),
            resource_version: Some("7".to_owned()),
            dry_run: true,
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(DeleteOptions::decode(&json!({})), Ok(DeleteOptions::default()));
    }

    #[test]
    fn the_older_flag_is_understood_and_not_beside_the_newer_word() {
        let of = |word, flag| DeleteOptions::new(None, word, flag, &[]).map(|options| options.propagation);
        assert_eq!(of(None, Some(true)), Ok(Some(Propagation::Orphan)));
        assert_eq!(of(None, Some(false)), Ok(Some(Propagation::Background)));
        assert_eq!(of(Some("Orphan"), Some(true)).expect_err("both").code(), 422);
    }

    #[test]
    fn what_is_unknown_is_refused() {
        for (body, code) in [
            (json!({ "propagationPolicy": "Sideways" }), 422),
            (json!({ "dryRun": ["Some"] }), 422),
            (json!({ "dryRun": "All" }), 400),
            (json!({ "gracePeriodSeconds": "3" }), 400),
            (json!({ "kind": "Pod" }), 400),
            (json!([]), 400),
            (json!({ "preconditions": { "uid": 1 } }), 400),
        ] {
            assert_eq!(DeleteOptions::decode(&body).expect_err("a refusal").code(), code, "{body}");
        }
    }
}
