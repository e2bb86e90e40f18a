//! Who may do what.

use super::authn::User;
use meerkat_kubernetes::status::{GroupResource, Reason, Refusal};
use meerkat_watchcache::request_path::ObjectTarget;
use meerkat_watchcache::store::Pass;

/// What somebody wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        /// Empty for all of them, or if there is none.
        namespace: &'a str,
        /// Empty for any.
        name: &'a str,
    },
    Page {
        verb: &'a str,
        path: &'a str,
    },
}

impl<'a> Act<'a> {
    /// `name`: the one that a selector or the path asks for.
    pub fn on_objects(verb: &'a str, target: &'a ObjectTarget, name: &'a str) -> Act<'a> {
        Act::Resource {
            verb,
            group: &target.group,
            resource: &target.resource,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name,
        }
    }

    fn refusal(&self, user: &User) -> Refusal {
        match self {
            Act::Resource { verb, group, resource, namespace, name, .. } => {
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {namespace:?}")
                };
                let why = format!("User {:?} cannot {verb} resource {resource:?} {place}", user.name);
                Refusal::forbidden(&GroupResource::new(*group, *resource), name, &why)
            }
            Act::Page { verb, path } => {
                let why = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                Refusal::new(Reason::Forbidden, why)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub allowed: bool,
    pub reason: String,
    /// By which revision of users and roles; 0 where there are none.
    pub rules: u64,
}

/// Something that a user may do, as SelfSubjectRulesReview tells it. `*` is all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    Resources { verbs: Vec<String>, groups: Vec<String>, resources: Vec<String>, names: Vec<String> },
    Pages { verbs: Vec<String>, paths: Vec<String> },
}

pub trait Authorizer: Send + Sync + 'static {
    fn may(&self, user: &User, act: &Act<'_>) -> Verdict;

    /// What the user may do in a namespace, as far as it can be told.
    fn rules(&self, user: &User, namespace: &str) -> Vec<Rule>;
}

/// The refusal of what the user may not do, or what lets them.
pub fn check(authorizer: &dyn Authorizer, user: &User, act: &Act<'_>) -> Result<Pass, Refusal> {
    let verdict = authorizer.may(user, act);
    if !verdict.allowed {
        return Err(act.refusal(user));
    }
    // Who they are and what they may was found one after the other: it holds by the older of both.
    Ok(Pass { user: user.known_name().map(str::to_owned), rules: user.rules.min(verdict.rules) })
}

/// Everybody may do everything.
#[derive(Debug)]
pub struct AllowAll;

impl Authorizer for AllowAll {
    fn may(&self, _user: &User, _act: &Act<'_>) -> Verdict {
        Verdict { allowed: true, reason: "everything is allowed here".to_owned(), rules: 0 }
    }

    fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
        let all = || vec!["*".to_owned()];
        vec![
            Rule::Resources { verbs: all(), groups: all(), resources: all(), names: Vec::new() },
            Rule::Pages { verbs: all(), paths: all() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Authorizer for Nobody {
        fn may(&self, _user: &User, _act: &Act<'_>) -> Verdict {
            Verdict { allowed: false, reason: String::new(), rules: 0 }
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
            Vec::new()
        }
    }

    #[test]
    fn what_is_not_allowed_is_forbidden_by_name() {
        let act = Act::Resource {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "",
            namespace: "a",
            name: "web",
        };
        let refusal = check(&Nobody, &User::anonymous(), &act).expect_err("not allowed");
        assert_eq!((refusal.code(), refusal.name.as_str()), (403, "web"));
        assert!(refusal.message.contains("cannot get resource \"deployments\" in the namespace \"a\""));
        let page = Act::Page { verb: "get", path: "/metrics" };
        assert_eq!(check(&Nobody, &User::anonymous(), &page).expect_err("not allowed").code(), 403);
        assert_eq!(check(&AllowAll, &User::anonymous(), &page), Ok(Pass::default()));
    }

    struct At(u64);

    impl Authorizer for At {
        fn may(&self, _user: &User, _act: &Act<'_>) -> Verdict {
            Verdict { allowed: true, reason: String::new(), rules: self.0 }
        }

        fn rules(&self, _user: &User, _namespace: &str) -> Vec<Rule> {
            Vec::new()
        }
    }

    #[test]
    fn a_pass_is_of_the_older_of_what_it_was_found_by() {
        let page = Act::Page { verb: "get", path: "/metrics" };
        let user = User { name: "anna".to_owned(), groups: Vec::new(), rules: 7 };
        for (authorizer, rules) in [(At(6), 6), (At(7), 7), (At(8), 7)] {
            let pass = Pass { user: Some("anna".to_owned()), rules };
            assert_eq!(check(&authorizer, &user, &page), Ok(pass));
        }
    }
}
