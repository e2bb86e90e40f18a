//! Puts, as many as asked or as fast as asked, and how they went.
//!
//! Puts are due at even steps of time from the start, whatever became of those before: a member that
//! stalls is not spared the load meanwhile, up to the number of clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use indicatif::ProgressBar;
use meerkat_proto::pb::etcdserver as pb;
use pb::kv_client::KvClient;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::cluster::{Cluster, Wire, describe};
use crate::command::signals::Signals;
use crate::failure::Failure;

/// Connections that the clients share. More would cost this side more than they load the other.
const CONNECTIONS_MAX: usize = 64;
/// A put that takes longer counts as failed.
const PUT_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Load {
    pub clients: usize,
    pub prefix: String,
    /// Of what follows the prefix.
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub pace: Pace,
}

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    PerSecond { puts: u32, during: Duration },
    AtOnce { puts: u64 },
}

impl Pace {
    /// When the put of this number is due after the start; `None` if there is none.
    fn due(self, number: u64) -> Option<Duration> {
        match self {
            Pace::AtOnce { puts } => (number < puts).then_some(Duration::ZERO),
            Pace::PerSecond { puts, during } => {
                let due = Duration::from_secs_f64(number as f64 / f64::from(puts));
                (due < during).then_some(due)
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub latencies: Vec<Duration>,
    pub errors: BTreeMap<String, u64>,
    pub took: Duration,
    pub interrupted: bool,
}

impl Report {
    pub fn per_second(&self) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds == 0.0 { 0.0 } else { self.latencies.len() as f64 / seconds }
    }

    pub fn slowest(&self) -> f64 {
        self.latencies.iter().max().map_or(0.0, Duration::as_secs_f64)
    }

    pub fn stddev(&self) -> f64 {
        let count = self.latencies.len().max(1) as f64;
        let mean = self.latencies.iter().map(Duration::as_secs_f64).sum::<f64>() / count;
        let squares = self.latencies.iter().map(|took| (took.as_secs_f64() - mean).powi(2));
        (squares.sum::<f64>() / count).sqrt()
    }
}

/// Makes the load. A signal ends it early.
pub async fn run(
    load: Load,
    cluster: &Cluster,
    signals: &mut Signals,
    bar: &ProgressBar,
) -> Result<Report, Failure> {
    let mut wires = Vec::new();
    for number in 0..load.clients.min(CONNECTIONS_MAX) {
        let endpoint = &cluster.endpoints()[number % cluster.endpoints().len()];
        wires.push(cluster.dial_to_stay(endpoint).await.map_err(Failure::bad_connection)?);
    }
    let shared = Arc::new(Shared {
        load,
        start: Instant::now(),
        next: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        bar: bar.clone(),
    });
    let mut clients = JoinSet::new();
    for number in 0..shared.load.clients {
        clients.spawn(client(shared.clone(), wires[number % wires.len()].clone()));
    }
    let mut report = Report::default();
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                Some(Ok(part)) => add(&mut report, part),
                Some(Err(error)) => return Err(Failure::error(error.to_string())),
                None => break,
            },
            _ = signals.next() => {
                shared.stop.store(true, Ordering::Relaxed);
                report.interrupted = true;
            }
        }
    }
    report.took = shared.start.elapsed();
    Ok(report)
}

struct Shared {
    load: Load,
    start: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    bar: ProgressBar,
}

async fn client(shared: Arc<Shared>, wire: Wire) -> Report {
    let mut kv = KvClient::new(wire);
    let mut report = Report::default();
    let value = Bytes::from(vec![0; shared.load.value_bytes]);
    loop {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(due) = shared.load.pace.due(number) else { return report };
        tokio::time::sleep_until(shared.start + due).await;
        if shared.stop.load(Ordering::Relaxed) {
            return report;
        }
        let request = pb::PutRequest {
            key: key(&shared.load.prefix, shared.load.key_bytes, rand::random()),
            value: value.clone(),
            ..Default::default()
        };
        let sent = Instant::now();
        let outcome = match tokio::time::timeout(PUT_TIMEOUT, kv.put(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(status)) => Err(describe(&status)),
            Err(_) => Err(format!("no answer in {PUT_TIMEOUT:?}")),
        };
        match outcome {
            Ok(()) => report.latencies.push(sent.elapsed()),
            Err(reason) => *report.errors.entry(reason).or_default() += 1,
        }
        if matches!(shared.load.pace, Pace::AtOnce { .. }) {
            shared.bar.inc(1);
        }
    }
}

/// The prefix, and a random number padded to the wanted length.
fn key(prefix: &str, length: usize, random: u64) -> Bytes {
    let mut key = prefix.as_bytes().to_vec();
    key.extend_from_slice(format!("{random:016x}").as_bytes());
    key.resize(prefix.len() + length, 0);
    key.into()
}

fn add(all: &mut Report, part: Report) {
    all.latencies.extend(part.latencies);
    for (reason, count) in part.errors {
        *all.errors.entry(reason).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_are_due_at_even_steps_until_the_time_is_up() {
        let pace = Pace::PerSecond { puts: 4, during: Duration::from_secs(1) };
        let due: Vec<_> = (0..5).map(|number| pace.due(number).map(|due| due.as_millis())).collect();
        assert_eq!(due, [Some(0), Some(250), Some(500), Some(750), None]);
        let at_once = Pace::AtOnce { puts: 1 };
        assert_eq!((at_once.due(0), at_once.due(1)), (Some(Duration::ZERO), None));
    }

    #[test]
    fn a_report_sums_up_its_latencies() {
        let latencies = [100, 300].map(Duration::from_millis).to_vec();
        let report = Report { latencies, took: Duration::from_secs(2), ..Default::default() };
        assert_eq!((report.per_second(), report.slowest()), (1.0, 0.3));
        assert!((report.stddev() - 0.1).abs() < 1e-9);
        assert_eq!(Report::default().stddev(), 0.0);
    }
}
