//! Writes a bbolt file in one pass, bucket after bucket.
//!
//! Pages go out in the order in which they fill; the meta pages, which say where the root is, last.
//! Nothing is synced: whoever gives the file a name does that first.

use super::layout::{FREELIST, LEAF, Meta, PageHead};
use super::tree::Tree;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

/// What bbolt takes on nearly every machine that runs etcd.
const PAGE_BYTES: usize = 4096;
const FREELIST_PAGE: u64 = 2;

pub struct BoltWriter {
    sink: PageSink,
    /// Name and head of each bucket.
    buckets: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Takes the rows of one bucket, in ascending order of their keys.
pub struct BucketWriter<'a> {
    writer: &'a mut BoltWriter,
    name: Vec<u8>,
    tree: Tree,
}

/// The file as a row of pages.
pub(super) struct PageSink {
    out: BufWriter<File>,
    next: u64,
}

/// A page that has its number.
pub(super) struct Begun {
    pub id: u64,
    pub overflow: u32,
}

impl BoltWriter {
    /// `file` must be empty.
    pub fn new(file: File) -> io::Result<BoltWriter> {
        let mut sink = PageSink { out: BufWriter::with_capacity(1 << 18, file), next: FREELIST_PAGE };
        sink.out.write_all(&[0; 2 * PAGE_BYTES])?;
        let page = sink.begin(PAGE_BYTES);
        let mut freelist = Vec::with_capacity(PAGE_BYTES);
        PageHead { id: page.id, flags: FREELIST, count: 0, overflow: 0 }.encode(&mut freelist);
        sink.write(freelist)?;
        Ok(BoltWriter { sink, buckets: Vec::new() })
    }

    /// Begins a bucket. Each name once, in any order.
    pub fn bucket(&mut self, name: &str) -> BucketWriter<'_> {
        let name = name.as_bytes().to_vec();
        assert!(self.buckets.iter().all(|(other, _)| *other != name), "a bucket is written once");
        BucketWriter { writer: self, name, tree: Tree::default() }
    }

    /// The file, whole, and how many bytes it has.
    pub fn finish(mut self) -> io::Result<(File, u64)> {
        self.buckets.sort();
        let root = Tree::buckets(&mut self.sink, &self.buckets)?;
        let PageSink { out, next } = self.sink;
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        for id in [0, 1] {
            // As after a database's first transaction: both say the same, and the second is newer.
            let meta = Meta {
                page_bytes: PAGE_BYTES as u32,
                root,
                freelist: FREELIST_PAGE,
                pages: next,
                txid: id + 1,
            };
            file.write_all(&meta.encode(id))?;
        }
        Ok((file, next * PAGE_BYTES as u64))
    }
}

impl BucketWriter<'_> {
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.tree.put(&mut self.writer.sink, key, value)
    }

    pub fn finish(self) -> io::Result<()> {
        let root = self.tree.finish(&mut self.writer.sink)?;
        let mut bucket = Vec::with_capacity(32);
        bucket.extend_from_slice(&root.unwrap_or(0).to_le_bytes());
        bucket.extend_from_slice(&0u64.to_le_bytes());
        if root.is_none() {
            // Empty: a leaf without rows, inside the bucket's own row.
            PageHead { id: 0, flags: LEAF, count: 0, overflow: 0 }.encode(&mut bucket);
        }
        self.writer.buckets.push((self.name, bucket));
        Ok(())
    }
}

impl PageSink {
    pub(super) fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    /// Gives a page of this many bytes its number. It must be written next.
    pub(super) fn begin(&mut self, bytes: usize) -> Begun {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let id = self.next;
        self.next += pages as u64;
        let overflow = u32::try_from(pages - 1).expect("a row is far smaller than 2^32 pages");
        Begun { id, overflow }
    }

    pub(super) fn write(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        self.out.write_all(&bytes)
    }
}
