//! Whether a watcher was told every version of every key, once: each put of a key must carry the
//! version after the one told before it. What was there before the watch began is not known, so the
//! first version told of a key begins its chain, and a deletion ends it.

use std::collections::HashMap;

use bytes::Bytes;
use meerkat_client::{Event, EventKind};

#[derive(Debug, Default)]
pub struct Chains {
    versions: HashMap<Bytes, i64>,
}

impl Chains {
    /// Takes the next event; a reason if it does not follow from those before it.
    pub fn follow(&mut self, event: &Event) -> Result<(), String> {
        match &event.kind {
            EventKind::Delete { key, .. } => {
                self.versions.remove(key);
                Ok(())
            }
            EventKind::Put(kv) => {
                let before = self.versions.insert(kv.key.clone(), kv.version);
                judge(before, kv.version).map_err(|what| {
                    let key = String::from_utf8_lossy(&kv.key);
                    format!("{what}: {key} has version {} after {}", kv.version, before.unwrap_or(0))
                })
            }
        }
    }
}

fn judge(before: Option<i64>, version: i64) -> Result<(), &'static str> {
    match before {
        None => Ok(()),
        Some(before) if version == before + 1 => Ok(()),
        Some(before) if before < version => Err("LOST"),
        Some(_) => Err("REPEATED"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_version_follows() {
        assert_eq!(judge(None, 7), Ok(()));
        assert_eq!(judge(Some(7), 8), Ok(()));
        assert_eq!(judge(Some(7), 9), Err("LOST"));
        assert_eq!(judge(Some(7), 7), Err("REPEATED"));
        assert_eq!(judge(Some(7), 6), Err("REPEATED"));
    }
}
