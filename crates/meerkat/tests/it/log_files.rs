//! Logs that go to files: where, how they are rotated, and what etcd refuses of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::member::{Member, Place, ask, links, tool};
use crate::process::{clean, etcd_program, run, stderr, stdout, wait_until};

/// What makes one member, at that place.
fn arguments(place: &Place) -> Vec<String> {
    let (client, peer) = (format!("http://{}", place.client), format!("http://{}", place.peer));
    [
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
    ]
    .to_vec()
}

fn start(directory: &Path, place: &Place, more: &[&str]) -> Member {
    let mut arguments = arguments(place);
    arguments.extend(more.iter().map(ToString::to_string));
    Member::start(directory, &arguments)
}

fn put(place: &Place, key: &str) {
    let at = format!("--endpoints={}", place.client);
    let output = ask(&tool(), &[&at, "--command-timeout=60s", "put", key, "value"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// All lines of a file are whole.
fn check_lines(text: &str) {
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        let object: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(object.is_ok_and(|object| object["msg"].is_string()), "no line of the log: {line:?}");
    }
}

#[test]
fn lines_go_to_every_file_and_are_appended() {
    let directory = tempfile::tempdir().expect("a directory");
    let (place, absolute) = (Place::new(), directory.path().join("absolute.log"));
    let outputs = format!("--log-outputs=relative.log,{},stderr", absolute.display());
    let member = start(directory.path(), &place, &[&outputs]).ready();
    member.stop();
    let first = text(&absolute);
    assert!(first.contains("ready to serve client requests"), "{first}");
    check_lines(&first);
    assert_eq!(text(&directory.path().join("relative.log")), first);
    // By a file of settings, without stderr, and behind what is there.
    let settings = directory.path().join("settings.yml");
    let urls = arguments(&place).into_iter().filter_map(|argument| {
        let (name, value) = argument.strip_prefix("--")?.split_once('=')?;
        Some(format!("{name}: {value}\n"))
    });
    let lines = "log-outputs: [relative.log, stdout]\nlog-format: console\nlog-level: warn\nmax-wals: 3\n";
    std::fs::write(&settings, format!("{}{lines}", urls.collect::<String>())).expect("written");
    let mut member = start(directory.path(), &place, &["--config-file=settings.yml"]);
    wait_until("it serves", || {
        ask(&tool(), &[&format!("--endpoints={}", place.client), "get", "key"]).status.success()
    });
    member.process.signal("TERM");
    assert!(member.process.wait().success());
    assert!(!member.logged("loaded server configuration"), "nothing was asked to go to stderr");
    let both = text(&directory.path().join("relative.log"));
    let second = both.strip_prefix(first.as_str()).expect("what was there is still there");
    assert!(second.contains("WARN") && !second.contains("ready to serve"), "{second}");
}

fn backups(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("there").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().contains("member-2")).collect();
    found.sort_unstable();
    found
}

/// With the system's own tool: what is compressed here is for others to read.
fn unpacked(path: &Path) -> String {
    let output = run(Command::new("gzip").arg("-dc").arg(path), b"");
    assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
    stdout(&output)
}

#[test]
fn a_log_is_rotated_without_a_line_lost_or_split() {
    let directory = tempfile::tempdir().expect("a directory");
    let (place, logs) = (Place::new(), directory.path().join("made/for/it"));
    let member = start(
        directory.path(),
        &place,
        &[
            "--log-outputs=made/for/it/member.log,stderr",
            "--log-level=debug",
            "--enable-log-rotation",
            r#"--log-rotation-config-json={"maxsize": 1, "compress": true, "localtime": true}"#,
        ],
    )
    .ready();
    // At this level each request leaves some lines.
    let at = format!("--endpoints={}", place.client);
    wait_until("three backups are compressed", || {
        let load = ["bench", "put", &at, "--total=2000", "--clients=8"];
        let output = run(crate::process::meerkat().args(load), b"");
        assert!(output.status.success(), "{}", stderr(&output));
        backups(&logs).iter().filter(|path| path.extension().is_some_and(|end| end == "gz")).count() >= 3
    });
    let said = member.stop_and_hear();
    let mut whole = String::new();
    for path in backups(&logs) {
        // It may have been told to stop before the backup was gone that it had compressed.
        let is_gz = path.extension().is_some_and(|end| end == "gz");
        if is_gz && path.with_extension("").exists() || path.extension().is_some_and(|end| end == "part") {
            continue;
        }
        let part = if is_gz { unpacked(&path) } else { text(&path) };
        assert!(part.len() <= 1 << 20, "{} holds {}", path.display(), part.len());
        check_lines(&part);
        whole.push_str(&part);
    }
    whole.push_str(&text(&logs.join("member.log")));
    assert!(whole == said, "the files hold {} bytes, stderr got {}", whole.len(), said.len());
}

#[test]
fn old_backups_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("member.log");
    let old = ["member-2020-01-01T00-00-00.000.log", "member-2021-01-01T00-00-00.000.log.gz"];
    for name in old {
        std::fs::write(directory.path().join(name), "old").expect("written");
    }
    std::fs::write(&log, "x\n".repeat(1 << 19)).expect("written");
    let place = Place::new();
    let member = start(
        directory.path(),
        &place,
        &[
            "--log-outputs=member.log,stderr",
            "--enable-log-rotation=true",
            r#"--log-rotation-config-json={"maxsize": 1, "maxbackups": 2, "maxage": 10000}"#,
        ],
    )
    .ready();
    wait_until("the oldest is gone", || !directory.path().join(old[0]).exists());
    let kept = backups(directory.path());
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(text(&kept[1]), "x\n".repeat(1 << 19), "the full log was set aside as it was");
    assert!(text(&log).starts_with('{'), "and a new one begun");
    member.stop();
}

#[test]
fn a_full_disk_under_the_log_stops_no_member() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = Place::new();
    let member = start(directory.path(), &place, &["--log-outputs=/dev/full,good.log", "--log-level=debug"]);
    wait_until("it serves", || text(&directory.path().join("good.log")).contains("ready to serve"));
    put(&place, "key");
    let said = member.stop_and_hear();
    let complaints = said.matches("cannot write to the log /dev/full: No space left on device").count();
    assert_eq!(complaints, 1, "told once: {said}");
    check_lines(&text(&directory.path().join("good.log")));
}

/// The exit status, and what is said.
fn refusal(program: &Path, directory: &Path, place: &Place, more: &[&str]) -> (Option<i32>, String) {
    let mut command = clean(Command::new(program));
    command.current_dir(directory).args(
        // Only ours knows no fsync at all; both must come to their end before it matters.
        arguments(place).iter().filter(|argument| !argument.contains("fsync")),
    );
    let output = run(command.args(more).stdin(Stdio::null()), b"");
    let said = stderr(&output) + &stdout(&output);
    (output.status.code(), said.replace("\\\"", "\""))
}

#[test]
fn what_makes_no_log_is_refused_in_etcds_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let programs = [Some(links(directory.path()).join("etcd")), etcd_program("etcd")];
    let place = Place::new();
    let single = "--log-outputs requires a single file path when --log-rotate-config-json is defined";
    let json = |text: &str| format!("--log-rotation-config-json={text}");
    let rows: [(&[&str], &str); 10] = [
        (&["--log-outputs=default,stdout"], "multi logoutput for \"default\" is not supported yet"),
        (
            &["--log-outputs=no/such/x.log"],
            "open sink \"no/such/x.log\": open no/such/x.log: no such file or directory",
        ),
        (&["--log-outputs=bin"], "open sink \"bin\": open bin: is a directory"),
        (&["--log-outputs=foo://x"], "open sink \"foo://x\": no sink found for scheme \"foo\""),
        (&["--enable-log-rotation"], single),
        (&["--enable-log-rotation", "--log-outputs=stderr"], single),
        (&["--enable-log-rotation", "--log-outputs=a.log,b.log"], single),
        (
            &["--enable-log-rotation", "--log-outputs=a.log", &json("")],
            "improperly formatted log rotation config: unexpected end of JSON input",
        ),
        (
            &["--enable-log-rotation", "--log-outputs=a.log", &json("{nope")],
            "improperly formatted log rotation config: ",
        ),
        (
            &["--enable-log-rotation", "--log-outputs=a.log", &json(r#"{"maxsize":"x"}"#)],
            "invalid log rotation config: json: cannot unmarshal string into Go struct field logRotationConfig.maxsize \
             of type int",
        ),
    ];
    for (more, expected) in rows {
        for program in programs.iter().flatten() {
            let (status, said) = refusal(program, directory.path(), &place, more);
            assert_eq!(status, Some(1), "{} {more:?}: {said}", program.display());
            assert!(said.contains(expected), "{} {more:?}: {said}", program.display());
        }
    }
    assert!(!directory.path().join("default.etcd").exists(), "refused before anything was made");
}
