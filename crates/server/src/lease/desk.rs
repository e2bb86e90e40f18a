//! The leader's desk: renewals and questions, answered from the book.
//!
//! Order for a renewal: move the deadline, then let a majority confirm that this member still leads,
//! then answer. Whoever leads next takes over after that round, and counts the whole time to live
//! from then on, so the answer holds under it too.

use super::book::{Book, NoteId, Renewed};
use super::pace::Pace;
use super::scribe::Scribe;
use futures::future::BoxFuture;
use meerkat_fault::Mutex;
use meerkat_raft::tasks::Tasks;
use meerkat_raft::{LeaseRest, Lessor, LessorError, RaftNode, ReadIndexError, Renewal};
use meerkat_types::{LeaseId, LeaseNote, LogIndex, Term, limits};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a new leader's desk may be closed before the question is given back: taking over means to
/// apply what the predecessor left.
const OPENING_TIMEOUT: Duration = Duration::from_secs(5);

/// Since start, on this member.
#[derive(Default)]
pub(crate) struct LeaseCounters {
    pub(crate) granted: AtomicU64,
    pub(crate) ended: AtomicU64,
    pub(crate) renewed: AtomicU64,
    pub(crate) expired: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct Desk {
    pub(super) raft: Arc<RaftNode>,
    /// Held for moments, never across an await.
    pub(super) book: Arc<Mutex<Book>>,
    pub(super) scribe: Scribe,
    pub(super) counters: Arc<LeaseCounters>,
    pub(super) pace: Arc<Mutex<Pace>>,
    /// In which term the book knows every lease.
    pub(super) open: watch::Sender<Option<Term>>,
}

impl Desk {
    pub(crate) fn new(
        raft: Arc<RaftNode>,
        book: Arc<Mutex<Book>>,
        counters: Arc<LeaseCounters>,
        tasks: &Tasks,
    ) -> Desk {
        let scribe = Scribe::start(raft.clone(), tasks);
        let pace = Arc::new(Mutex::new(Pace::new(Instant::now())));
        Desk { raft, book, scribe, counters, pace, open: watch::Sender::new(None) }
    }

    /// The term of the book, once it is complete.
    async fn opened(&self) -> Result<Term, LessorError> {
        if let Some(term) = *self.open.borrow() {
            return Ok(term);
        }
        let leadership = self.raft.leadership();
        let Some(leading) = leadership.own_term() else { return Err(LessorError::NotLeader) };
        let mut open = self.open.subscribe();
        let opened = tokio::time::timeout(OPENING_TIMEOUT, open.wait_for(Option::is_some));
        tokio::select! {
            opened = opened => match opened {
                Ok(Ok(term)) => term.ok_or(LessorError::NotLeader),
                Ok(Err(_)) => Err(LessorError::Stopped),
                Err(_) => Err(LessorError::NotLeader),
            },
            () = leadership.own_term_changed(Some(leading)) => Err(LessorError::NotLeader),
        }
    }

    /// Fails unless this member has led all the time since the book was of `term`.
    async fn confirm(&self, term: Term) -> Result<LogIndex, LessorError> {
        let confirmed = self.raft.reads().confirm_lead().await.map_err(|error| match error {
            ReadIndexError::NoLeader | ReadIndexError::LeaderChanged => LessorError::NotLeader,
            ReadIndexError::Timeout => LessorError::Timeout,
            ReadIndexError::Stopped => LessorError::Stopped,
        })?;
        let same = confirmed.term == Some(term) && self.book.lock().term() == Some(term);
        if same { Ok(confirmed.index) } else { Err(LessorError::NotLeader) }
    }

    async fn applied(&self, index: LogIndex) -> Result<(), LessorError> {
        self.raft.applied().reached(index).await.map_err(|_| LessorError::Stopped)
    }

    async fn renew(&self, leases: &[LeaseId]) -> Result<Vec<Renewal>, LessorError> {
        let term = self.opened().await?;
        let mut renewed = self.renew_in_book(term, leases)?;
        let is_noted = |renewed: &Renewed| matches!(renewed, Renewed::Noted { .. });
        let noted = chosen(leases, &renewed, is_noted);
        if !noted.is_empty() {
            self.take_notes_back(term, leases, &renewed).await?;
            replace(&mut renewed, is_noted, self.renew_in_book(term, &noted)?);
        }
        let wait = self.pace.lock().wait(self.raft.applied().index(), Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let index = self.confirm(term).await?;
        let is_unknown = |renewed: &Renewed| *renewed == Renewed::Unknown;
        let unknown = chosen(leases, &renewed, is_unknown);
        if !unknown.is_empty() {
            // A follower may know of a grant before its leader has applied it.
            self.applied(index).await?;
            replace(&mut renewed, is_unknown, self.renew_in_book(term, &unknown)?);
        }
        let answers = self.answers(leases, &renewed);
        let done = answers.iter().filter(|renewal| matches!(renewal, Renewal::Renewed(_))).count() as u64;
        self.counters.renewed.fetch_add(done, Ordering::Relaxed);
        Ok(answers)
    }

    fn renew_in_book(&self, term: Term, leases: &[LeaseId]) -> Result<Vec<Renewed>, LessorError> {
        let now = Instant::now();
        let mut book = self.book.lock();
        if book.term() != Some(term) {
            return Err(LessorError::NotLeader);
        }
        Ok(leases.iter().map(|lease| book.renew(*lease, now)).collect())
    }

    async fn take_notes_back(
        &self,
        term: Term,
        leases: &[LeaseId],
        renewed: &[Renewed],
    ) -> Result<(), LessorError> {
        let noted = leases.iter().zip(renewed).filter_map(|(lease, renewed)| match renewed {
            Renewed::Noted { granted, note } => {
                Some((LeaseNote { id: *lease, granted: *granted, remaining: None }, *note))
            }
            Renewed::For(_) | Renewed::Expiring | Renewed::Unknown => None,
        });
        let noted: Vec<(LeaseNote, NoteId)> = noted.collect();
        for some in noted.chunks(limits::LEASE_NOTES_MAX) {
            let notes = some.iter().map(|(note, _)| *note).collect();
            if !self.scribe.note(term, notes).await {
                return Err(LessorError::NotLeader);
            }
            let mut book = self.book.lock();
            some.iter().for_each(|(lease, note)| book.unnoted(lease.id, *note));
        }
        Ok(())
    }

    /// What to tell, now that everything was confirmed: confirming may have taken longer than a lease
    /// lives.
    fn answers(&self, leases: &[LeaseId], renewed: &[Renewed]) -> Vec<Renewal> {
        let (book, now) = (self.book.lock(), Instant::now());
        let answer = |(lease, renewed): (&LeaseId, &Renewed)| match renewed {
            Renewed::For(ttl) if book.stands(*lease, now) => Renewal::Renewed(*ttl),
            Renewed::Unknown => Renewal::Gone,
            // Noted again already, which only a very short interval can bring about: ask again.
            Renewed::For(_) | Renewed::Expiring | Renewed::Noted { .. } => Renewal::Expiring,
        };
        leases.iter().zip(renewed).map(answer).collect()
    }

    async fn rest(&self, lease: LeaseId) -> Result<LeaseRest, LessorError> {
        let term = self.opened().await?;
        let index = self.confirm(term).await?;
        self.applied(index).await?;
        let book = self.book.lock();
        if book.term() != Some(term) {
            return Err(LessorError::NotLeader);
        }
        Ok(LeaseRest { index, rest: book.rest(lease, Instant::now()) })
    }
}

fn chosen(leases: &[LeaseId], renewed: &[Renewed], which: impl Fn(&Renewed) -> bool) -> Vec<LeaseId> {
    leases.iter().zip(renewed).filter(|(_, renewed)| which(renewed)).map(|(lease, _)| *lease).collect()
}

/// Puts second answers, in order, where the first was of the kind `which`.
fn replace(renewed: &mut [Renewed], which: impl Fn(&Renewed) -> bool, second: Vec<Renewed>) {
    let places = renewed.iter_mut().filter(|renewed| which(renewed));
    places.zip(second).for_each(|(place, second)| *place = second);
}

impl Lessor for Desk {
    fn renew(&self, leases: Vec<LeaseId>) -> BoxFuture<'static, Result<Vec<Renewal>, LessorError>> {
        let desk = self.clone();
        Box::pin(async move { Desk::renew(&desk, &leases).await })
    }

    fn rest(&self, lease: LeaseId) -> BoxFuture<'static, Result<LeaseRest, LessorError>> {
        let desk = self.clone();
        Box::pin(async move { Desk::rest(&desk, lease).await })
    }
}
