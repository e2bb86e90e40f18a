//! One run from start to end: the main loop that owns the model, and the play that feeds it.
//!
//! Whatever ends the loop (the last fault, a key, a signal, an error), the members are ended next,
//! and then the directory is removed, unless it is wanted: because of `--keep`, or because the run
//! failed and its logs say why.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use meerkat_client::Client;
use meerkat_types::Revision;
use tempfile::TempDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::FailoverArgs;
use super::checker::History;
use super::director::Director;
use super::model::{Input, Model, Scene};
use super::plain::{self, Plain};
use super::screen::Screen;
use super::script::{Fault, WATCHERS, schedule};
use super::stage::Stage;
use super::teller::{Teller, Told};
use super::verdict::{self, Verdict};
use super::watcher::Watcher;
use super::{history, observer, svg, view, writer};
use crate::failure::Failure;

const FRAME: Duration = Duration::from_millis(100);
/// How long the last screen stays before the table is printed.
const LAST_SCREEN: Duration = Duration::from_secs(5);
/// For all watchers to have been told of the last write.
const LEVEL_TIMEOUT: Duration = Duration::from_secs(30);

pub async fn run(args: &FailoverArgs) -> Result<(), Failure> {
    let mut signals = Signals::catch()?;
    let place = tempfile::Builder::new().prefix("meerkat-demo-").tempdir()?;
    let faults = schedule(&args.faults, args.seed);
    let (teller, told) = Teller::new();
    let mut show = Show::open(args.plain)?;
    let mut stage = Stage::start(place.path()).await?;
    let (scene, seen) = watch::channel(Scene::default());
    let clock = teller.clone();
    let mut house = House { model: Model::new(args.seed, faults.len()), told, scene, clock, show: &mut show };
    let play = perform(&mut stage, &faults, args.seconds_between, teller, seen);
    let end = house.watch(play, &mut signals).await;
    let model = house.model;
    stage.strike_the_set().await;
    drop(show);
    match end {
        Ok(Some(verdict)) => close(args, place, &model, &verdict),
        Ok(None) => {
            tell_where(place, args.keep);
            Err(Failure::error("stopped before the end; there is no verdict"))
        }
        Err(failure) => {
            tell_where(place, true);
            Err(failure)
        }
    }
}

/// What the audience gets to see.
enum Show {
    Plain(Plain),
    Screen(Box<Screen>),
}

impl Show {
    fn open(plain: bool) -> Result<Show, Failure> {
        if plain || !std::io::stdout().is_terminal() {
            return Ok(Show::Plain(Plain::default()));
        }
        Ok(Show::Screen(Box::new(Screen::open()?)))
    }

    fn frame(&mut self, model: &Model) -> Result<(), Failure> {
        match self {
            Show::Plain(plain) => print_lines(&plain.news(model)),
            Show::Screen(screen) => Ok(screen.draw(|frame| view::draw(frame, model))?),
        }
    }

    async fn stopped(&mut self) {
        match self {
            Show::Plain(_) => std::future::pending().await,
            Show::Screen(screen) => screen.stopped().await,
        }
    }

    async fn linger(&mut self, signals: &mut Signals) {
        if matches!(self, Show::Screen(_)) {
            tokio::select! {
                () = tokio::time::sleep(LAST_SCREEN) => {}
                () = self.stopped() => {}
                () = signals.recv() => {}
            }
        }
    }
}

/// The owner of the model.
struct House<'a> {
    model: Model,
    told: mpsc::Receiver<Told>,
    scene: watch::Sender<Scene>,
    clock: Teller,
    show: &'a mut Show,
}

impl House<'_> {
    /// Shows the play to its end and gives the verdict on it; nothing if it was stopped.
    async fn watch(
        &mut self,
        play: impl Future<Output = Result<History, String>>,
        signals: &mut Signals,
    ) -> Result<Option<Verdict>, Failure> {
        let mut play = std::pin::pin!(play);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let end = loop {
            tokio::select! {
                Some((at, input)) = self.told.recv() => self.take(at, input),
                _ = frames.tick() => {
                    self.model.pass_time(self.clock.now());
                    self.show.frame(&self.model)?;
                }
                () = self.show.stopped() => return Ok(None),
                () = signals.recv() => return Ok(None),
                end = &mut play => break end,
            }
        };
        // Everything that was told before the end belongs to it.
        while let Ok((at, input)) = self.told.try_recv() {
            self.take(at, input);
        }
        self.show.frame(&self.model)?;
        let history = end.map_err(Failure::error)?;
        let verdict = verdict::reach(&self.model, &history);
        self.take(self.clock.now(), Input::Done(Box::new(verdict.clone())));
        self.show.frame(&self.model)?;
        self.show.linger(signals).await;
        Ok(Some(verdict))
    }

    fn take(&mut self, at: Duration, input: Input) {
        self.model.apply(at, input);
        let scene = self.model.scene();
        // Only a change wakes those who wait.
        self.scene.send_if_modified(|old| std::mem::replace(old, scene) != scene);
    }
}

/// All that happens behind the curtain, up to the history that is left in the store.
async fn perform(
    stage: &mut Stage,
    faults: &[Fault],
    pause: Duration,
    teller: Teller,
    scene: watch::Receiver<Scene>,
) -> Result<History, String> {
    // Dropped at the end of this function, whatever way that is taken.
    let mut background = JoinSet::new();
    for (member, address) in stage.direct_endpoints().into_iter().enumerate() {
        background.spawn(observer::observe(member, address, teller.clone()));
    }
    let members = stage.client_endpoints();
    let direct = stage.direct_endpoints();
    let mut director = Director { stage, scene: scene.clone(), teller: teller.clone(), pause };
    director.open().await?;
    let first = start_watchers(&members, &teller, &mut background).await?;
    let (stop, stopped) = watch::channel(false);
    let mut writing = JoinSet::new();
    writing.spawn(writer::write(connect(&members).await?, teller.clone(), stopped));
    teller.say(format!("a writer and {WATCHERS} watchers from revision {first} on")).await;

    if let Err(reason) = director.play(faults).await {
        teller.tell(Input::Problem(reason)).await;
    }
    stop.send_replace(true);
    if let Some(Ok(Err(reason))) = writing.join_next().await {
        teller.tell(Input::Problem(reason)).await;
    }
    teller.tell(Input::Checking).await;
    wait_until_level(scene, &teller).await;
    teller.say("comparing what every watcher was told with what the store holds").await;
    history::read(&connect(&direct).await?).await
}

async fn start_watchers(
    members: &[String],
    teller: &Teller,
    background: &mut JoinSet<()>,
) -> Result<Revision, String> {
    let client = connect(members).await?;
    let now = client.get(writer::PREFIX).await.map_err(|error| format!("cannot read: {error}"))?;
    let first = now.revision.next();
    teller.tell(Input::Begin(first)).await;
    for watcher in 0..WATCHERS {
        // Each has a client of its own, as three programs would, and begins at another member.
        let mut order = members.to_vec();
        order.rotate_left(watcher % members.len());
        let client = connect(&order).await?;
        let watcher = Watcher { watcher, client, members: members.to_vec(), teller: teller.clone() };
        background.spawn(watcher.follow(first));
    }
    Ok(first)
}

async fn connect(endpoints: &[String]) -> Result<Client, String> {
    Client::connect(endpoints.to_vec()).await.map_err(|error| format!("cannot connect: {error}"))
}

async fn wait_until_level(mut scene: watch::Receiver<Scene>, teller: &Teller) {
    let level = scene.wait_for(|scene| scene.level || scene.watch_ended);
    if timeout(LEVEL_TIMEOUT, level).await.is_err() {
        let text = format!("some watcher was not told of the last write within {LEVEL_TIMEOUT:?}");
        teller.tell(Input::Problem(text)).await;
    }
}

fn close(args: &FailoverArgs, place: TempDir, model: &Model, verdict: &Verdict) -> Result<(), Failure> {
    if let Some(file) = &args.svg {
        std::fs::write(file, svg::picture(model))
            .map_err(|error| Failure::error(format!("cannot write {}: {error}", file.display())))?;
    }
    tell_where(place, args.keep || !verdict.passed());
    print_lines(&plain::closing(model, verdict))?;
    if verdict.passed() { Ok(()) } else { Err(Failure::already_told()) }
}

/// Keeps the directory and says where it is, or removes it.
fn tell_where(place: TempDir, keep: bool) {
    if keep {
        eprintln!("data and logs of the members are in {}", place.keep().display());
    }
}

fn print_lines(lines: &[String]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn catch() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
