//! What the system says about this process, under the names that every Prometheus client library uses.

use super::Page;

/// One tick of the clock in `/proc/self/stat`, on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE_BYTES: f64 = 4_096.0;

/// The files that this process may have open.
pub(crate) fn files_max() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    limit(&limits, "Max open files").unwrap_or(0)
}

fn limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What `/proc/self/stat` tells.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    threads: f64,
    started_seconds_after_boot: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

fn stat(text: &str) -> Option<Stat> {
    // The name is in brackets and may hold anything.
    let fields: Vec<f64> = text
        .get(text.rfind(')')? + 1..)?
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // Counted from the state, which is the third field of the file.
    let field = |number: usize| fields.get(number - 3).copied();
    Some(Stat {
        cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
        threads: field(20)?,
        started_seconds_after_boot: field(22)? / TICKS_PER_SECOND,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * PAGE_BYTES,
    })
}

fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Bytes that the system's network has received and sent, from `/proc/self/net/netstat`: two lines for each
/// protocol, of names and of numbers.
fn network(text: &str) -> Option<(f64, f64)> {
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("IpExt:")).collect();
    let [names, numbers] = lines[..] else { return None };
    let value = |name: &str| {
        let place = names.split_whitespace().position(|one| one == name)?;
        numbers.split_whitespace().nth(place)?.parse::<f64>().ok()
    };
    Some((value("InOctets")?, value("OutOctets")?))
}

/// The tasks that requests run on. Nothing outside a runtime.
fn runtime(page: &mut Page) {
    let Ok(handle) = tokio::runtime::Handle::try_current() else { return };
    let metrics = handle.metrics();
    page.gauge("meerkat_runtime_workers", "Threads that serve requests.", metrics.num_workers() as f64);
    page.gauge("meerkat_runtime_tasks", "Tasks that have not ended.", metrics.num_alive_tasks() as f64);
    let queued = metrics.global_queue_depth() as f64;
    page.gauge("meerkat_runtime_queued_tasks", "Tasks that wait for a thread.", queued);
}

pub(super) fn render(page: &mut Page) {
    runtime(page);
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if let Some(stat) = stat(&read("/proc/self/stat")) {
        page.metric(
            "process_cpu_seconds_total",
            "counter",
            "Processor time used.",
            &[("", stat.cpu_seconds)],
        );
        page.gauge("process_resident_memory_bytes", "Memory in use.", stat.resident_bytes);
        page.gauge("process_virtual_memory_bytes", "Address space in use.", stat.virtual_bytes);
        let most = limit(&read("/proc/self/limits"), "Max address space").map_or(-1.0, |bytes| bytes as f64);
        page.gauge("process_virtual_memory_max_bytes", "Address space that is allowed, or -1.", most);
        page.gauge("process_threads", "Threads.", stat.threads);
        if let Some(boot) = boot_seconds(&read("/proc/stat")) {
            let started = boot + stat.started_seconds_after_boot;
            page.gauge("process_start_time_seconds", "When it started, since 1970.", started);
        }
    }
    let limits = read("/proc/self/limits");
    let max = limit(&limits, "Max open files").unwrap_or(0) as f64;
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        // One of them is the directory itself.
        let open = files.count().saturating_sub(1) as f64;
        page.gauge("process_open_fds", "Files open.", open);
        page.gauge("os_fd_used", "Files open.", open);
    }
    if let Some((received, sent)) = network(&read("/proc/self/net/netstat")) {
        let help = "Bytes that this process's network has received.";
        page.metric("process_network_receive_bytes_total", "counter", help, &[("", received)]);
        let help = "Bytes that this process's network has sent.";
        page.metric("process_network_transmit_bytes_total", "counter", help, &[("", sent)]);
    }
    page.gauge("process_max_fds", "Files that may be open.", max);
    page.gauge("os_fd_limit", "Files that may be open.", max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_tables_are_read() {
        let text =
            "7 (a b) c) S 1 7 7 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 12 0 1000 8192 3 18446744073709551615";
        let expected = Stat {
            cpu_seconds: 2.0,
            threads: 12.0,
            started_seconds_after_boot: 10.0,
            virtual_bytes: 8_192.0,
            resident_bytes: 3.0 * 4_096.0,
        };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("7 (a"), None);
        let limits = "Limit  Soft  Hard\nMax open files            1024    4096  files\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024));
        assert_eq!(boot_seconds("cpu 1\nbtime 1700000000\n"), Some(1_700_000_000.0));
        let netstat = "TcpExt: A\nTcpExt: 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 70 80\n";
        assert_eq!(network(netstat), Some((70.0, 80.0)));
        assert_eq!(network("IpExt: InOctets\n"), None);
    }

    #[tokio::test]
    async fn this_process_is_known_to_its_system() {
        assert!(0 < files_max());
        let mut page = Page::default();
        render(&mut page);
        for name in [
            "process_cpu_seconds_total",
            "process_start_time_seconds",
            "process_network_receive_bytes_total",
            "process_network_transmit_bytes_total",
            "meerkat_runtime_tasks",
            "os_fd_used",
        ] {
            assert!(page.0.contains(&format!("\n{name} ")), "{name}");
        }
    }
}
