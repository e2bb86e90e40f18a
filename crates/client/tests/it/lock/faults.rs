//! Holders that stand still and members that die: never two who both change the resource.

use super::{SECOND, session};
use crate::patience::{PATIENCE, within};
use crate::server::{BOTH, Cluster, Kind};
use crate::stalls::Stalls;
use meerkat_client::{Client, Lock, Op, Revision, Session};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A holder in a runtime of its own, whose only thread is put to sleep: no renewal, no timer, nothing
/// runs, as in a process that is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guarded_write_of_a_holder_that_stood_still_too_long_fails() {
    for kind in BOTH {
        let cluster = Cluster::start(kind, 1).await;
        let client = cluster.client_when_ready().await;
        let urls = cluster.urls();
        let (held, is_held) = tokio::sync::oneshot::channel();
        let (go, wake) = std::sync::mpsc::channel::<()>();
        let paused = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = Client::connect(urls).await.expect("a connection");
                let session = Session::open(&client, 8 * SECOND).await.expect("a session");
                let guard = Lock::new(&session, "l").acquire().await.expect("a free lock");
                held.send(guard.token()).expect("the test waits");
                wake.recv_timeout(3 * PATIENCE).expect("woken");
                // It has not noticed anything yet, and carries on with its work.
                let unaware = session.loss().is_none();
                let guarded = client.txn().when([guard.holds()]).then([Op::put("r", "late")]).await;
                let plain = client.put("unguarded", "late").await;
                (unaware, guarded.expect("an answer").succeeded, plain.is_ok(), guard.token())
            })
        });
        let token = is_held.await.expect("the lock is held");
        let next = session(&client).await;
        let next = within("the next holder", Lock::new(&next, "l").acquire()).await.expect("the lock");
        assert!(token < next.token(), "{kind:?}");
        let done = client.txn().when([next.holds()]).then([Op::put("r", "new")]).await.expect("an answer");
        assert!(done.succeeded, "{kind:?}");
        go.send(()).expect("the holder waits");
        let (unaware, guarded, plain, same) = paused.join().expect("the paused holder");
        assert_eq!(same, token);
        assert!(unaware, "{kind:?}: the pause is meant to hide the loss");
        assert!(!guarded, "{kind:?}: a write guarded by a lost lock went through");
        assert!(plain, "{kind:?}: without the guard nothing stops it, which is the point");
        assert_eq!(client.get("r").await.expect("a get").kvs[0].value, "new", "{kind:?}");
    }
}

/// What a holder did, as it saw it.
#[derive(Clone, Copy, Debug)]
struct Hold {
    token: Revision,
    wrote: Option<(i64, Revision)>,
}

#[derive(Default)]
struct Shared {
    inside: AtomicI32,
    overlaps: AtomicU32,
    holds: Mutex<Vec<Hold>>,
    stop: std::sync::atomic::AtomicBool,
}

/// How often etcd may break by itself.
const ATTEMPTS: u32 = 3;
/// A test that stood still this long may hear of a lost lock after the next holder has it.
const STALL: Duration = Duration::from_millis(500);

/// Takes the lock again and again, and adds one to a register each time, guarded by the lock.
async fn work(client: Client, shared: Arc<Shared>) -> u32 {
    let mut sessions = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        let Ok(session) = Session::open(&client, 6 * SECOND).await else { continue };
        sessions += 1;
        while session.loss().is_none() && !shared.stop.load(Ordering::SeqCst) {
            let Ok(guard) = Lock::new(&session, "l").acquire().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            if 1 < shared.inside.fetch_add(1, Ordering::SeqCst) + 1 {
                shared.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            let wrote = tokio::select! {
                biased;
                // A holder that hears of its loss stops at once.
                _ = guard.lost() => None,
                wrote = add_one(&client, guard.holds()) => wrote,
            };
            shared.inside.fetch_sub(1, Ordering::SeqCst);
            shared.holds.lock().expect("the history").push(Hold { token: guard.token(), wrote });
            drop(guard.release().await);
        }
    }
    sessions
}

async fn add_one(client: &Client, holds: meerkat_client::Compare) -> Option<(i64, Revision)> {
    let got = client.get("r").await.ok()?;
    let text = got.first().map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    let value: i64 = text.map_or(0, |text| text.parse().expect("a number")) + 1;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let done = client.txn().when([holds]).then([Op::put("r", value.to_string())]).await.ok()?;
    done.succeeded.then_some((value, done.revision))
}

/// Tried again if etcd itself lost writes (see [`Cluster::members_differ`]), and for no other reason.
async fn check_kills(kind: Kind) {
    for _ in 0..ATTEMPTS {
        if run_with_kills(kind).await {
            return;
        }
        println!("{kind:?}: its members differ, so this run says nothing");
    }
    panic!("{kind:?}: its members differed in each of {ATTEMPTS} runs");
}

/// Workers take the lock while members are killed. False if the cluster broke by itself.
async fn run_with_kills(kind: Kind) -> bool {
    let mut cluster = Cluster::start(kind, 3).await;
    let shared = Arc::new(Shared::default());
    let stalls = Stalls::measure();
    let mut workers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = cluster.client_when_ready().await;
        clients.push(client.clone());
        workers.push(tokio::spawn(work(client, shared.clone())));
    }
    // Of its own: asking members by name must not change what the workers' clients think of them.
    let asking = cluster.client_when_ready().await;
    let went_on = kill_in_turn(&mut cluster, &clients, &asking, &shared).await;
    shared.stop.store(true, Ordering::SeqCst);
    let ended = match went_on {
        Ok(()) => end_of(&mut workers).await,
        Err(what) => Err(what),
    };
    workers.iter().for_each(JoinHandle::abort);
    if kind == Kind::Etcd && cluster.members_differ(&asking).await {
        return false;
    }
    let sessions = ended.unwrap_or_else(|what| panic!("{kind:?}: {what}: not in time\n{}", cluster.logs()));
    let holds = shared.holds.lock().expect("the history").clone();
    let stalled = stalls.longest();
    let overlaps = shared.overlaps.load(Ordering::SeqCst);
    println!(
        "{kind:?}: {} holds by {sessions} sessions, 4 kills, {overlaps} overlaps, stalled {stalled:?}",
        holds.len()
    );
    // No lock can promise this to a process that stands still; what it promises is judged below.
    assert!(overlaps == 0 || STALL <= stalled, "{kind:?}: {overlaps} times two holders at once");
    judge(&holds);
    true
}

/// Each member is killed in turn, the one that serves a worker's calls first. The error says what did not
/// come to pass in time.
async fn kill_in_turn(
    cluster: &mut Cluster,
    clients: &[Client],
    asking: &Client,
    shared: &Shared,
) -> Result<(), String> {
    let count = || shared.holds.lock().expect("the history").len();
    for round in 0..4 {
        let before = count();
        wait_for(&format!("round {round}: locks are taken"), || before + 5 < count()).await?;
        let used = cluster.index_of(&clients[round % 3].last_endpoint().expect("it was used"));
        cluster.members[used].kill();
        let before = count();
        let what = format!("round {round}: locks are taken after the kill of member {used}");
        wait_for(&what, || before + 5 < count()).await?;
        cluster.bring_back(used, asking).await;
    }
    Ok(())
}

/// Waits for workers that were told to stop. How many sessions they had.
async fn end_of(workers: &mut [JoinHandle<u32>]) -> Result<u32, String> {
    let end = tokio::time::Instant::now() + PATIENCE;
    let mut sessions = 0;
    for worker in workers {
        let ended = tokio::time::timeout_at(end, worker).await;
        sessions += ended.map_err(|_| "all workers end".to_owned())?.expect("a worker");
    }
    Ok(sessions)
}

/// No two holds share a token. Writes to the register, in the order of their revisions, have tokens that
/// never fall, and each value is above the last: no update was lost. A write whose answer was lost may
/// lie in between.
fn judge(holds: &[Hold]) {
    let mut tokens: Vec<Revision> = holds.iter().map(|hold| hold.token).collect();
    tokens.sort_unstable();
    let all = tokens.len();
    tokens.dedup();
    assert_eq!(tokens.len(), all, "broken promise: two holds with one token");
    let mut writes: Vec<(Revision, Revision, i64)> =
        holds.iter().filter_map(|hold| hold.wrote.map(|(value, at)| (at, hold.token, value))).collect();
    writes.sort_unstable();
    assert!(10 < writes.len(), "too little happened: {writes:?}");
    for pair in writes.windows(2) {
        let ((_, token, value), (_, next_token, next_value)) = (pair[0], pair[1]);
        assert!(token < next_token && value < next_value, "broken promise: a late holder wrote: {pair:?}");
    }
}

async fn wait_for(what: &str, mut is: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + PATIENCE;
    while !is() {
        if end < Instant::now() {
            return Err(what.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_lock_of_etcd_while_members_are_killed() {
    check_kills(Kind::Etcd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_a_lock_of_meerkat_while_members_are_killed() {
    check_kills(Kind::Meerkat).await;
}
