//! Named fault points: on both sides of each durable step, in each supervised task, and in requests.
//!
//! A test starts a member with `MEERKAT_FAULTS="NAME=ACTION@N,…"`: the Nth time (from 1) that the
//! process passes the point NAME, ACTION happens. `kill` ends the process as `kill -9` would, with
//! nothing flushed and no destructor run; `eio` and `enospc` make the step fail with that error; `panic`
//! panics there, at every pass from the Nth on.
//!
//! Each supervised task and thread is a point by its own name: a task passes it ten times a second, a
//! thread at each turn of its loop. Without the variable a point costs one load.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Every point there is, so that tests can walk them all and a misspelt one is refused.
pub const POINTS: &[&str] = &[
    "before_log_write",
    "before_log_sync",
    "after_log_sync",
    "before_vote_sync",
    "after_vote_sync",
    "before_apply_batch",
    "after_apply_batch",
    "before_state_flush",
    "after_state_flush",
    "before_purge",
    "after_purge",
    "before_snapshot_rename",
    "after_snapshot_rename",
    "before_compaction_step",
    "after_compaction_step",
    "poisoned_request",
    "poisoned_entry",
];

/// Every supervised task and thread there is: work that is not named here cannot be started.
pub const TASKS: &[&str] = &[
    "apply",
    "auto-compaction",
    "check quorum",
    "client port",
    "compaction",
    "corruption checks",
    "follow leader",
    "initial check",
    "lease expiry",
    "lease notes",
    "lease renewals",
    "list-watch door",
    "log keeper",
    "log-flush",
    "member",
    "membership",
    "memory",
    "peer port",
    "presence",
    "proposals",
    "publish",
    "raft",
    "read confirmation",
    "reads",
    "reads of others",
    "space",
    "trace export",
    "watch catch-up",
    "watch dispatch",
    "watch leader",
];

/// The end of a key whose requests pass `poisoned_request`, and whose entries `poisoned_entry`.
const POISON: &[u8] = b"meerkat-fault-poison";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Error(i32),
    Panic,
}

struct Armed {
    point: &'static str,
    action: Action,
    /// The pass at which the action happens, from 1.
    due: u64,
    passes: AtomicU64,
}

static ARMED: OnceLock<Vec<Armed>> = OnceLock::new();

/// Reads `MEERKAT_FAULTS`. Call once at start, so that a misspelt plan is an error and not a test
/// that quietly tests nothing.
pub fn arm_from_environment() -> Result<(), String> {
    let plan = std::env::var("MEERKAT_FAULTS").unwrap_or_default();
    let armed = parse(&plan)?;
    ARMED.set(armed).map_err(|_| "fault points were armed twice".to_owned())
}

/// Marks a durable step. Returns the injected error, if one is due.
#[inline]
pub fn point(name: &'static str) -> io::Result<()> {
    match ARMED.get() {
        None => Ok(()),
        Some(armed) if armed.is_empty() => Ok(()),
        Some(armed) => pass(armed, name),
    }
}

/// Whether anything is to happen at `name`.
pub fn is_armed(name: &'static str) -> bool {
    ARMED.get().is_some_and(|armed| armed.iter().any(|fault| fault.point == name))
}

/// Marks a turn of supervised work.
#[inline]
pub fn pass_task(name: &'static str) {
    // No step that could fail goes with it, so an error means nothing here.
    let _ = point(name);
}

/// Marks what is done for `key`, if it is one that tests make mistakes with.
#[inline]
pub fn poisoned(name: &'static str, key: &[u8]) {
    if is_armed(name) && key.ends_with(POISON) {
        pass_task(name);
    }
}

pub(crate) fn require_task(name: &str) {
    assert!(TASKS.contains(&name), "{name:?} is not among TASKS, so no test could break it");
}

fn pass(armed: &[Armed], name: &'static str) -> io::Result<()> {
    for fault in armed.iter().filter(|fault| fault.point == name) {
        let pass = fault.passes.fetch_add(1, Ordering::SeqCst) + 1;
        match fault.action {
            Action::Kill if pass == fault.due => kill_self(name),
            Action::Error(code) if pass == fault.due => return Err(io::Error::from_raw_os_error(code)),
            Action::Panic if fault.due <= pass => panic!("fault point {name}"),
            Action::Kill | Action::Error(_) | Action::Panic => {}
        }
    }
    Ok(())
}

fn kill_self(name: &str) -> ! {
    eprintln!("fault point {name}: killing this process");
    // SAFETY: getpid and kill have no preconditions; SIGKILL cannot be caught, so nothing of this
    // process runs afterwards.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
    std::process::abort()
}

fn parse(plan: &str) -> Result<Vec<Armed>, String> {
    plan.split(',').map(str::trim).filter(|part| !part.is_empty()).map(parse_one).collect()
}

fn parse_one(part: &str) -> Result<Armed, String> {
    let bad = || format!("MEERKAT_FAULTS: {part:?} is not NAME=kill|eio|enospc|panic@N with N from 1");
    let (name, rest) = part.split_once('=').ok_or_else(bad)?;
    let (action, count) = rest.split_once('@').ok_or_else(bad)?;
    let point = POINTS.iter().chain(TASKS).find(|point| **point == name).ok_or_else(|| {
        format!(
            "MEERKAT_FAULTS: there is no fault point {name:?}; there are {POINTS:?}, and tasks: {TASKS:?}"
        )
    })?;
    let action = match action {
        "kill" => Action::Kill,
        "eio" => Action::Error(libc::EIO),
        "enospc" => Action::Error(libc::ENOSPC),
        "panic" => Action::Panic,
        _ => return Err(bad()),
    };
    let due: u64 = count.parse().map_err(|_| bad())?;
    if due == 0 {
        return Err(bad());
    }
    Ok(Armed { point, action, due, passes: AtomicU64::new(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_names_point_action_and_pass() {
        let armed = parse("before_log_sync=eio@2, after_purge=kill@1").expect("plan");
        assert_eq!(armed.len(), 2);
        assert_eq!(armed[0].action, Action::Error(libc::EIO));
        assert!(pass(&armed, "before_log_sync").is_ok());
        assert_eq!(pass(&armed, "before_log_sync").expect_err("second pass").raw_os_error(), Some(libc::EIO));
        assert!(pass(&armed, "before_log_sync").is_ok(), "an action happens once");
    }

    #[test]
    fn a_panic_happens_at_every_pass_from_the_first_that_is_due() {
        let armed = parse("proposals=panic@2").expect("plan");
        let passed = || std::panic::catch_unwind(|| pass(&armed, "proposals")).is_ok();
        assert_eq!([passed(), passed(), passed()], [true, false, false]);
    }

    #[test]
    fn a_misspelt_plan_is_refused() {
        for plan in [
            "nowhere=kill@1",
            "after_purge=kill",
            "after_purge=maim@1",
            "after_purge=kill@0",
            "x",
            "no task=panic@1",
        ] {
            assert!(parse(plan).is_err(), "{plan}");
        }
    }
}
