//! Reads a bbolt file that anybody may have made.
//!
//! Pages are read one path at a time, never the whole file. A walk takes each page at most once and
//! goes at most `DEPTH_MAX` deep, so it ends whatever the pages say; a page may not be larger than
//! the file, nor than `PAGE_BYTES_MAX`.

use super::layout::{BUCKET_HEAD, Meta, PAGE_HEAD, PageHead, page_sizes, u64_at};
use super::page::{Page, Row, damaged};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A tree of 2^64 rows has less than this with two rows to a page.
const DEPTH_MAX: usize = 64;

/// Above any request that a member would take: two rows of them fill a page.
const PAGE_BYTES_MAX: u64 = 1 << 28;

#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("it is not a bbolt database: {what}")]
    NotBolt { what: String },
    #[error("it is cut short: its pages reach to byte {need}, and it ends at byte {have}")]
    CutShort { need: u64, have: u64 },
    #[error("it is damaged: page {page} {what}")]
    Damaged { page: u64, what: String },
    #[error("it is damaged: the rows of bucket {bucket:?} are out of order at page {page}")]
    OutOfOrder { bucket: String, page: u64 },
}

/// Where the bytes are.
pub trait Source {
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
}

impl Source for File {
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, at)
    }
}

impl Source for Vec<u8> {
    fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let first = usize::try_from(at).ok();
        let found = first.and_then(|first| self.get(first..first.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

pub struct Bolt<S> {
    source: S,
    meta: Meta,
}

/// A bucket, found.
pub struct Bucket {
    name: String,
    root: Root,
}

enum Root {
    Page(u64),
    /// The page itself, and the page whose row it is in.
    Inline(Vec<u8>, u64),
}

impl<S: Source> Bolt<S> {
    /// `len`: how many bytes of the source are the database.
    pub fn open(source: S, len: u64) -> Result<Bolt<S>, BoltError> {
        let meta = newest_meta(&source, len)?;
        let need = meta.pages.checked_mul(u64::from(meta.page_bytes));
        match need {
            Some(need) if need <= len => Ok(Bolt { source, meta }),
            Some(need) => Err(BoltError::CutShort { need, have: len }),
            None => Err(damaged(0, "counts more pages than a file can have")),
        }
    }

    /// What the database's pages take, as bbolt counts it.
    pub fn bytes(&self) -> u64 {
        self.meta.pages * u64::from(self.meta.page_bytes)
    }

    /// Every bucket, in the order of names. Buckets within buckets are not looked for.
    pub fn buckets(&self) -> Result<Vec<Bucket>, BoltError> {
        let mut rows = self.walk("root", Root::Page(self.meta.root))?;
        let mut found = Vec::new();
        while let Some((name, value)) = rows.next_bucket()? {
            let name = String::from_utf8_lossy(name).into_owned();
            let inline = value[BUCKET_HEAD..].to_vec();
            let root = match u64_at(value, 0) {
                None | Some(0) => Root::Inline(inline, rows.page()),
                Some(root) => Root::Page(root),
            };
            found.push(Bucket { name, root });
        }
        Ok(found)
    }

    /// The rows of a bucket; of one that is not there, none.
    pub fn rows(&self, name: &str) -> Result<Rows<'_, S>, BoltError> {
        match self.buckets()?.into_iter().find(|bucket| bucket.name == name) {
            Some(bucket) => self.rows_of(bucket),
            None => Ok(Rows::over(self, name, Vec::new())),
        }
    }

    pub fn rows_of(&self, bucket: Bucket) -> Result<Rows<'_, S>, BoltError> {
        self.walk(&bucket.name, bucket.root)
    }

    fn walk(&self, name: &str, root: Root) -> Result<Rows<'_, S>, BoltError> {
        match root {
            Root::Inline(bytes, within) => {
                let page = Page::new(within, bytes)?;
                if page.is_branch() {
                    return Err(damaged(within, &format!("holds bucket {name:?} as a branch")));
                }
                Ok(Rows::over(self, name, vec![(page, 0)]))
            }
            Root::Page(root) => {
                let mut rows = Rows::over(self, name, Vec::new());
                rows.enter(root)?;
                Ok(rows)
            }
        }
    }

    fn page(&self, id: u64) -> Result<Page, BoltError> {
        let page_bytes = u64::from(self.meta.page_bytes);
        if !(2..self.meta.pages).contains(&id) {
            return Err(damaged(id, &format!("is asked for, and there are {}", self.meta.pages)));
        }
        let mut head = [0; PAGE_HEAD];
        self.source.read_exact_at(&mut head, id * page_bytes)?;
        let head = PageHead::decode(&head).ok_or_else(|| damaged(id, "has no head"))?;
        if head.id != id {
            return Err(damaged(id, &format!("says that it is page {}", head.id)));
        }
        let pages = 1 + u64::from(head.overflow);
        let bytes = pages * page_bytes;
        if self.meta.pages - id < pages || PAGE_BYTES_MAX < bytes {
            return Err(damaged(id, &format!("claims {pages} pages")));
        }
        let mut all = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
        self.source.read_exact_at(&mut all, id * page_bytes)?;
        Page::new(id, all)
    }
}

impl Bucket {
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The meta page of the newest transaction that was written whole.
fn newest_meta<S: Source>(source: &S, len: u64) -> Result<Meta, BoltError> {
    let at = |offset: u64| -> Result<Meta, BoltError> {
        let mut bytes = [0; 80];
        if len < offset + bytes.len() as u64 {
            return Err(BoltError::NotBolt { what: format!("it has {len} bytes, and no meta page") });
        }
        source.read_exact_at(&mut bytes, offset)?;
        Meta::decode(&bytes)
    };
    let first = at(0);
    let second = match &first {
        Ok(meta) => at(u64::from(meta.page_bytes)).ok(),
        // Not knowing the page size, look wherever a second one can be.
        Err(_) => page_sizes()
            .filter_map(|size| at(size).ok().filter(|meta| u64::from(meta.page_bytes) == size))
            .next(),
    };
    match (first, second) {
        (Ok(first), Some(second)) if first.txid < second.txid => Ok(second),
        (Ok(first), _) => Ok(first),
        (Err(_), Some(second)) => Ok(second),
        (Err(error), None) => Err(error),
    }
}

/// A row, as long as the walk stands on it.
pub type KeyAndValue<'a> = (&'a [u8], &'a [u8]);

/// The rows of one bucket, in order. After an error there are no more.
pub struct Rows<'a, S> {
    bolt: &'a Bolt<S>,
    bucket: String,
    /// The path to where the walk stands, and the next element of each page on it.
    path: Vec<(Page, usize)>,
    /// A bit for each page that was entered.
    seen: Vec<u64>,
    last_key: Option<Vec<u8>>,
}

impl<'a, S: Source> Rows<'a, S> {
    fn over(bolt: &'a Bolt<S>, bucket: &str, path: Vec<(Page, usize)>) -> Rows<'a, S> {
        Rows { bolt, bucket: bucket.to_owned(), path, seen: Vec::new(), last_key: None }
    }

    /// Key and value of the next row; `None` after the last.
    pub fn next_row(&mut self) -> Result<Option<KeyAndValue<'_>>, BoltError> {
        let Some(row) = self.advance()? else { return Ok(None) };
        Ok(self.path.last().map(|(page, _)| (page.bytes(row.key), page.bytes(row.value))))
    }

    /// As [`Rows::next_row`], of a row that is a bucket.
    fn next_bucket(&mut self) -> Result<Option<KeyAndValue<'_>>, BoltError> {
        let Some(row) = self.advance()? else { return Ok(None) };
        if !row.is_bucket || row.value.len() < BUCKET_HEAD {
            return Err(damaged(self.page(), "has a row among the buckets that is none"));
        }
        Ok(self.path.last().map(|(page, _)| (page.bytes(row.key), page.bytes(row.value))))
    }

    fn advance(&mut self) -> Result<Option<Row>, BoltError> {
        loop {
            let Some((page, next)) = self.path.last_mut() else { return Ok(None) };
            let at = *next;
            if page.count() <= at {
                self.path.pop();
                continue;
            }
            *next += 1;
            if page.is_branch() {
                let child = page.child(at).ok_or_else(|| damaged(page.id(), "is cut"))?;
                self.enter(child)?;
                continue;
            }
            let row = page.row(at).ok_or_else(|| damaged(page.id(), "is cut"))?;
            let key = page.bytes(row.key.clone());
            if self.last_key.as_deref().is_some_and(|last| key <= last) {
                return Err(BoltError::OutOfOrder { bucket: self.bucket.clone(), page: page.id() });
            }
            let last = self.last_key.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            return Ok(Some(row));
        }
    }

    /// The page that the last row was in.
    fn page(&self) -> u64 {
        self.path.last().map_or(0, |(page, _)| page.id())
    }

    fn enter(&mut self, id: u64) -> Result<(), BoltError> {
        if self.path.len() == DEPTH_MAX {
            return Err(damaged(id, "lies deeper than any tree of bbolt's"));
        }
        let page = self.bolt.page(id)?;
        self.mark(id)?;
        self.path.push((page, 0));
        Ok(())
    }

    fn mark(&mut self, id: u64) -> Result<(), BoltError> {
        let word = usize::try_from(id / 64).map_err(io::Error::other)?;
        if self.seen.len() <= word {
            // `id` is a page of the file, so this is a small part of its size.
            self.seen.resize(word + 1, 0);
        }
        let bit = 1 << (id % 64);
        if self.seen[word] & bit != 0 {
            return Err(damaged(id, &format!("is in bucket {:?} twice", self.bucket)));
        }
        self.seen[word] |= bit;
        Ok(())
    }
}
