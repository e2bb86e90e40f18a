//! Who is who at the door of a member, and who may do what: the users and roles of its store.
//!
//! A bearer token is the store's. Who may read a resource's keys under `/registry` may get, list and
//! watch it; who may write them may create; who may do both may change and delete. Pages that show no
//! objects are for everybody, questions about one's own access for every user, and those about others for
//! administrators. While the store asks nobody who they are, neither does the door.

use futures::future::BoxFuture;
use meerkat_kubernetes::registry::Registry;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_listwatch::door::Access;
use meerkat_listwatch::door::authn::{Authenticator, Credentials, User};
use meerkat_listwatch::door::authz::{Act, Authorizer, Rule, Verdict};
use meerkat_server::local_store::{LocalAccess, LocalKeys, LocalRules};
use meerkat_watchcache::key::{self, ROOT};
use std::sync::Arc;

pub fn access(store: LocalAccess) -> Access {
    let by_store = Arc::new(ByStore { store, built_in: Registry::built_in() });
    Access { authenticator: by_store.clone(), authorizer: by_store }
}

struct ByStore {
    store: LocalAccess,
    built_in: Registry,
}

fn may(rules: &LocalRules, user: Option<&str>, touch: &Touch, keys: LocalKeys<'_>) -> bool {
    let Touch { reads, writes } = *touch;
    (!reads || rules.may_read(user, keys)) && (!writes || rules.may_write(user, keys))
}

/// What a verb does with the keys of what it is about.
#[derive(Debug, PartialEq, Eq)]
struct Touch {
    reads: bool,
    writes: bool,
}

/// The answer to a change or a delete shows the object, and so what others have put there; as that to a Put or a
/// DeleteRange that asks for what was there before. So does a refusal of an action on an object, as of a binding or an
/// eviction, which is created under the object's name.
fn touch(verb: &str, subresource: &str) -> Touch {
    match verb {
        "get" | "list" | "watch" => Touch { reads: true, writes: false },
        "create" if subresource.is_empty() => Touch { reads: false, writes: true },
        _ => Touch { reads: true, writes: true },
    }
}

impl Authenticator for ByStore {
    fn user<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<User, Refusal>> {
        Box::pin(async move {
            match self.store.user(credentials.bearer.as_deref()).await {
                Ok(Some((name, rules))) => {
                    Ok(User { name, groups: vec!["system:authenticated".to_owned()], rules })
                }
                Ok(None) => Ok(User::anonymous()),
                Err(error) => Err(Refusal::new(Reason::Unauthorized, error.to_string())),
            }
        })
    }
}

impl Authorizer for ByStore {
    fn may(&self, user: &User, act: &Act<'_>) -> Verdict {
        // All by one moment, which the write that follows is judged by again.
        let (rules, name) = (self.store.now(), user.known_name());
        let allowed = match act {
            Act::Page { .. } => true,
            Act::Resource { verb, group, resource, subresource, namespace, name: object } => {
                let touch = touch(verb, subresource);
                match keys(&self.built_in, group, resource, namespace, object) {
                    Keys::None if is_about_others(group, resource) => rules.is_admin(name),
                    Keys::None => rules.is_known(name),
                    Keys::NoPlace => false,
                    Keys::Prefix(prefix) => may(&rules, name, &touch, LocalKeys::Prefix(&prefix)),
                    Keys::One(key) => may(&rules, name, &touch, LocalKeys::One(&key)),
                }
            }
        };
        let reason = "by the users and roles of the store".to_owned();
        Verdict { allowed, reason, rules: rules.revision() }
    }

    /// What follows from ranges of keys has no such form: whoever needs to know asks about one act.
    fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
        let all = || vec!["*".to_owned()];
        vec![Rule::Pages { verbs: all(), paths: all() }]
    }
}

/// Whether a question about access or a token, of which nothing is kept, is about somebody else than who asks. The answer
/// tells what others may, so that only administrators get it, as they do from the store.
fn is_about_others(group: &str, resource: &str) -> bool {
    let is_review = matches!(group, "authorization.k8s.io" | "authentication.k8s.io");
    is_review && !resource.starts_with("selfsubject")
}

/// Where what somebody asks about is kept.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    One(String),
    /// The keys with this prefix.
    Prefix(String),
    /// Nowhere.
    None,
    /// A name that no key can have.
    NoPlace,
}

fn keys(built_in: &Registry, group: &str, resource: &str, namespace: &str, name: &str) -> Keys {
    let built_in = built_in.by_group_resource(group, resource);
    // A name in all namespaces is as many objects as have it.
    let anywhere = namespace.is_empty() && built_in.is_some_and(|kind| kind.is_namespaced());
    let prefix = match built_in {
        Some(kind) if kind.storage.is_none() => return Keys::None,
        Some(kind) => match key::list_prefix(kind, namespace) {
            Ok(prefix) => prefix,
            Err(_) => return Keys::NoPlace,
        },
        // A kind that was defined later is kept under its own name.
        None if namespace.is_empty() => format!("{ROOT}{group}/{resource}/"),
        None => format!("{ROOT}{group}/{resource}/{namespace}/"),
    };
    let plain = |text: &str| !text.contains('/') && text != "." && text != "..";
    match ([group, resource, namespace, name].into_iter().all(plain), name) {
        (false, _) => Keys::NoPlace,
        (true, "") => Keys::Prefix(prefix),
        (true, _) if anywhere => Keys::Prefix(prefix),
        (true, name) => Keys::One(prefix + name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_only_write_is_shown_nothing_that_was_there() {
        for (verb, reads, writes) in [
            ("get", true, false),
            ("list", true, false),
            ("watch", true, false),
            ("create", false, true),
            ("update", true, true),
            ("patch", true, true),
            ("delete", true, true),
            ("deletecollection", true, true),
            ("a verb to come", true, true),
        ] {
            assert_eq!(touch(verb, ""), Touch { reads, writes }, "{verb}");
        }
        for subresource in ["binding", "eviction"] {
            assert_eq!(touch("create", subresource), Touch { reads: true, writes: true }, "{subresource}");
        }
    }

    #[test]
    fn every_question_is_about_oneself_or_about_others() {
        let built_in = Registry::built_in();
        let reviews: Vec<(&str, bool)> = built_in
            .kinds()
            .filter(|kind| kind.storage.is_none())
            .map(|kind| (kind.plural.as_str(), is_about_others(&kind.group, &kind.plural)))
            .collect();
        for (resource, others) in [
            ("selfsubjectaccessreviews", false),
            ("selfsubjectrulesreviews", false),
            ("selfsubjectreviews", false),
            ("subjectaccessreviews", true),
            ("localsubjectaccessreviews", true),
            ("tokenreviews", true),
        ] {
            assert!(reviews.contains(&(resource, others)), "{resource}: {reviews:?}");
        }
        assert_eq!(reviews.len(), 6, "one that is new is one of both: {reviews:?}");
    }

    #[test]
    fn a_resource_is_the_prefix_of_its_keys() {
        let built_in = Registry::built_in();
        let prefix = |text: &str| Keys::Prefix(text.to_owned());
        let table = [
            (("", "pods", "", ""), prefix("/registry/pods/")),
            (("", "pods", "a", ""), prefix("/registry/pods/a/")),
            (("", "pods", "a", "x"), Keys::One("/registry/pods/a/x".to_owned())),
            (("", "pods", "", "x"), prefix("/registry/pods/")),
            (("", "nodes", "", "x"), Keys::One("/registry/minions/x".to_owned())),
            (("stable.example.com", "crontabs", "a", ""), prefix("/registry/stable.example.com/crontabs/a/")),
            (("stable.example.com", "crontabs", "../b", ""), Keys::NoPlace),
            (("", "pods", "a", "x/../y"), Keys::NoPlace),
            (("", "pods", "..", ""), Keys::NoPlace),
            (("authorization.k8s.io", "selfsubjectaccessreviews", "", ""), Keys::None),
        ];
        for ((group, resource, namespace, name), expected) in table {
            assert_eq!(
                keys(&built_in, group, resource, namespace, name),
                expected,
                "{resource} {namespace} {name}"
            );
        }
    }
}
