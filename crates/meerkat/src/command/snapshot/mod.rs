//! `snapshot save | status | restore | import`: backups, which are etcd's own snapshot files.
//!
//! `restore` and `import` are one door: a file of etcd's and one of ours differ in nothing.

mod restore;
mod save;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use meerkat_backup::snapshot::SnapshotFile;

use super::cluster::Cluster;
use crate::failure::Failure;
use crate::print::{self, Answer, Format, Style};

/// Backups: saves a member's store to a file, looks into one, makes a new cluster from one
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Subcommand, Debug)]
enum SnapshotCommand {
    /// Stores an etcd snapshot of one endpoint to a given file
    Save {
        #[arg(value_name = "FILE")]
        file: Vec<PathBuf>,
    },
    /// Gets the status of a given file
    Status {
        #[arg(value_name = "FILE")]
        file: Vec<PathBuf>,
    },
    /// Restores a snapshot, of Meerkat or of etcd, to a member's data directory
    Restore(restore::RestoreArgs),
    /// The same as restore
    Import(restore::RestoreArgs),
}

pub async fn run(args: SnapshotArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match args.command {
        SnapshotCommand::Save { file } => save::run(&one(file, "save")?, cluster).await,
        SnapshotCommand::Status { file } => status(&one(file, "status")?, style),
        SnapshotCommand::Restore(args) | SnapshotCommand::Import(args) => restore::run(args),
    }
}

fn one(mut files: Vec<PathBuf>, command: &str) -> Result<PathBuf, Failure> {
    match (files.pop(), files.is_empty()) {
        (Some(file), true) => Ok(file),
        _ => Err(Failure::bad_arguments(format!("snapshot {command} expects one argument"))),
    }
}

fn status(file: &std::path::Path, style: Style) -> Result<(), Failure> {
    if style.format == Format::Protobuf {
        return Err(Failure::bad_feature("protobuf not supported as output format"));
    }
    let snapshot = SnapshotFile::open_to_look(file).map_err(|error| Failure::error(error.to_string()))?;
    let status = snapshot.status().map_err(|error| Failure::error(error.to_string()))?;
    print::show(&Answer::Snapshot(status), style)
}
