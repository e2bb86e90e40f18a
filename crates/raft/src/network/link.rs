//! Connections to peers, and the proof of identity that every call carries.
//!
//! Always true: a call says which cluster it belongs to, who calls, who is meant and from which
//! data directory; `Gate::check` refuses a call of a stranger before its message is read. A
//! connection that stays silent is given up by HTTP/2 pings, so a black hole looks like a dead
//! peer and not like a slow one.

use crate::identity::Identity;
use crate::measured::{PeerTraffic, PeerView};
use crate::presence::Presence;
use crate::type_config::PeerNode;
use meerkat_fault::Mutex;
use meerkat_proto::pb::peer::peer_client::PeerClient;
use meerkat_types::{ClusterId, MemberId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

const CLUSTER: &str = "meerkat-cluster";
const FROM: &str = "meerkat-from";
const TO: &str = "meerkat-to";
const INCARNATION: &str = "meerkat-incarnation";
const TO_INCARNATION: &str = "meerkat-to-incarnation";

/// Entries and snapshot chunks are bounded by their senders well below this.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer that answers no ping for this long is dead or behind a black hole.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// How often the late answers of one peer are logged.
const LATE_LOG_INTERVAL: Duration = Duration::from_secs(30);

/// What a caller hears that was removed from the cluster. Whatever stands between members may answer
/// with this code too, so only the note beside it counts: who was removed, and from which cluster.
const REMOVED: Code = Code::PermissionDenied;
const REMOVED_NOTE: &str = "meerkat-removed";

/// What a connection is for; each purpose has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    Append,
    Heartbeat,
    Snapshot,
    /// Proposals and read indexes of a follower's clients.
    Forward,
}

pub(crate) type Link = PeerClient<InterceptedService<Channel, Signature>>;

/// A connection to a peer, however it was made.
pub trait PeerStream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> PeerStream for S {}

/// Another way than TCP to reach the peer at a URL, which may be a socket in the file system.
pub type Dialer =
    Arc<dyn Fn(String) -> futures::future::BoxFuture<'static, io::Result<Box<dyn PeerStream>>> + Send + Sync>;

/// All connections of this member, made when first used and kept while the address stays.
pub(crate) struct Links {
    identity: Identity,
    known: Arc<dyn KnownMembers>,
    /// Where the newest membership says that members are.
    addresses: Mutex<HashMap<MemberId, PeerNode>>,
    /// Set when a peer said that this member is not one any more.
    removed: watch::Sender<Option<String>>,
    dialer: Option<Dialer>,
    /// Never held across an await; connecting happens lazily inside the channel.
    channels: Mutex<HashMap<(MemberId, Purpose), (String, Channel)>>,
    /// Peers that the last call did not reach: their silence is logged once, not at each try.
    silent: Mutex<HashSet<MemberId>>,
    /// When each peer's late answers were last logged.
    late: Mutex<HashMap<MemberId, Instant>>,
    presence: Presence,
    /// What goes to and comes from each, for metrics.
    traffic: Mutex<HashMap<MemberId, Arc<PeerTraffic>>>,
}

#[derive(Debug, thiserror::Error)]
#[error("{url} is not a usable peer URL: {reason}")]
pub(crate) struct BadPeerUrl {
    url: String,
    reason: String,
}

impl Links {
    pub(crate) fn new(
        identity: Identity,
        known: Arc<dyn KnownMembers>,
        dialer: Option<Dialer>,
    ) -> Arc<Links> {
        Arc::new(Links {
            identity,
            known,
            addresses: Mutex::default(),
            removed: watch::channel(None).0,
            dialer,
            channels: Mutex::default(),
            silent: Mutex::default(),
            late: Mutex::default(),
            presence: Presence::default(),
            traffic: Mutex::default(),
        })
    }

    /// Follows the membership: calls go to where members are now, and nothing is kept for those that
    /// are gone.
    pub(crate) fn set_addresses(&self, members: HashMap<MemberId, PeerNode>) {
        self.channels.lock().retain(|(target, _), _| members.contains_key(target));
        self.silent.lock().retain(|target| members.contains_key(target));
        self.late.lock().retain(|target, _| members.contains_key(target));
        self.traffic.lock().retain(|target, _| members.contains_key(target));
        *self.addresses.lock() = members;
    }

    /// Turns into a reason when the cluster has removed this member.
    pub(crate) fn removed(&self) -> watch::Receiver<Option<String>> {
        self.removed.subscribe()
    }

    pub(crate) fn note_removed(&self, reason: &str) {
        self.removed.send_if_modified(|known| {
            let news = known.is_none();
            known.get_or_insert_with(|| reason.to_owned());
            news
        });
    }

    /// Reads a peer's refusal for the one that concerns this whole member.
    pub(crate) fn heed(&self, status: &Status) {
        let note = status.metadata().get(REMOVED_NOTE).and_then(|note| note.to_str().ok());
        if status.code() == REMOVED && note == Some(&removal(self.identity.cluster, self.identity.member)) {
            self.note_removed(status.message());
        }
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Who is connected.
    pub(crate) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// A call reached this peer.
    pub(crate) fn reached(&self, target: MemberId) {
        self.presence.reached(target);
        if self.silent.lock().remove(&target) {
            tracing::info!(peer = %target, "peer reachable again");
        }
    }

    /// A call did not reach this peer, or was refused by it.
    pub(crate) fn missed(&self, target: MemberId, node: &PeerNode, refused: bool, reason: &str) {
        self.traffic(target).failed();
        if !self.silent.lock().insert(target) {
            return;
        }
        if refused {
            tracing::error!(peer = %node, reason, "peer refuses this member");
        } else {
            tracing::warn!(peer = %node, reason, "peer unreachable; retrying");
        }
    }

    /// A connected peer has not answered heartbeats for so long: it, this member or the network between
    /// them is slow.
    pub(crate) fn late(&self, target: MemberId, node: &PeerNode, overdue: Duration) {
        if self.presence.connected_for(target).is_none() {
            return;
        }
        let mut logged = self.late.lock();
        if logged.get(&target).is_none_or(|at| LATE_LOG_INTERVAL <= at.elapsed()) {
            logged.insert(target, Instant::now());
            let overdue_ms = overdue.as_millis();
            tracing::warn!(peer = %node, overdue_ms, "heartbeat answer is late");
        }
    }

    /// What goes to and comes from one peer.
    pub(crate) fn traffic(&self, target: MemberId) -> Arc<PeerTraffic> {
        self.traffic.lock().entry(target).or_default().clone()
    }

    /// Every peer that was called or has called.
    pub(crate) fn peers(&self) -> Vec<PeerView> {
        let mut peers: Vec<PeerView> = self
            .traffic
            .lock()
            .iter()
            .map(|(target, traffic)| PeerView {
                member: *target,
                active: self.presence.connected_for(*target).is_some(),
                traffic: traffic.clone(),
            })
            .collect();
        peers.sort_by_key(|peer| peer.member.0);
        peers
    }

    pub(crate) fn to(&self, target: MemberId, node: &PeerNode, purpose: Purpose) -> Result<Link, BadPeerUrl> {
        let url = self.addresses.lock().get(&target).unwrap_or(node).peer_urls.first().cloned();
        let url = url.unwrap_or_default();
        let mut channels = self.channels.lock();
        let channel = match channels.get(&(target, purpose)) {
            Some((known, channel)) if *known == url => channel.clone(),
            _ => {
                let channel = connect(&url, self.dialer.as_ref())?;
                channels.insert((target, purpose), (url, channel.clone()));
                channel
            }
        };
        let known = self.known.incarnation_of(target);
        let signature = Signature::new(&self.identity, target, known);
        Ok(PeerClient::with_interceptor(channel, signature)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }
}

/// Who makes a call, as it says.
pub(crate) fn caller(metadata: &MetadataMap) -> Option<MemberId> {
    u64::from_str_radix(metadata.get(FROM)?.to_str().ok()?, 16).ok().map(MemberId)
}

/// Who was removed, and from which cluster.
fn removal(cluster: ClusterId, member: MemberId) -> String {
    format!("{cluster}/{member}")
}

/// The name is resolved at each connect, not here: containers change their addresses.
pub(crate) fn connect(url: &str, dialer: Option<&Dialer>) -> Result<Channel, BadPeerUrl> {
    let bad = |reason: String| BadPeerUrl { url: url.to_owned(), reason };
    // A file is no host; HTTP is told of one all the same.
    let named = if is_file(url) { "http://localhost" } else { url };
    let uri: http::Uri = named.parse().map_err(|error: http::uri::InvalidUri| bad(error.to_string()))?;
    // Encryption is the dialer's affair, and tonic would ask for its own where it reads `https`.
    let plain = named.replacen("https://", "http://", 1);
    let endpoint = Endpoint::from_shared(plain).map_err(|error| bad(error.to_string()))?;
    let endpoint = endpoint
        .origin(uri)
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20);
    let Some(dialer) = dialer.cloned() else { return Ok(endpoint.connect_lazy()) };
    let url = url.to_owned();
    let connector = tower::service_fn(move |_plain: http::Uri| {
        let dialed = dialer(url.clone());
        async move { dialed.await.map(hyper_util::rt::TokioIo::new) }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

fn is_file(url: &str) -> bool {
    url.starts_with("unix://") || url.starts_with("unixs://")
}

/// Puts on every call this member's proof of identity, and which data directory it believes to call.
#[derive(Clone)]
pub(crate) struct Signature {
    headers: Arc<[(&'static str, MetadataValue<tonic::metadata::Ascii>)]>,
}

impl Signature {
    fn new(identity: &Identity, target: MemberId, incarnation: Option<u64>) -> Signature {
        let hex = |number: u64| {
            MetadataValue::try_from(format!("{number:x}")).expect("hexadecimal digits are valid metadata")
        };
        let mut headers = vec![
            (CLUSTER, hex(identity.cluster.0)),
            (FROM, hex(identity.member.0)),
            (TO, hex(target.0)),
            (INCARNATION, hex(identity.incarnation)),
        ];
        headers.extend(incarnation.map(|incarnation| (TO_INCARNATION, hex(incarnation))));
        Signature { headers: headers.into() }
    }
}

impl tonic::service::Interceptor for Signature {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (name, value) in self.headers.iter() {
            request.metadata_mut().insert(*name, value.clone());
        }
        Ok(request)
    }
}

/// Who is let in at this member's peer port.
#[derive(Clone)]
pub(crate) struct Gate {
    identity: Identity,
    known: Arc<dyn KnownMembers>,
    /// Set when the cluster knows this member by another data directory: it must stop, since its
    /// empty or older log could elect a leader that lacks acknowledged writes.
    disowned: Arc<watch::Sender<Option<String>>>,
    /// The last refusal that was logged, and when: a stranger that knocks on and on is logged at
    /// intervals.
    logged: Arc<Mutex<Option<(String, Instant)>>>,
}

/// How often the same refusal is logged.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What this member has applied about the others.
pub(crate) trait KnownMembers: Send + Sync + 'static {
    /// The data directory by which the cluster knows a member; none before its first contact.
    fn incarnation_of(&self, member: MemberId) -> Option<u64>;
    /// It was in the cluster and is not any more. Not so one that this member has not heard of yet.
    fn is_removed(&self, member: MemberId) -> bool;
}

impl Gate {
    pub(crate) fn new(identity: Identity, known: Arc<dyn KnownMembers>) -> Gate {
        let (disowned, _) = watch::channel(None);
        Gate { identity, known, disowned: Arc::new(disowned), logged: Arc::default() }
    }

    /// Turns into a reason when the cluster disowns this data directory.
    pub(crate) fn disowned(&self) -> watch::Receiver<Option<String>> {
        self.disowned.subscribe()
    }

    pub(crate) fn check(&self, metadata: &MetadataMap) -> Result<MemberId, Status> {
        let caller = Caller::read(metadata)
            .ok_or_else(|| Status::failed_precondition("not a peer: the call carries no member identity"))?;
        let refuse = |code: Code, reason: String| {
            self.log_refusal(&caller, &reason);
            Status::new(code, reason)
        };
        if caller.cluster == self.identity.cluster && self.known.is_removed(caller.from) {
            let mut status = refuse(REMOVED, format!("member {} was removed from the cluster", caller.from));
            // Hexadecimal and a slash: always a legal value.
            if let Ok(note) = removal(caller.cluster, caller.from).parse() {
                status.metadata_mut().insert(REMOVED_NOTE, note);
            }
            return Err(status);
        }
        self.admit(&caller).map_err(|reason| refuse(Code::FailedPrecondition, reason))?;
        Ok(caller.from)
    }

    fn log_refusal(&self, caller: &Caller, reason: &str) {
        let mut logged = self.logged.lock();
        let recent =
            logged.as_ref().is_some_and(|(last, at)| last == reason && at.elapsed() < REFUSAL_LOG_INTERVAL);
        if !recent {
            tracing::warn!(from = %caller.from, %reason, "refused a call on the peer port");
            *logged = Some((reason.to_owned(), Instant::now()));
        }
    }

    fn admit(&self, caller: &Caller) -> Result<(), String> {
        let me = &self.identity;
        if caller.cluster != me.cluster {
            return Err(format!(
                "cluster ID mismatch: this is cluster {}, you are of {}",
                me.cluster, caller.cluster
            ));
        }
        if caller.to != me.member {
            return Err(format!(
                "member ID mismatch: this is member {}, you look for {}",
                me.member, caller.to
            ));
        }
        if caller.from == me.member {
            return Err(format!("member {} called itself: two processes run as one member", me.member));
        }
        match self.known.incarnation_of(caller.from) {
            Some(known) if known != caller.incarnation => {
                return Err(format!("member {} is known with another data directory", caller.from));
            }
            _ => {}
        }
        match caller.to_incarnation {
            Some(expected) if expected != me.incarnation => {
                let reason = format!("member {} is known with another data directory", me.member);
                self.disowned.send_replace(Some(reason.clone()));
                Err(reason)
            }
            _ => Ok(()),
        }
    }
}

struct Caller {
    cluster: ClusterId,
    from: MemberId,
    to: MemberId,
    incarnation: u64,
    to_incarnation: Option<u64>,
}

impl Caller {
    fn read(metadata: &MetadataMap) -> Option<Caller> {
        let hex = |name| u64::from_str_radix(metadata.get(name)?.to_str().ok()?, 16).ok();
        Some(Caller {
            cluster: ClusterId(hex(CLUSTER)?),
            from: MemberId(hex(FROM)?),
            to: MemberId(hex(TO)?),
            incarnation: hex(INCARNATION)?,
            to_incarnation: hex(TO_INCARNATION),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::service::Interceptor;

    struct Pinned;
    impl KnownMembers for Pinned {
        fn is_removed(&self, member: MemberId) -> bool {
            member == MemberId(4)
        }

        fn incarnation_of(&self, member: MemberId) -> Option<u64> {
            if member == MemberId(2) { Some(20) } else { None }
        }
    }

    fn identity(cluster: u64, member: u64, incarnation: u64) -> Identity {
        Identity {
            name: "m".into(),
            cluster: ClusterId(cluster),
            member: MemberId(member),
            incarnation,
            joined: false,
        }
    }

    fn check(caller: Identity, target: u64, expected: Result<u64, &str>) {
        let gate = Gate::new(identity(1, 1, 10), Arc::new(Pinned));
        let request = Signature::new(&caller, MemberId(target), None).call(Request::new(())).expect("signs");
        match (gate.check(request.metadata()), expected) {
            (Ok(from), Ok(wanted)) => assert_eq!(from, MemberId(wanted)),
            (Err(status), Err(wanted)) => assert!(status.message().contains(wanted), "{status}"),
            (got, wanted) => panic!("{got:?}, wanted {wanted:?}"),
        }
    }

    #[test]
    fn peers_of_this_cluster_are_let_in() {
        check(identity(1, 2, 20), 1, Ok(2));
        check(identity(1, 3, 99), 1, Ok(3));
    }

    #[test]
    fn strangers_are_refused_with_the_reason() {
        check(identity(9, 2, 20), 1, Err("cluster ID mismatch"));
        check(identity(1, 2, 20), 3, Err("member ID mismatch"));
        check(identity(1, 1, 10), 1, Err("called itself"));
        check(identity(1, 2, 21), 1, Err("another data directory"));
    }

    #[test]
    fn a_removed_member_is_told_so_and_believes_nothing_less() {
        let gate = Gate::new(identity(1, 1, 10), Arc::new(Pinned));
        let answer = |caller: Identity| {
            let call = Signature::new(&caller, MemberId(1), None).call(Request::new(())).expect("signs");
            gate.check(call.metadata()).expect_err("refused")
        };
        assert_eq!(answer(identity(9, 4, 40)).code(), Code::FailedPrecondition, "of another cluster");
        let links = Links::new(identity(1, 4, 40), Arc::new(Pinned), None);
        links.heed(&Status::failed_precondition("something else"));
        assert_eq!(*links.removed().borrow(), None);
        links.heed(&Status::permission_denied("by a proxy in between"));
        assert_eq!(*links.removed().borrow(), None);
        let other = Links::new(identity(1, 5, 40), Arc::new(Pinned), None);
        other.heed(&answer(identity(1, 4, 40)));
        assert_eq!(*other.removed().borrow(), None, "somebody else was removed");
        links.heed(&answer(identity(1, 4, 40)));
        assert!(links.removed().borrow().is_some());
    }

    #[test]
    fn a_wiped_member_is_disowned_by_those_who_knew_it() {
        let gate = Gate::new(identity(1, 1, 10), Arc::new(Pinned));
        let call = |known| Signature::new(&identity(1, 2, 20), MemberId(1), known).call(Request::new(()));
        assert!(gate.check(call(None).expect("signs").metadata()).is_ok());
        assert!(gate.check(call(Some(10)).expect("signs").metadata()).is_ok());
        assert_eq!(*gate.disowned().borrow(), None);
        assert!(gate.check(call(Some(9)).expect("signs").metadata()).is_err());
        assert!(gate.disowned().borrow().is_some());
    }

    #[test]
    fn a_call_without_identity_is_no_peer() {
        let gate = Gate::new(identity(1, 1, 10), Arc::new(Pinned));
        assert!(gate.check(Request::new(()).metadata()).is_err());
    }
}
