//! Clients that hold leases with keys, renew, let go and revoke; watchers see when the keys go.
//!
//! Judged by `lease_bounds`. Changes of leader and times without one come from asking all the time;
//! while a fault is on, and for a moment after it, nothing is demanded to be quick. A key that is
//! gone without any watcher having been told, because compaction overtook them all, proves nothing;
//! what its clients were told of the lease does. And in the end, whatever went wrong before, no key may
//! be left.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::DeleteRangeRequest;

use super::crew::{READ_BACK_WITHIN, is_passing, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::lease_bounds::{self, Bounds};
use crate::endpoint::Endpoint;
use crate::lease::keeper::Place;
use crate::lease::witness::{Stalls, file};
use crate::lease::{self, Keepers, LeaderWatch};
use crate::record::Verdict;
use crate::record::lease::{LeaseHistory, Span};
use crate::record::trace::Fault;
use crate::watch::follower::{self, Following, Manner};
use crate::watch::{WatchLog, WatchSpec};

const NAME: &str = "lease";
const KEEPERS: usize = 12;
const TTL_SECONDS: std::ops::RangeInclusive<i64> = 2..=6;
const WATCHERS: usize = 3;
const ASKERS: usize = 3;
const ASK_EVERY: Duration = Duration::from_millis(100);
/// The longest TTL, twice if the last leader is new, and the lateness.
const RUN_OUT: Duration = Duration::from_secs(16);
/// Looked at so often before what is left is held against the cluster: each new leader since would
/// have begun all TTLs again.
const LEFT_LOOKS: usize = 3;
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// How often the last key is tried on a healed cluster.
const LAST_TRIES: usize = 5;
/// How long the harm of a fault goes on after it was undone. A member that was cut off tells of the
/// end of a lease once it is connected again, which takes it a few seconds.
const AFTERMATH: Duration = Duration::from_secs(8);

/// No new leader goes by what is recorded of a TTL: by default that is done once a minute.
fn bounds() -> Bounds {
    Bounds {
        lateness: lease::lateness(),
        checkpoint: None,
        election: Duration::from_secs(1),
        straggle: Duration::from_millis(500),
    }
}

struct Lease {
    setting: Setting,
    keepers: Keepers,
    leaders: LeaderWatch,
    watchers: Vec<Following>,
    stalls: Stalls,
}

/// Starts keepers and watchers.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let leaders = LeaderWatch::start_on(&setting.roster, ASKERS, ASK_EVERY, setting.began);
    let watch = |number: usize| {
        let spec = WatchSpec { no_put: true, ..WatchSpec::of_prefix(setting.prefix.as_bytes()) };
        let log = WatchLog::new(format!("{NAME}/{number}"), spec);
        // A mark now and then, so that only a member that does not answer is silent.
        let manner = Manner {
            patience: Duration::from_millis(1_500),
            asks_progress: Some(Duration::from_millis(500)),
            trusts_marks: false,
            seed: setting.seed.wrapping_add(number as u64),
            ..Manner::default()
        };
        follower::start_on(&setting.roster, number, setting.began, log, manner)
    };
    let watchers = (0..WATCHERS).map(watch).collect();
    let place = Place {
        roster: setting.roster.clone(),
        under: setting.prefix.clone(),
        ttl_seconds: TTL_SECONDS,
        clients: (0..KEEPERS).map(|number| setting.trace.client(format!("{NAME}/{number}"))).collect(),
    };
    let keepers = Keepers::start_at(&place, KEEPERS, setting.seed, setting.began);
    let stalls = Stalls::start(setting.began);
    Box::new(Lease { setting, keepers, leaders, watchers, stalls })
}

impl Workload for Lease {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(self.end())
    }
}

impl Lease {
    async fn end(self) -> Result<Vec<Verdict>, Failure> {
        let mut history = LeaseHistory { leases: self.keepers.finish().await?, ..LeaseHistory::default() };
        tokio::time::sleep(RUN_OUT).await;
        let last = last_deletion(&self.setting).await?;
        let deadline = Instant::now() + TOLD_WITHIN;
        while Instant::now() < deadline && !self.watchers.iter().all(|watcher| last < watcher.next()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        history.ended = self.setting.began.elapsed();
        let mut logs = Vec::new();
        for watcher in self.watchers {
            logs.push(watcher.finish().await?);
        }
        let reign = self.leaders.finish().await?;
        (history.leader_changes, history.outages) = (reign.changes, reign.outages);
        history.stalls = self.stalls.finish().await?;
        file(&logs, &mut history.leases);
        let there = keys_left(&self.setting).await?;
        let faults = self.setting.trace.record().faults;
        excuse(&mut history, &faults, &there);
        let undecided = lease_bounds::undecided(&history, &bounds());
        let kept = history.leases.iter().filter(|lease| !lease.keys.is_empty()).count();
        let judged = kept.saturating_sub(undecided) as u64;
        println!(
            "lease: {judged} judged, {undecided} undecided, {} changes of leader, {:?}",
            history.leader_changes.len(),
            lease_bounds::margins(&history, &bounds())
        );
        let mut findings = lease_bounds::check(&history, &bounds());
        findings.extend(outlived(&there, &last_key(&self.setting)));
        let promise = "no key dies before its lease's time, and none lives much longer".to_owned();
        Ok(vec![Verdict { workload: NAME.to_owned(), promise, judged, findings }])
    }
}

/// Takes the faults into account: what was on its way during one may be acted on after it, and
/// nothing is demanded to be quick. Leases that met a clock that ran wrong are left out, and keys that
/// are gone although nobody was told when: what was said of their leases is judged all the same.
fn excuse(history: &mut LeaseHistory, faults: &[Fault], there: &HashSet<Bytes>) {
    let ended = history.ended;
    let span = |fault: &Fault| Span {
        from: Duration::from_micros(fault.struck_us),
        until: fault.healed_us.map_or(ended, |healed| Duration::from_micros(healed) + AFTERMATH),
    };
    // These go on for long and harm nobody's pace.
    let mild = |fault: &&Fault| !matches!(fault.kind.as_str(), "compaction" | "snapshot-storm");
    let spans: Vec<Span> = faults.iter().filter(mild).map(span).collect();
    history.pauses.extend(&spans);
    history.stalls.extend(&spans);
    let clocks: Vec<Span> = faults.iter().filter(|fault| fault.kind == "clock-skew").map(span).collect();
    history.leases.retain(|lease| {
        let life = Span { from: lease.grant.from, until: lease.last_death().unwrap_or(ended) };
        !clocks.iter().any(|clock| clock.meets(life))
    });
    for lease in &mut history.leases {
        lease.keys.retain(|key| !key.deaths.is_empty() || there.contains(&key.key));
    }
}

/// Keys that are there although every lease was let go long ago. The last key hangs on none.
fn outlived(there: &HashSet<Bytes>, last: &Bytes) -> Vec<String> {
    let mut left: Vec<&Bytes> = there.iter().filter(|key| *key != last).collect();
    left.sort();
    let told = |key: &Bytes| format!("{} is there long after its lease was let go", key.escape_ascii());
    left.into_iter().map(told).collect()
}

/// The keys that are still there, and stay.
async fn keys_left(setting: &Setting) -> Result<HashSet<Bytes>, Failure> {
    let mut there = keys_there(setting).await?;
    for _ in 1..LEFT_LOOKS {
        if there.is_empty() {
            break;
        }
        tokio::time::sleep(RUN_OUT).await;
        there = keys_there(setting).await?;
    }
    Ok(there)
}

fn last_key(setting: &Setting) -> Bytes {
    format!("{}~last", setting.prefix).into()
}

/// The keys that are there now.
async fn keys_there(setting: &Setting) -> Result<HashSet<Bytes>, Failure> {
    let request = wire::get_all(setting.prefix.as_bytes());
    let answer = read_back(&setting.roster.at(0).endpoint, request).await?;
    Ok(answer.kvs().iter().map(|kv| Bytes::copy_from_slice(&kv.key)).collect())
}

/// Puts and deletes one more key, so that watchers have something to be level with; its revision.
async fn last_deletion(setting: &Setting) -> Result<i64, Failure> {
    let endpoint = setting.roster.at(0).endpoint;
    let key = last_key(setting);
    for tries_left in (0..LAST_TRIES).rev() {
        match put_and_delete(&endpoint, &key).await {
            Ok(revision) => return Ok(revision),
            Err(status) if is_passing(&status) && 0 < tries_left => {}
            Err(status) => return Err(status.into()),
        }
    }
    Err(Failure::harness("no last key was tried"))
}

async fn put_and_delete(endpoint: &Endpoint, key: &Bytes) -> Result<i64, tonic::Status> {
    endpoint.put(wire::put(key, ""), READ_BACK_WITHIN).await?;
    let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
    let deleted = endpoint.delete(delete, READ_BACK_WITHIN).await?;
    Ok(wire::revision(&deleted.header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::lease::{Death, KeyRecord, LeaseRecord};

    fn fault(kind: &str, struck_us: u64, healed_us: u64) -> Fault {
        let (kind, what) = (kind.to_owned(), String::new());
        Fault { kind, what, members: vec![], made: true, struck_us, healed_us: Some(healed_us) }
    }

    fn lease(died: Option<u64>) -> LeaseRecord {
        let death = |at| Death { member: 0, at: Duration::from_secs(at), revision: 9 };
        let deaths = died.map(death).into_iter().collect();
        let key = KeyRecord { key: Bytes::from_static(b"k"), deaths };
        let grant = Span { from: Duration::from_secs(10), until: Duration::from_secs(10) };
        LeaseRecord { grant, keys: vec![key], ttl: Duration::from_secs(5), ..LeaseRecord::default() }
    }

    fn kept(lease: LeaseRecord, faults: &[Fault], there: bool) -> LeaseHistory {
        let ended = Duration::from_secs(60);
        let mut history = LeaseHistory { leases: vec![lease], ended, ..LeaseHistory::default() };
        let there = there.then(|| Bytes::from_static(b"k")).into_iter().collect();
        excuse(&mut history, faults, &there);
        history
    }

    #[test]
    fn a_key_whose_end_nobody_saw_proves_nothing_unless_it_is_still_there() {
        let keys = |history: LeaseHistory| history.leases[0].keys.len();
        assert_eq!(keys(kept(lease(None), &[], false)), 0);
        assert_eq!(keys(kept(lease(None), &[], true)), 1);
        assert_eq!(keys(kept(lease(Some(16)), &[], false)), 1);
    }

    #[test]
    fn a_lease_that_was_said_to_be_gone_too_early_is_found_though_nobody_saw_its_keys_go() {
        let said = |at| {
            let lease = LeaseRecord { said_gone: vec![Duration::from_secs(at)], ..lease(None) };
            lease_bounds::check(&kept(lease, &[], false), &bounds()).len()
        };
        assert_eq!((said(14), said(15)), (1, 0));
    }

    #[test]
    fn a_key_that_is_left_in_the_end_is_found_whatever_went_wrong_before() {
        let last = Bytes::from_static(b"~last");
        let left = |keys: &[&'static str]| {
            let there = keys.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
            outlived(&there, &last).len()
        };
        assert_eq!((left(&[]), left(&["~last"]), left(&["k", "~last", "l"])), (0, 0, 2));
    }

    #[test]
    fn faults_widen_what_is_allowed_and_wrong_clocks_prove_nothing() {
        let killed = kept(lease(Some(16)), &[fault("kill", 0, 1), fault("compaction", 0, 9)], false);
        assert_eq!((killed.stalls.len(), killed.pauses.len(), killed.leases.len()), (1, 1, 1));
        assert_eq!(kept(lease(Some(16)), &[fault("clock-skew", 0, 12_000_000)], false).leases.len(), 0);
        assert_eq!(kept(lease(Some(16)), &[fault("clock-skew", 0, 1_000_000)], false).leases.len(), 1);
    }
}
