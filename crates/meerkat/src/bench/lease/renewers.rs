//! The thread that holds all streams of renewals.
//!
//! One thread, so that nothing is shared on the path of an answer; counters in [`Gauges`] let the others
//! see how far it is. It renews only when told, and ends when told or when a connection fails, which
//! fails the run.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::session::{Budget, Pace, Session};
use crate::bench::report::Tally;
use crate::bench::schedule::Length;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 64 << 10;
/// How finely paced renewals keep time. Shorter costs CPU that belongs to the servers.
const TICK: Duration = Duration::from_millis(10);
/// How often those who wait look again.
const POLL: Duration = Duration::from_millis(2);

/// How the renewals are paced.
#[derive(Clone, Copy, Debug)]
pub enum Loop {
    /// As fast as answered, this long.
    Closed(Length),
    /// Every lease once in this time.
    Round(Duration),
}

/// Which leases are on which stream, connection and member.
pub struct Layout {
    pub leases: Vec<i64>,
    pub streams: usize,
    pub connections: usize,
    pub endpoints: Vec<Endpoint>,
}

impl Layout {
    /// The leases of each stream of a connection.
    fn streams_of(&self, connection: usize) -> impl Iterator<Item = Range<usize>> {
        let (leases, streams) = (self.leases.len(), self.streams);
        let part = move |stream: usize| stream * leases / streams;
        (connection..streams).step_by(self.connections).map(move |stream| part(stream)..part(stream + 1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pause,
    Renew,
    Stop,
}

/// What the other threads may know. Moments are nanoseconds since the epoch.
#[derive(Default)]
struct Gauges {
    connected: AtomicU64,
    /// Connections whose closed loop has come to its end.
    finished: AtomicU64,
    answered: AtomicU64,
    answered_last_ns: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Gauges {
    fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }
}

pub struct Renewers {
    phase: watch::Sender<Phase>,
    gauges: Arc<Gauges>,
    connections: u64,
    epoch: Instant,
    thread: std::thread::JoinHandle<std::io::Result<Tally>>,
}

impl Renewers {
    /// Connects, and opens the streams.
    pub fn start(layout: Layout, pace: Loop, patience: Duration) -> Result<Renewers, Failure> {
        let (phase, phases) = watch::channel(Phase::Pause);
        let gauges = Arc::new(Gauges::default());
        let shared = Arc::clone(&gauges);
        let connections = layout.connections as u64;
        let epoch = Instant::now();
        let thread = std::thread::spawn(move || renew(layout, pace, epoch, phases, shared));
        let renewers = Renewers { phase, gauges, connections, epoch, thread };
        renewers
            .wait(|gauges| gauges.connected.load(Ordering::Acquire), connections, patience)
            .map_err(|why| Failure::error(format!("the streams could not be opened: {why}")))?;
        Ok(renewers)
    }

    pub fn renew(&self) {
        self.phase.send_replace(Phase::Renew);
    }

    pub fn pause(&self) {
        self.phase.send_replace(Phase::Pause);
    }

    /// Renewals answered so far.
    pub fn answered(&self) -> u64 {
        self.gauges.answered.load(Ordering::Acquire)
    }

    /// Why a connection failed, if one did.
    pub fn failure(&self) -> Option<String> {
        self.gauges.failure()
    }

    /// Waits for the end of a closed loop, and says when the last answer came.
    pub fn finish(&self, patience: Duration) -> Result<Instant, String> {
        // Both may stand still alone, but not together.
        let progress = |gauges: &Gauges| gauges.finished.load(Ordering::Acquire);
        self.wait(progress, self.connections, patience)?;
        let last_ns = self.gauges.answered_last_ns.load(Ordering::Acquire);
        Ok(self.epoch + Duration::from_nanos(last_ns))
    }

    /// Waits until a gauge shows `goal`. Gives up when nothing moves for `patience`, or at a failure.
    fn wait(&self, gauge: impl Fn(&Gauges) -> u64, goal: u64, patience: Duration) -> Result<(), String> {
        let mut seen = ((0, 0), Instant::now());
        loop {
            let value = gauge(&self.gauges);
            if value >= goal {
                return Ok(());
            }
            if let Some(why) = self.failure() {
                return Err(why);
            }
            let moved = (value, self.answered());
            if moved != seen.0 {
                seen = (moved, Instant::now());
            }
            if seen.1.elapsed() > patience {
                return Err(format!("nothing was answered for {} s", patience.as_secs_f64()));
            }
            std::thread::sleep(POLL);
        }
    }

    pub fn stop(self) -> Result<Tally, Failure> {
        self.phase.send_replace(Phase::Stop);
        Ok(self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

fn renew(
    layout: Layout,
    pace: Loop,
    epoch: Instant,
    phases: watch::Receiver<Phase>,
    gauges: Arc<Gauges>,
) -> std::io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let leases: Rc<[i64]> = layout.leases.as_slice().into();
    let tally = Rc::new(RefCell::new(Tally::new()));
    let requests = if let Loop::Closed(Length::Requests(total)) = pace { total } else { u64::MAX };
    let budget = Rc::new(Budget::new(requests));
    let local = tokio::task::LocalSet::new();
    for connection in 0..layout.connections {
        let endpoint = layout.endpoints[connection % layout.endpoints.len()].clone();
        let streams = layout.streams_of(connection);
        let session_pace = match pace {
            Loop::Closed(_) => Pace::Closed(Rc::clone(&budget)),
            Loop::Round(round) => Pace::Round(u64::try_from(round.as_nanos()).unwrap_or(u64::MAX)),
        };
        let one = Renewer {
            session: Session::new(endpoint.authority().to_owned(), Rc::clone(&leases), session_pace, streams),
            tally: Rc::clone(&tally),
            gauges: Arc::clone(&gauges),
            phases: phases.clone(),
            budget: Rc::clone(&budget),
            pace,
            epoch,
        };
        local.spawn_local(async move {
            let gauges = Arc::clone(&one.gauges);
            if let Err(why) = one.run(&endpoint).await {
                gauges.fail(format!("{endpoint}: {why}"));
            }
        });
    }
    local.block_on(&runtime, stopped(phases));
    // What the connections still hold goes with them.
    drop(local);
    Ok(tally.replace(Tally::new()))
}

async fn stopped(mut phases: watch::Receiver<Phase>) {
    // A sender that has gone is as good as an order to stop.
    drop(phases.wait_for(|phase| *phase == Phase::Stop).await);
}

/// One connection.
struct Renewer {
    session: Session,
    tally: Rc<RefCell<Tally>>,
    gauges: Arc<Gauges>,
    phases: watch::Receiver<Phase>,
    budget: Rc<Budget>,
    pace: Loop,
    epoch: Instant,
}

impl Renewer {
    async fn run(mut self, endpoint: &Endpoint) -> Result<(), String> {
        let mut tcp = connect(endpoint).await?;
        let (mut reader, mut writer) = tcp.split();
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut was_opened, mut began, mut finished) = (false, false, false);
        loop {
            tokio::select! {
                biased;
                written = writer.write(self.session.out()), if !self.session.out().is_empty() => {
                    let length = written.map_err(|error| format!("the server closed the connection: {error}"))?;
                    self.session.out().drain(..length);
                }
                changed = self.phases.changed(), if self.session.is_opened() => {
                    if changed.is_err() || !self.turn() {
                        return Ok(());
                    }
                    began |= *self.phases.borrow() == Phase::Renew;
                }
                read = reader.read(&mut buffer[filled..]) => {
                    filled += match read {
                        Ok(0) => return Err("the server closed the connection".to_owned()),
                        Ok(length) => length,
                        Err(error) => return Err(format!("the server closed the connection: {error}")),
                    };
                    let done = self.take(&buffer[..filled])?;
                    buffer.copy_within(done..filled, 0);
                    filled -= done;
                }
                _ = ticks.tick(), if self.session.needs_ticks() => {
                    let now_ns = self.now_ns();
                    self.session.tick(now_ns)?;
                }
            }
            if self.session.is_opened() && self.session.out().is_empty() && !was_opened {
                was_opened = true;
                self.gauges.connected.fetch_add(1, Ordering::Release);
            }
            if began && !finished && matches!(self.pace, Loop::Closed(_)) && self.session.in_flight() == 0 {
                finished = true;
                self.gauges.finished.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Does as it is told; `false` if that is to stop.
    fn turn(&mut self) -> bool {
        let now_ns = self.now_ns();
        let phase = *self.phases.borrow_and_update();
        match phase {
            Phase::Renew => {
                if let Loop::Closed(Length::Time(time)) = self.pace {
                    self.budget.end_at(now_ns.saturating_add(time.as_nanos() as u64));
                }
                self.session.resume(now_ns);
            }
            Phase::Pause => self.session.pause(now_ns),
            Phase::Stop => return false,
        }
        true
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let now_ns = self.now_ns();
        let mut tally = self.tally.borrow_mut();
        let before = tally.answered_count();
        let done = self.session.feed(bytes, now_ns, &mut tally)?;
        let answered = tally.answered_count() - before;
        if answered > 0 {
            self.gauges.answered_last_ns.store(now_ns, Ordering::Release);
            self.gauges.answered.fetch_add(answered, Ordering::Release);
        }
        Ok(done)
    }
}

async fn connect(endpoint: &Endpoint) -> Result<TcpStream, String> {
    let dial = TcpStream::connect(endpoint.authority());
    let tcp = match tokio::time::timeout(CONNECT_TIMEOUT, dial).await {
        Ok(tcp) => tcp.map_err(|error| format!("cannot connect: {error}"))?,
        Err(_) => return Err("cannot connect: timed out".to_owned()),
    };
    tcp.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_is_on_one_stream_of_one_connection() {
        for (leases, streams, connections) in [(10, 4, 3), (1_000, 64, 9), (7, 7, 7)] {
            let layout = Layout { leases: vec![1; leases], streams, connections, endpoints: Vec::new() };
            let ranges: Vec<Range<usize>> =
                (0..connections).flat_map(|connection| layout.streams_of(connection)).collect();
            assert_eq!(ranges.len(), streams);
            assert!(ranges.iter().all(|range| !range.is_empty()));
            let mut all: Vec<usize> = ranges.into_iter().flatten().collect();
            all.sort_unstable();
            assert_eq!(all, (0..leases).collect::<Vec<_>>());
        }
    }
}
