//! Which objects are meant, and the paths they have.

use std::fmt::Write;

/// Objects of one kind: all of them, those of a namespace, or those that selectors choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    group: String,
    version: String,
    plural: String,
    namespace: Option<String>,
    labels: Option<String>,
    fields: Option<String>,
}

impl Resource {
    /// For example `Resource::new("apps", "v1", "replicasets")`. An empty group is the core group.
    pub fn new(group: impl Into<String>, version: impl Into<String>, plural: impl Into<String>) -> Resource {
        Resource {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            namespace: None,
            labels: None,
            fields: None,
        }
    }

    /// Of the core group, such as `pods`.
    pub fn core(plural: impl Into<String>) -> Resource {
        Resource::new("", "v1", plural)
    }

    /// Only those of this namespace. Writes of namespaced kinds need one.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Resource {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only those with such labels, for example `app=web,tier!=test`.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Resource {
        self.labels = Some(selector.into());
        self
    }

    /// Only those with such fields, for example `spec.nodeName=n1`.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Resource {
        self.fields = Some(selector.into());
        self
    }

    pub(crate) fn collection_path(&self) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", encoded(&self.version))
        } else {
            format!("/apis/{}/{}", encoded(&self.group), encoded(&self.version))
        };
        if let Some(namespace) = &self.namespace {
            path.push_str("/namespaces/");
            path.push_str(&encoded(namespace));
        }
        path.push('/');
        path.push_str(&encoded(&self.plural));
        path
    }

    pub(crate) fn object_path(&self, name: &str, subresource: &str) -> String {
        let mut path = format!("{}/{}", self.collection_path(), encoded(name));
        if !subresource.is_empty() {
            path.push('/');
            path.push_str(subresource);
        }
        path
    }

    pub(crate) fn list_path(&self, limit: u64, token: Option<&str>) -> String {
        let limit = limit.to_string();
        self.selected_path(&[("limit", Some(&limit)), ("continue", token)])
    }

    pub(crate) fn watch_path(&self, after: &str, lifetime_s: u64) -> String {
        let lifetime = lifetime_s.to_string();
        self.selected_path(&[
            ("watch", Some("true")),
            ("allowWatchBookmarks", Some("true")),
            ("resourceVersion", Some(after)),
            ("timeoutSeconds", Some(&lifetime)),
        ])
    }

    fn selected_path(&self, parameters: &[(&str, Option<&str>)]) -> String {
        let mut path = self.collection_path();
        let selectors =
            [("labelSelector", self.labels.as_deref()), ("fieldSelector", self.fields.as_deref())];
        let mut before = '?';
        for (name, value) in parameters.iter().chain(&selectors) {
            if let Some(value) = value {
                path.push(before);
                path.push_str(name);
                path.push('=');
                path.push_str(&encoded(value));
                before = '&';
            }
        }
        path
    }
}

/// Percent-encoded, so that it is one segment of a path or one value of a query.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_door() {
        let pods = Resource::core("pods");
        assert_eq!(pods.collection_path(), "/api/v1/pods");
        let sets = Resource::new("apps", "v1", "replicasets").namespace("a");
        assert_eq!(sets.object_path("web", "status"), "/apis/apps/v1/namespaces/a/replicasets/web/status");
        assert_eq!(sets.object_path("../x?", ""), "/apis/apps/v1/namespaces/a/replicasets/..%2Fx%3F");
    }

    #[test]
    fn selectors_go_with_lists_and_watches() {
        let mine = Resource::core("pods").labels("app in (a,b)").fields("spec.nodeName=n1");
        let selectors = "labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%3Dn1";
        assert_eq!(mine.list_path(500, Some("t")), format!("/api/v1/pods?limit=500&continue=t&{selectors}"));
        assert_eq!(
            mine.watch_path("7", 300),
            format!(
                "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=300&{selectors}"
            )
        );
    }
}
