//! The list of watchers, a stream at a time: others get the hub's lock between two streams, however
//! many there are. A stream's own watchers are looked at in one go.

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use meerkat_proto::pb::admin as pb;
use meerkat_types::MemberId;
use meerkat_watch::{Hub, SlowPolicy, Standing, WatcherReport};
use tonic::Status;

/// Watchers in one message.
const PAGE_WATCHERS: usize = 1_000;

pub(super) fn list(
    hub: Hub,
    member: MemberId,
) -> BoxStream<'static, Result<pb::ListWatchersResponse, Status>> {
    let streams = stream::unfold((hub, 0), |(hub, at)| async move {
        // Others may want the lock.
        tokio::task::yield_now().await;
        let (next, reports) = hub.report(at)?;
        let revision = hub.frontier().get();
        Some(((revision, reports), (hub, next)))
    });
    let pages = streams.flat_map(move |(revision, reports)| {
        let pages: Vec<_> = reports
            .chunks(PAGE_WATCHERS)
            .map(|page| {
                let watchers = page.iter().map(watcher).collect();
                Ok(pb::ListWatchersResponse { member_id: member.0, revision, watchers })
            })
            .collect();
        stream::iter(pages)
    });
    pages.boxed()
}

fn watcher(report: &WatcherReport) -> pb::Watcher {
    let spec = &report.spec;
    let state = match report.standing {
        Standing::Synced => pb::WatcherState::Synced,
        Standing::CatchingUp => pb::WatcherState::CatchingUp,
        Standing::Ended => pb::WatcherState::Ended,
    };
    let slow = match report.slow {
        SlowPolicy::Wait => pb::SlowPolicy::Wait,
        SlowPolicy::Coalesce => pb::SlowPolicy::Coalesce,
        SlowPolicy::Cancel => pb::SlowPolicy::Cancel,
    };
    pb::Watcher {
        stream_id: report.stream,
        watch_id: spec.id.get(),
        client_address: report.client.to_string(),
        key: spec.range.first().bytes().clone(),
        range_end: spec.range.range_end(),
        state: state.into(),
        next_revision: report.next.get(),
        lag_revisions: report.lag_revisions,
        lag_ms: report.lag_ms,
        stream_queued_bytes: report.queued_bytes as u64,
        stream_queued_items: report.queued_items as u64,
        prev_kv: spec.previous,
        progress_notify: spec.progress,
        fragment: spec.fragment,
        no_put: spec.filter.no_put,
        no_delete: spec.filter.no_delete,
        slow_policy: slow.into(),
    }
}
