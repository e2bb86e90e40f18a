//! The name of one event: its revision, and its place among the events of that revision.
//!
//! One transaction may change a key twice (delete a range, then put a key inside it), so a revision
//! alone does not name an event. Ordered in memory and on disk as in time.

use meerkat_types::Revision;

/// Orders as things happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EventId {
    pub revision: Revision,
    pub sub: u32,
}

pub(crate) const EVENT_ID_BYTES: usize = 12;

impl EventId {
    /// The first event a revision can have.
    pub(crate) const fn first_of(revision: Revision) -> EventId {
        EventId { revision, sub: 0 }
    }

    /// Big-endian, so that byte order is time order: the key of a log row.
    pub(crate) fn to_bytes(self) -> [u8; EVENT_ID_BYTES] {
        let mut bytes = [0; EVENT_ID_BYTES];
        bytes[..8].copy_from_slice(&(self.revision.get() as u64).to_be_bytes());
        bytes[8..].copy_from_slice(&self.sub.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<EventId> {
        let bytes: [u8; EVENT_ID_BYTES] = bytes.try_into().ok()?;
        let [revision @ .., s0, s1, s2, s3] = bytes;
        Some(EventId {
            revision: Revision::new(u64::from_be_bytes(revision) as i64),
            sub: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }

    /// Every bit turned over: byte order is then newest first.
    pub(crate) fn to_inverted_bytes(self) -> [u8; EVENT_ID_BYTES] {
        self.to_bytes().map(|byte| !byte)
    }

    pub(crate) fn from_inverted_bytes(bytes: &[u8]) -> Option<EventId> {
        let bytes: [u8; EVENT_ID_BYTES] = bytes.try_into().ok()?;
        EventId::from_bytes(&bytes.map(|byte| !byte))
    }

    pub(crate) const fn next(self) -> EventId {
        if self.sub == u32::MAX {
            EventId::first_of(Revision::new(self.revision.get().saturating_add(1)))
        } else {
            EventId { revision: self.revision, sub: self.sub + 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_order_as_time_and_inverted_bytes_against_it() {
        let ids = [(1, 0), (2, 0), (2, 1), (2, 300), (300, 0), (i64::MAX, u32::MAX)]
            .map(|(revision, sub)| EventId { revision: Revision::new(revision), sub });
        for pair in ids.windows(2) {
            assert!(pair[0].to_bytes() < pair[1].to_bytes());
            assert!(pair[1].to_inverted_bytes() < pair[0].to_inverted_bytes());
        }
        for id in ids {
            assert_eq!(EventId::from_bytes(&id.to_bytes()), Some(id));
            assert_eq!(EventId::from_inverted_bytes(&id.to_inverted_bytes()), Some(id));
        }
    }
}
