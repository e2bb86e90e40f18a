//! The delete of a collection: a list, and then each object of it by itself. It is no transaction: what was
//! deleted when one of the deletes failed stays deleted. Who asks for a page of it gets that page deleted, and
//! the token of the next.

use super::swap::Swapped;
use super::{Place, Storage, Writer};
use crate::write_options::DeleteOptions;
use futures::{StreamExt, TryStreamExt};
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::{Reason, Refusal};
use meerkat_watchcache::cacher::entry::Entry;
use meerkat_watchcache::cacher::filter::Filter;
use meerkat_watchcache::cacher::store::Listed;
use meerkat_watchcache::list_plan::{ListPlan, ReadAt};
use serde_json::Value;
use std::sync::Arc;

/// Objects that are deleted at one time.
const AT_ONCE: usize = 16;

/// What came of the delete of a collection.
#[derive(Debug)]
pub struct Collected {
    /// What was deleted, or marked.
    pub items: Vec<Value>,
    /// The list that named it, without its objects.
    pub page: Listed,
}

impl Storage {
    pub async fn delete_collection(
        &self,
        kind: &Arc<Kind>,
        filter: &Filter,
        plan: &ListPlan,
        options: &DeleteOptions,
        writer: Writer<'_>,
    ) -> Result<Collected, Refusal> {
        let mut page = self.list(kind, filter, plan).await?;
        let entries = std::mem::take(&mut page.entries);
        let items = self.delete_entries(kind, entries, options, writer).await?;
        Ok(Collected { items, page })
    }

    /// Deletes these objects, and none that came under their names since. What was deleted, or marked.
    pub async fn delete_entries(
        &self,
        kind: &Arc<Kind>,
        entries: Vec<Entry>,
        options: &DeleteOptions,
        writer: Writer<'_>,
    ) -> Result<Vec<Value>, Refusal> {
        let deletes = entries.into_iter().map(|entry| self.delete_listed(kind, entry, options, writer));
        let gone: Vec<Option<Swapped>> =
            futures::stream::iter(deletes).buffered(AT_ONCE).try_collect().await?;
        Ok(gone.into_iter().flatten().map(|gone| gone.object.into_value()).collect())
    }

    /// `None` if it went by itself, whatever has its name now.
    async fn delete_listed(
        &self,
        kind: &Arc<Kind>,
        entry: Entry,
        options: &DeleteOptions,
        writer: Writer<'_>,
    ) -> Result<Option<Swapped>, Refusal> {
        let place = Place { kind, namespace: entry.namespace(), name: entry.name(), writer };
        let mut options = options.clone();
        let given = options.preconditions.clone();
        if given.uid.is_none() && !entry.uid().is_empty() {
            options.preconditions.uid = Some(entry.uid().to_owned());
        }
        let is_free = given.uid.is_none() && given.resource_version.is_none();
        match self.remove(place, &options).await {
            Ok(gone) => Ok(Some(gone)),
            Err(refusal) if refusal.reason == Reason::NotFound => Ok(None),
            Err(refusal)
                if refusal.reason == Reason::Conflict && is_free && self.is_other(place, &entry).await =>
            {
                Ok(None)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether another object has the name by now.
    async fn is_other(&self, place: Place<'_>, entry: &Entry) -> bool {
        self.get(place, ReadAt::MostRecent).await.is_ok_and(|now| now.uid() != entry.uid())
    }
}
