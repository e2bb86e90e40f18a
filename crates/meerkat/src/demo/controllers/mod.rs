//! `meerkat demo controllers`: the list-watch pattern whole, while members die.
//!
//! kubectl writes what is wanted; a replica controller makes pods of it, a scheduler gives them nodes,
//! two agents "run" them. Each is a client of its own with caches of its own and decides by what these
//! show. The main loop here shows the [`board`], which the others write on.

mod agent;
mod board;
mod cache;
mod kubectl;
mod object;
mod play;
mod replicas;
mod scheduler;
mod stage;
mod verdict;
mod view;
mod wall_clock;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval};

use super::parse_seconds;
use super::performance::Signals;
use super::screen::Screen;
use crate::failure::Failure;
use board::{Board, Sight};
use play::Play;
use stage::Stage;
use verdict::Verdict;

const FRAME: Duration = Duration::from_millis(100);
/// How long the last screen stays.
const LAST_SCREEN: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
pub struct ControllersArgs {
    /// Print lines, without taking over the terminal
    #[arg(long)]
    plain: bool,
    /// Pods to begin with
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    replicas: u16,
    /// Quiet time between the acts
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = parse_seconds)]
    seconds_between: Duration,
    /// The kubectl to use [default: .tools/kubectl, or the one on PATH]
    #[arg(long, value_name = "FILE")]
    kubectl: Option<PathBuf>,
    /// Keep the data and the logs of the members
    #[arg(long)]
    keep: bool,
}

pub async fn run(args: &ControllersArgs) -> Result<(), Failure> {
    let kubectl = kubectl::find(args.kubectl.as_deref()).map_err(Failure::error)?;
    let mut signals = Signals::catch()?;
    let place = tempfile::Builder::new().prefix("meerkat-demo-").tempdir()?;
    let board = Board::new();
    let mut show = Show::open(args.plain)?;
    let mut stage = Stage::start(place.path())?;
    let play = Play {
        stage: &mut stage,
        board: board.clone(),
        kubectl_program: &kubectl,
        directory: place.path(),
        replicas: usize::from(args.replicas),
        pause: args.seconds_between,
    };
    let end = watch(play, &board, &mut show, &mut signals).await;
    stage.strike_the_set().await;
    drop(show);
    close(end, place, args.keep)
}

/// Shows the play to its end; nothing if it was stopped.
async fn watch(
    play: Play<'_>,
    board: &Board,
    show: &mut Show,
    signals: &mut Signals,
) -> Result<Option<Verdict>, Failure> {
    let mut play = Box::pin(play.perform());
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let end = loop {
        tokio::select! {
            _ = frames.tick() => show.frame(&board.look())?,
            () = show.stopped() => return Ok(None),
            () = signals.recv() => return Ok(None),
            end = &mut play => break end,
        }
    };
    show.frame(&board.look())?;
    let verdict = end.map_err(Failure::error)?;
    verdict.lines().into_iter().for_each(|line| board.say(line));
    show.last(&board.look(), signals).await?;
    Ok(Some(verdict))
}

fn close(end: Result<Option<Verdict>, Failure>, place: TempDir, keep: bool) -> Result<(), Failure> {
    let passed = matches!(&end, Ok(Some(verdict)) if verdict.passed());
    let stopped = matches!(&end, Ok(None));
    if keep || !(passed || stopped) {
        eprintln!("data and logs of the members are in {}", place.keep().display());
    }
    let Some(verdict) = end? else {
        return Err(Failure::error("stopped before the end; there is no verdict"));
    };
    let mut out = std::io::stdout().lock();
    for line in verdict.lines() {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    if verdict.passed() { Ok(()) } else { Err(Failure::already_told()) }
}

/// What the audience gets to see.
enum Show {
    /// Lines printed so far.
    Plain(usize),
    Screen(Box<Screen>),
}

impl Show {
    fn open(plain: bool) -> Result<Show, Failure> {
        if plain || !std::io::stdout().is_terminal() {
            return Ok(Show::Plain(0));
        }
        Ok(Show::Screen(Box::new(Screen::open()?)))
    }

    fn frame(&mut self, sight: &Sight) -> Result<(), Failure> {
        match self {
            Show::Screen(screen) => screen.draw(|frame| view::draw(frame, sight))?,
            Show::Plain(printed) => {
                let fresh = sight.said.saturating_sub(*printed).min(sight.log.len());
                let mut out = std::io::stdout().lock();
                for line in &sight.log[sight.log.len() - fresh..] {
                    writeln!(out, "{}", view::log_line(line))?;
                }
                out.flush()?;
                *printed = sight.said;
            }
        }
        Ok(())
    }

    async fn stopped(&mut self) {
        match self {
            Show::Plain(_) => std::future::pending().await,
            Show::Screen(screen) => screen.stopped().await,
        }
    }

    /// The last frame, which a screen shows for a while. Lines need none: the verdict follows them.
    async fn last(&mut self, sight: &Sight, signals: &mut Signals) -> Result<(), Failure> {
        if matches!(self, Show::Screen(_)) {
            self.frame(sight)?;
            tokio::select! {
                () = tokio::time::sleep(LAST_SCREEN) => {}
                () = self.stopped() => {}
                () = signals.recv() => {}
            }
        }
        Ok(())
    }
}
