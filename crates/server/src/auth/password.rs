//! Passwords: hashed before anything is proposed and compared before anything is given out, both on
//! threads of their own and few at a time, since each takes time on purpose.

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Who waits beyond this is turned away: passwords must not become a way to stop a member.
const WAITING_MAX: usize = 256;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("too many passwords are being checked")]
    Overloaded,
    #[error("a password may have 72 bytes")]
    TooLong,
    #[error("the password could not be hashed: {0}")]
    Failed(String),
}

/// Clones share the threads.
#[derive(Clone)]
pub(crate) struct Passwords {
    cost: u32,
    turns: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Passwords {
    pub(crate) fn new(cost: u32) -> Passwords {
        // Half of the processors: the other half goes on with everything else.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Arc::new(Semaphore::new((cores / 2).max(1)));
        Passwords { cost, turns, waiting: Arc::default() }
    }

    pub(crate) async fn hash(&self, password: String) -> Result<Bytes, PasswordError> {
        let cost = self.cost;
        let hashed = self.work(move || bcrypt::non_truncating_hash(password, cost)).await?;
        match hashed {
            Ok(hash) => Ok(hash.into_bytes().into()),
            Err(bcrypt::BcryptError::Truncation(_)) => Err(PasswordError::TooLong),
            Err(error) => Err(PasswordError::Failed(error.to_string())),
        }
    }

    /// Whether this is the password that was hashed.
    pub(crate) async fn is_right(&self, password: String, hash: Bytes) -> Result<bool, PasswordError> {
        self.work(move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            bcrypt::non_truncating_verify(password, hash).unwrap_or(false)
        })
        .await
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _place = Place::take(&self.waiting).ok_or(PasswordError::Overloaded)?;
        // Never closed, so waiting cannot fail.
        let turn = self.turns.clone().acquire_owned().await;
        let done = meerkat_raft::threads::spawn_blocking(move || {
            // Kept until the work is done, also if nobody waits for it any more.
            let _turn = turn;
            work()
        });
        done.await.map_err(|error| PasswordError::Failed(error.to_string()))
    }
}

/// A place among those who wait.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    fn take(waiting: &AtomicUsize) -> Option<Place<'_>> {
        let place = Place(waiting);
        (waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_right_or_wrong_and_never_too_long() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash("secret".to_owned()).await.expect("hashed");
        assert_eq!(passwords.is_right("secret".to_owned(), hash.clone()).await, Ok(true));
        assert_eq!(passwords.is_right("Secret".to_owned(), hash).await, Ok(false));
        assert_eq!(passwords.is_right("secret".to_owned(), Bytes::from_static(b"no hash")).await, Ok(false));
        assert_eq!(passwords.hash("x".repeat(100)).await, Err(PasswordError::TooLong));
        // As Go's library writes it.
        let hash = Bytes::from_static(b"$2a$04$wEkNkrYZBpmgv6S0bDCXhuAu0wMlqvmnzUOXmhCgnBHmFvWMcE4Fy");
        assert_eq!(passwords.is_right("no such password".to_owned(), hash).await, Ok(false));
    }

    #[tokio::test]
    async fn beyond_some_that_wait_the_next_is_turned_away() {
        let passwords = Passwords::new(4);
        passwords.waiting.store(WAITING_MAX, Ordering::Relaxed);
        assert_eq!(passwords.hash("x".to_owned()).await, Err(PasswordError::Overloaded));
        passwords.waiting.store(WAITING_MAX - 1, Ordering::Relaxed);
        assert!(passwords.hash("x".to_owned()).await.is_ok());
        assert_eq!(passwords.waiting.load(Ordering::Relaxed), WAITING_MAX - 1);
    }
}
