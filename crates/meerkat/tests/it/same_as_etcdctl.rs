//! The operator's tool against the real one: same commands, same bytes, same exit status.
//!
//! Two real etcd servers with equal ids stand side by side. Commands that change something go to
//! one by `etcdctl` and to the other by `meerkat`; commands that ask a server about itself go to
//! the same one by both. Only ports and durations are made equal before comparing.

use std::process::Command;

use crate::etcd::{Etcd, etcd_is_here, etcdctl};
use crate::process::{meerkat, run, stderr, stdout};

/// What a tool said, made comparable.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    status: Option<i32>,
    stdout: String,
    error: String,
}

fn ask(tool: &mut Command, server: &Etcd, args: &[&str], input: &str) -> Said {
    let output = run(tool.args(["--endpoints", &server.endpoint]).args(args), input.as_bytes());
    // etcdctl's client library logs JSON lines of its own; the tool's word is the line that begins so.
    let complaint = stderr(&output).lines().rfind(|line| line.starts_with("Error: ")).map(str::to_owned);
    // Not the digits alone: an id may have them in it.
    let port = format!(":{}", server.endpoint.rsplit(':').next().expect("host:port"));
    Said {
        status: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).replace(&port, ":PORT!"),
        error: complaint.unwrap_or_default(),
    }
}

struct Pair {
    theirs: Etcd,
    ours: Etcd,
    compared: usize,
}

impl Pair {
    /// Both tools, each on its own server.
    fn check(&mut self, args: &[&str], input: &str) {
        let theirs = ask(&mut etcdctl(), &self.theirs, args, input);
        let ours = ask(&mut meerkat(), &self.ours, args, input);
        assert_eq!(ours, theirs, "meerkat {args:?} < {input:?}");
        self.compared += 1;
    }

    /// Both tools on one server, for what a server says about itself.
    fn check_on_one(&mut self, args: &[&str]) {
        let theirs = ask(&mut etcdctl(), &self.theirs, args, "");
        let ours = ask(&mut meerkat(), &self.theirs, args, "");
        assert_eq!(ours, theirs, "meerkat {args:?}");
        self.compared += 1;
    }
}

fn with_pair(test: impl FnOnce(&mut Pair)) {
    if !etcd_is_here() {
        return;
    }
    let mut pair = Pair { theirs: Etcd::start(), ours: Etcd::start(), compared: 0 };
    test(&mut pair);
    println!("{} commands compared with etcdctl", pair.compared);
}

const FORMATS: [&str; 4] = ["simple", "json", "fields", "protobuf"];

#[test]
fn key_value_commands_print_what_etcdctl_prints() {
    with_pair(|pair| {
        pair.check(&["put", "foo", "bar"], "");
        pair.check(&["put", "foo", "bar2", "--prev-kv"], "");
        pair.check(&["put", "from-stdin"], "a value\nwith two lines");
        pair.check(&["put", "--", "dash", "-v"], "");
        pair.check(&["put", "unicode", "zü\"\\\n\t\u{feff}"], "");
        for format in FORMATS {
            for hex in ["--hex=false", "--hex"] {
                pair.check(&["put", "foo", format, "--prev-kv", "-w", format, hex], "");
                pair.check(&["put", "foo", "x", "-w", format, hex], "");
                pair.check(&["get", "foo", "-w", format, hex], "");
                pair.check(&["get", "unicode", "-w", format, hex], "");
                pair.check(&["get", "", "--prefix", "--limit", "2", "-w", format, hex], "");
                pair.check(&["get", "f", "--from-key", "--keys-only", "-w", format, hex], "");
                pair.check(&["get", "a", "z", "--order", "DESCEND", "-w", format, hex], "");
                pair.check(&["get", "a", "z", "--sort-by", "modify", "-w", format, hex], "");
                pair.check(&["get", "absent", "-w", format, hex], "");
                pair.check(&["get", "foo", "--rev", "2", "-w", format, hex], "");
                pair.check(&["del", "foo", "fop", "--prev-kv", "-w", format, hex], "");
                pair.check(&["del", "absent", "-w", format, hex], "");
            }
        }
        pair.check(&["get", "", "--prefix", "--print-value-only"], "");
        pair.check(&["get", "", "--prefix", "--keys-only", "--print-value-only"], "");
        pair.check(&["get", "", "--from-key", "--consistency", "s"], "");
        pair.check(&["get", "f", "--prefix", "--count-only", "-w", "fields"], "");
        pair.check(&["get", "--prefix=false", "unicode", "extra", "arguments"], "");
        pair.check(&["compaction", "3"], "");
        pair.check(&["compaction", "4", "--physical", "-w", "json"], "");
        pair.check(&["del", "", "--prefix"], "");
    });
}

#[test]
fn transactions_print_what_etcdctl_prints() {
    let texts = [
        "\n\n\n",
        "mod(\"foo\") > \"0\"\n\nput foz qq\nget foo\nget foo --prefix\ndel nope\n\nget foo2\n\n",
        "mod(\"foo\") = \"99\"\nver(\"a\") < \"1\"\ncreate(\"b\") = \"0\"\nval(\"c\") = \"\\x00zz\"\nvalue(\"c\") != \"x\"\n\n\
         put foo qq\n\nget foo2 --prefix --keys-only\nput foo 1 --prev-kv\ndel foo2 --prev-kv\n\
         get foo --count-only\nget foo --print-value-only\n\n",
        "\nput \"a b\" \"c\\td\"\nput --prev-kv dash -- -b\n\n\n",
        // Refused, by the tool or by the server.
        "foo\n",
        "mod(foo) > \"0\"\n\n",
        "create(\"b\")=\"0\"\n\n",
        "mod(\"foo\") > 0\n\n\n\n",
        "mod(\"foo\") > \"abc\"\n\n\n\n",
        "bog(\"foo\") > \"0\"\n\n\n\n",
        "\nbogus x\n\n",
        "\nget foo --bogus\n\n",
        "\nget\n\n\n",
        "\nput a\n\n\n",
        "\nget a\n",
        "",
        "\nput a 1\nput a 2\n\n\n",
        "\nput a b --lease 5\n\n\n",
    ];
    with_pair(|pair| {
        pair.check(&["put", "foo", "1"], "");
        for text in texts {
            for format in FORMATS {
                pair.check(&["txn", "-w", format], text);
            }
            pair.check(&["txn", "-i"], text);
        }
    });
}

#[test]
fn refusals_have_etcdctls_words_and_statuses() {
    let commands: [&[&str]; 29] = [
        &["get"],
        &["get", "a", "--prefix", "--from-key"],
        &["get", "a", "b", "--prefix"],
        &["get", "a", "--keys-only", "--count-only"],
        &["get", "a", "--count-only"],
        &["get", "a", "--print-value-only", "-w", "json"],
        &["get", "a", "--rev", "1000"],
        &["get", ""],
        &["get", "a", "--order", "bogus"],
        &["get", "a", "--sort-by", "bogus"],
        &["get", "a", "--consistency", "x"],
        &["get", "a", "-w", "table"],
        &["get", "a", "-w", "bogus"],
        &["put"],
        &["put", "k"],
        &["put", "k", "v", "--ignore-value"],
        &["put", "k", "v", "--lease", "zz"],
        &["put", "k", "v", "--lease", "123"],
        &["put", "k", "--ignore-value"],
        &["put", "k", "v", "--ignore-lease"],
        &["put", "", "v"],
        &["del"],
        &["del", "a", "b", "c"],
        &["del", ""],
        &["compaction"],
        &["compaction", "abc"],
        &["compaction", "99999"],
        &["txn", "extra"],
        &["endpoint", "status", "-w", "protobuf"],
    ];
    with_pair(|pair| {
        for command in commands {
            pair.check(command, "");
        }
    });
}

#[test]
fn questions_about_members_print_what_etcdctl_prints() {
    with_pair(|pair| {
        pair.check(&["put", "a", "b"], "");
        for format in ["simple", "json", "fields", "table"] {
            for hex in ["--hex=false", "--hex"] {
                pair.check_on_one(&["member", "list", "-w", format, hex]);
                pair.check_on_one(&["endpoint", "status", "-w", format, hex]);
                pair.check_on_one(&["endpoint", "hashkv", "-w", format, hex]);
            }
            pair.check_on_one(&["endpoint", "hashkv", "--rev", "2", "-w", format]);
            pair.check_on_one(&["endpoint", "status", "--cluster", "-w", format]);
        }
        pair.check_on_one(&["member", "list", "-w", "protobuf"]);
        pair.check_on_one(&["endpoint", "hashkv", "--rev", "9999"]);
    });
}

#[test]
fn health_prints_what_etcdctl_prints_but_for_the_time_taken() {
    with_pair(|pair| {
        for format in ["simple", "json", "fields", "table"] {
            let shape = |tool: &mut Command| {
                let said = ask(tool, &pair.theirs, &["endpoint", "health", "-w", format], "");
                (said.status, without_durations(&said.stdout), said.error)
            };
            assert_eq!(shape(&mut meerkat()), shape(&mut etcdctl()), "in {format}");
            pair.compared += 1;
        }
    });
}

#[test]
fn an_endpoint_that_is_not_there_is_said_and_costs_the_others_nothing() {
    with_pair(|pair| {
        let two = format!("127.0.0.1:1,{}", pair.theirs.endpoint);
        for what in ["status", "health", "hashkv"] {
            let args = ["endpoint", what, "--endpoints", &two, "--command-timeout=3s"];
            let ours = run(meerkat().args(args), b"");
            let theirs = run(etcdctl().args(args), b"");
            assert_eq!(ours.status.code(), theirs.status.code(), "{what}");
            assert_eq!(without_durations(&stdout(&ours)), without_durations(&stdout(&theirs)), "{what}");
            let complaints = |text: String| -> Vec<String> {
                let lines =
                    text.lines().filter(|line| !line.starts_with('{') && !line.starts_with("cannot connect"));
                lines.map(str::to_owned).collect()
            };
            assert_eq!(complaints(stderr(&ours)), complaints(stderr(&theirs)), "{what}");
            pair.compared += 1;
        }
        let get = run(meerkat().args(["get", "k", "--endpoints", &two]), b"");
        assert!(get.status.success(), "the other endpoint answers: {}", stderr(&get));
    });
}

/// Replaces every duration by a word, and boxes' padding by nothing.
fn without_durations(text: &str) -> String {
    let is_duration = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && (word.ends_with("ms") || word.ends_with("µs") || word.ends_with('s'))
    };
    let words = text.split(|c: char| c.is_whitespace() || c == '"' || c == ',');
    let kept = words.filter(|word| !word.is_empty() && !word.starts_with("+-"));
    kept.map(|word| if is_duration(word) { "TIME" } else { word }).collect::<Vec<_>>().join(" ")
}
