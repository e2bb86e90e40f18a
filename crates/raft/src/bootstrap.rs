//! What a member does once, before it runs: whose directory this is, the log in it, Raft's settings,
//! and the first membership of a cluster that does not exist yet.

use crate::identity::{self, Identity, IdentityError};
use crate::joining::Place;
use crate::log_store::{LogOptions, LogStore};
use crate::node::{InitialNames, NodeOptions, StartError};
use crate::state_machine::MeerkatRaft;
use crate::type_config::PeerNode;
use meerkat_types::{ClusterId, MemberId};
use openraft::{Config, SnapshotPolicy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn bootstrap_members(options: &NodeOptions) -> BTreeMap<MemberId, PeerNode> {
    members_of(&options.initial_cluster, &options.cluster_token)
}

/// The first membership, equal at every first member. Where each knows no name but its own, all go by
/// their ids in it: `member list` shows the names that they tell when they run.
pub(crate) fn first_membership(
    members: BTreeMap<MemberId, PeerNode>,
    names: InitialNames,
) -> BTreeMap<MemberId, PeerNode> {
    let by_id = |(id, node): (MemberId, PeerNode)| (id, PeerNode { name: id.to_string(), ..node });
    match names {
        InitialNames::Agreed => members,
        InitialNames::OwnOnly => members.into_iter().map(by_id).collect(),
    }
}

/// The first members of the cluster that is described by names, peer URLs and a token.
pub(crate) fn members_of(
    cluster: &BTreeMap<String, Vec<String>>,
    token: &str,
) -> BTreeMap<MemberId, PeerNode> {
    let member = |(name, urls): (&String, &Vec<String>)| {
        let id = identity::bootstrap_member_id(urls, token);
        (id, PeerNode { name: name.clone(), peer_urls: urls.clone(), becomes_voter: false })
    };
    cluster.iter().map(member).collect()
}

/// Who this member is, and its log; both made anew in a directory that is new.
pub(crate) async fn take_directory(
    options: &NodeOptions,
    members: &BTreeMap<MemberId, PeerNode>,
) -> Result<(Identity, LogStore), StartError> {
    let (identity, fresh) = take_identity(options, members)?;
    tracing::info!(member = %identity.member, cluster = %identity.cluster, fresh, "starting member");
    let log = open_log(options, &identity, fresh)?;
    if fresh {
        let failed = |source| StartError::Log {
            dir: log_dir(&options.member_dir, options.wal_dir.as_deref()),
            source,
        };
        log.begin().await.map_err(failed)?;
        // After the log: from here on, a directory with an identity and without a log is damaged.
        identity.create(&options.member_dir)?;
    }
    Ok((identity, log))
}

/// The directory's identity, or a new one for a directory that is new.
fn take_identity(
    options: &NodeOptions,
    members: &BTreeMap<MemberId, PeerNode>,
) -> Result<(Identity, bool), StartError> {
    let dir = &options.member_dir;
    let me = members.iter().find(|(_, node)| node.name == options.name).map(|(id, _)| *id);
    if let Some(found) = Identity::read(dir)? {
        if found.name != options.name {
            return Err(IdentityError::OtherMember {
                path: dir.clone(),
                found: found.name,
                expected: options.name.clone(),
            }
            .into());
        }
        return Ok((found, false));
    }
    let place = match (options.place, me) {
        (Some(place), _) => place,
        (None, Some(member)) => Place { cluster: described_cluster(members), member },
        (None, None) => return Err(StartError::NotInCluster { name: options.name.clone() }),
    };
    let identity = Identity {
        name: options.name.clone(),
        cluster: place.cluster,
        member: place.member,
        incarnation: rand::random(),
        joined: options.place.is_some(),
    };
    Ok((identity, true))
}

/// The cluster that the flags describe.
fn described_cluster(members: &BTreeMap<MemberId, PeerNode>) -> ClusterId {
    let ids: Vec<MemberId> = members.keys().copied().collect();
    identity::bootstrap_cluster_id(&ids)
}

/// Whether the member in this directory has taken part in its cluster. One that ended at its very first start
/// may know who it is, and still have to be told who the others are.
pub fn has_begun(member_dir: &Path, wal_dir: Option<&Path>) -> Result<bool, StartError> {
    let Some(identity) = Identity::read(member_dir)? else { return Ok(false) };
    let dir = log_dir(member_dir, wal_dir);
    let failed = |source| StartError::Log { dir: dir.clone(), source };
    // A log that is not there any more is for the start itself to tell of.
    if identity.joined || !LogStore::exists(&dir).map_err(failed)? {
        return Ok(true);
    }
    let log = LogStore::open(LogOptions::new(&dir, identity.cluster, identity.member)).map_err(failed)?;
    let begun = log.has_begun();
    log.close();
    begun.map_err(failed)
}

/// A member that never got to join its cluster must not join another under its old identity.
pub(crate) fn same_cluster(
    options: &NodeOptions,
    identity: &Identity,
    members: &BTreeMap<MemberId, PeerNode>,
) -> Result<(), StartError> {
    let expected_cluster = described_cluster(members);
    if identity.cluster == expected_cluster && members.contains_key(&identity.member) {
        return Ok(());
    }
    Err(IdentityError::OtherCluster {
        path: options.member_dir.clone(),
        found: identity.member,
        found_cluster: identity.cluster,
        expected_cluster,
    }
    .into())
}

fn log_dir(member_dir: &Path, wal_dir: Option<&Path>) -> PathBuf {
    wal_dir.map_or_else(|| member_dir.join("wal"), Path::to_path_buf)
}

fn open_log(options: &NodeOptions, identity: &Identity, fresh: bool) -> Result<LogStore, StartError> {
    let dir = log_dir(&options.member_dir, options.wal_dir.as_deref());
    let found = match &options.ground.log_disk {
        Some(disk) => LogStore::exists_on(disk.as_ref()),
        None => LogStore::exists(&dir),
    };
    match found {
        Ok(true) => {}
        Ok(false) if fresh => {}
        Ok(false) => return Err(StartError::NoLog { dir, member: identity.member }),
        Err(source) => return Err(StartError::Log { dir, source }),
    }
    let log_options = LogOptions {
        dir: dir.clone(),
        cluster_id: identity.cluster,
        member_id: identity.member,
        segment_bytes: options.log_segment_bytes,
        cache_bytes: options.log_cache_bytes,
        no_fsync: options.no_fsync,
    };
    let opened = match &options.ground.log_disk {
        Some(disk) => LogStore::open_on(disk.clone(), log_options),
        None => LogStore::open(log_options),
    };
    opened.map_err(|source| StartError::Log { dir, source })
}

/// How much older than a heartbeat an answer may be to count for it: three intervals, and less than what a
/// follower waits, beyond the leader's own lease, before it stands for election.
pub(crate) fn older_answers(config: &Config) -> Duration {
    let interval = config.heartbeat_interval;
    Duration::from_millis((3 * interval).min(config.election_timeout_min.saturating_sub(interval)))
}

/// etcd's two timings as openraft's: it elects after a silence of its maximum (the lease) plus a
/// random time between its minimum and maximum, so half of etcd's number each gives a new leader in
/// about one election timeout.
pub(crate) fn raft_config(options: &NodeOptions) -> Result<Arc<Config>, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let election_timeout_max = (millis(options.election_timeout) / 2).max(2);
    let config = Config {
        cluster_name: "meerkat".to_owned(),
        // A heartbeat leaves at the first tick after its interval, a fifth of that later at most: so
        // two are never further apart than asked for.
        heartbeat_interval: (millis(options.heartbeat_interval) * 5 / 6).max(1),
        election_timeout_min: (election_timeout_max * 3 / 5).max(1),
        election_timeout_max,
        install_snapshot_timeout: millis(Duration::from_secs(600)),
        max_payload_entries: 2048,
        replication_lag_threshold: u64::MAX,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_pre_vote: Some(options.pre_vote),
        // Linearizable reads rest on it, see `read_index::read_position`.
        enable_leader_restore: Some(false),
        // Its own rule silences a leader after half an election timeout, and for longer than the others
        // wait: a stall that harms nobody would end in an election. See `check_quorum`.
        quorum_loss_probe_interval: None,
        // What waits to be applied while the disk stalls must not hold up the core, and its heartbeats.
        state_machine_channel_size: Some(1 << 13),
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        ..Config::default()
    };
    config.validate().map(Arc::new).map_err(|error| StartError::Raft(error.to_string()))
}

pub(crate) async fn is_initialized(raft: &MeerkatRaft) -> Result<bool, StartError> {
    raft.is_initialized().await.map_err(|error| StartError::Raft(error.to_string()))
}

/// Every first member initializes with the same membership, so it does not matter who is first.
pub(crate) async fn initialize(
    raft: &MeerkatRaft,
    members: BTreeMap<MemberId, PeerNode>,
) -> Result<(), StartError> {
    use openraft::errors::{InitializeError, RaftError};
    match raft.initialize(members).await {
        // A peer was quicker and has already sent us its log.
        Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
        Err(error) => Err(StartError::Raft(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen_by(rows: &[(&str, &str)], names: InitialNames) -> BTreeMap<MemberId, PeerNode> {
        let cluster = rows.iter().map(|(name, url)| ((*name).to_owned(), vec![(*url).to_owned()])).collect();
        first_membership(members_of(&cluster, "token"), names)
    }

    #[test]
    fn members_that_know_no_name_but_their_own_begin_with_one_membership() {
        let of_a = [("a", "http://a:1"), ("0", "http://b:1")];
        let of_b = [("0", "http://a:1"), ("b", "http://b:1")];
        assert_eq!(seen_by(&of_a, InitialNames::OwnOnly), seen_by(&of_b, InitialNames::OwnOnly));
        assert_ne!(seen_by(&of_a, InitialNames::Agreed), seen_by(&of_b, InitialNames::Agreed));
        let agreed = seen_by(&[("a", "http://a:1")], InitialNames::Agreed);
        assert!(agreed.values().all(|node| node.name == "a"));
    }

    #[tokio::test]
    async fn a_member_has_begun_once_its_log_says_so_and_not_when_it_only_knows_who_it_is() {
        use openraft::storage::RaftLogStorage;
        let directory = tempfile::tempdir().expect("a directory");
        let begun = || has_begun(directory.path(), None).expect("nothing is damaged");
        assert!(!begun(), "nothing is there");
        let (cluster, member) = (ClusterId(3), MemberId(5));
        let identity = Identity { name: "a".to_owned(), cluster, member, incarnation: 7, joined: false };
        let open = || {
            let dir = directory.path().join("wal");
            LogStore::open(LogOptions::new(dir, cluster, member)).expect("its log")
        };
        open().begin().await.expect("a new log");
        identity.create(directory.path()).expect("a new identity");
        assert!(!begun(), "only who it is");
        assert!(!begun(), "and to look changes nothing");
        open().save_vote(&crate::type_config::Vote::new(1, member)).await.expect("a promise");
        assert!(begun(), "it has promised something");
        std::fs::remove_dir_all(directory.path().join("wal")).expect("it was there");
        assert!(begun(), "a log that is lost is no beginning");
    }
}
