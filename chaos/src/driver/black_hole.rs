//! A door before a port: a TCP proxy on loopback that can swallow, break or delay what goes through.
//!
//! Swallowing is what a lost network does: nothing arrives, nothing is closed, and connections that
//! live long enough to see the network come back go on where they were. So while a door swallows it
//! neither reads nor looks whether a side has closed; new connections are accepted, as a kernel
//! with a backlog would, and hear nothing.
//!
//! Everything goes when the door is dropped.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::dialer;
use crate::Failure;

/// What is read at once. Small, so that a delay is felt by every message and not by megabytes.
const CHUNK_BYTES: usize = 16 << 10;

/// What a door does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Lets everything through.
    Open,
    /// Lets everything through, each piece this much later.
    Slow(Duration),
    /// Lets nothing through and closes nothing.
    Hole,
    /// Breaks what is open and what is tried.
    Cut,
}

/// What a door does, and to whom.
#[derive(Clone, Debug)]
struct Rule {
    flow: Flow,
    /// Only to connections that this process dialed.
    only: Option<Only>,
}

#[derive(Clone, Debug)]
struct Only {
    pid: u32,
    /// The local ports of that process, as far as they have been looked up.
    ports: Arc<HashSet<u16>>,
}

impl Rule {
    fn for_source(&self, source: u16) -> Flow {
        match &self.only {
            Some(only) if !only.ports.contains(&source) => Flow::Open,
            _ => self.flow,
        }
    }
}

/// One door.
#[derive(Debug)]
pub struct Door {
    port: u16,
    rule: watch::Sender<Rule>,
    downstream: Arc<AtomicU64>,
    keeper: JoinHandle<()>,
}

impl Door {
    /// Opens a door before a port of this machine. Must be called on a runtime.
    pub async fn before(target: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let rule = watch::Sender::new(Rule { flow: Flow::Open, only: None });
        let downstream = Arc::new(AtomicU64::new(0));
        let keeper = tokio::spawn(keep(listener, target, rule.clone(), downstream.clone()));
        Ok(Self { port, rule, downstream, keeper })
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, as a URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Does this with every connection from now on.
    pub fn set(&self, flow: Flow) {
        self.rule.send_replace(Rule { flow, only: None });
    }

    /// Does this with the connections that one process dialed; lets all others through.
    pub fn set_for(&self, pid: u32, flow: Flow) -> Result<(), Failure> {
        let ports = Arc::new(dialer::ports_of(pid)?);
        self.rule.send_replace(Rule { flow, only: Some(Only { pid, ports }) });
        Ok(())
    }

    /// How many bytes it has let through towards those who dialed.
    pub fn downstream_bytes(&self) -> u64 {
        self.downstream.load(Ordering::Relaxed)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Accepts for as long as the door lives; the connections end with this task.
async fn keep(listener: TcpListener, target: u16, rule: watch::Sender<Rule>, downstream: Arc<AtomicU64>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((near, from)) = accepted else {
                    // Out of descriptors, most likely: others may close some.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                learn(&rule, from);
                open.spawn(carry(near, from.port(), target, rule.subscribe(), downstream.clone()));
            }
            Some(_) = open.join_next() => {}
        }
    }
}

/// Under a rule for one process: looks up who has just dialed.
fn learn(rule: &watch::Sender<Rule>, from: SocketAddr) {
    let Some(only) = rule.borrow().only.clone() else { return };
    // A process that has ended dials nothing.
    let Ok(ports) = dialer::ports_of(only.pid) else { return };
    if ports.contains(&from.port()) {
        rule.send_if_modified(|now| match &mut now.only {
            Some(now) if now.pid == only.pid => {
                Arc::make_mut(&mut now.ports).insert(from.port());
                true
            }
            _ => false,
        });
    }
}

async fn carry(
    near: TcpStream,
    source: u16,
    target: u16,
    rule: watch::Receiver<Rule>,
    downstream: Arc<AtomicU64>,
) {
    let mut way = Way { rule, source };
    if !way.is_passable().await {
        return break_off(near);
    }
    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return break_off(near) };
    // Small messages are the rule, and a delay of the kernel's would be measured as ours.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let up = pump(near_read, far_write, way.clone(), None);
    let down = pump(far_read, near_write, way, Some(downstream));
    // Half a connection is of no use to anybody here.
    tokio::select! { ended = up => drop(ended), ended = down => drop(ended) }
}

/// Closes with a reset, as a host that refuses does.
fn break_off(stream: TcpStream) {
    let _ = stream.set_zero_linger();
}

/// The rule as one connection sees it.
#[derive(Clone)]
struct Way {
    rule: watch::Receiver<Rule>,
    source: u16,
}

impl Way {
    fn flow(&mut self) -> Flow {
        self.rule.borrow_and_update().for_source(self.source)
    }

    /// Waits while the door swallows. False if the connection is to be broken.
    async fn is_passable(&mut self) -> bool {
        loop {
            match self.flow() {
                Flow::Open | Flow::Slow(_) => return true,
                Flow::Cut => return false,
                Flow::Hole => {
                    if self.rule.changed().await.is_err() {
                        return false;
                    }
                }
            }
        }
    }
}

/// Moves bytes one way until a side closes or the door breaks it. Returns the halves, so that the
/// caller closes both ways at once.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: Way,
    counter: Option<Arc<AtomicU64>>,
) -> (OwnedReadHalf, OwnedWriteHalf) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while way.is_passable().await {
        let read = tokio::select! {
            biased;
            changed = way.rule.changed() => if changed.is_ok() { continue } else { break },
            read = from.read(&mut buffer) => read,
        };
        let Ok(length @ 1..) = read else { break };
        if let Flow::Slow(delay) = way.flow() {
            tokio::time::sleep(delay).await;
        }
        // The door may have shut since: what was read waits, as it would on the wire.
        if !way.is_passable().await || to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
        if let Some(counter) = &counter {
            counter.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
    if way.flow() == Flow::Cut {
        let _ = to.as_ref().set_zero_linger();
        let _ = from.as_ref().set_zero_linger();
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::ErrorKind;

    const SOON: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(5);

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

    async fn dial(door: &Door) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, door.port())).await.expect("a connection")
    }

    async fn answer(stream: &mut TcpStream, within: Duration) -> Option<std::io::Result<u8>> {
        tokio::time::timeout(within, stream.read_u8()).await.ok()
    }

    async fn round_trip(stream: &mut TcpStream, byte: u8) {
        stream.write_u8(byte).await.expect("written");
        let back = answer(stream, LONG).await.expect("in time").expect("an answer");
        assert_eq!(back, byte);
    }

    #[tokio::test]
    async fn a_hole_closes_nothing_and_what_was_sent_into_it_arrives_when_it_is_gone() {
        let door = Door::before(echo().await).await.expect("a door");
        let mut old = dial(&door).await;
        round_trip(&mut old, 1).await;
        door.set(Flow::Hole);
        let mut new = dial(&door).await;
        old.write_u8(2).await.expect("the kernel takes it");
        new.write_u8(3).await.expect("the kernel takes it");
        assert!(answer(&mut old, SOON).await.is_none() && answer(&mut new, SOON).await.is_none());
        door.set(Flow::Open);
        assert_eq!(answer(&mut old, LONG).await.expect("in time").expect("an answer"), 2);
        assert_eq!(answer(&mut new, LONG).await.expect("in time").expect("an answer"), 3);
    }

    #[tokio::test]
    async fn a_hole_hides_that_the_other_side_has_closed() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a listener");
        let door = Door::before(listener.local_addr().expect("an address").port()).await.expect("a door");
        let mut near = dial(&door).await;
        let (far, _) = listener.accept().await.expect("accepted");
        door.set(Flow::Hole);
        tokio::time::sleep(SOON).await;
        drop(far);
        assert!(answer(&mut near, SOON).await.is_none());
        door.set(Flow::Open);
        let end = answer(&mut near, LONG).await.expect("in time").expect_err("closed");
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_cut_breaks_what_is_open_and_what_is_tried_until_it_is_mended() {
        let door = Door::before(echo().await).await.expect("a door");
        let mut old = dial(&door).await;
        round_trip(&mut old, 1).await;
        door.set(Flow::Cut);
        assert!(answer(&mut old, LONG).await.expect("in time").is_err());
        let mut tried = dial(&door).await;
        assert!(answer(&mut tried, LONG).await.expect("in time").is_err());
        door.set(Flow::Open);
        round_trip(&mut dial(&door).await, 2).await;
    }

    #[tokio::test]
    async fn a_slow_door_delays_both_ways_and_counts_what_comes_back() {
        let door = Door::before(echo().await).await.expect("a door");
        door.set(Flow::Slow(Duration::from_millis(40)));
        let mut stream = dial(&door).await;
        let began = std::time::Instant::now();
        round_trip(&mut stream, 1).await;
        assert!(Duration::from_millis(80) <= began.elapsed(), "{:?}", began.elapsed());
        assert_eq!(door.downstream_bytes(), 1);
    }

    #[tokio::test]
    async fn a_rule_for_one_process_leaves_the_others_alone() {
        let door = Door::before(echo().await).await.expect("a door");
        let mut own = dial(&door).await;
        round_trip(&mut own, 1).await;
        let mut other = std::process::Command::new("sleep").arg("30").spawn().expect("a process");
        door.set_for(other.id(), Flow::Hole).expect("it can be looked at");
        round_trip(&mut own, 2).await;
        door.set_for(std::process::id(), Flow::Hole).expect("it can be looked at");
        own.write_u8(3).await.expect("the kernel takes it");
        assert!(answer(&mut own, SOON).await.is_none());
        let mut new = dial(&door).await;
        new.write_u8(4).await.expect("the kernel takes it");
        assert!(answer(&mut new, SOON).await.is_none(), "one that was dialed later");
        other.kill().and_then(|()| other.wait()).expect("it ends");
    }
}
