//! Where an informer's objects come from: a list in pages, and a watch that goes on from it.

use bytes::Bytes;
use futures::Stream;
use std::future::Future;

use crate::watch::Changes;
use crate::{KeyValue, Revision};

/// A source of objects.
///
/// The informer believes what a source says, so a source must keep to these rules:
/// * Every page of one list is the state of the range at one revision: that of the first page, which
///   the informer hands back in [`PageRequest::at`]. If that state can no longer be read, the answer
///   is [`SourceError::Compacted`], never the state at another revision.
/// * Keys rise within a page and from page to page.
/// * A watch from revision `r` yields every change in the range at `r` or later, each revision whole
///   and in order; or it fails. [`Changes`] without events are a mark: everything up to that revision
///   has been said.
///
/// A page out of order, or events at a revision already delivered, are noticed and answered with a
/// fresh list.
pub trait ListWatch: Send + Sync + 'static {
    /// The stream behind [`ListWatch::watch`]. Dropped when the informer no longer wants it. After an
    /// error it is not polled again.
    type Watch: Stream<Item = Result<Changes, SourceError>> + Send + Unpin;

    /// One page of the range.
    fn list(&self, request: PageRequest) -> impl Future<Output = Result<Page, SourceError>> + Send;

    /// The changes from this revision on, itself included.
    fn watch(&self, from: Revision) -> Self::Watch;
}

/// Which page is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageRequest {
    /// The revision the list is pinned to. Nothing on the first page: the source reads its newest
    /// state and says which one that was.
    pub at: Option<Revision>,
    /// The page starts with the first key above this one.
    pub after: Option<Bytes>,
    /// At most this many objects.
    pub limit: u64,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision whose state this is a part of.
    pub revision: Revision,
    /// The objects, by rising key.
    pub kvs: Vec<KeyValue>,
    /// Whether another page follows.
    pub more: bool,
}

/// Why a source did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The revision asked for is compacted. The informer lists again.
    #[error("the history asked for has been compacted")]
    Compacted,
    /// Anything else. The informer waits and asks again.
    #[error("{0}")]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl SourceError {
    /// A failure that is told by its text.
    pub fn failed(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> SourceError {
        SourceError::Failed(reason.into())
    }
}
