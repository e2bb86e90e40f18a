//! One of the two clusters compared: its processes, and what every comparison asks of them.

use std::time::Duration;

use tonic::transport::Channel;

use super::request::{Answer, Request};
use super::watch::transcript::Identity;
use super::watch::wire::WatchStream;
use crate::Failure;
use crate::driver::{Cluster, ClusterSpec, Product};
use crate::endpoint::Endpoint;
use crate::outcome::describe;

const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The members of one cluster.
#[derive(Debug)]
pub struct Members {
    /// Whose.
    pub product: Product,
    /// Their processes.
    pub cluster: Cluster,
    /// A way to each.
    pub endpoints: Vec<Endpoint>,
    /// For watches, which do not share a connection with requests.
    channels: Vec<(Channel, Identity)>,
}

impl Members {
    /// Starts a cluster.
    pub async fn start(spec: &ClusterSpec) -> Result<Self, Failure> {
        let cluster = Cluster::start(spec).await?;
        let endpoints = cluster.endpoints();
        let mut channels = Vec::new();
        for endpoint in &endpoints {
            let status = endpoint.status(ANSWER_WITHIN).await;
            let status =
                status.map_err(|status| Failure::broken(format!("status: {}", describe(&status))))?;
            let header = status.header.unwrap_or_default();
            let identity = Identity { cluster: header.cluster_id, member: header.member_id };
            channels.push((endpoint.apart(None)?.channel(), identity));
        }
        Ok(Self { product: spec.product, cluster, endpoints, channels })
    }

    /// Brings a member level with its cluster; returns the revision. What it then answers from what it
    /// has applied is determined.
    pub async fn level(&self, member: usize) -> Result<i64, Failure> {
        let probe = self.endpoints[member].linearizable_probe(ANSWER_WITHIN).await;
        probe.map_err(|status| Failure::broken(format!("cannot read: {}", describe(&status))))
    }

    /// Brings every member level.
    pub async fn level_all(&self) -> Result<i64, Failure> {
        let probes = (0..self.endpoints.len()).map(|member| self.level(member));
        Ok(futures::future::try_join_all(probes).await?.into_iter().max().unwrap_or(0))
    }

    /// Sends a request of the KV service through one member.
    pub async fn change(&self, member: usize, request: &Request) -> Answer {
        request.send(&self.endpoints[member]).await.without_identity()
    }

    /// Opens a watch stream to a member. With `requires_leader` it says so.
    pub fn watch(&self, member: usize, requires_leader: bool) -> WatchStream {
        let (channel, identity) = &self.channels[member];
        WatchStream::open(self.product, channel, *identity, requires_leader)
    }

    /// Kills all members but the first.
    pub fn bereave(&mut self) -> Result<(), Failure> {
        (1..self.endpoints.len()).try_for_each(|member| self.cluster.member(member).kill())
    }
}
