//! The writes of the run: a steady stream of bytes under a busy prefix, and small puts that are
//! timed.
//!
//! Both keep their pace whatever the server does: each put is sent when it is due, not when the one
//! before was answered, so that a slow moment is seen by every put it delays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::PutRequest;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tokio::task::{JoinHandle, JoinSet};

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::outcome::describe;

/// What the stalled clients watch.
pub const BUSY_PREFIX: &[u8] = b"busy/";
const PROBE_EVERY: Duration = Duration::from_millis(10);
const PROBE_BYTES: usize = 128;
const BUSY_KEYS: u32 = 512;
/// Weighted: most values are small, most bytes are in large ones.
const SIZES: &[usize] = &[1 << 10, 1 << 10, 1 << 10, 1 << 10, 4 << 10, 4 << 10, 16 << 10, 100 << 10];
const IN_FLIGHT_MAX: usize = 256;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// One timed put.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Names its key.
    pub number: u64,
    /// When it was sent.
    pub issued: Duration,
    /// When it was answered.
    pub answered: Duration,
}

/// The key of a timed put: never used twice in a run.
pub fn probe_key(number: u64) -> Bytes {
    format!("probe/{number:08}").into_bytes().into()
}

/// Writers at work.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    busy: JoinHandle<Result<u64, Failure>>,
    probes: JoinHandle<Result<Vec<Probe>, Failure>>,
}

/// What the writers did.
#[derive(Debug)]
pub struct Written {
    /// Bytes put under the busy prefix.
    pub bytes: u64,
    /// The timed puts.
    pub probes: Vec<Probe>,
}

/// Starts the writers. `round` makes the keys of the timed puts and the sizes its own.
pub fn start(
    endpoint: &Endpoint,
    bytes_per_second: u64,
    round: u64,
    began: Instant,
) -> Result<Load, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    // Connections of their own, so that a small put never queues behind a large one on this side.
    let (busy, probes) = (endpoint.apart(None)?, endpoint.apart(None)?);
    let busy = tokio::spawn(write_busy(busy, bytes_per_second, round, stop.clone()));
    let probes = tokio::spawn(write_probes(probes, round * 1_000_000, began, stop.clone()));
    Ok(Load { stop, busy, probes })
}

impl Load {
    /// Stops, once every put is answered.
    pub async fn finish(self) -> Result<Written, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let ended = |error| Failure::harness(format!("a writer ended: {error}"));
        let bytes = self.busy.await.map_err(ended)??;
        let probes = self.probes.await.map_err(ended)??;
        Ok(Written { bytes, probes })
    }
}

async fn write_busy(
    endpoint: Endpoint,
    bytes_per_second: u64,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> Result<u64, Failure> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut puts = JoinSet::new();
    let mut bytes = 0;
    let mut due = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        let length = *SIZES.choose(&mut random).expect("there are sizes");
        let key = format!("busy/{:04}", random.random_range(0..BUSY_KEYS)).into_bytes().into();
        let mut value = vec![b'.'; length];
        random.fill(&mut value[..64]);
        bytes += length as u64;
        make_room(&mut puts, IN_FLIGHT_MAX).await?;
        puts.spawn(put(endpoint.clone(), key, value.into()));
        due += Duration::from_secs_f64(length as f64 / bytes_per_second as f64);
        tokio::time::sleep_until(due.into()).await;
    }
    make_room(&mut puts, 1).await?;
    Ok(bytes)
}

async fn write_probes(
    endpoint: Endpoint,
    first: u64,
    began: Instant,
    stop: Arc<AtomicBool>,
) -> Result<Vec<Probe>, Failure> {
    let mut puts: JoinSet<Result<Probe, Failure>> = JoinSet::new();
    let mut probes = Vec::new();
    let mut due = Instant::now();
    for number in first.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        probes.extend(make_room(&mut puts, IN_FLIGHT_MAX).await?);
        let endpoint = endpoint.clone();
        puts.spawn(async move {
            let issued = began.elapsed();
            put(endpoint, probe_key(number), vec![b'p'; PROBE_BYTES].into()).await?;
            Ok(Probe { number, issued, answered: began.elapsed() })
        });
        due += PROBE_EVERY;
        tokio::time::sleep_until(due.into()).await;
    }
    probes.extend(make_room(&mut puts, 1).await?);
    Ok(probes)
}

/// Takes what has ended, and waits until fewer than so many are under way.
async fn make_room<T: 'static>(
    puts: &mut JoinSet<Result<T, Failure>>,
    below: usize,
) -> Result<Vec<T>, Failure> {
    let mut done = Vec::new();
    loop {
        let ended = if puts.len() < below { puts.try_join_next() } else { puts.join_next().await };
        let Some(ended) = ended else { return Ok(done) };
        done.push(ended.map_err(|error| Failure::harness(format!("a put ended: {error}")))??);
    }
}

async fn put(endpoint: Endpoint, key: Bytes, value: Bytes) -> Result<(), Failure> {
    let answer = endpoint.put(PutRequest { key, value, ..Default::default() }, ANSWER_WITHIN).await;
    answer.map(|_| ()).map_err(|status| Failure::broken(format!("put refused: {}", describe(&status))))
}
