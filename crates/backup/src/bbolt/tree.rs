//! One bucket's tree, built from sorted rows in one pass.
//!
//! Each level holds the page that is being filled and the full one before it: that one is written
//! only when the next is full too, so that the last branch of a level can always be given a
//! neighbour's element. bbolt asserts that a branch has two children when it rebalances, so a tree
//! with a lonely child would be readable and yet stop an etcd that deletes from it.
//!
//! Memory is two pages for each level.

use super::layout::{BRANCH, BUCKET_ROW, ELEMENT, LEAF, PAGE_HEAD, PageHead};
use super::writer::PageSink;
use std::io;

/// A branch is not closed before it has this many children, however long their keys are.
const BRANCH_CHILDREN_MIN: usize = 4;

#[derive(Default)]
pub(super) struct Tree {
    leaf: Option<Open>,
    levels: Vec<Level>,
    last_key: Vec<u8>,
}

#[derive(Default)]
struct Level {
    full: Option<Open>,
    open: Open,
}

/// A page that is being filled.
#[derive(Default)]
struct Open {
    elements: Vec<Element>,
    data: Vec<u8>,
}

struct Element {
    key_len: usize,
    value_len: usize,
    /// Of a branch: the page below.
    child: u64,
}

/// A page that is written: its number, and the first key in it.
struct Written {
    page: u64,
    first_key: Vec<u8>,
}

impl Tree {
    /// Keys must come in ascending order, each once.
    pub(super) fn put(&mut self, sink: &mut PageSink, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.put_row(sink, key, value, 0)
    }

    fn put_row(&mut self, sink: &mut PageSink, key: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        assert!(
            self.last_key.is_empty() || self.last_key.as_slice() < key,
            "rows of a bucket come in the order of their keys"
        );
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        let room = PAGE_HEAD + ELEMENT + key.len() + value.len();
        let full = |leaf: &Open| sink.page_bytes() < leaf.bytes() + room - PAGE_HEAD;
        if let Some(leaf) = self.leaf.take_if(|leaf| full(leaf)) {
            let written = leaf.write(sink, LEAF, flags)?;
            self.raise(sink, 0, written)?;
        }
        self.leaf.get_or_insert_default().push(key, value, 0);
        Ok(())
    }

    /// The root page of the bucket; `None` if it has no rows.
    pub(super) fn finish(self, sink: &mut PageSink) -> io::Result<Option<u64>> {
        self.finish_rows(sink, 0)
    }

    /// Writes the root bucket, whose rows are all buckets.
    pub(super) fn buckets(sink: &mut PageSink, rows: &[(Vec<u8>, Vec<u8>)]) -> io::Result<u64> {
        let mut tree = Tree::default();
        for (name, bucket) in rows {
            tree.put_row(sink, name, bucket, BUCKET_ROW)?;
        }
        let root = tree.finish_rows(sink, BUCKET_ROW)?;
        root.ok_or_else(|| io::Error::other("a bbolt file without buckets"))
    }

    fn finish_rows(mut self, sink: &mut PageSink, flags: u32) -> io::Result<Option<u64>> {
        let Some(leaf) = self.leaf.take() else { return Ok(None) };
        let mut child = leaf.write(sink, LEAF, flags)?;
        let mut level = 0;
        while level < self.levels.len() {
            self.raise(sink, level, child)?;
            let Level { full, open } = std::mem::take(&mut self.levels[level]);
            child = self.close(sink, level, full, open)?;
            level += 1;
        }
        Ok(Some(child.page))
    }

    /// Hangs a written page into the level above it.
    fn raise(&mut self, sink: &mut PageSink, level: usize, child: Written) -> io::Result<()> {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let Level { full, open } = &mut self.levels[level];
        let closed = BRANCH_CHILDREN_MIN <= open.elements.len()
            && sink.page_bytes() < open.bytes() + ELEMENT + child.first_key.len();
        let due = if closed { full.replace(std::mem::take(open)) } else { None };
        open.push(&child.first_key, &[], child.page);
        match due {
            None => Ok(()),
            Some(due) => {
                let written = due.write(sink, BRANCH, 0)?;
                self.raise(sink, level + 1, written)
            }
        }
    }

    /// Writes what is left of a level and gives the last page of it, for the level above.
    fn close(
        &mut self,
        sink: &mut PageSink,
        level: usize,
        full: Option<Open>,
        mut open: Open,
    ) -> io::Result<Written> {
        if let Some(mut full) = full {
            if open.elements.len() == 1 {
                open.take_last_of(&mut full);
            }
            let written = full.write(sink, BRANCH, 0)?;
            self.raise(sink, level + 1, written)?;
        }
        open.write(sink, BRANCH, 0)
    }
}

impl Open {
    fn bytes(&self) -> usize {
        PAGE_HEAD + self.elements.len() * ELEMENT + self.data.len()
    }

    fn push(&mut self, key: &[u8], value: &[u8], child: u64) {
        self.elements.push(Element { key_len: key.len(), value_len: value.len(), child });
        self.data.extend_from_slice(key);
        self.data.extend_from_slice(value);
    }

    /// Of branches only, which have no values.
    fn take_last_of(&mut self, other: &mut Open) {
        let Some(last) = other.elements.pop() else { return };
        let key = other.data.split_off(other.data.len() - last.key_len);
        self.data.splice(0..0, key);
        self.elements.insert(0, last);
    }

    /// `row_flags` of each row of a leaf.
    fn write(self, sink: &mut PageSink, flags: u16, row_flags: u32) -> io::Result<Written> {
        let first_key = self.elements.first().map_or(&[][..], |first| &self.data[..first.key_len]).to_vec();
        let count = u16::try_from(self.elements.len())
            .map_err(|_| io::Error::other("more rows in a page than bbolt can count"))?;
        let elements_end = PAGE_HEAD + self.elements.len() * ELEMENT;
        let page = sink.begin(self.bytes());
        let mut bytes = Vec::with_capacity(self.bytes());
        PageHead { id: page.id, flags, count, overflow: page.overflow }.encode(&mut bytes);
        let mut at = elements_end;
        for element in &self.elements {
            // Places are counted from the element itself.
            let place = u32_of(at - bytes.len())?;
            if flags == BRANCH {
                bytes.extend_from_slice(&place.to_le_bytes());
                bytes.extend_from_slice(&u32_of(element.key_len)?.to_le_bytes());
                bytes.extend_from_slice(&element.child.to_le_bytes());
            } else {
                for number in [row_flags, place, u32_of(element.key_len)?, u32_of(element.value_len)?] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
            }
            at += element.key_len + element.value_len;
        }
        bytes.extend_from_slice(&self.data);
        sink.write(bytes)?;
        Ok(Written { page: page.id, first_key })
    }
}

fn u32_of(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::Error::other("a row larger than bbolt can hold"))
}
