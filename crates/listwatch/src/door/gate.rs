//! The limits at work: a request waits here for its seat.

use super::limits::{Admission, FairQueue, Flow, Limits, Ticket};
use meerkat_kubernetes::status::Refusal;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::oneshot;

#[derive(Debug)]
pub struct Gate(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    queue: FairQueue,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
    last: Ticket,
}

/// A request that is being answered, or waits to be. Dropping it makes room for another.
#[derive(Debug)]
pub struct Seat {
    gate: Arc<Gate>,
    flow: Flow,
    ticket: Ticket,
}

impl Gate {
    pub fn new(limits: Limits) -> Arc<Gate> {
        Arc::new(Gate(Mutex::new(Inner { queue: FairQueue::new(limits), waiting: HashMap::new(), last: 0 })))
    }

    /// How many are being answered, and how many wait.
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.queue.seated(), inner.queue.waiting())
    }

    pub async fn enter(self: &Arc<Self>, flow: &Flow) -> Result<Seat, Refusal> {
        let (seat, turn) = self.ask(flow)?;
        if let Some(turn) = turn {
            // The sender is only dropped after it has sent.
            let _ = turn.await;
        }
        Ok(seat)
    }

    fn ask(self: &Arc<Self>, flow: &Flow) -> Result<(Seat, Option<oneshot::Receiver<()>>), Refusal> {
        let mut inner = self.0.lock();
        inner.last += 1;
        let ticket = inner.last;
        let turn = match inner.queue.ask(flow, ticket) {
            Admission::Seated => None,
            Admission::Waits => {
                let (call, turn) = oneshot::channel();
                inner.waiting.insert(ticket, call);
                Some(turn)
            }
            Admission::Refused => {
                return Err(Refusal::too_many_requests("too many requests, please try again later", 1));
            }
        };
        Ok((Seat { gate: self.clone(), flow: flow.clone(), ticket }, turn))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.gate.0.lock();
        if inner.queue.forget(&self.flow, self.ticket) {
            inner.waiting.remove(&self.ticket);
            return;
        }
        if let Some(next) = inner.queue.leave(&self.flow)
            && let Some(call) = inner.waiting.remove(&next)
        {
            // Who has gone meanwhile gives up the seat when it is dropped.
            let _ = call.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn flow(user: &str) -> Flow {
        Flow { user: user.into(), client: "".into() }
    }

    fn gate() -> Arc<Gate> {
        Gate::new(Limits { seats: 1, seats_per_user: 1, waiting: 1, waiting_per_user: 1 })
    }

    #[tokio::test]
    async fn a_seat_given_up_is_the_next_ones() {
        let (gate, b) = (gate(), flow("b"));
        let first = gate.enter(&flow("a")).await.expect("a seat");
        let mut second = Box::pin(gate.enter(&b));
        assert!(second.as_mut().now_or_never().is_none());
        let refused = gate.enter(&flow("c")).await.expect_err("no room to wait");
        assert_eq!((refused.code(), refused.retry_after_s), (429, Some(1)));
        drop(first);
        let second = second.await.expect("a seat");
        assert_eq!(gate.counts(), (1, 0));
        drop(second);
        assert_eq!(gate.counts(), (0, 0));
    }

    #[tokio::test]
    async fn who_goes_while_it_waits_leaves_nothing() {
        let (gate, b) = (gate(), flow("b"));
        let first = gate.enter(&flow("a")).await.expect("a seat");
        let mut second = Box::pin(gate.enter(&b));
        assert!(second.as_mut().now_or_never().is_none());
        drop(second);
        assert_eq!(gate.counts(), (1, 0));
        let mut third = Box::pin(gate.enter(&b));
        assert!(third.as_mut().now_or_never().is_none());
        drop(first);
        // It was called, and goes without having looked.
        drop(third);
        assert_eq!(gate.counts(), (0, 0));
    }
}
