//! One entry of the log: may who asked have this done, and what a change of users and roles does.

use super::book::Change;
use super::judge::{Need, needs_when_applied};
use super::row;
use crate::apply::Effect;
use crate::error::StateError;
use crate::lease;
use crate::machine::Machine;
use meerkat_engine::Column;
use meerkat_types::{
    AssignedToken, AuthCommand, AuthDone, AuthRefusal, LogPosition, Outcome, Proposal, Refusal,
};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

impl Machine {
    /// Judged here, where all members know the same, and not only where the request was let in.
    pub(crate) fn judge(&mut self, proposal: &Proposal) -> Result<Result<(), AuthRefusal>, StateError> {
        let Some(asker) = proposal.asker.as_ref().filter(|_| self.auth.is_enabled()) else {
            return Ok(Ok(()));
        };
        let needs = needs_when_applied(asker.way, &proposal.command);
        // Attachments are read from what is committed: make that all there is before this entry.
        if self.store.attachments_changed && needs.iter().any(|need| matches!(need, Need::Lease(..))) {
            self.commit()?;
        }
        let view = &self.store.committed.view;
        self.auth.judge(asker, needs, |lease| lease::attached(view, lease))
    }

    pub(crate) fn auth(&mut self, command: &AuthCommand, at: LogPosition) -> Effect {
        let (done, changes) = match Arc::make_mut(&mut self.auth).change(command, at.index) {
            Ok(done) => done,
            Err(refusal) => return Effect::refused(Refusal::Auth(refusal)),
        };
        let mut effect = Effect::unwritten(Outcome::Auth(done));
        if let (AuthCommand::AssignToken { user, token, .. }, AuthDone::TokenAssigned { index }) =
            (command, done)
        {
            effect.token = Some(AssignedToken { token: *token, user: user.clone(), index });
            return effect;
        }
        let mut digest = self.write_auth_row(0, row::AUTH, Some(row::encode_head(&self.auth)));
        for change in changes {
            let (key, row) = match change {
                Change::User(name) => {
                    (row::user_key(&name), self.auth.user(name.as_str()).map(row::encode_user))
                }
                Change::Role(name) => {
                    (row::role_key(&name), self.auth.role(name.as_str()).map(row::encode_role))
                }
            };
            digest = self.write_auth_row(digest, &key, row);
        }
        effect.written.digest = digest;
        effect
    }

    /// Writes or removes a row, and takes it into the digest of the entry.
    fn write_auth_row(&mut self, digest: u128, key: &[u8], row: Option<Vec<u8>>) -> u128 {
        let mut link = digest.to_be_bytes().to_vec();
        link.extend_from_slice(&xxh3_128(key).to_be_bytes());
        match row {
            Some(row) => {
                link.extend_from_slice(&xxh3_128(&row).to_be_bytes());
                self.store.batch.put(Column::Meta, key, &row);
            }
            None => self.store.batch.delete(Column::Meta, key),
        }
        xxh3_128(&link)
    }
}
