//! Where an object lives in the key space that both doors share.
//!
//! `/registry/<place>/<namespace>/<name>`, without the namespace for a kind of the whole cluster. A prefix
//! of a list always ends in `/`: without it the namespace `ab` would be seen in the namespace `a`. A name
//! or namespace that could leave its segment never becomes part of a key.

use meerkat_kubernetes::names::NameRule;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;

pub const ROOT: &str = "/registry/";

/// What a key says about the object under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName<'a> {
    /// Empty for a kind of the whole cluster.
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Of one object. `namespace` is not looked at if the kind has none.
pub fn object(kind: &Kind, namespace: &str, name: &str) -> Result<String, Refusal> {
    let mut key = if kind.is_namespaced() {
        if namespace.is_empty() {
            return Err(Refusal::bad_request("an object of this kind must be asked for in a namespace"));
        }
        list_prefix(kind, namespace)?
    } else {
        list_prefix(kind, "")?
    };
    key.push_str(segment("name", name)?);
    Ok(key)
}

/// Of all objects of a kind; in one namespace, if `namespace` is not empty and the kind has one.
pub fn list_prefix(kind: &Kind, namespace: &str) -> Result<String, Refusal> {
    let Some(place) = &kind.storage else {
        return Err(Refusal::method_not_allowed(&kind.group_resource(), "list"));
    };
    let mut prefix = format!("{ROOT}{place}/");
    if kind.is_namespaced() && !namespace.is_empty() {
        prefix.push_str(segment("namespace", namespace)?);
        prefix.push('/');
    }
    Ok(prefix)
}

/// The way back. Nothing if the key is of another kind, or was put there by somebody else.
pub fn parse<'a>(kind: &Kind, key: &'a str) -> Option<ObjectName<'a>> {
    let place = kind.storage.as_deref()?;
    let rest = key.strip_prefix(ROOT)?.strip_prefix(place)?.strip_prefix('/')?;
    let (namespace, name) = if kind.is_namespaced() { rest.split_once('/')? } else { ("", rest) };
    let good = |text: &str| NameRule::PathSegment.refuses(text).is_none();
    let whole = good(name) && (namespace.is_empty() != kind.is_namespaced());
    whole.then_some(ObjectName { namespace, name })
}

fn segment<'a>(what: &str, text: &'a str) -> Result<&'a str, Refusal> {
    match NameRule::PathSegment.refuses(text) {
        None => Ok(text),
        Some(why) => Err(Refusal::bad_request(format!("invalid {what} {text:?}: {why}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_kubernetes::registry::Registry;

    fn kind(group: &str, plural: &str) -> Kind {
        (**Registry::built_in().by_group_resource(group, plural).expect("built in")).clone()
    }

    #[test]
    fn there_and_back() {
        let mut custom = kind("", "configmaps");
        custom.storage = Some("stable.example.com/crontabs".to_owned());
        for (kind, namespace, expected) in [
            (kind("", "pods"), "a", "/registry/pods/a/x"),
            (kind("", "nodes"), "", "/registry/minions/x"),
            (kind("", "services"), "a", "/registry/services/specs/a/x"),
            (kind("", "endpoints"), "a", "/registry/services/endpoints/a/x"),
            (kind("", "namespaces"), "", "/registry/namespaces/x"),
            (kind("networking.k8s.io", "ingresses"), "a", "/registry/ingress/a/x"),
            (kind("events.k8s.io", "events"), "a", "/registry/events/a/x"),
            (custom, "a", "/registry/stable.example.com/crontabs/a/x"),
        ] {
            assert_eq!(object(&kind, namespace, "x").as_deref(), Ok(expected));
            assert_eq!(parse(&kind, expected), Some(ObjectName { namespace, name: "x" }));
        }
    }

    #[test]
    fn a_prefix_ends_in_a_slash() {
        let pods = kind("", "pods");
        assert_eq!(list_prefix(&pods, "").as_deref(), Ok("/registry/pods/"));
        assert_eq!(list_prefix(&pods, "a").as_deref(), Ok("/registry/pods/a/"));
        assert_eq!(list_prefix(&kind("", "nodes"), "a").as_deref(), Ok("/registry/minions/"));
    }

    #[test]
    fn no_name_leaves_its_segment() {
        let pods = kind("", "pods");
        for bad in ["", ".", "..", "a/b", "../secrets/x", "%2e"] {
            assert_eq!(object(&pods, "a", bad).expect_err(bad).code(), 400);
            assert_eq!(object(&pods, bad, "x").expect_err(bad).code(), 400);
        }
        assert_eq!(list_prefix(&pods, "..").expect_err("leaves").code(), 400);
    }

    #[test]
    fn keys_of_others_are_no_objects() {
        let pods = kind("", "pods");
        for other in [
            "/registry/pods/x",
            "/registry/pods//x",
            "/registry/pods/a/",
            "/registry/pods/a/b/c",
            "/registry/podsets/a/x",
            "/other",
            "/registry/pods",
        ] {
            assert_eq!(parse(&pods, other), None, "{other}");
        }
        assert_eq!(parse(&kind("", "nodes"), "/registry/minions/a/x"), None);
    }

    #[test]
    fn what_is_not_kept_has_no_key() {
        let review = kind("authorization.k8s.io", "selfsubjectaccessreviews");
        assert_eq!(object(&review, "", "x").expect_err("not kept").code(), 405);
    }
}
