//! The HTTP half of the door.
//!
//! ```text
//!   connection ──► request ──► authn ──► authz ──► body ──► gate ──► route
//!                                                                     │
//!        ┌──────────┬──────────┬──────────────┬───────────┬───────────┤
//!        ▼          ▼          ▼              ▼           ▼           ▼
//!      pages       get        list     watch, websocket  write      review
//!        │          │          │              │           │
//!        │          └──────────┴── Storage ───┼───────────┘
//!        └─ registry                          └─ Feeds
//!                    show, watch_form: in which form         answer: with which headers
//! ```
//!
//! Whatever comes in, an answer goes out: a handler that panics is an answer of 500, and a request that
//! takes too long one of 504. What a request can make the door hold is bounded: its head, its body, what
//! its body grows to, and how many there are. A list and a watch are written as fast as they are read.

mod answer;
pub mod authn;
pub mod authz;
mod body;
mod connection;
mod document;
mod gate;
mod get;
mod health;
mod limits;
mod list;
mod list_form;
mod metrics;
mod origin;
mod pages;
mod pods;
mod request;
mod review;
mod route;
mod selection;
mod show;
mod stall;
mod untaken;
mod watch;
mod watch_form;
mod websocket;
mod write;

pub use connection::prepare_tcp;

use crate::keeper::{self, Tally};
use crate::storage::Storage;
use authn::{Anonymous, Authenticator};
use authz::{AllowAll, Authorizer};
use gate::Gate;
use limits::Limits;
use meerkat_watchcache::cacher::ring::RingLimits;
use meerkat_watchcache::feed::{FeedSettings, Feeds};
use meerkat_watchcache::keep_running::keep_running;
use meerkat_watchcache::store::Store;
use metrics::Metrics;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// How often it is asked whether the store was replaced by one that lacks the first namespaces.
const FURNISH_EVERY: Duration = Duration::from_secs(1);

/// How long what is begun may take to end when the door closes.
const CLOSING: Duration = Duration::from_secs(10);

/// Bodies that are received at one time, of three megabytes at most.
const BODIES: usize = 256;
const BODIES_PER_USER: usize = 192;

/// The kinds that everything else needs: their feeds are started before the first request.
const FIRST_KINDS: [(&str, &str); 2] =
    [("", "namespaces"), (meerkat_kubernetes::crd::GROUP, "customresourcedefinitions")];

#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// Requests of one user that are answered at one time; see `limits`.
    pub in_flight_per_user: usize,
    /// Requests of all users that are answered at one time.
    pub in_flight: usize,
    /// Requests of one user that wait to be answered; of all users ten times as many.
    pub waiting_per_user: usize,
    pub connections: usize,
    /// How long a revision can be resumed from memory.
    pub window_ms: u64,
    /// How long a client may take nothing of a connection, of a list or of a watch. One that is parked could
    /// come back for as long; see `feed`.
    pub stall: Duration,
    /// How long a client may take nothing of the objects that its watch begins with.
    pub starting_stall: Duration,
    pub access: Access,
}

impl Default for DoorConfig {
    fn default() -> DoorConfig {
        DoorConfig {
            in_flight_per_user: 200,
            in_flight: 600,
            waiting_per_user: 200,
            connections: 32_768,
            window_ms: meerkat_watchcache::cacher::ring::WINDOW_MS_MIN,
            stall: Duration::from_secs(90),
            starting_stall: Duration::from_secs(30),
            access: Access::default(),
        }
    }
}

/// Who is who, and who may what.
#[derive(Clone)]
pub struct Access {
    pub authenticator: Arc<dyn Authenticator>,
    pub authorizer: Arc<dyn Authorizer>,
}

/// Everybody may do everything, and nobody has a name.
impl Default for Access {
    fn default() -> Access {
        Access { authenticator: Arc::new(Anonymous), authorizer: Arc::new(AllowAll) }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}

/// Held by everything that the door waits for when it closes.
type Alive = mpsc::Sender<()>;

struct Door {
    storage: Arc<Storage>,
    gate: Arc<Gate>,
    /// For those whose bodies are being received.
    bodies: Arc<Gate>,
    authenticator: Arc<dyn Authenticator>,
    authorizer: Arc<dyn Authorizer>,
    metrics: Metrics,
    kept: pages::Kept,
    forms: watch_form::FormNumbers,
    watches: Arc<AtomicUsize>,
    stall: Duration,
    starting_stall: Duration,
    connections: Arc<Semaphore>,
    connections_max: usize,
    /// Turns true when the door closes.
    ending: tokio::sync::watch::Receiver<bool>,
    /// Whether the namespaces that clients take for granted are known to be there.
    furnished: Arc<AtomicBool>,
    /// What the keeper has done here.
    keeper: Arc<Tally>,
}

/// Where connections come from: TCP, or something that is more than that.
pub trait Incoming: Send + 'static {
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection, and who is at its other end. May be dropped half-way and called again.
    fn accept(&mut self) -> impl Future<Output = std::io::Result<(Self::Io, SocketAddr)>> + Send;

    /// Asks the system to send small answers at once, and to find out who is gone; see [`prepare_tcp`].
    ///
    /// # Errors
    /// If the connection is gone.
    fn prepare(io: &Self::Io) -> std::io::Result<()>;
}

/// Serves the door on all listeners until `shutdown`, then ends its watches and answers what is begun. An
/// error is that it cannot go on.
pub async fn serve<L: Incoming>(
    store: Arc<dyn Store>,
    listeners: Vec<L>,
    config: DoorConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let ring = RingLimits::for_window(config.window_ms);
    let feeds = Feeds::with(store.clone(), FeedSettings { ring, ..FeedSettings::default() });
    let storage = Storage::new(store, feeds.clone());
    let (end, ending) = tokio::sync::watch::channel(false);
    let limits = Limits {
        seats: config.in_flight,
        seats_per_user: config.in_flight_per_user,
        waiting: config.waiting_per_user.saturating_mul(10),
        waiting_per_user: config.waiting_per_user,
    };
    let connections_max = config.connections.min(Semaphore::MAX_PERMITS);
    let furnished = Arc::new(AtomicBool::new(false));
    let tally = Arc::new(Tally::default());
    let door = Arc::new(Door {
        storage: storage.clone(),
        gate: Gate::new(limits),
        bodies: Gate::new(Limits {
            seats: limits.seats.min(BODIES),
            seats_per_user: limits.seats_per_user.min(BODIES_PER_USER),
            ..limits
        }),
        authenticator: config.access.authenticator,
        authorizer: config.access.authorizer,
        metrics: Metrics::default(),
        kept: pages::Kept::default(),
        forms: watch_form::FormNumbers::default(),
        watches: Arc::default(),
        stall: config.stall,
        starting_stall: config.starting_stall,
        connections: Arc::new(Semaphore::new(connections_max)),
        connections_max,
        ending,
        furnished: furnished.clone(),
        keeper: tally.clone(),
    });
    // All of these end when this function does.
    let mut tasks = JoinSet::new();
    start_first_feeds(&storage);
    let kept = storage.clone();
    tasks.spawn(keep_running("the keeper", move || keeper::keep(kept.clone(), tally.clone())));
    tasks.spawn(keep_running("the namespaces", move || furnish(storage.clone(), furnished.clone())));
    let (alive, mut gone) = mpsc::channel(1);
    for listener in listeners {
        tasks.spawn(connection::accept(door.clone(), listener, alive.clone()));
    }
    drop((door, alive));
    let outcome = tokio::select! {
        () = shutdown => Ok(()),
        // None ends before it is told to.
        ended = tasks.join_next() => Err(std::io::Error::other(format!("a task of it ended: {ended:?}"))),
    };
    // There is always a receiver as long as somebody needs to hear it.
    let _ = end.send(true);
    if tokio::time::timeout(CLOSING, gone.recv()).await.is_err() {
        tracing::warn!("some requests were not answered before the door closed");
    }
    tasks.shutdown().await;
    feeds.close();
    outcome
}

/// Never ends: a store may be replaced by one in which nothing is.
async fn furnish(storage: Arc<Storage>, furnished: Arc<AtomicBool>) {
    loop {
        let history = storage.store().history();
        storage.ensure_namespaces().await;
        furnished.store(true, Ordering::Release);
        while storage.store().history() == history {
            tokio::time::sleep(FURNISH_EVERY).await;
        }
    }
}

fn start_first_feeds(storage: &Storage) {
    let registry = storage.kinds().now();
    for (group, resource) in FIRST_KINDS {
        if let Some(kind) = registry.by_group_resource(group, resource)
            && let Err(refusal) = storage.feeds().of(kind)
        {
            tracing::warn!(%refusal, resource, "the kind has no feed");
        }
    }
}
