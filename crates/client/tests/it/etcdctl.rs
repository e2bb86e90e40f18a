//! etcd's own command beside this client, on the same cluster.

use crate::patience::PATIENCE;
use crate::server::{Cluster, etcd};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// A running `etcdctl`, ended with the test.
pub struct Etcdctl {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Etcdctl {
    pub fn start(cluster: &Cluster, args: &[&str]) -> Etcdctl {
        let mut command = Command::new(etcd().with_file_name("etcdctl"));
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", cluster.urls().join(","))).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("etcdctl starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Etcdctl { child, lines }
    }

    /// The next line it prints.
    pub async fn line(&mut self) -> String {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("a line in time").expect("readable").expect("not the end")
    }

    /// Whether it prints nothing for a while.
    pub async fn is_silent(&mut self, within: Duration) -> bool {
        tokio::time::timeout(within, self.lines.next_line()).await.is_err()
    }

    /// As with ctrl-c: it gives back what it holds, and ends.
    pub async fn interrupt(mut self) {
        let pid = self.child.id().expect("it runs");
        // SAFETY: a plain system call on a child of ours that has not been waited for.
        let sent = unsafe { libc::kill(i32::try_from(pid).expect("a pid is an i32"), libc::SIGINT) };
        assert_eq!(sent, 0, "a signal to {pid}");
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends in time").expect("it can be waited for");
    }
}
