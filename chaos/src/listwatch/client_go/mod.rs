//! Programs of ours on client-go, built by Debian's Go from Debian's packages.

pub mod record;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::{Failure, Patience};

/// All of client-go is compiled the first time.
const BUILT_WITHIN: Duration = Duration::from_secs(900);
/// From one line of a program to its next.
const LINE_WITHIN: Duration = Duration::from_secs(90);
/// What a program is killed by wants no more than its last words.
const LAST_WORDS: usize = 4_000;

/// What client-go is told of how to speak.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    pub protobuf: bool,
    /// Informers ask for initial events instead of a list.
    pub watch_list: bool,
}

/// Builds the program whose source is in a directory, with what it takes kept in `room`.
pub async fn build(source: &Path, room: &Path) -> Result<PathBuf, Failure> {
    let missing = || Failure::Missing("Debian's Go and client-go: run scripts/setup long".to_owned());
    let tree = super::tools().join("client-go");
    let root = tree.join("usr/lib/go").canonicalize().map_err(|_| missing())?;
    let packages = tree.join("usr/share/gocode").canonicalize().map_err(|_| missing())?;
    if !packages.join("src/k8s.io/client-go").is_dir() {
        return Err(missing());
    }
    let program = room.join("client-go-program");
    let building = Command::new(root.join("bin/go"))
        .args(["build", "-o"])
        .arg(&program)
        .current_dir(source)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", room)
        .env("GOROOT", &root)
        .env("GOPATH", &packages)
        .env("GOCACHE", room.join("go-cache"))
        .envs([("GO111MODULE", "off"), ("GOTOOLCHAIN", "local"), ("GOFLAGS", ""), ("CGO_ENABLED", "0")])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = Patience::of("the program is built", BUILT_WITHIN).wait(building).await??;
    if output.status.success() {
        Ok(program)
    } else {
        Err(Failure::harness(format!("go build: {}", String::from_utf8_lossy(&output.stderr))))
    }
}

/// A program that runs. It ends with this.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts one before the doors at these URLs. What its informers are told goes to `record`.
    pub fn start(program: &Path, urls: &[String], manner: Manner, record: &Path) -> Result<Program, Failure> {
        let log = record.with_extension("log");
        let servers: Vec<&str> = urls.iter().filter_map(|url| url.strip_prefix("http://")).collect();
        let child = Command::new(program)
            .arg(format!("--servers={}", servers.join(",")))
            .arg(format!("--protobuf={}", manner.protobuf))
            .arg("--record")
            .arg(record)
            .env("KUBE_FEATURE_WatchListClient", manner.watch_list.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Program { child, log })
    }

    /// Waits for its end. Whenever it asks for a strike, `strike` makes one.
    pub async fn run(mut self, mut strike: impl AsyncFnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        let piped = || Failure::harness("the program was started without pipes");
        let mut commands = self.child.stdin.take().ok_or_else(piped)?;
        let mut lines = BufReader::new(self.child.stdout.take().ok_or_else(piped)?).lines();
        let next = || Patience::of("the program goes on", LINE_WITHIN);
        while let Some(line) = next().wait(lines.next_line()).await?? {
            if line == "strike" {
                strike().await?;
                commands.write_all(b"struck\n").await?;
            } else {
                println!("client-go: {line}");
            }
        }
        let status = self.child.wait().await?;
        if status.success() {
            return Ok(());
        }
        let words = std::fs::read(&self.log)?;
        let last = String::from_utf8_lossy(&words[words.len().saturating_sub(LAST_WORDS)..]);
        Err(Failure::broken(format!("the program ended with {status}: …{last}")))
    }
}
