//! Puts the keys there that a load of reads will look for.
//!
//! Batches of puts in transactions: much faster than puts, and the store afterwards is the same but
//! for its revisions. Not measured. Either every key is there at the end, or the bench fails.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use indicatif::ProgressBar;

use super::load::error_text;
use super::wire::Connection;
use super::workload::{Random, Workload};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// Puts in one transaction: below etcd's limit of 128 operations.
const BATCH_KEYS_MAX: u64 = 100;
/// Bytes of values in one transaction: below etcd's limit of 1.5 MiB a request.
const BATCH_BYTES_MAX: u64 = 1 << 20;
const WORKERS: usize = 16;
const ATTEMPTS_MAX: usize = 50;
const PAUSE_BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

pub fn run(
    workload: &Workload,
    endpoints: &[Endpoint],
    keys: u64,
    value_bytes: usize,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let batch = (BATCH_BYTES_MAX / (value_bytes as u64 + 64)).clamp(1, BATCH_KEYS_MAX);
    let next = Rc::new(Cell::new(0_u64));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let workers = (0..WORKERS).map(|number| {
        let connection = Connection::new(endpoints[number % endpoints.len()].clone());
        let next = Rc::clone(&next);
        async move {
            let mut random = Random::new(number as u64);
            while next.get() < keys {
                let first = next.get();
                let end = (first + batch).min(keys);
                next.set(end);
                fill(workload, &connection, first, end, &mut random).await?;
                bar.inc(end - first);
            }
            Ok::<(), Failure>(())
        }
    });
    runtime.block_on(futures::future::try_join_all(workers))?;
    Ok(())
}

async fn fill(
    workload: &Workload,
    connection: &Connection,
    first: u64,
    end: u64,
    random: &mut Random,
) -> Result<(), Failure> {
    let mut last_error = String::new();
    for _ in 0..ATTEMPTS_MAX {
        match connection.call(workload.fill(first, end, random)).await {
            Ok(_) => return Ok(()),
            Err(status) => last_error = error_text(&status),
        }
        tokio::time::sleep(PAUSE_BETWEEN_ATTEMPTS).await;
    }
    Err(Failure::error(format!("prefill through {} failed: {last_error}", connection.endpoint())))
}
