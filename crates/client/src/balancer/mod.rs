//! From many endpoints to one channel.
//!
//! The pool keeps, for each endpoint, one connection (opened when first used), its [`Health`] and a
//! signal that tells the users of the connection when it is no longer worth waiting for. Calls
//! report what they met; [`health`] asks in the background. Which endpoint is used is decided in
//! [`picker`].
//!
//! Never held across an await: the one lock, which guards the table of endpoints.

pub(crate) mod address;
pub(crate) mod health;
pub(crate) mod picker;

use crate::config::Config;
use crate::error::Error;
use parking_lot::Mutex;
use picker::{Health, Standing};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Notify, watch};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

pub(crate) use picker::EndpointId;

/// A connection that puts the token, if there is one, on every call.
pub(crate) type Wire = InterceptedService<Channel, Credentials>;

/// What a user of an endpoint says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It answered.
    Good,
    /// It answers, but is cut off from a majority.
    NoLeader,
    /// It does not answer.
    Failed,
}

/// What the users of a connection are told about it. It only ever gets worse: a connection that
/// recovers from `Gone` is a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Nothing is known against it.
    Up,
    /// Its member has lost its leader. Goes back to `Up` when it finds one.
    NoLeader,
    /// Its member does not answer any more, or is no longer an endpoint.
    Gone,
}

/// An endpoint to use now. While one of these lives its endpoint is watched closely.
#[derive(Clone)]
pub(crate) struct Picked {
    pub(crate) id: EndpointId,
    pub(crate) name: Arc<str>,
    pub(crate) wire: Wire,
    link: watch::Receiver<Link>,
    _use: Arc<()>,
}

impl Picked {
    /// Ends when the connection is gone: nothing will be heard on it any more.
    pub(crate) async fn gone(&self) {
        self.until(|link| *link == Link::Gone).await;
    }

    /// Ends when the connection is gone, or when its member loses its leader. One that had none to
    /// begin with is not held against it: there may be no better member.
    pub(crate) async fn gone_or_leaderless(&self) {
        let mut had_leader = false;
        self.until(|link| {
            had_leader |= *link == Link::Up;
            *link == Link::Gone || (had_leader && *link == Link::NoLeader)
        })
        .await;
    }

    async fn until(&self, is: impl FnMut(&Link) -> bool) {
        // An error says that the pool itself is gone, and every connection with it.
        drop(self.link.clone().wait_for(is).await);
    }
}

/// The token of a client, put on every call once there is one.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    token: Arc<Mutex<Token>>,
}

#[derive(Default)]
struct Token {
    value: Option<MetadataValue<Ascii>>,
    /// Counts the tokens, so that many calls that met one stale token renew it once.
    generation: u64,
}

impl Credentials {
    pub(crate) fn generation(&self) -> u64 {
        self.token.lock().generation
    }

    pub(crate) fn set(&self, value: Option<MetadataValue<Ascii>>) {
        let mut token = self.token.lock();
        token.value = value;
        token.generation += 1;
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(value) = &self.token.lock().value {
            request.metadata_mut().insert("token", value.clone());
        }
        Ok(request)
    }
}

/// The endpoints of one client. Clones share them.
#[derive(Clone)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    credentials: Credentials,
    table: Mutex<Table>,
    /// Wakes the prober before its time.
    poke: Notify,
}

struct Table {
    slots: Vec<Slot>,
    last_good: Option<EndpointId>,
    next_id: u64,
}

struct Slot {
    id: EndpointId,
    name: Arc<str>,
    endpoint: Endpoint,
    channel: Channel,
    link: watch::Sender<Link>,
    health: Health,
    /// Shared with every `Picked` of this slot.
    in_use: Arc<()>,
    probed_at: Option<Instant>,
    probing: bool,
}

impl Slot {
    fn new(id: EndpointId, name: Arc<str>, endpoint: Endpoint) -> Slot {
        let channel = endpoint.connect_lazy();
        Slot {
            id,
            name,
            endpoint,
            channel,
            link: watch::Sender::new(Link::Up),
            health: Health::UNTRIED,
            in_use: Arc::new(()),
            probed_at: None,
            probing: false,
        }
    }

    fn picked(&self, credentials: &Credentials) -> Picked {
        Picked {
            id: self.id,
            name: self.name.clone(),
            wire: InterceptedService::new(self.channel.clone(), credentials.clone()),
            link: self.link.subscribe(),
            _use: self.in_use.clone(),
        }
    }

    fn is_in_use(&self) -> bool {
        1 < Arc::strong_count(&self.in_use)
    }

    /// Cuts off everybody who waits on this connection, and begins a new one for whoever comes next.
    fn replace_connection(&mut self) {
        self.link.send_replace(Link::Gone);
        self.link = watch::Sender::new(Link::Up);
        self.in_use = Arc::new(());
        self.channel = self.endpoint.connect_lazy();
    }

    fn tell(&self, link: Link) {
        self.link.send_if_modified(|now| std::mem::replace(now, link) != link);
    }
}

impl Pool {
    /// A pool of the configured endpoints. Nothing is connected yet.
    pub(crate) fn new(config: Config) -> Result<Pool, Error> {
        if config.endpoints.is_empty() {
            return Err(Error::invalid("no endpoints were given; name at least one, as host:port"));
        }
        let pool = Pool {
            shared: Arc::new(Shared {
                credentials: Credentials::default(),
                table: Mutex::new(Table { slots: Vec::new(), last_good: None, next_id: 0 }),
                poke: Notify::new(),
                config,
            }),
        };
        pool.set_endpoints(&pool.shared.config.endpoints)?;
        Ok(pool)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    /// Makes these the endpoints. Those that stay keep their connection and their health; the
    /// streams of those that go are told to move.
    pub(crate) fn set_endpoints(&self, addresses: &[String]) -> Result<(), Error> {
        let mut wanted: Vec<(Arc<str>, Endpoint)> = Vec::new();
        for address in addresses {
            let (name, endpoint) = address::endpoint(address, &self.shared.config)?;
            if !wanted.iter().any(|(known, _)| *known == name) {
                wanted.push((name, endpoint));
            }
        }
        let mut table = self.shared.table.lock();
        let mut old = std::mem::take(&mut table.slots);
        for (name, endpoint) in wanted {
            let slot = match old.iter().position(|slot| slot.name == name) {
                Some(index) => old.swap_remove(index),
                None => {
                    table.next_id += 1;
                    Slot::new(EndpointId(table.next_id), name, endpoint)
                }
            };
            table.slots.push(slot);
        }
        for slot in old {
            slot.tell(Link::Gone);
        }
        drop(table);
        self.shared.poke.notify_one();
        Ok(())
    }

    /// Whether this can be an endpoint.
    pub(crate) fn accepts(&self, address: &str) -> bool {
        address::endpoint(address, &self.shared.config).is_ok()
    }

    /// The names of all endpoints.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.shared.table.lock().slots.iter().map(|slot| slot.name.clone()).collect()
    }

    /// The endpoint that last answered a call.
    pub(crate) fn last_good(&self) -> Option<Arc<str>> {
        let table = self.shared.table.lock();
        let slot = table.slots.iter().find(|slot| Some(slot.id) == table.last_good);
        slot.map(|slot| slot.name.clone())
    }

    /// The best endpoint now; another one than `avoid` if there is another.
    pub(crate) async fn pick(&self, avoid: Option<EndpointId>) -> Result<Picked, Error> {
        self.pick_now(avoid)
    }

    /// [`Pool::pick`] for those who cannot wait; it never does.
    pub(crate) fn pick_now(&self, avoid: Option<EndpointId>) -> Result<Picked, Error> {
        let table = self.shared.table.lock();
        let healths: Vec<_> = table.slots.iter().map(|slot| (slot.id, slot.health)).collect();
        let chosen = picker::choose(&healths, table.last_good, avoid, Instant::now(), rand::random());
        let slot = chosen.and_then(|id| table.slots.iter().find(|slot| slot.id == id));
        match slot {
            Some(slot) => Ok(slot.picked(&self.shared.credentials)),
            None => Err(Error::unreachable("the client has no endpoints; the cluster named none")),
        }
    }

    /// The endpoint of this name, whatever its health.
    pub(crate) fn pick_named(&self, name: &str) -> Result<Picked, Error> {
        let (name, _) = address::endpoint(name, &self.shared.config)?;
        let table = self.shared.table.lock();
        match table.slots.iter().find(|slot| slot.name == name) {
            Some(slot) => Ok(slot.picked(&self.shared.credentials)),
            None => Err(Error::invalid(format!("{name} is not one of this client's endpoints"))),
        }
    }

    /// Tells the pool what a call met.
    pub(crate) fn report(&self, id: EndpointId, verdict: Verdict) {
        let mut table = self.shared.table.lock();
        let Some(slot) = table.slots.iter_mut().find(|slot| slot.id == id) else { return };
        match verdict {
            Verdict::Good => {
                slot.health = Health::good();
                slot.tell(Link::Up);
                table.last_good = Some(id);
            }
            Verdict::NoLeader => {
                slot.health = slot.health.no_leader();
                slot.tell(Link::NoLeader);
            }
            Verdict::Failed => {
                // Not `Gone` yet: one broken stream is no proof that the others hear nothing. The
                // prober, woken here, finds out.
                if slot.health.standing != Standing::Ejected {
                    slot.health = slot.health.failed(Instant::now(), rand::random());
                }
                slot.probed_at = None;
                drop(table);
                self.shared.poke.notify_one();
            }
        }
    }
}
