//! Whether this member still leads, by the word of a majority of the voters.
//!
//! A round asks every voter for the highest ballot that it has given its word to. When a majority
//! answers with none above the leader's own, nobody else can have been elected before the round began:
//! that would have taken the word of one of them. So whatever was acknowledged before the round is in
//! this leader's log.
//!
//! Never count an answer for a round that began after its question was sent. openraft's own
//! confirmation does so at times: it dates the answer to an old append by the newest one that the
//! answer could belong to, and a leader that could not hear for a while takes it for a fresh one.

use crate::leadership::Leadership;
use crate::log_store::LogStore;
use crate::network::conversation::Conversation;
use crate::network::link::{Links, Purpose};
use crate::network::wire;
use crate::tasks::{spawn_part, watched};
use crate::type_config::Vote;
use meerkat_proto::pb::peer as pb;
use meerkat_types::MemberId;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Least time that a voter is given to answer, before it is asked again on another stream.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Pauses before a voter that did not answer is asked again: the first, doubled up to the last.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a voter said in a round.
#[derive(Clone, Copy, Debug)]
struct Word {
    voter: MemberId,
    /// The newest round that had begun when the question was sent.
    round: u64,
    /// None of one that never voted.
    ballot: Option<Vote>,
}

/// The rounds of one member. One is under way at a time.
pub(crate) struct Confirmer {
    log: LogStore,
    pub(crate) links: Arc<Links>,
    pub(crate) leadership: Leadership,
    patience: Duration,
    round: u64,
    /// The newest round that is over: nobody is asked for it again.
    over: Arc<AtomicU64>,
    /// Tells each voter's task of the newest round; a task ends when its sender is gone.
    askers: BTreeMap<MemberId, watch::Sender<u64>>,
    words: (mpsc::UnboundedSender<Word>, mpsc::UnboundedReceiver<Word>),
}

/// No majority can be behind this member in the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outvoted;

impl Confirmer {
    pub(crate) fn new(log: LogStore, links: Arc<Links>, leadership: Leadership) -> Confirmer {
        let patience = leadership.election_timeout().max(PATIENCE_MIN);
        Confirmer {
            log,
            links,
            leadership,
            patience,
            round: 0,
            over: Arc::default(),
            askers: BTreeMap::new(),
            words: mpsc::unbounded_channel(),
        }
    }

    /// Begins a round: the questions are on their way when this returns.
    pub(crate) fn begin(&mut self) {
        // Of earlier rounds, all of them.
        while self.words.1.try_recv().is_ok() {}
        self.round += 1;
        let me = self.links.identity().member;
        let voters = self.leadership.voters();
        self.askers.retain(|voter, _| voters.contains(voter));
        for voter in voters.into_iter().filter(|voter| *voter != me) {
            let asker = self.askers.entry(voter).or_insert_with(|| {
                let (newest, rounds) = watch::channel(0);
                let peer = Voter {
                    id: voter,
                    links: self.links.clone(),
                    leadership: self.leadership.clone(),
                    patience: self.patience,
                    stream: None,
                };
                let asking = keep_asking(voter, peer, rounds, self.over.clone(), self.words.0.clone());
                spawn_part("read confirmation", watched("read confirmation", asking));
                newest
            });
            asker.send_replace(self.round);
        }
    }

    /// Ends the round: whoever has not answered is not asked for it again.
    pub(crate) fn end(&mut self) {
        self.over.store(self.round, Ordering::Relaxed);
    }

    /// Waits until a majority of every one of `configs` has answered the round that was begun, with
    /// nothing above `mine`.
    pub(crate) async fn majority(
        &mut self,
        mine: Vote,
        configs: Vec<BTreeSet<MemberId>>,
    ) -> Result<(), Outvoted> {
        let mut tally = Tally::new(self.round, mine, configs);
        let me = self.links.identity().member;
        // A log that is closed or broken keeps no promise, so this member's own word does not count.
        if let Ok(ballot) = self.log.promised() {
            tally.hear(Word { voter: me, round: self.round, ballot });
        }
        loop {
            if let Some(verdict) = tally.verdict() {
                return verdict;
            }
            match self.words.1.recv().await {
                Some(word) => tally.hear(word),
                // Never: this member holds a sender itself.
                None => return std::future::pending().await,
            }
        }
    }
}

/// Who stands behind a leader in one round.
struct Tally {
    round: u64,
    mine: Vote,
    /// The voters; two sets of them while one configuration gives way to another.
    configs: Vec<BTreeSet<MemberId>>,
    behind: BTreeSet<MemberId>,
    against: BTreeSet<MemberId>,
}

impl Tally {
    fn new(round: u64, mine: Vote, configs: Vec<BTreeSet<MemberId>>) -> Tally {
        Tally { round, mine, configs, behind: BTreeSet::new(), against: BTreeSet::new() }
    }

    fn hear(&mut self, word: Word) {
        if word.round != self.round {
            return;
        }
        let above = word.ballot.is_some_and(|ballot| ballot.leader_id > self.mine.leader_id);
        let side = if above { &mut self.against } else { &mut self.behind };
        side.insert(word.voter);
    }

    /// More than half of every configuration behind the leader, or no hope of it; `None` before that.
    fn verdict(&self) -> Option<Result<(), Outvoted>> {
        let of = |voters: &BTreeSet<MemberId>, side| voters.intersection(side).count();
        if self.configs.iter().all(|voters| of(voters, &self.behind) > voters.len() / 2) {
            return Some(Ok(()));
        }
        let lost = |voters: &BTreeSet<MemberId>| voters.len() - of(voters, &self.against) <= voters.len() / 2;
        self.configs.iter().any(lost).then_some(Err(Outvoted))
    }
}

/// Somebody who can be asked for its ballot.
trait Ask: Send {
    /// The ballot, if it has given its word to any; `None` if there is no answer in time.
    fn ask(&mut self) -> impl Future<Output = Option<Option<Vote>>> + Send;
}

/// Asks one voter, once for each round; rounds that begin meanwhile share the next question.
async fn keep_asking(
    voter: MemberId,
    mut who: impl Ask,
    mut rounds: watch::Receiver<u64>,
    over: Arc<AtomicU64>,
    words: mpsc::UnboundedSender<Word>,
) {
    let mut answered = 0;
    let mut pause = PAUSE_MIN;
    loop {
        // Before the question: an answer counts for no round that begins after this.
        let round = *rounds.borrow_and_update();
        if round <= answered.max(over.load(Ordering::Relaxed)) {
            if rounds.changed().await.is_err() {
                return;
            }
            continue;
        }
        match who.ask().await {
            Some(ballot) => {
                answered = round;
                pause = PAUSE_MIN;
                if words.send(Word { voter, round, ballot }).is_err() {
                    return;
                }
            }
            None => {
                tokio::time::sleep(pause).await;
                pause = PAUSE_MAX.min(2 * pause);
                if rounds.has_changed().is_err() {
                    return;
                }
            }
        }
    }
}

type Ballots = Conversation<pb::BallotRequest, pb::BallotResponse>;

/// A voter, reached beside its heartbeats.
struct Voter {
    id: MemberId,
    links: Arc<Links>,
    leadership: Leadership,
    patience: Duration,
    stream: Option<Ballots>,
}

impl Voter {
    async fn open(&self) -> Option<Ballots> {
        let node = self.leadership.node(self.id)?;
        let mut link = self.links.to(self.id, &node, Purpose::Heartbeat).ok()?;
        Conversation::open(|questions| link.ballots(questions)).await.ok()
    }
}

impl Ask for Voter {
    async fn ask(&mut self) -> Option<Option<Vote>> {
        // Taken out while in use: a stream that owes an answer is not asked again.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => tokio::time::timeout(self.patience, self.open()).await.ok()??,
        };
        let exchange = stream.exchange(pb::BallotRequest {});
        let answer = tokio::time::timeout(self.patience, exchange).await.ok()?.ok()?;
        self.stream = Some(stream);
        Some(answer.ballot.and_then(|ballot| wire::vote_from_wire(Some(ballot)).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    const ROUND: u64 = 7;

    fn ballot(term: u64, node: u64) -> Vote {
        let mut vote = Vote::new(term, MemberId(node));
        vote.committed = true;
        vote
    }

    /// A leader of term 3, member 1.
    fn tally(configs: &[&[u64]]) -> Tally {
        let configs = configs.iter().map(|voters| voters.iter().copied().map(MemberId).collect()).collect();
        Tally::new(ROUND, ballot(3, 1), configs)
    }

    fn word(voter: u64, round: u64, ballot: Vote) -> Word {
        Word { voter: MemberId(voter), round, ballot: Some(ballot) }
    }

    #[test]
    fn more_than_half_of_every_configuration() {
        type Case<'c> = (&'c [u64], &'c [&'c [u64]], bool);
        let table: [Case<'_>; 8] = [
            (&[1], &[&[1]], true),
            (&[1], &[&[1, 2]], false),
            (&[1, 2], &[&[1, 2]], true),
            (&[1, 1], &[&[1, 2, 3]], false),
            (&[1, 3], &[&[1, 2, 3]], true),
            // A leader that is about to leave does not count itself, nor does one without a vote.
            (&[1, 2], &[&[2, 3, 4]], false),
            (&[1, 2, 5], &[&[1, 2, 3], &[3, 4, 5]], false),
            (&[1, 2, 4, 5], &[&[1, 2, 3], &[3, 4, 5]], true),
        ];
        for (voters, configs, expected) in table {
            let mut tally = tally(configs);
            voters.iter().for_each(|voter| tally.hear(word(*voter, ROUND, ballot(3, 1))));
            assert_eq!(tally.verdict(), expected.then_some(Ok(())), "{voters:?} of {configs:?}");
        }
    }

    /// As a leader meets it that could not hear for a while: the answers of before arrive all at once.
    #[test]
    fn an_answer_to_an_earlier_question_confirms_nothing() {
        let mut tally = tally(&[&[1, 2, 3]]);
        tally.hear(word(1, ROUND, ballot(3, 1)));
        tally.hear(word(2, ROUND - 1, ballot(3, 1)));
        tally.hear(word(3, ROUND - 1, ballot(3, 1)));
        assert_eq!(tally.verdict(), None);
        tally.hear(word(2, ROUND, ballot(4, 2)));
        assert_eq!(tally.verdict(), None, "the third may still be behind");
        tally.hear(word(3, ROUND, ballot(4, 2)));
        assert_eq!(tally.verdict(), Some(Err(Outvoted)));
    }

    #[test]
    fn only_a_higher_ballot_is_against_the_leader() {
        for (theirs, expected) in [
            (None, Ok(())),
            (Some(ballot(2, 9)), Ok(())),
            (Some(ballot(3, 1)), Ok(())),
            (Some(Vote::new(3, MemberId(1))), Ok(())),
            (Some(Vote::new(4, MemberId(1))), Err(Outvoted)),
            (Some(ballot(3, 2)), Err(Outvoted)),
        ] {
            let mut tally = tally(&[&[2]]);
            // One without a vote decides nothing, whatever it says.
            tally.hear(word(8, ROUND, ballot(9, 9)));
            assert_eq!(tally.verdict(), None);
            tally.hear(Word { voter: MemberId(2), round: ROUND, ballot: theirs });
            assert_eq!(tally.verdict(), Some(expected), "{theirs:?}");
        }
    }

    /// Answers when and what the test says; `None` stands for silence.
    struct Scripted(mpsc::UnboundedReceiver<Option<Vote>>, mpsc::UnboundedSender<()>);

    impl Ask for Scripted {
        async fn ask(&mut self) -> Option<Option<Vote>> {
            self.1.send(()).ok()?;
            self.0.recv().await?.map(Some)
        }
    }

    struct Asked {
        newest: watch::Sender<u64>,
        over: Arc<AtomicU64>,
        answers: mpsc::UnboundedSender<Option<Vote>>,
        questions: mpsc::UnboundedReceiver<()>,
        words: mpsc::UnboundedReceiver<Word>,
        ended: oneshot::Receiver<()>,
    }

    fn asked() -> Asked {
        let (newest, rounds) = watch::channel(0);
        let (answers, script) = mpsc::unbounded_channel();
        let (asking, questions) = mpsc::unbounded_channel();
        let (told, words) = mpsc::unbounded_channel();
        let (ending, ended) = oneshot::channel();
        let over = Arc::<AtomicU64>::default();
        let task = keep_asking(MemberId(2), Scripted(script, asking), rounds, over.clone(), told);
        tokio::spawn(async move {
            task.await;
            ending.send(()).expect("the test waits");
        });
        Asked { newest, over, answers, questions, words, ended }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_begins_while_a_question_is_out_gets_a_question_of_its_own() {
        let mut asked = asked();
        asked.newest.send_replace(1);
        asked.questions.recv().await.expect("round 1 is asked for");
        asked.newest.send_replace(2);
        asked.answers.send(Some(ballot(3, 1))).expect("heard");
        assert_eq!(asked.words.recv().await.expect("told").round, 1);
        asked.questions.recv().await.expect("round 2 is asked for");
        asked.answers.send(Some(ballot(4, 2))).expect("heard");
        let word = asked.words.recv().await.expect("told");
        assert_eq!((word.round, word.ballot), (2, Some(ballot(4, 2))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_voter_is_asked_again_only_while_the_round_lasts() {
        let mut asked = asked();
        asked.newest.send_replace(1);
        for _ in 0..3 {
            asked.questions.recv().await.expect("asked again");
            asked.answers.send(None).expect("heard");
        }
        asked.questions.recv().await.expect("asked again");
        asked.over.store(1, Ordering::Relaxed);
        asked.answers.send(None).expect("heard");
        tokio::time::sleep(3 * PAUSE_MAX).await;
        assert!(asked.questions.try_recv().is_err(), "the round is over");
        asked.newest.send_replace(2);
        asked.questions.recv().await.expect("asked for the next");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_goes_on_asking_a_silent_voter_that_is_gone() {
        let mut asked = asked();
        asked.newest.send_replace(1);
        asked.questions.recv().await.expect("asked");
        drop(asked.newest);
        asked.answers.send(None).expect("heard");
        asked.ended.await.expect("the task ends");
    }
}
