//! The thread that holds all watchers' connections and notes what arrives.
//!
//! One thread, so that nothing is shared on the path of an event; counters in [`Gauges`] let the others
//! see how far it is. It goes through its phases only when told, and ends when told or when a
//! connection fails, which fails the run.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::interest::{Interest, nanoseconds};
use super::session::{Pace, Session};
use super::watched::Watched;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What is read at once: enough that a burst of events costs few system calls.
const READ_BYTES: usize = 256 << 10;
/// How often those who wait look again.
const POLL: Duration = Duration::from_millis(2);

/// Which watchers are on which stream, connection and member.
#[derive(Clone, Debug)]
pub struct Layout {
    pub watchers: usize,
    pub streams: usize,
    pub connections: usize,
    pub endpoints: Vec<Endpoint>,
}

impl Layout {
    fn endpoint(&self, connection: usize) -> &Endpoint {
        &self.endpoints[connection % self.endpoints.len()]
    }

    /// The watchers of each stream of a connection.
    fn streams_of(&self, connection: usize) -> impl Iterator<Item = Range<usize>> {
        let (watchers, streams) = (self.watchers, self.streams);
        let part = move |stream: usize| stream * watchers / streams;
        (connection..streams).step_by(self.connections).map(move |stream| part(stream)..part(stream + 1))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connect,
    /// Create the watchers, to watch from that revision.
    Create(i64),
    Stop,
}

/// What the other threads may know while events arrive. Moments are nanoseconds since the epoch.
#[derive(Default)]
pub struct Gauges {
    pub connected: AtomicU64,
    pub created: AtomicU64,
    pub created_last_ns: AtomicU64,
    pub delivered: AtomicU64,
    pub delivered_last_ns: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Gauges {
    /// Why a connection failed, if one did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, why: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn update(&self, watched: &Watched, now_ns: u64) {
        if self.created.swap(watched.created, Ordering::Relaxed) != watched.created {
            self.created_last_ns.store(now_ns, Ordering::Relaxed);
        }
        // The moment comes first: whoever sees the count must find a moment that is no older.
        if self.delivered.load(Ordering::Relaxed) != watched.delivered {
            self.delivered_last_ns.store(now_ns, Ordering::Relaxed);
            self.delivered.store(watched.delivered, Ordering::Release);
        }
    }
}

/// What the thread needs to know.
pub struct Plan {
    pub layout: Layout,
    pub interest: Interest,
    pub pace: Pace,
    pub with_latency: bool,
    pub epoch: Instant,
}

pub struct Receivers {
    phase: watch::Sender<Phase>,
    gauges: Arc<Gauges>,
    thread: std::thread::JoinHandle<std::io::Result<Watched>>,
}

impl Receivers {
    /// Starts to connect.
    pub fn start(plan: Plan) -> Receivers {
        let (phase, phases) = watch::channel(Phase::Connect);
        let gauges = Arc::new(Gauges::default());
        let shared = Arc::clone(&gauges);
        Receivers { phase, gauges, thread: std::thread::spawn(move || receive(plan, phases, shared)) }
    }

    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    pub fn create(&self, start_revision: i64) {
        self.phase.send_replace(Phase::Create(start_revision));
    }

    /// Waits until a gauge shows `goal`. Gives up when it stands still for `patience`, or at a failure.
    pub fn wait(
        &self,
        gauge: impl Fn(&Gauges) -> &AtomicU64,
        goal: u64,
        patience: Duration,
    ) -> Result<(), String> {
        let mut seen = (0, Instant::now());
        loop {
            let value = gauge(&self.gauges).load(Ordering::Acquire);
            if value >= goal {
                return Ok(());
            }
            if let Some(why) = self.gauges.failure() {
                return Err(why);
            }
            if value != seen.0 {
                seen = (value, Instant::now());
            }
            if seen.1.elapsed() > patience {
                return Err(format!("stood still at {value} of {goal} for {} s", patience.as_secs_f64()));
            }
            std::thread::sleep(POLL);
        }
    }

    pub fn stop(self) -> Result<Watched, Failure> {
        self.phase.send_replace(Phase::Stop);
        Ok(self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
    }
}

fn receive(plan: Plan, phases: watch::Receiver<Phase>, gauges: Arc<Gauges>) -> std::io::Result<Watched> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let interest = Rc::new(plan.interest);
    let layout = plan.layout;
    let watched = Rc::new(RefCell::new(Watched::new(layout.watchers, plan.with_latency)));
    let local = tokio::task::LocalSet::new();
    for connection in 0..layout.connections {
        let endpoint = layout.endpoint(connection).clone();
        let streams = layout.streams_of(connection);
        let session = Session::new(endpoint.authority().to_owned(), Rc::clone(&interest), plan.pace, streams);
        let one = Receiver {
            session,
            watched: Rc::clone(&watched),
            gauges: Arc::clone(&gauges),
            phases: phases.clone(),
            epoch: plan.epoch,
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
    Ok(watched.replace(Watched::new(0, false)))
}

async fn stopped(mut phases: watch::Receiver<Phase>) {
    // A sender that has gone is as good as an order to stop.
    drop(phases.wait_for(|phase| *phase == Phase::Stop).await);
}

/// One connection.
struct Receiver {
    session: Session,
    watched: Rc<RefCell<Watched>>,
    gauges: Arc<Gauges>,
    phases: watch::Receiver<Phase>,
    epoch: Instant,
}

impl Receiver {
    async fn run(mut self, endpoint: &Endpoint) -> Result<(), String> {
        let mut tcp = connect(endpoint).await?;
        let (mut reader, mut writer) = tcp.split();
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        let mut was_opened = false;
        loop {
            tokio::select! {
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
                written = writer.write(self.session.out()), if !self.session.out().is_empty() => {
                    let length = written.map_err(|error| format!("the server closed the connection: {error}"))?;
                    self.session.out().drain(..length);
                }
                changed = self.phases.changed(), if self.session.is_opened() => {
                    let phase = *self.phases.borrow_and_update();
                    match phase {
                        Phase::Create(start_revision) => self.session.create(start_revision),
                        Phase::Connect => {}
                        Phase::Stop => return Ok(()),
                    }
                    if changed.is_err() {
                        return Ok(());
                    }
                }
            }
            if self.session.is_opened() && self.session.out().is_empty() && !was_opened {
                was_opened = true;
                self.gauges.connected.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let now_ns = nanoseconds(self.epoch.elapsed());
        let mut watched = self.watched.borrow_mut();
        let done = self.session.feed(bytes, now_ns, &mut watched);
        self.gauges.update(&watched, now_ns);
        done
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
    fn every_watcher_is_on_one_stream_of_one_connection() {
        for (watchers, streams, connections) in [(10, 4, 3), (1_000, 100, 30), (7, 7, 7), (0, 1, 1)] {
            let endpoints = Endpoint::parse_list("a:1,b:1,c:1").expect("good");
            let layout = Layout { watchers, streams, connections, endpoints };
            let mut all: Vec<usize> =
                (0..connections).flat_map(|one| layout.streams_of(one).flatten()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..watchers).collect::<Vec<_>>());
            assert_eq!((0..connections).map(|one| layout.streams_of(one).count()).sum::<usize>(), streams);
        }
    }

    #[test]
    fn connections_go_round_the_members() {
        let endpoints = Endpoint::parse_list("a:1,b:1,c:1").expect("good");
        let layout = Layout { watchers: 1, streams: 4, connections: 4, endpoints };
        let order: Vec<String> = (0..4).map(|one| layout.endpoint(one).to_string()).collect();
        assert_eq!(order, ["a:1", "b:1", "c:1", "a:1"]);
    }
}
