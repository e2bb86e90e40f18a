//! One member process of a throw-away cluster: started, watched and stopped by its parent.
//!
//! The process is this binary's `serve`. It is in a group of its own, so that Ctrl-C reaches only
//! the parent, which then stops the members in order; and it ends with its parent, however that
//! ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use super::ports::Ports;

/// How long a member may take to stop in order before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const TAIL_BYTES: u64 = 8 * 1024;
const TAIL_LINES: usize = 10;

pub struct Member {
    pub name: String,
    pub ports: Ports,
    pub log: PathBuf,
    child: Child,
}

impl Member {
    pub fn start(
        name: String,
        ports: Ports,
        initial_cluster: &str,
        directory: &Path,
        extra: &[OsString],
    ) -> io::Result<Member> {
        let log = directory.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg(format!("--name={name}"))
            .arg(flag("--data-dir=", &directory.join(&name)))
            .arg(format!("--listen-client-urls={}", ports.client_url()))
            .arg(format!("--advertise-client-urls={}", ports.client_url()))
            .arg(format!("--listen-peer-urls={}", ports.peer_url()))
            .arg(format!("--initial-advertise-peer-urls={}", ports.peer_url()))
            .arg(format!("--initial-cluster={initial_cluster}"))
            .arg("--initial-cluster-token=meerkat-dev")
            .args(ports.listwatch_url().map(|url| format!("--listen-listwatch-urls={url}")))
            .args(extra)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .kill_on_drop(true);
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(variable);
            }
        }
        end_with_parent(&mut command);
        Ok(Member { name, ports, log, child: command.spawn()? })
    }

    /// Ends it as a crash does, and waits until it is gone.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Takes the processor from it. It keeps its memory and its connections, and answers nobody.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(libc::SIGSTOP)
    }

    pub fn go_on(&self) -> io::Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> io::Result<()> {
        let id = self.child.id().ok_or_else(|| io::Error::other(format!("{} has ended", self.name)))?;
        // SAFETY: kill has no memory effects, and the id is of a child not yet waited for, so it
        // cannot have been given to another process.
        match unsafe { libc::kill(id as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Asks it to stop and waits; kills it if it does not.
    pub async fn stop(&mut self) -> io::Result<()> {
        if self.child.id().is_some() {
            self.signal(libc::SIGTERM)?;
        }
        match tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await {
            Ok(ended) => ended.map(|_| ()),
            Err(_) => self.child.kill().await,
        }
    }

    /// The last lines of its log.
    pub fn last_lines(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("(cannot read {}: {error})", self.log.display()))
    }
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

/// A member must not outlive a parent that was killed: nobody would know of it. KILL, since a paused
/// member would not hear anything milder; the data is safe from it.
#[cfg(target_os = "linux")]
fn end_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec only this one system call is made, which allocates nothing and
    // takes no lock.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_: &mut Command) {}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_long_log_is_its_last_lines() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lines: String = (0..5_000).map(|number| format!("line {number}\n")).collect();
        std::fs::write(file.path(), lines).expect("written");
        let tail = tail(file.path()).expect("read");
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with("line 4999"));
    }
}
