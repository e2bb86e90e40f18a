//! `meerkat watch` against `etcdctl watch`, both at one real etcd; and what ours does beyond it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::{Running, collect, meerkat, run, stderr, wait_until};

/// A watch under way, and what it has said so far.
pub struct Watching {
    pub process: Running,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
}

impl Watching {
    pub fn start(tool: &mut Command, endpoints: &str, args: &[&str]) -> Watching {
        let tool = tool.args(["--endpoints", endpoints, "watch"]).args(args);
        let piped = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Running(piped.spawn().expect("the tool starts"));
        let out = collect(process.0.stdout.take().expect("piped"));
        let err = collect(process.0.stderr.take().expect("piped"));
        Watching { process, out, err }
    }

    pub fn out(&self) -> String {
        self.out.lock().expect("readable").clone()
    }

    pub fn err(&self) -> String {
        self.err.lock().expect("readable").clone()
    }

    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} is printed"), || self.out().contains(text));
    }

    fn type_in(&mut self, line: &str) {
        let stdin = self.process.0.stdin.as_mut().expect("piped");
        stdin.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }
}

pub fn on(endpoint: &str, args: &[&str]) {
    let output = run(meerkat().args(["--endpoints", endpoint]).args(args), b"");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
}

/// Revisions 2 to 5.
fn write_history(etcd: &Etcd) {
    on(&etcd.endpoint, &["put", "a", "1"]);
    on(&etcd.endpoint, &["put", "a", "zü\"\n<&>"]);
    on(&etcd.endpoint, &["del", "a"]);
    on(&etcd.endpoint, &["put", "ab", "last"]);
}

/// How a value looks in some output.
type Look = fn(&str) -> String;

fn plain(value: &str) -> String {
    value.to_owned()
}

fn hex(value: &str) -> String {
    value.bytes().map(|byte| format!("\\x{byte:02x}")).collect()
}

/// Both tools with the same arguments at the same server, until both have printed what the server
/// had and then each of two more puts, of values that were never there before.
fn compare(etcd: &Etcd, args: &[&str], look: Look, round: usize) {
    let theirs = Watching::start(&mut etcdctl(), &etcd.endpoint, args);
    let ours = Watching::start(&mut meerkat(), &etcd.endpoint, args);
    theirs.wait_for(&look("last"));
    ours.wait_for(&look("last"));
    for value in [format!("first{round}"), format!("second{round}")] {
        on(&etcd.endpoint, &["put", "ab", &value]);
        theirs.wait_for(&look(&value));
        wait_until("both have printed the same", || ours.out() == theirs.out());
    }
}

#[test]
fn a_watch_prints_what_etcdctl_prints() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    write_history(&etcd);
    let script =
        "echo ran \"$ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE.\"";
    let outputs: [(&[&str], Look); 6] = [
        (&["-w", "simple"], plain),
        (&["-w", "json"], |value| STANDARD.encode(value)),
        (&["-w", "fields"], |value| format!("\"Value\" : {value:?}\n\"Lease\"")),
        (&["-w", "protobuf"], plain),
        (&["--hex"], hex),
        (&["--", "sh", "-c", script], |value| format!("{value:?}.")),
    ];
    let mut compared = 0;
    for options in
        [&["a", "--prefix", "--rev", "2"][..], &["a", "b", "--rev=3", "--prev-kv"], &["ab", "--rev=2"]]
    {
        for (output, look) in outputs {
            compare(&etcd, &[options, output].concat(), look, compared);
            compared += 1;
        }
    }
    println!("{compared} watches compared with etcdctl");
}

#[test]
fn marks_of_progress_are_printed_as_by_etcdctl() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    write_history(&etcd);
    for format in ["simple", "json", "fields"] {
        let start = |mut tool: Command| Watching::start(&mut tool, &etcd.endpoint, &["-i", "-w", format]);
        let mut both = [start(etcdctl()), start(meerkat())];
        for watching in &mut both {
            watching.type_in("watch a --rev 2");
            wait_until("history is printed", || !watching.out().is_empty());
            watching.type_in("progress");
            watching.wait_for("progress notify: 5");
            watching.type_in("watch \"ab\" --rev=5 -- echo ran");
            watching.wait_for("ran");
            watching.type_in("progress");
            wait_until("both watches are told", || watching.out().matches("progress notify: 5").count() == 3);
            watching.type_in("");
            watching.type_in("bogus");
            watching.type_in("watch");
            watching.type_in("watch a b --prefix");
            drop(watching.process.0.stdin.take());
        }
        let [theirs, ours] = both.map(|mut watching| {
            let status = watching.process.wait().code();
            // Each watch of etcdctl prints by itself: their lines may come in any order.
            let mut lines: Vec<String> = watching.out().lines().map(str::to_owned).collect();
            lines.sort();
            (status, lines, watching.err())
        });
        assert_eq!(ours, theirs, "in {format}");
        assert_eq!(ours.0, Some(3));
    }
}

#[test]
fn a_typed_watch_can_be_canceled_by_its_number() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    let mut watching = Watching::start(&mut meerkat(), &etcd.endpoint, &["-i"]);
    watching.type_in("watch gone --rev 2");
    watching.type_in("watch kept --rev 2");
    on(&etcd.endpoint, &["put", "gone", "one"]);
    on(&etcd.endpoint, &["put", "kept", "two"]);
    watching.wait_for("one");
    watching.wait_for("two");
    watching.type_in("cancel 7");
    wait_until("it is said", || watching.err().contains("Invalid command cancel 7"));
    watching.type_in("cancel 1");
    watching.type_in("progress");
    watching.wait_for("progress notify");
    on(&etcd.endpoint, &["put", "gone", "three"]);
    on(&etcd.endpoint, &["put", "kept", "four"]);
    watching.wait_for("four");
    assert!(!watching.out().contains("three"), "{}", watching.out());
    assert_eq!(watching.out().matches("progress notify").count(), 1, "only one watch is left");
}

#[test]
fn refusals_and_ends_have_etcdctls_words_and_statuses() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    write_history(&etcd);
    type Variables<'a> = &'a [(&'a str, &'a str)];
    let rows: [(&[&str], Variables<'_>); 9] = [
        (&[], &[]),
        (&["a", "--"], &[]),
        (&["--", "echo"], &[]),
        (&["a", "b", "--prefix"], &[]),
        (&["b", "a"], &[]),
        (&["b", "a", "-w", "json"], &[]),
        (&["a"], &[("ETCDCTL_WATCH_KEY", "a")]),
        (&["a"], &[("ETCDCTL_WATCH_RANGE_END", "a")]),
        (&["ab", "--rev=2", "--", "sh", "-c", "kill -9 $$"], &[]),
    ];
    for (args, variables) in rows {
        let both = [etcdctl(), meerkat()].map(|mut tool| {
            tool.envs(variables.iter().copied());
            let output = run(tool.args(["--endpoints", &etcd.endpoint, "watch"]).args(args), b"");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
        });
        assert_eq!(both[1], both[0], "watch {args:?} with {variables:?}");
    }
    for command in [&["sh", "-c", "exit 3"][..], &["there-is-no-such-program", "x"], &["/there/is/none"]] {
        let both = [etcdctl(), meerkat()].map(|mut tool| {
            let tool =
                tool.args(["--endpoints", &etcd.endpoint, "watch", "ab", "--rev=2", "--"]).args(command);
            let output = run(tool, b"");
            (output.status.code(), stderr(&output))
        });
        assert_eq!(both[1], both[0], "watch ab -- {command:?}");
        assert_eq!(both[1].0, Some(1));
    }
}

#[test]
fn a_compacted_revision_ends_the_watch_and_says_where_to_go_on() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    write_history(&etcd);
    on(&etcd.endpoint, &["compaction", "4"]);
    for format in ["simple", "json", "fields"] {
        let both = [etcdctl(), meerkat()].map(|mut tool| {
            let args = ["watch", "a", "--rev", "2", "-w", format, "--endpoints", &etcd.endpoint];
            let output = run(tool.args(args), b"");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
        });
        let [theirs, ours] = both;
        assert_eq!((ours.0, ours.1), (theirs.0, theirs.1), "in {format}");
        assert!(ours.2.starts_with(theirs.2.trim_end()), "{} and {}", ours.2, theirs.2);
        assert!(ours.2.contains("--rev 4"), "{}", ours.2);
    }
}

#[test]
fn a_watch_goes_on_without_a_gap_when_its_member_was_killed() {
    if !etcd_is_here() {
        return;
    }
    let mut etcd = Etcd::start();
    let watching = Watching::start(&mut meerkat(), &etcd.endpoint, &["k", "--prefix", "--rev=2"]);
    on(&etcd.endpoint, &["put", "k1", "before"]);
    watching.wait_for("before");
    etcd.kill_and_restart();
    on(&etcd.endpoint, &["put", "k2", "after"]);
    watching.wait_for("after");
    assert_eq!(watching.out(), "PUT\nk1\nbefore\nPUT\nk2\nafter\n", "each event once");
    let said = watching.err();
    assert!(said.contains(&format!("lost {}", etcd.endpoint)), "{said}");
    assert!(said.contains(&format!("watching at {} from revision 3", etcd.endpoint)), "{said}");
}

#[test]
fn events_of_a_filtered_kind_are_left_out() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    write_history(&etcd);
    for (filter, expected) in [("put", "DELETE\na\n\n"), ("NODELETE", "PUT\nab\nlast\n")] {
        let args = ["a", "--prefix", "--rev=4", "--filter", filter];
        let watching = Watching::start(&mut meerkat(), &etcd.endpoint, &args);
        watching.wait_for(expected);
        on(&etcd.endpoint, &["put", "ab", "last"]);
        on(&etcd.endpoint, &["del", "ab"]);
        let more = if filter == "put" { "DELETE\nab\n\n" } else { "PUT\nab\nlast\nPUT\nab\nlast\n" };
        watching.wait_for(more);
        let wrong = if filter == "put" { "PUT" } else { "DELETE" };
        assert!(!watching.out().contains(wrong), "{}", watching.out());
        on(&etcd.endpoint, &["put", "ab", "last"]);
    }
}

#[test]
fn what_only_meerkat_can_tell_is_said_of_another_server() {
    if !etcd_is_here() {
        return;
    }
    let etcd = Etcd::start();
    for args in [&["watch", "k", "--since", "5m"][..], &["get", "k", "--times"]] {
        let output = run(meerkat().args(["--endpoints", &etcd.endpoint]).args(args), b"");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("needs a Meerkat server"), "{}", stderr(&output));
    }
    let output = run(meerkat().args(["--endpoints", &etcd.endpoint, "watch", "ls"]), b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("only Meerkat's members list them"), "{}", stderr(&output));
}
