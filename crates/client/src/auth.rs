//! Users, roles and permissions; and this client's own token.
//!
//! Always true: many calls that meet one stale token log in once; a login never waits longer than
//! the call that needs it.

use crate::Client;
use crate::call::{Attempt, Done, Failed};
use crate::error::{Error, Fate};
use crate::keys::Keys;
use crate::retry::CallKind;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::auth as wire;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::auth_client::AuthClient;
use meerkat_types::{Key, KeyRange};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

impl Client {
    /// Users, roles and permissions.
    pub fn auth(&self) -> Auth {
        Auth { client: self.clone() }
    }

    /// Gets a new token if the one numbered `seen` is still the current one. False if this client
    /// has no user to log in as.
    pub(crate) async fn renew_token(&self, seen: u64, timeout: Duration) -> Result<bool, Error> {
        let Some(login) = &self.pool().config().login else { return Ok(false) };
        let credentials = self.pool().credentials();
        let turn = tokio::time::timeout(timeout, self.shared().login.lock()).await;
        let Ok(_turn) = turn else {
            return Err(Error::unreachable("the login that this request waits for did not end in time"));
        };
        if credentials.generation() != seen {
            return Ok(true);
        }
        let request = pb::AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        match self.authenticate(request, timeout).await {
            Ok(done) => {
                let token = done.answer.token.parse();
                credentials.set(Some(token.map_err(|_| {
                    Error::garbled(Fate::NotDone, "the cluster gave a token that cannot be sent")
                })?));
                Ok(true)
            }
            // Nobody asks for tokens yet. When that changes, a call will be told.
            Err(failed) if failed.error.etcd() == Some(EtcdError::AuthNotEnabled) => {
                credentials.set(None);
                Ok(true)
            }
            Err(failed) => Err(failed.error),
        }
    }

    /// Boxed, because a call may log in and a login is a call.
    fn authenticate(
        &self,
        message: pb::AuthenticateRequest,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Done<pb::AuthenticateResponse>, Failed>> + Send + '_>> {
        Box::pin(async move {
            let send = |attempt: Attempt| {
                let request = attempt.request(message.clone());
                async move { client(&attempt).authenticate(request).await }
            };
            self.call(CallKind::Login, Some(timeout), send).await
        })
    }
}

fn client(attempt: &Attempt) -> AuthClient<crate::balancer::Wire> {
    AuthClient::new(attempt.wire.clone())
}

/// Users, roles and permissions of a cluster.
#[derive(Clone, Debug)]
pub struct Auth {
    client: Client,
}

/// Whether the cluster asks who one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthStatus {
    /// It does.
    pub enabled: bool,
    /// Counts the changes to users and roles.
    pub auth_revision: u64,
}

/// What a role may do with some keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permission {
    /// What it may do.
    pub access: Access,
    /// With which keys, as the whole cluster names them.
    pub keys: KeyRange,
}

/// Kinds of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// May read.
    Read,
    /// May write and delete.
    Write,
    /// May do both.
    ReadWrite,
}

impl Access {
    fn wire(self) -> i32 {
        match self {
            Access::Read => wire::permission::Type::Read,
            Access::Write => wire::permission::Type::Write,
            Access::ReadWrite => wire::permission::Type::Readwrite,
        }
        .into()
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $of:ty),*) -> $kind:ident, $method:ident, $request:expr;)*) => {
        impl Auth {
            $($(#[$doc])*
            ///
            /// # Errors
            /// If the cluster refuses, or does not answer in time.
            pub async fn $name(&self, $($arg: impl Into<$of>),*) -> Result<(), Error> {
                $(let $arg: $of = $arg.into();)*
                let message = $request;
                let send = |attempt: Attempt| {
                    let request = attempt.request(message.clone());
                    async move { client(&attempt).$method(request).await }
                };
                self.client.call(CallKind::$kind, None, send).await?;
                Ok(())
            })*
        }
    };
}

calls! {
    /// Begins to ask everyone who they are. Needs a user `root` with the role `root`.
    enable() -> Idempotent, auth_enable, pb::AuthEnableRequest {};
    /// Stops asking.
    disable() -> Write, auth_disable, pb::AuthDisableRequest {};
    /// Adds a user with a password.
    user_add(name: String, password: String) -> Write, user_add,
        pb::AuthUserAddRequest { name, password, ..Default::default() };
    /// Adds a user who logs in by certificate only.
    user_add_without_password(name: String) -> Write, user_add,
        pb::AuthUserAddRequest {
            name,
            options: Some(wire::UserAddOptions { no_password: true }),
            ..Default::default()
        };
    /// Removes a user.
    user_delete(name: String) -> Write, user_delete, pb::AuthUserDeleteRequest { name };
    /// Gives a user another password.
    user_change_password(name: String, password: String) -> Idempotent, user_change_password,
        pb::AuthUserChangePasswordRequest { name, password, ..Default::default() };
    /// Gives a user a role.
    user_grant_role(user: String, role: String) -> Idempotent, user_grant_role,
        pb::AuthUserGrantRoleRequest { user, role };
    /// Takes a role from a user.
    user_revoke_role(name: String, role: String) -> Write, user_revoke_role,
        pb::AuthUserRevokeRoleRequest { name, role };
    /// Adds a role that may do nothing yet.
    role_add(name: String) -> Write, role_add, pb::AuthRoleAddRequest { name };
    /// Removes a role, from its users too.
    role_delete(role: String) -> Write, role_delete, pb::AuthRoleDeleteRequest { role };
}

impl Auth {
    /// Whether the cluster asks who one is.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn status(&self) -> Result<AuthStatus, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::AuthStatusRequest {});
            async move { client(&attempt).auth_status(request).await }
        };
        let done = self.client.call(CallKind::Read, None, send).await?;
        Ok(AuthStatus { enabled: done.answer.enabled, auth_revision: done.answer.auth_revision })
    }

    /// The roles of a user.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn user(&self, name: impl Into<String>) -> Result<Vec<String>, Error> {
        let message = pb::AuthUserGetRequest { name: name.into() };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).user_get(request).await }
        };
        Ok(self.client.call(CallKind::Read, None, send).await?.answer.roles)
    }

    /// All users.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn users(&self) -> Result<Vec<String>, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::AuthUserListRequest {});
            async move { client(&attempt).user_list(request).await }
        };
        Ok(self.client.call(CallKind::Read, None, send).await?.answer.users)
    }

    /// What a role may do.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn role(&self, role: impl Into<String>) -> Result<Vec<Permission>, Error> {
        let message = pb::AuthRoleGetRequest { role: role.into() };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).role_get(request).await }
        };
        let done = self.client.call(CallKind::Read, None, send).await?;
        Ok(done.answer.perm.into_iter().filter_map(permission).collect())
    }

    /// All roles.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn roles(&self) -> Result<Vec<String>, Error> {
        let send = |attempt: Attempt| {
            let request = attempt.request(pb::AuthRoleListRequest {});
            async move { client(&attempt).role_list(request).await }
        };
        Ok(self.client.call(CallKind::Read, None, send).await?.answer.roles)
    }

    /// Lets a role do something with these keys, in place of what it could do with exactly them.
    /// Keys are those of this client's namespace.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn role_grant(
        &self,
        role: impl Into<String>,
        access: Access,
        keys: impl Into<Keys>,
    ) -> Result<(), Error> {
        let range = self.client.prefix().wrap_range(keys.into().range()?);
        let (range_end, key) = (range.range_end(), range.first().bytes().clone());
        let perm = Some(wire::Permission { perm_type: access.wire(), key, range_end });
        let message = pb::AuthRoleGrantPermissionRequest { name: role.into(), perm };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).role_grant_permission(request).await }
        };
        self.client.call(CallKind::Idempotent, None, send).await?;
        Ok(())
    }

    /// Takes from a role what it could do with exactly these keys.
    ///
    /// # Errors
    /// If the cluster refuses, or does not answer in time.
    pub async fn role_revoke(&self, role: impl Into<String>, keys: impl Into<Keys>) -> Result<(), Error> {
        let range = self.client.prefix().wrap_range(keys.into().range()?);
        let (range_end, key) = (range.range_end(), range.first().bytes().clone());
        let message = pb::AuthRoleRevokePermissionRequest { role: role.into(), key, range_end };
        let send = |attempt: Attempt| {
            let request = attempt.request(message.clone());
            async move { client(&attempt).role_revoke_permission(request).await }
        };
        self.client.call(CallKind::Write, None, send).await?;
        Ok(())
    }
}

/// `None` for a kind of access of a later version: it must not be shown as another one.
fn permission(perm: wire::Permission) -> Option<Permission> {
    let access = match wire::permission::Type::try_from(perm.perm_type).ok()? {
        wire::permission::Type::Read => Access::Read,
        wire::permission::Type::Write => Access::Write,
        wire::permission::Type::Readwrite => Access::ReadWrite,
    };
    // The role root is told as having no first key at all: it begins below every key.
    let first = Key::new(perm.key).or_else(|| Key::new(bytes::Bytes::from_static(&[0])))?;
    Some(Permission { access, keys: KeyRange::from_wire(first, perm.range_end) })
}
