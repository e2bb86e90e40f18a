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
    let differing: Vec<(String, String)> =
        hashes(&first).into_iter().zip(hashes(&second)).filter(|(one, other)| one != other).collect();
    assert!(differing.is_empty(), "not the same twice: {differing:#?}");
}

#[test]
fn hundreds_of_seeds_keep_every_promise() {
    let (text, passed) = run(250, 1_000, false);
    println!("{text}");
    assert!(passed, "{text}");
}
