//! A watch over HTTP: a body that goes on. It is pulled by the connection, so that a client that reads
//! slowly has nothing pile up here.

use super::answer::{self, Body};
use super::request::Asked;
use super::untaken::Untaken;
use super::watch_form::WatchForm;
use super::{selection, show};
use bytes::Bytes;
use futures::stream;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use meerkat_kubernetes::negotiation::Answer;
use meerkat_kubernetes::status::Refusal;
use meerkat_watchcache::feed::{Item, Watcher};
use meerkat_watchcache::list_options::{WatchOptions, only_name};
use meerkat_watchcache::watch_plan::{WatchBegin, WatchFailure, WatchPhase, failure, lifetime, plan_watch};
use std::io;
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// About what is told at a time.
const BATCH_BYTES: usize = 64 << 10;

pub async fn answer(asked: &Asked) -> Result<Response<Body>, Refusal> {
    let told = Told::begin(asked).await?;
    let content_type = told.form.content_type();
    let (starting_stall, stall) = (asked.door.starting_stall, asked.door.stall);
    let patience = move |told: &Told| if told.is_starting { starting_stall } else { stall };
    let patient = patience(&told);
    let chunks = stream::unfold(Untaken::new(Box::new(told), patient), move |held| async move {
        // One that was given up has ended, and goes on as any other.
        let mut told = held.take()?;
        let frames = told.next().await?;
        let patient = patience(&told);
        held.put_back(told, patient);
        let chunk = if let [one] = frames.as_slice() { one.clone() } else { Bytes::from(frames.concat()) };
        Some((Ok::<_, io::Error>(Frame::data(chunk)), held))
    });
    Ok(answer::new(StatusCode::OK, content_type, StreamBody::new(chunks).boxed_unsync()))
}

/// What one watch is told, in its form.
pub struct Told {
    pub form: WatchForm,
    /// It may still be told objects that it began with.
    pub is_starting: bool,
    source: Source,
    waiting: std::vec::IntoIter<Item>,
    /// Turns true when the door closes.
    ending: Receiver<bool>,
    _counted: Counted,
}

enum Source {
    Watch(Box<Watcher>),
    /// It has failed: what is left to say of it.
    Failed(Option<Bytes>),
}

impl Told {
    /// A failure after the parameters are read is told in the stream.
    pub async fn begin(asked: &Asked) -> Result<Told, Refusal> {
        let options = WatchOptions::from_query(&asked.query)?;
        let form = show::form(&asked.kind, Answer::Watch, &asked.look.accept)?;
        let include = asked.query.include_object()?;
        let name = only_name(asked.target.name.as_deref(), &options.fields)?;
        let namespace = asked.target.namespace.as_deref();
        let filter = selection::filter(&asked.kind, namespace, name, &options.labels, &options.fields)?;
        let form = WatchForm::new(&asked.door.forms, &asked.kind, form, include);
        let lifetime = lifetime(options.lifetime, rand::random());
        let plan = plan_watch(&options);
        let is_starting = matches!(plan.begin, WatchBegin::State { .. });
        let watcher = match asked.door.storage.feeds().of(&asked.kind) {
            Ok(feed) => feed.watch(&plan, filter, lifetime).await,
            Err(refusal) => Err(refusal),
        };
        let source = match watcher {
            Ok(watcher) => Source::Watch(Box::new(watcher)),
            Err(refusal) => match failure(WatchPhase::Starting, refusal) {
                WatchFailure::Status(refusal) => return Err(refusal),
                WatchFailure::Event(event) => Source::Failed(Some(form.error(&event))),
            },
        };
        Ok(Told {
            form,
            is_starting,
            source,
            waiting: Vec::new().into_iter(),
            ending: asked.door.ending.clone(),
            _counted: Counted::new(&asked.door.watches),
        })
    }

    /// Some frames, at least one; `None` when the watch is over.
    pub async fn next(&mut self) -> Option<Vec<Bytes>> {
        loop {
            let frames = self.take();
            if !frames.is_empty() {
                return Some(frames);
            }
            let items = match &mut self.source {
                Source::Failed(last) => return last.take().map(|frame| vec![frame]),
                Source::Watch(watcher) => tokio::select! {
                    items = watcher.next() => items?,
                    // An error is that nobody can end it any more: the door is gone.
                    _ = self.ending.wait_for(|ending| *ending) => return None,
                },
            };
            self.is_starting &= items.iter().all(|item| matches!(item, Item::Initial(_)));
            self.waiting = items.into_iter();
        }
    }

    fn take(&mut self) -> Vec<Bytes> {
        let (mut frames, is_whole) = frames(&mut self.form, &mut self.waiting);
        if !is_whole {
            frames.push(self.form.unencodable());
            self.waiting = Vec::new().into_iter();
            self.source = Source::Failed(None);
        }
        frames
    }
}

/// About as much as is told at a time, and whether each item has a frame. Who is not told of one must not be
/// told of the next.
fn frames(form: &mut WatchForm, items: &mut impl Iterator<Item = Item>) -> (Vec<Bytes>, bool) {
    let (mut frames, mut bytes) = (Vec::new(), 0);
    while bytes < BATCH_BYTES {
        let Some(item) = items.next() else { break };
        match form.frame(&item) {
            None => {}
            Some(frame) if frame.is_empty() => return (frames, false),
            Some(frame) => {
                bytes += frame.len();
                frames.push(frame);
            }
        }
    }
    (frames, true)
}

/// One of the watches that are open.
struct Counted(Arc<std::sync::atomic::AtomicUsize>);

impl Counted {
    fn new(count: &Arc<std::sync::atomic::AtomicUsize>) -> Counted {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::watch_form::FormNumbers;
    use meerkat_kubernetes::metadata_form::MetaVersion;
    use meerkat_kubernetes::negotiation::Shape;
    use meerkat_kubernetes::registry::Registry;
    use meerkat_kubernetes::table::IncludeObject;
    use meerkat_watchcache::cacher::frame::Mark;

    #[test]
    fn what_has_no_form_ends_the_watch_and_is_not_passed_over() {
        let registry = Registry::built_in();
        let kind = registry.by_resource("", "v1", "configmaps").expect("built in");
        let watch = |version| {
            let accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
            let mut form = show::form(kind, Answer::Watch, accept).expect("it is offered");
            form.shape = Shape::PartialMetadata(version);
            WatchForm::new(&FormNumbers::default(), kind, form, IncludeObject::default())
        };
        let marks = || (5..8).map(|revision| Item::Bookmark { revision, mark: Mark::Progress });
        let (told, is_whole) = frames(&mut watch(MetaVersion::V1), &mut marks());
        assert_eq!((told.len(), is_whole), (3, true));
        // Which nobody is offered.
        let mut broken = watch(MetaVersion::V1Beta1);
        let (told, is_whole) = frames(&mut broken, &mut marks());
        assert_eq!((told.len(), is_whole), (0, false));
        let last = broken.unencodable();
        assert!(last.windows(5).any(|part| part == b"ERROR"), "{last:?}");
    }
}
