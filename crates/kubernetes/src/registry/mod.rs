//! Which kinds there are, and all that the door must know of one to serve it.
//!
//! A [`Registry`] is a value: the built-in kinds and those that custom resource definitions added. A clone
//! costs nothing, a change makes a new one, and a request that took one goes on with it to its end. Equal
//! registries have equal [`Registry::hash`]es on every member, and so equal ETags.

mod builtin;
mod kind;
mod version_order;

pub use builtin::ALL_VERBS;
pub(crate) use kind::join_api_version;
pub use kind::{
    Column, ColumnSource, Kind, NamedCell, Origin, ScalePaths, Scope, SelectableField, Subresources,
};
pub use version_order::newest_first;

use crate::fingerprint::Fingerprint;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// All kinds of one group and version.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    pub version: String,
    by_plural: BTreeMap<String, Served>,
}

/// A kind and its fingerprint, which is taken once: a schema can be long, and registries are made often.
#[derive(Clone, Debug)]
struct Served {
    kind: Arc<Kind>,
    hash: Fingerprint,
}

impl Served {
    fn new(kind: Kind) -> Served {
        let hash = Fingerprint::of(format!("{kind:?}").as_bytes());
        Served { kind: Arc::new(kind), hash }
    }
}

impl GroupVersion {
    /// By plural name.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.by_plural.values().map(|served| &served.kind)
    }

    /// Changes when one of its kinds does.
    pub fn hash(&self) -> String {
        let mut hash = Fingerprint::of(crate::version::git_version().as_bytes());
        self.by_plural.values().for_each(|served| hash.add(served.hash.to_string().as_bytes()));
        hash.to_string()
    }
}

/// A group, with its versions from the preferred to the oldest.
#[derive(Clone, Debug)]
pub struct Group {
    /// Empty for the core group.
    pub name: String,
    pub versions: Vec<GroupVersion>,
}

#[derive(Clone, Debug)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Built-in groups as the file orders them, then the others by name.
    groups: Vec<Group>,
    hash: String,
}

static BUILT_IN: LazyLock<Registry> =
    LazyLock::new(|| Registry::of(builtin::kinds().into_iter().map(Served::new)));

impl Registry {
    /// The kinds that need no definition.
    pub fn built_in() -> Registry {
        BUILT_IN.clone()
    }

    fn of(kinds: impl IntoIterator<Item = Served>) -> Registry {
        let mut groups: Vec<Group> = Vec::new();
        for served in kinds {
            insert(&mut groups, served);
        }
        let first_custom = groups.iter().position(|group| group.is_custom()).unwrap_or(groups.len());
        groups[first_custom..].sort_by(|a, b| a.name.cmp(&b.name));
        let mut fingerprint = Fingerprint::default();
        for version in groups.iter().flat_map(|group| &group.versions) {
            fingerprint.add(version.hash().as_bytes());
        }
        Registry { inner: Arc::new(Inner { groups, hash: fingerprint.to_string() }) }
    }

    /// With the kinds of one definition, in the place of those that it had before.
    pub fn with(&self, definition: &str, kinds: Vec<Kind>) -> Registry {
        self.with_all(BTreeMap::from([(definition.to_owned(), kinds)]))
    }

    /// The same for many definitions, at the cost of one.
    pub fn with_all(&self, definitions: BTreeMap<String, Vec<Kind>>) -> Registry {
        let versions = self.inner.groups.iter().flat_map(|group| &group.versions);
        let is_kept = |served: &&Served| {
            served.kind.custom().is_none_or(|(definition, _)| !definitions.contains_key(definition))
        };
        let kept: Vec<Served> =
            versions.flat_map(|version| version.by_plural.values()).filter(is_kept).cloned().collect();
        let kinds = definitions.into_values().flatten().map(Served::new);
        Registry::of(kept.into_iter().chain(kinds))
    }

    /// Without what this definition added.
    pub fn without(&self, definition: &str) -> Registry {
        self.with(definition, Vec::new())
    }

    /// Changes when a kind does.
    pub fn hash(&self) -> &str {
        &self.inner.hash
    }

    pub fn groups(&self) -> &[Group] {
        &self.inner.groups
    }

    pub fn group(&self, name: &str) -> Option<&Group> {
        self.inner.groups.iter().find(|group| group.name == name)
    }

    pub fn group_version(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.group(group)?.versions.iter().find(|each| each.version == version)
    }

    /// Every kind in every version.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.inner.groups.iter().flat_map(Group::kinds)
    }

    /// As a path names it.
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.group_version(group, version)?.by_plural.get(plural).map(|served| &served.kind)
    }

    /// As an object names it.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.group_version(group, version)?.kinds().find(|each| each.kind == kind)
    }

    /// In whichever version the group prefers; for those who know no version.
    pub fn by_group_resource(&self, group: &str, plural: &str) -> Option<&Arc<Kind>> {
        let mut versions = self.group(group)?.versions.iter();
        versions.find_map(|version| version.by_plural.get(plural)).map(|served| &served.kind)
    }

    pub fn by_group_kind(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.group(group)?.kinds().find(|each| each.kind == kind)
    }
}

impl Group {
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.versions.iter().flat_map(GroupVersion::kinds)
    }

    fn is_custom(&self) -> bool {
        self.kinds().all(|kind| kind.custom().is_some())
    }
}

fn insert(groups: &mut Vec<Group>, served: Served) {
    let kind = &served.kind;
    let at = groups.iter().position(|group| group.name == kind.group).unwrap_or_else(|| {
        groups.push(Group { name: kind.group.clone(), versions: Vec::new() });
        groups.len() - 1
    });
    let versions = &mut groups[at].versions;
    if !versions.iter().any(|each| each.version == kind.version) {
        versions.push(GroupVersion { version: kind.version.clone(), by_plural: BTreeMap::new() });
        versions.sort_by(|a, b| newest_first(&a.version, &b.version));
    }
    for each in versions.iter_mut().filter(|each| each.version == kind.version) {
        each.by_plural.insert(kind.plural.clone(), served.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(definition: &str, group: &str, version: &str, plural: &str) -> Kind {
        let mut kind =
            (**Registry::built_in().by_resource("", "v1", "configmaps").expect("built in")).clone();
        group.clone_into(&mut kind.group);
        version.clone_into(&mut kind.version);
        plural.clone_into(&mut kind.plural);
        kind.kind = format!("Kind{plural}");
        kind.origin = Origin::Custom { definition: definition.to_owned(), schema: None, terminating: false };
        kind
    }

    #[test]
    fn a_kind_is_found_by_its_resource_and_by_its_kind() {
        let registry = Registry::built_in();
        for (group, version, plural, kind) in [
            ("", "v1", "pods", "Pod"),
            ("apps", "v1", "deployments", "Deployment"),
            ("coordination.k8s.io", "v1", "leases", "Lease"),
            ("events.k8s.io", "v1", "events", "Event"),
        ] {
            let found = registry.by_resource(group, version, plural).expect("by resource");
            assert_eq!(found.kind, kind);
            let found = registry.by_kind(group, version, kind).expect("by kind");
            assert_eq!(found.plural, plural);
        }
        assert!(registry.by_resource("", "v2", "pods").is_none());
        assert!(registry.by_resource("apps", "v1", "pods").is_none());
        assert_eq!(registry.by_group_resource("apps", "replicasets").expect("preferred").version, "v1");
        assert_eq!(registry.by_group_kind("", "Namespace").expect("core").plural, "namespaces");
    }

    #[test]
    fn a_definition_replaces_what_it_had_and_leaves_nothing_when_it_goes() {
        let before = Registry::built_in();
        let name = "as.x.io";
        let one = before.with(name, vec![custom(name, "x.io", "v1", "as")]);
        let two =
            one.with(name, vec![custom(name, "x.io", "v2", "as"), custom(name, "x.io", "v1beta1", "as")]);
        assert!(one.by_resource("x.io", "v1", "as").is_some());
        assert!(two.by_resource("x.io", "v1", "as").is_none());
        let versions: Vec<&str> =
            two.group("x.io").expect("there").versions.iter().map(|each| each.version.as_str()).collect();
        assert_eq!(versions, ["v2", "v1beta1"]);
        assert!(two.without(name).group("x.io").is_none());
        assert_eq!(two.without(name).hash(), before.hash());
        assert!(before.by_resource("x.io", "v1", "as").is_none());
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_of_arrival() {
        let (a, b) = (custom("as.x.io", "x.io", "v1", "as"), custom("bs.y.io", "y.io", "v1", "bs"));
        let one = Registry::built_in().with("as.x.io", vec![a.clone()]).with("bs.y.io", vec![b.clone()]);
        let other = Registry::built_in().with("bs.y.io", vec![b.clone()]).with("as.x.io", vec![a.clone()]);
        assert_eq!(one.hash(), other.hash());
        let both = [("bs.y.io", b), ("as.x.io", a)].map(|(name, kind)| (name.to_owned(), vec![kind]));
        assert_eq!(Registry::built_in().with_all(BTreeMap::from(both)).hash(), one.hash());
        assert_ne!(one.hash(), Registry::built_in().hash());
    }

    #[test]
    fn built_in_groups_come_first() {
        let registry = Registry::built_in().with("as.a.io", vec![custom("as.a.io", "a.io", "v1", "as")]);
        assert_eq!(registry.groups()[0].name, "");
        assert_eq!(registry.groups().last().expect("some").name, "a.io");
    }
}
