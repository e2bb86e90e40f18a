//! A member's directory made from a backup, offline.
//!
//! Always true:
//! * The state is not what the empty state and the log give, so the log must never look as if it were:
//!   it begins purged, at the position that the state says it was applied up to. Whoever needs what is
//!   older is sent a snapshot.
//! * Every member of the new cluster that is restored from the same backup, with the same members, comes
//!   out the same: position, membership, rows, digest. The cluster's id comes from the digest too, so a
//!   member restored from another backup, or begun empty, is a stranger and is turned away.
//! * The directory gets its name when it is whole and on disk. Before that it is called `restoring`, and
//!   no member starts from it.

use crate::bootstrap::members_of;
use crate::identity::{self, Identity, IdentityError, sync_dir};
use crate::log_store::{LogOptions, LogStore, codec};
use crate::snapshot::state_dir::StateDir;
use crate::type_config::{LogId, Membership, PeerNode, StoredMembership, TypeConfig, Vote};
use meerkat_engine::{Db, DbOptions, EngineError};
use meerkat_state::{Import, ImportEnd, ImportError};
use meerkat_types::{LogIndex, LogPosition, MemberId, Revision, Term};
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::{CommittedLeaderIdOf, LeaderIdOf};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The one entry that the log counts as having had. Not the first, which is index 0: a member that has
/// only the first membership must be behind it.
const TERM: Term = Term(1);
const INDEX: LogIndex = LogIndex(1);

/// Who is restored, and where to.
#[derive(Clone, Debug)]
pub struct NewMember {
    pub name: String,
    /// Must be missing or empty.
    pub data_dir: PathBuf,
    /// Where the log is kept, if not in `data_dir`.
    pub wal_dir: Option<PathBuf>,
    /// Name and peer URLs of every member of the new cluster.
    pub initial_cluster: BTreeMap<String, Vec<String>>,
    pub cluster_token: String,
    pub db: DbOptions,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{dir} is not empty; restore into a new directory")]
    NotEmpty { dir: PathBuf },
    #[error("{0:?} is not in --initial-cluster")]
    NotInCluster(String),
    #[error("two members of --initial-cluster have the same addresses")]
    SameMember,
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("the membership cannot be made: {0}")]
    Membership(String),
}

/// A directory being made.
pub struct Restore {
    member: NewMember,
    members: BTreeMap<MemberId, PeerNode>,
    me: MemberId,
    // Closed before the directory that it is in may be removed.
    import: Import,
    building: Building,
}

/// The directory before it has its name: removed again unless it gets there.
struct Building {
    path: PathBuf,
    finished: bool,
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(dir = %self.path.display(), %error, "an unfinished restore could not be removed");
        }
    }
}

impl Restore {
    pub fn begin(member: NewMember) -> Result<Restore, RestoreError> {
        let members = members_of(&member.initial_cluster, &member.cluster_token);
        if members.len() != member.initial_cluster.len() {
            return Err(RestoreError::SameMember);
        }
        let me = members.iter().find(|(_, node)| node.name == member.name).map(|(id, _)| *id);
        let me = me.ok_or_else(|| RestoreError::NotInCluster(member.name.clone()))?;
        for dir in std::iter::once(&member.data_dir).chain(&member.wal_dir) {
            refuse_unless_empty(dir)?;
        }
        let path = member.data_dir.join("restoring");
        let failed = |source| RestoreError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(failed)?;
        let building = Building { path: path.clone(), finished: false };
        let state = StateDir::open(&path).and_then(|dir| dir.current()).map_err(failed)?;
        let import = Import::begin(Db::open(state, &member.db)?)?;
        Ok(Restore { member, members, me, import, building })
    }

    pub fn import(&mut self) -> &mut Import {
        &mut self.import
    }

    /// Whether the new cluster begins with this member.
    pub fn is_member(&self, member: MemberId) -> bool {
        self.members.contains_key(&member)
    }

    /// Makes it the directory of a member that can be started.
    pub fn finish(self, revision: Revision, compacted: Option<Revision>) -> Result<Identity, RestoreError> {
        let Restore { member, members, me, mut building, import } = self;
        let ids: Vec<MemberId> = members.keys().copied().collect();
        let node = members.keys().next().copied().unwrap_or_default();
        let log_id = LogId {
            leader_id: CommittedLeaderIdOf::<TypeConfig> { term: TERM.0, node_id: node },
            index: INDEX.0,
        };
        let position = LogPosition { term: TERM, node, index: INDEX };
        let voters: BTreeSet<MemberId> = members.keys().copied().collect();
        let membership = Membership::new(vec![voters], members)
            .map_err(|error| RestoreError::Membership(error.to_string()))?;
        let membership = codec::encode_membership(&StoredMembership::new(Some(log_id), membership));
        let digest = import.finish(&ImportEnd { revision, compacted, position, membership })?;
        let identity = Identity {
            name: member.name.clone(),
            cluster: identity::restored_cluster_id(&ids, &digest.bytes),
            member: me,
            incarnation: rand::random(),
            joined: false,
        };
        let wal_dir = member.wal_dir.clone().unwrap_or_else(|| building.path.join("wal"));
        begin_log(&wal_dir, &identity, log_id)
            .map_err(|source| RestoreError::Io { path: wal_dir.clone(), source })?;
        identity.create(&building.path)?;
        let done = member.data_dir.join("member");
        let failed = |source| RestoreError::Io { path: done.clone(), source };
        fs::rename(&building.path, &done).map_err(failed)?;
        building.finished = true;
        sync_dir(&member.data_dir).map_err(failed)?;
        Ok(identity)
    }
}

/// A log that has lost everything up to `purged`, and has promised nothing beyond it.
fn begin_log(dir: &Path, identity: &Identity, purged: LogId) -> io::Result<()> {
    let mut log = LogStore::open(LogOptions::new(dir, identity.cluster, identity.member))?;
    let leader_id =
        LeaderIdOf::<TypeConfig> { term: purged.leader_id.term, node_id: purged.leader_id.node_id };
    futures::executor::block_on(async {
        log.save_vote(&Vote { leader_id, committed: false }).await?;
        log.purge(purged).await?;
        log.save_committed(Some(purged)).await?;
        log.sync_barrier().await
    })?;
    log.close();
    Ok(())
}

fn refuse_unless_empty(dir: &Path) -> Result<(), RestoreError> {
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(RestoreError::NotEmpty { dir: dir.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(RestoreError::Io { path: dir.to_owned(), source }),
    }
}
