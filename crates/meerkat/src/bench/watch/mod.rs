//! `meerkat bench watch-*`: watchers by the thousand against anything that speaks etcd's Watch service.
//!
//! A run creates its watchers, makes its puts, waits until every watcher has what it is owed, and judges
//! ([`watched`]). It is bounded: whatever stands still for `--timeout` is given up, and that is a
//! fault. Faults are printed with the result, and the exit status is then 1: figures of a run that
//! lost an event are not figures.

mod interest;
mod probe;
mod puts;
mod receivers;
mod report;
mod response;
mod session;
mod settings;
mod watched;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use interest::{Interest, Target, Values, nanoseconds};
use puts::{Aim, Written};
use receivers::{Plan, Receivers};
use report::{Creation, Deliveries, MembersCost, Puts, WatchReport, per_second};
use session::Pace;
use settings::Settings;
pub use settings::{WatchArgs, WatchKind};
use watched::Owed;

use super::load::Progress;
use super::members::{Members, own_cpu_s};
use super::report::Tally;
use super::schedule::{Length, Schedule};
use super::{BenchArgs, progress_bar, supervise};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// After the last event that is owed, so that one too many would be seen.
const LINGER: Duration = Duration::from_millis(200);

pub fn run(args: &BenchArgs, kind: WatchKind, endpoints: Vec<Endpoint>) -> Result<(), Failure> {
    let settings = Settings::new(args, kind, endpoints)?;
    // Refused here, before anything is done to the cluster.
    Values::new(Instant::now(), settings.value_bytes).map_err(Failure::bad_arguments)?;
    let members = Members::new(&settings.pids)?;
    probe::run(&settings.layout.endpoints)?;
    let report = Run::new(args, &settings, members.as_ref()).measure()?;
    if args.json {
        println!("{}", report.json())
    } else {
        print!("{}", report.text())
    }
    if report.faults.is_empty() {
        Ok(())
    } else {
        Err(Failure::error("the run failed: a figure of it proves nothing; see its faults"))
    }
}

struct Run<'a> {
    args: &'a BenchArgs,
    settings: &'a Settings,
    members: Option<&'a Members>,
    interest: Interest,
    epoch: Instant,
}

/// What a run comes to know in its parts.
struct Findings {
    created_s: f64,
    creation_cpu_s: f64,
    rss_before_bytes: u64,
    rss_idle_bytes: Option<u64>,
    written: Written,
    puts_s: f64,
    /// Why something was given up.
    faults: Vec<String>,
    load_start: Cost,
    load_cpu_s: f64,
    rss_end_bytes: u64,
}

/// A moment, and what had been spent by then.
#[derive(Clone, Copy)]
struct Cost {
    at: Instant,
    own_cpu_s: f64,
    members_cpu_s: f64,
}

impl<'a> Run<'a> {
    fn new(args: &'a BenchArgs, settings: &'a Settings, members: Option<&'a Members>) -> Run<'a> {
        // The clock and the process tell runs apart; nothing is decided by it.
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let run = nanoseconds(since_1970) ^ (u64::from(std::process::id()) << 40);
        let interest = Interest::new(settings.target, run);
        Run { args, settings, members, interest, epoch: Instant::now() }
    }

    fn measure(&self) -> Result<WatchReport, Failure> {
        let mut findings = self.nothing_yet()?;
        if self.settings.kind == WatchKind::Catchup {
            self.write(&mut findings)?;
        }
        findings.rss_before_bytes = self.settled_rss()?;
        let receivers = self.connect()?;
        if self.settings.kind == WatchKind::Catchup {
            findings.load_start = self.cost()?;
        }
        self.create(&receivers, &mut findings)?;
        if self.settings.kind != WatchKind::Catchup {
            findings.rss_idle_bytes = Some(self.settled_rss()?);
            findings.load_start = self.cost()?;
            self.write(&mut findings)?;
        }
        self.conclude(receivers, findings)
    }

    fn nothing_yet(&self) -> Result<Findings, Failure> {
        Ok(Findings {
            created_s: 0.0,
            creation_cpu_s: 0.0,
            rss_before_bytes: 0,
            rss_idle_bytes: None,
            written: Written::nothing(self.interest.groups(self.settings.layout.watchers)),
            puts_s: 0.0,
            faults: Vec::new(),
            load_start: self.cost()?,
            load_cpu_s: 0.0,
            rss_end_bytes: 0,
        })
    }

    fn cost(&self) -> Result<Cost, Failure> {
        let members_cpu_s = self.members.map_or(Ok(0.0), Members::cpu_s)?;
        Ok(Cost { at: Instant::now(), own_cpu_s: own_cpu_s()?, members_cpu_s })
    }

    fn settled_rss(&self) -> Result<u64, Failure> {
        self.members.map_or(Ok(0), |members| members.settled_rss_bytes(self.settings.settle))
    }

    fn connect(&self) -> Result<Receivers, Failure> {
        let receivers = Receivers::start(Plan {
            layout: self.settings.layout.clone(),
            interest: self.interest.clone(),
            pace: self.settings.pace,
            with_latency: matches!(self.settings.kind, WatchKind::Fanout | WatchKind::Latency),
            epoch: self.epoch,
        });
        let connections = self.settings.layout.connections as u64;
        receivers
            .wait(|gauges| &gauges.connected, connections, self.settings.patience)
            .map_err(|why| Failure::error(format!("the watchers' connections could not be opened: {why}")))?;
        Ok(receivers)
    }

    fn create(&self, receivers: &Receivers, findings: &mut Findings) -> Result<(), Failure> {
        let watchers = self.settings.layout.watchers as u64;
        let start = self.cost()?;
        // Nothing written, nothing to catch up with: 0 means from now on.
        let catches_up = self.settings.kind == WatchKind::Catchup;
        receivers.create(if catches_up { findings.written.first_revision } else { 0 });
        receivers
            .wait(|gauges| &gauges.created, watchers, self.settings.patience)
            .map_err(|why| Failure::error(format!("the watchers could not be created: {why}")))?;
        let last_ns = receivers.gauges().created_last_ns.load(Ordering::Relaxed);
        let started_ns = nanoseconds(start.at - self.epoch);
        findings.created_s = last_ns.saturating_sub(started_ns) as f64 / 1e9;
        findings.creation_cpu_s = self.cost()?.members_cpu_s - start.members_cpu_s;
        Ok(())
    }

    fn write(&self, findings: &mut Findings) -> Result<(), Failure> {
        if !self.settings.writes() {
            return Ok(());
        }
        let settings = self.settings;
        let start = Instant::now();
        let schedule = Arc::new(Schedule::new(start, settings.length, settings.rate));
        let progress = Arc::new(Progress::default());
        let plan = self.puts_plan(&schedule, &progress)?;
        let bar = match settings.length {
            Length::Requests(total) => progress_bar(self.args, total, settings.kind.name()),
            Length::Time(time) => progress_bar(self.args, time.as_millis() as u64, settings.kind.name()),
        };
        let (mut written, gave_up) = std::thread::scope(|scope| {
            let pacer = scope.spawn(|| schedule.pace());
            let writers = scope.spawn(|| puts::run(plan));
            let is_over = || writers.is_finished();
            let gave_up =
                supervise(settings.patience, settings.length, start, &progress, &schedule, &bar, is_over);
            let written = writers.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            schedule.stop();
            pacer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, Failure>((written, gave_up))
        })?;
        findings.puts_s = start.elapsed().as_secs_f64();
        bar.finish_and_clear();
        written.tally.failed_many("due but never begun", schedule.never_begun());
        if gave_up {
            findings.faults.push(format!("no put was answered for {} s", settings.patience.as_secs_f64()));
        }
        findings.written = written;
        Ok(())
    }

    fn puts_plan(&self, schedule: &Arc<Schedule>, progress: &Arc<Progress>) -> Result<puts::Plan, Failure> {
        let settings = self.settings;
        let keys = settings.keys;
        let unrelated = settings.kind == WatchKind::Many;
        Ok(puts::Plan {
            aim: if unrelated { Aim::Unrelated { keys } } else { Aim::Watched { keys } },
            interest: self.interest.clone(),
            values: Values::new(self.epoch, settings.value_bytes).map_err(Failure::bad_arguments)?,
            groups: self.interest.groups(settings.layout.watchers),
            schedule: Arc::clone(schedule),
            endpoints: settings.layout.endpoints.clone(),
            clients: settings.clients,
            connections: settings.connections,
            progress: Arc::clone(progress),
        })
    }

    /// Waits for what is still owed, judges, and puts the result together.
    fn conclude(&self, receivers: Receivers, mut findings: Findings) -> Result<WatchReport, Failure> {
        let expected = self.expected(&findings.written.owed);
        if let Err(why) = receivers.wait(|gauges| &gauges.delivered, expected, self.settings.patience) {
            findings.faults.push(format!("events did not arrive: {why}"));
        }
        let last_ns = receivers.gauges().delivered_last_ns.load(Ordering::Relaxed);
        let end = self.cost()?;
        findings.rss_end_bytes = self.members.map_or(Ok(0), Members::rss_bytes)?;
        findings.load_cpu_s = end.members_cpu_s - findings.load_start.members_cpu_s;
        std::thread::sleep(LINGER);
        if let Some(why) = receivers.gauges().failure() {
            findings.faults.push(why);
        }
        let watched = receivers.stop()?;
        findings.faults.extend(watched.faults(&self.interest, &findings.written.owed));
        findings.faults.dedup();
        let begun = findings.load_start;
        let seconds = last_ns.saturating_sub(nanoseconds(begun.at - self.epoch)) as f64 / 1e9;
        let per_1000 = |spent: f64| spent * 1e3 / watched.delivered.max(1) as f64;
        let deliveries = (expected > 0 || watched.delivered > 0).then(|| Deliveries {
            expected,
            received: watched.delivered,
            seconds,
            per_second: per_second(watched.delivered, seconds),
            generator_cpu_s_per_1000: per_1000(end.own_cpu_s - begun.own_cpu_s),
            member_cpu_s_per_1000: self.members.map(|_| per_1000(findings.load_cpu_s)),
            latency_ms: watched.latency_ms(),
        });
        Ok(self.report(findings, deliveries))
    }

    fn expected(&self, owed: &[Owed]) -> u64 {
        match self.settings.target {
            Target::WholePrefix => owed[0].count * self.settings.layout.watchers as u64,
            Target::OwnKey => owed.iter().map(|owed| owed.count).sum(),
        }
    }

    fn report(&self, findings: Findings, deliveries: Option<Deliveries>) -> WatchReport {
        let settings = self.settings;
        let layout = &settings.layout;
        let tally: Tally = findings.written.tally;
        let members = self.members.map(|_| {
            let before = findings.rss_before_bytes as f64;
            let per_watcher = |idle: u64| (idle as f64 - before) / layout.watchers as f64;
            let idle = findings.rss_idle_bytes.filter(|_| layout.watchers > 0);
            MembersCost {
                creation_cpu_s: findings.creation_cpu_s,
                load_cpu_s: findings.load_cpu_s,
                rss_before_bytes: findings.rss_before_bytes,
                rss_idle_bytes: findings.rss_idle_bytes,
                rss_end_bytes: findings.rss_end_bytes,
                rss_bytes_per_watcher: idle.map(per_watcher),
            }
        });
        WatchReport {
            workload: settings.kind.name(),
            endpoints: layout.endpoints.iter().map(Endpoint::to_string).collect(),
            watchers: layout.watchers,
            streams: layout.streams,
            watch_connections: layout.connections,
            clients: settings.clients,
            rate: settings.rate,
            value_size: settings.value_bytes,
            creation: Creation {
                one_at_a_time: settings.pace == Pace::OneAtATime,
                seconds: findings.created_s,
                per_second: per_second(layout.watchers as u64, findings.created_s),
            },
            puts: settings.writes().then(|| Puts {
                answered: findings.written.answered,
                seconds: findings.puts_s,
                per_second: per_second(findings.written.answered, findings.puts_s),
                latency_ms: tally.latency_ms(),
            }),
            deliveries,
            members,
            faults: findings.faults,
            error_count: tally.error_count(),
            errors: tally.into_errors(),
        }
    }
}
