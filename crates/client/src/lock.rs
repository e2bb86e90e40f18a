//! Locks: at most one session holds a name, as the store sees it.
//!
//! ```no_run
//! # async fn run(client: meerkat_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use meerkat_client::{Lock, Op, Session};
//! use std::time::Duration;
//!
//! let session = Session::open(&client, Duration::from_secs(10)).await?;
//! let guard = Lock::new(&session, "locks/report").acquire().await?;
//! // Not a plain put: this one fails if the lock was lost on the way.
//! let done = client.txn().when([guard.holds()]).then([Op::put("report", "done")]).await?;
//! assert!(done.succeeded, "someone else holds the lock by now");
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A lock alone protects nothing
//!
//! A lock that hangs on a lease can be lost without its holder knowing: the process is stopped, its
//! machine is starved, a packet is late; the lease runs out, the next one gets the lock, and then the
//! first wakes up and goes on with what it was doing. No store can prevent that, because no store can
//! stop a process. Jepsen's test of etcd 3.4.3 showed it in practice: a set guarded by nothing but an
//! etcd lock lost updates, even in a healthy cluster if leases were short.
//!
//! So let the resource itself check:
//! * If it is in the store, put [`LockGuard::holds`] into every transaction that changes it. A holder
//!   that lost the lock then changes nothing.
//! * If it is somewhere else, send the fencing token, [`LockGuard::token`], with every change, and have
//!   the resource refuse tokens below the highest it has seen. Later holders have higher tokens.
//!
//! And end the work when [`LockGuard::lost`] ends: that keeps overlaps short, but cannot exclude them.
//!
//! # With others
//!
//! The keys are those of etcd's Go package `concurrency`, of `etcdctl lock` and of the Lock service;
//! holders of all kinds exclude each other. As with those, do not name a lock like a path below another
//! lock's name: `jobs/a` would stand in the line of `jobs`.
//!
//! Within one session a name has one key, and etcd lets a session that has the lock lock it again. Here
//! users of one session take turns instead: two tasks with clones of a session exclude each other.

use crate::lease::LeaseLost;
use crate::line::{Entered, Place};
use crate::{Compare, Error, Revision, Session};
use bytes::Bytes;

/// A lock by its name, as one session sees it.
#[derive(Clone, Debug)]
pub struct Lock {
    session: Session,
    name: Bytes,
}

/// Why a lock was not acquired.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The session ended while waiting. Open another one.
    #[error("the session is over: {0}; open another one")]
    SessionLost(#[source] LeaseLost),
    /// The key with which this session stood in line was deleted by someone else.
    #[error("somebody deleted this session's key in the line; ask again if that was no decision")]
    Removed,
    /// A request failed.
    #[error(transparent)]
    Client(#[from] Error),
}

impl Lock {
    /// The lock of this name. Nothing is sent yet.
    pub fn new(session: &Session, name: impl Into<Bytes>) -> Lock {
        Lock { session: session.clone(), name: name.into() }
    }

    /// Waits for the lock. First come, first served.
    ///
    /// If this future is dropped, the place in line is given up in the background; if that does not get
    /// through, it goes away with the session.
    ///
    /// # Errors
    /// If the session is lost while waiting, or a request fails.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        let Entered { place, first, .. } = Place::enter(&self.session, &self.name, Bytes::new()).await?;
        if !first {
            place.wait().await?;
        }
        Ok(LockGuard { place })
    }

    /// Takes the lock if nobody holds it or waits for it; `None` otherwise.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        match Place::enter_now(&self.session, &self.name).await? {
            Some(Entered { place, first: true, .. }) => Ok(Some(LockGuard { place })),
            Some(Entered { place, first: false, .. }) => {
                place.leave().await?;
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// A lock that was acquired.
///
/// Dropping it releases the lock in the background, as well as that works; [`LockGuard::release`] tells
/// whether it did. It keeps its session alive.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives the lock back"]
pub struct LockGuard {
    place: Place,
}

impl LockGuard {
    /// The key that stands for this hold of the lock.
    pub fn key(&self) -> &Bytes {
        self.place.key()
    }

    /// The fencing token: the revision at which this session stood in line. Every later holder of the
    /// lock has a higher one.
    pub fn token(&self) -> Revision {
        self.place.created()
    }

    /// Holds while the lock is held: put it into every transaction that the lock is to protect.
    pub fn holds(&self) -> Compare {
        self.place.holds()
    }

    /// Asks whether the lock is held. It may be lost by the time the answer is read: to decide on a
    /// write, use [`LockGuard::holds`].
    ///
    /// # Errors
    /// If no member answers in time.
    pub async fn is_held(&self) -> Result<bool, Error> {
        self.place.is_held().await
    }

    /// Ends when the session is lost, and the lock with it.
    pub async fn lost(&self) -> LeaseLost {
        self.place.session().lost().await
    }

    /// Gives the lock back. If it was lost before, that is fine too.
    ///
    /// # Errors
    /// If it is not known whether that worked. It is then tried again in the background, and the lock
    /// goes away with the session at the latest.
    pub async fn release(self) -> Result<(), Error> {
        self.place.leave().await
    }
}
