//! A snapshot file, opened: its checksum compared, its rows given out.

use super::checksum::{CHECKSUM_BYTES, Checksum};
use super::other_rows::OtherRows;
use super::rows::{LeaseRow, StoredEvent, decode_event, decode_revision};
use crate::bbolt::{Bolt, BoltError, Rows, Source};
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A database is a multiple of this many bytes, with or without a checksum behind it.
const ALIGNMENT: u64 = 512;

/// Users, roles and alarms are kept in memory: far more than any cluster has.
const OTHER_BYTES_MAX: usize = 256 << 20;
const LEASES_MAX: usize = 16 << 20;

/// Whether a file must close with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashCheck {
    Required,
    /// For a database file copied out of a data directory, which has none.
    Skipped,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "snapshot missing hash but --skip-hash-check=false: {path} is cut short, or a database copied from a data directory"
    )]
    NoChecksum { path: PathBuf },
    #[error("expected sha256 {stored}, got {computed}: {path} is damaged")]
    WrongChecksum { path: PathBuf, stored: String, computed: String },
    #[error("{path} is no snapshot: {source}")]
    Bolt { path: PathBuf, source: BoltError },
    #[error("{path} is no snapshot: it has no bucket \"key\"")]
    NoKeys { path: PathBuf },
    #[error("{path} is damaged: {what}")]
    Row { path: PathBuf, what: String },
}

pub struct SnapshotFile<S = File> {
    pub(super) path: PathBuf,
    pub(super) bolt: Bolt<S>,
}

impl SnapshotFile<File> {
    pub fn open(path: &Path, check: HashCheck) -> Result<SnapshotFile, SnapshotError> {
        let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let has_checksum = len % ALIGNMENT == CHECKSUM_BYTES as u64;
        match (check, has_checksum) {
            (HashCheck::Required, false) => return Err(SnapshotError::NoChecksum { path: path.to_owned() }),
            (HashCheck::Required, true) => compare_checksum(path, &file)?,
            (HashCheck::Skipped, _) => {}
        }
        let len = if has_checksum { len - CHECKSUM_BYTES as u64 } else { len };
        SnapshotFile::from_source(path, file, len)
    }

    /// As [`SnapshotFile::open`], of a file whose checksum is compared if it has one.
    pub fn open_to_look(path: &Path) -> Result<SnapshotFile, SnapshotError> {
        let len = std::fs::metadata(path)
            .map_err(|source| SnapshotError::Io { path: path.to_owned(), source })?
            .len();
        let has_checksum = len % ALIGNMENT == CHECKSUM_BYTES as u64;
        SnapshotFile::open(path, if has_checksum { HashCheck::Required } else { HashCheck::Skipped })
    }
}

fn compare_checksum(path: &Path, file: &File) -> Result<(), SnapshotError> {
    let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
    let mut reader = file;
    let mut sum = Checksum::default();
    let mut piece = vec![0; 1 << 18];
    loop {
        match reader.read(&mut piece).map_err(failed)? {
            0 => break,
            read => sum.update(&piece[..read]),
        }
    }
    let (computed, stored) = sum.of_stream();
    if computed.as_slice() == stored {
        return Ok(());
    }
    Err(SnapshotError::WrongChecksum {
        path: path.to_owned(),
        stored: hex(&stored),
        computed: hex(&computed),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl<S: Source> SnapshotFile<S> {
    /// `len`: the bytes of the database. `path` names it in errors.
    pub fn from_source(path: &Path, source: S, len: u64) -> Result<SnapshotFile<S>, SnapshotError> {
        let bolt = Bolt::open(source, len);
        let bolt = bolt.map_err(|source| SnapshotError::Bolt { path: path.to_owned(), source })?;
        let file = SnapshotFile { path: path.to_owned(), bolt };
        let buckets = file.bolt.buckets().map_err(|source| file.bolt_error(source))?;
        if buckets.iter().all(|bucket| bucket.name() != "key") {
            return Err(SnapshotError::NoKeys { path: file.path });
        }
        Ok(file)
    }

    pub(super) fn bolt_error(&self, source: BoltError) -> SnapshotError {
        SnapshotError::Bolt { path: self.path.clone(), source }
    }

    fn bad_row(&self, what: String) -> SnapshotError {
        SnapshotError::Row { path: self.path.clone(), what }
    }

    fn rows(&self, bucket: &str) -> Result<Rows<'_, S>, SnapshotError> {
        self.bolt.rows(bucket).map_err(|source| self.bolt_error(source))
    }

    /// The whole history, in order.
    pub fn events(&self) -> Result<Events<'_, S>, SnapshotError> {
        Ok(Events { file: self, rows: self.rows("key")? })
    }

    pub fn leases(&self) -> Result<Vec<LeaseRow>, SnapshotError> {
        let mut leases = Vec::new();
        let mut rows = self.rows("lease")?;
        while let Some((key, value)) = rows.next_row().map_err(|source| self.bolt_error(source))? {
            let lease = LeaseRow::decode(key, value).ok_or_else(|| {
                self.bad_row(format!("row {} of bucket \"lease\" is no lease", leases.len()))
            })?;
            if leases.len() == LEASES_MAX {
                return Err(self.bad_row(format!("it has more than {LEASES_MAX} leases")));
            }
            leases.push(lease);
        }
        Ok(leases)
    }

    /// The compacted revision, agreed on or carried out; `None` if nothing ever was.
    pub fn compacted(&self) -> Result<Option<i64>, SnapshotError> {
        let mut newest = None;
        let mut rows = self.rows("meta")?;
        while let Some((key, value)) = rows.next_row().map_err(|source| self.bolt_error(source))? {
            if key != b"finishedCompactRev" && key != b"scheduledCompactRev" {
                continue;
            }
            let (revision, _, _) = decode_revision(value).ok_or_else(|| {
                self.bad_row("the compacted revision in bucket \"meta\" is none".to_owned())
            })?;
            newest = newest.max(Some(revision));
        }
        Ok(newest.filter(|revision| 0 < *revision))
    }

    /// Users, roles and alarms.
    pub fn other_rows(&self) -> Result<OtherRows, SnapshotError> {
        let mut room = OTHER_BYTES_MAX;
        let mut all = OtherRows::default();
        for bucket in ["auth", "authUsers", "authRoles", "alarm"] {
            let mut rows = self.rows(bucket)?;
            while let Some((key, value)) = rows.next_row().map_err(|source| self.bolt_error(source))? {
                room = room.checked_sub(key.len() + value.len()).ok_or_else(|| {
                    self.bad_row(format!("bucket {bucket:?} is larger than any that etcd makes"))
                })?;
                all.take(bucket, key, value).map_err(|what| self.bad_row(what))?;
            }
        }
        Ok(all)
    }
}

/// The history under way. After an error there is no more.
pub struct Events<'a, S = File> {
    file: &'a SnapshotFile<S>,
    rows: Rows<'a, S>,
}

impl<S: Source> Events<'_, S> {
    /// An event is there until the next one is asked for.
    pub fn next_event(&mut self) -> Result<Option<StoredEvent<'_>>, SnapshotError> {
        let file = self.file;
        let Some((key, value)) = self.rows.next_row().map_err(|source| file.bolt_error(source))? else {
            return Ok(None);
        };
        match decode_event(key, value) {
            Some(event) => Ok(Some(event)),
            None => Err(file.bad_row(format!("row {:02x?} of bucket \"key\" is no event", key))),
        }
    }
}
