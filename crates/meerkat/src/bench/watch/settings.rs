//! A watch load as asked for, turned into one that is known to make sense.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::interest::Target;
use super::receivers::Layout;
use super::session::Pace;
use crate::bench::BenchArgs;
use crate::bench::schedule::Length;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::go_duration;

/// Real clients put many watchers on a stream and some streams on a connection.
const STREAMS_DEFAULT: usize = 100;
const CONNECTIONS_DEFAULT: usize = 30;
const RATE_OF_LATENCY_DEFAULT: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WatchKind {
    /// Many watchers of one prefix, and puts under it.
    #[value(name = "watch-fanout")]
    Fanout,
    /// Many watchers of different keys, and puts elsewhere if asked for.
    #[value(name = "watch-many")]
    Many,
    /// Puts first, then watchers from the first of them on.
    #[value(name = "watch-catchup")]
    Catchup,
    /// Watchers of different keys, and puts to these keys in turn.
    #[value(name = "watch-latency")]
    Latency,
}

impl WatchKind {
    pub fn name(self) -> &'static str {
        match self {
            WatchKind::Fanout => "watch-fanout",
            WatchKind::Many => "watch-many",
            WatchKind::Catchup => "watch-catchup",
            WatchKind::Latency => "watch-latency",
        }
    }

    fn watchers_default(self) -> usize {
        match self {
            WatchKind::Fanout => 1_000,
            WatchKind::Many => 10_000,
            WatchKind::Catchup => 1,
            WatchKind::Latency => 100,
        }
    }

    fn clients_default(self) -> usize {
        match self {
            WatchKind::Fanout | WatchKind::Latency => 16,
            WatchKind::Many => 64,
            WatchKind::Catchup => 256,
        }
    }

    fn puts_default(self) -> u64 {
        match self {
            WatchKind::Fanout | WatchKind::Latency => 1_000,
            WatchKind::Many => 0,
            WatchKind::Catchup => 200_000,
        }
    }
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Watch loads")]
pub struct WatchArgs {
    /// Watchers, spread over streams [default: 1000 watch-fanout, 10000 watch-many, 1 watch-catchup, 100 watch-latency]
    #[arg(long)]
    watchers: Option<usize>,
    /// gRPC streams the watchers are spread over [default: 100, or one each if fewer]
    #[arg(long)]
    streams: Option<usize>,
    /// Connections the streams are spread over, in turn to each endpoint [default: 30, or one each if fewer]
    #[arg(long)]
    watch_conns: Option<usize>,
    /// Create each watcher of a stream after the answer to the one before, as etcd's Go client does
    #[arg(long)]
    one_at_a_time: bool,
    /// The members' process ids, comma-separated, if they run on this machine: adds their CPU and memory
    #[arg(long, value_delimiter = ',')]
    pub pids: Vec<u32>,
    /// How long the members' memory may settle before it is read; only with --pids
    #[arg(long, default_value = "3s", value_parser = go_duration::parse)]
    settle: Duration,
}

/// A load that makes sense.
pub struct Settings {
    pub kind: WatchKind,
    pub target: Target,
    pub layout: Layout,
    pub pace: Pace,
    pub pids: Vec<u32>,
    pub settle: Duration,
    pub length: Length,
    pub rate: Option<f64>,
    pub clients: usize,
    /// Connections of the writers.
    pub connections: usize,
    /// Different keys that are written.
    pub keys: u64,
    pub value_bytes: usize,
    pub patience: Duration,
}

impl Settings {
    pub fn new(args: &BenchArgs, kind: WatchKind, endpoints: Vec<Endpoint>) -> Result<Settings, Failure> {
        let watch = &args.watch;
        let watchers = watch.watchers.unwrap_or(kind.watchers_default());
        let own_keys = matches!(kind, WatchKind::Many | WatchKind::Latency);
        refuse_nonsense(args, kind, watchers)?;
        let streams = watch.streams.unwrap_or(STREAMS_DEFAULT).min(watchers.max(1));
        let clients = args.clients.unwrap_or(kind.clients_default());
        let latency_rate = (kind == WatchKind::Latency).then_some(RATE_OF_LATENCY_DEFAULT);
        Ok(Settings {
            kind,
            target: if own_keys { Target::OwnKey } else { Target::WholePrefix },
            pace: if watch.one_at_a_time { Pace::OneAtATime } else { Pace::Pipelined },
            pids: watch.pids.clone(),
            settle: watch.settle,
            length: match (args.total, args.duration) {
                (_, Some(duration)) => Length::Time(duration),
                (total, None) => Length::Requests(total.unwrap_or(kind.puts_default())),
            },
            rate: args.rate.or(latency_rate),
            clients,
            connections: args.conns.unwrap_or(endpoints.len()).min(clients),
            keys: if kind == WatchKind::Latency { watchers as u64 } else { args.key_space },
            value_bytes: args.val_size,
            patience: args.timeout,
            layout: Layout {
                watchers,
                streams,
                connections: watch.watch_conns.unwrap_or(CONNECTIONS_DEFAULT).min(streams),
                endpoints,
            },
        })
    }

    /// Whether the load writes at all.
    pub fn writes(&self) -> bool {
        self.length != Length::Requests(0)
    }
}

fn refuse_nonsense(args: &BenchArgs, kind: WatchKind, watchers: usize) -> Result<(), Failure> {
    let refused = |text: String| Err(Failure::bad_arguments(text));
    if watchers == 0 && kind != WatchKind::Many {
        return refused(format!("--watchers must be at least 1 for {}", kind.name()));
    }
    if args.watch.streams == Some(0) || args.watch.watch_conns == Some(0) {
        return refused("--streams and --watch-conns must be at least 1".to_owned());
    }
    if args.key_space == 0 {
        return refused("--key-space must be at least 1".to_owned());
    }
    if args.threads != 1 {
        return refused("--threads is not for watch loads: one thread writes and one receives".to_owned());
    }
    if args.prefill.is_some() {
        return refused("--prefill is not for watch loads: they read nothing".to_owned());
    }
    Ok(())
}
