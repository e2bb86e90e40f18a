//! The rolling digest: one number that two members share only if they applied the same log to the
//! same effect.
//!
//! A chain over the log entries: each link takes in the one before, the entry's position, what came
//! of it, and the bytes of each event as stored. It never depends on how entries were batched or on
//! what compaction has removed. A change of anything it covers needs a new [`DIGEST_VERSION`], since
//! members of two releases would otherwise accuse each other.

use crate::mvcc::event_id::EventId;
use meerkat_types::{AuthDone, AuthRefusal, LogPosition, Outcome, Refusal, Revision};
use xxhash_rust::xxh3::xxh3_128;

/// Only digests of one version can be compared.
pub const DIGEST_VERSION: u8 = 1;

/// The digest is kept at every log index that this divides, the same on all members.
pub const DIGEST_MARK_ENTRIES: u64 = 128;

/// How many of those are kept: more than members are apart while they follow.
pub(crate) const DIGEST_MARKS_MAX: usize = 64;

/// The digest after the entry at `position`. Compare only digests of the same position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// `None` before anything was applied.
    pub position: Option<LogPosition>,
    pub revision: Revision,
    pub bytes: [u8; 16],
}

/// Takes in one event of an entry. `events` is 0 before the first.
pub(crate) fn fold_event(events: u128, id: EventId, row: &[u8]) -> u128 {
    let mut link = [0; 44];
    link[..16].copy_from_slice(&events.to_be_bytes());
    link[16..28].copy_from_slice(&id.to_bytes());
    link[28..].copy_from_slice(&xxh3_128(row).to_be_bytes());
    xxh3_128(&link)
}

/// Takes in one entry of the log.
pub(crate) fn fold_entry(digest: u128, position: LogPosition, summary: &Summary, events: u128) -> u128 {
    let mut link = [0; 16 + 24 + 25 + 16];
    link[..16].copy_from_slice(&digest.to_be_bytes());
    for (at, number) in [(16, position.term.0), (24, position.node.0), (32, position.index.0)] {
        link[at..at + 8].copy_from_slice(&number.to_be_bytes());
    }
    link[40] = summary.kind;
    for (at, number) in [41, 49, 57].into_iter().zip(summary.numbers) {
        link[at..at + 8].copy_from_slice(&number.to_be_bytes());
    }
    link[65..].copy_from_slice(&events.to_be_bytes());
    xxh3_128(&link)
}

/// What came of an entry, in so far as it is not in its events.
pub(crate) struct Summary {
    kind: u8,
    numbers: [u64; 3],
}

impl Summary {
    pub(crate) const BLANK: Summary = Summary { kind: 0, numbers: [0; 3] };

    pub(crate) fn membership(bytes: &[u8]) -> Summary {
        let hash = xxh3_128(bytes);
        Summary { kind: 1, numbers: [(hash >> 64) as u64, hash as u64, 0] }
    }

    pub(crate) fn outcome(outcome: &Outcome) -> Summary {
        let (kind, numbers) = match outcome {
            Outcome::Put(done) => (2, [number(done.revision), u64::from(done.previous.is_some()), 0]),
            Outcome::DeleteRange(done) => (3, [number(done.revision), done.deleted, 0]),
            Outcome::Txn(done) => {
                (4, [number(done.revision), u64::from(done.succeeded), done.ops.len() as u64])
            }
            Outcome::Compact(revision) => (5, [number(*revision), 0, 0]),
            Outcome::MemberPublished => (6, [0; 3]),
            Outcome::LeaseGranted(granted) => {
                (8, [number(granted.revision), granted.ttl.seconds().unsigned_abs(), 0])
            }
            Outcome::LeaseRevoked(revision) => (9, [number(*revision), 0, 0]),
            Outcome::LeasesNoted(noted) => (10, [*noted, 0, 0]),
            Outcome::AlarmRaised => (11, [0; 3]),
            Outcome::AlarmCleared(there) => (12, [u64::from(*there), 0, 0]),
            Outcome::DowngradeSet => (13, [0; 3]),
            Outcome::Auth(AuthDone::Changed(revision)) => (20, [revision.0, 0, 0]),
            Outcome::Auth(AuthDone::TokenAssigned { index }) => (21, [index.0, 0, 0]),
            Outcome::Refused(refusal) => (7, refused(refusal)),
        };
        Summary { kind, numbers }
    }
}

fn refused(refusal: &Refusal) -> [u64; 3] {
    match refusal {
        Refusal::KeyNotFound => [0, 0, 0],
        Refusal::LeaseNotFound => [1, 0, 0],
        Refusal::Compacted { asked, oldest } => [2, number(*asked), number(*oldest)],
        Refusal::Future { asked, current } => [3, number(*asked), number(*current)],
        Refusal::OtherIncarnation { member } => [4, member.0, 0],
        Refusal::LeaseExists => [5, 0, 0],
        Refusal::OtherTerm => [6, 0, 0],
        Refusal::MemberRemoved { member } => [7, member.0, 0],
        // 16 and above: refusals that later commands brought.
        Refusal::NoSpace => [16, 0, 0],
        Refusal::Corrupt => [17, 0, 0],
        Refusal::Auth(refusal) => [20, auth_refused(*refusal), 0],
    }
}

const fn auth_refused(refusal: AuthRefusal) -> u64 {
    match refusal {
        AuthRefusal::RootUserMissing => 0,
        AuthRefusal::RootRoleMissing => 1,
        AuthRefusal::UserExists => 2,
        AuthRefusal::UserEmpty => 3,
        AuthRefusal::UserNotFound => 4,
        AuthRefusal::RoleExists => 5,
        AuthRefusal::RoleNotFound => 6,
        AuthRefusal::RoleEmpty => 7,
        AuthRefusal::PermissionDenied => 8,
        AuthRefusal::RoleNotGranted => 9,
        AuthRefusal::PermissionNotGranted => 10,
        AuthRefusal::PermissionNotGiven => 11,
        AuthRefusal::NotEnabled => 12,
        AuthRefusal::Failed => 13,
        AuthRefusal::NoPassword => 14,
        AuthRefusal::InvalidToken => 15,
        AuthRefusal::InvalidManagement => 16,
        AuthRefusal::OldRevision => 17,
    }
}

const fn number(revision: Revision) -> u64 {
    revision.get() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_types::{LogIndex, MemberId, Term};

    #[test]
    fn every_part_of_an_entry_is_in_its_digest() {
        let position = LogPosition { term: Term(1), node: MemberId(2), index: LogIndex(3) };
        let base = fold_entry(7, position, &Summary::BLANK, 9);
        let others = [
            fold_entry(8, position, &Summary::BLANK, 9),
            fold_entry(7, LogPosition { term: Term(2), ..position }, &Summary::BLANK, 9),
            fold_entry(7, LogPosition { node: MemberId(1), ..position }, &Summary::BLANK, 9),
            fold_entry(7, LogPosition { index: LogIndex(4), ..position }, &Summary::BLANK, 9),
            fold_entry(7, position, &Summary::membership(b"x"), 9),
            fold_entry(7, position, &Summary::outcome(&Outcome::Compact(Revision::new(5))), 9),
            fold_entry(7, position, &Summary::BLANK, 10),
        ];
        assert!(others.iter().all(|other| *other != base));
    }

    #[test]
    fn events_count_in_their_order() {
        let (a, b) = (EventId::first_of(Revision::new(2)), EventId { revision: Revision::new(2), sub: 1 });
        let one = fold_event(fold_event(0, a, b"x"), b, b"y");
        assert_ne!(one, fold_event(fold_event(0, b, b"y"), a, b"x"));
        assert_ne!(one, fold_event(fold_event(0, a, b"y"), b, b"x"));
    }
}
