//! One member of a cluster under test, through all its lives.
//!
//! Ports, data directory and log outlive the process; a restart is the same member coming back.
//! Whether the process runs is known by asking it, since a fault point may have ended it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::process::{Launch, Process};
use super::usage;
use crate::endpoint::Endpoint;
use crate::ground::Usage;
use crate::{Failure, Patience};
use meerkat_ports::Port;

/// How often a starting member is asked whether it serves.
const READY_POLL: Duration = Duration::from_millis(20);
/// How often one that was asked to end is looked at.
const END_POLL: Duration = Duration::from_millis(10);

/// The ports of one member, its own for all its lives.
#[derive(Debug)]
pub(super) struct Ports {
    pub client: Port,
    pub peer: Port,
    /// Of the list-watch door, if it opens it.
    pub listwatch: Port,
}

/// A disk that fills up is a fault to be met here, and not one to be kept away from by refusing data in time.
const FILL_THE_DISK: (&str, &str) = ("ETCD_MEERKAT_DISK_FREE_MIN_BYTES", "0");

/// One member.
#[derive(Debug)]
pub struct Member {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    ports: Ports,
    peer_url: String,
    data_dir: PathBuf,
    log: PathBuf,
    endpoint: Endpoint,
    /// The address it listens on, and the words before its command line that take it there.
    host: String,
    launcher: Vec<String>,
    process: Option<Process>,
    bound: bool,
}

impl Member {
    /// A member that has not been started. `args` are complete.
    pub(super) fn new(name: String, program: PathBuf, dir: &Path, ports: Ports) -> Result<Self, Failure> {
        let endpoint = Endpoint::on_loopback(ports.client.number())?;
        let data_dir = dir.join(format!("{name}.data"));
        let log = dir.join(format!("{name}.log"));
        Ok(Self {
            name,
            program,
            args: Vec::new(),
            ports,
            peer_url: String::new(),
            data_dir,
            log,
            endpoint,
            host: "127.0.0.1".to_owned(),
            launcher: Vec::new(),
            process: None,
            bound: false,
        })
    }

    pub(super) fn set_args(&mut self, peer_url: String, args: Vec<String>) {
        self.peer_url = peer_url;
        self.args = args;
    }

    /// Puts it elsewhere than on loopback: its address there, and the command that starts another
    /// command in that place. Before its arguments are set.
    pub(super) fn place(&mut self, host: &str, launcher: Vec<String>) -> Result<(), Failure> {
        self.endpoint = Endpoint::of(host, self.ports.client.number())?;
        self.host = host.to_owned();
        self.launcher = launcher;
        Ok(())
    }

    /// The address it listens on.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Where the other members reach it.
    pub fn peer_url(&self) -> &str {
        &self.peer_url
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stubs to talk to it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its client port.
    pub fn client_port(&self) -> u16 {
        self.ports.client.number()
    }

    /// Its peer port.
    pub fn peer_port(&self) -> u16 {
        self.ports.peer.number()
    }

    /// Where its list-watch door is, if it has one.
    pub fn listwatch_url(&self) -> String {
        format!("http://{}:{}", self.host, self.ports.listwatch.number())
    }

    /// Where it keeps its data.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// All it has printed so far.
    pub fn printed(&self) -> Result<String, Failure> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// Starts it with its own arguments.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.start_with(&[])
    }

    /// Starts it with variables added to its environment (`MEERKAT_FAULTS`, for one).
    pub fn start_with(&mut self, env: &[(&str, &str)]) -> Result<(), Failure> {
        if self.is_running()? {
            return Err(Failure::harness(format!("{} is already running", self.name)));
        }
        let env = [FILL_THE_DISK].iter().chain(env);
        let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let program = self.program.to_string_lossy().into_owned();
        let mut words = self.launcher.iter().cloned().chain([program]).chain(self.args.iter().cloned());
        let program = words.next().map(PathBuf::from).unwrap_or_default();
        let args = words.collect();
        let launch = Launch { program: &program, args, env, log: &self.log, bound: self.bound };
        self.process = Some(Process::spawn(&launch)?);
        Ok(())
    }

    /// Its later lives end with this program, even one that is killed. Only for members that are
    /// started by a thread that lives as long as they do: to the kernel it is that which counts.
    pub fn bind_to_this_program(&mut self) {
        self.bound = true;
    }

    /// Starts it with variables added and flags replaced, for this one life.
    pub fn start_altered(&mut self, env: &[(String, String)], flags: &[String]) -> Result<(), Failure> {
        let original = self.args.clone();
        self.replace_flags(flags);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
        let started = self.start_with(&env);
        self.args = original;
        started
    }

    fn replace_flags(&mut self, changes: &[String]) {
        for change in changes {
            let flag = change.split_inclusive('=').next().unwrap_or(change);
            self.args.retain(|arg| !arg.starts_with(flag));
            self.args.push(change.clone());
        }
    }

    /// Starts it with some of its flags changed, for tests of what it must refuse. Each change is a
    /// whole `--flag=value`; the next plain start is as before.
    pub fn start_changed(&mut self, changes: &[String]) -> Result<(), Failure> {
        self.start_altered(&[], changes)
    }

    /// Whether its process is there (a paused one is).
    pub fn is_running(&mut self) -> Result<bool, Failure> {
        match &mut self.process {
            None => Ok(false),
            Some(process) => Ok(process.exited()?.is_none()),
        }
    }

    /// `kill -9`. Killing a member that has already ended is not an error.
    pub fn kill(&mut self) -> Result<(), Failure> {
        match self.process.take() {
            None => Ok(()),
            Some(mut process) => process.kill(),
        }
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        self.running()?.terminate()?;
        self.wait_for_exit(within)
    }

    /// SIGTERM, and does not wait.
    pub fn terminate(&self) -> Result<(), Failure> {
        self.running()?.terminate()
    }

    /// SIGTERM, and waits for the end without holding up others. No error if it has already ended.
    pub async fn end(&mut self, within: Duration) -> Result<(), Failure> {
        if !self.is_running()? {
            return Ok(());
        }
        self.terminate()?;
        let patience = Patience::of(format!("{} ends after SIGTERM", self.name), within);
        while self.is_running()? {
            let waited = patience.pause(END_POLL, "it runs").await;
            waited.map_err(|never| never.put(|why| format!("{why}: {}", self.tail())))?;
        }
        patience.came().map(drop)
    }

    /// SIGSTOP, if it runs: the number of a process that has ended may be a stranger's by now.
    pub fn freeze(&mut self) -> Result<(), Failure> {
        if self.is_running()? {
            return self.pause();
        }
        Err(Failure::harness(format!("{} is not running: it cannot be paused", self.name)))
    }

    /// SIGCONT, if it runs.
    pub fn thaw(&mut self) -> Result<(), Failure> {
        if self.is_running()? { self.resume() } else { Ok(()) }
    }

    /// SIGSTOP.
    pub fn pause(&self) -> Result<(), Failure> {
        self.running()?.pause()
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<(), Failure> {
        self.running()?.resume()
    }

    /// Waits until the process ends by itself, and says how.
    pub fn wait_for_exit(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let mut process =
            self.process.take().ok_or_else(|| Failure::harness(format!("{} was not started", self.name)))?;
        let status = process.wait_for_exit(within);
        if status.is_err() {
            self.process = Some(process);
        }
        status
    }

    /// The process of its present life, if it was started and not ended by us.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Memory and processor time of its present life.
    pub fn usage(&self) -> Result<Usage, Failure> {
        usage::of_process(self.running()?.pid())
    }

    /// Waits until it answers a linearizable read; returns how long that took.
    pub async fn wait_until_ready(&mut self, within: Duration) -> Result<Duration, Failure> {
        let patience = Patience::of(format!("{} serves", self.name), within);
        loop {
            if !self.is_running()? {
                return Err(Failure::broken(format!("{} ended while starting: {}", self.name, self.tail())));
            }
            match self.endpoint.linearizable_probe(Duration::from_secs(1)).await {
                Ok(_) => return patience.came(),
                Err(status) => {
                    let waited = patience.pause(READY_POLL, crate::outcome::describe(&status)).await;
                    waited.map_err(|never| never.put(|why| format!("{why}: {}", self.tail())))?;
                }
            }
        }
    }

    /// The end of its log, and where the whole is.
    pub fn tail(&self) -> String {
        let printed = self.printed().unwrap_or_default();
        let lines: Vec<&str> = printed.lines().rev().take(12).collect();
        let tail: Vec<&str> = lines.into_iter().rev().collect();
        format!("log {}\n    {}", self.log.display(), tail.join("\n    "))
    }

    fn running(&self) -> Result<&Process, Failure> {
        self.process.as_ref().ok_or_else(|| Failure::harness(format!("{} is not running", self.name)))
    }
}
