//! What `meerkat watch` does at Meerkat's own members beyond what etcd's can.

use std::time::{Duration, Instant};

use crate::dev::Dev;
use crate::process::{meerkat, run, signal, stderr, stdout, wait_until};
use crate::watch::{Watching, on};

fn watch(endpoints: &str, args: &[&str]) -> Watching {
    Watching::start(&mut meerkat(), endpoints, args)
}

/// The members that serve a watch of these.
fn watched(endpoints: &[&str]) -> Vec<String> {
    let output = run(meerkat().args(["--endpoints", &endpoints.join(","), "watch", "ls"]), b"");
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = stdout(&output);
    rows.lines().filter_map(|row| row.split(", ").next()).map(str::to_owned).collect()
}

/// A member that is paused until this is dropped.
struct Paused(u32);

impl Paused {
    fn new(id: u32) -> Paused {
        signal(id, "STOP");
        Paused(id)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

#[test]
fn watch_resumes_within_3_s_of_its_member_being_paused() {
    let dev = Dev::start("3");
    let leads = |endpoint: &str| {
        let status = run(meerkat().args(["--endpoints", endpoint, "endpoint", "status"]), b"");
        stdout(&status).split(", ").nth(4) == Some("true")
    };
    let (leaders, followers): (Vec<&str>, Vec<&str>) =
        dev.endpoints.iter().map(String::as_str).partition(|endpoint| leads(endpoint));
    let leader = leaders.first().expect("one of them leads");
    let watching = watch(&followers.join(","), &["k", "--prefix", "--rev=2"]);
    on(leader, &["put", "k1", "before"]);
    watching.wait_for("before");
    let served_by = watched(&followers).pop().expect("one of them serves the watch");
    let at = dev.endpoints.iter().position(|endpoint| *endpoint == served_by).expect("a member");
    let paused = Paused::new(dev.ids[at]);
    let began = Instant::now();
    on(leader, &["put", "k2", "after"]);
    watching.wait_for("after");
    let took = began.elapsed();
    println!("the watch resumed after {took:?}");
    assert_eq!(watching.out(), "PUT\nk1\nbefore\nPUT\nk2\nafter\n", "each event once");
    assert!(watching.err().contains(&format!("lost {served_by}")), "{}", watching.err());
    assert!(took < Duration::from_secs(3), "too slow: {took:?}");
    drop(paused);
}

#[test]
fn a_watch_goes_on_at_another_member_when_its_own_is_killed() {
    let dev = Dev::start("3");
    let all: Vec<&str> = dev.endpoints.iter().map(String::as_str).collect();
    let watching = watch(&all.join(","), &["k", "--prefix", "--rev=2"]);
    on(&all.join(","), &["put", "k1", "before"]);
    watching.wait_for("before");
    let served_by = watched(&all).pop().expect("one of them serves the watch");
    let at = all.iter().position(|endpoint| **endpoint == served_by).expect("a member");
    let rest: Vec<&str> = all.iter().copied().filter(|endpoint| **endpoint != served_by).collect();
    let rest = rest.join(",");
    signal(dev.ids[at], "KILL");
    let put = || run(meerkat().args(["--endpoints", &rest, "put", "k2", "after"]), b"").status.success();
    wait_until("a write is accepted", put);
    watching.wait_for("after");
    // A put that timed out may have happened too, so the second may be there more than once.
    assert!(watching.out().starts_with("PUT\nk1\nbefore\nPUT\nk2\nafter\n"), "{}", watching.out());
    assert_eq!(watching.out().matches("before").count(), 1);
    let said = watching.err();
    assert!(said.contains(&format!("lost {served_by}")), "{said}");
    assert!(said.contains("from revision 3"), "{said}");
}

#[test]
fn a_watch_begins_some_time_ago_and_says_if_that_is_no_longer_kept() {
    let dev = Dev::start("3");
    let at = dev.endpoints[0].as_str();
    on(at, &["put", "k", "old"]);
    // The watch begins between the two, however long its program takes to start.
    std::thread::sleep(Duration::from_secs(6));
    on(at, &["put", "k", "new"]);
    let recent = watch(at, &["k", "--since", "5s"]);
    let all = watch(at, &["k", "--since", "1h"]);
    recent.wait_for("new");
    all.wait_for("new");
    assert_eq!(recent.out(), "PUT\nk\nnew\n");
    assert_eq!(all.out(), "PUT\nk\nold\nPUT\nk\nnew\n");
    assert_eq!(all.err(), "", "everything is kept");
    on(at, &["put", "k", "newer"]);
    on(at, &["compaction", "4"]);
    let cut = watch(at, &["k", "--since", "1h"]);
    cut.wait_for("newer");
    assert_eq!(cut.out(), "PUT\nk\nnewer\n");
    assert!(
        cut.err().contains("history does not reach back 1h0m0s: it begins with revision 4 of 20"),
        "{}",
        cut.err()
    );
}

#[test]
fn marks_of_progress_come_as_often_as_asked_for() {
    let dev = Dev::start("3");
    let at = dev.endpoints[0].as_str();
    on(at, &["put", "unwatched", "x"]);
    let watching = watch(at, &["k", "--progress-interval=1s"]);
    wait_until("two marks", || watching.out().matches("progress notify: 2\n").count() >= 2);
}

#[test]
fn watchers_are_listed_with_who_watches_what() {
    let dev = Dev::start("3");
    let at = dev.endpoints[0].as_str();
    let list = |format: &str| {
        let output = run(meerkat().args(["--endpoints", at, "watch", "ls", "-w", format]), b"");
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(list("simple"), "");
    on(at, &["put", "k1", "seen"]);
    let watching = watch(at, &["k", "--prefix", "--rev=2", "--slow=coalesce"]);
    watching.wait_for("seen");
    let level = || list("simple").contains(", \"k\"..\"l\", synced, 3, 0, 0.000, ");
    wait_until("the watcher is level", level);
    let row = list("simple");
    assert!(row.starts_with(&format!("{at}, 127.0.0.1:")), "{row}");
    let json = list("json");
    assert!(json.starts_with(&format!("[{{\"endpoint\":\"{at}\",\"member_id\":")), "{json}");
    assert!(json.contains("\"key\":\"aw==\",\"range_end\":\"bA==\",\"state\":\"synced\""), "{json}");
    assert!(json.contains("\"slow\":\"coalesce\""), "{json}");
    assert!(list("table").contains("| NEXT REVISION |"), "{}", list("table"));
    assert!(list("fields").contains("\"State\" : \"synced\"\n\"NextRevision\" : 3\n"), "{}", list("fields"));
    // The key of that name can be watched all the same.
    on(at, &["put", "ls", "a key"]);
    watch(at, &["--watch-key", "ls", "--rev=2"]).wait_for("a key");
}
