//! One entry of the log, applied: one arm for each command.

use crate::LogEntry;
use crate::applied::{Applied, Payload};
use crate::digest::{Summary, fold_entry};
use crate::error::StateError;
use crate::machine::Machine;
use crate::mvcc::write::{WriteTxn, Written};
use crate::schema;
use crate::txn::{self, Check, Path};
use meerkat_types::{
    Command, Compact, DeleteRange, MemberAttributes, Outcome, Proposal, Put, Refusal, Revision, Txn,
};
use std::sync::Arc;

/// What a command did, before it is noted in the registers.
struct Effect {
    outcome: Outcome,
    written: Written,
}

impl Effect {
    const fn unwritten(outcome: Outcome) -> Effect {
        Effect { outcome, written: Written { digest: 0, events: None } }
    }
}

impl Machine {
    pub(crate) fn apply_one(&mut self, entry: &LogEntry) -> Result<Applied, StateError> {
        let (summary, digest, applied) = match &entry.payload {
            Payload::Blank => (Summary::BLANK, 0, Applied::default()),
            Payload::Membership(bytes) => {
                let membership = (entry.position, bytes.clone());
                schema::put_membership(&mut self.store.batch, &membership);
                self.membership = Some(membership);
                (Summary::membership(bytes), 0, Applied::default())
            }
            Payload::Command(proposal) => {
                let Effect { outcome, written } = self.command(proposal)?;
                let summary = Summary::outcome(&outcome);
                (summary, written.digest, Applied { outcome: Some(outcome), events: written.events })
            }
        };
        self.digest = fold_entry(self.digest, entry.position, &summary, digest);
        self.applied = Some(entry.position);
        Ok(applied)
    }

    fn command(&mut self, proposal: &Proposal) -> Result<Effect, StateError> {
        // Time never goes back, whichever clock a proposer has.
        self.stamp_ms = self.stamp_ms.max(proposal.stamp_ms);
        match &proposal.command {
            Command::Put(put) => self.put(put),
            Command::DeleteRange(delete) => self.delete_range(delete),
            Command::Txn(txn) => self.txn(txn),
            Command::Compact(compact) => Ok(self.compact(*compact)),
            Command::PublishMember(member) => Ok(self.publish_member(member)),
        }
    }

    fn put(&mut self, put: &Put) -> Result<Effect, StateError> {
        if txn::attaches(put) {
            return Ok(Effect::unwritten(Outcome::Refused(Refusal::LeaseNotFound)));
        }
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, false);
        let standing = write.standing(put)?;
        if txn::keeps(put) && standing.is_none() {
            return Ok(Effect::unwritten(Outcome::Refused(Refusal::KeyNotFound)));
        }
        let done = write.put(put, standing)?;
        Ok(Effect { outcome: Outcome::Put(done), written: write.finish() })
    }

    fn delete_range(&mut self, delete: &DeleteRange) -> Result<Effect, StateError> {
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, false);
        let done = write.delete_range(delete)?;
        Ok(Effect { outcome: Outcome::DeleteRange(done), written: write.finish() })
    }

    fn txn(&mut self, txn: &Txn) -> Result<Effect, StateError> {
        let path = Path::choose(&self.store.present(), txn)?;
        let check = Check {
            present: self.store.present(),
            revision: self.store.revision,
            compacted: self.store.compacted,
        };
        if let Err(refusal) = check.txn(txn, &path)? {
            return Ok(Effect::unwritten(Outcome::Refused(refusal)));
        }
        // Older revisions are read from what is committed: make that all there is before this entry.
        if txn::reads_the_past(txn) {
            self.commit()?;
        }
        let repeats = txn::may_repeat(txn);
        let mut write = WriteTxn::begin(&mut self.store, self.stamp_ms, self.publish_events, repeats);
        let done = txn::execute(&mut write, txn, &path)?;
        Ok(Effect { outcome: Outcome::Txn(done), written: write.finish() })
    }

    fn compact(&mut self, compact: Compact) -> Effect {
        let (asked, current) = (compact.revision, Revision::new(self.store.revision));
        let outcome = if asked.get() <= self.store.compacted {
            Outcome::Refused(Refusal::Compacted { asked, oldest: Revision::new(self.store.compacted) })
        } else if current < asked {
            Outcome::Refused(Refusal::Future { asked, current })
        } else {
            self.store.compacted = asked.get();
            Outcome::Compact(current)
        };
        Effect::unwritten(outcome)
    }

    fn publish_member(&mut self, member: &MemberAttributes) -> Effect {
        let known = self.members.get(&member.member.0);
        if known.is_some_and(|known| known.incarnation != member.incarnation) {
            let refusal = Refusal::OtherIncarnation { member: member.member };
            return Effect::unwritten(Outcome::Refused(refusal));
        }
        schema::put_member(&mut self.store.batch, member);
        Arc::make_mut(&mut self.members).insert(member.member.0, member.clone());
        Effect::unwritten(Outcome::MemberPublished)
    }
}
