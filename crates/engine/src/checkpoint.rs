//! A copy of the whole database at one point in time, mostly by hard links.

use crate::EngineError;
use crate::db::Db;
use std::path::Path;

impl Db {
    /// Makes `path`, which must not exist, a database of its own with everything written so far.
    /// Its directory entry is durable when this returns.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<(), EngineError> {
        self.inner.check_poison()?;
        let path = path.as_ref();
        let failed = |reason: &dyn std::fmt::Display| EngineError::Write {
            path: path.to_owned(),
            reason: format!("checkpoint: {reason}"),
        };
        let checkpoint =
            rocksdb::checkpoint::Checkpoint::new(&self.inner.raw).map_err(|error| failed(&error))?;
        // 0: always flush first. There is no write-ahead log from which a reader of the copy could
        // recover what was still in memory.
        checkpoint.create_checkpoint_with_log_size(path, 0).map_err(|error| failed(&error))
    }
}
