//! Named fault points, on both sides of each durable step.
//!
//! A test starts a member with `MEERKAT_FAULTS="NAME=ACTION@N,…"`: the Nth time (from 1) that the
//! process passes the point NAME, ACTION happens. `kill` ends the process as `kill -9` would, with
//! nothing flushed and no destructor run; `eio` and `enospc` make the step fail with that error.
//! Without the variable a point costs one load. Never rely on a point for behaviour of the product.

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
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Kill,
    Error(i32),
}

struct Armed {
    point: &'static str,
    action: Action,
    /// Passes left before the action; it happens when this reaches zero, once.
    countdown: AtomicU64,
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

fn pass(armed: &[Armed], name: &'static str) -> io::Result<()> {
    for fault in armed.iter().filter(|fault| fault.point == name) {
        if fault.countdown.fetch_sub(1, Ordering::SeqCst) != 1 {
            continue;
        }
        match fault.action {
            Action::Kill => kill_self(name),
            Action::Error(code) => return Err(io::Error::from_raw_os_error(code)),
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
    let bad = || format!("MEERKAT_FAULTS: {part:?} is not NAME=kill|eio|enospc@N with N from 1");
    let (name, rest) = part.split_once('=').ok_or_else(bad)?;
    let (action, count) = rest.split_once('@').ok_or_else(bad)?;
    let point = POINTS
        .iter()
        .find(|point| **point == name)
        .ok_or_else(|| format!("MEERKAT_FAULTS: there is no fault point {name:?}; there are {POINTS:?}"))?;
    let action = match action {
        "kill" => Action::Kill,
        "eio" => Action::Error(libc::EIO),
        "enospc" => Action::Error(libc::ENOSPC),
        _ => return Err(bad()),
    };
    let count: u64 = count.parse().map_err(|_| bad())?;
    if count == 0 {
        return Err(bad());
    }
    Ok(Armed { point, action, countdown: AtomicU64::new(count) })
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
    fn a_misspelt_plan_is_refused() {
        for plan in ["nowhere=kill@1", "after_purge=kill", "after_purge=maim@1", "after_purge=kill@0", "x"] {
            assert!(parse(plan).is_err(), "{plan}");
        }
    }
}
