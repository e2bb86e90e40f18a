//! One member: the real server on a runtime of its own, which the world runs in small steps.
//!
//! Dropping the runtime drops every task at whatever point it had reached, which is what a crash does.

use crate::disk::Disk;
use crate::net::{Machine, Net};
use crate::stream::{SimListener, dial};
use crate::{host, setup};
use futures::FutureExt;
use meerkat_raft::{Ground, PeerStream};
use meerkat_server::config::RawFlags;
use meerkat_server::{Config, Ports, RunError};
use rand::rngs::StdRng;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub const CLIENT_PORT: u16 = 2379;
pub const PEER_PORT: u16 = 2380;

/// A runtime whose time is the world's.
pub struct Clockwork {
    pub runtime: Runtime,
    /// When it was made.
    born: u64,
}

impl Clockwork {
    pub fn new(now: u64) -> std::io::Result<Clockwork> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        Ok(Clockwork { runtime, born: now })
    }

    /// Lets everything happen in it that happens up to `now`.
    pub fn run_until(&self, began: tokio::time::Instant, now: u64) {
        let until = began + Duration::from_millis(now - self.born);
        self.runtime.block_on(async { tokio::time::sleep_until(until).await });
    }

    /// Its first instant.
    pub fn began(&self) -> tokio::time::Instant {
        let _inside = self.runtime.enter();
        tokio::time::Instant::now()
    }

    /// Time went on while it stood still, as for a process that was stopped.
    pub fn oversleep(&self, began: tokio::time::Instant, now: u64) {
        let until = began + Duration::from_millis(now - self.born);
        self.runtime.block_on(async {
            let behind = until.saturating_duration_since(tokio::time::Instant::now());
            tokio::time::advance(behind).await;
        });
    }
}

pub struct Member {
    pub machine: Machine,
    net: Net,
    dir: PathBuf,
    flags: RawFlags,
    disk: Disk,
    process: Option<Process>,
    paused: bool,
    wall_skew: i64,
}

struct Process {
    clockwork: Clockwork,
    began: tokio::time::Instant,
    ended: JoinHandle<Result<(), RunError>>,
}

impl Member {
    pub fn new(net: &Net, machine: Machine, dir: PathBuf, flags: RawFlags) -> Member {
        Member {
            machine,
            net: net.clone(),
            dir,
            flags,
            disk: Disk::default(),
            process: None,
            paused: false,
            wall_skew: 0,
        }
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub fn start(&mut self, now: u64) -> Result<(), String> {
        self.net.reappear(self.machine);
        let flags = RawFlags { data_dir: Some(self.dir.clone()), ..self.flags.clone() };
        let config = Config::from_flags(flags).map_err(|error| error.to_string())?;
        let clockwork = Clockwork::new(now).map_err(|error| error.to_string())?;
        let (net, machine) = (self.net.clone(), self.machine);
        let ports = Ports {
            client: vec![SimListener::open(&net, machine, CLIENT_PORT)],
            peer: vec![SimListener::open(&net, machine, PEER_PORT)],
            client_http: Vec::new(),
            metrics: Vec::new(),
        };
        let dialer = move |url: String| {
            let net = net.clone();
            let dialed = async move {
                let uri = url.parse().map_err(io::Error::other)?;
                Ok(Box::new(dial(net, machine, uri).await?) as Box<dyn PeerStream>)
            };
            dialed.boxed()
        };
        let ground = Ground { log_disk: Some(Arc::new(self.disk.clone())), dialer: Some(Arc::new(dialer)) };
        let began = clockwork.began();
        let run = meerkat_server::run_on(config, ports, ground, std::future::pending());
        let ended = clockwork.runtime.spawn(run);
        self.process = Some(Process { clockwork, began, ended });
        Ok(())
    }

    /// Runs it up to `now`; an error says why it ended, which none does by itself.
    pub fn run_until(&mut self, now: u64) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        if self.paused {
            return Ok(());
        }
        host::set_wall_skew(self.wall_skew);
        process.clockwork.run_until(process.began, now);
        host::set_wall_skew(0);
        if !process.ended.is_finished() {
            return Ok(());
        }
        let ended = (&mut process.ended).now_or_never();
        Err(format!("member {} ended by itself: {ended:?}", self.machine))
    }

    /// `kill -9`: the files stay as they are, written or synced, and its peers hear of it.
    pub fn kill(&mut self) {
        self.paused = false;
        self.process = None;
    }

    /// The machine loses power: what was not synced may be gone, and nobody hears of it.
    pub fn lose_power(&mut self, random: &mut StdRng) {
        self.net.vanish(self.machine);
        self.paused = false;
        self.process = None;
        self.disk = self.disk.crash(random);
    }

    pub fn pause(&mut self) {
        self.paused = true;
    }

    pub fn resume(&mut self, now: u64) {
        if std::mem::take(&mut self.paused)
            && let Some(process) = &self.process
        {
            process.clockwork.oversleep(process.began, now);
        }
    }

    pub fn stall_disk(&self, until: u64) {
        self.disk.stall(until);
    }

    pub fn jump_wall_clock(&mut self, by_millis: i64) {
        self.wall_skew += by_millis;
    }
}

/// The flags of each member of a cluster.
pub fn flags(machine: Machine, members: usize, tuning: &setup::Setup) -> RawFlags {
    let peer = |machine: usize| format!("http://10.0.0.{machine}:{PEER_PORT}");
    let initial: Vec<String> = (1..=members).map(|one| format!("m{one}={}", peer(one))).collect();
    let client = format!("http://10.0.0.{machine}:{CLIENT_PORT}");
    RawFlags {
        name: format!("m{machine}"),
        listen_client_urls: Some(client.clone()),
        advertise_client_urls: Some(client),
        listen_peer_urls: Some(peer(machine)),
        initial_advertise_peer_urls: Some(peer(machine)),
        initial_cluster: Some(initial.join(",")),
        heartbeat_interval_ms: tuning.heartbeat_ms,
        election_timeout_ms: tuning.election_ms,
        snapshot_count: tuning.flush_entries,
        tuning: tuning.tuning(),
        ..RawFlags::default()
    }
}
