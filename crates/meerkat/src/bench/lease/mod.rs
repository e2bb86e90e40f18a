//! `meerkat bench lease-*`: leases granted and renewed by the thousand, against anything that speaks
//! etcd's Lease service.
//!
//! Whatever a run grants it revokes in the end, outside of what is measured. It is bounded: whatever
//! stands still for `--timeout` is given up, and that is a fault. So is a lease that was lost. Faults
//! are printed with the result, and the exit status is then 1.

mod leases;
mod renewers;
mod report;
mod session;
mod settings;

use std::time::{Duration, Instant};

use leases::{Done, Effort, Job};
use renewers::{Layout, Loop, Renewers};
use report::{LeaseReport, Measured, Phase, Puts, Renewals};
use settings::Settings;
pub use settings::{LeaseArgs, LeaseKind};

use super::members::{Members, own_cpu_s};
use super::report::Tally;
use super::schedule::Length;
use super::workload::{Kind, Workload};
use super::{BenchArgs, shape};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// Workers and connections that grant and revoke what is not measured.
const CLIENTS: usize = 128;
const CONNECTIONS: usize = 12;
/// What a phase of puts left undone must not be measured with the next.
const PAUSE: Duration = Duration::from_millis(300);
/// A lease must be renewed in this part of its time to live, as etcd's own clients do.
const ROUNDS_PER_TTL: u32 = 3;

pub fn run(args: &BenchArgs, kind: LeaseKind, endpoints: Vec<Endpoint>) -> Result<(), Failure> {
    let settings = Settings::new(args, kind, endpoints)?;
    let members = Members::new(&settings.pids)?;
    let run = Run { args, settings: &settings, members: members.as_ref() };
    let report = match kind {
        LeaseKind::Grant => run.grants(),
        LeaseKind::KeepAlive => run.keep_alives(),
        LeaseKind::RenewedPuts => run.renewed_puts(),
    }?;
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
}

/// A moment, and what had been spent by then.
#[derive(Clone, Copy)]
struct Cost {
    at: Instant,
    own_cpu_s: f64,
    members_cpu_s: f64,
}

impl Run<'_> {
    fn cost(&self) -> Result<Cost, Failure> {
        let members_cpu_s = self.members.map_or(Ok(0.0), Members::cpu_s)?;
        Ok(Cost { at: Instant::now(), own_cpu_s: own_cpu_s()?, members_cpu_s })
    }

    fn grants(&self) -> Result<LeaseReport, Failure> {
        let settings = self.settings;
        let effort = Effort {
            endpoints: &settings.endpoints,
            clients: settings.streams,
            connections: settings.connections,
            length: settings.length,
            rate: settings.rate,
        };
        let begun = self.cost()?;
        let done = leases::run(self.args, Job::Grant { ttl_s: settings.ttl_s }, &effort)?;
        let measured = self.measured(begun, done.seconds, &done.tally)?;
        let mut faults = Vec::new();
        if done.leases.is_empty() {
            faults.push("nothing was granted".to_owned());
        }
        faults.extend(self.revoke(done.leases)?);
        Ok(self.report(Some(measured), None, faults, done.tally))
    }

    fn keep_alives(&self) -> Result<LeaseReport, Failure> {
        let settings = self.settings;
        let granted = self.granted()?;
        let renewers = self.renewers(&granted, Loop::Closed(settings.length))?;
        let begun = self.cost()?;
        renewers.renew();
        let mut faults = Vec::new();
        let last = renewers.finish(settings.patience).unwrap_or_else(|why| {
            faults.push(why);
            Instant::now()
        });
        let seconds = last.saturating_duration_since(begun.at).as_secs_f64();
        // Before the streams end, which is not what is measured.
        let ended = self.cost()?;
        let tally = renewers.stop()?;
        let measured = self.measured_until(begun, ended, seconds, &tally);
        if tally.error_count() > 0 {
            faults.push(format!("{} renewals found their lease gone", tally.error_count()));
        }
        faults.extend(self.revoke(granted)?);
        Ok(self.report(Some(measured), None, faults, tally))
    }

    /// Puts in three conditions. The second and the third take turns, so that whatever else happens to the
    /// machine happens to both.
    fn renewed_puts(&self) -> Result<LeaseReport, Failure> {
        let settings = self.settings;
        let puts_args = settings.puts(self.args);
        let workload = Workload::new(shape(&puts_args, Kind::Put, 0)).map_err(Failure::bad_arguments)?;
        let mut tally = Tally::new();
        // The first one also warms the cluster up and is not counted.
        self.phase(&puts_args, &workload, None, &mut tally)?;
        let mut before = Vec::new();
        for _ in 0..settings.pairs {
            before.push(self.phase(&puts_args, &workload, None, &mut tally)?);
        }
        let granted = self.granted()?;
        let renewers = self.renewers(&granted, Loop::Round(settings.ttl() / ROUNDS_PER_TTL))?;
        let (mut idle, mut renewed) = (Vec::new(), Vec::new());
        for pair in 0..settings.pairs {
            // Turn and turn about, so that neither is always the later one.
            for renews in if pair % 2 == 0 { [false, true] } else { [true, false] } {
                if renews {
                    renewers.renew()
                } else {
                    renewers.pause()
                }
                let phase = self.phase(&puts_args, &workload, Some(&renewers), &mut tally)?;
                if renews { &mut renewed } else { &mut idle }.push(phase);
            }
        }
        renewers.pause();
        let failure = renewers.failure();
        let renewals = renewers.stop()?;
        let mut faults: Vec<String> = failure.into_iter().collect();
        if renewals.error_count() > 0 {
            faults.push(format!("{} renewals found their lease gone", renewals.error_count()));
        }
        faults.extend(self.revoke(granted)?);
        let puts = Puts {
            clients: puts_args.clients.unwrap_or(1),
            before,
            idle,
            renewed,
            renewals: Renewals { answered: renewals.answered_count(), latency_ms: renewals.latency_ms() },
        };
        tally.add(renewals);
        Ok(self.report(None, Some(puts), faults, tally))
    }

    /// One phase of puts. Its errors go to `tally`; its latencies are its own.
    fn phase(
        &self,
        args: &BenchArgs,
        workload: &Workload,
        renewers: Option<&Renewers>,
        tally: &mut Tally,
    ) -> Result<Phase, Failure> {
        std::thread::sleep(PAUSE);
        let answered = || renewers.map_or(0, Renewers::answered);
        let (begun, renewals) = (self.cost()?, answered());
        let report = super::measure(args, Kind::Put, workload.clone(), self.settings.endpoints.clone())?;
        let ended = self.cost()?;
        for (error, count) in &report.errors {
            tally.failed_many(error, *count);
        }
        if report.operations == 0 {
            return Err(Failure::error("no put was answered"));
        }
        let seconds = ended.at.duration_since(begun.at).as_secs_f64();
        Ok(Phase {
            operations: report.operations,
            per_second: report.ops_per_second,
            p50_ms: report.latency_ms.p50,
            p99_ms: report.latency_ms.p99,
            member_cpu_s: self.members.map(|_| ended.members_cpu_s - begun.members_cpu_s),
            renewals_per_second: (answered() - renewals) as f64 / seconds,
        })
    }

    /// The leases that are to be renewed.
    fn granted(&self) -> Result<Vec<i64>, Failure> {
        let settings = self.settings;
        let Done { tally, leases, .. } =
            leases::run(self.args, Job::Grant { ttl_s: settings.ttl_s }, &self.aside(settings.leases))?;
        if leases.len() == settings.leases {
            return Ok(leases);
        }
        let errors: Vec<String> =
            tally.into_errors().iter().map(|(error, count)| format!("{count} x {error}")).collect();
        drop(self.revoke(leases)?);
        Err(Failure::error(format!("the leases could not be granted: {}", errors.join("; "))))
    }

    /// Removes them again, and says what went wrong. One that has expired meanwhile was lost.
    fn revoke(&self, granted: Vec<i64>) -> Result<Option<String>, Failure> {
        let effort = self.aside(granted.len());
        let done = leases::run(self.args, Job::Revoke(granted), &effort)?;
        let lost = done.tally.error_count();
        let first = done.tally.into_errors().into_iter().next();
        Ok(first.map(|(error, _)| format!("{lost} leases could not be revoked in the end: {error}")))
    }

    /// How work that is not measured is done.
    fn aside(&self, requests: usize) -> Effort<'_> {
        Effort {
            endpoints: &self.settings.endpoints,
            clients: CLIENTS,
            connections: CONNECTIONS,
            length: Length::Requests(requests as u64),
            rate: None,
        }
    }

    fn renewers(&self, granted: &[i64], pace: Loop) -> Result<Renewers, Failure> {
        let settings = self.settings;
        let layout = Layout {
            leases: granted.to_vec(),
            streams: settings.streams,
            connections: settings.connections,
            endpoints: settings.endpoints.clone(),
        };
        Renewers::start(layout, pace, settings.patience)
    }

    fn measured(&self, begun: Cost, seconds: f64, tally: &Tally) -> Result<Measured, Failure> {
        Ok(self.measured_until(begun, self.cost()?, seconds, tally))
    }

    fn measured_until(&self, begun: Cost, ended: Cost, seconds: f64, tally: &Tally) -> Measured {
        let operations = tally.answered_count();
        let per_1000 = |spent: f64| spent * 1e3 / operations.max(1) as f64;
        Measured {
            seconds,
            operations,
            ops_per_second: if seconds > 0.0 { operations as f64 / seconds } else { 0.0 },
            latency_ms: tally.latency_ms(),
            generator_cpu_s_per_1000: per_1000(ended.own_cpu_s - begun.own_cpu_s),
            member_cpu_s_per_1000: self.members.map(|_| per_1000(ended.members_cpu_s - begun.members_cpu_s)),
        }
    }

    fn report(
        &self,
        measured: Option<Measured>,
        puts: Option<Puts>,
        faults: Vec<String>,
        tally: Tally,
    ) -> LeaseReport {
        let settings = self.settings;
        LeaseReport {
            workload: settings.kind.name(),
            endpoints: settings.endpoints.iter().map(Endpoint::to_string).collect(),
            leases: settings.leases,
            ttl_seconds: settings.ttl_s,
            streams: settings.streams,
            connections: settings.connections,
            measured,
            puts,
            faults,
            error_count: tally.error_count(),
            errors: tally.into_errors(),
        }
    }
}
