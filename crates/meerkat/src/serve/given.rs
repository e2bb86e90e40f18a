//! What was said on the command line, in the environment or in a file, by flag name.
//!
//! A flag beats its variable, an empty variable counts as absent, a configuration file beats both, and
//! each value has the form its row in the table asks for. Reading is pure: the environment and the text
//! of the file are handed in.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::config_file;
use super::deprecated;
use super::flags::{self, Effect, FLAGS, Flag, Kind};
use crate::failure::Failure;

/// A command line that is not well-formed; as in etcd.
const STATUS_USAGE: u8 = 2;

/// The explicit values, and what the operator should hear about them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Given {
    values: BTreeMap<&'static str, String>,
    /// Flags as they were spelled, with or without `experimental-`.
    spelled: BTreeSet<String>,
    /// The configuration file that all of it is from.
    pub file: Option<String>,
    pub notices: Vec<String>,
}

impl Given {
    /// The value of a flag if one was given.
    pub fn explicit(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// Whether a flag was given in this spelling.
    pub fn is_spelled(&self, name: &str) -> bool {
        self.spelled.contains(name)
    }

    /// The value of a flag, given or not.
    ///
    /// # Panics
    /// If the table has no such flag.
    pub fn text(&self, name: &str) -> &str {
        let flag = flags::find(name).expect("callers name flags of the table");
        self.explicit(name).unwrap_or(flag.default)
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let text = self.text(name);
        text.parse().map_err(|_| format!("invalid value {text:?} for flag --{name}: value out of range"))
    }

    pub fn switch(&self, name: &str) -> bool {
        is_true(self.text(name)).expect("switches are checked as they are read")
    }
}

/// The clap command for `serve`, built from the table.
pub fn command() -> Command {
    let mut command = Command::new("serve")
        .about("Run one member of a cluster, with etcd's flags and ETCD_* variables")
        .args_override_self(true);
    for flag in FLAGS {
        command = command.arg(argument(flag, flag.name.to_owned()));
        if let Some(once) = flag.experimental() {
            command = command.arg(argument(flag, once).hide(true));
        }
    }
    command
}

fn argument(flag: &'static Flag, spelling: String) -> Arg {
    let help = match flag.default {
        "" => flag.help.to_owned(),
        default => format!("{} [default: {default}]", flag.help),
    };
    let arg = Arg::new(spelling.clone())
        .long(spelling)
        .help(help)
        .action(ArgAction::Set)
        .value_name(match flag.kind {
            Kind::Text => "TEXT",
            Kind::Number => "NUMBER",
            Kind::Time => "DURATION",
            Kind::Switch => "BOOL",
            Kind::Word(_) | Kind::Words(_) => "WORD",
        })
        .allow_hyphen_values(true)
        .hide_short_help(flag.effect != Effect::Used);
    match flag.kind {
        Kind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Text | Kind::Number | Kind::Time | Kind::Word(_) | Kind::Words(_) => arg,
    }
}

/// Go takes one dash or two. Gives `-name` of a known flag its second dash; everything else,
/// values included, stays as it is.
pub fn with_two_dashes(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let second_dash = |arg: OsString| {
        let Some(rest) = arg.to_str().and_then(|text| text.strip_prefix('-')) else { return arg };
        let name = rest.split('=').next().unwrap_or(rest);
        if flags::find(name).is_some() { OsString::from(format!("--{rest}")) } else { arg }
    };
    args.into_iter().map(second_dash).collect()
}

/// The variable that names a configuration file.
const CONFIG_FILE_VARIABLE: &str = "ETCD_CONFIG_FILE";

/// The configuration file to read in place of flags and variables, if one is named.
pub fn config_file(matches: &ArgMatches, environment: &[(String, String)]) -> Option<String> {
    let of_flag = matches.get_one::<String>("config-file").cloned();
    let variable = || environment.iter().find(|(name, _)| name == CONFIG_FILE_VARIABLE);
    of_flag.or_else(|| variable().map(|(_, value)| value.clone())).filter(|path| !path.is_empty())
}

/// What a configuration file says, or what is wrong with it.
pub fn read_file(text: &str, path: &str) -> Result<Given, Failure> {
    let mut given = Given::default();
    let refused = |reason: String| Failure::error(format!("{path}: {reason}"));
    for (flag, spelling, value) in config_file::settings(text).map_err(refused)? {
        accept(&mut given, flag, &value, &Origin::File(spelling))
            .map_err(|refusal| refused(refusal.reason))?;
    }
    // Only on the command line etcd wants both or neither.
    if given.values.contains_key("listen-client-urls")
        && let Some(flag) = flags::find("advertise-client-urls")
    {
        given.values.entry(flag.name).or_insert_with(|| flag.default.to_owned());
    }
    given.file = Some(path.to_owned());
    Ok(given)
}

/// Brings command line and environment together, or says what is wrong with them.
pub fn read(
    matches: &ArgMatches,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<Given, Failure> {
    let mut given = Given::default();
    for flag in FLAGS {
        for spelling in std::iter::once(flag.name.to_owned()).chain(flag.experimental()) {
            let Some(value) = matches.get_one::<String>(&spelling) else { continue };
            accept(&mut given, flag, value, &Origin::Flag(spelling)).map_err(|refusal| Failure {
                status: if refusal.is_malformed { STATUS_USAGE } else { crate::failure::STATUS_ERROR },
                message: refusal.reason,
            })?;
        }
    }
    for (variable, value) in environment {
        let Some(rest) = variable.strip_prefix("ETCD_") else { continue };
        let name = rest.to_lowercase().replace('_', "-");
        if name == "version" {
            given.notices.push(format!("cannot set special environment variable {variable}={value}"));
            continue;
        }
        let Some(flag) = flags::find(&name) else {
            given.notices.push(format!("unrecognized environment variable {variable}={value}"));
            continue;
        };
        if value.is_empty() {
            continue;
        }
        if given.is_spelled(&name) {
            given.notices.push(format!("{variable} is overruled by --{name}"));
        } else {
            let origin = Origin::Variable { variable, spelling: name };
            accept(&mut given, flag, &value, &origin).map_err(|refusal| Failure::error(refusal.reason))?;
        }
    }
    Ok(given)
}

/// Where a value was said, and how its flag was spelled there.
enum Origin {
    Flag(String),
    Variable { variable: String, spelling: String },
    File(String),
}

impl Origin {
    fn spelling(&self) -> &str {
        match self {
            Origin::Flag(spelling) | Origin::Variable { spelling, .. } | Origin::File(spelling) => spelling,
        }
    }

    /// In the words of Go, and so of etcd, where it is a flag.
    fn malformed(&self, flag: &Flag, value: &str) -> String {
        let why = match flag.kind {
            Kind::Word(_) => "invalid value".to_owned(),
            Kind::Words(known) => {
                let unknown = value.split(',').find(|word| !known.contains(word)).unwrap_or_default();
                format!("invalid value {unknown:?}")
            }
            Kind::Text | Kind::Number | Kind::Time | Kind::Switch => "parse error".to_owned(),
        };
        match (self, flag.kind) {
            (Origin::Flag(name), Kind::Switch) => {
                format!("invalid boolean value {value:?} for -{name}: {why}")
            }
            (Origin::Flag(name), _) => format!("invalid value {value:?} for flag -{name}: {why}"),
            (Origin::Variable { variable, .. }, _) => {
                format!("invalid value {value:?} for {variable}: {why}")
            }
            (Origin::File(name), _) => format!("invalid value {value:?} for {name}"),
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Flag(name) => write!(f, "--{name}"),
            Origin::Variable { variable: name, .. } | Origin::File(name) => f.write_str(name),
        }
    }
}

/// Why a value is not taken.
struct Refusal {
    /// It has not the form that its row asks for.
    is_malformed: bool,
    reason: String,
}

fn accept(given: &mut Given, flag: &'static Flag, value: &str, origin: &Origin) -> Result<(), Refusal> {
    if !is_well_formed(flag, value, origin) {
        return Err(Refusal { is_malformed: true, reason: origin.malformed(flag, value) });
    }
    if let Some(once) = flag.experimental().filter(|once| {
        let other = if origin.spelling() == flag.name { once } else { flag.name };
        given.is_spelled(other)
    }) {
        return Err(Refusal { is_malformed: false, reason: deprecated::both(flag.name, &once) });
    }
    let told = deprecated::notice(origin.spelling());
    match flag.effect {
        Effect::Used => {}
        Effect::NotYet(_) | Effect::Gone(_) if is_default(flag, value) => {}
        Effect::Gone(what) if !matches!(origin, Origin::Flag(_)) => {
            let notice = format!("{origin}={value}: {what} is not supported, and its clients are refused");
            given.notices.push(notice);
        }
        Effect::NotYet(what) | Effect::Gone(what) => {
            let reason = format!("{origin}={value}: {what} is not supported in this version");
            return Err(Refusal { is_malformed: false, reason });
        }
        // What etcd says of it says that, too.
        Effect::Ignored if flag.name == "v2-deprecation" => {}
        Effect::Ignored => given.notices.push(format!("{origin} has no effect here")),
    }
    given.notices.extend(told);
    given.spelled.insert(origin.spelling().to_owned());
    given.values.insert(flag.name, value.to_owned());
    Ok(())
}

fn is_well_formed(flag: &Flag, value: &str, origin: &Origin) -> bool {
    match flag.kind {
        // As in etcd, where the words are those of the command line.
        Kind::Word(_) | Kind::Words(_) if matches!(origin, Origin::File(_)) => true,
        Kind::Word(words) => words.contains(&value),
        Kind::Words(words) => value.split(',').all(|word| words.contains(&word)),
        Kind::Text => true,
        Kind::Number => value.parse::<i128>().is_ok(),
        Kind::Time => value == flag.default || crate::go_duration::parse(value).is_ok(),
        Kind::Switch => is_true(value).is_some(),
    }
}

fn is_default(flag: &Flag, value: &str) -> bool {
    match flag.kind {
        Kind::Switch => is_true(value) == is_true(flag.default),
        Kind::Number => value.parse::<i128>().ok() == flag.default.parse().ok(),
        Kind::Time => crate::go_duration::parse(value).ok() == crate::go_duration::parse(flag.default).ok(),
        // Several spellings of "nothing", as of a retention of `0` or `0s`.
        Kind::Word(_) | Kind::Words(_) => value == flag.default,
        Kind::Text => value == flag.default || (flag.default.starts_with('0') && is_zero(value)),
    }
}

fn is_zero(value: &str) -> bool {
    crate::go_duration::parse(value).is_ok_and(|duration| duration.is_zero())
}

/// Go's spellings of a boolean.
pub(super) fn is_true(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str], environment: &[(&str, &str)]) -> Result<Given, String> {
        let args = std::iter::once("serve").chain(args.iter().copied()).map(OsString::from);
        let matches = command().try_get_matches_from(with_two_dashes(args)).map_err(|e| e.to_string())?;
        read(&matches, environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())))
            .map_err(|failure| failure.message)
    }

    fn check_text(args: &[&str], environment: &[(&str, &str)], name: &str, expected: &str) {
        assert_eq!(given(args, environment).expect("good flags").text(name), expected);
    }

    fn check_refused(args: &[&str], environment: &[(&str, &str)], expected: &str) {
        let refusal = given(args, environment).expect_err("must be refused");
        assert!(refusal.contains(expected), "{refusal:?} should contain {expected:?}");
    }

    #[test]
    fn a_flag_is_written_in_any_of_the_ways_go_takes() {
        for args in [&["--name", "a"][..], &["--name=a"], &["-name", "a"], &["-name=a"]] {
            check_text(args, &[], "name", "a");
        }
        check_text(&["--name", "-x"], &[], "name", "-x");
        check_text(&["--quota-backend-bytes", "-1"], &[], "quota-backend-bytes", "-1");
    }

    #[test]
    fn the_last_of_two_equal_flags_counts() {
        check_text(&["--name", "a", "--name", "b"], &[], "name", "b");
    }

    #[test]
    fn a_switch_needs_no_value_and_takes_one_after_an_equals_sign() {
        let switch = |args: &[&str]| given(args, &[]).expect("good flags").switch("pre-vote");
        assert!(switch(&[]));
        assert!(switch(&["--pre-vote"]));
        assert!(!switch(&["--pre-vote=false"]));
        assert!(!switch(&["-pre-vote=0"]));
        let refusal = "invalid boolean value \"maybe\" for -pre-vote: parse error";
        check_refused(&["--pre-vote=maybe"], &[], refusal);
    }

    #[test]
    fn a_variable_stands_for_its_flag_and_yields_to_it() {
        check_text(&[], &[("ETCD_NAME", "e")], "name", "e");
        check_text(&[], &[("ETCD_NAME", "")], "name", "default");
        check_text(&["--name", "f"], &[("ETCD_NAME", "e")], "name", "f");
        check_text(
            &[],
            &[("ETCD_EXPERIMENTAL_SNAPSHOT_CATCHUP_ENTRIES", "7")],
            "snapshot-catchup-entries",
            "7",
        );
    }

    #[test]
    fn an_unknown_variable_is_told_and_an_unknown_flag_refused_with_the_nearest() {
        let told = given(&[], &[("ETCD_NAEM", "x"), ("HOME", "y")]).expect("a notice, not an error");
        assert_eq!(told.notices, ["unrecognized environment variable ETCD_NAEM=x"]);
        check_refused(&["--listen-client-url", "x"], &[], "--listen-client-urls");
    }

    #[test]
    fn what_would_change_behaviour_we_lack_is_refused_and_its_default_is_not() {
        check_refused(&["--proxy=on"], &[], "--proxy=on: the v2 proxy");
        check_refused(&["--enable-v2"], &[], "--enable-v2=true: the v2 API");
        check_text(&[], &[("ETCD_ENABLE_V2", "true")], "enable-v2", "true");
        check_refused(
            &["--discovery=x"],
            &[],
            "--discovery=x: v2 discovery (use --discovery-endpoints or --discovery-srv) is not",
        );
        check_text(&["--enable-v2=false"], &[], "enable-v2", "false");
        check_text(&["--corrupt-check-time=0"], &[], "corrupt-check-time", "0");
        check_text(&["--auto-compaction-retention=0s"], &[], "auto-compaction-retention", "0s");
        check_text(&["--cert-file="], &[], "cert-file", "");
    }

    #[test]
    fn a_flag_without_effect_says_so_in_one_line() {
        let told = given(&["--max-wals=3"], &[]).expect("accepted");
        assert_eq!(told.notices, ["--max-wals has no effect here"]);
        let told = given(&["--enable-pprof=true"], &[]).expect("accepted: there is nothing to profile so");
        assert_eq!(told.notices, ["--enable-pprof has no effect here"]);
    }

    #[test]
    fn a_number_is_a_number() {
        let refusal = "invalid value \"abc\" for flag -snapshot-count: parse error";
        check_refused(&["--snapshot-count", "abc"], &[], refusal);
        check_refused(
            &[],
            &[("ETCD_SNAPSHOT_COUNT", "abc")],
            "invalid value \"abc\" for ETCD_SNAPSHOT_COUNT: parse error",
        );
    }

    #[test]
    fn a_word_is_one_of_those_that_etcd_takes() {
        check_refused(
            &["--v2-deprecation=not-yet"],
            &[],
            "invalid value \"not-yet\" for flag -v2-deprecation: invalid value \"not-yet\"",
        );
        check_refused(&[], &[("ETCD_V2_DEPRECATION", "write-only,no")], "invalid value \"no\"");
        check_refused(
            &["--initial-cluster-state=old"],
            &[],
            "invalid value \"old\" for flag -initial-cluster-state: invalid value",
        );
        check_text(&["--v2-deprecation=write-only,gone"], &[], "v2-deprecation", "write-only,gone");
        let file = read_file("v2-deprecation: not-yet\n", "c.yml").expect("etcd does not look at it there");
        assert_eq!(file.text("v2-deprecation"), "not-yet");
    }

    #[test]
    fn a_flag_in_both_its_spellings_is_refused_wherever_they_are() {
        let refusal = "cannot set --experimental-warning-apply-duration and --warning-apply-duration at the same \
                       time, please use --warning-apply-duration only";
        let (once, now) = ("--experimental-warning-apply-duration=1s", "--warning-apply-duration=1s");
        check_refused(&[once, now], &[], refusal);
        check_refused(&[now, once], &[], refusal);
        check_refused(&[once], &[("ETCD_WARNING_APPLY_DURATION", "1s")], refusal);
        check_refused(
            &[],
            &[("ETCD_WARNING_APPLY_DURATION", "1s"), ("ETCD_EXPERIMENTAL_WARNING_APPLY_DURATION", "1s")],
            refusal,
        );
        let both = "experimental-warning-apply-duration: 1s\nwarning-apply-duration: 1s\n";
        assert!(read_file(both, "c.yml").expect_err("must be refused").message.contains(refusal));
        check_refused(
            &["--experimental-warning-unary-request-duration=1s", "--warning-unary-request-duration=1s"],
            &[],
            "both --experimental-warning-unary-request-duration and --warning-unary-request-duration flags are set. \
             Use only --warning-unary-request-duration",
        );
        check_text(
            &[once],
            &[("ETCD_EXPERIMENTAL_WARNING_APPLY_DURATION", "2s")],
            "warning-apply-duration",
            "1s",
        );
        check_refused(&["--experimental-name=a"], &[], "--experimental-name");
    }

    #[test]
    fn what_etcd_calls_deprecated_is_told_in_its_words() {
        let told = |args: &[&str]| given(args, &[]).expect("good flags").notices;
        let v2 = "--v2-deprecation is deprecated and scheduled for removal in v3.8. The default value is \
                  enforced, ignoring user input.";
        assert_eq!(told(&["--v2-deprecation=gone"]), [v2]);
        let snapshots = "--max-snapshots is deprecated in 3.6 and will be decommissioned in 3.8.";
        assert_eq!(told(&["--max-snapshots=10"]), ["--max-snapshots has no effect here", snapshots]);
        let check = "--experimental-corrupt-check-time is deprecated in v3.6 and will be decommissioned in v3.7. \
                     Use '--corrupt-check-time' instead.";
        assert_eq!(told(&["--experimental-corrupt-check-time=1m"]), [check]);
        assert_eq!(told(&["--corrupt-check-time=1m"]), <[&str; 0]>::default());
    }

    #[test]
    fn what_is_malformed_on_the_command_line_is_a_matter_of_usage() {
        let status = |args: &[&str], environment: &[(&str, &str)]| {
            let args = std::iter::once("serve").chain(args.iter().copied());
            let matches = command().try_get_matches_from(args).expect("known flags");
            let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            read(&matches, environment).expect_err("must be refused").status
        };
        assert_eq!(status(&["--heartbeat-interval=abc"], &[]), 2);
        assert_eq!(status(&["--warning-apply-duration=abc"], &[]), 2);
        assert_eq!(status(&["--enable-v2"], &[]), 1);
        assert_eq!(status(&[], &[("ETCD_HEARTBEAT_INTERVAL", "abc")]), 1);
    }

    #[test]
    fn a_file_stands_for_all_and_its_faults_are_named() {
        let file = |text| read_file(text, "c.yml").map_err(|failure| failure.message);
        let given = file("name: a\nheartbeat-interval: 50\n").expect("a good file");
        assert_eq!((given.text("name"), given.text("heartbeat-interval")), ("a", "50"));
        assert_eq!(
            file("heartbeat-interval: often"),
            Err("c.yml: invalid value \"often\" for heartbeat-interval".to_owned())
        );
        assert!(file("enable-v2: true").is_ok());
        assert!(file("proxy: 'on'").is_err());
        let both = file("listen-client-urls: http://127.0.0.1:1").expect("a file as etcd takes it");
        assert_eq!(both.text("advertise-client-urls"), "http://localhost:2379");
        assert!(file("experimental-snapshot-catch-up-entries: 7").is_ok());
        assert!(file("naem: a").expect_err("unknown").contains("naem"));
    }

    #[test]
    fn the_file_is_named_by_flag_or_variable() {
        let named = |args: &[&str], value: &str| {
            let matches = command().try_get_matches_from(args).expect("known flags");
            config_file(&matches, &[("ETCD_CONFIG_FILE".to_owned(), value.to_owned())])
        };
        assert_eq!(named(&["serve", "--config-file=f"], "v").as_deref(), Some("f"));
        assert_eq!(named(&["serve"], "v").as_deref(), Some("v"));
        assert_eq!(named(&["serve"], ""), None);
    }

    #[test]
    fn every_default_has_the_form_its_row_asks_for() {
        for flag in FLAGS {
            if let Effect::Used = flag.effect {
                let origin = Origin::Flag(flag.name.to_owned());
                let accepted = accept(&mut Given::default(), flag, flag.default, &origin);
                assert!(accepted.is_ok(), "{}", flag.name);
            }
        }
    }
}
