//! `get --times` at a real member: when keys were created and changed, in each format.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::dev::Dev;
use crate::process::{meerkat, run, stderr, stdout};

fn said(endpoint: &str, args: &[&str]) -> String {
    let output = run(meerkat().args(["--endpoints", endpoint]).args(args), b"");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// `2026-11-16T07:00:00.000Z` as `date` of this machine writes it.
fn date_text(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut date = std::process::Command::new("date");
    let output = run(date.args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S.000Z"]), b"");
    stdout(&output).trim().to_owned()
}

#[test]
fn times_are_shown_in_each_format_and_only_when_asked_for() {
    let dev = Dev::start("1");
    let at = dev.endpoints[0].as_str();
    let before = date_text(SystemTime::now());
    said(at, &["put", "k", "one"]);
    std::thread::sleep(Duration::from_millis(50));
    said(at, &["put", "k", "two"]);
    said(at, &["put", "other", "x"]);
    let after = date_text(SystemTime::now() + Duration::from_secs(1));

    let simple = said(at, &["get", "k", "--times"]);
    let lines: Vec<&str> = simple.lines().collect();
    assert_eq!(lines[..2], ["k", "two"]);
    let created = lines[2].strip_prefix("created ").expect("a line about the creation");
    let changed = lines[3].strip_prefix("changed ").expect("a line about the last change");
    // The text orders as time does.
    assert!(before.as_str() <= created && created < changed && changed <= after.as_str(), "{simple}");

    let json = said(at, &["get", "k", "--times", "-w", "json"]);
    let times = format!("\"create_time\":\"{created}\",\"mod_time\":\"{changed}\"}}],\"count\":1}}");
    assert!(json.contains(&times), "{json}");
    let fields = said(at, &["get", "k", "--times", "-w", "fields"]);
    assert!(
        fields.contains(&format!("\"CreateTime\" : \"{created}\"\n\"ModTime\" : \"{changed}\"\n")),
        "{fields}"
    );
    let table = said(at, &["get", "", "--prefix", "--times", "-w", "table"]);
    assert!(
        table.contains(
            &format!("| \"k\" | \"two\" | 2 | {created} | {changed} |")
                .replace("\"k\" |", "    \"k\" |")
                .replace("2 |", "      2 |")
        ),
        "{table}"
    );
    assert_eq!(table.lines().count(), 6, "{table}");

    assert_eq!(said(at, &["get", "k"]), "k\ntwo\n", "nothing is added unasked");
    let newest =
        said(at, &["get", "", "--prefix", "--times", "--limit=1", "--sort-by=modify", "--order=descend"]);
    assert!(newest.starts_with("other\nx\ncreated "), "{newest}");
    assert_eq!(said(at, &["get", "absent", "--times"]), "");
}

#[test]
fn times_that_nobody_can_tell_are_refused() {
    for extra in [
        &["--rev=2"][..],
        &["--count-only", "-w", "fields"],
        &["--print-value-only"],
        &["-w", "protobuf"],
        &["--consistency=s"],
    ] {
        let output = run(meerkat().args(["get", "k", "--times"]).args(extra), b"");
        assert_eq!(output.status.code(), Some(128), "{extra:?}");
        assert!(stderr(&output).contains("--times cannot be combined with"), "{}", stderr(&output));
    }
}
