//! `make-mirror`: copy keys to another cluster, and go on copying what changes.
//!
//! First everything there is, read at one revision page by page; then every revision after that one, in
//! order and as one transaction where it fits into one. What is written is the same however often it is
//! written, so a write whose outcome is not known is simply made again.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use meerkat_client::{Client, EtcdError, Event, EventKind, Fate, Keys, Op, Revision, WatchError};

use super::cluster::{Cluster, Dialing};
use super::global::{TlsFiles, login};
use super::key_range::prefix_end;
use super::lock::failed;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// Keys read at once.
const PAGE_KEYS: u64 = 1_000;
/// Bytes written at once, well below what servers take by default (1.5 MiB).
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How often the number of changes so far is told.
const TELL_INTERVAL: Duration = Duration::from_secs(30);
/// How often a write is made again that the destination did not answer, and the pause between.
const TRIES_MAX: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// Makes a mirror at the destination cluster
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct MakeMirrorArgs {
    /// Members of the other cluster, comma-separated
    #[arg(value_name = "DESTINATION")]
    destination: Vec<String>,
    /// Key-value prefix to mirror
    #[arg(long, default_value = "")]
    prefix: String,
    /// Copy only what changes from this revision on; 0: first everything there is
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    rev: i64,
    /// Maximum number of operations permitted in a transaction during syncing updates
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    max_txn_ops: u32,
    /// Put the keys below this prefix instead of below the one they have
    #[arg(long, default_value = "")]
    dest_prefix: String,
    /// Put the keys without the prefix they have
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    no_dest_prefix: bool,
    /// Identify this client with this certificate at the destination
    #[arg(long)]
    dest_cert: Option<String>,
    /// The key of that certificate
    #[arg(long)]
    dest_key: Option<String>,
    /// Trust destination servers whose certificate this CA bundle vouches for
    #[arg(long)]
    dest_cacert: Option<String>,
    /// With =false, encrypt connections to a destination that does not say http://
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    dest_insecure_transport: bool,
    /// Destination username[:password] for authentication
    #[arg(long)]
    dest_user: Option<String>,
    /// Destination password for authentication
    #[arg(long)]
    dest_password: Option<String>,
}

pub async fn run(args: &MakeMirrorArgs, cluster: &Cluster) -> Result<(), Failure> {
    let [destination] = args.destination.as_slice() else {
        return Err(Failure::bad_arguments("make-mirror takes one destination argument"));
    };
    if args.no_dest_prefix && !args.dest_prefix.is_empty() {
        return Err(Failure::bad_arguments(
            "`--dest-prefix` and `--no-dest-prefix` cannot be set at the same time, choose one",
        ));
    }
    let dialing = Dialing {
        tls: TlsFiles {
            cacert: args.dest_cacert.clone(),
            cert: args.dest_cert.clone(),
            key: args.dest_key.clone(),
        }
        .load(args.dest_insecure_transport, false)?,
        login: login(args.dest_user.clone(), args.dest_password.clone(), "Destination Password: ")?,
        ..cluster.dialing().clone()
    };
    let to = Cluster::new(Endpoint::parse_list(destination)?, dialing);
    let mirror = Mirror {
        from: cluster.client().await?,
        to: to.client().await?,
        paths: Paths::new(args),
        ops_max: usize::try_from(args.max_txn_ops).unwrap_or(usize::MAX),
        copied: 0,
    };
    mirror.run(Revision::new(args.rev)).await
}

/// Where a key of the source lies at the destination.
struct Paths {
    from: Bytes,
    to: Bytes,
}

impl Paths {
    fn new(args: &MakeMirrorArgs) -> Paths {
        let to = match (args.no_dest_prefix, args.dest_prefix.is_empty()) {
            (true, _) => "",
            (false, true) => &args.prefix,
            (false, false) => &args.dest_prefix,
        };
        Paths { from: args.prefix.clone().into(), to: to.to_owned().into() }
    }

    fn of(&self, key: &[u8]) -> Bytes {
        let rest = key.strip_prefix(self.from.as_ref()).unwrap_or(key);
        [self.to.as_ref(), rest].concat().into()
    }
}

/// One write at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Write {
    Put { key: Bytes, value: Bytes },
    Delete { key: Bytes },
}

impl Write {
    fn key(&self) -> &Bytes {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }

    fn size(&self) -> usize {
        match self {
            Write::Put { key, value } => key.len() + value.len(),
            Write::Delete { key } => key.len(),
        }
    }
}

impl From<Write> for Op {
    fn from(write: Write) -> Op {
        match write {
            Write::Put { key, value } => Op::put(key, value),
            Write::Delete { key } => Op::delete(key),
        }
    }
}

struct Mirror {
    from: Client,
    to: Client,
    paths: Paths,
    ops_max: usize,
    copied: u64,
}

impl Mirror {
    /// Ends only with a failure.
    async fn run(mut self, first: Revision) -> Result<(), Failure> {
        let mut tell = tokio::time::interval(TELL_INTERVAL);
        tell.tick().await;
        let next = match first.get() {
            ..=1 => self.everything(&mut tell).await?.next(),
            _ => first,
        };
        let mut watch = self.from.watch(Keys::prefix(&self.paths.from)).from(next).start();
        loop {
            let changes = tokio::select! {
                changes = watch.next() => changes,
                _ = tell.tick() => {
                    println!("{}", self.copied);
                    continue;
                }
            };
            match changes {
                Some(Ok(changes)) => {
                    let writes = changes.events.iter().map(|event| self.write_of(event)).collect();
                    self.write(writes).await?;
                }
                Some(Err(WatchError::Compacted { .. })) => {
                    return Err(Failure::error(EtcdError::Compacted.message()));
                }
                Some(Err(WatchError::Refused(error))) => return Err(failed(error)),
                Some(Err(error)) => return Err(Failure::error(error.to_string())),
                None => return Err(Failure::error("the watch on the source has ended")),
            }
        }
    }

    /// Copies all that is there. Answers with the revision that it was read at.
    async fn everything(&mut self, tell: &mut tokio::time::Interval) -> Result<Revision, Failure> {
        let mut at = None;
        let mut rest = Keys::prefix(&self.paths.from);
        loop {
            let mut page = self.from.get(rest).limit(PAGE_KEYS);
            if let Some(at) = at {
                page = page.revision(at);
            }
            let page = page.await.map_err(failed)?;
            let read_at = *at.get_or_insert(page.revision);
            let last = page.kvs.last().map(|kv| kv.key.clone());
            let writes =
                page.kvs.into_iter().map(|kv| Write::Put { key: self.paths.of(&kv.key), value: kv.value });
            self.write(writes.collect()).await?;
            if std::future::poll_fn(|context| std::task::Poll::Ready(tell.poll_tick(context).is_ready()))
                .await
            {
                println!("{}", self.copied);
            }
            match last {
                Some(last) if page.more => rest = after(&last, &self.paths.from),
                _ => return Ok(read_at),
            }
        }
    }

    fn write_of(&self, event: &Event) -> Write {
        match &event.kind {
            EventKind::Put(kv) => Write::Put { key: self.paths.of(&kv.key), value: kv.value.clone() },
            EventKind::Delete { key, .. } => Write::Delete { key: self.paths.of(key) },
        }
    }

    async fn write(&mut self, writes: Vec<Write>) -> Result<(), Failure> {
        for batch in batches(writes, self.ops_max) {
            let count = batch.len() as u64;
            self.write_batch(batch).await?;
            self.copied += count;
        }
        Ok(())
    }

    async fn write_batch(&self, batch: Vec<Write>) -> Result<(), Failure> {
        let mut tries = 1;
        loop {
            match self.to.txn().then(batch.iter().cloned()).await {
                Ok(_) => return Ok(()),
                Err(error) if error.fate() == Fate::Refused || TRIES_MAX <= tries => {
                    return Err(failed(error));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
            tries += 1;
        }
    }
}

/// The keys below a prefix that come after one of them.
fn after(key: &[u8], prefix: &[u8]) -> Keys {
    let next = Bytes::from([key, b"\0"].concat());
    match prefix_end(prefix) {
        end if end.as_ref() == b"\0" => Keys::from(next),
        end => Keys::span(next, end),
    }
}

/// What can be written at once: in order, bounded in number and size, and no key twice, which servers
/// refuse in one transaction.
fn batches(writes: Vec<Write>, ops_max: usize) -> Vec<Vec<Write>> {
    let mut all: Vec<Vec<Write>> = Vec::new();
    let mut size = 0;
    for write in writes {
        let fits = |batch: &Vec<Write>| {
            batch.len() < ops_max
                && size + write.size() <= BATCH_BYTES_MAX
                && batch.iter().all(|other| other.key() != write.key())
        };
        if !all.last().is_some_and(fits) {
            all.push(Vec::new());
            size = 0;
        }
        size += write.size();
        all.last_mut().expect("pushed just above").push(write);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, bytes: usize) -> Write {
        Write::Put { key: key.into(), value: vec![0; bytes].into() }
    }

    #[test]
    fn batches_keep_the_order_and_the_bounds() {
        let lengths = |writes: Vec<Write>| batches(writes, 2).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lengths(vec![]), [0; 0]);
        assert_eq!(lengths(vec![put("a", 1), put("b", 1), put("c", 1)]), [2, 1]);
        assert_eq!(lengths(vec![put("a", BATCH_BYTES_MAX), put("b", 1)]), [1, 1]);
        let again = vec![Write::Delete { key: "a".into() }, put("a", 1)];
        assert_eq!(lengths(again.clone()), [1, 1]);
        assert_eq!(batches(again.clone(), 2).concat(), again);
    }

    #[test]
    fn keys_move_from_one_prefix_to_the_other() {
        let of = |from: &'static str, to: &'static str, key: &str| {
            let paths = Paths { from: from.into(), to: to.into() };
            String::from_utf8_lossy(&paths.of(key.as_bytes())).into_owned()
        };
        assert_eq!(of("", "", "a/b"), "a/b");
        assert_eq!(of("a/", "a/", "a/b"), "a/b");
        assert_eq!(of("a/", "z/", "a/a/b"), "z/a/b");
        assert_eq!(of("a/", "", "a/b"), "b");
        assert_eq!(of("", "z/", "b"), "z/b");
    }
}
