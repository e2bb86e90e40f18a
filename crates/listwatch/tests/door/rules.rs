//! Users and roles that change while a request is on its way: it is done by those of now, or not at all.

use super::rig::{MAPS, Rig, config_map};
use futures::future::BoxFuture;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_listwatch::door::authn::{Authenticator, Credentials, User};
use meerkat_listwatch::door::authz::{Act, Authorizer, Rule, Verdict};
use meerkat_listwatch::door::{Access, DoorConfig};
use meerkat_watchcache::memory_store::MemoryStore;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What changes right after somebody was let in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// Rules of others.
    Others,
    /// They may not any more.
    Taken,
    /// Their token is void.
    Void,
    /// Something changes each time.
    Always,
}

/// Users and roles that the store knows too.
struct Changing {
    store: Arc<MemoryStore>,
    then: parking_lot::Mutex<Then>,
    rules: AtomicU64,
}

impl Changing {
    /// The revision that somebody is let in by; the store is at another as soon as they are.
    fn let_in(&self) -> u64 {
        let rules = self.rules.load(Ordering::Acquire);
        let then = *self.then.lock();
        if then == Then::Always || (then != Then::Nothing && rules == 1) {
            self.store.set_rules(self.rules.fetch_add(1, Ordering::AcqRel) + 1);
        }
        rules
    }

    fn has_changed(&self) -> bool {
        1 < self.rules.load(Ordering::Acquire)
    }
}

fn is_write(act: &Act<'_>) -> bool {
    matches!(act, Act::Resource { verb, .. } if !matches!(*verb, "get" | "list" | "watch"))
}

impl Authenticator for Changing {
    fn user<'a>(&'a self, _credentials: &'a Credentials) -> BoxFuture<'a, Result<User, Refusal>> {
        Box::pin(async {
            if *self.then.lock() == Then::Void && self.has_changed() {
                return Err(Refusal::new(Reason::Unauthorized, "log in again"));
            }
            Ok(User { name: "anna".to_owned(), groups: Vec::new(), rules: u64::MAX })
        })
    }
}

impl Authorizer for Changing {
    fn may(&self, _user: &User, act: &Act<'_>) -> Verdict {
        let taken = *self.then.lock() == Then::Taken && self.has_changed();
        let rules = if is_write(act) { self.let_in() } else { self.rules.load(Ordering::Acquire) };
        Verdict { allowed: !(is_write(act) && taken), reason: String::new(), rules }
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
        Vec::new()
    }
}

/// Makes two objects, then asks, while `then` happens: what is answered, and what is there afterwards. What was
/// changed by it is marked.
async fn asked(method: &str, path: &str, body: &Value, then: Then) -> (u16, Value, String) {
    let store = Arc::new(MemoryStore::new());
    let (nothing, rules) = (parking_lot::Mutex::new(Then::Nothing), AtomicU64::new(1));
    let changing = Arc::new(Changing { store: store.clone(), then: nothing, rules });
    let access = Access { authenticator: changing.clone(), authorizer: changing.clone() };
    let rig = Rig::with(DoorConfig { access, ..DoorConfig::default() }, store.clone()).await;
    for name in ["a", "b"] {
        rig.make(name, json!({})).await;
    }
    store.set_rules(1);
    *changing.then.lock() = then;
    let form = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let sent = if body.is_null() { String::new() } else { body.to_string() };
    let reply = rig.ask(method, path, &[("content-type", form)], sent).await;
    let maps = store.rows("/registry/configmaps/default/").into_iter();
    let maps = maps.map(|row| {
        let object: Value = serde_json::from_slice(&row.value).expect("an object");
        let mark = if object["data"]["x"].is_null() { "" } else { "!" };
        format!("{}{mark} ", object["metadata"]["name"].as_str().unwrap_or_default())
    });
    (reply.code, reply.json(), maps.collect())
}

fn with_data(name: &str) -> Value {
    let mut map = config_map(name, json!({}));
    map["data"] = json!({ "x": "1" });
    map
}

#[tokio::test]
async fn what_was_taken_between_the_question_and_the_write_is_not_done() {
    let one = format!("{MAPS}/a");
    let patch = json!({ "data": { "x": "1" } });
    let table = [
        ("POST", MAPS, with_data("c"), 201, "a b c! "),
        ("PUT", &one, with_data("a"), 200, "a! b "),
        ("PATCH", &one, patch, 200, "a! b "),
        ("DELETE", &one, Value::Null, 200, "b "),
        ("DELETE", MAPS, Value::Null, 200, ""),
    ];
    for (method, path, body, code, after) in table {
        for then in [Then::Nothing, Then::Others] {
            let (found, answer, maps) = asked(method, path, &body, then).await;
            assert_eq!((found, maps.as_str()), (code, after), "{method} {path}: {answer}");
        }
        for (then, code, reason) in [
            (Then::Taken, 403, "Forbidden"),
            (Then::Void, 401, "Unauthorized"),
            (Then::Always, 503, "ServiceUnavailable"),
        ] {
            let (found, answer, maps) = asked(method, path, &body, then).await;
            assert_eq!((found, maps.as_str()), (code, "a b "), "{method} {path}: {answer}");
            assert_eq!((&answer["kind"], &answer["reason"]), (&json!("Status"), &json!(reason)));
        }
    }
}

#[tokio::test]
async fn what_writes_nothing_shows_nothing_either_to_who_may_not_any_more() {
    let one = format!("{MAPS}/a");
    let (dry_one, dry_all) = (format!("{one}?dryRun=All"), format!("{MAPS}?dryRun=All"));
    let table = [
        ("PATCH", &one, json!({})),
        ("PATCH", &dry_one, json!({ "data": { "x": "1" } })),
        ("PUT", &dry_one, with_data("a")),
        ("DELETE", &dry_one, Value::Null),
        ("DELETE", &dry_all, Value::Null),
        ("POST", &dry_all, with_data("c")),
    ];
    for (method, path, body) in table {
        let done = if method == "POST" { 201 } else { 200 };
        for (then, code) in
            [(Then::Nothing, done), (Then::Others, done), (Then::Taken, 403), (Then::Void, 401)]
        {
            let (found, answer, maps) = asked(method, path, &body, then).await;
            assert_eq!((found, maps.as_str()), (code, "a b "), "{method} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn a_refusal_that_came_late_says_who_may_not_do_what() {
    let (_, answer, _) = asked("POST", MAPS, &config_map("c", json!({})), Then::Taken).await;
    let message = answer["message"].as_str().unwrap_or_default();
    let expected = r#"User "anna" cannot create resource "configmaps" in the namespace "default""#;
    assert!(message.contains(expected), "{answer}");
}
