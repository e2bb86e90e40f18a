//! What members compare to know that they still hold the same.
//!
//! Two questions, which any member may ask of any other: how the log's effects add up at fixed places,
//! which costs nothing, and a hash of all that is stored, which reads all of it. A question without an
//! answer is an error, never an agreement.

use crate::network::wire;
use crate::node::RaftNode;
use crate::state_machine::describe;
use meerkat_proto::pb::peer as pb;
use meerkat_state::{DIGEST_VERSION, HashKv, ReadError, StateReader, StoredHash};
use meerkat_types::{LogPosition, MemberId, Revision};
use std::time::{Duration, Instant};

/// How long a member that is asked about a revision may take to reach it.
const REACH_WITHIN: Duration = Duration::from_secs(3);
const REACH_POLL: Duration = Duration::from_millis(20);
/// Digests are at hand; a hash reads the whole store.
const DIGESTS_WITHIN: Duration = Duration::from_secs(5);
const HASH_WITHIN: Duration = Duration::from_secs(600);

/// The digest after one log entry. Two members that applied the same log to the same effect have the
/// same at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestMark {
    pub at: LogPosition,
    pub digest: [u8; 16],
}

/// What a member says of everything it has stored as of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredAnswer {
    Hash(StoredHash),
    /// Compacted, or not reached: nothing is said about equality.
    NotComparable(String),
    /// What is stored cannot be read.
    Unreadable(String),
}

/// The member did not answer, or in a way that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(String);

/// A member's own answer to the first question.
pub fn own_digests(reader: &StateReader) -> Vec<DigestMark> {
    let marks = reader.digest_marks().into_iter().chain([reader.digest()]);
    marks.filter_map(|mark| Some(DigestMark { at: mark.position?, digest: mark.bytes })).collect()
}

/// A member's own answer to the second. Reads the whole store: where it may block.
pub fn own_hash(reader: &StateReader, at: Revision) -> StoredAnswer {
    match reader.pin().stored_hash(at) {
        Ok(hash) => StoredAnswer::Hash(hash),
        Err(ReadError::Refused(refusal)) => StoredAnswer::NotComparable(refusal.to_string()),
        Err(ReadError::State(error)) => StoredAnswer::Unreadable(error.to_string()),
    }
}

impl RaftNode {
    /// How the log's effects add up on another member.
    pub async fn digests_of(&self, member: MemberId) -> Result<Vec<DigestMark>, NoAnswer> {
        let mut request = tonic::Request::new(pb::DigestsRequest {});
        request.set_timeout(DIGESTS_WITHIN);
        let mut link = self.background_link(member)?;
        let answer = within(DIGESTS_WITHIN, link.digests(request)).await?;
        if answer.version != u32::from(DIGEST_VERSION) {
            return Err(NoAnswer(format!("its digests are of version {}", answer.version)));
        }
        answer.marks.into_iter().map(mark_from_wire).collect()
    }

    /// Everything that another member has stored as of a revision.
    pub async fn stored_hash_of(&self, member: MemberId, at: Revision) -> Result<StoredAnswer, NoAnswer> {
        let mut request = tonic::Request::new(pb::StoredHashRequest { revision: at.get() });
        request.set_timeout(HASH_WITHIN);
        let mut link = self.background_link(member)?;
        hash_from_wire(at, within(HASH_WITHIN, link.stored_hash(request)).await?)
    }
}

async fn within<T>(
    time: Duration,
    answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, NoAnswer> {
    match tokio::time::timeout(time, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(NoAnswer(status.message().to_owned())),
        Err(_) => Err(NoAnswer("it did not answer in time".to_owned())),
    }
}

pub(crate) fn digests_to_wire(marks: &[DigestMark]) -> pb::DigestsResponse {
    let mark = |mark: &DigestMark| pb::DigestMark {
        at: Some(wire::log_id_to_wire(&describe::log_id(&mark.at))),
        digest: bytes::Bytes::copy_from_slice(&mark.digest),
    };
    pb::DigestsResponse { version: u32::from(DIGEST_VERSION), marks: marks.iter().map(mark).collect() }
}

fn mark_from_wire(mark: pb::DigestMark) -> Result<DigestMark, NoAnswer> {
    let unusable = || NoAnswer("its digests cannot be read".to_owned());
    let at = wire::log_id_from_wire(mark.at.ok_or_else(unusable)?).map_err(|_| unusable())?;
    Ok(DigestMark {
        at: describe::position(&at),
        digest: mark.digest.as_ref().try_into().map_err(|_| unusable())?,
    })
}

/// Waits until this member is that far, then hashes.
pub(crate) async fn answer_hash(reader: StateReader, at: Revision) -> StoredAnswer {
    let began = Instant::now();
    while reader.current_revision() < at && began.elapsed() < REACH_WITHIN {
        tokio::time::sleep(REACH_POLL).await;
    }
    let hashed = crate::threads::spawn_blocking(move || own_hash(&reader, at)).await;
    hashed.unwrap_or_else(|error| StoredAnswer::NotComparable(error.to_string()))
}

pub(crate) fn hash_to_wire(answer: StoredAnswer) -> pb::StoredHashResponse {
    use pb::stored_hash_response::Result as Wire;
    let result = match answer {
        StoredAnswer::Hash(hash) => Wire::Hash(pb::StoredHash {
            history: hash.history.hash,
            compacted_revision: Revision::compacted_to_wire(hash.history.compacted),
            present: hash.present,
        }),
        StoredAnswer::NotComparable(reason) => Wire::NotComparable(reason),
        StoredAnswer::Unreadable(reason) => Wire::Unreadable(reason),
    };
    pb::StoredHashResponse { result: Some(result) }
}

fn hash_from_wire(at: Revision, wire: pb::StoredHashResponse) -> Result<StoredAnswer, NoAnswer> {
    use pb::stored_hash_response::Result as Wire;
    match wire.result {
        Some(Wire::Hash(hash)) => {
            let compacted = Revision::compacted_from_wire(hash.compacted_revision);
            let history = HashKv { hash: hash.history, hash_revision: at, compacted };
            Ok(StoredAnswer::Hash(StoredHash { history, present: hash.present }))
        }
        Some(Wire::NotComparable(reason)) => Ok(StoredAnswer::NotComparable(reason)),
        Some(Wire::Unreadable(reason)) => Ok(StoredAnswer::Unreadable(reason)),
        None => Err(NoAnswer("its answer cannot be read".to_owned())),
    }
}

impl NoAnswer {
    pub(crate) fn new(reason: impl Into<String>) -> NoAnswer {
        NoAnswer(reason.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{LogIndex, Term};

    #[test]
    fn answers_survive_the_peer_port() {
        let marks = vec![DigestMark {
            at: LogPosition { term: Term(3), node: MemberId(9), index: LogIndex(128) },
            digest: [7; 16],
        }];
        let wire = digests_to_wire(&marks);
        let back: Result<Vec<_>, _> = wire.marks.into_iter().map(mark_from_wire).collect();
        assert_eq!(back.expect("readable"), marks);
        let at = Revision::new(9);
        let history = HashKv { hash: 5, hash_revision: at, compacted: None };
        for answer in [
            StoredAnswer::Hash(StoredHash { history, present: 6 }),
            StoredAnswer::NotComparable("compacted".into()),
            StoredAnswer::Unreadable("a bad block".into()),
        ] {
            assert_eq!(hash_from_wire(at, hash_to_wire(answer.clone())).expect("readable"), answer);
        }
    }

    #[test]
    fn an_answer_that_says_nothing_is_no_agreement() {
        assert!(hash_from_wire(Revision::new(1), pb::StoredHashResponse { result: None }).is_err());
        assert!(mark_from_wire(pb::DigestMark { at: None, digest: vec![0; 16].into() }).is_err());
    }
}
