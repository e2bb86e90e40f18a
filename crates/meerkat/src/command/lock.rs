//! `lock`: hold a name, and run a command while it is held.
//!
//! The line in which one waits is that of `etcdctl lock` and of etcd's Lock service: all of them exclude
//! each other. A command learns the fencing token, and is stopped when the lock is lost.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use meerkat_client::{Client, EventKind, Lock, LockError, LockGuard, Revision, Session};
use meerkat_proto::pb::etcdserver as pb;

use super::child::{self, Ended};
use super::cluster::{Cluster, refused};
use super::signals::Signals;
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Acquires a named lock
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct LockArgs {
    /// <lockname> [exec-command arg1 arg2 ...]; put -- before a command with flags of its own
    #[arg(value_name = "LOCKNAME COMMAND")]
    words: Vec<OsString>,
    /// For how many seconds the lock outlives a holder that has died
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    ttl: u32,
}

pub async fn run(args: &LockArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let Some((name, command)) = args.words.split_first() else {
        return Err(Failure::bad_arguments(
            "lock takes a lock name argument and an optional command to execute",
        ));
    };
    let mut signals = Signals::listen()?;
    let client = cluster.client().await?;
    let session = Session::open(&client, Duration::from_secs(args.ttl.into())).await.map_err(failed)?;
    let lock = Lock::new(&session, name.as_bytes().to_vec());
    let outcome = tokio::select! {
        guard = lock.acquire() => match guard {
            Ok(guard) => hold(guard, &client, command, cluster, style, &mut signals).await,
            Err(error) => Err(not_acquired(error)),
        },
        _ = signals.next() => Err(Failure::error("interrupted while waiting for the lock")),
    };
    // With the session goes whatever is left of the place in line.
    let closed = session.close().await.map_err(failed);
    outcome.and(closed)
}

async fn hold(
    guard: LockGuard,
    client: &Client,
    command: &[OsString],
    cluster: &Cluster,
    style: Style,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let held = key(cluster, guard.key()).await?;
    if held.kvs().is_empty() {
        return Err(Failure::error("lock lost on init"));
    }
    if command.is_empty() {
        print::show(&Answer::Get { response: held, values_only: false }, style)?;
        tokio::select! {
            _ = signals.next() => {}
            why = lost(&guard, client) => return Err(Failure::error(why)),
        }
        return guard.release().await.map_err(failed);
    }
    let variables = variables(&guard, held.header.map_or(0, |header| header.revision));
    let ended = child::run_while(command, variables, signals, lost(&guard, client)).await;
    let released = guard.release().await.map_err(failed);
    match ended? {
        Ended::Itself(status) => child::hand_on(status).and(released),
        Ended::Stopped { why } => Err(Failure::error(format!("{why}; the command was stopped"))),
    }
}

/// What a command is told: the first two are `etcdctl`'s. The token is for whoever the command writes to:
/// later holders have higher ones.
fn variables(guard: &LockGuard, revision: i64) -> Vec<(&'static str, OsString)> {
    vec![
        ("ETCD_LOCK_KEY", OsString::from_vec(guard.key().to_vec())),
        ("ETCD_LOCK_REV", revision.to_string().into()),
        ("MEERKAT_LOCK_TOKEN", guard.token().get().to_string().into()),
    ]
}

/// Ends with the reason when the lock is not held any more.
async fn lost(guard: &LockGuard, client: &Client) -> String {
    tokio::select! {
        lost = guard.lost() => format!("session expired: {lost}"),
        () = deleted(client, guard.key(), guard.token()) => {
            "lock lost: somebody deleted its key".to_owned()
        }
    }
}

/// Ends when the key that was created at that revision is gone.
pub async fn deleted(client: &Client, key: &Bytes, created: Revision) {
    let mut watch = client.watch(key.clone()).from(created.next()).only_deletes().start();
    while let Some(Ok(changes)) = watch.next().await {
        if changes.events.iter().any(|event| matches!(event.kind, EventKind::Delete { .. })) {
            return;
        }
    }
    // Nothing more is heard of the key; the session's own end will be.
    std::future::pending().await
}

/// One key as it is now.
pub async fn key(cluster: &Cluster, key: &Bytes) -> Result<pb::RangeResponse, Failure> {
    let request = pb::RangeRequest { key: key.clone(), ..Default::default() };
    cluster.kv(|mut kv| async move { kv.range(request).await }).await.map_err(refused)
}

fn not_acquired(error: LockError) -> Failure {
    match error {
        LockError::Client(error) => failed(error),
        other => Failure::error(other.to_string()),
    }
}

/// A refusal in the server's words; anything else with what is to be done.
pub fn failed(error: meerkat_client::Error) -> Failure {
    match error.etcd() {
        Some(_) => Failure::error(error.message()),
        None => Failure::error(error.to_string()),
    }
}
