//! Reads back everything the demo wrote, for the judgement.
//!
//! Past the network that can be cut, page by page, all at one revision.

use std::collections::BTreeMap;

use meerkat_client::{Client, Keys};

use super::checker::History;
use super::writer::{PREFIX, number_of};

const PAGE_KEYS: u64 = 1_000;
/// A million writes: a hundred times what the longest demo makes.
const PAGES_MAX: usize = 1_000;

pub async fn read(client: &Client) -> Result<History, String> {
    let mut numbers = BTreeMap::new();
    let mut first = PREFIX.as_bytes().to_vec();
    let mut at = None;
    for _ in 0..PAGES_MAX {
        let request = client.get(Keys::span(first, end())).limit(PAGE_KEYS);
        let request = match at {
            Some(revision) => request.revision(revision),
            None => request,
        };
        let page = request.await.map_err(|error| format!("cannot read the history: {error}"))?;
        let revision = *at.get_or_insert(page.revision);
        for kv in &page.kvs {
            let number = number_of(&kv.key, &kv.value)
                .ok_or_else(|| format!("the store holds a key that nobody wrote: {:?}", kv.key))?;
            numbers.insert(kv.modified, number);
        }
        match page.kvs.last() {
            Some(last) if page.more => first = after(&last.key),
            _ => return Ok(History { at: revision, numbers }),
        }
    }
    Err(format!("the history has more than {PAGES_MAX} pages"))
}

/// The first key that is not below the prefix.
fn end() -> Vec<u8> {
    let mut end = PREFIX.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The key right after this one.
fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

#[cfg(test)]
mod tests {
    use super::super::checker::Number;
    use super::super::writer::key;
    use super::*;

    #[test]
    fn pages_join_without_a_gap_below_the_end() {
        let (one, two) = (key(Number(1)).into_bytes(), key(Number(2)).into_bytes());
        assert!(one < after(&one) && after(&one) < two);
        assert!(key(Number(u64::MAX)).into_bytes() < end());
    }
}
