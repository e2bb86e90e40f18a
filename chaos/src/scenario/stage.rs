//! A cluster under the load whose every write has an identity, and the account of what is done to it.

use std::time::Duration;

use super::account::{Account, members_of};
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec};
use crate::endpoint::{Endpoint, Roster};
use crate::report::Story;
use crate::workload::unique::{self, Running, Shape};

/// How long a cluster may take until it serves.
pub const READY_WITHIN: Duration = Duration::from_secs(30);
/// Writes that must still be acknowledged when all is mended.
const WRITES_AFTER: u64 = 50;

/// The cluster, its load, and the account.
pub struct Stage {
    pub cluster: Cluster,
    pub load: Running,
    pub account: Account,
    started_at: i64,
}

/// The revision before the first write.
pub async fn first_revision(endpoint: &Endpoint) -> Result<i64, Failure> {
    Ok(endpoint.linearizable_probe(READY_WITHIN).await?)
}

impl Stage {
    /// Starts a cluster and its load.
    pub async fn set(spec: &ClusterSpec, shape: Shape, mut account: Account) -> Result<Self, Failure> {
        let cluster = Cluster::start(spec).await?;
        let started_at = first_revision(cluster.members()[0].endpoint()).await?;
        account.look(&Roster::of(&cluster.endpoints()));
        let load = unique::start(&cluster.endpoints(), shape, 1, &account.trace);
        Ok(Self { cluster, load, account, started_at })
    }

    /// Brings everybody back, lets the load go on, and then judges all.
    pub async fn judge(self) -> Result<Story, Failure> {
        let (cluster, ended) = self.judged().await;
        let story = ended?;
        cluster.finish()?;
        Ok(story)
    }

    /// The same where a failure is what is wanted, and the cluster is still to be finished.
    pub async fn judged(mut self) -> (Cluster, Result<Story, Failure>) {
        let ended = async {
            self.cluster.revive(READY_WITHIN).await?;
            self.load.wait_for_more(WRITES_AFTER, READY_WITHIN).await
        };
        // A cluster that is stuck may have lost something as well.
        self.account.ended(ended.await);
        let ended = async {
            let members = members_of(&self.cluster);
            let history = self.load.finish().await?;
            self.account.judge(&members, &history, self.started_at).await;
            self.account.close(members).await
        };
        let ended = ended.await;
        (self.cluster, ended)
    }
}
