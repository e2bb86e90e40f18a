//! Locks on real servers: one holder at a time, in the order of arrival, whoever else stands in line.

mod faults;
mod interop;

use crate::patience::within;
use crate::server::{BOTH, Cluster};
use crate::session::until_count;
use meerkat_client::{Client, Lock, LockError, LockGuard, Op, Session};
use std::time::Duration;
use tokio::task::JoinHandle;

const SECOND: Duration = Duration::from_secs(1);

async fn session(client: &Client) -> Session {
    Session::open(client, 30 * SECOND).await.expect("a session")
}

fn acquire(session: &Session, name: &'static str) -> JoinHandle<Result<LockGuard, LockError>> {
    let lock = Lock::new(session, name);
    tokio::spawn(async move { lock.acquire().await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_get_a_lock_one_after_the_other_in_order_of_arrival() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let sessions = [session(&client).await, session(&client).await, session(&client).await];
        let first = Lock::new(&sessions[0], "l").acquire().await.expect("a free lock");
        let second = acquire(&sessions[1], "l");
        until_count(&client, "l/", 2).await;
        let third = acquire(&sessions[2], "l");
        until_count(&client, "l/", 3).await;
        let fourth = session(&client).await;
        let tried = Lock::new(&fourth, "l").try_acquire().await.expect("an answer");
        assert!(tried.is_none(), "{kind:?}: held by another");
        until_count(&client, "l/", 3).await;

        let mut tokens = vec![first.token()];
        first.release().await.expect("released");
        let second = within("the second", second).await.expect("a task").expect("the lock");
        assert!(!third.is_finished(), "{kind:?}: two holders");
        tokens.push(second.token());
        second.release().await.expect("released");
        let third = within("the third", third).await.expect("a task").expect("the lock");
        tokens.push(third.token());
        // Dropped, not released.
        drop(third);
        until_count(&client, "l/", 0).await;
        let last = Lock::new(&fourth, "l").try_acquire().await.expect("an answer").expect("a free lock");
        tokens.push(last.token());
        assert!(tokens.is_sorted_by(|a, b| a < b), "{kind:?}: fencing tokens {tokens:?}");
    }
}

/// What a holder that believed "the one before me is gone, so it is my turn" would get wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_does_not_let_the_next_one_in() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let holder = session(&client).await;
        let guard = Lock::new(&holder, "l").acquire().await.expect("a free lock");
        let (leaver, next) = (session(&client).await, session(&client).await);
        let leaving = acquire(&leaver, "l");
        until_count(&client, "l/", 2).await;
        let waiting = acquire(&next, "l");
        until_count(&client, "l/", 3).await;

        leaver.close().await.expect("closed");
        let left = within("the leaver", leaving).await.expect("a task");
        assert!(matches!(left, Err(LockError::SessionLost(_))), "{kind:?}: {left:?}");
        until_count(&client, "l/", 2).await;
        tokio::time::sleep(SECOND).await;
        assert!(!waiting.is_finished() && guard.is_held().await.expect("an answer"), "{kind:?}");
        guard.release().await.expect("released");
        within("the next", waiting)
            .await
            .expect("a task")
            .expect("the lock")
            .release()
            .await
            .expect("released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_cancelled_takes_its_key_away() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let holder = session(&client).await;
        let guard = Lock::new(&holder, "l").acquire().await.expect("a free lock");
        let waiter = session(&client).await;
        // Cancelled at any point: before, while and after its key is written.
        for millis in [0, 1, 2, 5, 10, 100] {
            let cancelled =
                tokio::time::timeout(Duration::from_millis(millis), Lock::new(&waiter, "l").acquire()).await;
            assert!(cancelled.is_err(), "{kind:?}: the lock is held");
        }
        // Its own next attempt stands in line after the clean-up, and in good order.
        let again = acquire(&waiter, "l");
        until_count(&client, "l/", 2).await;
        again.abort();
        until_count(&client, "l/", 1).await;
        assert!(guard.is_held().await.expect("an answer"), "{kind:?}: the holder's key is not touched");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_one_session_take_turns() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let session = session(&client).await;
        let guard = Lock::new(&session, "l").acquire().await.expect("a free lock");
        assert!(Lock::new(&session, "l").try_acquire().await.expect("an answer").is_none(), "{kind:?}");
        let second = acquire(&session, "l");
        let other = Lock::new(&session, "m").acquire().await.expect("another name");
        tokio::time::sleep(SECOND / 2).await;
        assert!(!second.is_finished(), "{kind:?}: two holders in one session");
        let token = guard.token();
        drop(guard);
        let second = within("the second", second).await.expect("a task").expect("the lock");
        assert!(token < second.token(), "{kind:?}: each hold has a token of its own");
        assert!(second.is_held().await.expect("an answer"));
        drop(other);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_key_was_removed_guards_nothing_and_releases_quietly() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await.namespace("inside/");
        let session = session(&client).await;
        let guard = Lock::new(&session, "l").acquire().await.expect("a free lock");
        let write = |value: &'static str| client.txn().when([guard.holds()]).then([Op::put("r", value)]);
        assert!(write("one").await.expect("an answer").succeeded, "{kind:?}");
        client.delete(guard.key().clone()).await.expect("deleted");
        assert!(!write("two").await.expect("an answer").succeeded, "{kind:?}");
        assert!(!guard.is_held().await.expect("an answer"));
        guard.release().await.expect("nothing to release");
        assert_eq!(client.get("r").await.expect("a get").kvs[0].value, "one");
    }
}
