//! Put latency over a span of time, from a few clients in a closed loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hdrhistogram::Histogram;
use meerkat_proto::pb::etcdserver::PutRequest;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::outcome;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Clients that measure until told to stop.
#[derive(Debug)]
pub struct Measuring {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<Histogram<u64>, Failure>>>,
}

/// Starts to measure. Writes only keys of its own.
pub fn start(endpoints: &[Endpoint], clients: usize, value_bytes: usize) -> Measuring {
    let stop = Arc::new(AtomicBool::new(false));
    let clients = (0..clients)
        .map(|number| {
            let endpoint = endpoints[number % endpoints.len()].clone();
            tokio::spawn(measure(endpoint, number, value_bytes, stop.clone()))
        })
        .collect();
    Measuring { stop, clients }
}

impl Measuring {
    /// Stops, and returns the latencies in microseconds.
    pub async fn finish(self) -> Result<Histogram<u64>, Failure> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = empty()?;
        for client in self.clients {
            let one =
                client.await.map_err(|error| Failure::harness(format!("a client ended: {error}")))??;
            all.add(one).map_err(|error| Failure::harness(format!("histograms: {error}")))?;
        }
        Ok(all)
    }
}

async fn measure(
    endpoint: Endpoint,
    number: usize,
    value_bytes: usize,
    stop: Arc<AtomicBool>,
) -> Result<Histogram<u64>, Failure> {
    let mut histogram = empty()?;
    let value = Bytes::from(vec![b'v'; value_bytes]);
    for sequence in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("latency/{number}/{}", sequence % 1000).into_bytes().into();
        let request = PutRequest { key, value: value.clone(), ..Default::default() };
        let began = Instant::now();
        let answer = endpoint.put(request, ANSWER_WITHIN).await;
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        answer.map_err(|status| Failure::broken(format!("put refused: {}", outcome::describe(&status))))?;
        histogram.saturating_record(micros);
    }
    Ok(histogram)
}

fn empty() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, 60_000_000, 3)
        .map_err(|error| Failure::harness(format!("histogram: {error}")))
}
