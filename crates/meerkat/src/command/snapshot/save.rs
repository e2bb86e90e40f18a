//! `snapshot save`: a member's store in a file, whole or not at all.
//!
//! What arrives goes to a file beside the one asked for. It takes that name only when it is as long as
//! announced, closes with its own checksum, and is on disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use meerkat_backup::snapshot::{CHECKSUM_BYTES, Checksum};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::reason;

use super::super::cluster::{Cluster, refused};
use crate::failure::Failure;

pub async fn run(path: &Path, cluster: &Cluster) -> Result<(), Failure> {
    // As etcdctl: a snapshot is of one member, so one must be named.
    let [_] = cluster.endpoints() else {
        return Err(Failure::error("snapshot must be requested to one selected node, not multiple"));
    };
    let mut pieces = cluster
        .maintenance(|mut maintenance| async move { maintenance.snapshot(pb::SnapshotRequest {}).await })
        .await
        .map_err(refused)?;
    let mut part = Part::create(path)?;
    while let Some(piece) = pieces.message().await.map_err(|status| Failure::error(status.message()))? {
        part.take(&piece)?;
    }
    part.finish(path)?;
    println!("Snapshot saved at {}", path.display());
    Ok(())
}

/// The file before it has its name; removed unless it gets it.
struct Part {
    path: PathBuf,
    file: File,
    sum: Checksum,
    remaining: u64,
    named: bool,
}

impl Part {
    fn create(path: &Path) -> Result<Part, Failure> {
        let mut name = path.file_name().ok_or_else(|| Failure::bad_arguments("no file is named"))?.to_owned();
        name.push(".part");
        let part = path.with_file_name(name);
        let file = File::create(&part).map_err(|error| at(&part, &error))?;
        Ok(Part { path: part, file, sum: Checksum::default(), remaining: 0, named: false })
    }

    fn take(&mut self, piece: &pb::SnapshotResponse) -> Result<(), Failure> {
        self.remaining = piece.remaining_bytes;
        self.sum.update(&piece.blob);
        self.file.write_all(&piece.blob).map_err(|error| at(&self.path, &error))
    }

    fn finish(mut self, path: &Path) -> Result<(), Failure> {
        let bytes = self.sum.taken();
        if 0 < self.remaining {
            let missing = self.remaining;
            return Err(Failure::error(format!(
                "the snapshot ended after {bytes} bytes, {missing} before its end; nothing was saved"
            )));
        }
        let (expected, found) = std::mem::take(&mut self.sum).of_stream();
        if found.len() != CHECKSUM_BYTES || found != expected {
            return Err(Failure::error(format!(
                "the {bytes} bytes that arrived do not close with their checksum; nothing was saved"
            )));
        }
        // Its bytes, then its name, then the directory: a crash leaves the old file or the new one.
        self.file.sync_all().map_err(|error| at(&self.path, &error))?;
        fs::rename(&self.path, path).map_err(|error| at(path, &error))?;
        self.named = true;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory).and_then(|dir| dir.sync_all()).map_err(|error| at(directory, &error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.named {
            // It says nothing that the failure does not.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn at(path: &Path, error: &std::io::Error) -> Failure {
    Failure::error(format!("{}: {}", path.display(), reason::of_system(error)))
}
