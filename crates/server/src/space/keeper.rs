//! Watches the room of this member: raises NOSPACE when its disk is nearly full, and clears its own
//! NOSPACE once there is room again.
//!
//! A learner raises nothing: it serves no writes, so its disk is not the cluster's to wait for.
//!
//! Always true: what an operator raised stays until an operator clears it; and between the mark at
//! which an alarm is raised and the one at which it is cleared there is a gap, so that it does not come
//! and go with every write.

use super::disk;
use super::quota::{ALARM_BYTES_MAX, raise_own};
use crate::config::Config;
use meerkat_raft::RaftNode;
use meerkat_types::{Alarm, AlarmBy, AlarmKind, Command};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const TICK: Duration = Duration::from_millis(500);

/// There is room again below this share of the quota.
const ROOM_PERCENT: u64 = 90;

/// There is room again on the disk above this share of what must be free.
const FREE_AGAIN_PERCENT: u64 = 150;

/// Looks in a row that find room before the alarm is cleared: five seconds, in which a script that compacts,
/// defragments and disarms finds the alarm that it disarms, as on etcd.
const ROOM_LOOKS: u32 = 10;

/// What one look found.
#[derive(Clone, Copy, Debug)]
struct Look {
    live_bytes: u64,
    quota_bytes: Option<u64>,
    /// Of the directory that has less, of data and log. `None` if it could not be found out.
    free_bytes: Option<u64>,
    free_bytes_min: u64,
    /// This member's NOSPACE, if it is on.
    raised: Option<AlarmBy>,
    is_learner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Nothing,
    Raise,
    Clear,
}

/// Runs until it is dropped.
pub(crate) async fn keep(raft: Arc<RaftNode>, config: Arc<Config>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut room_looks = 0;
    loop {
        ticks.tick().await;
        let alarm = Alarm { kind: AlarmKind::NoSpace, member: raft.member_id() };
        let deed = decide(&look(&raft, &config, alarm).await);
        match settled(deed, &mut room_looks) {
            Deed::Nothing => {}
            Deed::Raise => raise_own(&raft).await,
            Deed::Clear => clear(&raft, alarm).await,
        }
    }
}

async fn look(raft: &RaftNode, config: &Config, alarm: Alarm) -> Look {
    let by = |(on, by): (Alarm, AlarmBy)| (on == alarm).then_some(by);
    Look {
        live_bytes: raft.live_bytes(),
        quota_bytes: config.quota_backend_bytes,
        free_bytes: free_bytes(directories(config)).await,
        free_bytes_min: config.tuning.disk_free_min_bytes,
        raised: raft.reader().alarms().into_iter().find_map(by),
        is_learner: raft.leadership().is_learner(),
    }
}

/// Those that a write needs room in.
fn directories(config: &Config) -> Vec<PathBuf> {
    std::iter::once(&config.data_dir).chain(&config.wal_dir).cloned().collect()
}

/// Of the one that has least. A disk that does not answer is not full; others notice it.
async fn free_bytes(dirs: Vec<PathBuf>) -> Option<u64> {
    if meerkat_raft::threads::are_tasks() {
        return None;
    }
    let free_in = |dir: PathBuf| match disk::free_bytes(&dir) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tracing::debug!(%error, dir = %dir.display(), "the room on the disk is not known");
            None
        }
    };
    let least = move || dirs.into_iter().filter_map(free_in).min();
    meerkat_raft::threads::spawn_blocking_part("space", least).await.ok().flatten()
}

async fn clear(raft: &RaftNode, alarm: Alarm) {
    tracing::info!(live_bytes = raft.live_bytes(), "this member has room again: alarm NOSPACE is cleared");
    let command = Command::ClearAlarm { alarm, by: AlarmBy::Cluster };
    if let Err(error) = raft.proposer().propose(command, ALARM_BYTES_MAX).await {
        tracing::debug!(%error, "the alarm could not be cleared yet");
    }
}

/// Clearing waits for as many looks with room in a row.
fn settled(deed: Deed, room_looks: &mut u32) -> Deed {
    *room_looks = if deed == Deed::Clear { *room_looks + 1 } else { 0 };
    if deed == Deed::Clear && *room_looks < ROOM_LOOKS { Deed::Nothing } else { deed }
}

fn decide(look: &Look) -> Deed {
    let disk_is_full = look.free_bytes.is_some_and(|free| free < look.free_bytes_min);
    match look.raised {
        // The quota itself is checked with each write.
        None if disk_is_full && !look.is_learner => Deed::Raise,
        None | Some(AlarmBy::Operator) => Deed::Nothing,
        Some(AlarmBy::Cluster) => {
            let enough = look.free_bytes_min.saturating_mul(FREE_AGAIN_PERCENT) / 100;
            let disk_has_room = look.free_bytes.is_none_or(|free| enough <= free);
            let room =
                |quota: u64| look.live_bytes < quota / 100 * ROOM_PERCENT + quota % 100 * ROOM_PERCENT / 100;
            if disk_has_room && look.quota_bytes.is_none_or(room) { Deed::Clear } else { Deed::Nothing }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(live: u64, quota: Option<u64>, free: Option<u64>, raised: Option<AlarmBy>, expected: Deed) {
        let look = Look {
            live_bytes: live,
            quota_bytes: quota,
            free_bytes: free,
            free_bytes_min: 100,
            raised,
            is_learner: false,
        };
        assert_eq!(decide(&look), expected, "{look:?}");
    }

    #[test]
    fn the_alarm_is_cleared_below_nine_tenths_of_the_quota_and_not_before() {
        let on = Some(AlarmBy::Cluster);
        check(1000, Some(1000), Some(500), on, Deed::Nothing);
        check(900, Some(1000), Some(500), on, Deed::Nothing);
        check(899, Some(1000), Some(500), on, Deed::Clear);
        check(2000, None, Some(500), on, Deed::Clear);
    }

    #[test]
    fn alarm_is_cleared_after_five_seconds_of_room() {
        let mut room_looks = 0;
        for _ in 1..ROOM_LOOKS {
            assert_eq!(settled(Deed::Clear, &mut room_looks), Deed::Nothing);
        }
        assert_eq!(settled(Deed::Nothing, &mut room_looks), Deed::Nothing);
        for _ in 1..ROOM_LOOKS {
            assert_eq!(settled(Deed::Clear, &mut room_looks), Deed::Nothing);
        }
        assert_eq!(settled(Deed::Clear, &mut room_looks), Deed::Clear);
        assert_eq!(TICK * ROOM_LOOKS, Duration::from_secs(5));
    }

    #[test]
    fn a_disk_that_is_nearly_full_raises_it_and_one_with_some_more_room_clears_it() {
        check(0, Some(1000), Some(99), None, Deed::Raise);
        check(0, Some(1000), Some(100), None, Deed::Nothing);
        check(0, Some(1000), Some(149), Some(AlarmBy::Cluster), Deed::Nothing);
        check(0, Some(1000), Some(150), Some(AlarmBy::Cluster), Deed::Clear);
        check(0, Some(1000), None, None, Deed::Nothing);
    }

    #[test]
    fn a_learner_raises_nothing_and_clears_what_it_raised_before() {
        let raised = |free, raised| {
            let (live_bytes, quota_bytes, free_bytes_min) = (0, Some(1000), 100);
            let free_bytes = Some(free);
            decide(&Look { live_bytes, quota_bytes, free_bytes, free_bytes_min, raised, is_learner: true })
        };
        assert_eq!(raised(0, None), Deed::Nothing);
        assert_eq!(raised(150, Some(AlarmBy::Cluster)), Deed::Clear);
    }

    #[tokio::test]
    async fn the_disk_of_the_log_counts_beside_that_of_the_data() {
        let config = |wal_dir: Option<&str>| {
            let raw = crate::config::RawFlags {
                data_dir: Some("/".into()),
                wal_dir: wal_dir.map(PathBuf::from),
                ..crate::config::RawFlags::default()
            };
            directories(&Config::from_flags(raw).expect("flags"))
        };
        assert_eq!(config(None), [PathBuf::from("/")]);
        assert_eq!(config(Some("/proc")), [PathBuf::from("/"), PathBuf::from("/proc")]);
        // No disk at all, so without any room.
        assert_eq!(free_bytes(config(Some("/proc"))).await, Some(0));
        assert_ne!(free_bytes(config(None)).await, Some(0));
        assert_eq!(free_bytes(vec!["/no such directory".into()]).await, None);
    }

    #[test]
    fn what_an_operator_raised_is_the_operators_to_clear() {
        check(0, Some(1000), Some(500), Some(AlarmBy::Operator), Deed::Nothing);
    }

    #[test]
    fn a_member_above_its_quota_that_nobody_writes_to_raises_nothing() {
        check(5000, Some(1000), Some(500), None, Deed::Nothing);
    }
}
