//! kubectl, in the versions that can be had: Debian's, and those beside the one on PATH.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Failure, Patience};

/// No command of the suites takes longer, unless it waits for something that does not come.
const COMMAND_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// One kubectl with one kubeconfig, and a home of its own for what it caches.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
}

/// What a command printed.
#[derive(Clone, Debug)]
pub struct Printed {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

/// Every kubectl there is, Debian's first. One that `all` leaves out is of a version between the others.
pub fn programs(all: bool) -> Result<Vec<PathBuf>, Failure> {
    let debian = super::tools().join("kubectl");
    if !debian.is_file() {
        return Err(Failure::Missing("Debian's kubectl: run scripts/setup".to_owned()));
    }
    let on_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|program| program.is_file())
    });
    let Some(on_path) = on_path.and_then(|program| program.canonicalize().ok()) else {
        return Ok(vec![debian]);
    };
    let mut beside: Vec<PathBuf> = on_path
        .parent()
        .and_then(|dir| std::fs::read_dir(dir).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("kubectl.1.")))
        .collect();
    beside.sort();
    if beside.is_empty() {
        beside.push(on_path);
    }
    if !all {
        beside.drain(..beside.len() - 1);
    }
    Ok([debian].into_iter().chain(beside).collect())
}

impl Kubectl {
    pub fn new(program: &Path, kubeconfig: &Path, home: &Path) -> Kubectl {
        Kubectl { program: program.to_owned(), kubeconfig: kubeconfig.to_owned(), home: home.to_owned() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", "/usr/bin:/bin")
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end. `input` is its standard input.
    pub fn run(&self, args: &[&str], input: &str) -> Result<Printed, Failure> {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let out = reader(child.stdout.take());
        let err = reader(child.stderr.take());
        let patience = Patience::of(format!("kubectl {args:?} ends"), COMMAND_WITHIN);
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if let Err(never) = patience.lasts("it runs") {
                child.kill()?;
                child.wait()?;
                return Err(never);
            }
            std::thread::sleep(POLL);
        };
        patience.came()?;
        let text = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
        Ok(Printed { ok: status.success(), out: text(out), err: text(err) })
    }

    /// Runs it, and what it prints must hold `expected`.
    pub fn expect(&self, args: &[&str], input: &str, expected: &str) -> Result<String, Failure> {
        let printed = self.run(args, input)?;
        if printed.ok && printed.out.contains(expected) {
            Ok(printed.out)
        } else {
            Err(self.complaint(args, &printed, expected))
        }
    }

    /// Runs it, and it must fail with words that hold `expected`.
    pub fn expect_failure(&self, args: &[&str], input: &str, expected: &str) -> Result<(), Failure> {
        let printed = self.run(args, input)?;
        if !printed.ok && printed.err.contains(expected) {
            Ok(())
        } else {
            Err(self.complaint(args, &printed, expected))
        }
    }

    fn complaint(&self, args: &[&str], printed: &Printed, expected: &str) -> Failure {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        Failure::broken(format!(
            "{program} {}: expected {expected:?}, ended {}\n--- out\n{}\n--- err\n{}",
            args.join(" "),
            if printed.ok { "well" } else { "badly" },
            printed.out,
            printed.err
        ))
    }

    /// Starts one that goes on printing, as `get --watch` does.
    pub fn follow(&self, args: &[&str]) -> Result<Following, Failure> {
        let mut child = self.command(args).stdin(Stdio::null()).spawn()?;
        let (sender, lines) = channel();
        let out = child.stdout.take();
        std::thread::spawn(move || {
            for line in out.map(BufReader::new).into_iter().flat_map(BufRead::lines) {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Following { child, lines })
    }
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut from) = from {
            // What was printed before a failure is still worth showing.
            let _ = from.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// A kubectl that is still printing. It ends with this.
#[derive(Debug)]
pub struct Following {
    child: Child,
    lines: Receiver<String>,
}

impl Following {
    /// The next line that holds `part`; those before it are passed over.
    pub fn line_with(&self, part: &str, within: Duration) -> Result<String, Failure> {
        let deadline = Instant::now() + within;
        let mut passed = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(line) => passed.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Err(Failure::broken(format!("no line with {part:?}, only {passed:?}")));
                }
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
