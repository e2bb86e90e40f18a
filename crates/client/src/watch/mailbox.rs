//! The bounded buffer between a watch's stream and the application that reads it.
//!
//! Holds whole revisions. It is full at its number of revisions, at [`BYTES_MAX`], or when all the
//! client's buffers together hold [`CLIENT_BYTES_MAX`] and this one is not empty. A full buffer takes
//! nothing more, and the watch is parked (see `multiplex`); the response in hand when it fills up is
//! still taken whole, so it may go over by one response. The last item, an error, always fits.
//!
//! The lock is held for a few moves of memory, never across an await, and no other lock is taken with
//! it but the one of the inbox.

use super::hub::{Inbox, Serial};
use super::status::{WatchPhase, WatchStatus};
use super::wire::weight;
use super::{Changes, WatchError};
use meerkat_types::Revision;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use tokio::sync::watch;

/// What one watch may buffer, in bytes.
pub(crate) const BYTES_MAX: usize = 4 << 20;
/// What all watches of a client may buffer together, in bytes.
pub(crate) const CLIENT_BYTES_MAX: usize = 256 << 20;

/// Bytes buffered by all watches of a client.
#[derive(Debug, Default)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    fn is_used_up(&self) -> bool {
        CLIENT_BYTES_MAX <= self.0.load(Ordering::Relaxed)
    }
}

/// One watch's buffer and status.
pub(crate) struct Mailbox {
    serial: Serial,
    revisions_max: usize,
    budget: Arc<Budget>,
    home: Arc<Inbox>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Changes>,
    bytes: usize,
    /// The last item; behind it the stream is over.
    end: Option<WatchError>,
    ended: bool,
    /// The application has dropped the watch.
    dropped: bool,
    /// The inbox was told to look and has not looked yet; keeps it to one entry a watch.
    told: bool,
    reader: Option<Waker>,
    status: WatchStatus,
    monitor: Option<watch::Sender<WatchStatus>>,
}

/// What the carrier finds when it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Dropped,
    /// At least half of it is free, and what comes next would be taken.
    Roomy,
    Busy,
}

impl Mailbox {
    pub(crate) fn new(
        serial: Serial,
        revisions_max: usize,
        budget: Arc<Budget>,
        home: Arc<Inbox>,
    ) -> Mailbox {
        Mailbox { serial, revisions_max: revisions_max.max(1), budget, home, state: Mutex::default() }
    }

    pub(crate) fn serial(&self) -> Serial {
        self.serial
    }

    pub(crate) fn is_full(&self) -> bool {
        let state = self.state.lock();
        self.revisions_max <= state.queue.len()
            || BYTES_MAX <= state.bytes
            || (self.budget.is_used_up() && !state.queue.is_empty())
    }

    /// Queues whole revisions and tells how far the watch has come.
    pub(crate) fn deliver(&self, whole: &mut Vec<Changes>, next: Option<Revision>) {
        let mut state = self.state.lock();
        if state.dropped || state.ended {
            return whole.clear();
        }
        let mut added = 0;
        for changes in whole.drain(..) {
            added += weight_of(&changes);
            state.queue.push_back(changes);
        }
        state.bytes += added;
        self.budget.0.fetch_add(added, Ordering::Relaxed);
        state.status.next = next;
        state.tell();
        wake(state.reader.take());
    }

    /// Queues a mark. One behind another replaces it, and a full buffer has no room for it: marks are
    /// a service, not a debt.
    pub(crate) fn mark(&self, at: Revision) {
        let full = self.is_full();
        let mut state = self.state.lock();
        if state.dropped || state.ended {
            return;
        }
        match state.queue.back_mut() {
            Some(last) if last.events.is_empty() => last.revision = at,
            _ if full => {}
            _ => {
                let mark = Changes { revision: at, events: Vec::new() };
                let added = weight_of(&mark);
                state.queue.push_back(mark);
                state.bytes += added;
                self.budget.0.fetch_add(added, Ordering::Relaxed);
            }
        }
        wake(state.reader.take());
    }

    /// Queues the last item.
    pub(crate) fn end(&self, why: WatchError) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.end = Some(why);
        state.ended = true;
        state.status.phase = WatchPhase::Ended;
        state.status.endpoint = None;
        state.tell();
        wake(state.reader.take());
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut WatchStatus)) {
        let mut state = self.state.lock();
        if !state.ended {
            change(&mut state.status);
            state.tell();
        }
    }

    /// The watch is taken off its stream. Looks in the same breath, as the application may have read
    /// everything just now and would then tell nobody.
    pub(crate) fn park(&self) -> Look {
        self.update(|status| {
            status.phase = WatchPhase::Parked;
            status.endpoint = None;
            status.parked += 1;
        });
        self.look()
    }

    /// What has become of it since the carrier looked last.
    pub(crate) fn look(&self) -> Look {
        let mut state = self.state.lock();
        state.told = false;
        match () {
            () if state.dropped => Look::Dropped,
            () if self.is_roomy(&state) => Look::Roomy,
            () => Look::Busy,
        }
    }

    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Option<Result<Changes, WatchError>>> {
        let mut state = self.state.lock();
        if let Some(changes) = state.queue.pop_front() {
            let weight = weight_of(&changes);
            state.bytes -= weight;
            self.budget.0.fetch_sub(weight, Ordering::Relaxed);
            if state.queue.is_empty() {
                // A burst's memory is not kept for the next one.
                state.queue = VecDeque::new();
            }
            state.status.last = Some(changes.revision);
            state.tell();
            if state.status.phase == WatchPhase::Parked && self.is_roomy(&state) {
                self.tell_home(&mut state);
            }
            return Poll::Ready(Some(Ok(changes)));
        }
        if state.ended {
            return Poll::Ready(state.end.take().map(Err));
        }
        if !state.reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn status(&self) -> WatchStatus {
        self.state.lock().status.clone()
    }

    pub(crate) fn monitor(&self) -> watch::Receiver<WatchStatus> {
        let state = &mut *self.state.lock();
        state.monitor.get_or_insert_with(|| watch::Sender::new(state.status.clone())).subscribe()
    }

    /// The application wants to know how far the watch has come.
    pub(crate) fn want_mark(&self) {
        self.home.want_progress();
    }

    /// The application is gone.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.dropped = true;
        self.budget.0.fetch_sub(state.bytes, Ordering::Relaxed);
        state.bytes = 0;
        state.queue = VecDeque::new();
        state.reader = None;
        if !state.ended {
            self.tell_home(&mut state);
        }
    }

    /// Never true of a full one, or a parked watch would come back only to be parked again. It always
    /// becomes true: one that is read empty is roomy, whatever the others hold.
    fn is_roomy(&self, state: &State) -> bool {
        state.queue.is_empty()
            || (state.queue.len() <= self.revisions_max / 2
                && state.bytes <= BYTES_MAX / 2
                && !self.budget.is_used_up())
    }

    fn tell_home(&self, state: &mut State) {
        if !std::mem::replace(&mut state.told, true) {
            self.home.look_at(self.serial);
        }
    }
}

impl State {
    fn tell(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.send_if_modified(|known| {
                let news = *known != self.status;
                if news {
                    known.clone_from(&self.status);
                }
                news
            });
        }
    }
}

fn wake(reader: Option<Waker>) {
    if let Some(reader) = reader {
        reader.wake();
    }
}

fn weight_of(changes: &Changes) -> usize {
    size_of::<Changes>() + changes.events.iter().map(weight).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::poll_fn;
    use meerkat_types::{Event, EventKind};

    fn mailbox(revisions_max: usize) -> (Mailbox, Arc<Inbox>, Arc<Budget>) {
        let (home, budget) = (Arc::new(Inbox::default()), Arc::new(Budget::default()));
        (Mailbox::new(Serial(7), revisions_max, budget.clone(), home.clone()), home, budget)
    }

    fn changes(revision: i64, bytes: usize) -> Changes {
        let key = Bytes::from(vec![b'k'; bytes]);
        let kind = EventKind::Delete { key, modified: Revision::new(revision) };
        Changes { revision: Revision::new(revision), events: vec![Event { kind, previous: None }] }
    }

    /// What is there to read at once: the revision, or the word for what else there is.
    fn read(mailbox: &Mailbox) -> String {
        match poll_fn(|context| mailbox.poll(context)).now_or_never() {
            None => "nothing yet".to_owned(),
            Some(None) => "over".to_owned(),
            Some(Some(Err(error))) => format!("{error:?}"),
            Some(Some(Ok(changes))) if changes.events.is_empty() => format!("mark {}", changes.revision),
            Some(Some(Ok(changes))) => changes.revision.to_string(),
        }
    }

    #[test]
    fn it_is_full_at_its_number_of_revisions_and_takes_a_response_whole() {
        let (mailbox, ..) = mailbox(2);
        mailbox.deliver(&mut vec![changes(1, 1)], None);
        assert!(!mailbox.is_full());
        mailbox.deliver(&mut vec![changes(2, 1), changes(3, 1), changes(4, 1)], None);
        assert!(mailbox.is_full());
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["1", "2", "3"]);
        assert!(!mailbox.is_full());
    }

    #[test]
    fn it_is_full_at_its_bytes() {
        let (mailbox, ..) = mailbox(1_000);
        mailbox.deliver(&mut vec![changes(1, BYTES_MAX)], None);
        assert!(mailbox.is_full());
    }

    #[test]
    fn when_the_client_is_at_its_bytes_every_buffer_with_something_in_it_is_full() {
        let (mailbox, _, budget) = mailbox(1_000);
        budget.0.store(CLIENT_BYTES_MAX, Ordering::Relaxed);
        assert!(!mailbox.is_full());
        mailbox.deliver(&mut vec![changes(1, 1)], None);
        assert!(mailbox.is_full());
    }

    #[test]
    fn what_is_read_or_dropped_is_given_back_to_the_client() {
        let (mailbox, _, budget) = mailbox(10);
        mailbox.deliver(&mut vec![changes(1, 100), changes(2, 100)], None);
        mailbox.mark(Revision::new(3));
        assert!(200 < budget.0.load(Ordering::Relaxed));
        read(&mailbox);
        mailbox.close();
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_error_comes_once_behind_what_was_queued() {
        let (mailbox, ..) = mailbox(1);
        mailbox.deliver(&mut vec![changes(1, 1)], None);
        mailbox.end(WatchError::Closed);
        mailbox.end(WatchError::Closed);
        mailbox.deliver(&mut vec![changes(2, 1)], None);
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["1", "Closed", "over"]);
    }

    #[test]
    fn marks_follow_each_other_in_one_place_and_never_fill_a_buffer() {
        let (mailbox, ..) = mailbox(2);
        mailbox.mark(Revision::new(3));
        mailbox.mark(Revision::new(5));
        mailbox.deliver(&mut vec![changes(6, 1)], None);
        mailbox.mark(Revision::new(7));
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["mark 5", "6", "nothing yet"]);
    }

    #[test]
    fn a_parked_watch_tells_home_once_when_half_is_read() {
        let (mailbox, home, _) = mailbox(4);
        mailbox.deliver(&mut (1..=4).map(|at| changes(at, 1)).collect(), None);
        assert_eq!(mailbox.park(), Look::Busy);
        read(&mailbox);
        assert_eq!(home.take().len(), 0);
        read(&mailbox);
        read(&mailbox);
        assert_eq!(home.take().len(), 1);
        assert_eq!(mailbox.look(), Look::Roomy);
    }

    #[test]
    fn a_watch_that_was_read_while_it_was_parked_is_found_roomy_at_once() {
        let (mailbox, ..) = mailbox(1);
        mailbox.deliver(&mut vec![changes(1, 1)], None);
        assert!(mailbox.is_full());
        read(&mailbox);
        assert_eq!(mailbox.park(), Look::Roomy);
    }

    #[test]
    fn when_the_client_is_at_its_bytes_a_parked_watch_comes_back_only_when_it_is_read_empty() {
        let (mailbox, home, budget) = mailbox(1_000);
        budget.0.store(CLIENT_BYTES_MAX, Ordering::Relaxed);
        mailbox.deliver(&mut vec![changes(1, 1), changes(2, 1)], None);
        assert!(mailbox.is_full());
        assert_eq!(mailbox.park(), Look::Busy);
        read(&mailbox);
        assert_eq!((home.take().len(), mailbox.look()), (0, Look::Busy));
        read(&mailbox);
        assert_eq!((home.take().len(), mailbox.look()), (1, Look::Roomy));
    }

    #[test]
    fn when_others_have_given_room_back_a_parked_watch_with_something_in_it_is_roomy() {
        let (mailbox, _, budget) = mailbox(1_000);
        budget.0.store(CLIENT_BYTES_MAX, Ordering::Relaxed);
        mailbox.deliver(&mut vec![changes(1, 1)], None);
        assert_eq!(mailbox.park(), Look::Busy);
        budget.0.fetch_sub(CLIENT_BYTES_MAX, Ordering::Relaxed);
        assert_eq!(mailbox.look(), Look::Roomy);
    }

    #[test]
    fn a_dropped_watch_tells_home() {
        let (mailbox, home, _) = mailbox(4);
        mailbox.close();
        assert_eq!(home.take().len(), 1);
        assert_eq!(mailbox.look(), Look::Dropped);
    }

    #[test]
    fn a_monitor_sees_what_changes() {
        let (mailbox, ..) = mailbox(4);
        let mut monitor = mailbox.monitor();
        monitor.mark_unchanged();
        mailbox.deliver(&mut vec![changes(4, 1)], Some(Revision::new(5)));
        read(&mailbox);
        assert!(monitor.has_changed().expect("the mailbox is there"));
        let seen = monitor.borrow_and_update().clone();
        assert_eq!((seen.last, seen.next), (Some(Revision::new(4)), Some(Revision::new(5))));
    }
}
