//! The database's twin in memory, for simulation: the same promises, and a crash that costs nothing.
//!
//! What is written is in memory only; a flush puts all of it in one file of the directory, so that
//! dropping every handle is a crash that leaves what was last flushed. Now and then a write flushes
//! by itself, as a full write buffer does. Chosen for the whole process by [`choose`], before the
//! first database is opened.

use crate::{Column, DbOptions, EngineError, Size};
use meerkat_fault::Mutex;
use rpds::RedBlackTreeMapSync;
use std::fmt::Display;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FILE: &str = "STATE";
const UNFINISHED: &str = "STATE.tmp";

/// One write in so many flushes by itself.
const WRITES_PER_FLUSH: u64 = 50;

static CHOSEN: AtomicBool = AtomicBool::new(false);
static FLUSH_DICE: AtomicU64 = AtomicU64::new(0);

/// From now on every database of this process is one in memory. `seed` decides which writes flush by
/// themselves.
pub fn choose(seed: u64) {
    FLUSH_DICE.store(seed, Ordering::SeqCst);
    CHOSEN.store(true, Ordering::SeqCst);
}

pub(crate) fn is_chosen() -> bool {
    CHOSEN.load(Ordering::Relaxed)
}

fn flushes_by_itself() -> bool {
    // A linear congruence: enough to scatter flushes, and the same on every run of a seed.
    let step =
        |dice: u64| dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let dice = FLUSH_DICE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |dice| Some(step(dice)));
    (dice.unwrap_or_default() >> 33).is_multiple_of(WRITES_PER_FLUSH)
}

type Rows = RedBlackTreeMapSync<Vec<u8>, Vec<u8>>;

#[derive(Clone, Default)]
struct Columns([Rows; Column::ALL.len()]);

impl Columns {
    fn of(&self, column: Column) -> &Rows {
        &self.0[column as usize]
    }

    fn change(&mut self, column: Column, key: Vec<u8>, value: Option<Vec<u8>>) {
        let rows = &mut self.0[column as usize];
        match value {
            Some(value) => rows.insert_mut(key, value),
            None => drop(rows.remove_mut(&key)),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        for column in Column::ALL {
            let rows = self.of(column);
            put(&(rows.size() as u64).to_le_bytes());
            for (key, value) in rows {
                put(key);
                put(value);
            }
        }
        out
    }

    fn decode(mut from: &[u8]) -> Option<Columns> {
        let mut columns = Columns::default();
        for column in Column::ALL {
            let count = u64::from_le_bytes(take(&mut from)?.try_into().ok()?);
            for _ in 0..count {
                let key = take(&mut from)?.to_vec();
                columns.change(column, key, Some(take(&mut from)?.to_vec()));
            }
        }
        from.is_empty().then_some(columns)
    }
}

fn take<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = from.split_first_chunk::<8>()?;
    let (bytes, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *from = rest;
    Some(bytes)
}

#[derive(Clone)]
pub(crate) struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writable: bool,
    current: Mutex<Columns>,
    flushed: Mutex<Columns>,
}

impl Db {
    pub(crate) fn open(path: &Path, _options: &DbOptions) -> Result<Db, EngineError> {
        std::fs::create_dir_all(path).map_err(|error| open_error(path, &error))?;
        let columns = match std::fs::read(path.join(FILE)) {
            Ok(bytes) => Columns::decode(&bytes).ok_or_else(|| open_error(path, &"it is damaged"))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Columns::default(),
            Err(error) => return Err(open_error(path, &error)),
        };
        Ok(Db::own(path, columns, true))
    }

    pub(crate) fn open_read_only(path: &Path) -> Result<Db, EngineError> {
        let bytes = std::fs::read(path.join(FILE)).map_err(|error| open_error(path, &error))?;
        let columns = Columns::decode(&bytes).ok_or_else(|| open_error(path, &"it is damaged"))?;
        Ok(Db::own(path, columns, false))
    }

    fn own(path: &Path, columns: Columns, writable: bool) -> Db {
        let (current, flushed) = (Mutex::new(columns.clone()), Mutex::new(columns));
        Db { inner: Arc::new(Inner { path: path.to_owned(), writable, current, flushed }) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(crate) fn write(&self, batch: Batch) -> Result<(), EngineError> {
        assert!(
            Arc::ptr_eq(&self.inner, &batch.db.inner),
            "a batch is written to the database it was made for"
        );
        if !self.inner.writable {
            return Err(self.write_error(&"it was opened to be read"));
        }
        let mut current = self.inner.current.lock();
        for (column, key, value) in batch.changes {
            current.change(column, key, value);
        }
        drop(current);
        if flushes_by_itself() { self.flush() } else { Ok(()) }
    }

    pub(crate) fn view(&self) -> View {
        View { columns: self.inner.current.lock().clone() }
    }

    pub(crate) fn flush(&self) -> Result<(), EngineError> {
        let columns = self.inner.current.lock().clone();
        // A database that a snapshot has replaced may have lost its directory.
        save(&self.inner.path, &columns).map_err(|error| self.write_error(&error))?;
        *self.inner.flushed.lock() = columns;
        Ok(())
    }

    pub(crate) fn persisted_get(&self, column: Column, key: &[u8]) -> Option<Vec<u8>> {
        self.inner.flushed.lock().of(column).get(key).cloned()
    }

    pub(crate) fn checkpoint(&self, path: &Path) -> Result<(), EngineError> {
        let columns = self.inner.current.lock().clone();
        std::fs::create_dir(path)
            .and_then(|()| save(path, &columns))
            .map_err(|error| self.write_error(&format!("checkpoint: {error}")))
    }

    pub(crate) fn approximate_size(&self) -> Size {
        let bytes =
            |rows: &Rows| rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
        let total_bytes = self.inner.current.lock().0.iter().map(bytes).sum();
        Size { total_bytes, live_bytes: total_bytes }
    }

    fn write_error(&self, reason: &dyn Display) -> EngineError {
        EngineError::Write { path: self.inner.path.clone(), reason: reason.to_string() }
    }
}

fn save(dir: &Path, columns: &Columns) -> std::io::Result<()> {
    let unfinished = dir.join(UNFINISHED);
    std::fs::write(&unfinished, columns.encode())?;
    std::fs::rename(&unfinished, dir.join(FILE))
}

fn open_error(path: &Path, reason: &dyn Display) -> EngineError {
    EngineError::Open {
        path: path.to_owned(),
        reason: reason.to_string(),
        next_step: "Run the simulation again in an empty directory",
    }
}

pub(crate) struct Batch {
    db: Db,
    changes: Vec<(Column, Vec<u8>, Option<Vec<u8>>)>,
    bytes: usize,
}

impl Batch {
    pub(crate) fn new(db: &Db) -> Batch {
        Batch { db: db.clone(), changes: Vec::new(), bytes: 0 }
    }

    pub(crate) fn change(&mut self, column: Column, key: &[u8], value: Option<&[u8]>) {
        self.bytes += key.len() + value.map_or(0, <[u8]>::len);
        self.changes.push((column, key.to_vec(), value.map(<[u8]>::to_vec)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

pub(crate) struct View {
    columns: Columns,
}

impl View {
    pub(crate) fn get(&self, column: Column, key: &[u8]) -> Option<&[u8]> {
        self.columns.of(column).get(key).map(Vec::as_slice)
    }

    pub(crate) fn scan(&self, column: Column, first: &[u8], end: Option<&[u8]>) -> Cursor<'_> {
        let mut cursor = Cursor { rows: self.columns.of(column), end: end.map(<[u8]>::to_vec), at: None };
        cursor.seek(first);
        cursor
    }
}

pub(crate) struct Cursor<'a> {
    rows: &'a Rows,
    end: Option<Vec<u8>>,
    at: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn row(&self) -> Option<(&'a [u8], &'a [u8])> {
        self.at
    }

    pub(crate) fn step(&mut self) {
        if let Some((key, _)) = self.at {
            self.stand_on_first(Bound::Excluded(key));
        }
    }

    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.stand_on_first(Bound::Included(key));
    }

    pub(crate) fn seek_back(&mut self, key: &[u8]) {
        let upto = match self.end.as_deref() {
            Some(end) if end <= key => Bound::Excluded(end),
            _ => Bound::Included(key),
        };
        let found = self.rows.range::<[u8], _>((Bound::Unbounded, upto)).next_back();
        self.at = found
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
            .filter(|(key, _)| self.is_inside(key));
    }

    fn stand_on_first(&mut self, from: Bound<&[u8]>) {
        let found = self.rows.range::<[u8], _>((from, Bound::Unbounded)).next();
        self.at = found
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
            .filter(|(key, _)| self.is_inside(key));
    }

    fn is_inside(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(db: &Db, rows: &[(&[u8], &[u8])]) {
        let mut batch = Batch::new(db);
        for (key, value) in rows {
            batch.change(Column::Head, key, Some(value));
        }
        db.write(batch).expect("writes");
    }

    #[test]
    fn a_crash_leaves_what_was_flushed() {
        let dir = tempfile::tempdir().expect("a directory");
        // Whether a write flushes by itself is chance, so only what is certain is asked for.
        let db = Db::open(dir.path(), &DbOptions::default()).expect("opens");
        put(&db, &[(b"a", b"1")]);
        db.flush().expect("flushes");
        drop(db);
        let db = Db::open(dir.path(), &DbOptions::default()).expect("opens");
        assert_eq!(db.view().get(Column::Head, b"a"), Some(b"1".as_slice()));
        assert_eq!(db.persisted_get(Column::Head, b"a"), Some(b"1".to_vec()));
    }

    #[test]
    fn a_cursor_stays_inside_its_bounds() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(dir.path(), &DbOptions::default()).expect("opens");
        put(&db, &[(b"a", b"1"), (b"b", b"2"), (b"d", b"4")]);
        let view = db.view();
        put(&db, &[(b"c", b"3")]);
        let mut cursor = view.scan(Column::Head, b"aa", Some(b"d"));
        assert_eq!(cursor.row(), Some((b"b".as_slice(), b"2".as_slice())));
        cursor.step();
        assert_eq!(cursor.row(), None, "c came later, and d is outside");
        cursor.seek_back(b"aaa");
        assert_eq!(cursor.row().map(|(key, _)| key), Some(b"a".as_slice()));
    }

    #[test]
    fn a_checkpoint_is_a_database_of_its_own() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Db::open(&dir.path().join("one"), &DbOptions::default()).expect("opens");
        put(&db, &[(b"a", b"1")]);
        db.checkpoint(&dir.path().join("two")).expect("copies");
        let copy = Db::open_read_only(&dir.path().join("two")).expect("opens");
        assert_eq!(copy.view().get(Column::Head, b"a"), Some(b"1".as_slice()));
        assert!(copy.write(Batch::new(&copy)).is_err());
    }
}
