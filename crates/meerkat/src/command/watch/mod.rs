//! `watch`: events of keys as they happen, or from a revision or a time on; and `watch ls`.
//!
//! What is printed is what `etcdctl watch` prints. Beyond it: a member that is lost is replaced by
//! another without a gap, and whatever ends a watch says what to do next.

mod exec;
mod interactive;
mod ls;
mod options;
mod stream;

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

use clap::Args;
use meerkat_client::SlowWatches;
use meerkat_proto::pb::etcdserver as pb;

use self::options::{FromEnvironment, Start, WatchOptions};
use self::stream::{StreamOptions, Watches};
use super::cluster::Cluster;
use super::times;
use crate::failure::Failure;
use crate::go_duration;
use crate::print::{self, Answer, Style};

/// As `etcdctl` exits when a server ends a watch.
const STATUS_ENDED_BY_SERVER: u8 = 5;

/// Watches events of a key, a range or a prefix; `watch ls` lists the watchers of each endpoint
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct WatchArgs {
    #[command(flatten)]
    options: WatchOptions,
    /// The key to watch, for a key that is called `ls`
    #[arg(long, value_name = "KEY")]
    watch_key: Option<OsString>,
    /// Read `watch KEY …`, `progress` and `cancel N` lines from stdin
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    interactive: bool,
    /// What the server does when this client reads too slowly: wait, coalesce or cancel (Meerkat only)
    #[arg(long)]
    slow: Option<String>,
    /// How often to be told of progress, 1s or more; implies --progress-notify (Meerkat only)
    #[arg(long)]
    progress_interval: Option<String>,
}

/// `bare_separator`: whether the command line ends with a `--` that nothing follows.
pub async fn run(
    args: &WatchArgs,
    cluster: &Cluster,
    style: Style,
    bare_separator: bool,
) -> Result<(), Failure> {
    if bare_separator {
        return Err(Failure::bad_arguments("bad number of arguments (found separator --, but no commands)"));
    }
    if lists(args)? {
        return ls::run(cluster, style).await;
    }
    style.format.refuse_table()?;
    let stream = stream_options(args)?;
    let environment = FromEnvironment::read(|name| std::env::var_os(name))?;
    if args.interactive {
        return interactive::run(cluster, style, stream, &environment).await;
    }
    let mut wanted = options_with_key(args).wanted(&environment)?;
    wanted.spec.revision = start_of(cluster, wanted.start).await?;
    let mut watches = Watches::new(cluster, stream);
    watches.add(wanted.spec);
    loop {
        let (_, response) = watches.next().await?;
        if show(&response, style)?.is_break() {
            return Ok(());
        }
        exec::run(&wanted.exec, &response).await?;
        if response.canceled {
            return Err(ended(&response));
        }
    }
}

/// Whether the arguments ask for the list of watchers.
fn lists(args: &WatchArgs) -> Result<bool, Failure> {
    let named_ls = matches!(args.options.keys.as_slice(), [only] if only == "ls");
    if !named_ls || args.watch_key.is_some() || args.interactive {
        return Ok(false);
    }
    if args.options.is_bare() && args.slow.is_none() && args.progress_interval.is_none() {
        return Ok(true);
    }
    Err(Failure::bad_arguments(
        "`watch ls` lists watchers and takes no options of a watch; to watch the key `ls` write --watch-key ls",
    ))
}

fn options_with_key(args: &WatchArgs) -> WatchOptions {
    let mut options = args.options.clone();
    options.keys.splice(..0, args.watch_key.clone());
    options
}

fn stream_options(args: &WatchArgs) -> Result<StreamOptions, Failure> {
    let slow = match args.slow.as_deref() {
        None => None,
        Some("wait") => Some(SlowWatches::Wait),
        Some("coalesce") => Some(SlowWatches::Coalesce),
        Some("cancel") => Some(SlowWatches::Cancel),
        Some(other) => {
            return Err(Failure::bad_arguments(format!(
                "bad policy {other:?} for \"--slow\" flag: expected wait, coalesce or cancel"
            )));
        }
    };
    let progress_interval = args.progress_interval.as_deref().map(interval).transpose()?;
    Ok(StreamOptions { slow, progress_interval })
}

fn interval(text: &str) -> Result<Duration, Failure> {
    let refused = |reason: &str| {
        Failure::bad_arguments(format!(
            "invalid argument {text:?} for \"--progress-interval\" flag: {reason}"
        ))
    };
    let interval = go_duration::parse(text).map_err(|reason| refused(&reason))?;
    if interval < Duration::from_secs(1) {
        return Err(refused("it must be 1s or more"));
    }
    Ok(interval)
}

/// The revision to begin with. Says so if what was asked for is no longer kept.
async fn start_of(cluster: &Cluster, start: Start) -> Result<i64, Failure> {
    let ago = match start {
        Start::Revision(revision) => return Ok(revision),
        Start::Ago(ago) => ago,
    };
    let found = times::revision_since(cluster, ago).await?;
    if found.before_history {
        eprintln!(
            "history does not reach back {}: it begins with revision {} of {}, older ones are compacted; watching from there",
            go_duration::format(ago),
            found.revision,
            print::rfc3339(found.unix_ms),
        );
    }
    Ok(found.revision)
}

/// Prints a response; breaks off when nobody reads any more.
fn show(response: &pb::WatchResponse, style: Style) -> Result<ControlFlow<()>, Failure> {
    if response.canceled {
        eprintln!("watch was canceled ({})", cancel_reason(response));
    }
    print::show_next(&Answer::Watch(response.clone()), style)
}

fn cancel_reason(response: &pb::WatchResponse) -> &str {
    match response.cancel_reason.as_str() {
        _ if response.compact_revision != 0 => "etcdserver: mvcc: required revision has been compacted",
        "" => "the server gave no reason",
        reason => reason,
    }
}

/// The end of a watch, and what can be done about it.
fn ended(response: &pb::WatchResponse) -> Failure {
    let mut message = "watch is canceled by the server".to_owned();
    if response.compact_revision != 0 {
        let oldest = response.compact_revision;
        message.push_str(&format!(
            ": the events asked for are compacted; read the keys again, and go on with --rev {oldest} or later"
        ));
    } else if let Some((_, revision)) = response.cancel_reason.split_once("resume at revision ") {
        message.push_str(&format!(": go on with --rev {revision}, or read faster, or choose another --slow"));
    }
    Failure { status: STATUS_ENDED_BY_SERVER, message }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: WatchArgs,
    }

    fn args(words: &[&str]) -> WatchArgs {
        Line::try_parse_from(words).expect("known flags").args
    }

    #[test]
    fn ls_lists_unless_it_is_a_key() {
        assert_eq!(lists(&args(&["ls"])), Ok(true));
        for words in [&["ls", "lt"][..], &["--watch-key", "ls"], &["-i"], &["lss"], &["--", "ls"]] {
            assert_eq!(lists(&args(words)), Ok(false), "{words:?}");
        }
        for words in
            [&["ls", "--prefix"][..], &["ls", "--rev", "3"], &["ls", "--slow", "wait"], &["ls", "--", "x"]]
        {
            let refusal = lists(&args(words)).expect_err("ambiguous");
            assert!(refusal.message.contains("--watch-key ls"), "{words:?}");
        }
        let options = options_with_key(&args(&["--watch-key", "ls", "lt"]));
        assert_eq!(options.keys, ["ls", "lt"]);
    }

    #[test]
    fn what_no_server_would_take_is_refused_before_one_is_asked() {
        assert!(stream_options(&args(&["k", "--slow", "never"])).is_err());
        for (text, reason) in [("5", "missing unit"), ("999ms", "1s or more"), ("x", "invalid duration")] {
            let refusal = stream_options(&args(&["k", "--progress-interval", text])).expect_err(text);
            assert!(refusal.message.contains(reason), "{refusal}");
        }
        let good = stream_options(&args(&["k", "--slow=cancel", "--progress-interval=1s"])).expect("good");
        assert_eq!(good.slow, Some(SlowWatches::Cancel));
        assert_eq!(good.progress_interval, Some(Duration::from_secs(1)));
    }

    #[test]
    fn the_end_says_where_to_go_on() {
        let compacted = pb::WatchResponse { canceled: true, compact_revision: 7, ..Default::default() };
        assert!(ended(&compacted).message.contains("--rev 7"));
        let reason = "meerkat: the watcher fell behind; resume at revision 12";
        let behind = pb::WatchResponse { canceled: true, cancel_reason: reason.into(), ..Default::default() };
        assert!(ended(&behind).message.contains("--rev 12,"));
        assert_eq!(ended(&behind).status, 5);
    }
}
