//! How much the store holds, as its quota counts it.
//!
//! An event weighs what its rows weigh before compression: its row of `log`, and its key once more in
//! `versions` and in `head`. The value that `head` repeats is not counted, so that a quota holds about
//! as much here as in etcd, which keeps each version once.
//!
//! Two sums that only grow, each kept in the batch that changes it: apply adds what it writes
//! (`weight`), compaction what it removes (`compaction`). Their difference is what is there now. It
//! falls as soon as compaction has removed something, whatever the files do.

use crate::error::{ReadError, StateError, damaged};
use crate::mvcc::log_row::LogRow;
use crate::schema::{FORMAT, MEMBERSHIP, REGISTERS, Removed};
use meerkat_engine::{Batch, Column, View};

const WEIGHT: &[u8] = b"weight";

/// The keys and numbers of the three rows, beside what varies.
const EVENT_BYTES: u64 = 96;

/// No store ever wrote so much.
pub(crate) const BYTES_END: u64 = 1 << 62;

/// A lease has a row of its own.
pub(crate) const LEASE_BYTES: u64 = 64;

/// What one event weighs, of which `row` is the row of `log`.
pub(crate) fn of_event(row: &[u8], key: &[u8]) -> u64 {
    row.len() as u64 + 2 * key.len() as u64 + EVENT_BYTES
}

/// Everything that was ever written. Counted, if no earlier release has kept the sum.
pub(crate) fn load(view: &View) -> Result<u64, StateError> {
    match view.get(Column::Meta, WEIGHT)? {
        Some(row) => {
            let bytes = row.as_ref().try_into().ok().map(u64::from_be_bytes);
            bytes.filter(|bytes| *bytes < BYTES_END).ok_or(damaged("weight"))
        }
        None => Ok(count(view)? + Removed::load(view)?.bytes),
    }
}

pub(crate) fn put(batch: &mut Batch, written: u64) {
    batch.put(Column::Meta, WEIGHT, &written.to_be_bytes());
}

/// The rows about the whole, which every store has: few, however many users and members there are.
pub(crate) fn of_own_rows(view: &View) -> Result<u64, ReadError> {
    let mut bytes = 0;
    for key in [FORMAT, REGISTERS, MEMBERSHIP, WEIGHT] {
        if let Some(row) = view.get(Column::Meta, key)? {
            bytes += (key.len() + row.as_ref().len()) as u64;
        }
    }
    Ok(bytes)
}

fn count(view: &View) -> Result<u64, StateError> {
    let mut bytes = 0;
    let mut rows = view.scan_once(Column::Log, &[], None);
    while let Some((_, row)) = rows.row() {
        bytes += of_event(row, LogRow::decode(row).ok_or(damaged("log"))?.key);
        rows.step();
    }
    rows.finish()?;
    Ok(bytes)
}
