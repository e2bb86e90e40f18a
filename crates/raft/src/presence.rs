//! Which peers can be reached, and since when.
//!
//! Every member greets every other one, whoever leads, so that a new leader knows at once what the old
//! one knew. A greeting is refused to a member that was removed: this is how it finds out, however
//! long it was away.

use crate::leadership::Leadership;
use crate::network::link::{Links, Purpose};
use crate::type_config::PeerNode;
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer::GreetRequest;
use meerkat_state::StateReader;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(500);
/// A peer that takes longer to answer is as good as not there.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Default)]
pub(crate) struct Presence {
    since: Arc<Mutex<HashMap<u64, Instant>>>,
}

impl Presence {
    /// For how long a peer has been reachable without a break; `None` if it is not.
    pub(crate) fn connected_for(&self, peer: u64) -> Option<Duration> {
        self.since.lock().get(&peer).map(Instant::elapsed)
    }

    fn note(&self, peer: u64, reached: bool) {
        let mut since = self.since.lock();
        if reached {
            since.entry(peer).or_insert_with(Instant::now);
        } else {
            since.remove(&peer);
        }
    }

    fn keep_only(&self, peers: &HashMap<u64, PeerNode>) {
        self.since.lock().retain(|peer, _| peers.contains_key(peer));
    }
}

/// Runs until Raft stops.
pub(crate) async fn run(presence: Presence, links: Arc<Links>, leadership: Leadership, reader: StateReader) {
    let me = links.identity().member;
    while !leadership.is_over() {
        let peers = leadership.nodes();
        links.set_addresses(peers.clone());
        presence.keep_only(&peers);
        let others = peers.into_iter().filter(|(id, _)| *id != me.0);
        let greetings = others.map(|(id, node)| {
            let (presence, links) = (&presence, &links);
            async move { presence.note(id, greet(links, id, &node).await) }
        });
        futures::future::join_all(greetings).await;
        if reader.is_removed(me) {
            links.note_removed(&format!("member {me} was removed from the cluster"));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn greet(links: &Links, id: u64, node: &PeerNode) -> bool {
    let Ok(mut link) = links.to(id, node, Purpose::Forward) else { return false };
    let mut greeting = tonic::Request::new(GreetRequest {});
    greeting.set_timeout(ANSWER_TIMEOUT);
    match tokio::time::timeout(ANSWER_TIMEOUT, link.greet(greeting)).await {
        Ok(Ok(_)) => true,
        Ok(Err(status)) => {
            links.heed(&status);
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_begins_the_time_anew() {
        let presence = Presence::default();
        assert_eq!(presence.connected_for(1), None);
        presence.note(1, true);
        std::thread::sleep(Duration::from_millis(20));
        presence.note(1, true);
        assert!(presence.connected_for(1).is_some_and(|time| Duration::from_millis(20) <= time));
        presence.note(1, false);
        assert_eq!(presence.connected_for(1), None);
        presence.note(1, true);
        presence.keep_only(&HashMap::new());
        assert_eq!(presence.connected_for(1), None);
    }
}
