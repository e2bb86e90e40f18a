//! The leader is cut off from the others, both ways or one way only, packet by packet, under load:
//! the others must serve, the one cut off must not read the past, and once healed nothing that was
//! acknowledged may be missing.

use std::time::{Duration, Instant};

use super::account::{Account, members_of};
use super::stage::first_revision;
use crate::Failure;
use crate::driver::netns::NetnsGround;
use crate::driver::{ClusterSpec, Product};
use crate::ground::{Ground, Link};
use crate::record::Verdict;
use crate::report::Story;
use crate::workload::unique::{self, Running, Shape};

const READY_WITHIN: Duration = Duration::from_secs(20);
const MEMBERS: usize = 3;
/// Writes that must be acknowledged before, during and after each cut.
const WRITES: u64 = 50;

/// Which way nothing gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Neither way.
    Both,
    /// What the leader sends is lost; it hears the others.
    FromLeader,
    /// What the others send the leader is lost; they hear it.
    ToLeader,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose servers.
    pub product: Product,
    /// The cuts, one after the other.
    pub cuts: Vec<Cut>,
    /// How long each lasts, at least.
    pub lasting: Duration,
}

/// Runs it.
pub async fn run(plan: &Plan) -> Result<Story, Failure> {
    let mut account = Account::open("partition", plan.product, 0, "scripts/test netns".to_owned());
    let spec = ClusterSpec::new(plan.product, MEMBERS).with_quick_elections();
    let mut ground = NetnsGround::start(&spec).await?;
    let endpoints = ground.cluster().endpoints();
    let started_at = first_revision(&endpoints[0]).await?;
    let load = unique::start(&endpoints, Shape::default(), 1, &account.trace);
    let mut alone = Verdict::new("cluster", "a leader cut off answers no read from the past", 0, Vec::new());
    let ended = cut_all(plan, &mut ground, &load, &account, &mut alone).await;
    account.ended(ended);
    account.ended(ground.heal_links().await);
    let history = load.finish().await?;
    if 0 < alone.judged {
        account.verdicts([alone]);
    }
    let members = members_of(ground.cluster());
    account.judge(&members, &history, started_at).await;
    let story = account.close(members).await?;
    ground.end()?;
    Ok(story)
}

/// One cut after the other; what the leader answered while it could not know better.
async fn cut_all(
    plan: &Plan,
    ground: &mut NetnsGround,
    load: &Running,
    account: &Account,
    alone: &mut Verdict,
) -> Result<(), Failure> {
    for cut in &plan.cuts {
        load.wait_for_more(WRITES, READY_WITHIN).await?;
        let leader = ground.cluster().leader(READY_WITHIN).await?;
        let cut_at = Instant::now();
        for (from, to) in pairs(*cut, leader) {
            ground.set_link(from, to, Link::Down).await?;
        }
        let fault = account.struck("partition", format!("the leader cut off, {cut:?}"), vec![leader]);
        let served = load.wait_for_more(WRITES, READY_WITHIN).await;
        served.map_err(|failure| failure.during(&format!("with the leader cut off, {cut:?}")))?;
        println!("  cut off, {cut:?}: the others acknowledged {WRITES} writes in {:?}", cut_at.elapsed());
        tokio::time::sleep(plan.lasting.saturating_sub(cut_at.elapsed())).await;
        // Whoever hears nothing cannot know what was written: it may only be silent or refuse.
        if let Cut::Both | Cut::ToLeader = cut {
            alone.judged += 1;
            if let Ok(revision) = ground.endpoint(leader).linearizable_probe(Duration::from_secs(1)).await {
                let finding = format!("cut off, {cut:?}, it answered a read at revision {revision}");
                alone.findings.push(finding);
            }
        }
        ground.heal_links().await?;
        account.trace.healed(fault);
        ground.cluster().wait_until_ready(READY_WITHIN).await?;
    }
    Ok(())
}

/// The links to take down, as sender and receiver.
fn pairs(cut: Cut, leader: usize) -> Vec<(usize, usize)> {
    let others = (0..MEMBERS).filter(|member| *member != leader);
    let each = others.map(|other| match cut {
        Cut::Both => vec![(leader, other), (other, leader)],
        Cut::FromLeader => vec![(leader, other)],
        Cut::ToLeader => vec![(other, leader)],
    });
    each.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_takes_down_the_directions_it_names() {
        assert_eq!(pairs(Cut::FromLeader, 1), [(1, 0), (1, 2)]);
        assert_eq!(pairs(Cut::ToLeader, 1), [(0, 1), (2, 1)]);
        assert_eq!(pairs(Cut::Both, 0).len(), 4);
    }
}
