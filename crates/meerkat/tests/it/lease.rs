//! `lease` against the real tool, on a real etcd and on a member of ours: same bytes, same exit status.
//!
//! Both tools talk to the same server. Ids of leases, and how many seconds are left, are made equal
//! before comparing.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bench::start;
use crate::etcd::{etcd_is_here, etcdctl};
use crate::process::{Running, collect, meerkat, run, stderr, stdout, wait_until};

const TTL: i64 = 500;

#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: Option<i32>,
    stdout: String,
    error: String,
}

fn ask(mut tool: Command, endpoint: &str, args: &[&str]) -> Said {
    let output = run(tool.args(["--endpoints", endpoint]).args(args), b"");
    let complaint = stderr(&output).lines().rfind(|line| line.starts_with("Error: ")).map(str::to_owned);
    Said {
        status: output.status.code(),
        stdout: masked(&stdout(&output)),
        error: complaint.unwrap_or_default(),
    }
}

/// Long numbers are ids, and the last seconds below the time to live are what is left of it.
fn masked(text: &str) -> String {
    let mask = |word: &str| match word.trim_end_matches('s').parse::<i64>() {
        Ok(left) if (TTL - 20..TTL).contains(&left) => "LEFT".to_owned(),
        _ if word.len() >= 16 && word.chars().all(|c| c.is_ascii_hexdigit()) => "ID".to_owned(),
        _ => word.to_owned(),
    };
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word.push(c);
        } else {
            out.push_str(&mask(&std::mem::take(&mut word)));
            out.push(c);
        }
    }
    out + &mask(&word)
}

fn compare(endpoint: &str, args: &[&str]) {
    let theirs = ask(etcdctl(), endpoint, args);
    let ours = ask(meerkat(), endpoint, args);
    assert_eq!(ours, theirs, "meerkat {args:?}");
}

fn grant(endpoint: &str, ttl: &str) -> String {
    let output = run(meerkat().args(["lease", "grant", ttl, "--endpoints", endpoint]), b"");
    let said = stdout(&output);
    let id = said.split(' ').nth(1).unwrap_or_else(|| panic!("no id in {said:?}: {}", stderr(&output)));
    id.to_owned()
}

/// Etcd's endpoint and ours, both alone.
fn on_both(test: impl Fn(&str)) {
    if !etcd_is_here() {
        return;
    }
    let mut ours = meerkat();
    ours.arg("serve");
    let etcd = crate::process::etcd_program("etcd").expect("checked before");
    for command in [crate::process::clean(Command::new(etcd)), ours] {
        let server = start(command);
        wait_until("the member keeps the time of leases", || keeps_time(&server.endpoint));
        test(&server.endpoint);
    }
}

/// A member that is just taking the lead gives the leases it finds a second more, and shows it.
fn keeps_time(endpoint: &str) -> bool {
    let lease = grant(endpoint, "500");
    let told = ask(meerkat(), endpoint, &["lease", "timetolive", &lease]);
    let revoked = ask(meerkat(), endpoint, &["lease", "revoke", &lease]);
    assert_eq!(revoked.stdout, "lease ID revoked\n");
    told.stdout.ends_with("remaining(LEFT)\n")
}

const FORMATS: [&str; 5] = ["simple", "json", "fields", "protobuf", "table"];

#[test]
fn lease_commands_print_what_etcdctl_prints() {
    on_both(|endpoint| {
        compare(endpoint, &["lease", "list"]);
        compare(endpoint, &["lease", "list", "-w", "json"]);
        let lease = grant(endpoint, "500");
        let flag = format!("--lease={lease}");
        let put = run(meerkat().args(["put", "a key", "v", &flag, "--endpoints", endpoint]), b"");
        assert_eq!(stdout(&put), "OK\n");
        for format in FORMATS {
            let compare = |args: &[&str]| compare(endpoint, &[args, &["-w", format]].concat());
            compare(&["lease", "timetolive", &lease]);
            compare(&["lease", "timetolive", &lease, "--keys"]);
            compare(&["lease", "timetolive", &lease, "--keys", "--hex"]);
            compare(&["lease", "timetolive", "1234", "--keys"]);
            compare(&["lease", "timetolive", "--", "-1"]);
            compare(&["lease", "keep-alive", "--once", &lease]);
            compare(&["lease", "list", "extra"]);
            if format != "table" {
                compare(&["lease", "grant", "600"]);
                compare(&["lease", "keep-alive", "1234"]);
                compare(&["lease", "keep-alive", "--once", "1234"]);
            }
        }
        compare(endpoint, &["get", "a key", "-w", "fields"]);
        for format in ["simple", "json", "fields"] {
            let pair = [grant(endpoint, "500"), grant(endpoint, "500")];
            let revoke = |tool, lease| ask(tool, endpoint, &["lease", "revoke", lease, "-w", format]);
            assert_eq!(revoke(meerkat(), &pair[0]), revoke(etcdctl(), &pair[1]), "in {format}");
        }
    });
}

#[test]
fn lease_refusals_have_etcdctls_words_and_statuses() {
    let commands: [&[&str]; 20] = [
        &["lease", "grant"],
        &["lease", "grant", "abc"],
        &["lease", "grant", "1", "2"],
        &["lease", "grant", "9000000001"],
        &["lease", "grant", "99999999999999999999"],
        &["lease", "grant", "0"],
        &["lease", "grant", "--", "-5"],
        &["lease", "grant", "60", "-w", "table"],
        &["lease", "revoke"],
        &["lease", "revoke", "xyz"],
        &["lease", "revoke", "0"],
        &["lease", "revoke", "1234"],
        &["lease", "revoke", "ffffffffffffffffffff"],
        &["lease", "timetolive"],
        &["lease", "timetolive", "x\"y"],
        &["lease", "timetolive", "1", "2"],
        &["lease", "keep-alive"],
        &["lease", "keep-alive", "xyz"],
        &["put", "a", "b", "--lease=xyz"],
        &["put", "a", "b", "--lease=1234"],
    ];
    on_both(|endpoint| {
        for command in commands {
            compare(endpoint, command);
        }
    });
}

#[test]
fn a_format_that_cannot_show_an_answer_is_refused_before_anything_is_done() {
    on_both(|endpoint| {
        let lease = grant(endpoint, "500");
        for format in ["table", "protobuf"] {
            let refused = ask(meerkat(), endpoint, &["lease", "revoke", &lease, "-w", format]);
            assert_eq!(refused.status, Some(4));
            assert_eq!(refused.error, format!("Error: {format} not supported as output format"));
        }
        let alive = ask(meerkat(), endpoint, &["lease", "timetolive", &lease]);
        assert_eq!(alive.stdout, "lease ID granted with TTL(500s), remaining(LEFT)\n");
    });
}

#[test]
fn keep_alive_keeps_a_lease_past_its_time_and_says_when_it_is_gone() {
    on_both(|endpoint| {
        let lease = grant(endpoint, "6");
        let start = Instant::now();
        let mut command = meerkat();
        command.args(["lease", "keep-alive", &lease, "--endpoints", endpoint]).stdout(Stdio::piped());
        let mut keeper = Running(command.spawn().expect("the binary starts"));
        let said = collect(keeper.0.stdout.take().expect("piped"));
        let renewals = || said.lock().expect("no writer panics").matches("keepalived with TTL(6)\n").count();
        wait_until("it is renewed past its time", || {
            4 <= renewals() && Duration::from_millis(6_500) < start.elapsed()
        });
        let alive = ask(meerkat(), endpoint, &["lease", "timetolive", &lease]);
        assert!(alive.stdout.starts_with("lease ID granted with TTL(6s), remaining("), "{alive:?}");
        let revoked = ask(meerkat(), endpoint, &["lease", "revoke", &lease]);
        assert_eq!(revoked.stdout, "lease ID revoked\n");
        assert!(keeper.wait().success());
        let ran = start.elapsed();
        let end = format!("lease {lease} expired or revoked.\n");
        wait_until("the end is told", || said.lock().expect("no writer panics").ends_with(&end));
        // One at once, then one each two seconds or a little sooner, for as long as this machine took.
        let most = 2 + usize::try_from(ran.as_millis() / 1_600).expect("a short test");
        assert!(renewals() <= most, "one each two seconds: {} in {ran:?}", renewals());
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_etcdctls_status() {
    if !etcd_is_here() {
        return;
    }
    // Of the other commands, etcdctl waits for ever.
    for args in [&["lease", "grant", "10"][..], &["lease", "revoke", "1"]] {
        compare("127.0.0.1:1", &[args, &["--command-timeout=500ms"]].concat());
    }
    for args in
        [&["lease", "timetolive", "1"][..], &["lease", "list"], &["lease", "keep-alive", "--once", "1"]]
    {
        let said = ask(meerkat(), "127.0.0.1:1", &[args, &["--command-timeout=500ms"]].concat());
        assert_eq!(
            (said.status, said.error.as_str()),
            (Some(2), "Error: context deadline exceeded"),
            "{args:?}"
        );
    }
}
