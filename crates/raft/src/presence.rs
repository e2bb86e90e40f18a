//! Which peers are connected, and since when.
//!
//! Every member keeps a stream to every other one, whoever leads, so that a new leader knows at once
//! what the old one knew. A peer is connected from its first answer, on that stream or to a leader's
//! call, until the stream ends. On the stream it is greeted at intervals: a peer that does not answer
//! is not connected, and one that was removed is refused. This is how a removed member finds out,
//! however long it was away.

use crate::leadership::Leadership;
use crate::network::conversation::Conversation;
use crate::network::link::{Links, Purpose};
use crate::tasks::spawn_part;
use crate::type_config::PeerNode;
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer::{GreetRequest, GreetResponse};
use meerkat_state::StateReader;
use meerkat_types::MemberId;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

/// Between two greetings.
const INTERVAL: Duration = Duration::from_millis(500);
/// Before a peer that is not connected is dialled again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A peer that takes longer to answer is not connected. As etcd's, which reads from peers with it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub(crate) struct Presence {
    since: Arc<Mutex<HashMap<MemberId, Instant>>>,
}

impl Presence {
    /// For how long a peer has been connected without a break; `None` if it is not.
    pub(crate) fn connected_for(&self, peer: MemberId) -> Option<Duration> {
        self.since.lock().get(&peer).map(Instant::elapsed)
    }

    pub(crate) fn reached(&self, peer: MemberId) {
        self.since.lock().entry(peer).or_insert_with(Instant::now);
    }

    fn lost(&self, peer: MemberId) {
        self.since.lock().remove(&peer);
    }

    fn keep_only(&self, peers: &HashMap<MemberId, PeerNode>) {
        self.since.lock().retain(|peer, _| peers.contains_key(peer));
    }
}

/// Runs until Raft stops.
pub(crate) async fn run(links: Arc<Links>, mut leadership: Leadership, reader: StateReader) {
    let me = links.identity().member;
    let presence = links.presence().clone();
    // The task of a peer ends when its sender is gone.
    let mut greeted: HashMap<MemberId, watch::Sender<()>> = HashMap::new();
    while !leadership.is_over() {
        let peers = leadership.nodes();
        links.set_addresses(peers.clone());
        presence.keep_only(&peers);
        greeted.retain(|peer, _| peers.contains_key(peer));
        for id in peers.into_keys().filter(|id| *id != me) {
            greeted.entry(id).or_insert_with(|| {
                let (wanted, still_wanted) = watch::channel(());
                let peer = Peer { id, links: links.clone(), leadership: leadership.clone(), line: None };
                spawn_part("presence", keep_greeting(id, peer, presence.clone(), still_wanted));
                wanted
            });
        }
        if reader.is_removed(me) {
            links.note_removed(&format!("member {me} was removed from the cluster"));
        }
        if let Ok(false) = tokio::time::timeout(INTERVAL, leadership.changed()).await {
            return;
        }
    }
}

/// A peer that can be greeted.
trait Greet: Send {
    /// Whether it answers, on the line kept to it, or on a new one.
    fn greet(&mut self) -> impl Future<Output = bool> + Send;
    /// Resolves when that line ends. Only after it has answered.
    fn ended(&mut self) -> impl Future<Output = ()> + Send;
}

async fn keep_greeting(
    peer: MemberId,
    mut who: impl Greet,
    presence: Presence,
    mut still_wanted: watch::Receiver<()>,
) {
    let greeting = async {
        loop {
            if !who.greet().await {
                presence.lost(peer);
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            presence.reached(peer);
            if tokio::time::timeout(INTERVAL, who.ended()).await.is_ok() {
                presence.lost(peer);
            }
        }
    };
    tokio::select! {
        never = greeting => never,
        _ = still_wanted.changed() => {}
    }
}

type Line = Conversation<GreetRequest, GreetResponse>;

/// A peer, greeted beside its heartbeats: nothing large delays either.
struct Peer {
    id: MemberId,
    links: Arc<Links>,
    leadership: Leadership,
    line: Option<Line>,
}

impl Peer {
    /// Fails with what the peer said, if it said anything.
    async fn open(&self) -> Result<Line, Option<Status>> {
        let node = self.leadership.node(self.id).ok_or(None)?;
        let mut link = self.links.to(self.id, &node, Purpose::Heartbeat).map_err(|_| None)?;
        Conversation::open(|greetings| link.greet(greetings)).await.map_err(Some)
    }
}

impl Greet for Peer {
    async fn greet(&mut self) -> bool {
        let kept = self.line.take();
        let answered = async {
            let mut line = match kept {
                Some(line) => line,
                None => self.open().await?,
            };
            line.exchange(GreetRequest {}).await.map_err(Some)?;
            Ok(line)
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
            Ok(Ok(line)) => {
                self.line = Some(line);
                true
            }
            Ok(Err(Some(status))) => {
                self.links.heed(&status);
                false
            }
            Ok(Err(None)) | Err(_) => false,
        }
    }

    async fn ended(&mut self) {
        if let Some(line) = &mut self.line {
            let status = line.ended().await;
            self.links.heed(&status);
            self.line = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    const PEER: MemberId = MemberId(7);

    /// Answers while it is up, and at once.
    struct Scripted(watch::Receiver<bool>);

    impl Greet for Scripted {
        async fn greet(&mut self) -> bool {
            *self.0.borrow_and_update()
        }

        async fn ended(&mut self) {
            let _ = self.0.wait_for(|up| !*up).await;
        }
    }

    fn greeted() -> (watch::Sender<bool>, Presence, watch::Sender<()>) {
        let (up, script) = watch::channel(false);
        let (wanted, still_wanted) = watch::channel(());
        let presence = Presence::default();
        tokio::spawn(keep_greeting(PEER, Scripted(script), presence.clone(), still_wanted));
        (up, presence, wanted)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_connected_from_its_connection_until_that_breaks() {
        let (up, presence, _wanted) = greeted();
        // Between two greetings of a poll, whatever its phase.
        sleep(INTERVAL + INTERVAL / 2).await;
        assert_eq!(presence.connected_for(PEER), None);
        up.send_replace(true);
        sleep(RETRY_PAUSE).await;
        assert!(presence.connected_for(PEER).is_some(), "a new connection counts at once");
        sleep(Duration::from_secs(5)).await;
        assert!(presence.connected_for(PEER).is_some_and(|time| Duration::from_secs(5) <= time));
        up.send_replace(false);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(presence.connected_for(PEER), None, "a broken connection is noticed at once");
        up.send_replace(true);
        sleep(RETRY_PAUSE).await;
        let again = presence.connected_for(PEER);
        assert!(again.is_some_and(|time| time <= RETRY_PAUSE), "a break starts the time anew: {again:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_reached_a_peer_connects_it_before_the_next_greeting() {
        let (up, presence, _wanted) = greeted();
        sleep(RETRY_PAUSE / 2).await;
        up.send_replace(true);
        presence.reached(PEER);
        let first = presence.connected_for(PEER);
        sleep(INTERVAL).await;
        assert_eq!(first, Some(Duration::ZERO));
        assert_eq!(presence.connected_for(PEER), Some(INTERVAL), "its greeting did not start the time anew");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_no_member_any_more_is_not_greeted() {
        let (up, presence, wanted) = greeted();
        drop(wanted);
        sleep(RETRY_PAUSE).await;
        up.send_replace(true);
        sleep(INTERVAL).await;
        assert_eq!(presence.connected_for(PEER), None);
        presence.reached(PEER);
        presence.keep_only(&HashMap::new());
        assert_eq!(presence.connected_for(PEER), None);
    }
}
