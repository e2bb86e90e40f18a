//! Watchers of everything who keep a book, each on a member of its own while there are enough.
//!
//! When a connection is lost or silent, a scribe goes on to the next member and asks for the first
//! revision it has not been told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::book::Book;
use crate::Failure;
use crate::endpoint::{Roster, watch::Next};
use crate::record::watch::{Reply, WatchSpec};

const GLANCE: Duration = Duration::from_millis(50);
/// In a store that is always written to.
const PATIENCE: Duration = Duration::from_millis(1_500);
const PAUSE_AFTER_BREAK: Duration = Duration::from_millis(20);

/// Scribes at work.
#[derive(Debug)]
pub struct Scribes {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Scribes {
    /// As many as the book is for.
    pub fn start(roster: &Roster, book: &Arc<Mutex<Book>>, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let task = |number| tokio::spawn(write_down(number, roster.clone(), book.clone(), stop.clone()));
        let tasks = (0..count).map(task).collect();
        Self { stop, tasks }
    }

    /// Ends them.
    pub async fn finish(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.map_err(|error| Failure::harness(format!("a scribe ended: {error}")))?;
        }
        Ok(())
    }
}

async fn write_down(number: usize, roster: Roster, book: Arc<Mutex<Book>>, stop: Arc<AtomicBool>) {
    let mut turn = number;
    while !stop.load(Ordering::Relaxed) {
        let contacts = roster.all();
        if !contacts.is_empty() {
            let endpoint = contacts[turn % contacts.len()].endpoint.clone();
            turn += 1;
            if let Ok(mut stream) = endpoint.watch(&[]) {
                let next = book.lock().next_of(number);
                stream.send(WatchSpec::of_all().request(next)).await;
                listen(number, &mut stream, &book, &stop).await;
            }
        }
        tokio::time::sleep(PAUSE_AFTER_BREAK).await;
    }
}

async fn listen(
    number: usize,
    stream: &mut crate::endpoint::watch::WatchStream,
    book: &Mutex<Book>,
    stop: &AtomicBool,
) {
    let mut heard = Instant::now();
    while !stop.load(Ordering::Relaxed) && heard.elapsed() < PATIENCE {
        match stream.next(GLANCE).await {
            Next::Response(response) => {
                heard = Instant::now();
                let reply = Reply::record(&response, Duration::ZERO);
                if reply.canceled {
                    book.lock().skip_to(number, reply.compact_revision);
                    return;
                }
                book.lock().tell(number, &reply.events);
            }
            Next::Nothing => {}
            Next::Ended(_) => return,
        }
    }
}
