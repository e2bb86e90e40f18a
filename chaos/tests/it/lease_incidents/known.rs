//! 12651: a member that started again had lost leases, or what hung on them, and nobody noticed
//! until it led.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::outcome::describe;
use meerkat_chaos::scenario::{run_test, settle, snapshot};
use meerkat_chaos::workload::fill;
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest};
use tonic::Status;

use super::product;

const BUDGET: Duration = Duration::from_secs(120);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const READY_WITHIN: Duration = Duration::from_secs(40);
/// Longer than any test.
const TTL: i64 = 600;
/// More than the log keeps.
const WRITES: u64 = 10_000;
const FILL_CLIENTS: usize = 64;
const TRANSFERS_MAX: usize = 10;

fn refused(status: Status) -> Failure {
    status.into()
}

/// Leases and the keys that hang on each, as they should be.
#[derive(Clone, Debug, Default)]
struct Leases(BTreeMap<i64, BTreeSet<Bytes>>);

impl Leases {
    async fn grant(&mut self, endpoint: &Endpoint, id: i64, keys: usize) -> Result<(), Failure> {
        let request = LeaseGrantRequest { ttl: TTL, id };
        endpoint.lease_grant(request, ANSWER_WITHIN).await.map_err(refused)?;
        self.0.insert(id, BTreeSet::new());
        for number in 0..keys {
            self.attach(endpoint, id, format!("lease/{id}/{number}").into_bytes().into()).await?;
        }
        Ok(())
    }

    async fn attach(&mut self, endpoint: &Endpoint, id: i64, key: Bytes) -> Result<(), Failure> {
        let put = PutRequest { key: key.clone(), lease: id, ..Default::default() };
        endpoint.put(put, ANSWER_WITHIN).await.map_err(refused)?;
        self.forget(&key);
        if let Some(keys) = self.0.get_mut(&id) {
            keys.insert(key);
        }
        Ok(())
    }

    async fn delete(&mut self, endpoint: &Endpoint, key: Bytes) -> Result<(), Failure> {
        let delete = DeleteRangeRequest { key: key.clone(), ..Default::default() };
        endpoint.delete(delete, ANSWER_WITHIN).await.map_err(refused)?;
        self.forget(&key);
        Ok(())
    }

    async fn revoke(&mut self, endpoint: &Endpoint, id: i64) -> Result<BTreeSet<Bytes>, Failure> {
        endpoint.lease_revoke(id, ANSWER_WITHIN).await.map_err(refused)?;
        Ok(self.0.remove(&id).unwrap_or_default())
    }

    fn forget(&mut self, key: &Bytes) {
        self.0.values_mut().for_each(|keys| {
            keys.remove(key);
        });
    }

    /// Every way a lease can come by keys and lose them.
    async fn vary(&mut self, endpoint: &Endpoint, first: i64) -> Result<(), Failure> {
        for id in first..first + 12 {
            self.grant(endpoint, id, usize::try_from(id % 4).unwrap_or(0)).await?;
        }
        let key = |id: i64, number: usize| Bytes::from(format!("lease/{id}/{number}").into_bytes());
        let many = (first..first + 12).find(|id| id % 4 == 3).unwrap_or(first);
        self.attach(endpoint, first, key(many, 0)).await?;
        self.delete(endpoint, key(many, 1)).await?;
        // Off its lease, onto none.
        self.attach(endpoint, 0, key(many, 2)).await?;
        self.revoke(endpoint, first + 5).await?;
        self.revoke(endpoint, first + 8).await.map(|_| ())
    }

    /// Every member must know exactly these.
    async fn require(&self, cluster: &Cluster) -> Result<(), Failure> {
        for member in cluster.members() {
            let endpoint = member.endpoint();
            endpoint.linearizable_probe(ANSWER_WITHIN).await.map_err(refused)?;
            let listed = endpoint.lease_leases(ANSWER_WITHIN).await.map_err(refused)?;
            let listed: BTreeSet<i64> = listed.leases.iter().map(|lease| lease.id).collect();
            let known: BTreeSet<i64> = self.0.keys().copied().collect();
            if listed != known {
                let (name, missing) = (member.name(), known.symmetric_difference(&listed));
                return Err(Failure::broken(format!(
                    "{name} lists other leases: {:?} differ",
                    missing.collect::<Vec<_>>()
                )));
            }
            for (id, keys) in &self.0 {
                let answer = endpoint.lease_time_to_live(*id, true, ANSWER_WITHIN).await.map_err(refused)?;
                let attached: BTreeSet<Bytes> = answer.keys.into_iter().collect();
                if attached != *keys || answer.granted_ttl != TTL || answer.ttl <= 0 {
                    return Err(Failure::broken(format!(
                        "{} says of lease {id}: {} of {} s, keys {attached:?}; they are {keys:?}",
                        member.name(),
                        answer.ttl,
                        answer.granted_ttl
                    )));
                }
            }
        }
        Ok(())
    }

    /// Revokes every lease through one member: just its keys go, on every member.
    async fn revoke_all(mut self, cluster: &Cluster, through: usize) -> Result<(), Failure> {
        let endpoint = cluster.members()[through].endpoint();
        let mut gone = BTreeSet::new();
        for id in self.0.keys().copied().collect::<Vec<_>>() {
            gone.extend(self.revoke(endpoint, id).await?);
        }
        for member in cluster.members() {
            for key in &gone {
                let range = RangeRequest { key: key.clone(), ..Default::default() };
                let answer = member.endpoint().range(range, ANSWER_WITHIN).await.map_err(refused)?;
                if answer.count != 0 {
                    let (name, key) = (member.name(), key.escape_ascii());
                    return Err(Failure::broken(format!("{name} still has {key} of a revoked lease")));
                }
            }
        }
        self.require(cluster).await?;
        settle::agree(cluster, product()).await
    }
}

/// Hands the lead over until a member has it.
async fn make_leader(cluster: &Cluster, wanted: usize) -> Result<(), Failure> {
    let status = cluster.members()[wanted].endpoint().status(ANSWER_WITHIN).await.map_err(refused)?;
    let id = status.header.map_or(0, |header| header.member_id);
    let mut last = String::new();
    for _ in 0..TRANSFERS_MAX {
        let leader = cluster.leader(READY_WITHIN).await?;
        if leader == wanted {
            return Ok(());
        }
        // An election of its own may come between; then whoever leads now is asked.
        if let Err(status) = cluster.members()[leader].endpoint().move_leader(id, ANSWER_WITHIN).await {
            last = describe(&status);
        }
    }
    Err(Failure::broken(format!("member {wanted} was never made to lead: {last}")))
}

#[test]
fn a_member_that_started_again_knows_every_lease_and_what_hangs_on_it() {
    run_test("leases after a restart", BUDGET, async {
        let spec = ClusterSpec::new(product(), 3).with_quick_elections();
        let mut cluster = Cluster::start(&spec).await?;
        let mut leases = Leases::default();
        for member in 0..3 {
            let endpoint = cluster.members()[member].endpoint().clone();
            leases.vary(&endpoint, 100 * (member as i64 + 1)).await?;
        }
        leases.require(&cluster).await?;
        for member in 0..3 {
            cluster.member(member).kill()?;
            cluster.revive(READY_WITHIN).await?;
            leases.require(&cluster).await?;
        }
        for member in 0..3 {
            cluster.member(member).kill()?;
        }
        cluster.revive(READY_WITHIN).await?;
        for member in 0..3 {
            // What hangs on a lease is answered by whoever leads, so each must lead once.
            make_leader(&cluster, member).await?;
            leases.require(&cluster).await?;
        }
        leases.revoke_all(&cluster, 0).await?;
        cluster.finish()
    });
}

#[test]
fn a_member_that_caught_up_by_snapshot_knows_every_lease_and_what_hangs_on_it() {
    run_test("leases after a snapshot", BUDGET, async {
        let flags = match product() {
            Product::Meerkat => snapshot::short_log_flags(),
            Product::Etcd => vec!["--snapshot-count=1000".to_owned()],
        };
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let spec = ClusterSpec::new(product(), 3).with_quick_elections().with_flags(&flags);
        let mut cluster = Cluster::start(&spec).await?;
        let sleeper = 0;
        let mut awake = cluster.endpoints();
        awake.remove(sleeper);
        let mut leases = Leases::default();
        leases.vary(&awake[0], 100).await?;
        cluster.member(sleeper).kill()?;
        let printed = cluster.members()[sleeper].printed()?.len();
        // Some are gone, and some new, when it comes back.
        leases.revoke(&awake[1], 103).await?;
        leases.vary(&awake[1], 200).await?;
        fill::write_singly(&awake, 0..WRITES, 200, FILL_CLIENTS).await?;
        leases.vary(&awake[0], 300).await?;
        cluster.revive(READY_WITHIN).await?;
        let printed = &cluster.members()[sleeper].printed()?[printed..];
        if !printed.contains("\"installing a snapshot\"") && !printed.contains("\"applied snapshot\"") {
            return Err(Failure::harness("the member caught up without a snapshot"));
        }
        leases.require(&cluster).await?;
        make_leader(&cluster, sleeper).await?;
        leases.require(&cluster).await?;
        leases.revoke_all(&cluster, sleeper).await?;
        cluster.finish()
    });
}
