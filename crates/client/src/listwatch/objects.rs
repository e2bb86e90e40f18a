//! Reading and writing objects, at whichever member serves.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

use super::answer::{Outcome, Verdict, judge};
use super::wire::{Call, Failed, whole};
use super::{Door, Error, Resource};
use crate::Fate;

/// Objects asked for at a time.
const PAGE: u64 = 500;
/// A member that has not answered a read by then is left for another one.
const ATTEMPT: Duration = Duration::from_secs(3);

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// The objects of one resource. Each is JSON as the door has it.
#[derive(Clone, Debug)]
pub struct Objects {
    door: Door,
    resource: Resource,
}

/// What a list gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// The objects, by namespace and name.
    pub items: Vec<Value>,
    /// The resourceVersion whose state this is.
    pub resource_version: String,
}

impl Objects {
    pub(crate) fn new(door: Door, resource: Resource) -> Objects {
        Objects { door, resource }
    }

    /// Makes a new object, and gives it back as it is stored. An object without a name gets one by its
    /// `generateName`.
    pub async fn create(&self, object: &Value) -> Result<Value, Error> {
        let call = Call { method: Method::POST, content_type: JSON, body: bytes(object) };
        self.call(&self.resource.collection_path(), call).await
    }

    /// The object of this name.
    pub async fn get(&self, name: &str) -> Result<Value, Error> {
        self.call(&self.resource.object_path(name, ""), Call::get()).await
    }

    /// All objects of the resource, at one resourceVersion.
    pub async fn list(&self) -> Result<Selected, Error> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let path = self.resource.list_path(PAGE, token.as_deref());
            let mut page = self.call(&path, Call::get()).await?;
            if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            let metadata = |name: &str| page["metadata"][name].as_str().unwrap_or_default().to_owned();
            match metadata("continue") {
                none if none.is_empty() => {
                    return Ok(Selected { items, resource_version: metadata("resourceVersion") });
                }
                next => token = Some(next),
            }
        }
    }

    /// Makes the object what it is here. With `metadata.resourceVersion` in it, only if it is still at
    /// that version: see [`Error::is_conflict`].
    pub async fn update(&self, object: &Value) -> Result<Value, Error> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            return Err(Error::invalid("an object without a name cannot be updated"));
        }
        let call = Call { method: Method::PUT, content_type: JSON, body: bytes(object) };
        self.call(&self.resource.object_path(name, ""), call).await
    }

    /// Merges this into the object: members replace those of the same name, and null removes one.
    pub async fn patch(&self, name: &str, patch: &Value) -> Result<Value, Error> {
        self.merge(name, "", patch).await
    }

    /// The same, for its status alone.
    pub async fn patch_status(&self, name: &str, patch: &Value) -> Result<Value, Error> {
        self.merge(name, "status", patch).await
    }

    /// Deletes it. An object with finalizers is marked, and goes when the last of them is gone.
    pub async fn delete(&self, name: &str) -> Result<Value, Error> {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
        let call = Call { method: Method::DELETE, content_type: JSON, body: bytes(&options) };
        self.call(&self.resource.object_path(name, ""), call).await
    }

    async fn merge(&self, name: &str, subresource: &str, patch: &Value) -> Result<Value, Error> {
        let call = Call { method: Method::PATCH, content_type: MERGE_PATCH, body: bytes(patch) };
        self.call(&self.resource.object_path(name, subresource), call).await
    }

    async fn call(&self, path: &str, call: Call) -> Result<Value, Error> {
        let deadline = Instant::now() + self.door.timeout;
        loop {
            let member = self.door.shared.route.lock().at();
            let left = deadline.saturating_duration_since(Instant::now());
            let attempt = self.attempt(member, path, &call, left).await;
            let (rest, error) = match attempt {
                Ok(answer) => {
                    self.door.shared.route.lock().worked(member);
                    return Ok(answer);
                }
                Err(Attempt { again: false, error, .. }) => return Err(error),
                Err(Attempt { rest, error, .. }) => (rest, error),
            };
            let now = Instant::now();
            let wait = self.door.shared.route.lock().failed(member, rest, now, rand::random());
            if deadline <= now + wait {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        member: usize,
        path: &str,
        call: &Call,
        left: Duration,
    ) -> Result<Value, Attempt> {
        let safe = call.method == Method::GET;
        let within = if safe { left.min(ATTEMPT) } else { left };
        let reply = match self.door.wire().send(&self.door.url(member, path), call, within).await {
            Ok(reply) => reply,
            Err(Failed::NotSent(why)) => return Err(Attempt::silent(Outcome::NotSent, safe, why)),
            Err(Failed::Lost(why)) => return Err(Attempt::silent(Outcome::Lost, safe, why)),
        };
        let (code, rest) = (reply.code, reply.retry_after);
        let body =
            whole(reply.body, within).await.map_err(|why| Attempt::silent(Outcome::Lost, safe, why))?;
        let (again, fate) = match judge(Outcome::Answered { code, retry_after: rest.is_some() }, safe) {
            Verdict::Done => {
                let parsed = serde_json::from_slice(&body);
                return parsed.map_err(|error| Attempt::silent(Outcome::Lost, safe, error.to_string()));
            }
            Verdict::Again(fate) => (true, fate),
            Verdict::Over(fate) => (false, fate),
        };
        Err(Attempt { again, rest, error: Error::answered(fate, code, &body) })
    }
}

/// One that gave no result.
struct Attempt {
    again: bool,
    rest: Option<Duration>,
    error: Error,
}

impl Attempt {
    fn silent(outcome: Outcome, safe: bool, why: String) -> Attempt {
        let (again, fate) = match judge(outcome, safe) {
            Verdict::Again(fate) => (true, fate),
            Verdict::Over(fate) => (false, fate),
            Verdict::Done => (false, Fate::Unknown),
        };
        Attempt { again, rest: None, error: Error::new(fate, why) }
    }
}

fn bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}
