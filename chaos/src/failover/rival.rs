//! A watch of the `etcd-client` crate, for comparison: as it is, or in the loop that a careful
//! application writes around it.
//!
//! The loop sets what the crate offers (keep-alive pings, as often as etcd allows, and "require
//! leader"), bounds the opening of a watch, and after any end watches again from the last revision
//! received + 1.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use etcd_client::{Client, ConnectOptions, EventType, KeyValue, WatchOptions, WatchResponse, WatchStream};

use super::watcher::{Record, Shared, Spec, Watcher, record};
use crate::watch::{Kind, Reply, Seen, Stored, ValuePrint};

/// etcd closes connections that ping more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_WITHIN: Duration = Duration::from_secs(2);
const OPEN_WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Starts a watch of everything with a client of its own.
pub fn start(urls: Vec<String>, line: usize, spec: Spec, careful: bool, began: Instant) -> Watcher {
    let shared = Arc::new(Shared::default());
    let follower = Follower {
        spec: spec.clone(),
        began,
        shared: shared.clone(),
        next: spec.watch.start_revision,
        told: Vec::new(),
        resumes: 0,
    };
    let task = tokio::spawn(follower.follow(urls, careful));
    Watcher::of_another(line, spec, shared, task)
}

struct Follower {
    spec: Spec,
    began: Instant,
    shared: Arc<Shared>,
    /// The first revision not heard of yet.
    next: i64,
    told: Vec<Reply>,
    resumes: u64,
}

impl Follower {
    async fn follow(mut self, urls: Vec<String>, careful: bool) -> Record {
        let shared = self.shared.clone();
        let ended = tokio::select! {
            () = shared.stopped() => None,
            why = self.watch(&urls, careful) => Some(why),
        };
        if ended.is_some() {
            // As the application sees it: over, whatever it does about that.
            shared.over.store(true, Ordering::Relaxed);
            shared.stopped().await;
        }
        Record {
            resumes: self.resumes,
            ..record(&self.spec, self.spec.watch.start_revision, self.told, ended)
        }
    }

    /// Ends, with the reason, when the application would have to do something.
    async fn watch(&mut self, urls: &[String], careful: bool) -> String {
        let options = careful.then(|| {
            ConnectOptions::new()
                .with_connect_timeout(OPEN_WITHIN)
                .with_keep_alive(PING_EVERY, PING_WITHIN)
                .with_keep_alive_while_idle(true)
                .with_require_leader(true)
        });
        let mut client = match Client::connect(urls, options).await {
            Ok(client) => client,
            Err(error) => return error.to_string(),
        };
        loop {
            let why = self.watch_once(&mut client, careful).await;
            if !careful {
                return why;
            }
            self.resumes += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch_once(&mut self, client: &mut Client, careful: bool) -> String {
        let mut options = WatchOptions::new().with_all_keys().with_start_revision(self.next);
        if self.spec.watch.prev_kv {
            options = options.with_prev_key();
        }
        let opening = client.watch("", Some(options));
        let opened = if careful {
            match tokio::time::timeout(OPEN_WITHIN, opening).await {
                Ok(opened) => opened,
                Err(_) => return "the watch could not be opened in time".to_owned(),
            }
        } else {
            opening.await
        };
        match opened {
            Ok(mut stream) => self.read(&mut stream).await,
            Err(error) => error.to_string(),
        }
    }

    async fn read(&mut self, stream: &mut WatchStream) -> String {
        loop {
            match stream.message().await {
                Ok(Some(response)) if response.canceled() => {
                    return format!("canceled: {}", response.cancel_reason());
                }
                Ok(Some(response)) => self.tell(&response),
                Ok(None) => return "the stream ended".to_owned(),
                Err(error) => return error.to_string(),
            }
        }
    }

    fn tell(&mut self, response: &WatchResponse) {
        let events: Vec<Seen> = response.events().iter().map(seen).collect();
        let Some(last) = events.last().map(Seen::revision) else { return };
        self.next = last + 1;
        self.shared.last.store(last, Ordering::Relaxed);
        let revision = response.header().map_or(0, |header| header.revision());
        self.told.push(Reply { at: self.began.elapsed(), revision, events, ..Reply::default() });
    }
}

fn seen(event: &etcd_client::Event) -> Seen {
    let kind = if event.event_type() == EventType::Delete { Kind::Delete } else { Kind::Put };
    let key = event.kv().map_or_else(Bytes::new, |kv| Bytes::copy_from_slice(kv.key()));
    let now = event.kv().map(stored).unwrap_or_default();
    Seen { kind, key, now, prev: event.prev_kv().map(stored) }
}

fn stored(kv: &KeyValue) -> Stored {
    Stored {
        create_revision: kv.create_revision(),
        mod_revision: kv.mod_revision(),
        version: kv.version(),
        lease: kv.lease(),
        value: ValuePrint::of(kv.value()),
    }
}
