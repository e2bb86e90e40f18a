//! Commands that stay until they are told to go, and checks that take their time.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::said::{Mask, masked};
use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::{Running, collect_to_the_end, meerkat, run, stderr, stdout, wait_until};

/// A command that stays, and what it has said so far.
pub struct Standing {
    process: Running,
    said: Arc<Mutex<String>>,
    complaints: Arc<Mutex<String>>,
    readers: [JoinHandle<()>; 2],
}

pub fn begin(mut tool: Command, endpoint: &str, args: &[&str]) -> Standing {
    tool.args(["--endpoints", endpoint]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A shell that runs the tests in the background has SIGINT ignored, and children inherit that.
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe { tool.pre_exec(heed_interrupts) };
    let mut process = Running(tool.spawn().expect("the program starts"));
    let (said, out) = collect_to_the_end(process.0.stdout.take().expect("piped"));
    let (complaints, errors) = collect_to_the_end(process.0.stderr.take().expect("piped"));
    Standing { process, said, complaints, readers: [out, errors] }
}

fn heed_interrupts() -> std::io::Result<()> {
    // SAFETY: the default action names no handler, so there is no function to keep alive.
    match unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Standing {
    pub fn said(&self) -> String {
        self.said.lock().expect("no writer panics").clone()
    }

    pub fn wait_for(&self, what: &str) {
        wait_until(&format!("{what:?} is said"), || self.said().contains(what));
    }

    /// Its exit status after that signal, and the words it left.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String, String) {
        self.process.signal(signal);
        self.left()
    }

    fn left(&mut self) -> (Option<i32>, String, String) {
        let status = self.process.wait();
        // The pipes are read by threads of their own, until nobody can write to them any more.
        wait_until("all it said is read", || self.readers.iter().all(JoinHandle::is_finished));
        (status.code(), self.said(), self.complaints.lock().expect("no writer panics").clone())
    }
}

pub fn say(endpoint: &str, args: &[&str]) -> String {
    let output = run(meerkat().args(["--endpoints", endpoint]).args(args), b"");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_lock_is_held_until_told_and_printed_as_by_etcdctl() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    for format in ["simple", "json", "fields"] {
        let held = |tool: Command| {
            let standing = begin(tool, &etcd.endpoint, &["lock", "l", "-w", format]);
            standing.wait_for(if format == "fields" { "Count" } else { "l" });
            let (status, said, _) = standing.end("INT");
            let revisions = |text: String| {
                let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
                let kept: Vec<String> = numbers.filter(|word| word.len() < 3).map(str::to_owned).collect();
                kept.len()
            };
            let shape = masked(&said, &etcd.endpoint, Mask::Server);
            let without_digits: String = shape.chars().filter(|c| !c.is_ascii_digit()).collect();
            (status, without_digits, revisions(shape))
        };
        assert_eq!(held(meerkat()), held(etcdctl()), "in {format}");
    }
    assert_eq!(say(&etcd.endpoint, &["get", "", "--from-key"]), "", "nobody is in line any more");
}

#[test]
fn tools_stand_in_one_line_and_the_next_comes_first_come_first_served() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    let theirs = begin(etcdctl(), &etcd.endpoint, &["lock", "l"]);
    theirs.wait_for("l/");
    let ours = begin(meerkat(), &etcd.endpoint, &["lock", "l"]);
    wait_until("ours waits", || {
        say(&etcd.endpoint, &["get", "l/", "--prefix", "--keys-only"]).matches("l/").count() == 2
    });
    assert_eq!(ours.said(), "");
    assert_eq!(theirs.end("INT").0, Some(0));
    ours.wait_for("l/");
    let third = begin(meerkat(), &etcd.endpoint, &["lock", "l"]);
    wait_until("a third waits", || {
        say(&etcd.endpoint, &["get", "l/", "--prefix", "--keys-only"]).matches("l/").count() == 2
    });
    let (status, _, complaint) = third.end("TERM");
    assert_eq!((status, complaint.trim()), (Some(1), "Error: interrupted while waiting for the lock"));
    assert_eq!(ours.end("TERM").0, Some(0));
}

#[test]
fn a_command_is_told_of_its_lock_and_stopped_when_the_lock_is_lost() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    let told = say(
        &etcd.endpoint,
        &["lock", "l", "--", "sh", "-c", "echo $ETCD_LOCK_KEY $ETCD_LOCK_REV $MEERKAT_LOCK_TOKEN"],
    );
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(words[0].starts_with("l/") && words[1] == "2" && words[2] == "2", "{told}");
    let killed = run(
        meerkat().args(["--endpoints", &etcd.endpoint, "lock", "l", "--", "sh", "-c", "kill -9 $$"]),
        b"",
    );
    assert_eq!((killed.status.code(), stderr(&killed).trim()), (Some(137), "Error: signal: killed"));

    let mut holder =
        begin(meerkat(), &etcd.endpoint, &["lock", "l", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    wait_until("the command runs", || holder.said().ends_with('\n'));
    let child = holder.said().trim().to_owned();
    say(&etcd.endpoint, &["del", "l/", "--prefix"]);
    let (status, _, complaint) = holder.left();
    let expected = "Error: lock lost: somebody deleted its key; the command was stopped";
    assert_eq!((status, complaint.trim()), (Some(1), expected));
    assert!(!std::path::Path::new("/proc").join(child).exists(), "the command has ended");

    let mut holder = begin(meerkat(), &etcd.endpoint, &["lock", "l", "--", "sleep", "60"]);
    wait_until("the lock is held", || say(&etcd.endpoint, &["get", "l/", "--prefix"]).contains("l/"));
    let lease = say(&etcd.endpoint, &["lease", "list"]).lines().nth(1).expect("one lease").to_owned();
    say(&etcd.endpoint, &["lease", "revoke", &lease]);
    let (status, _, complaint) = holder.left();
    assert_eq!(status, Some(1), "{complaint}");
    assert!(complaint.trim_end().ends_with("the command was stopped"), "{complaint}");
}

#[test]
fn elections_are_held_and_heard_across_tools() {
    if !etcd_is_here() {
        return;
    }
    for format in ["simple", "fields"] {
        // A server for each: a listener of etcdctl's leaves its lease behind, and leases are counted.
        let etcd = Etcd::start();
        let listeners = [etcdctl(), meerkat()]
            .map(|tool| begin(tool, &etcd.endpoint, &["elect", "-l", "e", "-w", format]));
        // A listener that comes late hears of the leader of that moment only.
        wait_until("both listen", || say(&etcd.endpoint, &["lease", "list"]).starts_with("found 2"));
        let first = begin(etcdctl(), &etcd.endpoint, &["elect", "e", "theirs"]);
        first.wait_for("theirs");
        listeners.iter().for_each(|listener| listener.wait_for("theirs"));
        let second = begin(meerkat(), &etcd.endpoint, &["elect", "e", "ours"]);
        wait_until("both campaign", || say(&etcd.endpoint, &["get", "e/", "--prefix"]).contains("ours"));
        assert_eq!(first.end("INT").0, Some(0));
        second.wait_for("ours");
        listeners.iter().for_each(|listener| listener.wait_for("ours"));
        let (status, said, _) = second.end("INT");
        assert_eq!(status, Some(0));
        assert_eq!(masked(&said, &etcd.endpoint, Mask::Chance), "e/ID\nours");
        let heard = listeners.map(|listener| {
            let (status, said, _) = listener.end("INT");
            let lines: Vec<String> = masked(&said, &etcd.endpoint, Mask::Server)
                .lines()
                // The first answer of etcdctl's counts everybody in line.
                .filter(|line| !line.starts_with("\"Count\"") && !line.starts_with("\"Revision\""))
                .map(str::to_owned)
                .collect();
            (status, lines)
        });
        assert_eq!(heard[1], heard[0], "in {format}");
    }
}

#[test]
fn a_command_runs_while_its_election_is_won_and_is_stopped_when_that_is_over() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    let told = say(
        &etcd.endpoint,
        &["elect", "e", "me", "--", "sh", "-c", "echo $ETCD_ELECTION_KEY $MEERKAT_ELECTION_TOKEN"],
    );
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(words[0].starts_with("e/") && words[1] == "2", "{told}");
    assert_eq!(say(&etcd.endpoint, &["get", "e/", "--prefix"]), "", "it has resigned");
    let at = ["--endpoints", &etcd.endpoint];
    let failing = run(meerkat().args(at).args(["elect", "e", "me", "--", "sh", "-c", "exit 7"]), b"");
    assert_eq!((failing.status.code(), stderr(&failing).trim()), (Some(7), "Error: exit status 7"));
    let refused = run(meerkat().args(at).args(["elect", "-l", "e", "--", "true"]), b"");
    assert_eq!(refused.status.code(), Some(128), "{}", stderr(&refused));

    let mut leader = begin(
        meerkat(),
        &etcd.endpoint,
        &["elect", "e", "first", "--", "sh", "-c", "echo $$; exec sleep 60"],
    );
    wait_until("the command runs", || leader.said().ends_with('\n'));
    let child = leader.said().trim().to_owned();
    let next = begin(meerkat(), &etcd.endpoint, &["elect", "e", "second", "--", "echo", "leads"]);
    wait_until("both stand", || say(&etcd.endpoint, &["get", "e/", "--prefix"]).contains("second"));
    assert_eq!(next.said(), "", "only one leads");
    let keys = say(&etcd.endpoint, &["get", "e/", "--prefix", "--keys-only", "--sort-by=CREATE"]);
    say(&etcd.endpoint, &["del", keys.lines().next().expect("the leader's")]);
    let (status, _, complaint) = leader.left();
    let expected = "Error: elect: leadership lost: somebody deleted its key; the command was stopped";
    assert_eq!((status, complaint.trim()), (Some(1), expected));
    assert!(!std::path::Path::new("/proc").join(child).exists(), "the command has ended");
    next.wait_for("leads");
}

#[test]
fn a_mirror_has_what_was_there_and_what_comes() {
    if !etcd_is_here() {
        return;
    }
    let (source, by_etcdctl, by_us) = (Etcd::start(), Etcd::start(), Etcd::start());
    for number in 0..5 {
        say(&source.endpoint, &["put", &format!("a/{number}"), "old"]);
    }
    say(&source.endpoint, &["put", "other", "stays"]);
    let mirrors = [(etcdctl(), &by_etcdctl), (meerkat(), &by_us)].map(|(tool, to)| {
        let args = ["make-mirror", &to.endpoint, "--prefix", "a/", "--dest-prefix", "z/", "--max-txn-ops=2"];
        // etcdctl 3.5.1 has no such flag yet.
        let known = if tool.get_program().to_string_lossy().contains("meerkat") { 7 } else { 6 };
        begin(tool, &source.endpoint, &args[..known])
    });
    let there = |etcd: &Etcd| say(&etcd.endpoint, &["get", "", "--from-key"]);
    for to in [&by_etcdctl, &by_us] {
        wait_until("all is copied", || there(to).matches("z/").count() == 5);
    }
    let txn = "\nput a/1 new\nput a/6 new\ndel a/2\nput a/7 7\ndel a/3\n\n\n";
    let done = run(meerkat().args(["--endpoints", &source.endpoint, "txn"]), txn.as_bytes());
    assert!(stdout(&done).starts_with("SUCCESS"));
    say(&source.endpoint, &["put", "a/last", "last"]);
    for to in [&by_etcdctl, &by_us] {
        wait_until("the last change is copied", || there(to).contains("z/last"));
    }
    assert_eq!(there(&by_us), there(&by_etcdctl));
    assert_eq!(there(&by_us), "z/0\nold\nz/1\nnew\nz/4\nold\nz/6\nnew\nz/7\n7\nz/last\nlast\n");
    drop(mirrors);

    // From a revision on: only what came then, and below its own prefix.
    let again = Etcd::start();
    let standing =
        begin(meerkat(), &source.endpoint, &["make-mirror", &again.endpoint, "--prefix=a/", "--rev=8"]);
    wait_until("the last change is copied", || there(&again).contains("a/last"));
    assert_eq!(there(&again), "a/1\nnew\na/6\nnew\na/7\n7\na/last\nlast\n");
    say(&source.endpoint, &["compaction", "9"]);
    drop(standing);
    let late = run(
        meerkat().args(["--endpoints", &source.endpoint, "make-mirror", &again.endpoint, "--rev=3"]),
        b"",
    );
    let expected = "Error: etcdserver: mvcc: required revision has been compacted";
    assert_eq!((late.status.code(), stderr(&late).trim()), (Some(1), expected));
}

#[test]
fn checks_load_a_cluster_judge_it_and_clean_up() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    let start = Instant::now();
    let args = ["check", "perf", "--duration=1s", "--auto-compact", "--auto-defrag"];
    let perf = run(meerkat().args(["--endpoints", &etcd.endpoint]).args(args), b"");
    let said = stdout(&perf);
    // Whether this machine is fast enough now is not the question; that the verdict is handed on is.
    let verdict = said.lines().last().unwrap_or_default();
    assert_eq!(perf.status.code(), Some(i32::from(verdict != "PASS")), "{said}\n{}", stderr(&perf));
    for line in ["Compacted with revision ", "Defragmented \"127.0.0.1:", "Throughput", "lowest request took"]
    {
        assert!(said.contains(line), "{line:?} in {said}");
    }
    // Without the flag it loads the cluster for a minute.
    assert!(start.elapsed() < Duration::from_secs(55), "too slow: {:?}", start.elapsed());
    let scale = say(&etcd.endpoint, &["check", "datascale"]);
    let mut lines = scale.lines();
    let begun = "Start data scale check for work load [10000 key-value pairs, 1024 bytes per key-value, 50 concurrent clients].";
    assert_eq!(lines.next(), Some(begun));
    let used = lines.next().unwrap_or_default();
    assert!(used.starts_with("PASS: Approximate system memory used : ") && used.ends_with(" MB."), "{scale}");
    assert_eq!(say(&etcd.endpoint, &["get", "", "--from-key", "--keys-only"]), "");
}

#[test]
fn downgrades_are_asked_for_as_by_the_newer_etcdctl() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    assert_eq!(
        say(&etcd.endpoint, &["downgrade", "validate", "3.4"]),
        "Downgrade validate success, cluster version 3.5.0\n"
    );
    let json = say(&etcd.endpoint, &["downgrade", "validate", "3.4", "-w", "json"]);
    assert!(json.starts_with("{\"header\":{") && json.ends_with(",\"version\":\"3.5.0\"}\n"), "{json}");
    let refusals: [(&[&str], i32, &str); 6] = [
        (&["downgrade", "validate", "3.3"], 1, "etcdserver: invalid downgrade target version"),
        (&["downgrade", "enable", "bogus"], 1, "etcdserver: wrong downgrade target version format"),
        (&["downgrade", "validate"], 128, "TARGET_VERSION not provided"),
        (&["downgrade", "enable", "3.4", "x"], 128, "too many arguments"),
        (&["downgrade", "validate", ""], 128, "target version not provided"),
        (&["downgrade", "cancel", "-w", "fields"], 4, "fields not supported as output format"),
    ];
    for (args, status, words) in refusals {
        let output = run(meerkat().args(["--endpoints", &etcd.endpoint]).args(args), b"");
        let expected = (Some(status), format!("Error: {words}\n"));
        assert_eq!((output.status.code(), stderr(&output)), expected, "{args:?}");
    }
}

#[test]
fn completions_are_scripts_that_shells_take() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(meerkat().args(["completion", shell]), b"");
        assert!(script.status.success(), "{}", stderr(&script));
        let script = stdout(&script);
        for word in ["grant-permission", "make-mirror", "write-out", "serve"] {
            assert!(script.contains(word), "{word} for {shell}");
        }
        if shell == "bash" {
            for (group, begun, completed) in [
                ("role", "gr", "grant-permission"),
                ("serve", "--listen-cl", "--listen-client-urls --listen-client-http-urls"),
                ("serve", "--command-t", ""),
                ("get", "--command-t", "--command-timeout"),
            ] {
                let program = format!(
                    "{script}\nCOMP_WORDS=(meerkat {group} {begun}); COMP_CWORD=2; \
                     _meerkat meerkat {begun} {group}; echo ${{COMPREPLY[@]}}"
                );
                let taken = run(Command::new("bash").args(["--norc", "-s"]), program.as_bytes());
                assert_eq!(stdout(&taken).trim(), completed, "{}", stderr(&taken));
            }
        }
    }
}

#[test]
fn help_about_a_command_is_the_help_of_the_command() {
    for (words, flag) in [
        (&["serve"][..], "--listen-client-urls"),
        (&["dev"], "--nodes"),
        (&["demo", "failover"], "--faults"),
        (&["bench"], "--clients"),
        (&["listwatch"], "--endpoints"),
        (&["gateway", "start"], "--listen-addr"),
        (&["kubeconfig"], "--help"),
        (&["migrate"], "--from"),
        (&["member", "list"], "--command-timeout"),
    ] {
        let about = stdout(&run(meerkat().arg("help").args(words), b""));
        let of = stdout(&run(meerkat().args(words).arg("--help"), b""));
        assert_eq!(about, of, "{words:?}");
        assert!(about.contains(flag), "{words:?}: {about}");
    }
    let serve = stdout(&run(meerkat().args(["help", "serve"]), b""));
    // A flag in the question does not start a member.
    assert_eq!(stdout(&run(meerkat().args(["help", "serve", "--name"]), b"")), serve);
    assert!(!serve.contains("--command-timeout"), "{serve}");
}
