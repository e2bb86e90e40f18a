//! What a method and a path ask for: objects of some kind, or a page about the server.
//!
//! A path is cut at its slashes first and decoded after, so that no escape can add a segment. A segment
//! that is empty, that climbs, or that hides a slash or a NUL is refused before anybody builds a key
//! from it; a name or a namespace that passes can be a part of a key. Whether a kind exists, and whether
//! it lives in namespaces, is not known here.

use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::percent::decode_segment;
use meerkat_kubernetes::query::Query;
use meerkat_kubernetes::status::{GroupResource, Reason, Refusal};
use std::fmt;

/// Far above the longest name in the deepest path, each of whose bytes is escaped.
pub const PATH_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Objects(ObjectTarget),
    Page(Page),
}

/// A request about objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTarget {
    pub verb: Verb,
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// The plural name.
    pub resource: String,
    /// None for all namespaces, and for a kind that lives in none.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The deprecated `/watch/` stands before the resource. The name then narrows the watch.
    pub watch_prefix: bool,
}

impl ObjectTarget {
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.as_str(), self.resource.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

/// As rules of access name it.
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        })
    }
}

/// A path that is about the server and not about objects. All are read only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/`: the paths there are.
    Root,
    /// `/version`
    Version,
    /// `/api`: the versions of the core group.
    CoreVersions,
    /// `/api/v1`: the resources of the core group.
    CoreResources { version: String },
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group { group: String },
    /// `/apis/G/V`
    GroupResources { group: String, version: String },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`: which documents there are.
    OpenApiV3Index,
    /// `/openapi/v3/...`: one of them, by what the index calls it: `api/v1`, `apis/G/V`.
    OpenApiV3 { document: String },
    /// `/healthz`, `/livez`, `/readyz`; or one check of theirs.
    Health { probe: Probe, check: Option<String> },
    /// `/metrics`
    Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Healthz,
    Livez,
    Readyz,
}

/// `path`: as it came, still escaped, without the query.
pub fn parse(method: &str, path: &str, query: &Query) -> Result<Target, Refusal> {
    let segments = segments(path)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        other => return page(method, other).map(Target::Page),
    };
    let (watch_prefix, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        _ => (false, rest),
    };
    let place = place(group, rest).ok_or_else(Refusal::no_such_page)?;
    if watch_prefix && place.subresource.is_some() {
        return Err(Refusal::no_such_page());
    }
    for name in place.namespace.iter().chain(&place.name) {
        check_name(name)?;
    }
    let asked = Asked { method, named: place.name.is_some(), sub: place.subresource.is_some() };
    let verb = if watch_prefix { asked.old_watch() } else { asked.verb(query) };
    let Some(verb) = verb else {
        let method = excerpt(method).to_ascii_lowercase();
        return Err(Refusal::method_not_allowed(&GroupResource::new(group, place.resource), &method));
    };
    Ok(Target::Objects(ObjectTarget {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        resource: place.resource.to_owned(),
        namespace: place.namespace.map(str::to_owned),
        name: place.name.map(str::to_owned),
        subresource: place.subresource.map(str::to_owned),
        watch_prefix,
    }))
}

/// Whether a name or a namespace may be one segment of a path, and so of a key.
pub fn is_path_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '\0'])
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if is_path_segment(name) {
        Ok(())
    } else {
        Err(Refusal::bad_request(format!("{:?} cannot be a name: it is no segment of a path", excerpt(name))))
    }
}

/// One slash at the end is forgiven, as clients ask for `/apis/`.
fn segments(path: &str) -> Result<Vec<String>, Refusal> {
    if PATH_BYTES_MAX < path.len() {
        return Err(Refusal::bad_request(format!("the path is longer than {PATH_BYTES_MAX} bytes")));
    }
    let Some(inside) = path.strip_prefix('/') else {
        return Err(Refusal::bad_request("the path does not begin with a slash"));
    };
    let inside = inside.strip_suffix('/').unwrap_or(inside);
    if inside.is_empty() {
        return if path == "/" { Ok(Vec::new()) } else { Err(bad_segment("")) };
    }
    inside.split('/').map(segment).collect()
}

fn segment(escaped: &str) -> Result<String, Refusal> {
    match decode_segment(escaped) {
        Some(text) if !matches!(text.as_str(), "" | "." | "..") && !text.contains(['/', '\0']) => Ok(text),
        _ => Err(bad_segment(escaped)),
    }
}

fn bad_segment(escaped: &str) -> Refusal {
    Refusal::bad_request(format!("{:?} cannot be a segment of a path", excerpt(escaped)))
}

struct Place<'a> {
    resource: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    subresource: Option<&'a str>,
}

/// What follows the version. A namespace is itself an object, which has subresources: those of the core
/// group are no resources inside it.
fn place<'a>(group: &str, rest: &[&'a str]) -> Option<Place<'a>> {
    let (namespace, rest) = match rest {
        ["namespaces", _, "status" | "finalize", ..] if group.is_empty() => (None, rest),
        ["namespaces", namespace, inside @ ..] if !inside.is_empty() => (Some(*namespace), inside),
        _ => (None, rest),
    };
    match rest {
        [resource] => Some(Place { resource, namespace, name: None, subresource: None }),
        [resource, name] => Some(Place { resource, namespace, name: Some(name), subresource: None }),
        [resource, name, sub] => {
            Some(Place { resource, namespace, name: Some(name), subresource: Some(sub) })
        }
        _ => None,
    }
}

struct Asked<'a> {
    method: &'a str,
    named: bool,
    sub: bool,
}

impl Asked<'_> {
    fn verb(&self, query: &Query) -> Option<Verb> {
        match (self.method, self.named) {
            ("GET" | "HEAD", true) => Some(Verb::Get),
            // A watch is nothing without its body.
            ("GET", false) if query.wants_watch() => Some(Verb::Watch),
            ("GET" | "HEAD", false) => Some(Verb::List),
            ("POST", named) if named == self.sub => Some(Verb::Create),
            ("PUT", true) => Some(Verb::Update),
            ("PATCH", true) => Some(Verb::Patch),
            ("DELETE", true) => Some(Verb::Delete),
            ("DELETE", false) => Some(Verb::DeleteCollection),
            _ => None,
        }
    }

    fn old_watch(&self) -> Option<Verb> {
        (self.method == "GET").then_some(Verb::Watch)
    }
}

fn page(method: &str, segments: &[&str]) -> Result<Page, Refusal> {
    let page = match segments {
        [] => Page::Root,
        ["version"] => Page::Version,
        ["api"] => Page::CoreVersions,
        ["api", version] => Page::CoreResources { version: (*version).to_owned() },
        ["apis"] => Page::Groups,
        ["apis", group] => Page::Group { group: (*group).to_owned() },
        ["apis", group, version] => {
            Page::GroupResources { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["openapi", "v2"] => Page::OpenApiV2,
        ["openapi", "v3"] => Page::OpenApiV3Index,
        ["openapi", "v3", document @ ..] => Page::OpenApiV3 { document: document.join("/") },
        ["healthz", check @ ..] => health(Probe::Healthz, check),
        ["livez", check @ ..] => health(Probe::Livez, check),
        ["readyz", check @ ..] => health(Probe::Readyz, check),
        ["metrics"] => Page::Metrics,
        _ => return Err(Refusal::no_such_page()),
    };
    if matches!(method, "GET" | "HEAD") {
        Ok(page)
    } else {
        Err(Refusal::new(
            Reason::MethodNotAllowed,
            format!("{} is not supported on this page", excerpt(method)),
        ))
    }
}

fn health(probe: Probe, check: &[&str]) -> Page {
    let check = if check.is_empty() { None } else { Some(check.join("/")) };
    Page::Health { probe, check }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// `verb group/version resource namespace name subresource`, with a dash for what is not there.
    fn shown(method: &str, path: &str) -> String {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query).expect("a query");
        match parse(method, path, &query) {
            Err(refusal) => refusal.code().to_string(),
            Ok(Target::Page(page)) => format!("{page:?}"),
            Ok(Target::Objects(target)) => {
                let or_dash = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                let prefix = if target.watch_prefix { " (old)" } else { "" };
                format!(
                    "{} {}/{} {} {} {} {}{prefix}",
                    target.verb,
                    target.group,
                    target.version,
                    target.resource,
                    or_dash(target.namespace),
                    or_dash(target.name),
                    or_dash(target.subresource),
                )
            }
        }
    }

    fn check(method: &str, path: &str, expected: &str) {
        assert_eq!(shown(method, path), expected, "{method} {path}");
    }

    #[test]
    fn a_collection() {
        check("GET", "/api/v1/pods", "list /v1 pods - - -");
        check("HEAD", "/api/v1/pods", "list /v1 pods - - -");
        check("GET", "/api/v1/pods?watch=true", "watch /v1 pods - - -");
        check("GET", "/api/v1/pods?watch=0", "list /v1 pods - - -");
        check("HEAD", "/api/v1/pods?watch=1", "list /v1 pods - - -");
        check("GET", "/apis/apps/v1/namespaces/a/deployments", "list apps/v1 deployments a - -");
        check("GET", "/apis/apps/v1/namespaces/a/deployments?watch", "watch apps/v1 deployments a - -");
        check("POST", "/api/v1/namespaces/a/pods", "create /v1 pods a - -");
        check("POST", "/api/v1/nodes", "create /v1 nodes - - -");
        check("DELETE", "/api/v1/namespaces/a/pods", "deletecollection /v1 pods a - -");
        check("GET", "/api/v1/pods/", "list /v1 pods - - -");
    }

    #[test]
    fn one_object() {
        check("GET", "/api/v1/namespaces/a/pods/b", "get /v1 pods a b -");
        check("GET", "/api/v1/namespaces/a/pods/b?watch=1", "get /v1 pods a b -");
        check("HEAD", "/api/v1/nodes/n", "get /v1 nodes - n -");
        check("PUT", "/apis/g.example/v2/namespaces/a/things/b", "update g.example/v2 things a b -");
        check("PATCH", "/api/v1/nodes/n/status", "patch /v1 nodes - n status");
        check("DELETE", "/api/v1/nodes/n", "delete /v1 nodes - n -");
        check("GET", "/apis/apps/v1/namespaces/a/replicasets/b/scale", "get apps/v1 replicasets a b scale");
        check("POST", "/api/v1/namespaces/a/pods/b/binding", "create /v1 pods a b binding");
    }

    #[test]
    fn a_namespace_is_an_object_and_has_subresources() {
        check("GET", "/api/v1/namespaces", "list /v1 namespaces - - -");
        check("POST", "/api/v1/namespaces", "create /v1 namespaces - - -");
        check("GET", "/api/v1/namespaces/a", "get /v1 namespaces - a -");
        check("DELETE", "/api/v1/namespaces/a", "delete /v1 namespaces - a -");
        check("PUT", "/api/v1/namespaces/a/status", "update /v1 namespaces - a status");
        check("PUT", "/api/v1/namespaces/a/finalize", "update /v1 namespaces - a finalize");
        check("GET", "/api/v1/namespaces/a/status/b", "404");
        check("GET", "/apis/g/v1/namespaces/a/status", "list g/v1 status a - -");
        check("GET", "/api/v1/namespaces/namespaces/pods/namespaces", "get /v1 pods namespaces namespaces -");
    }

    #[test]
    fn the_old_watch_prefix() {
        check("GET", "/api/v1/watch/pods", "watch /v1 pods - - - (old)");
        check("GET", "/api/v1/watch/namespaces", "watch /v1 namespaces - - - (old)");
        check("GET", "/api/v1/watch/namespaces/a", "watch /v1 namespaces - a - (old)");
        check("GET", "/api/v1/watch/namespaces/a/pods", "watch /v1 pods a - - (old)");
        check("GET", "/apis/g/v1/watch/namespaces/a/things/b", "watch g/v1 things a b - (old)");
        check("GET", "/api/v1/watch/pods?watch=false", "watch /v1 pods - - - (old)");
        check("GET", "/api/v1/watch/namespaces/a/pods/b/status", "404");
        check("GET", "/api/v1/watch", "404");
        check("DELETE", "/api/v1/watch/pods", "405");
        check("HEAD", "/api/v1/watch/pods", "405");
    }

    #[test]
    fn a_method_that_makes_no_sense_there() {
        check("PUT", "/api/v1/namespaces/a/pods", "405");
        check("PATCH", "/api/v1/namespaces/a/pods", "405");
        check("POST", "/api/v1/namespaces/a/pods/b", "405");
        check("OPTIONS", "/api/v1/pods", "405");
        check("get", "/api/v1/pods", "405");
        check("POST", "/version", "405");
    }

    #[test]
    fn pages() {
        check("GET", "/", "Root");
        check("GET", "/version", "Version");
        check("GET", "/version/", "Version");
        check("GET", "/api", "CoreVersions");
        check("GET", "/api/v1", r#"CoreResources { version: "v1" }"#);
        check("GET", "/apis/", "Groups");
        check("GET", "/apis/apps", r#"Group { group: "apps" }"#);
        check("GET", "/apis/apps/v1", r#"GroupResources { group: "apps", version: "v1" }"#);
        check("GET", "/openapi/v2", "OpenApiV2");
        check("GET", "/openapi/v3", "OpenApiV3Index");
        check("GET", "/openapi/v3/apis/apps/v1?hash=1", r#"OpenApiV3 { document: "apis/apps/v1" }"#);
        check("HEAD", "/healthz", "Health { probe: Healthz, check: None }");
        check("GET", "/livez/ping", r#"Health { probe: Livez, check: Some("ping") }"#);
        check("GET", "/readyz", "Health { probe: Readyz, check: None }");
        check("GET", "/metrics", "Metrics");
        for path in ["/nowhere", "/openapi", "/openapi/v4", "/metrics/x", "/version/x", "/API/v1/pods"] {
            check("GET", path, "404");
        }
        check("GET", "/api/v1/namespaces/a/pods/b/proxy/c", "404");
    }

    #[test]
    fn no_path_climbs_or_hides_a_segment() {
        for path in [
            "",
            "api/v1/pods",
            "//",
            "//api/v1/pods",
            "/api//pods",
            "/api/v1/pods//",
            "/api/v1/namespaces//pods",
            "/api/v1/namespaces/../pods",
            "/api/v1/namespaces/./pods",
            "/api/v1/namespaces/%2e%2E/pods",
            "/api/v1/namespaces/%2e/pods",
            "/api/v1/namespaces/a%2fb/pods",
            "/api/v1/namespaces/a/pods/b%2Fstatus",
            "/api/v1/namespaces/a/pods/%00",
            "/api/v1/namespaces/a/pods/b%00",
            "/api/v1/namespaces/a/pods/b%",
            "/api/v1/namespaces/a/pods/b%zz",
            "/api/v1/namespaces/a/pods/b%ff",
            "/api/v1/namespaces/a/pods/b%25c",
            "/api/v1/namespaces/a%252fb/pods",
            "/openapi/v3/../v2",
            "/openapi/v3/api%2Fv1",
            "/apis/a%2fb/v1",
            "/apis/g/v1/thi%2Fngs",
            "/api/v1/po%00ds",
        ] {
            check("GET", path, "400");
        }
        check("GET", &format!("/api/v1/pods/{}", "a".repeat(PATH_BYTES_MAX)), "400");
    }

    #[test]
    fn a_name_is_found_again_however_it_was_escaped() {
        let mut rng = StdRng::seed_from_u64(3);
        for _ in 0..1_000 {
            let name: String =
                (0..rng.random_range(1..12)).map(|_| char::from(rng.random_range(1..128_u8))).collect();
            let escaped: String = name
                .chars()
                .map(|c| {
                    let plain = c.is_ascii_alphanumeric() || (c == '+' && rng.random_bool(0.5));
                    if plain { c.to_string() } else { format!("%{:02x}", u32::from(c)) }
                })
                .collect();
            let expected =
                if is_path_segment(&name) { format!("get /v1 pods a {name} -") } else { "400".to_owned() };
            check("GET", &format!("/api/v1/namespaces/a/pods/{escaped}"), &expected);
        }
    }
}
