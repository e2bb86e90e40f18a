//! What the members' processes cost, as the kernel counts it: CPU seconds and resident memory.
//!
//! Works for processes on this machine only, told by their ids. A process that ends while it is
//! measured is an error, and never a zero.

use std::time::Duration;

use crate::failure::Failure;

pub struct Members {
    pids: Vec<u32>,
    ticks_per_second: f64,
}

impl Members {
    /// Nothing, if no process was named.
    pub fn new(pids: &[u32]) -> Result<Option<Members>, Failure> {
        if pids.is_empty() {
            return Ok(None);
        }
        // SAFETY: sysconf has no preconditions.
        let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        let members = Members { pids: pids.to_vec(), ticks_per_second };
        members.cpu_s()?;
        Ok(Some(members))
    }

    /// CPU seconds of all of them since they began.
    pub fn cpu_s(&self) -> Result<f64, Failure> {
        let of = |pid: &u32| cpu_ticks(&read(*pid, "stat")?).ok_or_else(|| unreadable(*pid));
        let ticks = self.pids.iter().map(of).sum::<Result<u64, Failure>>()?;
        Ok(ticks as f64 / self.ticks_per_second)
    }

    /// Resident bytes of all of them together.
    pub fn rss_bytes(&self) -> Result<u64, Failure> {
        let of = |pid: &u32| rss_bytes(&read(*pid, "status")?).ok_or_else(|| unreadable(*pid));
        self.pids.iter().map(of).sum()
    }

    /// Resident bytes once they had time to hand back what they do not need.
    pub fn settled_rss_bytes(&self, settle: Duration) -> Result<u64, Failure> {
        std::thread::sleep(settle);
        self.rss_bytes()
    }
}

/// CPU seconds that this process itself has used.
pub fn own_cpu_s() -> Result<f64, Failure> {
    match Members::new(&[std::process::id()])? {
        Some(own) => own.cpu_s(),
        None => Ok(0.0),
    }
}

fn read(pid: u32, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(format!("/proc/{pid}/{what}"))
        .map_err(|error| Failure::error(format!("--pids: process {pid} cannot be looked at: {error}")))
}

fn unreadable(pid: u32) -> Failure {
    Failure::error(format!("--pids: the kernel's figures of process {pid} are not in the usual form"))
}

/// User and system time of a `stat` line, whose second field is a name that may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_move_the_fields() {
        let stat = "12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0 20 0";
        assert_eq!(cpu_ticks(stat), Some(100));
        assert_eq!(cpu_ticks("12 (a) S 1"), None);
    }

    #[test]
    fn resident_memory_is_in_bytes() {
        assert_eq!(rss_bytes("VmHWM:\t  9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(rss_bytes("VmHWM:\t  9 kB\n"), None);
    }

    #[test]
    fn this_process_has_figures_and_a_process_that_is_not_there_has_none() {
        let own = Members::new(&[std::process::id()]).expect("readable").expect("one");
        assert!(own.rss_bytes().expect("readable") > 1 << 16);
        assert!(Members::new(&[u32::MAX]).is_err());
        assert!(Members::new(&[]).expect("nothing to read").is_none());
    }
}
