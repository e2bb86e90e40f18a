//! Users and roles for doors that run inside the member's process: the same ones, judged by the same
//! rules, by what this member knows at the moment.

use crate::auth::{Caller, Credentials, Guard, Proof};
use meerkat_state::{Need, Pinned};
use meerkat_types::{Access, AuthRevision, KeyRange, UserName};

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

    /// Whose token this is, and by which revision of users and roles. `None` without a token, or if nobody
    /// has to say who they are.
    pub async fn user(&self, token: Option<&str>) -> Result<Option<(String, u64)>, BadToken> {
        if token.is_none() || !self.guard.is_on() {
            return Ok(None);
        }
        let caller = self.guard.caller(&Credentials::bearer(token)).await;
        match self.guard.permit(&caller, &[Need::User]).await {
            // Switched off meanwhile.
            Ok(asker) if asker.user.is_none() => Ok(None),
            Ok(asker) => Ok(caller.name().map(|name| (name.to_string(), asker.revision.0))),
            Err(_) => Err(BadToken),
        }
    }

    /// What this member knows of users and roles now.
    pub fn now(&self) -> LocalRules {
        LocalRules { at: self.guard.is_on().then(|| self.guard.pin()) }
    }
}

/// Users and roles as they are at one moment.
pub struct LocalRules {
    /// `None` while nobody has to say who they are.
    at: Option<Pinned>,
}

impl LocalRules {
    /// By which a write can be asked for.
    pub fn revision(&self) -> u64 {
        let enabled = self.at.as_ref().filter(|at| at.auth().is_enabled());
        enabled.map_or(AuthRevision::NONE, |at| at.auth().revision()).0
    }

    /// Whether this user, or nobody, may read all of these keys.
    pub fn may_read(&self, user: Option<&str>, keys: LocalKeys<'_>) -> bool {
        self.may(user, Access::Read, keys)
    }

    /// Whether this user, or nobody, may write all of these keys.
    pub fn may_write(&self, user: Option<&str>, keys: LocalKeys<'_>) -> bool {
        self.may(user, Access::Write, keys)
    }

    /// Whether this is somebody, or nobody has to be.
    pub fn is_known(&self, user: Option<&str>) -> bool {
        self.judge(user, Need::User)
    }

    /// Whether this is an administrator, or nobody has to be.
    pub fn is_admin(&self, user: Option<&str>) -> bool {
        self.judge(user, Need::Admin)
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
        let Some(at) = &self.at else { return true };
        let name = user.and_then(UserName::new);
        let caller = name.map_or(Caller::Nobody, |name| Caller::User { name, proof: Proof::Name });
        caller.may(at, [need]).is_ok()
    }
}
