//! The long forms of the suites, and the line that repeats a failure.
//!
//! `meerkat-chaos SCENARIO [--name value …]`; without a scenario it says what there is. Every
//! number has a default, and every run prints the command that repeats it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use meerkat_chaos::checker::not_worse::Tolerance;
use meerkat_chaos::driver::Product;
use meerkat_chaos::failover::Kind;
use meerkat_chaos::run::command;
use meerkat_chaos::scenario::{
    big_store, client_failover, client_fate, crash, failover_time, fault_points, inject, lease_precision,
    listwatch_failover, listwatch_index, listwatch_many, pause, snapshot, timed, watch_crash, watch_many,
    watch_stalled,
};
use meerkat_chaos::{Failure, differential, report, scenario};

const HELP: &str = "meerkat-chaos SCENARIO [--name value ...]

  differential  --seed N --requests 5000 --product meerkat|etcd
  watch-differential  --seed N --steps 5000 --members 3 --product meerkat|etcd
  lease-differential  --seed N --steps 5000 --expiries 8 --members 3 --product meerkat|etcd
  cluster-differential  --seed N --steps 400 --members 1 --product meerkat|etcd
  lease-precision --faults 100 --seed N --keepers 40 --checkpoint-ms 1000 --pauses 1 --product meerkat|etcd
  membership    --changes 200 --seed N --product meerkat|etcd
  crash         --kills 500 --seed N --product meerkat|etcd
  faults        --action kill|eio|enospc
  pause         --seconds 10 --rounds 5 --product meerkat|etcd
  snapshot      --writes 200000 --value-bytes 256 --product meerkat|etcd
  bigstore      --keys 1000000 --superseded 100000 --product meerkat|etcd
  watch-crash   --seconds 120 --seed N --product meerkat|etcd
  watch-stalled --clients 1000 --pairs 7 --seconds 10 --ring-mib 64 --memory-mib 128 --product meerkat|etcd
  watch-many    --streams 100 --watchers-per-stream 1000 --puts 400 --product meerkat|etcd

  listwatch-failover  --kills 200 --seed N
  listwatch-many      --watchers 10000 --writes 60 --healthy 1000 --pairs 7 --seconds 5
  listwatch-index     --objects 300000 --watchers 100000 --pairs 15 --seconds 5 --comparisons 1000 --seed N

  client-failover  --faults 1000 --seed N --product meerkat|etcd --client meerkat|etcd-client|etcd-client-loop
                   (the latter two: built with --features etcd-client)
                   --silent-seconds N: only faults that close nothing, each for so long
  client-fate   --faults 300 --seed N --product meerkat|etcd
  failover-time --kills 100 --seed N --heartbeat-ms 100 --election-ms 1000
                (Meerkat and etcd in one run)

  report        --record FILE.json --to FILE.html    (the page of a run that was kept)

  inject        --faults 20 --seed N --rest-seconds 20 --kinds kill,stop,pause,partition --project NAME
                (members of a docker compose project, which is up already)

  --minutes N   hard deadline of any of them (default 60)

  run SCENARIO  --minutes N --seed N --target meerkat|etcd --driver local|netns|compose --report FILE.html
                faults by a schedule under several workloads at once. SCENARIO: smoke, all,
                partitions, disks, membership, soak, or the path of a .toml file

The meerkat to test is the one built beside this program, or MEERKAT_BIN.";

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(scenario) = args.next() else {
        println!("{HELP}");
        return ExitCode::FAILURE;
    };
    if matches!(scenario.as_str(), "help" | "--help" | "-h") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    // What is run comes before its options.
    let what = if scenario == "run" { args.next() } else { None };
    let result = match Options::parse(args) {
        Ok(options) if scenario == "run" => run(what, &options).await,
        Ok(options) => start(&scenario, &options).await,
        Err(failure) => Err(failure),
    };
    match result {
        Ok(()) => {
            println!("{scenario}: passed");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{scenario}: {failure}");
            // A program that asks can tell a broken promise from a run that proved nothing.
            ExitCode::from(if matches!(failure, Failure::Broken(_) | Failure::Slow(_)) { 1 } else { 2 })
        }
    }
}

async fn start(scenario: &str, options: &Options) -> Result<(), Failure> {
    let deadline = Duration::from_secs(60 * options.number("minutes", 60)?);
    match scenario {
        "differential" => timed(scenario, deadline, Box::pin(compare(options))).await,
        "watch-differential" => timed(scenario, deadline, Box::pin(compare_watches(options))).await,
        "lease-differential" => timed(scenario, deadline, Box::pin(compare_leases(options))).await,
        "cluster-differential" => timed(scenario, deadline, Box::pin(compare_membership(options))).await,
        "lease-precision" => timed(scenario, deadline, Box::pin(lease_precision(options))).await,
        "membership" => timed(scenario, deadline, Box::pin(membership(options))).await,
        "crash" => timed(scenario, deadline, Box::pin(crash(options))).await,
        "faults" => timed(scenario, deadline, Box::pin(faults(options))).await,
        "pause" => timed(scenario, deadline, Box::pin(pause(options))).await,
        "snapshot" => timed(scenario, deadline, Box::pin(snapshot(options))).await,
        "bigstore" => timed(scenario, deadline, Box::pin(big_store(options))).await,
        "watch-crash" => timed(scenario, deadline, Box::pin(watch_crash(options))).await,
        "watch-stalled" => timed(scenario, deadline, Box::pin(stalled_watchers(options))).await,
        "watch-many" => timed(scenario, deadline, Box::pin(many_watchers(options))).await,
        "listwatch-failover" => timed(scenario, deadline, Box::pin(informers(options))).await,
        "listwatch-many" => timed(scenario, deadline, Box::pin(many_over_http(options))).await,
        "listwatch-index" => timed(scenario, deadline, Box::pin(label_index(options))).await,
        "client-failover" => timed(scenario, deadline, Box::pin(client_failover(options))).await,
        // Not cut short: it has to leave the members as it found them.
        "inject" => inject(options, deadline).await,
        "client-fate" => timed(scenario, deadline, Box::pin(client_fate(options))).await,
        "failover-time" => timed(scenario, deadline, Box::pin(failover_time(options))).await,
        "report" => make_report(options),
        other => Err(Failure::harness(format!("there is no scenario {other:?}\n\n{HELP}"))),
    }
}

/// The longest a run may take beyond its faults: starting, settling, judging, reporting.
const BEYOND: Duration = Duration::from_secs(45 * 60);

async fn run(scenario: Option<String>, options: &Options) -> Result<(), Failure> {
    let Some(scenario) = scenario.filter(|name| !name.starts_with("--")) else {
        return Err(Failure::harness(format!("run needs the name of a scenario\n\n{HELP}")));
    };
    let length = match options.0.get("minutes") {
        None => None,
        Some(text) => {
            let minutes: Option<f64> = text.parse().ok();
            let length = minutes.and_then(|minutes| Duration::try_from_secs_f64(60.0 * minutes).ok());
            Some(length.ok_or_else(|| Failure::harness(format!("--minutes {text:?} is not a length")))?)
        }
    };
    let request = command::Request {
        scenario,
        length,
        seed: options.seed()?,
        target: options.one_of_products("target")?,
        driver: options.text("driver", "local").to_owned(),
        report: options.0.get("report").map(PathBuf::from),
    };
    let deadline = length.unwrap_or(BEYOND) + BEYOND;
    timed("run", deadline, Box::pin(command::run(&request))).await.map(drop)
}

async fn compare(options: &Options) -> Result<(), Failure> {
    let requests = options.size("requests", 5_000)?;
    let plan = differential::Plan { seed: options.seed()?, requests, product: options.product()? };
    differential::run(&plan).await.map(|_| ())
}

async fn compare_watches(options: &Options) -> Result<(), Failure> {
    let plan = differential::watch::Plan {
        seed: options.seed()?,
        steps: options.size("steps", 5_000)?,
        members: options.size("members", 3)?,
        product: options.product()?,
    };
    differential::watch::run(&plan).await.map(|_| ())
}

async fn compare_leases(options: &Options) -> Result<(), Failure> {
    let plan = differential::lease::Plan {
        seed: options.seed()?,
        steps: options.size("steps", 5_000)?,
        expiries: options.size("expiries", 8)?,
        members: options.size("members", 3)?,
        product: options.product()?,
    };
    differential::lease::run(&plan).await.map(|_| ())
}

async fn compare_membership(options: &Options) -> Result<(), Failure> {
    let plan = differential::cluster::Plan {
        seed: options.seed()?,
        steps: options.size("steps", 400)?,
        members: options.size("members", 1)?,
        product: options.product()?,
    };
    differential::cluster::run(&plan).await.map(|_| ())
}

async fn lease_precision(options: &Options) -> Result<(), Failure> {
    let plan = lease_precision::Plan {
        product: options.product()?,
        faults: options.size("faults", 100)?,
        pauses: options.number("pauses", 1)? != 0,
        keepers: options.size("keepers", 40)?,
        checkpoint: Duration::from_millis(options.number("checkpoint-ms", 1_000)?),
        seed: options.seed()?,
    };
    lease_precision::run(&plan).await.map(|_| ())
}

async fn membership(options: &Options) -> Result<(), Failure> {
    let plan = scenario::membership::Plan {
        product: options.product()?,
        changes: options.size("changes", 200)?,
        // What is left is for the judgement.
        lasting: Duration::from_secs(48 * options.number("minutes", 60)?),
        seed: options.seed()?,
    };
    let report = scenario::membership::run(&plan).await?;
    println!("{report:?}");
    Ok(())
}

async fn crash(options: &Options) -> Result<(), Failure> {
    let kills = options.size("kills", 500)?;
    let plan = crash::Plan { product: options.product()?, kills, seed: options.seed()?, flags: Vec::new() };
    let report = crash::run(&plan).await?;
    println!("{report:?}");
    Ok(())
}

async fn faults(options: &Options) -> Result<(), Failure> {
    let log_points = |point: &&fault_points::Point| point.name.starts_with("before_log");
    match options.text("action", "kill") {
        "kill" => fault_points::run(fault_points::POINTS, fault_points::Strike::Kill).await,
        action @ ("eio" | "enospc") => {
            let strike =
                if action == "eio" { fault_points::Strike::Eio } else { fault_points::Strike::Enospc };
            let points: Vec<_> = fault_points::POINTS.iter().filter(log_points).copied().collect();
            fault_points::run(&points, strike).await
        }
        other => Err(Failure::harness(format!("--action {other:?} is not kill, eio or enospc"))),
    }
}

async fn pause(options: &Options) -> Result<(), Failure> {
    let plan = pause::Plan {
        product: options.product()?,
        pause: Duration::from_secs(options.number("seconds", 10)?),
        rounds: options.size("rounds", 5)?,
        serve_within: Duration::from_secs(2),
    };
    let report = pause::run(&plan).await?;
    println!("{report:?}");
    Ok(())
}

async fn snapshot(options: &Options) -> Result<(), Failure> {
    let product = options.product()?;
    let flags = match product {
        Product::Meerkat => snapshot::short_log_flags(),
        Product::Etcd => vec!["--snapshot-count=2000".to_owned()],
    };
    let plan = snapshot::Plan {
        product,
        writes: options.number("writes", 200_000)?,
        value_bytes: options.size("value-bytes", 256)?,
        flags,
        rss_max_bytes: options.number("rss-max-mib", 512)? << 20,
    };
    snapshot::run(&plan).await.map(|_| ())
}

async fn big_store(options: &Options) -> Result<(), Failure> {
    let plan = big_store::Plan {
        keys: options.number("keys", 1_000_000)?,
        superseded: options.number("superseded", 100_000)?,
        ..big_store::Plan::full(options.product()?)
    };
    let report = big_store::run(&plan).await?;
    println!("{report:?}");
    Ok(())
}

async fn watch_crash(options: &Options) -> Result<(), Failure> {
    let plan = watch_crash::Plan {
        product: options.product()?,
        lasting: Duration::from_secs(options.number("seconds", 120)?),
        seed: options.seed()?,
        strikes: true,
    };
    watch_crash::run(&plan).await.map(|_| ())
}

async fn stalled_watchers(options: &Options) -> Result<(), Failure> {
    let full = watch_stalled::Plan::full(options.product()?);
    let plan = watch_stalled::Plan {
        stalled: options.size("clients", full.stalled)?,
        pairs: options.size("pairs", full.pairs)?,
        window: Duration::from_secs(options.number("seconds", full.window.as_secs())?),
        ring_bytes: options.number("ring-mib", full.ring_bytes >> 20)? << 20,
        memory_bytes: options.number("memory-mib", full.memory_bytes >> 20)? << 20,
        ..full
    };
    watch_stalled::run(&plan).await.map(|_| ())
}

async fn many_watchers(options: &Options) -> Result<(), Failure> {
    let full = watch_many::Plan::full(options.product()?);
    let plan = watch_many::Plan {
        streams: options.size("streams", full.streams)?,
        watchers_per_stream: options.size("watchers-per-stream", full.watchers_per_stream)?,
        puts: options.size("puts", full.puts)?,
        ..full
    };
    watch_many::run(&plan).await.map(|_| ())
}

async fn informers(options: &Options) -> Result<(), Failure> {
    let plan = listwatch_failover::Plan { kills: options.size("kills", 200)?, seed: options.seed()? };
    listwatch_failover::run(&plan).await.map(|_| ())
}

async fn many_over_http(options: &Options) -> Result<(), Failure> {
    let full = listwatch_many::Plan::full();
    let plan = listwatch_many::Plan {
        watchers: options.size("watchers", full.watchers)?,
        paced: options.size("writes", full.paced)?,
        healthy: options.size("healthy", full.healthy)?,
        pairs: options.size("pairs", full.pairs)?,
        window: Duration::from_secs(options.number("seconds", full.window.as_secs())?),
        ..full
    };
    listwatch_many::run(&plan).await.map(|_| ())
}

async fn label_index(options: &Options) -> Result<(), Failure> {
    let full = listwatch_index::Plan::full(options.seed()?);
    let plan = listwatch_index::Plan {
        objects: options.size("objects", full.objects)?,
        watchers: options.size("watchers", full.watchers)?,
        pairs: options.size("pairs", full.pairs)?,
        window: Duration::from_secs(options.number("seconds", full.window.as_secs())?),
        comparisons: options.size("comparisons", full.comparisons)?,
        ..full
    };
    listwatch_index::run(&plan).await.map(|_| ())
}

async fn client_failover(options: &Options) -> Result<(), Failure> {
    let library = match options.text("client", "meerkat") {
        "meerkat" => client_failover::Library::Meerkat,
        #[cfg(feature = "etcd-client")]
        "etcd-client" => client_failover::Library::EtcdClient,
        #[cfg(feature = "etcd-client")]
        "etcd-client-loop" => client_failover::Library::EtcdClientLoop,
        other => return Err(Failure::harness(format!("--client {other:?} is not in this build\n\n{HELP}"))),
    };
    // Zero: all kinds, for as long as the schedule says.
    let silent = options.number("silent-seconds", 0)?;
    let plan = client_failover::Plan {
        product: options.product()?,
        library,
        faults: options.size("faults", 1_000)?,
        kinds: if silent == 0 { Kind::ALL.to_vec() } else { Kind::SILENT.to_vec() },
        lasting: (0 < silent).then(|| Duration::from_secs(silent)),
        seed: options.seed()?,
        strict: library == client_failover::Library::Meerkat,
    };
    client_failover::run(&plan).await.map(|_| ())
}

async fn client_fate(options: &Options) -> Result<(), Failure> {
    let faults = options.size("faults", 300)?;
    let plan = client_fate::Plan { product: options.product()?, faults, seed: options.seed()? };
    client_fate::run(&plan).await.map(|_| ())
}

async fn inject(options: &Options, lasting: Duration) -> Result<(), Failure> {
    let plan = inject::Plan {
        project: Some(options.text("project", "")).filter(|name| !name.is_empty()).map(str::to_owned),
        faults: options.size("faults", 20)?,
        lasting,
        rest: Duration::from_secs(options.number("rest-seconds", 20)?),
        kinds: inject::Kind::parse_list(options.text("kinds", "kill,stop,pause,partition"))?,
        seed: options.seed()?,
    };
    inject::run(&plan).await.map(|_| ())
}

async fn failover_time(options: &Options) -> Result<(), Failure> {
    let full = failover_time::Plan::full(options.seed()?);
    let millis = |name, default: Duration| {
        options
            .number(name, u64::try_from(default.as_millis()).unwrap_or(u64::MAX))
            .map(Duration::from_millis)
    };
    let kills = options.size("kills", full.kills)?;
    let plan = failover_time::Plan {
        kills,
        heartbeat: millis("heartbeat-ms", full.heartbeat)?,
        election: millis("election-ms", full.election)?,
        tolerance: Tolerance::of(kills),
        ..full
    };
    failover_time::run(&plan).await.map(|_| ())
}

fn make_report(options: &Options) -> Result<(), Failure> {
    let file = |name: &str| match options.text(name, "") {
        "" => Err(Failure::harness(format!("--{name} FILE is missing\n\n{HELP}"))),
        given => Ok(PathBuf::from(given)),
    };
    let (record, to) = (file("record")?, file("to")?);
    report::write(&to, &report::load(&record)?)
}

/// `--name value` pairs.
struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = BTreeMap::new();
        while let Some(name) = args.next() {
            let bare = name.strip_prefix("--").filter(|bare| !bare.is_empty());
            let value = args.next();
            match (bare, value) {
                (Some(bare), Some(value)) => options.insert(bare.to_owned(), value),
                _ => return Err(Failure::harness(format!("{name:?} is not --name value\n\n{HELP}"))),
            };
        }
        Ok(Self(options))
    }

    fn text<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.0.get(name).map_or(default, String::as_str)
    }

    fn number(&self, name: &str, default: u64) -> Result<u64, Failure> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|_| Failure::harness(format!("--{name} {text:?} is not a number")))
            }
        }
    }

    fn size(&self, name: &str, default: usize) -> Result<usize, Failure> {
        let number = self.number(name, default as u64)?;
        usize::try_from(number).map_err(|_| Failure::harness(format!("--{name} {number} is too large")))
    }

    /// The given seed, or one from the clock, which the run then prints.
    fn seed(&self) -> Result<u64, Failure> {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        self.number("seed", clock.map_or(1, |since| since.as_secs()))
    }

    fn product(&self) -> Result<Product, Failure> {
        self.one_of_products("product")
    }

    fn one_of_products(&self, name: &str) -> Result<Product, Failure> {
        match self.text(name, "meerkat") {
            "meerkat" => Ok(Product::Meerkat),
            "etcd" => Ok(Product::Etcd),
            other => Err(Failure::harness(format!("--{name} {other:?} is not meerkat or etcd"))),
        }
    }
}
