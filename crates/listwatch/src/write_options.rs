//! The parameters of a write: create, update, patch and delete.
//!
//! What cannot be read is a bad request; what can be read and is not allowed is invalid, and the refusal
//! names the options by their kind. A delete's options come from its body if it has one, and from the
//! query only if it has none: the two are never mixed.

use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::schema::FieldValidation;
use meerkat_kubernetes::status::{Cause, Refusal};
use meerkat_watchcache::list_options::OPTIONS_GROUP;
use serde_json::{Map, Value, json};

/// A manager's name is kept with every object it touched.
const MANAGER_BYTES_MAX: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Everything is done but the writing.
    pub dry_run: bool,
    pub field_manager: Option<String>,
    pub field_validation: FieldValidation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyOptions {
    pub write: WriteOptions,
    /// As in `write`, where it is never missing.
    pub manager: String,
    /// Fields that others own are taken over.
    pub force: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    /// For kinds that take their time to stop. None does here: what is deleted is gone, or waits for its
    /// finalizers however long they take.
    pub grace_period_s: Option<u64>,
    /// Asked for in either form. None leaves it to the object's finalizers, or to us.
    pub propagation: Option<Propagation>,
    pub preconditions: Preconditions,
}

/// What becomes of the objects that belong to the deleted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They stay, and have one owner less.
    Orphan,
    /// They go afterwards.
    Background,
    /// They go first.
    Foreground,
}

/// What must be true of the object that is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

impl WriteOptions {
    pub fn for_create(query: &Query) -> Result<WriteOptions, Refusal> {
        let (options, causes) = WriteOptions::read(query);
        check("CreateOptions", causes)?;
        Ok(options)
    }

    pub fn for_update(query: &Query) -> Result<WriteOptions, Refusal> {
        let (options, causes) = WriteOptions::read(query);
        check("UpdateOptions", causes)?;
        Ok(options)
    }

    /// Of every patch but an apply.
    pub fn for_patch(query: &Query) -> Result<WriteOptions, Refusal> {
        let (options, mut causes) = WriteOptions::read(query);
        if query.flag("force").is_some() {
            causes.push(Cause::forbidden("force", "only an apply can be forced"));
        }
        check("PatchOptions", causes)?;
        Ok(options)
    }

    /// The name that the written fields are kept under. Who gives none is known by their program.
    pub fn manager(&self, user_agent: &str) -> String {
        if let Some(manager) = &self.field_manager {
            return manager.clone();
        }
        let program = user_agent.split('/').next().unwrap_or_default();
        let mut name = String::new();
        for c in program.chars().filter(|c| is_printable(*c)) {
            if MANAGER_BYTES_MAX < name.len() + c.len_utf8() {
                break;
            }
            name.push(c);
        }
        name
    }

    fn read(query: &Query) -> (WriteOptions, Vec<Cause>) {
        let mut causes = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut causes);
        let manager = query.text("fieldManager");
        if MANAGER_BYTES_MAX < manager.len() {
            causes.push(Cause::too_long("fieldManager", MANAGER_BYTES_MAX));
        }
        if !manager.chars().all(is_printable) {
            let why = "it may have printable characters only";
            causes.push(Cause::invalid("fieldManager", &json!(excerpt(manager)), why));
        }
        let asked = query.text("fieldValidation");
        let field_validation = FieldValidation::parse(asked).unwrap_or_else(|| {
            let supported = ["", "Ignore", "Strict", "Warn"];
            causes.push(Cause::not_supported("fieldValidation", &json!(excerpt(asked)), &supported));
            FieldValidation::default()
        });
        let field_manager = if manager.is_empty() { None } else { Some(manager.to_owned()) };
        (WriteOptions { dry_run, field_manager, field_validation }, causes)
    }
}

impl ApplyOptions {
    pub fn from_query(query: &Query) -> Result<ApplyOptions, Refusal> {
        let (write, mut causes) = WriteOptions::read(query);
        let manager = write.field_manager.clone().unwrap_or_default();
        if manager.is_empty() {
            causes.push(Cause::required("fieldManager", "an apply needs one"));
        }
        check("PatchOptions", causes)?;
        Ok(ApplyOptions { write, manager, force: query.flag("force").unwrap_or(false) })
    }
}

impl DeleteOptions {
    pub fn from_query(query: &Query) -> Result<DeleteOptions, Refusal> {
        let mut causes = Vec::new();
        let options = DeleteOptions {
            dry_run: dry_run(query.all("dryRun"), &mut causes),
            grace_period_s: query.integer("gracePeriodSeconds")?.map(grace_period),
            propagation: propagation(
                query.text("propagationPolicy"),
                query.flag("orphanDependents"),
                &mut causes,
            ),
            preconditions: Preconditions::default(),
        };
        check("DeleteOptions", causes)?;
        Ok(options)
    }

    pub fn from_body(body: &Value) -> Result<DeleteOptions, Refusal> {
        let Value::Object(body) = body else {
            return Err(Refusal::bad_request("the body of a delete is no DeleteOptions"));
        };
        if !matches!(text(body, "kind")?, None | Some("DeleteOptions")) {
            return Err(Refusal::bad_request("the body of a delete has a kind other than DeleteOptions"));
        }
        let mut causes = Vec::new();
        let none = Map::new();
        let preconditions = match present(body, "preconditions") {
            None => &none,
            Some(Value::Object(preconditions)) => preconditions,
            Some(_) => return Err(wrong("preconditions")),
        };
        let options = DeleteOptions {
            dry_run: dry_run(texts(body, "dryRun")?.into_iter(), &mut causes),
            grace_period_s: read(body, "gracePeriodSeconds", Value::as_i64)?.map(grace_period),
            propagation: propagation(
                text(body, "propagationPolicy")?.unwrap_or_default(),
                read(body, "orphanDependents", Value::as_bool)?,
                &mut causes,
            ),
            preconditions: Preconditions {
                uid: text(preconditions, "uid")?.map(str::to_owned),
                resource_version: text(preconditions, "resourceVersion")?.map(str::to_owned),
            },
        };
        check("DeleteOptions", causes)?;
        Ok(options)
    }
}

fn check(kind: &str, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(OPTIONS_GROUP, kind, "", causes)) }
}

fn dry_run<'a>(asked: impl Iterator<Item = &'a str>, causes: &mut Vec<Cause>) -> bool {
    let mut dry = false;
    for value in asked {
        dry = true;
        if value != "All" {
            causes.push(Cause::not_supported("dryRun", &json!(excerpt(value)), &["All"]));
            // One is enough, however many there are.
            break;
        }
    }
    dry
}

/// `orphan`: the older form, `orphanDependents`, which does not go with the newer.
fn propagation(asked: &str, orphan: Option<bool>, causes: &mut Vec<Cause>) -> Option<Propagation> {
    if !asked.is_empty() && orphan.is_some() {
        let why = "orphanDependents and propagationPolicy exclude each other";
        causes.push(Cause::invalid("propagationPolicy", &json!(excerpt(asked)), why));
    }
    match asked {
        "" => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        "Orphan" => Some(Propagation::Orphan),
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        other => {
            let supported = ["Background", "Foreground", "Orphan"];
            causes.push(Cause::not_supported("propagationPolicy", &json!(excerpt(other)), &supported));
            None
        }
    }
}

/// Less than nothing means at once, as near as can be.
fn grace_period(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(1)
}

fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace())
}

fn wrong(field: &str) -> Refusal {
    Refusal::bad_request(format!("{field} of DeleteOptions has the wrong type"))
}

/// Null is as good as not there.
fn present<'a>(body: &'a Map<String, Value>, field: &str) -> Option<&'a Value> {
    body.get(field).filter(|value| !value.is_null())
}

fn read<'a, T>(
    body: &'a Map<String, Value>,
    field: &str,
    reading: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    present(body, field).map(|value| reading(value).ok_or_else(|| wrong(field))).transpose()
}

fn text<'a>(body: &'a Map<String, Value>, field: &str) -> Result<Option<&'a str>, Refusal> {
    read(body, field, Value::as_str)
}

fn texts<'a>(body: &'a Map<String, Value>, field: &str) -> Result<Vec<&'a str>, Refusal> {
    let values = read(body, field, Value::as_array)?.map(Vec::as_slice).unwrap_or_default();
    values.iter().map(|value| value.as_str().ok_or_else(|| wrong(field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(raw: &str) -> Query {
        Query::parse(raw).expect("a query")
    }

    fn code<T>(answer: Result<T, Refusal>) -> u16 {
        answer.map_or_else(|refusal| refusal.code(), |_| 200)
    }

    #[test]
    fn what_a_write_asks_for_is_read() {
        let options = WriteOptions::for_create(&query("dryRun=All&fieldManager=me&fieldValidation=Strict"));
        let expected = WriteOptions {
            dry_run: true,
            field_manager: Some("me".to_owned()),
            field_validation: FieldValidation::Strict,
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(WriteOptions::for_update(&query("pretty=true")), Ok(WriteOptions::default()));
        assert_eq!(WriteOptions::default().field_validation, FieldValidation::Warn);
    }

    #[test]
    fn what_a_write_may_not_ask_for_is_invalid() {
        let long = format!("fieldManager={}", "a".repeat(129));
        for raw in [
            "dryRun=Some",
            "dryRun=",
            "dryRun=All&dryRun=x",
            &long,
            "fieldManager=a%0A",
            "fieldValidation=strict",
        ] {
            for (kind, answer) in [
                ("CreateOptions", WriteOptions::for_create(&query(raw)).map(|_| ())),
                ("UpdateOptions", WriteOptions::for_update(&query(raw)).map(|_| ())),
                ("PatchOptions", WriteOptions::for_patch(&query(raw)).map(|_| ())),
                (
                    "PatchOptions",
                    ApplyOptions::from_query(&query(&format!("{raw}&fieldManager=a"))).map(|_| ()),
                ),
            ] {
                let refusal = answer.expect_err(raw);
                assert_eq!((refusal.code(), refusal.kind.as_str()), (422, kind), "{raw}");
            }
        }
    }

    #[test]
    fn an_apply_has_a_manager_and_only_an_apply_is_forced() {
        assert_eq!(code(ApplyOptions::from_query(&query("force=true"))), 422);
        let options = ApplyOptions::from_query(&query("fieldManager=me&force=true")).expect("valid");
        assert_eq!((options.manager.as_str(), options.force), ("me", true));
        assert!(!ApplyOptions::from_query(&query("fieldManager=me")).expect("valid").force);
        assert_eq!(code(WriteOptions::for_patch(&query("force=true"))), 422);
        assert_eq!(code(WriteOptions::for_patch(&query("fieldManager=me"))), 200);
    }

    #[test]
    fn a_manager_without_a_name_is_known_by_its_program() {
        let unnamed = WriteOptions::default();
        assert_eq!(unnamed.manager("kubectl/v1.32.0 (linux)"), "kubectl");
        assert_eq!(unnamed.manager("a\tb"), "ab");
        assert_eq!(unnamed.manager(&"é".repeat(100)), "é".repeat(64));
        assert_eq!(unnamed.manager(""), "");
        let named = WriteOptions { field_manager: Some("me".to_owned()), ..WriteOptions::default() };
        assert_eq!(named.manager("kubectl/v1.32.0"), "me");
    }

    #[test]
    fn a_delete_says_the_same_in_its_query_and_in_its_body() {
        for (raw, body) in [
            ("", json!({})),
            ("", json!({ "kind": "DeleteOptions", "apiVersion": "v1", "dryRun": null })),
            ("dryRun=All", json!({ "dryRun": ["All"] })),
            ("gracePeriodSeconds=5", json!({ "gracePeriodSeconds": 5 })),
            ("propagationPolicy=Foreground", json!({ "propagationPolicy": "Foreground" })),
            ("orphanDependents=false", json!({ "orphanDependents": false })),
            ("orphanDependents=true", json!({ "propagationPolicy": "Orphan" })),
        ] {
            let expected = DeleteOptions::from_query(&query(raw)).expect("valid");
            assert_eq!(DeleteOptions::from_body(&body), Ok(expected), "{raw}");
        }
        let body = json!({ "preconditions": { "uid": "u", "resourceVersion": "7" } });
        let preconditions = DeleteOptions::from_body(&body).expect("valid").preconditions;
        assert_eq!(preconditions.uid.as_deref(), Some("u"));
        assert_eq!(preconditions.resource_version.as_deref(), Some("7"));
    }

    #[test]
    fn what_a_delete_may_not_ask_for() {
        for (raw, expected) in [
            ("gracePeriodSeconds=x", 400),
            ("propagationPolicy=Maybe", 422),
            ("propagationPolicy=Orphan&orphanDependents=true", 422),
            ("dryRun=no", 422),
        ] {
            assert_eq!(code(DeleteOptions::from_query(&query(raw))), expected, "{raw}");
        }
        for (body, expected) in [
            (json!([]), 400),
            (json!({ "kind": "Pod" }), 400),
            (json!({ "gracePeriodSeconds": "5" }), 400),
            (json!({ "gracePeriodSeconds": 1.5 }), 400),
            (json!({ "dryRun": "All" }), 400),
            (json!({ "dryRun": [1] }), 400),
            (json!({ "dryRun": ["Some"] }), 422),
            (json!({ "preconditions": [] }), 400),
            (json!({ "preconditions": { "uid": 1 } }), 400),
            (json!({ "propagationPolicy": "Maybe" }), 422),
            (json!({ "propagationPolicy": "Orphan", "orphanDependents": true }), 422),
        ] {
            assert_eq!(code(DeleteOptions::from_body(&body)), expected, "{body}");
        }
    }

    #[test]
    fn the_older_form_of_propagation_still_counts() {
        let asked = |raw: &str| DeleteOptions::from_query(&query(raw)).expect("valid").propagation;
        assert_eq!(asked(""), None);
        assert_eq!(asked("propagationPolicy=Foreground"), Some(Propagation::Foreground));
        assert_eq!(asked("orphanDependents=true"), Some(Propagation::Orphan));
        assert_eq!(asked("orphanDependents=false"), Some(Propagation::Background));
    }

    #[test]
    fn a_grace_period_below_nothing_is_the_shortest() {
        let asked = |raw: &str| DeleteOptions::from_query(&query(raw)).expect("valid").grace_period_s;
        assert_eq!(asked("gracePeriodSeconds=-1"), Some(1));
        assert_eq!(asked("gracePeriodSeconds=0"), Some(0));
        assert_eq!(asked(""), None);
    }
}
