//! Every refusal, and the Status object that tells a client of it. The only place where one is made.
//!
//! Clients branch on the reason first and on the code second: "already exists" and "conflict" share 409.
//! A refusal that says when to come back does so in the body and, by whoever answers, in `Retry-After`.

use serde_json::{Map, Value, json};
use std::fmt;

/// Why a request was refused, in the words that clients match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
    /// The store takes no more, until somebody makes room.
    InsufficientStorage,
}

impl Reason {
    pub fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::Forbidden => 403,
            Reason::NotFound => 404,
            Reason::MethodNotAllowed => 405,
            Reason::NotAcceptable => 406,
            Reason::AlreadyExists | Reason::Conflict => 409,
            Reason::Expired => 410,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::TooManyRequests => 429,
            Reason::InternalError => 500,
            Reason::ServiceUnavailable => 503,
            Reason::Timeout => 504,
            Reason::InsufficientStorage => 507,
        }
    }
}

/// As it is written in a Status.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A kind of object by its plural name, as in a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// Empty for the core group.
    pub group: String,
    pub resource: String,
}

impl GroupResource {
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> GroupResource {
        GroupResource { group: group.into(), resource: resource.into() }
    }
}

/// `deployments.apps`, or `pods` of the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// One of the things that are wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldManagerConflict` and the like.
    pub reason: &'static str,
    pub message: String,
    /// A path such as `spec.replicas`; empty if the cause is no field.
    pub field: String,
}

impl Cause {
    fn field(reason: &'static str, field: impl Into<String>, message: String) -> Cause {
        Cause { reason, message, field: field.into() }
    }

    /// `shown`: the value as the client is to see it in the message.
    pub fn invalid(field: impl Into<String>, shown: &Value, why: &str) -> Cause {
        Cause::field("FieldValueInvalid", field, format!("Invalid value: {shown}: {why}"))
    }

    pub fn required(field: impl Into<String>, why: &str) -> Cause {
        let colon = if why.is_empty() { "" } else { ": " };
        Cause::field("FieldValueRequired", field, format!("Required value{colon}{why}"))
    }

    pub fn forbidden(field: impl Into<String>, why: &str) -> Cause {
        Cause::field("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub fn duplicate(field: impl Into<String>, shown: &Value) -> Cause {
        Cause::field("FieldValueDuplicate", field, format!("Duplicate value: {shown}"))
    }

    pub fn not_supported(field: impl Into<String>, shown: &Value, supported: &[&str]) -> Cause {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
        Cause::field("FieldValueNotSupported", field, message)
    }

    pub fn too_long(field: impl Into<String>, most: usize) -> Cause {
        Cause::field("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.field, self.message)
        }
    }
}

/// A request that is not done, and what its client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub reason: Reason,
    pub message: String,
    pub name: String,
    pub group: String,
    /// The plural name of the resource for most reasons; the kind's name for what is invalid.
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    /// When to try again.
    pub retry_after_s: Option<u32>,
    /// Where a list that lost its revision can go on, at another one.
    pub continue_token: Option<String>,
}

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<String>) -> Refusal {
        Refusal {
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_s: None,
            continue_token: None,
        }
    }

    fn of(mut self, what: &GroupResource, name: &str) -> Refusal {
        self.group.clone_from(&what.group);
        self.kind.clone_from(&what.resource);
        self.name = name.to_owned();
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(Reason::BadRequest, message)
    }

    pub fn forbidden(what: &GroupResource, name: &str, why: &str) -> Refusal {
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} {name:?} is forbidden: {why}")
        };
        Refusal::new(Reason::Forbidden, message).of(what, name)
    }

    pub fn not_found(what: &GroupResource, name: &str) -> Refusal {
        Refusal::new(Reason::NotFound, format!("{what} {name:?} not found")).of(what, name)
    }

    /// A path that leads nowhere.
    pub fn no_such_page() -> Refusal {
        Refusal::new(Reason::NotFound, "the server could not find the requested resource")
    }

    pub fn method_not_allowed(what: &GroupResource, verb: &str) -> Refusal {
        let message = format!("{verb} is not supported on resources of kind {:?}", what.to_string());
        Refusal::new(Reason::MethodNotAllowed, message).of(what, "")
    }

    pub fn already_exists(what: &GroupResource, name: &str) -> Refusal {
        Refusal::new(Reason::AlreadyExists, format!("{what} {name:?} already exists")).of(what, name)
    }

    pub fn conflict(what: &GroupResource, name: &str, why: &str) -> Refusal {
        let message = format!("Operation cannot be fulfilled on {what} {name:?}: {why}");
        Refusal::new(Reason::Conflict, message).of(what, name)
    }

    /// `kind`: the name of the kind, not of the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Refusal {
        let shown: Vec<String> = causes.iter().map(Cause::to_string).collect();
        let shown =
            if let [one] = shown.as_slice() { one.clone() } else { format!("[{}]", shown.join(", ")) };
        let whole = GroupResource::new(group, kind);
        let mut refusal = Refusal::new(Reason::Invalid, format!("{whole} {name:?} is invalid: {shown}"));
        refusal = refusal.of(&whole, name);
        refusal.causes = causes;
        refusal
    }

    pub fn expired(message: impl Into<String>) -> Refusal {
        Refusal::new(Reason::Expired, message)
    }

    /// A revision that this member has not reached in time.
    pub fn too_large_resource_version(asked: u64, current: u64) -> Refusal {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let mut refusal = Refusal::new(Reason::Timeout, message);
        let message = "Too large resource version".to_owned();
        refusal.causes = vec![Cause::field("ResourceVersionTooLarge", "", message)];
        refusal.retry_after_s = Some(1);
        refusal
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_s: u32) -> Refusal {
        let mut refusal = Refusal::new(Reason::TooManyRequests, message);
        refusal.retry_after_s = Some(retry_after_s);
        refusal
    }

    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    /// The body of the answer, or the object of an ERROR event.
    pub fn to_status(&self) -> Value {
        let mut details = Map::new();
        for (field, value) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !value.is_empty() {
                details.insert(field.to_owned(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            details.insert("causes".to_owned(), self.causes.iter().map(cause_to_json).collect());
        }
        if let Some(seconds) = self.retry_after_s {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let metadata = self.continue_token.as_ref().map_or(json!({}), |token| json!({ "continue": token }));
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason.to_string(),
            "code": self.code(),
        });
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

fn cause_to_json(cause: &Cause) -> Value {
    let mut shown = json!({ "reason": cause.reason, "message": cause.message });
    if !cause.field.is_empty() {
        shown["field"] = json!(cause.field);
    }
    shown
}

/// What a delete answers that has no object to show.
pub fn deleted(what: &GroupResource, name: &str, uid: &str) -> Value {
    let mut details = json!({ "name": name, "kind": what.resource, "uid": uid });
    if !what.group.is_empty() {
        details["group"] = json!(what.group);
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_not_there() {
        let status = Refusal::not_found(&GroupResource::new("apps", "deployments"), "web").to_status();
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "deployments.apps \"web\" not found", "reason": "NotFound", "code": 404,
            "details": { "name": "web", "group": "apps", "kind": "deployments" },
        });
        assert_eq!(status, expected);
    }

    #[test]
    fn a_revision_that_is_not_reached_says_when_to_come_back() {
        let refusal = Refusal::too_large_resource_version(100, 90);
        assert_eq!((refusal.code(), refusal.retry_after_s), (504, Some(1)));
        let status = refusal.to_status();
        assert_eq!(status["reason"], "Timeout");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        assert_eq!(status["details"]["causes"], json!([cause]));
    }

    #[test]
    fn what_is_invalid_names_each_field() {
        let causes = vec![
            Cause::required("metadata.name", "name or generateName is required"),
            Cause::invalid("spec.replicas", &json!(-1), "must be greater than or equal to 0"),
        ];
        let refusal = Refusal::invalid("apps", "ReplicaSet", "a", causes);
        assert_eq!(
            refusal.message,
            "ReplicaSet.apps \"a\" is invalid: [metadata.name: Required value: name or generateName is required, \
             spec.replicas: Invalid value: -1: must be greater than or equal to 0]"
        );
        assert_eq!(refusal.to_status()["details"]["causes"][1]["field"], "spec.replicas");
        assert_eq!(refusal.to_status()["code"], 422);
    }

    #[test]
    fn conflict_and_already_exists_differ_by_their_reason_only() {
        let what = GroupResource::new("", "pods");
        let (one, other) = (Refusal::conflict(&what, "a", "it changed"), Refusal::already_exists(&what, "a"));
        assert_eq!((one.code(), other.code()), (409, 409));
        assert_ne!(one.to_status()["reason"], other.to_status()["reason"]);
    }

    #[test]
    fn a_list_that_lost_its_revision_is_given_another_place_to_go_on() {
        let mut refusal = Refusal::expired("the provided continue parameter is too old");
        refusal.continue_token = Some("abc".to_owned());
        assert_eq!(refusal.to_status()["metadata"]["continue"], "abc");
    }
}
