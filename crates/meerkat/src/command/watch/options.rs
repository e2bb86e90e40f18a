//! What is to be watched, from the words of a command line or of a line typed in.

use std::ffi::OsString;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use meerkat_client::watch::WatchResponses;
use meerkat_client::{Client, Key, KeyRange, Revision};

use crate::command::key_range;
use crate::failure::Failure;
use crate::go_duration;

/// Options of one watch.
#[derive(Args, Clone, Debug)]
pub struct WatchOptions {
    /// <key> [range_end]
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,
    /// Watch all keys with this prefix
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prefix: bool,
    /// Watch all keys that are greater than or equal to the given key using byte compare
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    from_key: bool,
    /// Begin with the events of this revision; 0: with those to come
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    rev: i64,
    /// Begin with the events of this last while, as 5m (Meerkat only)
    #[arg(long)]
    since: Option<String>,
    /// Also tell what each key was before the event
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prev_kv: bool,
    /// Ask for marks of progress while nothing happens
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    progress_notify: bool,
    /// Leave out events of this kind: put (NOPUT) or delete (NODELETE)
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
    /// After --: a command to run for each event
    #[arg(last = true, value_name = "COMMAND")]
    exec: Vec<OsString>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Revision(i64),
    Ago(Duration),
}

/// What a watch asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    pub range: KeyRange,
    /// 0 for what is to come.
    pub revision: i64,
    pub previous: bool,
    pub marks: bool,
    no_put: bool,
    no_delete: bool,
}

impl WatchSpec {
    pub fn start(self, client: &Client) -> WatchResponses {
        let mut watch = client.watch(self.range);
        if self.revision != 0 {
            watch = watch.from(Revision::new(self.revision));
        }
        if self.previous {
            watch = watch.previous();
        }
        if self.marks {
            watch = watch.marks();
        }
        if self.no_put {
            watch = watch.only_deletes();
        }
        if self.no_delete {
            watch = watch.only_puts();
        }
        watch.start_responses()
    }
}

/// A watch to make, once its start is known as a revision.
#[derive(Debug)]
pub struct Wanted {
    pub spec: WatchSpec,
    pub start: Start,
    pub exec: Vec<OsString>,
}

/// The key and range end that the environment gives.
#[derive(Clone, Debug, Default)]
pub struct FromEnvironment {
    key: Option<OsString>,
    range_end: Option<OsString>,
}

impl FromEnvironment {
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<FromEnvironment, Failure> {
        let given = |name: &str| variable(name).filter(|text| !text.is_empty());
        let (key, range_end) = (given("ETCDCTL_WATCH_KEY"), given("ETCDCTL_WATCH_RANGE_END"));
        match (&key, &range_end) {
            (None, Some(end)) => Err(Failure::bad_arguments(format!(
                "ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END={end:?}"
            ))),
            _ => Ok(FromEnvironment { key, range_end }),
        }
    }

    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }
}

impl WatchOptions {
    /// Whether nothing but keys is given.
    pub fn is_bare(&self) -> bool {
        let switches = [self.prefix, self.from_key, self.prev_kv, self.progress_notify];
        !switches.contains(&true)
            && self.rev == 0
            && self.since.is_none()
            && self.filter.is_empty()
            && self.exec.is_empty()
    }

    /// Checks everything that can be checked before a server is asked.
    pub fn wanted(&self, environment: &FromEnvironment) -> Result<Wanted, Failure> {
        let keys = self.key_words(environment)?;
        if self.prefix && keys.len() == 2 {
            return Err(Failure::bad_arguments("`range_end` and `--prefix` are mutually exclusive"));
        }
        let range = key_range::read(&keys, self.prefix, self.from_key)?;
        // Servers take an empty key for the first there can be.
        let key = if range.key.is_empty() { Bytes::from_static(b"\0") } else { range.key };
        let key = Key::new(key).expect("not empty");
        let mut spec = WatchSpec {
            range: KeyRange::from_wire(key, range.range_end),
            revision: 0,
            previous: self.prev_kv,
            marks: self.progress_notify,
            no_put: false,
            no_delete: false,
        };
        self.filter.iter().try_for_each(|name| filter(name, &mut spec))?;
        Ok(Wanted { spec, start: self.start()?, exec: self.exec.clone() })
    }

    fn key_words(&self, environment: &FromEnvironment) -> Result<Vec<OsString>, Failure> {
        let FromEnvironment { key, range_end } = environment;
        let keys = match key {
            None => self.keys.clone(),
            Some(_) if !self.keys.is_empty() => {
                return Err(Failure::bad_arguments(
                    "bad number of arguments (found conflicting environment key)",
                ));
            }
            Some(key) => std::iter::once(key).chain(range_end).cloned().collect(),
        };
        if (1..=2).contains(&keys.len()) {
            Ok(keys)
        } else {
            Err(Failure::bad_arguments("bad number of arguments"))
        }
    }

    fn start(&self) -> Result<Start, Failure> {
        let Some(since) = &self.since else {
            return Ok(Start::Revision(self.rev));
        };
        if self.rev != 0 {
            return Err(Failure::bad_arguments(
                "`--since` and `--rev` cannot be set at the same time, choose one",
            ));
        }
        let ago = go_duration::parse(since);
        ago.map(Start::Ago).map_err(|reason| {
            Failure::bad_arguments(format!("invalid argument {since:?} for \"--since\" flag: {reason}"))
        })
    }
}

fn filter(name: &str, spec: &mut WatchSpec) -> Result<(), Failure> {
    match name.to_lowercase().as_str() {
        "put" | "noput" => spec.no_put = true,
        "delete" | "nodelete" => spec.no_delete = true,
        _ => return Err(Failure::bad_arguments(format!("bad filter {name:?}: expected put or delete"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(no_binary_name = true, args_override_self = true)]
    struct Line {
        #[command(flatten)]
        options: WatchOptions,
    }

    fn wanted(args: &[&str], environment: &[(&str, &str)]) -> Result<Wanted, String> {
        let options = Line::try_parse_from(args).expect("known flags").options;
        let variable =
            |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
        let environment = FromEnvironment::read(variable).map_err(|failure| failure.message)?;
        options.wanted(&environment).map_err(|failure| failure.message)
    }

    fn check(args: &[&str], environment: &[(&str, &str)], key: &str, end: &str, exec: &[&str]) {
        let wanted = wanted(args, environment).expect("good arguments");
        assert_eq!(
            (wanted.spec.range.first().as_bytes(), &wanted.spec.range.range_end()[..]),
            (key.as_bytes(), end.as_bytes())
        );
        assert_eq!(wanted.exec, exec.iter().map(OsString::from).collect::<Vec<_>>(), "{args:?}");
    }

    #[test]
    fn keys_come_from_words_or_the_environment_and_a_command_from_behind_the_dashes() {
        let (key, both) = (
            [("ETCDCTL_WATCH_KEY", "foo")],
            [("ETCDCTL_WATCH_KEY", "foo"), ("ETCDCTL_WATCH_RANGE_END", "fop")],
        );
        check(&["foo"], &[], "foo", "", &[]);
        check(&["foo", "--rev", "1", "bar"], &[], "foo", "bar", &[]);
        check(&["foo", "--prefix"], &[], "foo", "fop", &[]);
        check(&["foo", "--from-key"], &[], "foo", "\0", &[]);
        check(&["foo", "--", "echo", "watch", "--rev"], &[], "foo", "", &["echo", "watch", "--rev"]);
        check(&["foo", "bar", "--rev", "1", "--", "echo"], &[], "foo", "bar", &["echo"]);
        check(&[], &key, "foo", "", &[]);
        check(&["--rev", "1", "--", "echo", "hi"], &both, "foo", "fop", &["echo", "hi"]);
    }

    #[test]
    fn contradictions_are_refused_in_etcdctls_words() {
        let refused =
            |args: &[&str], environment: &[(&str, &str)]| wanted(args, environment).expect_err("refused");
        assert_eq!(refused(&[], &[]), "bad number of arguments");
        assert_eq!(refused(&["a", "b", "c"], &[]), "bad number of arguments");
        assert_eq!(refused(&["--", "echo"], &[]), "bad number of arguments");
        assert_eq!(
            refused(&["foo"], &[("ETCDCTL_WATCH_KEY", "foo")]),
            "bad number of arguments (found conflicting environment key)"
        );
        assert_eq!(
            refused(&["foo"], &[("ETCDCTL_WATCH_RANGE_END", "fop")]),
            "ETCDCTL_WATCH_KEY is empty but got ETCDCTL_WATCH_RANGE_END=\"fop\""
        );
        assert_eq!(
            refused(&["a", "b", "--prefix"], &[]),
            "`range_end` and `--prefix` are mutually exclusive"
        );
    }

    #[test]
    fn a_watch_begins_at_a_revision_or_some_time_ago_and_leaves_out_what_it_is_told_to() {
        let start = |args: &[&str]| wanted(args, &[]).map(|wanted| wanted.start);
        assert_eq!(start(&["a"]), Ok(Start::Revision(0)));
        assert_eq!(start(&["a", "--rev=-3"]), Ok(Start::Revision(-3)));
        assert_eq!(start(&["a", "--since", "5m"]), Ok(Start::Ago(Duration::from_secs(300))));
        assert!(start(&["a", "--since", "5m", "--rev", "2"]).is_err());
        assert!(start(&["a", "--since", "5"]).expect_err("no unit").contains("missing unit"));
        let filters =
            |args: &[&str]| wanted(args, &[]).map(|wanted| (wanted.spec.no_put, wanted.spec.no_delete));
        assert_eq!(filters(&["a", "--filter", "put,NODELETE"]), Ok((true, true)));
        assert_eq!(filters(&["a", "--filter", "delete"]), Ok((false, true)));
        assert!(filters(&["a", "--filter", "x"]).expect_err("unknown").contains("expected put or delete"));
    }
}
