//! One child process: the only thing here that sends signals, and only to its own child.
//!
//! Its output goes to a log file that several lives of a member share. It is killed when dropped;
//! a stopped child too, since SIGKILL does not wait for SIGCONT.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// How often an exit is looked for.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// A running (or just ended) child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to the environment.
    pub env: Vec<(String, String)>,
    /// Where its output goes, appended.
    pub log: &'a Path,
    /// Whether it ends with the thread that starts it, whatever way that ends.
    pub bound: bool,
}

impl Process {
    /// Starts it.
    pub fn spawn(launch: &Launch<'_>) -> Result<Self, Failure> {
        let mut log = File::options().create(true).append(true).open(launch.log)?;
        writeln!(log, "--- start: {} {:?}", launch.program.display(), launch.env)?;
        let mut command = Command::new(launch.program);
        if launch.bound {
            // SAFETY: between fork and exec only this one call is made, which is async-signal-safe.
            unsafe { command.pre_exec(die_with_parent) };
        }
        let child = command
            .args(&launch.args)
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(|error| {
                Failure::harness(format!("cannot start {}: {error}", launch.program.display()))
            })?;
        Ok(Self { child, log: launch.log.to_owned() })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Freezes it with SIGSTOP.
    pub fn pause(&self) -> Result<(), Failure> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it run again with SIGCONT.
    pub fn resume(&self) -> Result<(), Failure> {
        self.signal(libc::SIGCONT)
    }

    /// Asks it to stop with SIGTERM.
    pub fn terminate(&self) -> Result<(), Failure> {
        self.signal(libc::SIGTERM)
    }

    /// Waits until it ends by itself.
    pub fn wait_for_exit(&mut self, within: Duration) -> Result<ExitStatus, Failure> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.exited()? {
                return Ok(status);
            }
            if deadline < Instant::now() {
                return Err(Failure::harness(format!(
                    "process {} has not ended within {within:?}; its log is {}",
                    self.pid(),
                    self.log.display()
                )));
            }
            std::thread::sleep(EXIT_POLL);
        }
    }

    fn signal(&self, signal: libc::c_int) -> Result<(), Failure> {
        let pid =
            libc::pid_t::try_from(self.pid()).map_err(|_| Failure::harness("process id out of range"))?;
        // SAFETY: kill has no memory preconditions. The child has not been waited for (a waited-for
        // child is dropped with its `Process`), so the id cannot belong to a stranger.
        let result = unsafe { libc::kill(pid, signal) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().into()) }
    }
}

/// Asks the kernel to kill this process when the thread that started it ends.
fn die_with_parent() -> std::io::Result<()> {
    // SAFETY: prctl with these arguments touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either fails only if the child has already ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
