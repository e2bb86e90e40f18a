//! `meerkat dev`: a real cluster in one terminal, gone when the terminal says so.
//!
//! The members are processes of their own, exactly as in production but for their addresses. One
//! that dies is announced and the others go on, so that this is also the place to try that out.

pub mod member;
pub mod ports;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use member::Member;
use ports::Ports;
use tokio::signal::unix::{SignalKind, signal};

use crate::endpoint::Endpoint;
use crate::failure::Failure;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Args, Debug)]
pub struct DevArgs {
    /// Members to start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Take ports from this one on [default: 2379, 22379, … or free ones]
    #[arg(long)]
    base_port: Option<u16>,
    /// Keep the data here [default: a temporary directory, removed at the end]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Open the list-watch door on every member, for kubectl: it keeps some objects of its own in the store
    #[arg(long)]
    listwatch: bool,
    /// More flags for every member, after --
    #[arg(last = true)]
    member_flags: Vec<OsString>,
}

pub fn run(args: &DevArgs) -> Result<(), Failure> {
    // One thread: a member ends with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_cluster(args))
}

async fn run_cluster(args: &DevArgs) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let place = Place::open(args.data_dir.as_deref())?;
    let mut ports = choose_ports(args, place.path())?;
    if !args.listwatch {
        ports.iter_mut().for_each(|ports| ports.listwatch = None);
    } else if ports.iter().any(|ports| ports.listwatch.is_none()) {
        let directory = place.path().display();
        return Err(Failure::error(format!(
            "the cluster in {directory} has no ports for list-watch doors: begin with another directory"
        )));
    }
    let started = Instant::now();
    let mut cluster = Cluster::start(&ports, place.path(), &args.member_flags)?;
    let outcome = tokio::select! {
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        failure = cluster.serve(started, &place) => Err(failure),
    };
    eprintln!("\nstopping {} members …", cluster.members.len());
    cluster.stop().await;
    match &place {
        Place::Kept(path) => eprintln!("stopped; the data is in {}", path.display()),
        Place::Temporary(_) if outcome.is_err() => {}
        Place::Temporary(_) => eprintln!("stopped; the data is removed"),
    }
    outcome
}

/// Where the data lives. A temporary place goes away with this value.
enum Place {
    Kept(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Place {
    fn open(directory: Option<&Path>) -> Result<Place, Failure> {
        let Some(directory) = directory else {
            return Ok(Place::Temporary(tempfile::Builder::new().prefix("meerkat-dev-").tempdir()?));
        };
        std::fs::create_dir_all(directory)
            .map_err(|error| Failure::error(format!("cannot create {}: {error}", directory.display())))?;
        Ok(Place::Kept(directory.canonicalize()?))
    }

    fn path(&self) -> &Path {
        match self {
            Place::Kept(path) => path,
            Place::Temporary(directory) => directory.path(),
        }
    }
}

fn choose_ports(args: &DevArgs, directory: &Path) -> Result<Vec<Ports>, Failure> {
    if let Some(ports) = ports::remembered(directory).map_err(Failure::error)? {
        if ports.len() != usize::from(args.nodes) {
            let (has, asked) = (ports.len(), args.nodes);
            return Err(Failure::error(format!("{} holds {has} members, not {asked}", directory.display())));
        }
        return Ok(ports);
    }
    let ports = match args.base_port {
        Some(base) => ports::fixed(args.nodes, base).map_err(Failure::error)?,
        None => ports::free(args.nodes)?,
    };
    ports::remember(directory, &ports)?;
    Ok(ports)
}

struct Cluster {
    members: Vec<Member>,
    /// Those whose end has been announced.
    dead: Vec<String>,
}

impl Cluster {
    fn start(ports: &[Ports], directory: &Path, extra: &[OsString]) -> Result<Cluster, Failure> {
        let named = || ports.iter().enumerate().map(|(number, ports)| (format!("m{}", number + 1), *ports));
        let rows: Vec<String> = named().map(|(name, ports)| format!("{name}={}", ports.peer_url())).collect();
        let initial_cluster = rows.join(",");
        let start = |(name, ports)| Member::start(name, ports, &initial_cluster, directory, extra);
        let members = named().map(start).collect::<Result<Vec<_>, _>>()?;
        Ok(Cluster { members, dead: Vec::new() })
    }

    /// Waits until it serves, says so, and watches over it. Returns only when it cannot go on.
    async fn serve(&mut self, started: Instant, place: &Place) -> Failure {
        eprintln!("starting {} members …", self.members.len());
        if let Err(failure) = self.wait_until_healthy(started).await {
            return failure;
        }
        self.announce(started.elapsed(), place);
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            self.announce_deaths();
            if self.dead.len() == self.members.len() {
                return Failure::error("every member has ended");
            }
        }
    }

    async fn wait_until_healthy(&mut self, started: Instant) -> Result<(), Failure> {
        loop {
            self.announce_deaths();
            let living: Vec<&Member> = self.members.iter().filter(|m| !self.dead.contains(&m.name)).collect();
            if living.is_empty() {
                return Err(Failure::error("every member has ended"));
            }
            let mut waiting = Vec::new();
            for member in living {
                let endpoint = Endpoint::parse(&member.ports.client_authority())?;
                if let Err(reason) = crate::command::read_linearizably(endpoint, Duration::from_secs(1)).await
                {
                    waiting.push(format!("{}: {reason}", member.name));
                }
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if started.elapsed() > START_TIMEOUT {
                let reasons = waiting.join("; ");
                return Err(Failure::error(format!("not ready after {START_TIMEOUT:?} ({reasons})")));
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }

    fn announce(&self, took: Duration, place: &Place) {
        let endpoints: Vec<String> = self.members.iter().map(|m| m.ports.client_authority()).collect();
        let this = std::env::args().next().unwrap_or_else(|| "meerkat".to_owned());
        println!("{} members ready after {:.1} s\n", self.members.len(), took.as_secs_f64());
        println!("  export ETCDCTL_ENDPOINTS={}\n", endpoints.join(","));
        println!("  {this} put hello world");
        println!("  {this} get hello");
        println!("  etcdctl endpoint status -w table\n");
        if let Some(url) = self.members.iter().find_map(|member| member.ports.listwatch_url()) {
            println!("  {this} kubeconfig --server {url} --out meerkat.kubeconfig");
            println!("  kubectl --kubeconfig meerkat.kubeconfig get namespaces\n");
        }
        for member in &self.members {
            let id = member.id().map_or_else(|| "ended".to_owned(), |id| format!("pid {id}"));
            println!("  {} ({id}) logs to {}", member.name, member.log.display());
        }
        match place {
            Place::Kept(path) => println!("\nCtrl-C stops them and keeps the data in {}", path.display()),
            Place::Temporary(_) => println!("\nCtrl-C stops them and removes the data"),
        }
    }

    fn announce_deaths(&mut self) {
        for member in &mut self.members {
            if self.dead.contains(&member.name) {
                continue;
            }
            let how = match member.ended() {
                Ok(None) => continue,
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            eprintln!("\n!!! member {} has ended: {how}; the end of {}:", member.name, member.log.display());
            eprintln!("{}\n!!!", member.last_lines());
            self.dead.push(member.name.clone());
        }
    }

    async fn stop(&mut self) {
        let stops = self.members.iter_mut().map(|member| async {
            if let Err(error) = member.stop().await {
                eprintln!("member {}: {error}", member.name);
            }
        });
        futures::future::join_all(stops).await;
    }
}
