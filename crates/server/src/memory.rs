//! How much memory this process has, against what it may have, and what is turned away near the bound.
//!
//! Near the bound a request that may bring or fetch data is refused at once, in words that clients know
//! how to answer with a pause; the alternative is to be killed and to fail everybody. What keeps leases
//! alive, what ends a watch and what an operator asks is always answered.

use crate::methods::{Memory, Method};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks.
const TICK: Duration = Duration::from_millis(200);

/// Of the bound; the rest is for what is under way.
const SHED_PERCENT: u64 = 90;

/// Whether memory is short, and how often a request was refused for it.
#[derive(Default)]
pub(crate) struct Pressure {
    short: AtomicBool,
    pub(crate) refused: AtomicU64,
}

impl Pressure {
    /// Whether a call of that method is refused now. If so, it counts as refused.
    pub(crate) fn refuses(&self, method: &Method) -> bool {
        let refuses = method.memory == Memory::Sheds && self.short.load(Ordering::Relaxed);
        if refuses {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        refuses
    }

    /// Of a process that is short of memory.
    #[cfg(test)]
    pub(crate) fn short() -> Pressure {
        Pressure { short: AtomicBool::new(true), refused: AtomicU64::new(0) }
    }
}

/// Looks again and again, until it is dropped. Without a bound it never finds anything.
pub(crate) async fn watch(pressure: Arc<Pressure>, asked_bytes: u64) {
    let bound = if asked_bytes == 0 { control_group_bytes() } else { Some(asked_bytes) };
    // Under simulation the process is many members.
    let bound = bound.filter(|_| !meerkat_raft::threads::are_tasks());
    let Some(bound) = bound else { return std::future::pending().await };
    loop {
        let short = resident_bytes().is_some_and(|used| is_short(used, bound));
        if short != pressure.short.swap(short, Ordering::Relaxed) {
            tracing::warn!(short, bound, "memory is short, or no longer: requests are refused meanwhile");
        }
        tokio::time::sleep(TICK).await;
    }
}

const fn is_short(used: u64, bound: u64) -> bool {
    bound / 100 * SHED_PERCENT < used
}

fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: sysconf reads a constant of the system.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(pages * page)
}

/// What the container may have, if it is bounded.
fn control_group_bytes() -> Option<u64> {
    let paths = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let text = paths.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    // The older kind has a number near 2^63 for no bound.
    text.trim().parse::<u64>().ok().filter(|bytes| *bytes < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_short_above_nine_tenths_of_the_bound() {
        assert!(!is_short(900, 1_000));
        assert!(is_short(901, 1_000));
        assert!(is_short(1, 1));
    }

    #[test]
    fn this_process_has_some_memory() {
        assert!((1 << 20) < resident_bytes().expect("there is a statm"));
    }
}
