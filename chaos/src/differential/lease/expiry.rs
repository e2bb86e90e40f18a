//! Short leases that run out on both clusters by the clock.
//!
//! Within a round nothing else happens, and leases with keys end five seconds apart, so that what
//! their ends leave behind (one revision each) is determined although no two clocks agree. Neither
//! side may end a lease before its time; that is judged on each without the other. How late is too
//! late is the affair of the scenario `lease_precision`. A lease lives long enough for its keys to
//! come to it on a machine that does much else.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_proto::pb::etcdserver::{DeleteRangeRequest, LeaseGrantRequest, PutRequest};

use super::step::{Ask, Step};
use super::world::World;
use crate::Failure;
use crate::differential::engine::Both;
use crate::differential::request::Request;

/// How long after its time a lease may take to end before the run gives up.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
/// The least that both grant: one and a half of the election time-outs of these clusters, in whole
/// seconds.
const FLOOR: i64 = 5;

/// One lease of a round.
#[derive(Clone, Copy, Debug)]
struct Short {
    /// The id asked for.
    id: i64,
    /// The TTL asked for.
    ttl: i64,
    /// What both raise it to.
    lives: u64,
    /// How many keys hang on it.
    keys: usize,
}

const ROUNDS: [&[Short]; 4] = [
    &[Short { id: 501, ttl: 0, lives: 5, keys: 3 }, Short { id: 502, ttl: 10, lives: 10, keys: 1 }],
    &[Short { id: 0, ttl: -7, lives: 5, keys: 1 }, Short { id: -503, ttl: FLOOR, lives: 5, keys: 0 }],
    &[Short { id: 0, ttl: 1, lives: 5, keys: 5 }, Short { id: 504, ttl: i64::MIN, lives: 5, keys: 0 }],
    &[Short { id: 505, ttl: 8, lives: 8, keys: 2 }],
];

/// One round; rounds take turns. In the last of them the lease is renewed half-way.
pub async fn round(both: &mut Both<World>, number: usize) -> Result<(), Failure> {
    let shorts = ROUNDS[number % ROUNDS.len()];
    let renewed = number % ROUNDS.len() == ROUNDS.len() - 1;
    let mut granted = Vec::new();
    for (index, short) in shorts.iter().enumerate() {
        let sent = Instant::now();
        let name = grant(both, index, short).await?;
        granted.push((name, sent + Duration::from_secs(short.lives)));
        attach(both, name, short.keys).await?;
        let ask = Ask::TimeToLive { lease: name, keys: true };
        both.take(&Step::Ask { member: index % both.world.members, ask }).await?;
        // Before the next lease is granted: this one is running out.
        move_some_away(both, name).await?;
    }
    if renewed {
        tokio::time::sleep(Duration::from_secs(shorts[0].lives) / 2).await;
        granted[0].1 = renew(both, granted[0].0, shorts[0].lives).await?;
    }
    both.await_ends(&granted, ENDED_WITHIN).await?;
    for (name, _) in &granted {
        both.coverage.count("expiry: with keys", !both.world.keys_of(*name).is_empty());
        both.coverage.count("expiry: without keys", both.world.keys_of(*name).is_empty());
        both.coverage.count("expiry: after a renewal", renewed);
        both.world.ended(*name);
    }
    both.compare_events().await?;
    for (name, _) in &granted {
        let ask = Ask::TimeToLive { lease: *name, keys: true };
        both.take(&Step::Ask { member: 0, ask }).await?;
        both.take(&Step::Ask { member: 0, ask: Ask::Revoke(*name) }).await?;
        let put = PutRequest { key: Bytes::from_static(b"late"), lease: *name, ..Default::default() };
        both.take(&Step::Kv { member: 0, request: Request::Put(put) }).await?;
        // Its id is for the next round, not for a lease that stays.
        both.world.gone.remove(name);
    }
    both.compare_state().await
}

async fn grant(both: &mut Both<World>, index: usize, short: &Short) -> Result<i64, Failure> {
    let ask = Ask::Grant(LeaseGrantRequest { ttl: short.ttl, id: short.id });
    let member = index % both.world.members;
    both.coverage.count("grant: TTL of 0", short.ttl == 0);
    both.coverage.count("grant: negative TTL", short.ttl < 0);
    both.coverage.count("grant: TTL below the floor", (1..FLOOR).contains(&short.ttl));
    let name = both.next_name(short.id);
    both.take(&Step::Ask { member, ask }).await?;
    match both.world.leases.get(&name) {
        Some(ttl) if u64::try_from(*ttl) == Ok(short.lives) => Ok(name),
        other => Err(Failure::broken(format!("etcd granted {other:?} for {short:?}"))),
    }
}

async fn attach(both: &mut Both<World>, name: i64, count: usize) -> Result<(), Failure> {
    for number in (0..count).rev() {
        let put = PutRequest {
            key: format!("short/{number:02}/{name}").into_bytes().into(),
            value: Bytes::from_static(b"v"),
            lease: name,
            ..Default::default()
        };
        let member = number % both.world.members;
        both.take(&Step::Kv { member, request: Request::Put(put) }).await?;
    }
    Ok(())
}

/// Of three keys or more, one leaves its lease, and one leaves altogether: neither ends with it.
async fn move_some_away(both: &mut Both<World>, name: i64) -> Result<(), Failure> {
    let keys = both.world.keys_of(name);
    if keys.len() < 3 {
        return Ok(());
    }
    let put = PutRequest { key: keys[0].clone(), value: Bytes::from_static(b"w"), ..Default::default() };
    both.take(&Step::Kv { member: 0, request: Request::Put(put) }).await?;
    let delete = DeleteRangeRequest { key: keys[1].clone(), ..Default::default() };
    both.take(&Step::Kv { member: 0, request: Request::Delete(delete) }).await?;
    both.coverage.count("expiry: after a key left the lease", true);
    Ok(())
}

/// Renews a lease; when it may now end at the earliest.
async fn renew(both: &mut Both<World>, name: i64, lives: u64) -> Result<Instant, Failure> {
    let sent = Instant::now();
    let stream = both.world.streams.len();
    both.take(&Step::Open { member: stream % both.world.members }).await?;
    both.take(&Step::Renew { stream, leases: vec![name] }).await?;
    both.take(&Step::Close { stream }).await?;
    Ok(sent + Duration::from_secs(lives))
}
