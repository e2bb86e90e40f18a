//! One page of rows or of branches, taken apart with every offset checked.

use super::layout::{BRANCH, BUCKET_ROW, ELEMENT, LEAF, PAGE_HEAD, PageHead, u32_at, u64_at};
use super::reader::BoltError;
use std::ops::Range;

/// Holds only what was checked: every element lies within the bytes.
#[derive(Debug)]
pub(super) struct Page {
    id: u64,
    bytes: Vec<u8>,
    count: usize,
    branch: bool,
}

/// A row of a leaf, as places in the page.
pub(super) struct Row {
    pub key: Range<usize>,
    pub value: Range<usize>,
    pub is_bucket: bool,
}

impl Page {
    /// `bytes` are all of the page, with what it runs over into. `id` names it in errors.
    pub(super) fn new(id: u64, bytes: Vec<u8>) -> Result<Page, BoltError> {
        let head = PageHead::decode(&bytes).ok_or_else(|| damaged(id, "is shorter than its head"))?;
        let branch = match head.flags {
            BRANCH => true,
            LEAF => false,
            other => return Err(damaged(id, &format!("is of kind {other:#x}, not rows or branches"))),
        };
        let count = usize::from(head.count);
        if bytes.len() < PAGE_HEAD + count * ELEMENT {
            return Err(damaged(id, &format!("has no room for its {count} rows")));
        }
        let page = Page { id, bytes, count, branch };
        let mut room = page.bytes.len() - PAGE_HEAD - count * ELEMENT;
        for at in 0..count {
            let row_bytes = page.check(at)?;
            // Rows that lie over each other would make a small page a long read.
            room = room.checked_sub(row_bytes).ok_or_else(|| damaged(id, "has rows that overlap"))?;
        }
        Ok(page)
    }

    /// How many bytes the row has, all of them within the page.
    fn check(&self, at: usize) -> Result<usize, BoltError> {
        let (key, value) = self.places(at).ok_or_else(|| self.outside(at))?;
        let bytes = key.len() + value.len();
        match self.bytes.get(key).is_some() && self.bytes.get(value).is_some() {
            true => Ok(bytes),
            false => Err(self.outside(at)),
        }
    }

    fn outside(&self, at: usize) -> BoltError {
        damaged(self.id, &format!("row {at} of {} lies outside of it", self.count))
    }

    /// Where key and value of an element are said to be.
    fn places(&self, at: usize) -> Option<(Range<usize>, Range<usize>)> {
        let element = PAGE_HEAD + at * ELEMENT;
        let number = |offset| u32_at(&self.bytes, element + offset).map(|number| number as usize);
        let (place, key_len, value_len) = match self.branch {
            true => (number(0)?, number(4)?, 0),
            false => (number(4)?, number(8)?, number(12)?),
        };
        let key = element.checked_add(place)?;
        let value = key.checked_add(key_len)?;
        Some((key..value, value..value.checked_add(value_len)?))
    }

    pub(super) fn is_branch(&self) -> bool {
        self.branch
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn row(&self, at: usize) -> Option<Row> {
        let (key, value) = self.places(at)?;
        let flags = u32_at(&self.bytes, PAGE_HEAD + at * ELEMENT)?;
        Some(Row { key, value, is_bucket: flags & BUCKET_ROW != 0 })
    }

    /// The page below a branch.
    pub(super) fn child(&self, at: usize) -> Option<u64> {
        u64_at(&self.bytes, PAGE_HEAD + at * ELEMENT + 8)
    }

    pub(super) fn bytes(&self, place: Range<usize>) -> &[u8] {
        &self.bytes[place]
    }
}

pub(super) fn damaged(page: u64, what: &str) -> BoltError {
    BoltError::Damaged { page, what: what.to_owned() }
}
