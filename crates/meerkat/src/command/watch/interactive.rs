//! Watches by lines typed in: `watch KEY …` begins one, `progress` asks how far they are, and
//! `cancel N` ends the one that the Nth `watch` line began. What they are told is shown as it comes.
//! The end of the input ends them all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use tokio::sync::mpsc;

use super::options::{FromEnvironment, WatchOptions};
use super::stream::{StreamOptions, Watches};
use super::{exec, show, start_of};
use crate::command::cluster::Cluster;
use crate::command::txn::read_line;
use crate::command::txn_text::words;
use crate::failure::Failure;
use crate::print::Style;

#[derive(Parser)]
#[command(name = "watch", no_binary_name = true, disable_help_flag = true, args_override_self = true)]
struct WatchLine {
    #[command(flatten)]
    options: WatchOptions,
}

pub async fn run(
    cluster: &Cluster,
    style: Style,
    stream: StreamOptions,
    environment: &FromEnvironment,
) -> Result<(), Failure> {
    let mut lines = typed_lines();
    let mut session =
        Session { cluster, environment, watches: Watches::new(cluster, stream), commands: BTreeMap::new() };
    loop {
        let told = tokio::select! {
            line = lines.recv() => {
                let line = line.ok_or_else(|| Failure::bad_input("error reading watch request line: EOF"))?;
                if let Err(reason) = session.line(&line?).await {
                    eprintln!("{reason}");
                }
                continue;
            }
            told = session.watches.next(), if !session.watches.is_empty() => told?,
        };
        let (number, response) = told;
        if show(&response, style)?.is_break() {
            return Ok(());
        }
        if let Some(command) = session.commands.get(&number) {
            exec::run(command, &response).await?;
        }
    }
}

/// Lines of stdin, read on a thread of their own: reading them blocks.
fn typed_lines() -> mpsc::Receiver<Result<Vec<u8>, Failure>> {
    let (sender, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Some(line) = read_line(&mut input).transpose() {
            let failed = line.is_err();
            if sender.blocking_send(line).is_err() || failed {
                return;
            }
        }
    });
    lines
}

struct Session<'a> {
    cluster: &'a Cluster,
    environment: &'a FromEnvironment,
    watches: Watches<'a>,
    /// What to run for the events of a watch, by its number.
    commands: BTreeMap<i64, Vec<OsString>>,
}

impl Session<'_> {
    /// Does what a line asks for; the error is what to say of a line that cannot be done.
    async fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(line);
        let Some((command, args)) = words(line).and_then(|words| {
            let (first, rest) = words.split_first()?;
            Some((first.clone(), rest.to_vec()))
        }) else {
            return Err(format!("Invalid command: {text} (watch and progress supported)"));
        };
        match command.as_bytes() {
            b"watch" => self.watch(args).await.map_err(|reason| format!("Invalid command {text} ({reason})")),
            b"progress" => {
                self.watches.ask_progress();
                Ok(())
            }
            b"cancel" => {
                let number =
                    args.first().and_then(|number| number.to_str()).and_then(|text| text.parse().ok());
                match number.is_some_and(|number| self.watches.cancel(number)) {
                    true => Ok(()),
                    false => Err(format!(
                        "Invalid command {text} (cancel needs the number of a watch that goes on)"
                    )),
                }
            }
            _ => Err(format!("Invalid command {text} (only support watch)")),
        }
    }

    async fn watch(&mut self, args: Vec<OsString>) -> Result<(), String> {
        if args.last().is_some_and(|last| last == "--") {
            return Err("bad number of arguments (found separator --, but no commands)".to_owned());
        }
        let line = WatchLine::try_parse_from(args).map_err(|error| first_line(&error.to_string()))?;
        if line.options.keys.is_empty() && !self.environment.has_key() {
            return Err("command type or key is not provided".to_owned());
        }
        let wanted = line.options.wanted(self.environment).map_err(|failure| failure.message)?;
        let mut spec = wanted.spec;
        spec.revision = start_of(self.cluster, wanted.start).await.map_err(|failure| failure.message)?;
        let number = self.watches.add(spec);
        if !wanted.exec.is_empty() {
            self.commands.insert(number, wanted.exec);
        }
        Ok(())
    }
}

/// What the parser says is wrong, without its help.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
