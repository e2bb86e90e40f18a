//! Makes a store large, quickly: many keys in each transaction, many transactions in flight.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use meerkat_proto::pb::etcdserver::{PutRequest, RequestOp, TxnRequest, request_op};

use crate::Failure;
use crate::endpoint::Endpoint;
use crate::outcome;

/// Under etcd's limit of 128 operations.
const KEYS_PER_TXN: u64 = 100;
const TXNS_IN_FLIGHT: usize = 32;
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
const ATTEMPTS_MAX: usize = 20;

/// Where the filled keys begin and end.
pub const FIRST_KEY: &[u8] = b"fill/";
/// The end of the filled keys, exclusive.
pub const END_KEY: &[u8] = b"fill0";

/// The key of one number; keys sort as their numbers do.
pub fn key(number: u64) -> Bytes {
    format!("fill/{number:010}").into_bytes().into()
}

/// Puts every key of a range of numbers. Retries: putting the same value twice does no harm here.
pub async fn fill(endpoints: &[Endpoint], numbers: Range<u64>, value_bytes: usize) -> Result<(), Failure> {
    let batches = numbers.clone().step_by(KEYS_PER_TXN as usize);
    let mut results = stream::iter(batches)
        .map(|first| {
            let endpoint = endpoints[(first / KEYS_PER_TXN) as usize % endpoints.len()].clone();
            let last = (first + KEYS_PER_TXN).min(numbers.end);
            async move { put_batch(&endpoint, first..last, value_bytes).await }
        })
        .buffer_unordered(TXNS_IN_FLIGHT);
    while let Some(result) = results.next().await {
        result?;
    }
    Ok(())
}

/// Puts keys one at a time, each a revision of its own, through many clients at once.
pub async fn write_singly(
    endpoints: &[Endpoint],
    numbers: Range<u64>,
    value_bytes: usize,
    clients: usize,
) -> Result<(), Failure> {
    let mut results = stream::iter(numbers)
        .map(|number| {
            let endpoint = endpoints[number as usize % endpoints.len()].clone();
            async move { put_batch(&endpoint, number..number + 1, value_bytes).await }
        })
        .buffer_unordered(clients);
    while let Some(result) = results.next().await {
        result?;
    }
    Ok(())
}

async fn put_batch(endpoint: &Endpoint, numbers: Range<u64>, value_bytes: usize) -> Result<(), Failure> {
    let put =
        |number| PutRequest { key: key(number), value: value(number, value_bytes), ..Default::default() };
    let success: Vec<RequestOp> = numbers
        .map(|number| RequestOp { request: Some(request_op::Request::RequestPut(put(number))) })
        .collect();
    let mut last = String::new();
    for _ in 0..ATTEMPTS_MAX {
        let request = TxnRequest { success: success.clone(), ..Default::default() };
        match endpoint.txn(request, ANSWER_WITHIN).await {
            Ok(_) => return Ok(()),
            Err(status) => last = outcome::describe(&status),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Failure::broken(format!("{} takes no writes: {last}", endpoint.url())))
}

/// Bytes that do not compress to nothing, the same for the same number.
fn value(number: u64, bytes: usize) -> Bytes {
    let mut value = Vec::with_capacity(bytes + 8);
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while value.len() < bytes {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(bytes);
    value.into()
}
