//! Seeds through the program itself: each of them keeps every promise, and each is the same twice.

use std::process::Command;

/// What `meerkat-sim run` printed, and whether all seeds passed.
fn run(seeds: u64, from: u64, each: bool) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meerkat-sim"));
    command.args(["run", "--seeds", &seeds.to_string(), "--from", &from.to_string()]);
    if each {
        command.arg("--each");
    }
    let output = command.output().expect("the simulation starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    (String::from_utf8_lossy(&output.stdout).into_owned() + &errors, output.status.success())
}

/// The lines that name a seed's hashes, in the order of seeds: they end in any order.
fn hashes(text: &str) -> Vec<String> {
    let mut lines: Vec<String> =
        text.lines().filter(|line| line.contains(" trace ")).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn fifty_seeds_are_the_same_twice() {
    let (first, passed) = run(50, 1, true);
    assert!(passed, "{first}");
    let (second, _) = run(50, 1, true);
    assert_eq!(hashes(&first).len(), 50, "{first}");
    assert_eq!(hashes(&first), hashes(&second), "not the same twice");
}

#[test]
fn hundreds_of_seeds_keep_every_promise() {
    let (text, passed) = run(250, 1_000, false);
    println!("{text}");
    assert!(passed, "{text}");
    // Or it would have proved nothing.
    for (most_of, least) in [("operations", 10_000), ("watch events", 10_000), ("messages", 100_000)] {
        assert!(least < total(&text, most_of), "{most_of}: {text}");
    }
    let faults = text.split("faults: ").nth(1).expect("they are told");
    for fault in ["clock jump", "deaf", "kill", "mute", "partition", "pause", "power loss", "slow and lossy"]
    {
        assert!(faults.contains(fault), "no {fault}: {text}");
    }
}

/// These seeds have no faults but members and disks that stall for less than 700 ms, alone or all at once,
/// and a run is over with the term that it began with.
#[test]
fn no_stall_shorter_than_700_ms_leads_to_an_election() {
    let (text, passed) = run(16, 1 << 32, false);
    println!("{text}");
    assert!(passed, "{text}");
    let faults = text.split("faults: ").nth(1).expect("they are told");
    assert!(faults.contains("disk stall") && faults.contains("pause"), "{text}");
}

/// The number that stands before some words.
fn total(text: &str, words: &str) -> u64 {
    let before = text.split(&format!(" {words}")).next().expect("there is a first part");
    let number = before.rsplit(' ').next().expect("there is a last word");
    number.parse().unwrap_or_else(|_| panic!("no number of {words} in {text}"))
}
