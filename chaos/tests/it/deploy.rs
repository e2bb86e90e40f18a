//! What is shipped to deploy it is true: every metric that a dashboard or an alert names is one that a
//! running member serves, and the two ways to build an image build the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use serde_json::Value;

fn read(path: &str) -> String {
    let whole = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&whole).unwrap_or_else(|error| panic!("{}: {error}", whole.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("deploy/grafana/dashboards/meerkat.json")).expect("the dashboard is JSON")
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"].as_array().expect("a dashboard has panels").iter().collect()
}

/// The questions that a dashboard asks, with the titles of their panels.
fn asked(dashboard: &Value) -> Vec<(String, String)> {
    let mut asked = Vec::new();
    for panel in panels(dashboard) {
        let title = panel["title"].as_str().expect("a panel has a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            asked.push((title.to_owned(), target["expr"].as_str().expect("a target asks").to_owned()));
        }
    }
    asked
}

/// The alerts: each is one line `expr: …` below its name.
fn alerts() -> Vec<(String, String)> {
    let rules = read("deploy/prometheus/rules.yml");
    let mut alerts = Vec::new();
    let mut name = String::new();
    for line in rules.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            name = alert.to_owned();
        } else if let Some(expr) = line.strip_prefix("expr: ") {
            alerts.push((name.clone(), expr.to_owned()));
        }
    }
    alerts
}

/// The metrics that a question names: the words that are neither functions, nor operators, nor within
/// braces, brackets or quotes, nor labels to group by.
fn metrics_of(question: &str) -> BTreeSet<String> {
    const OPERATORS: &[&str] = &["by", "without", "on", "ignoring", "and", "or", "unless", "bool", "offset"];
    let mut names = BTreeSet::new();
    let mut rest = question;
    let mut grouping = false;
    while let Some(first) = rest.chars().next() {
        let closing = match first {
            '{' => Some('}'),
            '[' => Some(']'),
            '"' => Some('"'),
            '(' if grouping => Some(')'),
            _ => None,
        };
        if let Some(closing) = closing {
            let end =
                rest[1..].find(closing).unwrap_or_else(|| panic!("{first} is not closed in {question}"));
            rest = &rest[1 + end + 1..];
            grouping = false;
            continue;
        }
        if !first.is_ascii_alphabetic() {
            // A number may hold letters, as 1e9 does; none of ours does.
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.trim_start();
        grouping = matches!(word, "by" | "without" | "on" | "ignoring");
        if !OPERATORS.contains(&word) && !rest.starts_with('(') && !is_aggregation(word) {
            names.insert(word.to_owned());
        }
    }
    names
}

/// `sum by (label) (…)` has its brackets after the labels.
fn is_aggregation(word: &str) -> bool {
    matches!(word, "sum" | "max" | "min" | "avg" | "count" | "topk")
}

#[test]
fn the_metrics_of_a_question_are_found() {
    let check = |question: &str, expected: &[&str]| {
        assert_eq!(
            metrics_of(question).iter().map(String::as_str).collect::<Vec<_>>(),
            expected,
            "{question}"
        );
    };
    check("a_b{job=\"x\"} == 1", &["a_b"]);
    check(
        "histogram_quantile(0.99, sum by (member, le) (rate(a_bucket{job=\"x\"}[5m]))) > 0.1",
        &["a_bucket"],
    );
    check("rate(a[1m]) / rate(b[1m])", &["a", "b"]);
    check("max(a) == 0 or absent(b)", &["a", "b"]);
}

#[test]
fn every_metric_that_is_named_is_served_by_a_member() {
    let asked: Vec<(String, String)> = asked(&dashboard()).into_iter().chain(alerts()).collect();
    assert!(25 < asked.len(), "only {} questions were found", asked.len());
    run_test("deploy metrics", Duration::from_secs(60), async {
        let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
        let served = cluster.members()[0].endpoint().metrics(Duration::from_secs(5)).await?;
        // Made by the scraper, whether the member answers or not.
        let served: BTreeSet<&str> = served.names().chain(["up"]).collect();
        for (title, question) in &asked {
            for name in metrics_of(question) {
                assert!(served.contains(name.as_str()), "{title}: no member serves {name}");
            }
        }
        cluster.finish()
    });
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard = dashboard();
    let source = read("deploy/grafana/provisioning/datasources/prometheus.yml");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        let place =
            |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{title}: no {side}"));
        assert!(place("x") + place("w") <= 24, "{title} hangs over the edge");
        for column in place("x")..place("x") + place("w") {
            for row in place("y")..place("y") + place("h") {
                assert!(taken.insert((column, row)), "{title} lies on another panel");
            }
        }
        if panel["type"] != "row" {
            let uid = panel["datasource"]["uid"].as_str().expect("a source");
            assert!(source.contains(&format!("uid: {uid}\n")), "{title}: nobody provides the source {uid}");
            assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{title} asks nothing");
        }
    }
}

#[test]
fn every_alert_says_what_happened_and_what_to_do() {
    let rules = read("deploy/prometheus/rules.yml");
    let count = |what: &str| rules.lines().filter(|line| line.trim_start().starts_with(what)).count();
    let alerts = count("- alert: ");
    assert!(0 < alerts);
    for what in ["expr: ", "labels: { severity: ", "summary: ", "description: "] {
        assert_eq!(count(what), alerts, "{what}");
    }
}

#[test]
fn whatever_the_compose_file_mounts_or_scrapes_is_there() {
    let compose = read("docker-compose.yml");
    let mounted: Vec<&str> = compose.lines().filter_map(|line| line.trim().strip_prefix("- ./")).collect();
    assert_eq!(mounted.len(), 3, "{mounted:?}");
    for mount in mounted {
        let path = mount.split(':').next().expect("a path");
        let whole = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        assert!(whole.is_dir(), "{path} is mounted and not there");
    }
    let scraped = read("deploy/prometheus/prometheus.yml");
    for member in ["meerkat1", "meerkat2", "meerkat3"] {
        assert!(compose.contains(&format!("\n  {member}:\n")), "{member} is no service");
        assert!(scraped.contains(&format!("\"{member}:2379\"")), "{member} is not scraped");
    }
}

/// What an image says of itself, apart from its files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Face {
    user: String,
    workdir: String,
    expose: String,
    entrypoint: String,
    cmd: String,
}

impl Face {
    fn take(&mut self, instruction: &str) {
        let Some((name, value)) = instruction.trim().split_once(' ') else { return };
        let field = match name {
            "USER" => &mut self.user,
            "WORKDIR" => &mut self.workdir,
            "EXPOSE" => &mut self.expose,
            "ENTRYPOINT" => &mut self.entrypoint,
            "CMD" => &mut self.cmd,
            _ => return,
        };
        *field = value.to_owned();
    }
}

/// As a Dockerfile builds a stage, on top of `base`.
fn face_in_dockerfile(stage: &str) -> Face {
    let mut face = Face::default();
    let mut within = String::new();
    for line in read("Dockerfile").lines() {
        if let Some((_, name)) = line.strip_prefix("FROM ").and_then(|from| from.split_once(" AS ")) {
            within = name.to_owned();
        } else if within == "base" || within == stage {
            face.take(line);
        }
    }
    face
}

/// As `scripts/image` imports it. `binary` takes the place of the script's own variable.
fn face_in_script(binary: &str) -> Face {
    let script = read("scripts/image");
    let user = script.lines().find_map(|line| line.strip_prefix("readonly USER_ID=")).expect("a user");
    let called =
        script.lines().find(|line| line.starts_with(&format!("make_image {binary} "))).expect("a call");
    let mut face = Face::default();
    for line in script.lines().filter(|line| line.trim().starts_with("--change ")).chain([called]) {
        let Some((_, instruction)) = line.split_once("--change ") else { continue };
        let instruction = instruction.trim_end_matches(['\\', ' ']).trim_matches(['\'', '"']);
        let instruction =
            instruction.replace("\\\"", "\"").replace("$USER_ID", user).replace("$binary", binary);
        face.take(&instruction);
    }
    face
}

#[test]
fn both_ways_to_build_an_image_build_the_same() {
    for (stage, binary) in [("meerkat", "meerkat"), ("chaos", "meerkat-chaos")] {
        let face = face_in_dockerfile(stage);
        assert_eq!(face, face_in_script(binary), "{binary}");
        assert_eq!(face.entrypoint, format!("[\"/usr/local/bin/{binary}\"]"));
        assert!(!face.user.starts_with('0') && !face.user.is_empty(), "{binary} would run as root");
        let copied = format!("COPY --from=build /{binary} /usr/local/bin/{binary}");
        assert!(read("Dockerfile").contains(&copied), "{copied}");
    }
}
