//! Whether something new may come to be where it is to be, and which namespaces always are.

use super::{Place, Storage, Writer};
use crate::write_options::WriteOptions;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::{Kind, Registry};
use meerkat_kubernetes::status::{Cause, GroupResource, Reason, Refusal};
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::list_plan::ReadAt;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Made when they are missing.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Never deleted.
const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];
const RETRY: Duration = Duration::from_secs(1);

/// What is known of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Missing,
    Open,
    /// What is in it goes, and nothing new comes.
    Terminating,
}

fn standing(namespace: &Entry) -> Result<Standing, Refusal> {
    let object = Object::from_bytes(namespace.json())?;
    Ok(if object.is_being_deleted() { Standing::Terminating } else { Standing::Open })
}

pub(super) fn admit_delete(kind: &Kind, name: &str) -> Result<(), Refusal> {
    if is_namespace(kind) && PROTECTED.contains(&name) {
        return Err(Refusal::forbidden(&kind.group_resource(), name, "this namespace may not be deleted"));
    }
    Ok(())
}

fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.kind == "Namespace"
}

fn admit(what: &GroupResource, name: &str, namespace: &str, standing: Standing) -> Result<(), Refusal> {
    match standing {
        Standing::Open => Ok(()),
        Standing::Missing => Err(Refusal::not_found(&GroupResource::new("", "namespaces"), namespace)),
        Standing::Terminating => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut refusal = Refusal::forbidden(what, name, &why);
            refusal.causes = vec![Cause {
                reason: "NamespaceTerminating",
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            }];
            Err(refusal)
        }
    }
}

fn namespaces() -> Arc<Kind> {
    let registry = Registry::built_in();
    registry.by_resource("", "v1", "namespaces").expect("namespaces are built in").clone()
}

impl Storage {
    /// `name`: empty if it is yet to be made up.
    pub(super) async fn admit_new(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Refusal> {
        let what = kind.group_resource();
        if kind.is_terminating() {
            let mut refusal = Refusal::method_not_allowed(&what, "create");
            "create not allowed while custom resource definition is terminating"
                .clone_into(&mut refusal.message);
            return Err(refusal);
        }
        if !kind.is_namespaced() || namespace.is_empty() {
            return Ok(());
        }
        let kind = namespaces();
        let place = Place { kind: &kind, namespace: "", name: namespace, writer: Writer::Door };
        // What the cache says is good enough for a yes, if it knows what was done here; a no is asked of the
        // store.
        if let Some(entry) = self.peek(place, self.namespaces_written.load(Ordering::Acquire))
            && standing(&entry)? == Standing::Open
        {
            return Ok(());
        }
        let standing = match self.get(place, ReadAt::MostRecent).await {
            Ok(entry) => standing(&entry)?,
            Err(refusal) if refusal.reason == Reason::NotFound => Standing::Missing,
            Err(refusal) => return Err(refusal),
        };
        admit(&what, name, namespace, standing)
    }

    /// Who was told here that a namespace goes finds it closed at once.
    pub(super) fn note_written(&self, kind: &Kind, revision: u64) {
        if is_namespace(kind) {
            self.namespaces_written.fetch_max(revision, Ordering::AcqRel);
        }
    }

    /// Makes the namespaces that clients take for granted, and does not give up.
    pub async fn ensure_namespaces(&self) {
        let kind = namespaces();
        for name in NAMESPACES {
            while let Err(refusal) = self.ensure_namespace(&kind, name).await {
                tracing::warn!(namespace = name, %refusal, "a namespace could not be made");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn ensure_namespace(&self, kind: &Arc<Kind>, name: &str) -> Result<(), Refusal> {
        let place = Place { kind, namespace: "", name, writer: Writer::Door };
        match self.get(place, ReadAt::MostRecent).await {
            Err(refusal) if refusal.reason == Reason::NotFound => {}
            answer => return answer.map(drop),
        }
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        match self.create(Place { name: "", ..place }, body, &WriteOptions::default(), "meerkat").await {
            Err(refusal) if refusal.reason == Reason::AlreadyExists => Ok(()),
            answer => answer.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_new_comes_into_a_namespace_that_goes() {
        let what = GroupResource::new("", "configmaps");
        assert_eq!(admit(&what, "a", "n", Standing::Open), Ok(()));
        let refusal = admit(&what, "a", "n", Standing::Missing).expect_err("there is none");
        assert_eq!((refusal.code(), &*refusal.message), (404, "namespaces \"n\" not found"));
        let refusal = admit(&what, "a", "n", Standing::Terminating).expect_err("it goes");
        assert_eq!((refusal.code(), refusal.causes[0].reason), (403, "NamespaceTerminating"));
        assert!(refusal.message.starts_with("configmaps \"a\" is forbidden: unable to create new content"));
    }

    #[test]
    fn some_namespaces_stay() {
        let kind = namespaces();
        for name in PROTECTED {
            assert_eq!(admit_delete(&kind, name).expect_err("it stays").code(), 403);
        }
        assert_eq!(admit_delete(&kind, "kube-node-lease"), Ok(()));
    }
}
