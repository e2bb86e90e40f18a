//! What the engine promises, on a real directory.

use crate::batch::Batch;
use crate::db::Db;
use crate::{Column, DbOptions, EngineError};
use std::path::Path;

fn lossy() -> DbOptions {
    DbOptions { flush_on_close: false, ..DbOptions::default() }
}

fn put(db: &Db, rows: &[(Column, &[u8], &[u8])]) {
    let mut batch = Batch::new(db);
    for (column, key, value) in rows {
        batch.put(*column, key, value);
    }
    db.write(batch).expect("write");
}

fn get(db: &Db, column: Column, key: &[u8]) -> Option<Vec<u8>> {
    db.view().get(column, key).expect("read").map(|value| value.to_vec())
}

#[test]
fn a_view_does_not_see_later_writes_and_outlives_every_handle() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    put(&db, &[(Column::Head, b"k", b"old")]);
    let view = db.view();
    put(&db, &[(Column::Head, b"k", b"new"), (Column::Head, b"l", b"new")]);
    drop(db);
    assert_eq!(view.get(Column::Head, b"k").expect("read").as_deref(), Some(b"old".as_slice()));
    let mut rows = view.scan(Column::Head, b"", None);
    assert_eq!(rows.row(), Some((b"k".as_slice(), b"old".as_slice())));
    rows.step();
    assert_eq!(rows.row(), None);
    rows.finish().expect("the end, not an error");
}

#[test]
fn a_scan_stays_within_its_bounds_and_can_seek() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    put(&db, &[b"a", b"b", b"c", b"d"].map(|key| (Column::Log, key.as_slice(), b"v".as_slice())));
    let view = db.view();
    let mut rows = view.scan(Column::Log, b"b", Some(b"d"));
    assert_eq!(rows.key(), Some(b"b".as_slice()));
    rows.seek(b"bb");
    assert_eq!(rows.key(), Some(b"c".as_slice()));
    rows.step();
    assert_eq!(rows.key(), None, "d is above the end");
    rows.seek_back(b"c");
    assert_eq!(rows.key(), Some(b"c".as_slice()));
}

#[test]
fn only_what_was_flushed_survives_a_crash_and_it_survives_in_every_column() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    let rows = |value: &'static [u8]| Column::ALL.map(|column| (column, b"k".as_slice(), value));
    put(&db, &rows(b"flushed"));
    assert_eq!(db.persisted_get(Column::Meta, b"k").expect("read"), None);
    db.flush().expect("flush");
    put(&db, &rows(b"lost"));
    let persisted = db.persisted_get(Column::Meta, b"k").expect("read");
    assert_eq!(persisted.as_deref(), Some(b"flushed".as_slice()));
    drop(db);
    let db = Db::open(directory.path(), &lossy()).expect("open");
    for column in Column::ALL {
        assert_eq!(get(&db, column, b"k").as_deref(), Some(b"flushed".as_slice()), "{column:?}");
    }
}

#[test]
fn closing_keeps_what_was_written_unless_told_to_lose_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &DbOptions::default()).expect("open");
    put(&db, &[(Column::Head, b"k", b"v")]);
    drop(db);
    let db = Db::open(directory.path(), &DbOptions::default()).expect("open");
    assert_eq!(get(&db, Column::Head, b"k").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_checkpoint_holds_what_was_never_flushed_large_values_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path().join("db"), &lossy()).expect("open");
    let large = vec![7; 5_000];
    put(&db, &[(Column::Head, b"k", &large), (Column::Meta, b"m", b"v")]);
    let path = directory.path().join("copy");
    db.checkpoint(&path).expect("checkpoint");
    put(&db, &[(Column::Meta, b"m", b"later")]);
    let copy = Db::open_read_only(&path, &lossy()).expect("open");
    assert_eq!(get(&copy, Column::Head, b"k"), Some(large));
    assert_eq!(get(&copy, Column::Meta, b"m").as_deref(), Some(b"v".as_slice()));
    assert!(db.checkpoint(&path).is_err(), "the path is taken");
    put(&db, &[(Column::Meta, b"m", b"still writable")]);
}

#[test]
fn after_a_failed_write_every_later_write_is_refused_and_reads_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    put(&db, &[(Column::Head, b"k", b"v")]);
    drop(db.inner.write_error(&"no space left on device"));
    let mut batch = Batch::new(&db);
    batch.put(Column::Head, b"k", b"w");
    let refused = db.write(batch).expect_err("poisoned");
    assert!(
        matches!(&refused, EngineError::Poisoned { reason, .. } if reason.contains("no space")),
        "{refused}"
    );
    assert!(matches!(db.flush(), Err(EngineError::Poisoned { .. })));
    assert!(matches!(db.checkpoint(directory.path().join("c")), Err(EngineError::Poisoned { .. })));
    assert_eq!(get(&db, Column::Head, b"k").as_deref(), Some(b"v".as_slice()));
}

#[test]
fn a_write_to_a_database_opened_for_reading_fails_and_poisons() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(Db::open(directory.path(), &DbOptions::default()).expect("open"));
    let db = Db::open_read_only(directory.path(), &lossy()).expect("open");
    for poisoned in [false, true] {
        let mut batch = Batch::new(&db);
        batch.put(Column::Head, b"k", b"w");
        let error = db.write(batch).expect_err("read only");
        assert_eq!(matches!(error, EngineError::Poisoned { .. }), poisoned, "{error}");
    }
}

fn open_error(path: &Path) -> String {
    Db::open(path, &lossy()).err().expect("not a database").to_string()
}

#[test]
fn a_directory_that_cannot_be_opened_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, b"x").expect("write");
    let error = open_error(&file);
    assert!(error.contains("file") && error.contains("Check that it is a directory"), "{error}");

    let path = directory.path().join("db");
    let open = Db::open(&path, &DbOptions::default()).expect("open");
    let error = open_error(&path);
    assert!(error.contains("Another process has it open"), "{error}");
    put(&open, &[(Column::Head, b"k", b"v")]);
    open.flush().expect("flush");
    drop(open);
    std::fs::write(path.join("CURRENT"), b"MANIFEST-999999\n").expect("damage");
    let error = open_error(&path);
    assert!(error.contains("damaged or missing") && error.contains("db"), "{error}");
}

#[test]
fn a_damaged_table_is_an_error_and_never_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    let value = vec![b'v'; 900];
    for n in 0..200u32 {
        put(&db, &[(Column::Head, &n.to_be_bytes(), &value)]);
    }
    db.flush().expect("flush");
    drop(db);
    let tables = std::fs::read_dir(directory.path()).expect("list").map(|entry| entry.expect("entry").path());
    for table in tables.filter(|path| path.extension().is_some_and(|extension| extension == "sst")) {
        let mut bytes = std::fs::read(&table).expect("read");
        bytes.iter_mut().take(400).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&table, bytes).expect("damage");
    }
    let Ok(db) = Db::open(directory.path(), &lossy()) else {
        return;
    };
    let view = db.view();
    let mut rows = view.scan(Column::Head, b"", None);
    let mut read = 0;
    while let Some((_, row)) = rows.row() {
        assert_eq!(row, value, "a row that is read is the one written");
        read += 1;
        rows.step();
    }
    assert!(read < 200 && rows.finish().is_err(), "{read} rows");
}

#[test]
fn sizes_grow_with_what_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Db::open(directory.path(), &lossy()).expect("open");
    let before = db.approximate_size().expect("size");
    for n in 0..100u32 {
        put(&db, &[(Column::Head, &n.to_be_bytes(), &vec![n as u8; 10_000])]);
    }
    let unflushed = db.approximate_size().expect("size");
    assert!(before.total_bytes + 1_000_000 <= unflushed.total_bytes, "{before:?} {unflushed:?}");
    db.flush().expect("flush");
    let flushed = db.approximate_size().expect("size");
    assert!(flushed.live_bytes <= flushed.total_bytes && 0 < flushed.live_bytes, "{flushed:?}");
    assert!(0 < db.memory_usage().expect("usage").write_buffer_bytes);
    assert_eq!(db.stats().expect("stats").background_errors, 0);
}
