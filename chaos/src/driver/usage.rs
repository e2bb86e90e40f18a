//! What a process costs, read from `/proc`.

use crate::Failure;
use crate::ground::Usage;

/// Reads the usage of a running process.
pub fn of_process(pid: u32) -> Result<Usage, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Ok(Usage {
        rss_bytes: field_kib(&status, "VmRSS:") * 1024,
        peak_rss_bytes: field_kib(&status, "VmHWM:") * 1024,
        cpu_millis: cpu_ticks(&stat) * 1000 / ticks_per_second(),
        open_files: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
        pid,
    })
}

/// A number of bytes as MiB, for reports.
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

fn field_kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

/// The command name may hold spaces and brackets, so fields are counted from its closing one.
fn cpu_ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    ticks(11) + ticks(12)
}

fn ticks_per_second() -> u64 {
    // SAFETY: sysconf reads a constant of the system and has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0";
        assert_eq!(cpu_ticks(stat), 100);
    }

    #[test]
    fn this_process_has_memory() {
        let usage = of_process(std::process::id()).expect("own usage");
        assert!(0 < usage.rss_bytes && usage.rss_bytes <= usage.peak_rss_bytes, "{usage:?}");
        assert!(0 < usage.open_files, "{usage:?}");
    }
}
