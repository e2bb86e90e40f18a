//! `snapshot restore`: a member's data directory from a backup, without a cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use meerkat_backup::snapshot::HashCheck;
use meerkat_server::Config;
use meerkat_server::config::RawFlags;
use meerkat_server::restore::{REVISION_BUMP, Restored, RestoredRevision, restore};

use crate::failure::Failure;

#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct RestoreArgs {
    #[arg(value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Path to the data directory [default: NAME.etcd]
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Path to the directory of the log, if it is to be apart
    #[arg(long)]
    wal_dir: Option<PathBuf>,
    /// Human-readable name for this member
    #[arg(long, default_value = "default")]
    name: String,
    /// Every member of the new cluster: NAME=URL, comma-separated
    #[arg(long, default_value = "default=http://localhost:2380")]
    initial_cluster: String,
    /// Token of the new cluster: one that no other cluster on this network has
    #[arg(long, default_value = "etcd-cluster")]
    initial_cluster_token: String,
    /// This member's peer URLs
    #[arg(long, default_value = "http://localhost:2380")]
    initial_advertise_peer_urls: String,
    /// Take a file that has no checksum, such as the database of a data directory
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    skip_hash_check: bool,
    /// How far above the saved revision the store begins, everything before it compacted; 0: the saved
    /// revision itself, with its history [default: 1000000000]
    #[arg(long)]
    bump_revision: Option<u64>,
    /// Implied by a revision that is bumped
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    mark_compacted: Option<bool>,
}

pub fn run(mut args: RestoreArgs) -> Result<(), Failure> {
    let (Some(file), true) = (args.file.pop(), args.file.is_empty()) else {
        return Err(Failure::bad_arguments("snapshot restore requires exactly one argument"));
    };
    let target = target(args.bump_revision, args.mark_compacted)?;
    let check = if args.skip_hash_check { HashCheck::Skipped } else { HashCheck::Required };
    let config = Config::from_flags(RawFlags {
        name: args.name,
        data_dir: args.data_dir,
        wal_dir: args.wal_dir,
        initial_cluster: Some(args.initial_cluster),
        initial_cluster_token: args.initial_cluster_token,
        initial_advertise_peer_urls: Some(args.initial_advertise_peer_urls),
        ..RawFlags::default()
    });
    let config = config.map_err(|error| Failure::error(error.to_string()))?;
    let restored =
        restore(&config, &file, check, target).map_err(|error| Failure::error(error.to_string()))?;
    tell_members(&restored, &config);
    report(&restored, &config);
    Ok(())
}

/// A line for each member of the new cluster, as etcd's tool logs it on stderr.
fn tell_members(restored: &Restored, config: &Config) {
    let mut members: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, url) in &config.initial_cluster {
        members.entry(name).or_default().push(url.to_string());
    }
    for (name, urls) in &members {
        let added = serde_json::json!({
            "cluster-id": restored.cluster.to_string(),
            "local-member-id": restored.member.to_string(),
            "added-peer-id": config.bootstrap_member_id_of(name).to_string(),
            "added-peer-peer-urls": urls,
            "added-peer-is-learner": false,
        });
        eprintln!("info\tadded member\t{added}");
    }
}

fn target(bump: Option<u64>, mark_compacted: Option<bool>) -> Result<RestoredRevision, Failure> {
    match (bump, mark_compacted) {
        (Some(0), Some(true)) => Err(Failure::bad_arguments("--mark-compacted needs --bump-revision > 0")),
        (Some(0), _) => Ok(RestoredRevision::AsSaved),
        // etcd refuses this too: readers would be left with revisions that never were.
        (_, Some(false)) => Err(Failure::bad_arguments(
            "--mark-compacted=false needs --bump-revision 0: what lies between the saved revision and the bumped one never was",
        )),
        (bump, _) => Ok(RestoredRevision::Bumped(bump.unwrap_or(REVISION_BUMP))),
    }
}

fn report(restored: &Restored, config: &Config) {
    let Restored { saved_revision, revision, compacted, events, leases, .. } = restored;
    println!(
        "Restored member {} of cluster {} into {}: {events} events and {leases} leases, saved at revision {saved_revision}",
        restored.member,
        restored.cluster,
        config.data_dir.display()
    );
    if revision == compacted && revision != saved_revision {
        println!(
            "The store begins at revision {revision}; whoever comes with an older one is told to list again"
        );
    }
    if 0 < restored.users + restored.roles {
        let auth = if restored.auth_enabled { "on" } else { "off" };
        let Restored { users, roles, .. } = restored;
        println!("Authentication is {auth}, with {users} users and {roles} roles");
    }
    for alarm in &restored.alarms {
        println!("The alarm {} of member {} is on", alarm.kind, alarm.member);
    }
    for alarm in &restored.alarms_left {
        println!(
            "The alarm {} of member {} is left out, which is not of the new cluster",
            alarm.kind, alarm.member
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bump: Option<u64>, mark: Option<bool>, expected: Option<RestoredRevision>) {
        assert_eq!(target(bump, mark).ok(), expected, "{bump:?} {mark:?}");
    }

    #[test]
    fn a_restore_bumps_unless_told_not_to() {
        check(None, None, Some(RestoredRevision::Bumped(REVISION_BUMP)));
        check(None, Some(true), Some(RestoredRevision::Bumped(REVISION_BUMP)));
        check(Some(7), None, Some(RestoredRevision::Bumped(7)));
        check(Some(7), Some(true), Some(RestoredRevision::Bumped(7)));
        check(Some(7), Some(false), None);
        check(Some(0), None, Some(RestoredRevision::AsSaved));
        check(Some(0), Some(false), Some(RestoredRevision::AsSaved));
        check(Some(0), Some(true), None);
    }
}
