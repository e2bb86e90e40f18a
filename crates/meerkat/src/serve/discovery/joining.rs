//! Joining a cluster at a discovery service: the calls, and the waiting.
//!
//! Patient, as etcd is: a service that cannot be reached is tried again for ever, in ever longer steps, and
//! so are the members that are still to come waited for.

use std::time::Duration;

use meerkat_client::{Client, Error, ErrorKind, EtcdError, EventKind, Keys, Revision, WatchError};
use meerkat_server::config::{Config, MemberUrl, RegistryDiscovery};

use super::registry::{self, NotJoined, Places, Registered};
use crate::command::{Dialing, TlsFiles};
use crate::endpoint::Endpoint;

/// Pauses double up to 2 to this power, in seconds.
const DOUBLINGS_MAX: u32 = 8;

/// The configuration with the cluster that comes together at the service.
pub async fn join(config: Config, service: &RegistryDiscovery) -> Result<Config, String> {
    if config.joins_existing() {
        return Err("discovery URL should not be set when joining existing initial cluster".to_owned());
    }
    config.verify_bootstrap().map_err(|error| error.to_string())?;
    tracing::info!(token = service.token, "Bootstrapping cluster using v3 discovery.");
    match Joining::begin(&config, service).await {
        Ok(cluster) => registry::begin(config, cluster),
        Err(why) => {
            tracing::warn!(token = service.token, error = %why, "discovery failed to join cluster");
            if why == NotJoined::Full {
                tracing::warn!("do not reuse discovery token; generate a new one to bootstrap a cluster");
            }
            Err(format!("failed to join discovery cluster ({why})"))
        }
    }
}

struct Joining {
    client: Client,
    places: Places,
    /// The key of this member.
    own: String,
    retries: u32,
}

/// What the service knows, read at a revision.
struct Seen {
    size: usize,
    registered: Registered,
    at: Revision,
}

enum Failed {
    /// The service could not be asked.
    Asking(Error),
    Final(NotJoined),
}

impl Joining {
    async fn begin(
        config: &Config,
        service: &RegistryDiscovery,
    ) -> Result<Vec<(String, MemberUrl)>, NotJoined> {
        let places = Places::new(&service.token);
        let own = places.member(config.bootstrap_member_id());
        let client = connect(service).await.map_err(NotJoined::Refused)?;
        let mut joining = Joining { client, places, own, retries: 0 };
        joining.look().await?;
        joining.register(&config.initial_cluster_text()).await?;
        let seen = joining.look().await?;
        joining.wait(seen).await
    }

    /// What the service knows, if there is a place for this member.
    async fn look(&mut self) -> Result<Seen, NotJoined> {
        loop {
            match self.try_look().await {
                Ok(seen) => {
                    self.retries = 0;
                    seen.registered.has_place(&self.own, seen.size)?;
                    return Ok(seen);
                }
                Err(Failed::Final(why)) => return Err(why),
                Err(Failed::Asking(error)) => self.pause("cluster status check", error).await?,
            }
        }
    }

    async fn try_look(&self) -> Result<Seen, Failed> {
        let answer = self.client.get(self.places.size()).await.map_err(Failed::Asking)?;
        let value = answer.first().map(|found| found.value.as_ref());
        let size = registry::size(value).map_err(Failed::Final)?;
        let answer = self.client.get(Keys::prefix(self.places.members())).await.map_err(Failed::Asking)?;
        let mut registered = Registered::default();
        for found in &answer.kvs {
            tell(&mut registered, &found.key, &found.value, found.created);
        }
        Ok(Seen { size, registered, at: answer.revision })
    }

    async fn register(&mut self, description: &str) -> Result<(), NotJoined> {
        loop {
            match self.client.put(self.own.clone(), description.to_owned()).await {
                Ok(_) => {
                    self.retries = 0;
                    tracing::info!(key = self.own, description, "register member itself successfully");
                    return Ok(());
                }
                // Putting the same again changes nothing, whatever became of the first.
                Err(error) => self.pause("register member itself", error).await?,
            }
        }
    }

    /// The cluster, when all of it has come.
    async fn wait(&mut self, mut seen: Seen) -> Result<Vec<(String, MemberUrl)>, NotJoined> {
        while seen.registered.len() < seen.size {
            tracing::info!(
                size = seen.size,
                found = seen.registered.len(),
                "waiting for peers from discovery service"
            );
            if let Err(error) = self.follow(&mut seen).await {
                tracing::warn!(%error, "the discovery service is looked at anew");
                self.pause_for("waiting for peers").await;
                seen = self.look().await?;
            }
        }
        tracing::info!(size = seen.size, "found all needed peers from discovery service");
        seen.registered.cluster(seen.size)
    }

    /// Takes in who comes, until nobody is missing.
    async fn follow(&self, seen: &mut Seen) -> Result<(), WatchError> {
        let members = Keys::prefix(self.places.members());
        let mut watch = self.client.watch(members).from(seen.at.next()).start();
        while seen.registered.len() < seen.size {
            let Some(changes) = watch.next().await else { return Err(WatchError::Closed) };
            for event in changes?.events {
                if let EventKind::Put(found) = event.kind {
                    tell(&mut seen.registered, &found.key, &found.value, found.created);
                }
            }
        }
        Ok(())
    }

    /// Before the next try; an error if there is no point in one.
    async fn pause(&mut self, step: &str, error: Error) -> Result<(), NotJoined> {
        let is_final = error.kind() == ErrorKind::Invalid || error.etcd() == Some(EtcdError::AuthFailed);
        if is_final {
            return Err(NotJoined::Refused(error.message().to_owned()));
        }
        tracing::warn!(%error, "the discovery service does not answer");
        self.pause_for(step).await;
        Ok(())
    }

    async fn pause_for(&mut self, step: &str) {
        self.retries = (self.retries + 1).min(DOUBLINGS_MAX);
        let pause = Duration::from_secs(1 << self.retries);
        tracing::warn!(reason = step, backoff = ?pause, "retry connecting to discovery service");
        tokio::time::sleep(pause).await;
    }
}

fn tell(registered: &mut Registered, key: &[u8], value: &[u8], came_at: Revision) {
    let (member, description) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
    match registered.add(key, value, came_at.get()) {
        Ok(()) => tracing::info!(%member, %description, "found peer from discovery service"),
        Err(why) => tracing::warn!(%member, %description, "{why}"),
    }
}

async fn connect(service: &RegistryDiscovery) -> Result<Client, String> {
    let given = |path: &String| Some(path.clone()).filter(|path| !path.is_empty());
    let files =
        TlsFiles { cacert: given(&service.cacert), cert: given(&service.cert), key: given(&service.key) };
    let choice = files.load(service.insecure_transport, service.insecure_skip_tls_verify);
    let choice = choice.map_err(|failure| format!("discovery: {}", failure.message))?;
    let dialing = Dialing { tls: choice, ..Dialing::plain(service.dial_timeout, service.request_timeout) };
    let mut uris = Vec::new();
    for endpoint in &service.endpoints {
        let endpoint =
            Endpoint::parse(endpoint).map_err(|failure| format!("discovery: {}", failure.message))?;
        uris.push(dialing.uri(&endpoint));
    }
    let mut config = meerkat_client::Config::new(uris)
        .lazy()
        .connect_timeout(service.dial_timeout)
        .request_timeout(service.request_timeout)
        .tls(dialing.tls.tls.clone());
    if !service.keepalive.interval.is_zero() {
        config = config.probe_interval(service.keepalive.interval);
    }
    if !service.keepalive.timeout.is_zero() {
        config = config.probe_timeout(service.keepalive.timeout);
    }
    if let Some((user, password)) = &service.login {
        config = config.user(user.clone(), password.0.clone());
    }
    Client::connect_with(config).await.map_err(|error| error.message().to_owned())
}
