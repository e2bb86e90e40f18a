//! How far the store has come, asked once for all who want to know.
//!
//! Who asks gets the answer to a question that was put after it came; all who come while one is on its
//! way share the next.

use crate::store::{Store, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// No question stays open for longer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

pub(super) struct Present {
    store: Arc<dyn Store>,
    callers: Mutex<Callers>,
}

#[derive(Default)]
struct Callers {
    /// For the next question.
    waiting: Vec<oneshot::Sender<Result<u64, StoreError>>>,
    is_asking: bool,
}

impl Present {
    pub(super) fn new(store: Arc<dyn Store>) -> Arc<Present> {
        Arc::new(Present { store, callers: Mutex::default() })
    }

    /// Covers every write that was acknowledged before the call.
    pub(super) async fn now(self: &Arc<Self>) -> Result<u64, StoreError> {
        let (caller, answer) = oneshot::channel();
        let is_first = {
            let mut callers = self.callers.lock();
            callers.waiting.push(caller);
            !std::mem::replace(&mut callers.is_asking, true)
        };
        if is_first {
            tokio::spawn(self.clone().ask());
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable("the server is shutting down".to_owned())))
    }

    /// Until nobody waits.
    async fn ask(self: Arc<Self>) {
        let mut turn = Turn { present: &self, is_over: false };
        loop {
            let waiting = {
                let mut callers = self.callers.lock();
                callers.is_asking = !callers.waiting.is_empty();
                std::mem::take(&mut callers.waiting)
            };
            if waiting.is_empty() {
                turn.is_over = true;
                return;
            }
            let answer = tokio::time::timeout(ANSWER_WITHIN, self.store.now()).await;
            let late = |_| Err(StoreError::Unavailable("it does not say how far it has come".to_owned()));
            let answer = answer.unwrap_or_else(late);
            for caller in waiting {
                // Who does not wait any more needs no answer.
                drop(caller.send(answer.clone()));
            }
        }
    }
}

/// Whoever waits for a question that was never put to its end is told so, and the next may ask.
struct Turn<'a> {
    present: &'a Present,
    /// Nobody waited any more. Another may have begun to ask since.
    is_over: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut callers = self.present.callers.lock();
            callers.is_asking = false;
            callers.waiting.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_store::MemoryStore;
    use futures::future::join_all;

    #[tokio::test(start_paused = true)]
    async fn many_share_one_question_and_none_gets_an_answer_from_before_it_came() {
        let store = MemoryStore::new();
        let present = Present::new(Arc::new(store.clone()));
        let answers = join_all((0..100).map(|_| present.now())).await;
        assert!(answers.iter().all(|answer| *answer == Ok(1)));
        assert!(store.calls().now <= 2, "{:?}", store.calls());
        for revision in 2..50 {
            let early = present.now();
            store.put("k", "v");
            let (early, late) = futures::join!(early, present.now());
            assert!(revision - 1 <= early.expect("an answer"));
            assert_eq!(late, Ok(revision));
        }
        store.set_available(false);
        assert!(matches!(present.now().await, Err(StoreError::Unavailable(_))));
    }
}
