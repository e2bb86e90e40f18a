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
use super::response::{ResponseHeader, WatchResponse};
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
    queue: VecDeque<Item>,
    bytes: usize,
    /// The response of the newest item goes on.
    goes_on: bool,
    /// The member's own word for the end, for who reads responses.
    last_word: Option<WatchResponse>,
    /// The last item; behind it the stream is over.
    end: Option<WatchError>,
    ended: bool,
    /// The application has dropped the watch.
    dropped: bool,
    /// The inbox was told to look and has not looked yet; keeps it to one entry a watch.
    told: bool,
    /// The stream is not read before there is room.
    held_up: bool,
    reader: Option<Waker>,
    status: WatchStatus,
    monitor: Option<watch::Sender<WatchStatus>>,
}

/// What one read gives: a whole revision, or a mark.
struct Item {
    changes: Changes,
    header: ResponseHeader,
    /// Nothing before it came in the same response.
    opens: bool,
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
        self.holds_enough(&self.state.lock())
    }

    /// As [`Mailbox::is_full`], and if so the carrier is told when there is room.
    pub(crate) fn holds_up(&self) -> bool {
        let mut state = self.state.lock();
        state.held_up = self.holds_enough(&state);
        state.held_up
    }

    fn holds_enough(&self, state: &State) -> bool {
        self.revisions_max <= state.queue.len()
            || BYTES_MAX <= state.bytes
            || (self.budget.is_used_up() && !state.queue.is_empty())
    }

    /// Queues the whole revisions of one response, of which `more` may come, and tells how far the watch
    /// has come.
    pub(crate) fn deliver(
        &self,
        whole: &mut Vec<Changes>,
        header: ResponseHeader,
        more: bool,
        next: Option<Revision>,
    ) {
        let mut state = self.state.lock();
        if state.dropped || state.ended {
            return whole.clear();
        }
        let mut added = 0;
        for changes in whole.drain(..) {
            added += weight_of(&changes);
            let opens = !std::mem::replace(&mut state.goes_on, true);
            state.queue.push_back(Item { changes, header, opens });
        }
        // Before its first whole revision a response has not begun to be told.
        state.goes_on &= more;
        state.bytes += added;
        self.budget.0.fetch_add(added, Ordering::Relaxed);
        state.status.next = next;
        state.tell();
        wake(state.reader.take());
    }

    /// Queues a mark. One behind another replaces it, and a full buffer has no room for it: marks are
    /// a service, not a debt.
    pub(crate) fn mark(&self, header: ResponseHeader) {
        let full = self.is_full();
        let mut state = self.state.lock();
        if state.dropped || state.ended {
            return;
        }
        let changes = Changes { revision: header.revision, events: Vec::new() };
        match state.queue.back_mut() {
            Some(last) if last.changes.events.is_empty() => *last = Item { changes, header, opens: true },
            _ if full => {}
            _ => {
                let added = weight_of(&changes);
                state.queue.push_back(Item { changes, header, opens: true });
                state.goes_on = false;
                state.bytes += added;
                self.budget.0.fetch_add(added, Ordering::Relaxed);
            }
        }
        wake(state.reader.take());
    }

    /// What the member said when it ended the watch; the last item follows.
    pub(crate) fn last_word(&self, response: WatchResponse) {
        self.state.lock().last_word = Some(response);
    }

    /// Queues the last item.
    pub(crate) fn end(&self, why: WatchError) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.end = Some(why);
        state.ended = true;
        state.goes_on = false;
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

    /// The watch is not on its stream any more: the response that was being told is over.
    pub(crate) fn leave(&self, change: impl FnOnce(&mut WatchStatus)) {
        self.update(change);
        let mut state = self.state.lock();
        if std::mem::take(&mut state.goes_on) {
            wake(state.reader.take());
        }
    }

    /// The watch is taken off its stream. Looks in the same breath, as the application may have read
    /// everything just now and would then tell nobody.
    pub(crate) fn park(&self) -> Look {
        self.leave(|status| {
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
        match self.pop(&mut state) {
            Some(item) => Poll::Ready(Some(Ok(item.changes))),
            None if state.ended => Poll::Ready(state.end.take().map(Err)),
            None => state.wait(context),
        }
    }

    /// As [`Mailbox::poll`], response by response. What has come of one that goes on is kept in `begun`.
    pub(crate) fn poll_response(
        &self,
        begun: &mut Option<WatchResponse>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<WatchResponse, WatchError>>> {
        let mut state = self.state.lock();
        while state.queue.front().is_some_and(|next| begun.is_none() || !next.opens) {
            let Some(Item { changes, header, .. }) = self.pop(&mut state) else { break };
            let response = begun.get_or_insert_default();
            response.header = Some(header);
            response.events.extend(changes.events);
        }
        if begun.is_some() && !(state.queue.is_empty() && state.goes_on) {
            return Poll::Ready(begun.take().map(Ok));
        }
        match state.last_word.take() {
            Some(last) => Poll::Ready(Some(Ok(last))),
            None if state.ended => Poll::Ready(state.end.take().map(Err)),
            None => state.wait(context),
        }
    }

    fn pop(&self, state: &mut State) -> Option<Item> {
        let item = state.queue.pop_front()?;
        let weight = weight_of(&item.changes);
        state.bytes -= weight;
        self.budget.0.fetch_sub(weight, Ordering::Relaxed);
        if state.queue.is_empty() {
            // A burst's memory is not kept for the next one.
            state.queue = VecDeque::new();
        }
        state.status.last = Some(item.changes.revision);
        state.tell();
        if (state.held_up || state.status.phase == WatchPhase::Parked) && self.is_roomy(state) {
            state.held_up = false;
            self.tell_home(state);
        }
        Some(item)
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
    /// Nothing to read yet.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<T> {
        if !self.reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }

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
    size_of::<Item>() + changes.events.iter().map(weight).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::resume::revision_of;
    use super::*;
    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::poll_fn;
    use meerkat_proto::pb::etcdserver as pb;
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

    fn header(revision: i64) -> ResponseHeader {
        let (member_id, revision) = (meerkat_types::MemberId(7), Revision::new(revision));
        ResponseHeader { cluster_id: 9, member_id, revision, raft_term: 2 }
    }

    fn deliver(mailbox: &Mailbox, whole: &mut Vec<Changes>) {
        mailbox.deliver(whole, header(1), false, None);
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
        deliver(&mailbox, &mut vec![changes(1, 1)]);
        assert!(!mailbox.is_full());
        deliver(&mailbox, &mut vec![changes(2, 1), changes(3, 1), changes(4, 1)]);
        assert!(mailbox.is_full());
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["1", "2", "3"]);
        assert!(!mailbox.is_full());
    }

    #[test]
    fn it_is_full_at_its_bytes() {
        let (mailbox, ..) = mailbox(1_000);
        deliver(&mailbox, &mut vec![changes(1, BYTES_MAX)]);
        assert!(mailbox.is_full());
    }

    #[test]
    fn when_the_client_is_at_its_bytes_every_buffer_with_something_in_it_is_full() {
        let (mailbox, _, budget) = mailbox(1_000);
        budget.0.store(CLIENT_BYTES_MAX, Ordering::Relaxed);
        assert!(!mailbox.is_full());
        deliver(&mailbox, &mut vec![changes(1, 1)]);
        assert!(mailbox.is_full());
    }

    #[test]
    fn what_is_read_or_dropped_is_given_back_to_the_client() {
        let (mailbox, _, budget) = mailbox(10);
        deliver(&mailbox, &mut vec![changes(1, 100), changes(2, 100)]);
        mailbox.mark(header(3));
        assert!(200 < budget.0.load(Ordering::Relaxed));
        read(&mailbox);
        mailbox.close();
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_error_comes_once_behind_what_was_queued() {
        let (mailbox, ..) = mailbox(1);
        deliver(&mailbox, &mut vec![changes(1, 1)]);
        mailbox.end(WatchError::Closed);
        mailbox.end(WatchError::Closed);
        deliver(&mailbox, &mut vec![changes(2, 1)]);
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["1", "Closed", "over"]);
    }

    #[test]
    fn marks_follow_each_other_in_one_place_and_never_fill_a_buffer() {
        let (mailbox, ..) = mailbox(2);
        mailbox.mark(header(3));
        mailbox.mark(header(5));
        deliver(&mailbox, &mut vec![changes(6, 1)]);
        mailbox.mark(header(7));
        assert_eq!([read(&mailbox), read(&mailbox), read(&mailbox)], ["mark 5", "6", "nothing yet"]);
    }

    #[test]
    fn a_parked_watch_tells_home_once_when_half_is_read() {
        let (mailbox, home, _) = mailbox(4);
        deliver(&mailbox, &mut (1..=4).map(|at| changes(at, 1)).collect());
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
        deliver(&mailbox, &mut vec![changes(1, 1)]);
        assert!(mailbox.is_full());
        read(&mailbox);
        assert_eq!(mailbox.park(), Look::Roomy);
    }

    #[test]
    fn when_the_client_is_at_its_bytes_a_parked_watch_comes_back_only_when_it_is_read_empty() {
        let (mailbox, home, budget) = mailbox(1_000);
        budget.0.store(CLIENT_BYTES_MAX, Ordering::Relaxed);
        deliver(&mailbox, &mut vec![changes(1, 1), changes(2, 1)]);
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
        deliver(&mailbox, &mut vec![changes(1, 1)]);
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
        mailbox.deliver(&mut vec![changes(4, 1)], header(4), false, Some(Revision::new(5)));
        read(&mailbox);
        assert!(monitor.has_changed().expect("the mailbox is there"));
        let seen = monitor.borrow_and_update().clone();
        assert_eq!((seen.last, seen.next), (Some(Revision::new(4)), Some(Revision::new(5))));
    }

    /// The revisions of each response that is there to read at once; `mark` for a mark.
    fn responses(mailbox: &Mailbox, begun: &mut Option<WatchResponse>) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(Some(item)) = poll_fn(|context| mailbox.poll_response(begun, context)).now_or_never() {
            found.push(match item {
                Err(error) => format!("{error:?}"),
                Ok(WatchResponse { canceled: Some(canceled), .. }) => canceled.reason,
                Ok(response) if response.events.is_empty() => "mark".to_owned(),
                Ok(response) => {
                    let at = response.events.iter().map(|event| revision_of(event).to_string());
                    let header = response.header.expect("a header").revision;
                    format!("{} at {header}", at.collect::<Vec<_>>().join("+"))
                }
            });
        }
        found
    }

    #[test]
    fn responses_are_read_as_they_came() {
        let (mailbox, ..) = mailbox(100);
        let mut begun = None;
        mailbox.deliver(&mut vec![changes(2, 1), changes(3, 1)], header(9), false, None);
        mailbox.deliver(&mut vec![changes(4, 1)], header(9), false, None);
        mailbox.mark(header(9));
        assert_eq!(responses(&mailbox, &mut begun), ["2+3 at 9", "4 at 9", "mark"]);
        mailbox.end(WatchError::Closed);
        assert_eq!(responses(&mailbox, &mut begun), ["Closed"]);
    }

    #[test]
    fn pieces_of_a_response_are_read_as_one() {
        let (mailbox, ..) = mailbox(100);
        let mut begun = None;
        mailbox.deliver(&mut vec![changes(2, 1)], header(9), true, None);
        assert_eq!(responses(&mailbox, &mut begun), [""; 0]);
        mailbox.deliver(&mut Vec::new(), header(9), true, None);
        mailbox.deliver(&mut vec![changes(3, 1), changes(4, 1)], header(9), false, None);
        mailbox.deliver(&mut vec![changes(5, 1)], header(9), false, None);
        assert_eq!(responses(&mailbox, &mut begun), ["2+3+4 at 9", "5 at 9"]);
    }

    #[test]
    fn response_cut_off_by_a_loss_is_read_as_far_as_it_came() {
        let (mailbox, ..) = mailbox(100);
        let mut begun = None;
        mailbox.deliver(&mut vec![changes(2, 1)], header(9), true, None);
        assert_eq!(responses(&mailbox, &mut begun), [""; 0]);
        mailbox.leave(|status| status.endpoint = None);
        assert_eq!(responses(&mailbox, &mut begun), ["2 at 9"]);
        mailbox.deliver(&mut vec![changes(3, 1)], header(10), false, None);
        assert_eq!(responses(&mailbox, &mut begun), ["3 at 10"]);
    }

    #[test]
    fn last_word_of_a_member_precedes_the_error() {
        let (mailbox, ..) = mailbox(100);
        deliver(&mailbox, &mut vec![changes(2, 1)]);
        let cancel_reason = "no more".to_owned();
        let response = pb::WatchResponse { canceled: true, cancel_reason, ..Default::default() };
        mailbox.last_word(WatchResponse::canceled(&response));
        mailbox.end(WatchError::Closed);
        assert_eq!(responses(&mailbox, &mut None), ["2 at 1", "no more", "Closed"]);
    }

    #[test]
    fn held_up_stream_is_told_when_there_is_room() {
        let (mailbox, home, _) = mailbox(2);
        assert!(!mailbox.holds_up());
        deliver(&mailbox, &mut vec![changes(1, 1), changes(2, 1)]);
        assert!(mailbox.holds_up());
        read(&mailbox);
        assert_eq!((home.take().len(), mailbox.holds_up()), (1, false));
    }
}
