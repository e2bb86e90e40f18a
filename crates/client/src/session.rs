//! A session: a lease that is kept alive, and that everything held by one party hangs on.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use meerkat_client::{Lock, Session};
//! use std::time::Duration;
//!
//! let session = Session::open(&client, Duration::from_secs(10)).await?;
//! let guard = Lock::new(&session, "jobs/nightly").acquire().await?;
//! tokio::select! {
//!     lost = session.lost() => eprintln!("stop working: {lost}"),
//!     () = async { /* the work */ } => {}
//! }
//! guard.release().await?;
//! session.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Always true: [`Session::lost`] ends no later than the cluster may let the lease run out, as far as
//! this process is running and its clock is right. A process that stands still is told late; that is
//! what fencing tokens are for, see [`crate::lock`].
//!
//! How it ends: [`Session::close`] revokes the lease, and tells whether that worked. When the last
//! handle is dropped without it (guards and leaderships are handles too), renewals stop and a
//! revocation is sent in the background; if that does not get through, the lease runs out by itself.
//! Either way every key that hangs on the session goes away, in one revision.

use crate::lease::{Granted, KeepAlive, KeepAliveStatus, LeaseLost, LossReason};
use crate::{Client, Error, EtcdError, Fate, LeaseId};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How often a revocation is tried before it is left to the lease's own end.
const REVOKE_TRIES: u32 = 3;

/// A lease that is kept alive. Clones are handles to the same one.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    granted: Granted,
    status: watch::Receiver<KeepAliveStatus>,
    /// Taken when the session is closed, so that renewals stop even if the revocation fails.
    alive: Mutex<Option<KeepAlive>>,
    closed: watch::Sender<bool>,
    seats: Mutex<Seats>,
}

/// A session that ends with its last other handle.
pub(crate) struct WeakSession(Weak<Inner>);

impl WeakSession {
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(|inner| Session { inner })
    }
}

/// The keys this session has in the lines of locks and elections.
#[derive(Default)]
struct Seats {
    /// Within one session there is one key per name, so its users take turns here first.
    turns: HashMap<Bytes, Weak<tokio::sync::Mutex<()>>>,
    /// Keys whose deletion was asked for and may yet happen.
    doubtful: HashSet<Bytes>,
}

/// The right to use the session's key of one name.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Session {
    /// Grants a lease that lives this long without being renewed, and keeps it alive.
    ///
    /// A short time lets others take over sooner after a crash; a long one survives longer troubles of
    /// the cluster. 10 s is a fair start. Servers raise what is too short, see [`Session::ttl`].
    ///
    /// # Errors
    /// If the lease cannot be granted.
    pub async fn open(client: &Client, ttl: Duration) -> Result<Session, Error> {
        let granted = client.leases().grant(ttl).await?;
        let alive = client.leases().keep_alive(granted);
        let inner = Inner {
            client: client.clone(),
            granted,
            status: alive.monitor(),
            alive: Mutex::new(Some(alive)),
            closed: watch::Sender::new(false),
            seats: Mutex::default(),
        };
        Ok(Session { inner: Arc::new(inner) })
    }

    /// The lease everything hangs on.
    pub fn lease(&self) -> LeaseId {
        self.inner.granted.id
    }

    /// How long the session outlives the last renewal. May be more than was asked for.
    pub fn ttl(&self) -> Duration {
        self.inner.granted.ttl
    }

    /// The client it was opened with.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Ends when the session is over: closed, ended by someone else, or not renewed in time.
    pub async fn lost(&self) -> LeaseLost {
        let mut closed = self.inner.closed.subscribe();
        let mut status = self.inner.status.clone();
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => {}
            _ = status.wait_for(|status| status.lost.is_some()) => {}
        }
        // The renewals ended without a verdict only if the client itself is ending.
        self.loss().unwrap_or(self.lost_by(LossReason::Silence))
    }

    /// Whether and why the session is over, as known now.
    pub fn loss(&self) -> Option<LeaseLost> {
        let told = self.inner.status.borrow().lost;
        told.or_else(|| self.inner.closed.borrow().then(|| self.lost_by(LossReason::Gone)))
    }

    /// Ends the session: all keys that hang on it go away, in one revision.
    ///
    /// # Errors
    /// If the revocation did not get through. The session is over all the same: it is not renewed any
    /// more, and its keys go away when the lease has run out.
    pub async fn close(&self) -> Result<(), Error> {
        // First, or who waits for the end may see the renewals end and nobody who closed it.
        self.inner.closed.send_replace(true);
        self.inner.alive.lock().take();
        revoke(&self.inner.client, self.lease()).await
    }

    /// The session, without keeping it from ending.
    pub(crate) fn downgrade_into(self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.inner))
    }

    /// Waits for the right to use the session's key in some line.
    pub(crate) async fn turn(&self, key: &Bytes) -> Turn {
        self.turns_of(key).lock_owned().await
    }

    /// The right to use the session's key in some line, unless somebody has it.
    pub(crate) fn turn_now(&self, key: &Bytes) -> Option<Turn> {
        self.turns_of(key).try_lock_owned().ok()
    }

    fn turns_of(&self, key: &Bytes) -> Arc<tokio::sync::Mutex<()>> {
        let mut seats = self.inner.seats.lock();
        if let Some(turns) = seats.turns.get(key).and_then(Weak::upgrade) {
            return turns;
        }
        seats.turns.retain(|_, turns| 0 < turns.strong_count());
        let turns = Arc::new(tokio::sync::Mutex::new(()));
        seats.turns.insert(key.clone(), Arc::downgrade(&turns));
        turns
    }

    /// A deletion of this key may still be under way somewhere, or no more.
    pub(crate) fn doubt(&self, key: &Bytes, doubtful: bool) {
        let mut seats = self.inner.seats.lock();
        match doubtful {
            true => seats.doubtful.insert(key.clone()),
            false => seats.doubtful.remove(key),
        };
    }

    pub(crate) fn is_doubtful(&self, key: &Bytes) -> bool {
        self.inner.seats.lock().doubtful.contains(key)
    }

    fn lost_by(&self, reason: LossReason) -> LeaseLost {
        LeaseLost { id: self.lease(), reason }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("lease", &self.lease()).field("loss", &self.loss()).finish()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !*self.closed.borrow() {
            let (client, lease, ttl) = (self.client.clone(), self.granted.id, self.granted.ttl);
            self.client.spawn(async move {
                // Longer than its time there is nothing left to revoke.
                drop(tokio::time::timeout(ttl, revoke(&client, lease)).await);
            });
        }
    }
}

/// Revoking is safe to repeat: nobody else has a lease of this name.
async fn revoke(client: &Client, lease: LeaseId) -> Result<(), Error> {
    let mut tries = 1;
    loop {
        match client.leases().revoke(lease).await {
            Ok(()) => return Ok(()),
            Err(error) if error.etcd() == Some(EtcdError::LeaseNotFound) => return Ok(()),
            Err(error) if error.fate() == Fate::Refused || REVOKE_TRIES <= tries => return Err(error),
            Err(_) => tries += 1,
        }
    }
}
