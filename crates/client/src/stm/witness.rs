//! A key that tells whether a commit happened whose answer was lost.
//!
//! Always true: the key is only ever written under a guard on its last revision, so a commit that is
//! still on its way somewhere cannot happen any more once somebody else has written the key. A plain
//! look at the store could not give that: "not there" may mean "not there yet".

use crate::{Client, Compare, Error, Fate, KeyValue, Op, Revision};
use bytes::Bytes;
use std::time::Duration;

/// How often the question is asked before the outcome stays unknown. Each time takes up to the
/// client's request timeout.
const QUESTIONS_MAX: u32 = 6;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Witness {
    key: Bytes,
    /// The key's last known revision.
    pub(super) at: Revision,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Done(Revision),
    /// It has not happened and never will.
    NotDone,
    Undecided,
}

/// A name that nobody else draws.
pub(super) fn draw() -> Bytes {
    format!("{:032x}", rand::random::<u128>()).into()
}

impl Witness {
    /// Reads the key, and writes it if there is none: a guard on a missing key could come true again.
    pub(super) async fn find(client: &Client, key: Bytes) -> Result<Witness, Error> {
        let mut last = None;
        for _ in 0..QUESTIONS_MAX {
            let got = client.get(key.clone()).await?;
            if let Some(kv) = got.first() {
                return Ok(Witness { key, at: kv.modified });
            }
            let missing = Compare::key(key.clone()).create_revision().equals(Revision::new(0));
            match client.txn().when([missing]).then([Op::put(key.clone(), draw())]).await {
                Ok(done) if done.succeeded => return Ok(Witness { key, at: done.revision }),
                Ok(_) => {}
                // Whichever way it went, the next look tells.
                Err(error) if error.fate() != Fate::Refused => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        // No body was run yet, so nothing of the transaction can have happened.
        let nothing_done = |error: Error| error.with_fate(Fate::NotDone);
        Err(last.map_or_else(|| Error::unreachable("the witness key comes and goes"), nothing_done))
    }

    pub(super) fn key(&self) -> Bytes {
        self.key.clone()
    }

    pub(super) fn guard(&self) -> Compare {
        Compare::key(self.key.clone()).mod_revision().equals(self.at)
    }

    pub(super) fn sign(&self, name: &Bytes) -> Op {
        Op::put(self.key.clone(), name.clone())
    }

    /// What the key was found to be, by a commit whose guard failed.
    pub(super) fn moved_to(&mut self, found: Option<&KeyValue>) {
        // A deleted key keeps failing the guard; that is the conflict it is.
        if let Some(kv) = found {
            self.at = kv.modified;
        }
    }

    /// Finds out what became of the commit of this name, by making it impossible unless it happened.
    pub(super) async fn settle(&mut self, client: &Client, name: &Bytes) -> Settled {
        let fence = draw();
        for _ in 0..QUESTIONS_MAX {
            let asked = client.txn().when([self.guard()]).then([self.sign(&fence)]);
            match asked.otherwise([Op::get(self.key())]).await {
                Ok(done) if done.succeeded => {
                    self.at = done.revision;
                    return Settled::NotDone;
                }
                Ok(done) => {
                    let found = super::found(&done);
                    let settled = judge(found, name, &fence);
                    self.moved_to(found);
                    return settled;
                }
                Err(error) if error.fate() == Fate::Refused => return Settled::Undecided,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        Settled::Undecided
    }
}

/// What the witness says, once its revision is not the one that the commit was guarded by.
fn judge(found: Option<&KeyValue>, name: &Bytes, fence: &Bytes) -> Settled {
    match found {
        Some(kv) if kv.value == name => Settled::Done(kv.modified),
        // An earlier question of ours went through, and its answer was lost.
        Some(kv) if kv.value == fence => Settled::NotDone,
        // Somebody else writes this key: it may have held the name in between.
        Some(_) | None => Settled::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_witness_is_believed_only_about_names_of_this_transaction() {
        let (name, fence) = (Bytes::from_static(b"name"), Bytes::from_static(b"fence"));
        let holds = |value: &'static str| KeyValue {
            key: "w".into(),
            value: value.into(),
            created: Revision::new(2),
            modified: Revision::new(7),
            version: 3,
            lease: None,
        };
        let check = |found: Option<KeyValue>, expected: Settled| {
            assert_eq!(judge(found.as_ref(), &name, &fence), expected, "{found:?}");
        };
        check(Some(holds("name")), Settled::Done(Revision::new(7)));
        check(Some(holds("fence")), Settled::NotDone);
        check(Some(holds("other")), Settled::Undecided);
        check(None, Settled::Undecided);
    }

    #[test]
    fn names_differ() {
        assert_ne!(draw(), draw());
        assert_eq!(draw().len(), 32);
    }
}
