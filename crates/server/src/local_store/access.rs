//! Users and roles for doors that run inside the member's process: the same ones, judged by the same
//! rules, by what this member knows at the moment.

use crate::auth::{Caller, Credentials, Guard, Proof};
use meerkat_state::{Need, Pinned};
use meerkat_types::{Access, KeyRange, Refusal, UserName};

/// A handle to the users and roles of this member. Clones are the same.
#[derive(Clone)]
pub struct LocalAccess {
    guard: Guard,
}

/// What is to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalKeys<'a> {
    One(&'a str),
    Prefix(&'a str),
}

/// The token is not known, or not any more, or users have changed since it was signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token is not valid, or not any more: log in again")]
pub struct BadToken;

impl LocalAccess {
    pub(crate) fn new(guard: Guard) -> LocalAccess {
        LocalAccess { guard }
    }

    /// Whose token this is. `None` without a token, or if nobody has to say who they are.
    pub async fn user(&self, token: Option<&str>) -> Result<Option<String>, BadToken> {
        if token.is_none() || !self.guard.is_on() {
            return Ok(None);
        }
        let caller = self.guard.caller(&Credentials::bearer(token)).await;
        match self.guard.permit(&caller, &[Need::User]).await {
            // Switched off meanwhile.
            Ok(asker) if asker.user.is_none() => Ok(None),
            Ok(_) => Ok(caller.name().map(ToString::to_string)),
            Err(_) => Err(BadToken),
        }
    }

    /// Whether this user, or nobody, may read all of these keys now.
    pub fn may_read(&self, user: Option<&str>, keys: LocalKeys<'_>) -> bool {
        self.may(user, Access::Read, keys)
    }

    /// Whether this user, or nobody, may write all of these keys now.
    pub fn may_write(&self, user: Option<&str>, keys: LocalKeys<'_>) -> bool {
        self.may(user, Access::Write, keys)
    }

    /// Whether this is somebody, or nobody has to be.
    pub fn is_known(&self, user: Option<&str>) -> bool {
        self.judge(user, Need::User)
    }

    fn may(&self, user: Option<&str>, access: Access, keys: LocalKeys<'_>) -> bool {
        match keys {
            LocalKeys::One(key) => self.judge(user, Need::Key(access, key.as_bytes())),
            LocalKeys::Prefix(prefix) => {
                self.judge(user, Need::Keys(access, &KeyRange::prefix(prefix.as_bytes())))
            }
        }
    }

    fn judge(&self, user: Option<&str>, need: Need<'_>) -> bool {
        if !self.guard.is_on() {
            return true;
        }
        let name = user.and_then(UserName::new);
        let caller = name.map_or(Caller::Nobody, |name| Caller::User { name, proof: Proof::Name });
        let judged: Result<(), Refusal> = caller.may(&self.pin(), [need]);
        judged.is_ok()
    }

    fn pin(&self) -> Pinned {
        self.guard.pin()
    }
}
