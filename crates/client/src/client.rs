//! The handle to a cluster.

use crate::balancer::Pool;
use crate::config::Config;
use crate::error::Error;
use crate::lease::Keeper;
use crate::namespace::Namespace;
use crate::watch::Hub;
use bytes::Bytes;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// A handle to a cluster. Clones are cheap and share connections, health and token.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    namespace: Namespace,
}

/// What all handles of one client share.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) watches: Hub,
    keeper: Keeper,
    /// One renewal of the token at a time.
    pub(crate) login: tokio::sync::Mutex<()>,
    /// Where background tasks run, whatever thread asks for one.
    runtime: tokio::runtime::Handle,
}

impl Client {
    /// Connects to a cluster by any of its members' client addresses.
    ///
    /// # Errors
    /// If an address cannot be meant, or no member answers in time.
    pub async fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Result<Client, Error> {
        Client::connect_with(Config::new(endpoints)).await
    }

    /// Connects as `config` says.
    ///
    /// # Errors
    /// If the configuration cannot be meant, or no member answers in time and the configuration is
    /// not [`Config::lazy`].
    pub async fn connect_with(config: Config) -> Result<Client, Error> {
        let lazy = config.lazy;
        let pool = Pool::new(config)?;
        let shared = Arc::new(Shared {
            pool,
            watches: Hub::default(),
            keeper: Keeper::default(),
            login: tokio::sync::Mutex::new(()),
            runtime: tokio::runtime::Handle::current(),
        });
        let client = Client::whole(shared);
        let answered = lazy || client.pool().first_look().await;
        if !answered {
            let names = client.pool().names().join(", ");
            return Err(Error::unreachable(format!("no member answers at {names}")));
        }
        client.pool().watch_health();
        if let Some(interval) = client.pool().config().sync_interval {
            client.spawn(crate::cluster::keep_synced(Arc::downgrade(&client.shared), interval));
        }
        if !lazy {
            client.renew_token(0, client.pool().config().request_timeout).await?;
        }
        Ok(client)
    }

    /// A handle without a namespace to what these handles share.
    pub(crate) fn whole(shared: Arc<Shared>) -> Client {
        Client { shared, namespace: Namespace::default() }
    }

    /// The same cluster, seen through a prefix: every key of every request is put below it, and
    /// every key that comes back has it taken off. Prefixes of prefixes add up.
    #[must_use]
    pub fn namespace(&self, prefix: impl Into<Bytes>) -> Client {
        let namespace = self.namespace.inside(&prefix.into());
        Client { shared: self.shared.clone(), namespace }
    }

    /// The endpoints in use, as URLs.
    pub fn endpoints(&self) -> Vec<Arc<str>> {
        self.pool().names()
    }

    /// The endpoint that answered last, if one has.
    pub fn last_endpoint(&self) -> Option<Arc<str>> {
        self.pool().last_good()
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    pub(crate) fn prefix(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.shared.keeper
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs a task in the background.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.shared.runtime.spawn(task));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints())
            .field("namespace", &self.namespace)
            .finish()
    }
}
