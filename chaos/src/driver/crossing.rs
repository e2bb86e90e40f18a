//! What stands between the members of a cluster on loopback: a gate before each peer port, and one
//! table of what becomes of the bytes that each member sends each other.
//!
//! Whoever dials is known by its process, which the kernel's tables name, so a direction can be told
//! from its opposite on connections dialed by either side. The table speaks of members, not of
//! processes: what was set before a member restarts holds for its next life too.
//!
//! A link that is down closes nothing and shows nothing: what was sent waits, as it would for its
//! next retransmission, and goes on when the link is up. A lost piece is a stall of as many
//! retransmission times as it was lost, and of all that was sent after it; after six, a broken
//! connection. Everything goes when the crossing is dropped.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::dialer;
use crate::Failure;
use crate::ground::Link;

/// What is read at once. Small, so that a loss is felt by messages and not by megabytes.
const PIECE_BYTES: usize = 16 << 10;
/// What may be on its way in one direction of one connection.
const LINE_BYTES: usize = 1 << 20;
/// What TCP waits at first before it sends a lost piece again.
const RETRANSMIT: Duration = Duration::from_millis(200);
/// A piece lost so often breaks its connection.
const LOSSES_MAX: u32 = 6;

/// From whom to whom.
type Pair = (usize, usize);
/// The links that are not up.
type Table = HashMap<Pair, Link>;

/// All gates of one cluster.
#[derive(Debug)]
pub struct Crossing {
    table: watch::Sender<Table>,
    shared: Arc<Shared>,
    gates: Vec<Gate>,
}

#[derive(Debug)]
struct Shared {
    /// The process of each member's present life.
    processes: RwLock<HashMap<usize, u32>>,
    seed: u64,
    connections: AtomicU64,
}

#[derive(Debug)]
struct Gate {
    port: u16,
    keeper: JoinHandle<()>,
}

impl Crossing {
    /// One without gates. Losses and delays are drawn from the seed.
    pub fn new(seed: u64) -> Self {
        let shared = Shared { processes: RwLock::default(), seed, connections: AtomicU64::new(0) };
        Self { table: watch::Sender::new(Table::new()), shared: Arc::new(shared), gates: Vec::new() }
    }

    /// Puts a gate before the next member's peer port; returns where the others reach it. Members
    /// are numbered in the order of these calls. Must be called on a runtime.
    pub async fn add_gate(&mut self, peer_port: u16) -> Result<String, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let keeper = tokio::spawn(keep(
            listener,
            Target { member: self.gates.len(), peer_port },
            self.table.subscribe(),
            self.shared.clone(),
        ));
        self.gates.push(Gate { port, keeper });
        Ok(format!("http://127.0.0.1:{port}"))
    }

    /// Where the others reach a member.
    pub fn url(&self, member: usize) -> String {
        format!("http://127.0.0.1:{}", self.gates[member].port)
    }

    /// The process of a member's new life.
    pub fn lives_as(&self, member: usize, pid: u32) {
        self.shared.processes.write().insert(member, pid);
    }

    /// What becomes of what one sends another, from now on.
    pub fn set(&self, from: usize, to: usize, link: Link) {
        self.table.send_modify(|table| match link {
            Link::Up => drop(table.remove(&(from, to))),
            other => drop(table.insert((from, to), other)),
        });
    }

    /// All links up.
    pub fn heal(&self) {
        self.table.send_modify(Table::clear);
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        self.gates.iter().for_each(|gate| gate.keeper.abort());
    }
}

#[derive(Clone, Copy)]
struct Target {
    member: usize,
    peer_port: u16,
}

/// Accepts for as long as the gate stands; the connections end with this task.
async fn keep(listener: TcpListener, target: Target, table: watch::Receiver<Table>, shared: Arc<Shared>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((near, _)) => drop(open.spawn(carry(near, target, table.clone(), shared.clone()))),
                // Out of descriptors, most likely: others may close some.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn carry(near: TcpStream, target: Target, table: watch::Receiver<Table>, shared: Arc<Shared>) {
    let Ok(address) = near.peer_addr() else { return };
    // A stranger, or one that has ended since, or one so new that its process is not known yet: no cut
    // would hold for it, so it is turned away. A member dials again.
    let Some(from) = dialed_by(address.port(), &shared).await else { return };
    let number = shared.connections.fetch_add(1, Ordering::Relaxed);
    let dice = |salt: u64| StdRng::seed_from_u64(shared.seed ^ (2 * number + salt).rotate_left(20));
    let mut up = Way { pair: (from, target.member), table: table.clone(), dice: dice(0) };
    let mut down = Way { pair: (target.member, from), table, dice: dice(1) };
    // A handshake needs both directions.
    while up.link() == Link::Down || down.link() == Link::Down {
        if up.table.changed().await.is_err() {
            return;
        }
    }
    let far = TcpStream::connect((Ipv4Addr::LOCALHOST, target.peer_port)).await;
    let Ok(far) = far else {
        // As a host does on which nobody listens.
        let _ = near.set_zero_linger();
        return;
    };
    // Small messages are the rule, and a delay of the kernel's would be taken for ours.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    // Half a connection is of no use to anybody here.
    tokio::select! {
        () = pump(near_read, far_write, up) => {}
        () = pump(far_read, near_write, down) => {}
    }
}

/// The member whose process dialed from this port.
async fn dialed_by(port: u16, shared: &Shared) -> Option<usize> {
    let processes: Vec<(usize, u32)> =
        shared.processes.read().iter().map(|(member, pid)| (*member, *pid)).collect();
    let pids: Vec<u32> = processes.iter().map(|(_, pid)| *pid).collect();
    let found = tokio::task::spawn_blocking(move || dialer::owner_of(port, &pids)).await;
    let owner = found.ok().flatten()?;
    processes.iter().find(|(_, pid)| *pid == owner).map(|(member, _)| *member)
}

/// One direction of one connection.
struct Way {
    pair: Pair,
    table: watch::Receiver<Table>,
    dice: StdRng,
}

impl Way {
    fn link(&mut self) -> Link {
        self.table.borrow_and_update().get(&self.pair).copied().unwrap_or(Link::Up)
    }

    /// How much later a piece arrives; none if it breaks its connection.
    fn delay(&mut self, link: Link) -> Option<Duration> {
        match link {
            Link::Up | Link::Down => Some(Duration::ZERO),
            Link::Slow(delay, jitter) => {
                let jitter = jitter.as_secs_f64() * self.dice.random_range(-1.0..=1.0);
                Some(Duration::from_secs_f64((delay.as_secs_f64() + jitter).max(0.0)))
            }
            Link::Lossy(per_mille) => {
                let chance = f64::from(per_mille.min(1_000)) / 1_000.0;
                let losses = (0..LOSSES_MAX).take_while(|_| self.dice.random_bool(chance)).count();
                stall(losses)
            }
        }
    }
}

/// How long a piece waits that was lost so often: each wait is twice the one before.
fn stall(losses: usize) -> Option<Duration> {
    let losses = u32::try_from(losses).ok().filter(|losses| *losses < LOSSES_MAX)?;
    Some(RETRANSMIT * ((1 << losses) - 1))
}

/// Moves bytes one way, in order, until a side closes or a loss breaks it.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut way: Way) {
    let mut line: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut held, mut ended) = (0, false);
    let mut buffer = vec![0; PIECE_BYTES];
    while !(ended && line.is_empty()) {
        let link = way.link();
        if link == Link::Down {
            if way.table.changed().await.is_err() {
                return;
            }
            continue;
        }
        let due = line.front().map(|(at, _)| *at);
        tokio::select! {
            biased;
            changed = way.table.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let Some((_, piece)) = line.pop_front() else { continue };
                held -= piece.len();
                if to.write_all(&piece).await.is_err() {
                    return;
                }
            }
            read = from.read(&mut buffer), if !ended && held < LINE_BYTES => {
                let Ok(length @ 1..) = read else {
                    ended = true;
                    continue;
                };
                let Some(delay) = way.delay(link) else { return };
                let last = line.back().map(|(at, _)| *at);
                let at = Instant::now() + delay;
                line.push_back((last.map_or(at, |last| last.max(at)), buffer[..length].to_vec()));
                held += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(5);
    const HERE: usize = 0;
    const THERE: usize = 1;

    /// Answers every byte with the same byte.
    async fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut read, mut write) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
            }
        });
        port
    }

    /// Two members: this process is the one, an echo the other.
    async fn crossing() -> (Crossing, u16) {
        let mut crossing = Crossing::new(1);
        crossing.add_gate(1).await.expect("a gate");
        let url = crossing.add_gate(echo().await).await.expect("a gate");
        crossing.lives_as(HERE, std::process::id());
        (crossing, url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port"))
    }

    async fn dial(port: u16) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("a connection")
    }

    async fn answers(stream: &mut TcpStream, byte: u8, within: Duration) -> bool {
        stream.write_u8(byte).await.expect("the kernel takes it");
        matches!(tokio::time::timeout(within, stream.read_u8()).await, Ok(Ok(back)) if back == byte)
    }

    #[tokio::test]
    async fn either_direction_can_be_down_and_what_was_sent_arrives_late() {
        let (crossing, port) = crossing().await;
        for pair in [(HERE, THERE), (THERE, HERE)] {
            let mut old = dial(port).await;
            assert!(answers(&mut old, 1, LONG).await);
            crossing.set(pair.0, pair.1, Link::Down);
            assert!(!answers(&mut old, 2, SOON).await, "{pair:?}");
            let mut new = dial(port).await;
            assert!(!answers(&mut new, 3, SOON).await, "one that was dialed later");
            crossing.heal();
            let late = tokio::time::timeout(LONG, old.read_u8()).await.expect("in time").expect("a byte");
            assert_eq!(late, 2);
            let late = tokio::time::timeout(LONG, new.read_u8()).await.expect("in time").expect("a byte");
            assert_eq!(late, 3);
        }
    }

    #[tokio::test]
    async fn what_is_set_for_others_does_not_concern_this_one() {
        let (crossing, port) = crossing().await;
        crossing.set(2, THERE, Link::Down);
        crossing.set(THERE, 2, Link::Down);
        assert!(answers(&mut dial(port).await, 1, LONG).await);
    }

    #[tokio::test]
    async fn whoever_is_not_known_is_turned_away_and_no_cut_is_got_around() {
        let (crossing, port) = crossing().await;
        crossing.lives_as(HERE, 0);
        let mut stream = dial(port).await;
        let end = tokio::time::timeout(LONG, stream.read_u8()).await.expect("in time");
        assert!(end.is_err(), "{end:?}");
        crossing.lives_as(HERE, std::process::id());
        assert!(answers(&mut dial(port).await, 1, LONG).await);
    }

    #[tokio::test]
    async fn a_slow_link_delays_every_piece_and_keeps_none_waiting_for_another() {
        let (crossing, port) = crossing().await;
        crossing.set(HERE, THERE, Link::Slow(Duration::from_millis(100), Duration::ZERO));
        let mut stream = dial(port).await;
        let began = std::time::Instant::now();
        for byte in 0..10 {
            stream.write_u8(byte).await.expect("written");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for byte in 0..10 {
            assert_eq!(stream.read_u8().await.expect("a byte"), byte);
        }
        let took = began.elapsed();
        assert!(Duration::from_millis(100) <= took && took < Duration::from_millis(600), "{took:?}");
    }

    #[tokio::test]
    async fn a_link_that_loses_everything_breaks_its_connections() {
        let (crossing, port) = crossing().await;
        let mut stream = dial(port).await;
        assert!(answers(&mut stream, 1, LONG).await);
        crossing.set(HERE, THERE, Link::Lossy(1_000));
        stream.write_u8(2).await.expect("the kernel takes it");
        let end = tokio::time::timeout(LONG, stream.read_u8()).await.expect("in time");
        assert!(end.is_err(), "{end:?}");
    }

    #[test]
    fn each_loss_doubles_the_wait() {
        let waits: Vec<Option<u128>> =
            [0, 1, 2, 5, 6].map(|losses| stall(losses).map(|stall| stall.as_millis())).to_vec();
        assert_eq!(waits, [Some(0), Some(200), Some(600), Some(6_200), None]);
    }
}
