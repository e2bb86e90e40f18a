//! What happened to a resource, by the account of the etcd door.

use std::time::Duration;

use meerkat_proto::pb::mvcc::Event;
use meerkat_proto::pb::mvcc::event::EventType;
use serde_json::Value;

use crate::checker::list_watch::{Change, Object, Truth};
use crate::endpoint::{Endpoint, watch::Next};
use crate::record::watch::progress_request;
use crate::watch::WatchSpec;
use crate::{Failure, Patience};

/// Where config maps are stored.
pub const CONFIG_MAPS: &str = "/registry/configmaps/";

const READ_WITHIN: Duration = Duration::from_secs(20);

/// All changes of the resource stored at `place` since the store was empty. Nobody may be writing.
pub async fn read(endpoint: &Endpoint, place: &str) -> Result<Truth, Failure> {
    let upto = endpoint.linearizable_probe(READ_WITHIN).await?;
    let mut stream = endpoint.watch(&[])?;
    stream.send(WatchSpec::of_prefix(place.as_bytes()).request(1)).await;
    let patience = Patience::of(format!("all up to {upto} is told"), READ_WITHIN);
    let (mut changes, mut reached) = (Vec::new(), 0);
    while reached < upto {
        match stream.next(Duration::from_millis(100)).await {
            // What comes after the last event is only said when it is asked for.
            Next::Nothing => stream.send(progress_request()).await,
            Next::Ended(status) => return Err(Failure::broken(format!("the truth ended: {status:?}"))),
            Next::Response(response) if response.canceled => {
                return Err(Failure::broken(format!("the truth was refused: {}", response.cancel_reason)));
            }
            Next::Response(response) => {
                let revision = response.header.as_ref().map_or(0, |header| header.revision);
                if let Some(last) = response.events.last().and_then(|event| event.kv.as_ref()) {
                    reached = reached.max(last.mod_revision);
                } else if !response.created {
                    reached = reached.max(revision);
                }
                for event in &response.events {
                    changes.push(change(event, place)?);
                }
            }
        }
        patience.lasts(format_args!("told up to {reached}"))?;
    }
    patience.came().map(|_| Truth::new(changes))
}

fn change(event: &Event, place: &str) -> Result<Change, Failure> {
    let kv = event.kv.as_ref().ok_or_else(|| Failure::broken("an event without a key"))?;
    let name = name_of(&kv.key, place)?;
    let revision = u64::try_from(kv.mod_revision).unwrap_or(0);
    if event.r#type == EventType::Delete as i32 {
        return Ok(Change { revision, name, object: None });
    }
    let value: Value = serde_json::from_slice(&kv.value)
        .map_err(|error| Failure::broken(format!("{name} is stored as something else than JSON: {error}")))?;
    Ok(Change { revision, name, object: Some(Object::of(&value)) })
}

/// `namespace/name` of a key below `place`.
pub fn name_of(key: &[u8], place: &str) -> Result<String, Failure> {
    let text = String::from_utf8_lossy(key);
    let name = text.strip_prefix(place).map(str::to_owned);
    name.ok_or_else(|| Failure::broken(format!("{text:?} is not below {place}")))
}
