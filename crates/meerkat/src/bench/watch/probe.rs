//! Asks every member for one watcher before anything is measured.
//!
//! The measuring client does not read why a server ends a stream; this one does, so that a server
//! without a Watch service, or one that refuses us, is named as such.

use std::time::Duration;

use meerkat_proto::pb::etcdserver as pb;
use pb::watch_client::WatchClient;
use tonic::transport::Channel;

use crate::bench::load::error_text;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);

/// A server that holds watchers back until its store is ready gets this long.
pub fn run(endpoints: &[Endpoint]) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for endpoint in endpoints {
        let answer = runtime.block_on(async {
            match tokio::time::timeout(PATIENCE, create_one(endpoint)).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no watcher was created in {} s", PATIENCE.as_secs())),
            }
        });
        answer.map_err(|why| Failure::error(format!("{endpoint} cannot be watched: {why}")))?;
    }
    Ok(())
}

async fn create_one(endpoint: &Endpoint) -> Result<(), String> {
    let channel = Channel::from_shared(endpoint.uri()).map_err(|error| error.to_string())?;
    let channel = channel.connect().await.map_err(|error| format!("cannot connect: {}", cause(&error)))?;
    let create = pb::WatchCreateRequest { key: b"bench/probe".to_vec().into(), ..Default::default() };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    let request = pb::WatchRequest { request_union: Some(union) };
    // Stays open after its one request: a stream whose requests have ended may be ended too.
    let requests = futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let answer = WatchClient::new(channel).watch(requests).await.map_err(|status| error_text(&status))?;
    match answer.into_inner().message().await.map_err(|status| error_text(&status))? {
        Some(response) if response.created && !response.canceled => Ok(()),
        Some(response) => Err(format!("the watcher was refused: {}", response.cancel_reason)),
        None => Err("the stream ended at once".to_owned()),
    }
}

/// tonic's own text is "transport error"; what lies beneath says which.
fn cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
