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
use crate::type_config::Vote;
use meerkat_proto::pb::peer as pb;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Longest wait for an answer, before the question is asked again on another stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a peer that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// What a voter said in a round.
#[derive(Clone, Copy, Debug)]
struct Word {
    peer: u64,
    /// The newest round that had begun when the question was sent.
    round: u64,
    ballot: Option<Vote>,
}

/// The rounds of one member. One is under way at a time.
pub(crate) struct Confirmer {
    log: LogStore,
    pub(crate) links: Arc<Links>,
    pub(crate) leadership: Leadership,
    round: u64,
    /// Tells each peer's task of the newest round; a task ends when its sender is gone.
    askers: BTreeMap<u64, watch::Sender<u64>>,
    words: (mpsc::UnboundedSender<Word>, mpsc::UnboundedReceiver<Word>),
}

/// Another member has a higher ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outvoted;

impl Confirmer {
    pub(crate) fn new(log: LogStore, links: Arc<Links>, leadership: Leadership) -> Confirmer {
        let words = mpsc::unbounded_channel();
        Confirmer { log, links, leadership, round: 0, askers: BTreeMap::new(), words }
    }

    /// Begins a round: the questions are on their way when this returns.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
        let me = self.links.identity().member.0;
        let nodes = self.leadership.nodes();
        self.askers.retain(|peer, _| nodes.contains_key(peer));
        for peer in nodes.into_keys().filter(|peer| *peer != me) {
            let asker = self.askers.entry(peer).or_insert_with(|| {
                let (newest, rounds) = watch::channel(0);
                let asking = Asking { peer, links: self.links.clone(), leadership: self.leadership.clone() };
                tokio::spawn(asking.run(rounds, self.words.0.clone()));
                newest
            });
            asker.send_replace(self.round);
        }
    }

    /// Waits until a majority of every one of `configs` has answered the round that was begun, with
    /// nothing above `mine`.
    pub(crate) async fn majority(&mut self, mine: Vote, configs: Vec<BTreeSet<u64>>) -> Result<(), Outvoted> {
        let mut tally = Tally { round: self.round, mine, configs, behind: BTreeSet::new() };
        let me = self.links.identity().member.0;
        let mut word = Word { peer: me, round: self.round, ballot: self.log.promised() };
        while !tally.hear(word)? {
            match self.words.1.recv().await {
                Some(next) => word = next,
                // Never: this member holds a sender itself.
                None => return std::future::pending().await,
            }
        }
        Ok(())
    }
}

/// Who stands behind a leader in one round.
struct Tally {
    round: u64,
    mine: Vote,
    /// The voters; two sets of them while one configuration gives way to another.
    configs: Vec<BTreeSet<u64>>,
    behind: BTreeSet<u64>,
}

impl Tally {
    /// Whether more than half of every configuration is behind the leader by now.
    fn hear(&mut self, word: Word) -> Result<bool, Outvoted> {
        if word.round == self.round {
            if word.ballot.is_some_and(|ballot| ballot.leader_id > self.mine.leader_id) {
                return Err(Outvoted);
            }
            self.behind.insert(word.peer);
        }
        let enough = |voters: &BTreeSet<u64>| voters.intersection(&self.behind).count() > voters.len() / 2;
        Ok(self.configs.iter().all(enough))
    }
}

/// Asks one peer, once for each round it hears of; rounds that begin meanwhile share the next question.
struct Asking {
    peer: u64,
    links: Arc<Links>,
    leadership: Leadership,
}

type Stream = Conversation<pb::BallotRequest, pb::BallotResponse>;

impl Asking {
    async fn run(self, mut rounds: watch::Receiver<u64>, words: mpsc::UnboundedSender<Word>) {
        let mut kept = None;
        let mut answered = 0;
        loop {
            let Ok(round) = rounds.wait_for(|round| answered < *round).await.map(|round| *round) else {
                return;
            };
            // Taken out while in use: a stream that owes an answer is not asked again.
            match tokio::time::timeout(ANSWER_TIMEOUT, self.ask(kept.take())).await {
                Ok(Some((ballot, stream))) => {
                    kept = Some(stream);
                    answered = round;
                    if words.send(Word { peer: self.peer, round, ballot }).is_err() {
                        return;
                    }
                }
                Ok(None) | Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// The peer's ballot, if it has one, and the stream to ask it again; `None` if there is no answer.
    async fn ask(&self, kept: Option<Stream>) -> Option<(Option<Vote>, Stream)> {
        let mut stream = match kept {
            Some(stream) => stream,
            None => {
                let node = self.leadership.node(self.peer)?;
                let mut link = self.links.to(self.peer, &node, Purpose::Heartbeat).ok()?;
                Conversation::open(|questions| link.ballots(questions)).await.ok()?
            }
        };
        let answer = stream.exchange(pb::BallotRequest {}).await.ok()?;
        // One that never voted has none.
        let ballot = answer.ballot.and_then(|ballot| wire::vote_from_wire(Some(ballot)).ok());
        Some((ballot, stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: u64 = 7;

    fn ballot(term: u64, node: u64) -> Vote {
        let mut vote = Vote::new(term, node);
        vote.committed = true;
        vote
    }

    /// A leader of term 3, member 1.
    fn tally(configs: &[&[u64]]) -> Tally {
        let configs = configs.iter().map(|voters| voters.iter().copied().collect()).collect();
        Tally { round: ROUND, mine: ballot(3, 1), configs, behind: BTreeSet::new() }
    }

    fn word(peer: u64, round: u64, ballot: Vote) -> Word {
        Word { peer, round, ballot: Some(ballot) }
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
        for (peers, configs, expected) in table {
            let mut tally = tally(configs);
            let heard = peers.iter().map(|peer| tally.hear(word(*peer, ROUND, ballot(3, 1))));
            assert_eq!(heard.last(), Some(Ok(expected)), "{peers:?} of {configs:?}");
        }
    }

    /// As a leader meets it that could not hear for a while: the answers of before arrive all at once.
    #[test]
    fn an_answer_to_an_earlier_question_confirms_nothing() {
        let mut tally = tally(&[&[1, 2, 3]]);
        assert_eq!(tally.hear(word(1, ROUND, ballot(3, 1))), Ok(false));
        assert_eq!(tally.hear(word(2, ROUND - 1, ballot(3, 1))), Ok(false));
        assert_eq!(tally.hear(word(3, ROUND - 1, ballot(3, 1))), Ok(false));
        assert_eq!(tally.hear(word(2, ROUND, ballot(4, 2))), Err(Outvoted));
    }

    #[test]
    fn only_a_higher_ballot_is_against_the_leader() {
        for (theirs, expected) in [
            (None, Ok(true)),
            (Some(ballot(2, 9)), Ok(true)),
            (Some(ballot(3, 1)), Ok(true)),
            (Some(Vote::new(3, 1)), Ok(true)),
            (Some(Vote::new(4, 1)), Err(Outvoted)),
            (Some(ballot(3, 2)), Err(Outvoted)),
        ] {
            let mut tally = tally(&[&[2]]);
            assert_eq!(tally.hear(Word { peer: 2, round: ROUND, ballot: theirs }), expected, "{theirs:?}");
        }
    }
}
