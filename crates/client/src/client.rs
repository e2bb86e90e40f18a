//! The handle to a cluster.

use crate::balancer::Pool;
use crate::call::Failed;
use crate::config::Config;
use crate::error::Error;
use crate::namespace::Namespace;
use bytes::Bytes;
use std::fmt;
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
        let shared = Arc::new(Shared { pool });
        let client = Client { shared, namespace: Namespace::default() };
        let answered = lazy || client.pool().first_look().await;
        if !answered {
            let names = client.pool().names().join(", ");
            return Err(Error::unreachable(format!("no member answers at {names}")));
        }
        client.pool().watch_health();
        Ok(client)
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

    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    pub(crate) fn prefix(&self) -> &Namespace {
        &self.namespace
    }

    #[allow(dead_code)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Gets a new token if the one with this number is still the current one. False if this client
    /// has no user to get one for.
    pub(crate) async fn renew_token(&self, _seen: u64) -> Result<bool, Failed> {
        Ok(false)
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
