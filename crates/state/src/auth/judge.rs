//! What a request needs, and whether who asks has it.

use super::book::AuthBook;
use bytes::Bytes;
use meerkat_types::{
    Access, Asker, AuthCommand, AuthRefusal, Command, DeleteRange, KeyRange, LeaseId, NewLease, Put, Txn,
    TxnOp, Way,
};

/// One thing that who asks must be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need<'a> {
    /// To have said who one is, by a token or a certificate, whether there is such a user or not.
    Login,
    /// To be a user that there is.
    User,
    Key(Access, &'a [u8]),
    Keys(Access, &'a KeyRange),
    /// Access to every key that is attached to the lease.
    Lease(Access, LeaseId),
    /// To have the role root.
    Admin,
}

/// All that a command needs, in the order in which a lack of it is told.
pub fn needs(command: &Command) -> Vec<Need<'_>> {
    let mut needs = Vec::new();
    match command {
        Command::Put(put) => of_put(put, &mut needs),
        Command::DeleteRange(delete) => of_delete(delete, &mut needs),
        Command::Txn(txn) => of_txn(txn, &mut needs),
        Command::GrantLease(_) => needs.push(Need::Login),
        Command::RevokeLease(lease) => needs.extend([Need::Login, Need::Lease(Access::Write, *lease)]),
        // Who asks for a token has only a password, which was checked.
        Command::Auth(AuthCommand::AssignToken { .. }) => {}
        // A client may not ask for what only the cluster itself decides.
        Command::Compact(_)
        | Command::ExpireLease { .. }
        | Command::NoteLeases { .. }
        | Command::PublishMember(_)
        | Command::RaiseAlarm { .. }
        | Command::ClearAlarm { .. }
        | Command::SetDowngrade(_)
        | Command::Auth(_) => needs.push(Need::Admin),
    }
    needs
}

/// All that is judged of a command when it is applied.
pub(super) fn needs_when_applied(way: Way, command: &Command) -> Vec<Need<'_>> {
    let mut all = needs(command);
    if way == Way::Door {
        let is_reading = |need: &Need<'_>| {
            matches!(need, Need::Key(Access::Read, _) | Need::Keys(Access::Read, _) | Need::Lease(..))
        };
        all.retain(|need| !is_reading(need));
        // Even of what writes nothing: by the revision.
        all.insert(0, Need::User);
    }
    all
}

/// As [`needs`], of a transaction that is only read.
pub fn needs_of_txn(txn: &Txn) -> Vec<Need<'_>> {
    let mut needs = Vec::new();
    of_txn(txn, &mut needs);
    needs
}

fn of_put<'a>(put: &'a Put, needs: &mut Vec<Need<'a>>) {
    needs.push(Need::Key(Access::Write, put.key.as_bytes()));
    if let NewLease::Set(Some(lease)) = put.lease {
        needs.push(Need::Lease(Access::Write, lease));
    }
    if put.want_previous {
        needs.push(Need::Key(Access::Read, put.key.as_bytes()));
    }
}

fn of_delete<'a>(delete: &'a DeleteRange, needs: &mut Vec<Need<'a>>) {
    needs.push(Need::Keys(Access::Write, &delete.keys));
    if delete.want_previous {
        needs.push(Need::Keys(Access::Read, &delete.keys));
    }
}

/// Both branches, and all that is nested: which one is taken would tell what the compares found.
fn of_txn<'a>(txn: &'a Txn, needs: &mut Vec<Need<'a>>) {
    needs.extend(txn.compares.iter().map(|compare| Need::Keys(Access::Read, &compare.keys)));
    for op in txn.operations() {
        match op {
            TxnOp::Range(query) => needs.push(Need::Keys(Access::Read, &query.keys)),
            TxnOp::Put(put) => of_put(put, needs),
            TxnOp::DeleteRange(delete) => of_delete(delete, needs),
            TxnOp::Txn(inner) => of_txn(inner, needs),
        }
    }
}

impl AuthBook {
    /// Whether who asks has all of this; everybody has while authentication is off. `attached` tells
    /// the keys of a lease.
    pub fn judge<'a, E>(
        &self,
        asker: &Asker,
        needs: impl IntoIterator<Item = Need<'a>>,
        mut attached: impl FnMut(LeaseId) -> Result<Vec<Bytes>, E>,
    ) -> Result<Result<(), AuthRefusal>, E> {
        if !self.is_enabled() {
            return Ok(Ok(()));
        }
        for need in needs {
            let judged = match need {
                Need::Admin => self.admin(asker),
                Need::Login => self.named_asker(asker).map(drop),
                Need::User => self.known_asker(asker).map(drop),
                Need::Key(access, key) => self.has(asker, |user| self.covers_key(user, access, key)),
                Need::Keys(access, keys) => self.has(asker, |user| self.covers(user, access, keys)),
                Need::Lease(access, lease) => {
                    let keys = attached(lease)?;
                    let all = |user: &str| keys.iter().all(|key| self.covers_key(user, access, key));
                    // Without keys there is nothing that a user would be needed for.
                    if keys.is_empty() { self.named_asker(asker).map(drop) } else { self.has(asker, all) }
                }
            };
            if judged.is_err() {
                return Ok(judged);
            }
        }
        Ok(Ok(()))
    }

    fn has(&self, asker: &Asker, allowed: impl FnOnce(&str) -> bool) -> Result<(), AuthRefusal> {
        let user = self.known_asker(asker)?;
        if allowed(user) { Ok(()) } else { Err(AuthRefusal::PermissionDenied) }
    }

    /// Somebody that there is, and that was let in by what is known now.
    fn known_asker<'a>(&self, asker: &'a Asker) -> Result<&'a str, AuthRefusal> {
        let user = self.named_asker(asker)?;
        self.is_root(user).map(|_| user).ok_or(AuthRefusal::PermissionDenied)
    }

    /// Somebody with a name, that was let in by what is known now.
    fn named_asker<'a>(&self, asker: &'a Asker) -> Result<&'a str, AuthRefusal> {
        let user = asker.user.as_ref().ok_or(AuthRefusal::UserEmpty)?.as_str();
        if asker.revision == self.revision() { Ok(user) } else { Err(AuthRefusal::OldRevision) }
    }

    /// As etcd: by the role alone, so that two administrators do not get in each other's way.
    fn admin(&self, asker: &Asker) -> Result<(), AuthRefusal> {
        let user = asker.user.as_ref().ok_or(AuthRefusal::UserEmpty)?.as_str();
        match self.is_root(user) {
            None => Err(AuthRefusal::UserNotFound),
            Some(false) => Err(AuthRefusal::PermissionDenied),
            Some(true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
