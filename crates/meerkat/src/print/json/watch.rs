//! Watching, as JSON: what a watch tells in the shape of etcd's Go client, and the list of watchers
//! in ours.

use meerkat_proto::pb::admin;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc;
use serde::Serialize;

use super::super::{EndpointWatchers, watcher_state};
use super::{Header, Kv, base64, header, is_zero};

/// Named and ordered as a Go struct without tags. A response that no server sent has no header and
/// no list.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Watch<'a> {
    header: Header,
    events: Option<Vec<Event<'a>>>,
    compact_revision: i64,
    canceled: bool,
    created: bool,
}

#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type", skip_serializing_if = "is_zero")]
    kind: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    kv: Option<Kv<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_kv: Option<Kv<'a>>,
}

impl<'a> From<&'a pb::WatchResponse> for Watch<'a> {
    fn from(response: &'a pb::WatchResponse) -> Watch<'a> {
        let event = |event: &'a mvcc::Event| Event {
            kind: event.r#type,
            kv: event.kv.as_ref().map(Kv::from),
            prev_kv: event.prev_kv.as_ref().map(Kv::from),
        };
        let sent = response.header.is_some();
        Watch {
            header: header(&response.header).unwrap_or(Header::NONE),
            events: sent.then(|| response.events.iter().map(event).collect()),
            compact_revision: response.compact_revision,
            canceled: response.canceled,
            created: response.created,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Watchers<'a> {
    endpoint: &'a str,
    member_id: u64,
    revision: i64,
    watchers: Vec<Watcher<'a>>,
}

#[derive(Serialize)]
struct Watcher<'a> {
    client: &'a str,
    stream: u64,
    watch_id: i64,
    #[serde(serialize_with = "base64")]
    key: &'a [u8],
    #[serde(skip_serializing_if = "<[u8]>::is_empty", serialize_with = "base64")]
    range_end: &'a [u8],
    state: &'static str,
    next_revision: i64,
    lag_revisions: i64,
    lag_ms: u64,
    stream_queued_bytes: u64,
    stream_queued_items: u64,
    prev_kv: bool,
    progress_notify: bool,
    fragment: bool,
    no_put: bool,
    no_delete: bool,
    slow: &'static str,
}

impl<'a> From<&'a EndpointWatchers> for Watchers<'a> {
    fn from(list: &'a EndpointWatchers) -> Watchers<'a> {
        Watchers {
            endpoint: &list.endpoint,
            member_id: list.member_id,
            revision: list.revision,
            watchers: list.watchers.iter().map(Watcher::from).collect(),
        }
    }
}

impl<'a> From<&'a admin::Watcher> for Watcher<'a> {
    fn from(watcher: &'a admin::Watcher) -> Watcher<'a> {
        Watcher {
            client: &watcher.client_address,
            stream: watcher.stream_id,
            watch_id: watcher.watch_id,
            key: &watcher.key,
            range_end: &watcher.range_end,
            state: watcher_state(watcher),
            next_revision: watcher.next_revision,
            lag_revisions: watcher.lag_revisions,
            lag_ms: watcher.lag_ms,
            stream_queued_bytes: watcher.stream_queued_bytes,
            stream_queued_items: watcher.stream_queued_items,
            prev_kv: watcher.prev_kv,
            progress_notify: watcher.progress_notify,
            fragment: watcher.fragment,
            no_put: watcher.no_put,
            no_delete: watcher.no_delete,
            slow: match watcher.slow_policy() {
                admin::SlowPolicy::Wait => "wait",
                admin::SlowPolicy::Coalesce => "coalesce",
                admin::SlowPolicy::Cancel => "cancel",
            },
        }
    }
}
