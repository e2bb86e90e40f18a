//! What watchers are told of writes is what the writers were told.
//!
//! Takes chapters of a history one by one and keeps of each only who put what and when, so that the
//! whole need not be kept. Of revisions that no chapter has, nothing is demanded.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;

use super::watch_history::{WatchHistory, Wrote};
use crate::outcome::Outcome;
use crate::record::watch::{Kind, ValuePrint};

/// What happened, in short.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    puts: HashMap<(Bytes, ValuePrint), Vec<i64>>,
    deletions: HashSet<(Bytes, i64)>,
    /// The revisions that are known, each from after the first to the second.
    known: Vec<(i64, i64)>,
}

impl Tally {
    /// Takes a chapter.
    pub fn absorb(&mut self, chapter: &WatchHistory) {
        self.known.push((chapter.base(), chapter.last_revision()));
        for event in chapter.events() {
            match event.kind {
                Kind::Put => {
                    self.puts.entry((event.key.clone(), event.now.value)).or_default().push(event.revision());
                }
                Kind::Delete => {
                    self.deletions.insert((event.key.clone(), event.revision()));
                }
            }
        }
    }

    fn knows(&self, revision: i64) -> bool {
        self.known.iter().any(|(base, last)| *base < revision && revision <= *last)
    }

    /// Where it differs from what the writers were told. Values are never used twice.
    pub fn check(&self, writes: &[Wrote]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut sent: HashSet<(&Bytes, ValuePrint)> = HashSet::new();
        for write in writes {
            for effect in &write.effects {
                let put = effect.put.map(|value| (effect.key.clone(), value));
                sent.extend(effect.put.map(|value| (&effect.key, value)));
                let at = put.as_ref().and_then(|put| self.puts.get(put)).map_or(&[][..], Vec::as_slice);
                findings.extend(match &write.outcome {
                    Outcome::Failed(_) if !at.is_empty() => Some(format!("refused, but happened: {write:?}")),
                    _ if 1 < at.len() => Some(format!("happened at revisions {at:?}: {write:?}")),
                    Outcome::Ok(revision) if !self.knows(*revision) => None,
                    Outcome::Ok(revision) => {
                        let told = match put {
                            Some(_) => at == [*revision],
                            None => self.deletions.contains(&(effect.key.clone(), *revision)),
                        };
                        (!told).then(|| format!("acknowledged at {revision}, told at {at:?}: {write:?}"))
                    }
                    Outcome::Failed(_) | Outcome::Unknown(_) => None,
                });
            }
        }
        let unsent = self.puts.keys().filter(|(key, value)| !sent.contains(&(key, *value)));
        findings.extend(unsent.map(|(key, _)| format!("a put of {key:?} that nobody sent")));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::watch_history::Effect;
    use crate::record::watch::{Seen, Stored};
    use std::collections::BTreeMap;

    const KEY: Bytes = Bytes::from_static(b"w/a");

    fn put(revision: i64, value: &str) -> Seen {
        let value = ValuePrint::of(value.as_bytes());
        let now = Stored { create_revision: revision, mod_revision: revision, version: 1, lease: 0, value };
        Seen { kind: Kind::Put, key: KEY, now, prev: None }
    }

    fn delete(revision: i64) -> Seen {
        let now = Stored { mod_revision: revision, ..Stored::default() };
        Seen { kind: Kind::Delete, key: KEY, now, prev: None }
    }

    fn wrote(value: Option<&str>, outcome: Outcome<i64>) -> Wrote {
        let put = value.map(|value| ValuePrint::of(value.as_bytes()));
        Wrote { effects: vec![Effect { key: KEY, put }], outcome }
    }

    fn found(events: Vec<Seen>, writes: &[Wrote]) -> usize {
        let mut chapter = WatchHistory::of_part(9, BTreeMap::new());
        for event in events {
            chapter.append(event);
        }
        chapter.reach(20);
        let mut tally = Tally::default();
        tally.absorb(&chapter);
        tally.check(writes).len()
    }

    #[test]
    fn what_was_acknowledged_is_told_at_its_revision() {
        let (one, gone) = (wrote(Some("v"), Outcome::Ok(10)), wrote(None, Outcome::Ok(11)));
        assert_eq!(found(vec![put(10, "v"), delete(11)], &[one.clone(), gone.clone()]), 0);
        assert_eq!(found(vec![], std::slice::from_ref(&one)), 1, "never told");
        assert_eq!(found(vec![put(12, "v")], &[one]), 1, "told elsewhere");
        assert_eq!(found(vec![], &[gone]), 1, "a deletion never told");
    }

    #[test]
    fn of_revisions_in_no_chapter_nothing_is_demanded() {
        assert_eq!(found(vec![], &[wrote(Some("v"), Outcome::Ok(9)), wrote(None, Outcome::Ok(21))]), 0);
    }

    #[test]
    fn what_was_refused_never_sent_or_told_twice_is_found() {
        assert_eq!(found(vec![put(10, "v")], &[wrote(Some("v"), Outcome::Failed("no".into()))]), 1);
        assert_eq!(found(vec![put(10, "v")], &[]), 1);
        let unknown = wrote(Some("v"), Outcome::Unknown("lost".into()));
        assert_eq!(found(vec![put(10, "v")], std::slice::from_ref(&unknown)), 0);
        assert_eq!(found(vec![put(10, "v"), delete(11), put(12, "v")], &[unknown]), 1);
    }
}
