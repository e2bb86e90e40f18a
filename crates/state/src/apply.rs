//! One entry of the log, applied: one arm for each command.

use crate::LogEntry;
use crate::applied::{Applied, LeaseChange, Payload};
use crate::digest::{Summary, fold_entry};
use crate::error::StateError;
use crate::lease;
use crate::machine::Machine;
use crate::mvcc::store::floor;
use crate::mvcc::write::{WriteTxn, Written};
use crate::schema;
use crate::txn::{self, Check, Path};
use meerkat_types::{
    AssignedToken, Command, Compact, DeleteRange, GrantLease, Lease, LeaseGranted, LeaseId, LeaseNote,
    LogIndex, LogPosition, MemberAttributes, MemberId, Outcome, Proposal, Put, Refusal, Txn,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a command did, before it is noted in the registers.
pub(crate) struct Effect {
    outcome: Outcome,
    pub(crate) written: Written,
    lease: Option<LeaseChange>,
    pub(crate) token: Option<AssignedToken>,
}

impl Effect {
    pub(crate) const fn unwritten(outcome: Outcome) -> Effect {
        Effect { outcome, written: Written { digest: 0, events: None }, lease: None, token: None }
    }

    pub(crate) const fn refused(refusal: Refusal) -> Effect {
        Effect::unwritten(Outcome::Refused(refusal))
    }

    const fn written(outcome: Outcome, written: Written) -> Effect {
        Effect { outcome, written, lease: None, token: None }
    }
}

impl Machine {
    pub(crate) fn apply_one(&mut self, entry: &LogEntry) -> Result<Applied, StateError> {
        let (summary, digest, applied) = match &entry.payload {
            Payload::Blank => (Summary::BLANK, 0, Applied::default()),
            Payload::Membership { members, bytes } => {
                let membership = (entry.position, bytes.clone());
                schema::put_membership(&mut self.store.batch, &membership);
                self.membership = Some(membership);
                self.change_roster(members);
                (Summary::membership(bytes), 0, Applied::default())
            }
            Payload::Command(proposal) => {
                let Effect { outcome, written, lease, token } = self.command(proposal, entry.position)?;
                let summary = Summary::outcome(&outcome);
                let applied = Applied { outcome: Some(outcome), events: written.events, lease, token };
                (summary, written.digest, applied)
            }
        };
        self.digest = fold_entry(self.digest, entry.position, &summary, digest);
        self.applied = Some(entry.position);
        self.mark_digest(entry.position);
        Ok(applied)
    }

    /// `at`: the place of the entry in the log.
    fn command(&mut self, proposal: &Proposal, at: LogPosition) -> Result<Effect, StateError> {
        // Time never goes back, whichever clock a proposer has.
        self.stamp_ms = self.stamp_ms.max(proposal.stamp_ms);
        if let Err(refusal) = self.judge(proposal)? {
            return Ok(Effect::refused(Refusal::Auth(refusal)));
        }
        if let Some(refusal) = self.alarms.forbids(&proposal.command) {
            return Ok(Effect::refused(refusal));
        }
        match &proposal.command {
            Command::Put(put) => self.put(put),
            Command::DeleteRange(delete) => self.delete_range(delete),
            Command::Txn(txn) => self.txn(txn),
            Command::Compact(compact) => Ok(self.compact(*compact)),
            Command::GrantLease(grant) => Ok(self.grant_lease(*grant, at.index)),
            Command::RevokeLease(lease) => self.end_lease(*lease),
            Command::ExpireLease { lease, granted, term } if *term == at.term => {
                self.expire_lease(*lease, *granted)
            }
            Command::NoteLeases { term, notes } if *term == at.term => Ok(self.note_leases(notes)),
            Command::ExpireLease { .. } | Command::NoteLeases { .. } => {
                Ok(Effect::refused(Refusal::OtherTerm))
            }
            Command::PublishMember(member) => Ok(self.publish_member(member)),
            Command::RaiseAlarm { alarm, by } => {
                self.alarms.raise(&mut self.store.batch, *alarm, *by);
                Ok(Effect::unwritten(Outcome::AlarmRaised))
            }
            Command::SetDowngrade(target) => {
                schema::put_downgrade(&mut self.store.batch, target.as_deref());
                self.downgrade = target.as_deref().map(Arc::from);
                Ok(Effect::unwritten(Outcome::DowngradeSet))
            }
            Command::ClearAlarm { alarm, by } => {
                let cleared = self.alarms.clear(&mut self.store.batch, *alarm, *by);
                Ok(Effect::unwritten(Outcome::AlarmCleared(cleared)))
            }
            Command::Auth(command) => Ok(self.auth(command, at)),
        }
    }

    fn put(&mut self, put: &Put) -> Result<Effect, StateError> {
        meerkat_fault::poisoned("poisoned_entry", put.key.as_bytes());
        if !txn::lease_exists(&self.leases, put) {
            return Ok(Effect::refused(Refusal::LeaseNotFound));
        }
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, false);
        let standing = write.standing(put)?;
        if txn::keeps(put) && standing.is_none() {
            return Ok(Effect::refused(Refusal::KeyNotFound));
        }
        let done = write.put(put, standing)?;
        Ok(Effect::written(Outcome::Put(done), write.finish()))
    }

    fn delete_range(&mut self, delete: &DeleteRange) -> Result<Effect, StateError> {
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, false);
        let done = write.delete_range(delete)?;
        Ok(Effect::written(Outcome::DeleteRange(done), write.finish()))
    }

    fn txn(&mut self, txn: &Txn) -> Result<Effect, StateError> {
        let path = Path::choose(&self.store.present(), txn)?;
        let check = Check {
            present: self.store.present(),
            leases: &self.leases,
            revision: self.store.revision,
            compacted: self.store.compacted,
        };
        if let Err(refusal) = check.txn(txn, &path)? {
            return Ok(Effect::refused(refusal));
        }
        // Older revisions are read from what is committed: make that all there is before this entry.
        if txn::reads_the_past(txn) {
            self.commit()?;
        }
        let repeats = txn::may_repeat(txn);
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, repeats);
        let done = txn::execute(&mut write, txn, &path)?;
        Ok(Effect::written(Outcome::Txn(done), write.finish()))
    }

    fn compact(&mut self, compact: Compact) -> Effect {
        let (asked, current) = (compact.revision, self.store.revision);
        let oldest = floor(self.store.compacted);
        let outcome = if asked <= oldest {
            Outcome::Refused(Refusal::Compacted { asked, oldest })
        } else if current < asked {
            Outcome::Refused(Refusal::Future { asked, current })
        } else {
            self.store.compacted = Some(asked);
            Outcome::Compact(current)
        };
        Effect::unwritten(outcome)
    }

    fn grant_lease(&mut self, grant: GrantLease, index: LogIndex) -> Effect {
        if self.leases.contains(grant.id) {
            return Effect::refused(Refusal::LeaseExists);
        }
        let lease = Lease { id: grant.id, granted: index, ttl: grant.ttl, remaining: None };
        self.leases.insert(&mut self.store.batch, lease);
        let revision = self.store.revision;
        let granted = Outcome::LeaseGranted(LeaseGranted { revision, ttl: grant.ttl });
        Effect { lease: Some(LeaseChange::Granted(lease)), ..Effect::unwritten(granted) }
    }

    /// The name may stand for another lease by now, which has not expired.
    fn expire_lease(&mut self, lease: LeaseId, granted: LogIndex) -> Result<Effect, StateError> {
        if self.leases.granted(lease) != Some(granted) {
            return Ok(Effect::refused(Refusal::LeaseNotFound));
        }
        self.end_lease(lease)
    }

    /// Its keys go in one revision, in ascending order.
    fn end_lease(&mut self, lease: LeaseId) -> Result<Effect, StateError> {
        if !self.leases.contains(lease) {
            return Ok(Effect::refused(Refusal::LeaseNotFound));
        }
        // Attachments are read from what is committed: make that all there is before this entry.
        if self.store.attachments_changed {
            self.commit()?;
        }
        let keys = lease::attached(&self.store.committed.view, lease)?;
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, false);
        let revision = write.delete_each(keys)?;
        let written = write.finish();
        self.leases.remove(&mut self.store.batch, lease);
        Ok(Effect {
            outcome: Outcome::LeaseRevoked(revision),
            written,
            lease: Some(LeaseChange::Ended(lease)),
            token: None,
        })
    }

    fn note_leases(&mut self, notes: &[LeaseNote]) -> Effect {
        let mut noted = 0;
        for note in notes {
            noted += u64::from(self.leases.note(&mut self.store.batch, note));
        }
        Effect::unwritten(Outcome::LeasesNoted(noted))
    }

    /// Whoever was in the cluster and is not any more is removed for ever; what it published goes.
    fn change_roster(&mut self, members: &BTreeSet<MemberId>) {
        for gone in self.roster.difference(members) {
            schema::put_removed(&mut self.store.batch, *gone);
            Arc::make_mut(&mut self.removed).insert(*gone);
            Arc::make_mut(&mut self.members).remove(gone);
            self.alarms.forget_member(&mut self.store.batch, *gone);
        }
        self.roster.clone_from(members);
    }

    fn publish_member(&mut self, member: &MemberAttributes) -> Effect {
        if self.removed.contains(&member.member) {
            return Effect::refused(Refusal::MemberRemoved { member: member.member });
        }
        let known = self.members.get(&member.member);
        if known.is_some_and(|known| known.incarnation != member.incarnation) {
            return Effect::refused(Refusal::OtherIncarnation { member: member.member });
        }
        schema::put_member(&mut self.store.batch, member);
        Arc::make_mut(&mut self.members).insert(member.member, member.clone());
        Effect::unwritten(Outcome::MemberPublished)
    }
}
