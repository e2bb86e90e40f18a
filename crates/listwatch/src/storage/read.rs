//! One object, or a list of them: from the feed's cache, or from the store where that has no answer.
//!
//! A list from the store is the list that the cache would give: the same objects in the same order, the same
//! next page. Only how many remain is not told, for nobody has counted them.

use super::{Place, Storage, failure};
use bytes::Bytes;
use futures::FutureExt;
use meerkat_kubernetes::object::Object;
use meerkat_kubernetes::registry::Kind;
use meerkat_kubernetes::status::Refusal;
use meerkat_kubernetes::stored_form;
use meerkat_watchcache::cacher::entry::{Entry, Shape};
use meerkat_watchcache::cacher::filter::Filter;
use meerkat_watchcache::cacher::ready::{self, Detour};
use meerkat_watchcache::cacher::store::Listed;
use meerkat_watchcache::feed::Unserved;
use meerkat_watchcache::key;
use meerkat_watchcache::list_plan::{ListPlan, ReadAt};
use meerkat_watchcache::store::{Row, Span, Store, StoreError};
use serde_json::Value;
use std::num::NonZeroUsize;

/// Rows of one read of the store.
const PAGE_ROWS_MAX: usize = 10_000;

/// What the keys of the list have in common in the cache, which names them `namespace/name`. A token's start
/// is what follows.
fn cache_prefix(kind: &Kind, filter: &Filter) -> String {
    match &filter.scope().namespace {
        Some(namespace) if kind.is_namespaced() => format!("{namespace}/"),
        _ => String::new(),
    }
}

pub(super) fn cache_key(place: Place<'_>) -> String {
    if place.kind.is_namespaced() {
        format!("{}/{}", place.namespace, place.name)
    } else {
        place.name.to_owned()
    }
}

/// An object in the form of the kind, with its resourceVersion and what it lacks filled in, from the bytes of the store or of an entry.
pub(super) fn object(kind: &Kind, key: &str, bytes: &[u8], revision: u64) -> Result<Object, Refusal> {
    let mut object =
        Object::from_bytes(bytes).map_err(|refusal| failure::undecodable(key, &refusal.message))?;
    object.set_kind(&kind.kind);
    object.set_resource_version(&revision.to_string());
    if let Some(defaults) = &kind.stored_defaults {
        defaults.fill(object.as_map_mut());
    }
    stored_form::from_stored(kind, object.as_map_mut());
    Ok(object)
}

impl Storage {
    /// In the stored form.
    pub async fn get(&self, place: Place<'_>, at: ReadAt) -> Result<Entry, Refusal> {
        let key = key::object(place.kind, place.namespace, place.name)?;
        let not_found = || Refusal::not_found(&place.kind.group_resource(), place.name);
        if matches!(at, ReadAt::AnyCached | ReadAt::NotOlderThan(_)) {
            match self.feeds.of(place.kind)?.version(at).await {
                Ok(version) => return version.get(&cache_key(place)).cloned().ok_or_else(not_found),
                Err(Unserved::Refused(refusal)) => return Err(refusal),
                Err(Unserved::AskStore { .. } | Unserved::Expired) => {
                    if let Detour::ComeBack(refusal) = ready::get() {
                        return Err(refusal);
                    }
                }
            }
        }
        let (row, revision) = self.store.get(Bytes::from(key.clone())).await.map_err(failure::refusal)?;
        if let Some(asked) = at.awaited().filter(|asked| revision < *asked) {
            return Err(Refusal::too_large_resource_version(asked, revision));
        }
        let row = row.ok_or_else(not_found)?;
        let shape = Shape::of(place.kind);
        Entry::decode(&shape, &cache_key(place), &row.value, row.modified)
            .map_err(|error| failure::undecodable(&key, &error.to_string()))
    }

    /// As the cache has it, if it has it and has come to `revision`. It may be old.
    pub(super) fn peek(&self, place: Place<'_>, revision: u64) -> Option<Entry> {
        let feed = self.feeds.of(place.kind).ok()?;
        let version = feed.version(ReadAt::AnyCached).now_or_never()?.ok()?;
        version.get(&cache_key(place)).filter(|_| revision <= version.revision()).cloned()
    }

    /// In the stored form. What follows the page is told as the cache names it, with the namespace.
    pub async fn list(&self, kind: &Kind, filter: &Filter, plan: &ListPlan) -> Result<Listed, Refusal> {
        let first = plan.resume.as_ref().map(|token| token.start_key(&cache_prefix(kind, filter)));
        let limit = plan.limit.map(|limit| NonZeroUsize::try_from(limit).unwrap_or(NonZeroUsize::MAX));
        let feed = self.feeds.of(kind)?;
        match feed.version(plan.at).await {
            Ok(version) => return Ok(version.list(filter, first.as_deref(), limit)),
            Err(Unserved::Expired) => return Err(plan.expired()),
            Err(Unserved::Refused(refusal)) => return Err(refusal),
            Err(Unserved::AskStore { down_ms: None }) => {}
            Err(Unserved::AskStore { down_ms: Some(down_ms) }) => {
                if let Detour::ComeBack(refusal) = ready::list(filter, limit, down_ms) {
                    return Err(refusal);
                }
            }
        }
        let revision = match plan.at {
            ReadAt::Exact(revision) => Some(revision),
            ReadAt::MostRecent | ReadAt::AnyCached | ReadAt::NotOlderThan(_) => None,
        };
        let asked = Asked { kind, filter, first: first.unwrap_or_default(), limit, revision };
        match asked.read_store(&*self.store).await {
            Ok(listed) => match plan.at.awaited().filter(|asked| listed.revision < *asked) {
                Some(asked) => Err(Refusal::too_large_resource_version(asked, listed.revision)),
                None => Ok(listed),
            },
            Err(Unlisted::Refused(refusal)) => Err(refusal),
            Err(Unlisted::Failed(StoreError::Compacted { oldest })) => {
                feed.compacted(oldest);
                Err(plan.expired())
            }
            Err(Unlisted::Failed(StoreError::Future { asked })) => {
                let current = self.store.now().await.map_err(failure::refusal)?;
                Err(Refusal::too_large_resource_version(asked, current))
            }
            Err(Unlisted::Failed(error)) => Err(failure::refusal(error)),
        }
    }

    /// A Scale of the object.
    pub async fn scale(&self, place: Place<'_>, at: ReadAt) -> Result<Value, Refusal> {
        let Some(paths) = &place.kind.subresources.scale else { return Err(Refusal::no_such_page()) };
        let entry = self.get(place, at).await?;
        paths.of(&object(place.kind, entry.key(), entry.json(), entry.revision())?)
    }
}

/// A list as the store is asked for it.
pub(super) struct Asked<'a> {
    pub kind: &'a Kind,
    pub filter: &'a Filter,
    /// The key to begin at, as the cache names it; empty for the first.
    pub first: String,
    pub limit: Option<NonZeroUsize>,
    /// `None`: as it is now.
    pub revision: Option<u64>,
}

pub(super) enum Unlisted {
    Refused(Refusal),
    Failed(StoreError),
}

impl Asked<'_> {
    /// Reads pages of one revision until the list, or its page, is whole.
    pub(super) async fn read_store(&self, store: &dyn Store) -> Result<Listed, Unlisted> {
        let root = key::list_prefix(self.kind, "").map_err(Unlisted::Refused)?;
        let (shape, range) = (Shape::of(self.kind), self.filter.scope().keys(self.kind.is_namespaced()));
        let namespace = self.filter.scope().namespace.as_deref().unwrap_or_default();
        let prefix = key::list_prefix(self.kind, namespace).map_err(Unlisted::Refused)?;
        let range = range.starting_at(&self.first);
        let mut listed = Listed { entries: Vec::new(), revision: 0, next: None, remaining: None, visited: 0 };
        let mut from = format!("{root}{}", range.first);
        let mut revision = self.revision;
        // One more than the page has, to know whether there is another.
        let mut rows = self.limit.map_or(PAGE_ROWS_MAX, |limit| limit.get().saturating_add(1));
        loop {
            let limit = rows.min(PAGE_ROWS_MAX);
            let span = Span { prefix: prefix.clone().into(), from: from.into(), limit };
            let page = store.read(span, revision).await.map_err(Unlisted::Failed)?;
            revision = Some(page.revision);
            listed.revision = page.revision;
            let Some(last) = page.rows.last().map(|row| row.key.clone()) else { return Ok(listed) };
            for row in &page.rows {
                let key = row_key(self.kind, &root, row).filter(|key| range.contains(key));
                let Some(key) = key else { continue };
                listed.visited += 1;
                let Some(entry) = decoded(&shape, key, row).filter(|entry| self.filter.matches(entry)) else {
                    continue;
                };
                if self.limit.is_some_and(|limit| limit.get() == listed.entries.len()) {
                    listed.next = listed.entries.last().map(|last: &Entry| format!("{}\0", last.key()));
                    return Ok(listed);
                }
                listed.entries.push(entry);
            }
            let last = String::from_utf8_lossy(&last).into_owned();
            let is_past = range.end.as_ref().is_some_and(|end| *format!("{root}{end}") <= *last);
            if !page.more || is_past {
                return Ok(listed);
            }
            from = format!("{last}\0");
            rows = limit.saturating_mul(2);
        }
    }
}

/// As the cache names it. A key that no object of the kind has was put there by somebody else.
fn row_key<'a>(kind: &Kind, root: &str, row: &'a Row) -> Option<&'a str> {
    let key = std::str::from_utf8(&row.key).ok()?;
    key::parse(kind, key)?;
    key.strip_prefix(root)
}

/// Nothing for a value that is no object: to lists it is not there.
fn decoded(shape: &Shape, key: &str, row: &Row) -> Option<Entry> {
    Entry::decode(shape, key, &row.value, row.modified).ok()
}
