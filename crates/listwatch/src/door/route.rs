//! Whether a kind has what a path asks of it.

use crate::storage::Part;
use crate::write_rules::Endpoint;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::request_path::{ObjectTarget, Verb};

/// Which part of its objects a request is about.
pub fn part(kind: &Kind, target: &ObjectTarget) -> Result<Part, Refusal> {
    check_place(kind, target)?;
    let Some(subresource) = target.subresource.as_deref() else {
        return if kind.has_verb(&target.verb.to_string()) {
            Ok(Part::Of(Endpoint::Whole))
        } else {
            Err(not_allowed(kind, target))
        };
    };
    let (part, verbs): (Part, &[Verb]) = match subresource {
        "status" if kind.subresources.status => {
            (Part::Of(Endpoint::Status), &[Verb::Get, Verb::Update, Verb::Patch])
        }
        "scale" if kind.subresources.scale.is_some() => {
            (Part::Scale, &[Verb::Get, Verb::Update, Verb::Patch])
        }
        "binding" | "eviction" if kind.subresources.pod_actions => {
            (Part::Of(Endpoint::Whole), &[Verb::Create])
        }
        "finalize" if kind.subresources.finalize => (Part::Of(Endpoint::Finalize), &[Verb::Update]),
        _ => return Err(Refusal::no_such_page()),
    };
    if verbs.contains(&target.verb) { Ok(part) } else { Err(not_allowed(kind, target)) }
}

/// A kind lives in namespaces or not, and is asked for accordingly.
fn check_place(kind: &Kind, target: &ObjectTarget) -> Result<(), Refusal> {
    match (kind.is_namespaced(), &target.namespace, &target.name) {
        (false, Some(_), _) | (true, None, Some(_)) => Err(Refusal::no_such_page()),
        (true, None, None) if !matches!(target.verb, Verb::List | Verb::Watch) => {
            Err(not_allowed(kind, target))
        }
        _ => Ok(()),
    }
}

fn not_allowed(kind: &Kind, target: &ObjectTarget) -> Refusal {
    Refusal::method_not_allowed(&kind.group_resource(), &target.verb.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::query::Query;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_watchcache::request_path::{Target, parse};

    fn asked(method: &str, path: &str) -> Result<Part, u16> {
        let Ok(Target::Objects(target)) = parse(method, path, &Query::default()) else { return Err(1) };
        let registry = Registry::built_in();
        let kind = registry.by_resource(&target.group, &target.version, &target.resource).ok_or(2_u16)?;
        part(kind, &target).map_err(|refusal| refusal.code())
    }

    #[test]
    fn parts_of_objects() {
        let whole = Ok(Part::Of(Endpoint::Whole));
        assert_eq!(asked("GET", "/api/v1/namespaces/a/pods/x"), whole);
        assert_eq!(asked("GET", "/api/v1/pods"), whole);
        assert_eq!(asked("POST", "/api/v1/namespaces/a/pods"), whole);
        assert_eq!(asked("GET", "/api/v1/namespaces/a"), whole);
        assert_eq!(asked("POST", "/api/v1/namespaces/a/pods/x/binding"), whole);
        assert_eq!(asked("PUT", "/api/v1/namespaces/a/pods/x/status"), Ok(Part::Of(Endpoint::Status)));
        assert_eq!(asked("PUT", "/api/v1/namespaces/a/finalize"), Ok(Part::Of(Endpoint::Finalize)));
        assert_eq!(asked("GET", "/apis/apps/v1/namespaces/a/deployments/x/scale"), Ok(Part::Scale));
    }

    #[test]
    fn what_a_kind_does_not_have() {
        for (method, path, code) in [
            ("GET", "/api/v1/pods/x", 404),
            ("GET", "/api/v1/namespaces/a/nodes", 404),
            ("POST", "/api/v1/pods", 405),
            ("DELETE", "/api/v1/pods", 405),
            ("GET", "/api/v1/namespaces/a/pods/x/log", 404),
            ("GET", "/api/v1/namespaces/a/pods/x/scale", 404),
            ("POST", "/api/v1/namespaces/a/pods/x/status", 405),
            ("GET", "/api/v1/namespaces/a/finalize", 405),
            ("GET", "/api/v1/namespaces/a/pods/x/eviction", 405),
            ("POST", "/api/v1/namespaces/a/services/x/eviction", 404),
            ("POST", "/api/v1/namespaces/a/pods/x/exec", 404),
            ("DELETE", "/api/v1/namespaces/a/pods/x/status", 405),
            ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 405),
        ] {
            assert_eq!(asked(method, path), Err(code), "{method} {path}");
        }
    }
}
