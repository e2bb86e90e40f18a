//! Members started as etcd is: through a link of that name, with etcd's flags.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use crate::process::{Running, clean, collect, etcd_program, free_port, run, wait_until};

/// A directory with our binary in it under etcd's names.
pub fn links(directory: &Path) -> PathBuf {
    let bin = directory.join("bin");
    std::fs::create_dir_all(&bin).expect("a directory");
    for name in ["etcd", "etcdctl", "etcdutl"] {
        let link = bin.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_meerkat"), link).expect("a link");
        }
    }
    bin
}

/// One member and what it says.
pub struct Member {
    pub process: Running,
    log: Arc<Mutex<String>>,
}

impl Member {
    /// Runs `etcd` with those arguments, in that directory.
    pub fn start(directory: &Path, args: &[String]) -> Member {
        Member::start_with(directory, args, &[])
    }

    pub fn start_with(directory: &Path, args: &[String], environment: &[(&str, &str)]) -> Member {
        let mut command = clean(Command::new(links(directory).join("etcd")));
        command.current_dir(directory).args(args).envs(environment.iter().copied());
        Member::run(command)
    }

    /// A member by a command line of one's own.
    pub fn run(mut command: Command) -> Member {
        command.stderr(Stdio::piped());
        let mut process = Running(command.spawn().expect("the binary starts"));
        let log = collect(process.0.stderr.take().expect("piped"));
        Member { process, log }
    }

    pub fn logged(&self, text: &str) -> bool {
        self.log.lock().expect("no writer panics").contains(text)
    }

    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("a member says {text:?}; so far: {}", self.said()), || self.logged(text));
    }

    pub fn ready(self) -> Member {
        self.wait_for("ready to serve client requests");
        self
    }

    fn said(&self) -> String {
        self.log.lock().expect("no writer panics").clone()
    }

    /// Told to stop, and gone.
    pub fn stop(mut self) {
        self.process.signal("TERM");
        assert!(self.process.wait().success(), "a member told to stop exits with 0: {}", self.said());
    }

    /// Told to stop, and gone; all that it said.
    pub fn stop_and_hear(mut self) -> String {
        self.process.signal("TERM");
        assert!(self.process.wait().success(), "a member told to stop exits with 0: {}", self.said());
        // The pipe may still hold the end of it; whoever empties it then lets go of its half of this.
        wait_until("the pipe is empty", || Arc::strong_count(&self.log) == 1);
        self.said()
    }
}

/// The addresses of one member.
#[derive(Clone)]
pub struct Place {
    pub client: String,
    pub peer: String,
}

impl Place {
    pub fn new() -> Place {
        Place { client: format!("127.0.0.1:{}", free_port()), peer: format!("127.0.0.1:{}", free_port()) }
    }
}

/// Arguments from texts.
pub fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The operator's tools that there are: ours, and the real one if it is here.
pub fn tools() -> Vec<PathBuf> {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_meerkat"));
    std::iter::once(ours).chain(etcd_program("etcdctl")).collect()
}

/// The real tool if there is one, else ours.
pub fn tool() -> PathBuf {
    tools().pop().expect("there is ours")
}

pub fn ask(tool: &Path, args: &[&str]) -> Output {
    run(clean(Command::new(tool)).args(args), b"")
}
