//! A watcher: meerkat-client's watch on all keys of the demo, from the first revision on.
//!
//! It does nothing about failures; that is the point. It tells what it was told, and which member
//! the client says it hangs on.

use meerkat_client::{Changes, Client, EventKind, Keys, WatchStatus};
use meerkat_types::Revision;

use super::checker::Seen;
use super::model::Input;
use super::stage::member_at;
use super::teller::Teller;
use super::writer::{PREFIX, number_of};

pub struct Watcher {
    pub watcher: usize,
    pub client: Client,
    /// The client addresses of the members, in their order.
    pub members: Vec<String>,
    pub teller: Teller,
}

impl Watcher {
    /// Watches until it is dropped, or until the watch ends, which it never should.
    pub async fn follow(self, first: Revision) {
        let mut watch = self.client.watch(Keys::prefix(PREFIX)).from(first).start();
        let mut monitor = watch.monitor();
        self.tell_status(&watch.status()).await;
        loop {
            tokio::select! {
                changed = monitor.changed() => {
                    let status = monitor.borrow_and_update().clone();
                    self.tell_status(&status).await;
                    if changed.is_err() {
                        break;
                    }
                }
                changes = watch.next() => match changes {
                    Some(Ok(changes)) => self.tell_changes(&changes).await,
                    Some(Err(error)) => return self.tell_end(error.to_string()).await,
                    None => return self.tell_end("the stream has ended".to_owned()).await,
                }
            }
        }
        self.tell_end("the client has gone".to_owned()).await;
    }

    async fn tell_status(&self, status: &WatchStatus) {
        let on = status.endpoint.as_deref().and_then(|endpoint| member_at(endpoint, &self.members));
        let (resumes, last_gap) = (status.resumes, status.last_gap);
        self.teller.tell(Input::Hangs { watcher: self.watcher, on, resumes, last_gap }).await;
    }

    async fn tell_changes(&self, changes: &Changes) {
        match read(changes) {
            Ok(events) => {
                for seen in events {
                    self.teller.tell(Input::Event { watcher: self.watcher, seen }).await;
                }
            }
            Err(reason) => {
                let text = format!("watcher {}: {reason}", self.watcher + 1);
                self.teller.tell(Input::Problem(text)).await;
            }
        }
    }

    async fn tell_end(&self, reason: String) {
        self.teller.tell(Input::WatchEnded { watcher: self.watcher, reason }).await;
    }
}

/// The events of one revision; a reason if they are none that the writer could have made.
fn read(changes: &Changes) -> Result<Vec<Seen>, String> {
    let at = changes.revision;
    let read_one = |event: &meerkat_client::Event| match &event.kind {
        EventKind::Put(kv) if kv.modified == at => number_of(&kv.key, &kv.value)
            .map(|number| Seen { revision: at, number })
            .ok_or_else(|| format!("revision {at} tells of a key that nobody wrote: {:?}", kv.key)),
        EventKind::Put(kv) => Err(format!("an event of revision {} came as one of {at}", kv.modified)),
        EventKind::Delete { .. } => Err(format!("revision {at} tells of a deletion, and nobody deletes")),
    };
    changes.events.iter().map(read_one).collect()
}
