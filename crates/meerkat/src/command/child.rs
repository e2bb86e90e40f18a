//! A command that runs for as long as a right is held, and is told when the right is gone.
//!
//! Always true: a command that was started has ended when [`run_while`] does. One that is told to end
//! and does not is killed after [`GRACE`].

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use meerkat_proto::reason;
use tokio::process::{Child, Command};

use super::signals::Signals;
use crate::failure::{Failure, STATUS_ERROR};
use crate::go_quote::quote;

/// How long a command may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    Itself(ExitStatus),
    /// It was stopped, because what it needed was gone.
    Stopped {
        why: String,
    },
}

/// Runs a command with these variables until it ends; stops it if `lost` ends first. Signals that end
/// this process are handed on to it.
pub async fn run_while(
    command: &[OsString],
    variables: Vec<(&'static str, OsString)>,
    signals: &mut Signals,
    lost: impl Future<Output = String>,
) -> Result<Ended, Failure> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure::bad_arguments("no command to execute"));
    };
    let spawned = Command::new(program).args(args).envs(variables).kill_on_drop(true).spawn();
    let mut child = spawned.map_err(|error| Failure::error(not_started(program, &error)))?;
    tokio::pin!(lost);
    loop {
        tokio::select! {
            ended = child.wait() => return Ok(Ended::Itself(ended?)),
            signal = signals.next() => tell(&child, signal),
            why = &mut lost => {
                stop(&mut child).await?;
                return Ok(Ended::Stopped { why });
            }
        }
    }
}

async fn stop(child: &mut Child) -> Result<(), Failure> {
    tell(child, libc::SIGTERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

fn tell(child: &Child, signal: i32) {
    if let Some(id) = child.id().and_then(|id| libc::pid_t::try_from(id).ok()) {
        // SAFETY: sends a signal and touches no memory. The child is not yet waited for, so the id is its.
        unsafe { libc::kill(id, signal) };
    }
}

/// Hands a command's exit status on; a signal that ended it as shells do, 128 and its number.
pub fn hand_on(status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(STATUS_ERROR);
    Err(Failure { status: code, message: how_it_ended(status) })
}

/// In Go's words, as `etcdctl` says it.
pub fn how_it_ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal: {}", signal_name(signal)),
        (None, None) => status.to_string(),
    }
}

/// In Go's words for the signals that end commands.
fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGHUP => "hangup",
        libc::SIGINT => "interrupt",
        libc::SIGABRT => "aborted",
        libc::SIGKILL => "killed",
        libc::SIGSEGV => "segmentation fault",
        libc::SIGPIPE => "broken pipe",
        libc::SIGTERM => "terminated",
        other => return format!("signal {other}"),
    }
    .to_owned()
}

/// Why a program did not start, in Go's words.
pub fn not_started(program: &OsStr, error: &std::io::Error) -> String {
    let name = quote(program.as_bytes());
    if error.kind() == std::io::ErrorKind::NotFound && !program.as_bytes().contains(&b'/') {
        return format!("exec: {name}: executable file not found in $PATH");
    }
    format!("fork/exec {}: {}", program.to_string_lossy(), reason::of_system(error))
}
