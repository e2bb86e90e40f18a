//! The Auth service: users, roles, permissions, and tokens for passwords.
//!
//! Changes go through the log; questions are answered by the state after everything that was
//! acknowledged before. Who may ask is judged before what is asked makes sense, as in etcd.

use super::header::Headers;
use super::status;
use crate::auth::guard::Tokens;
use crate::auth::{Caller, Guard, Passwords, simple};
use meerkat_proto::convert::auth as wire;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::auth_server::Auth;
use meerkat_raft::RaftNode;
use meerkat_state::{Need, Pinned};
use meerkat_types::{
    AuthCommand, AuthDone, AuthRefusal, AuthRevision, Command, Outcome, Password, Refusal, RoleName, UserName,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Names, a hash and a range of keys; as much as any other request may weigh.
const ENTRY_BYTES_MAX: usize = meerkat_types::limits::REQUEST_BYTES_MAX;
/// How often a password is checked again because users changed meanwhile.
const LOGINS_MAX: usize = 10;

pub(crate) struct AuthService {
    raft: Arc<RaftNode>,
    headers: Headers,
    guard: Guard,
    passwords: Passwords,
}

impl AuthService {
    pub(crate) fn new(
        raft: Arc<RaftNode>,
        headers: Headers,
        guard: Guard,
        passwords: Passwords,
    ) -> AuthService {
        AuthService { raft, headers, guard, passwords }
    }

    /// The header of the answer to a change that was made.
    async fn change(
        &self,
        caller: &Caller,
        command: AuthCommand,
    ) -> Result<Option<pb::ResponseHeader>, Status> {
        let outcome = self.guard.propose(caller, Command::Auth(command), ENTRY_BYTES_MAX).await;
        match outcome.map_err(|error| status::propose(&error))? {
            Outcome::Auth(AuthDone::Changed(_)) => Ok(Some(self.headers.now())),
            Outcome::Refused(refusal) => Err(status::refused(&refusal)),
            _ => Err(status::mismatched_outcome()),
        }
    }

    /// Turns away who is no administrator before their request costs anything.
    async fn admin(&self, caller: &Caller) -> Result<(), Status> {
        match self.guard.permit(caller, &[Need::Admin]).await {
            Ok(_) => Ok(()),
            Err(refusal) => Err(refused(refusal)),
        }
    }

    /// The state after everything that was acknowledged before.
    async fn now(&self) -> Result<Pinned, Status> {
        self.raft.reads().ready_to_read().await.map_err(status::read_index)?;
        Ok(self.raft.reader().pin())
    }

    /// As [`AuthService::now`], for an administrator.
    async fn now_for(&self, caller: &Caller) -> Result<Pinned, Status> {
        let pinned = self.now().await?;
        caller.may(&pinned, [Need::Admin]).map_err(|refusal| status::refused(&refusal))?;
        Ok(pinned)
    }

    fn header(&self, pinned: &Pinned) -> Option<pb::ResponseHeader> {
        Some(self.headers.at(pinned.current_revision()))
    }

    async fn hash(&self, password: String) -> Result<Password, Status> {
        let hashed = self.passwords.hash(password).await;
        hashed.map(Password::Hash).map_err(|error| status::password(&error))
    }

    /// A token for a user with the right password.
    async fn login(&self, name: &str, password: &str) -> Result<String, Status> {
        for _ in 0..LOGINS_MAX {
            let (user, revision) = self.check(name, password).await?;
            let letters = match self.guard.tokens() {
                Tokens::Jwt(jwt) => return jwt.sign(&user, revision).ok_or_else(status::cannot_sign),
                Tokens::Simple(_) => simple::new_letters(),
            };
            let token = simple::digest_of(&letters);
            let command = Command::Auth(AuthCommand::AssignToken { user, token, checked: revision });
            let outcome = self.raft.proposer().propose(command, ENTRY_BYTES_MAX).await;
            match outcome.map_err(|error| status::propose(&error))? {
                Outcome::Auth(AuthDone::TokenAssigned { index }) => {
                    return Ok(simple::write(&letters, index));
                }
                // Users changed since: perhaps this one's password did.
                Outcome::Refused(Refusal::Auth(AuthRefusal::OldRevision)) => {}
                Outcome::Refused(refusal) => return Err(status::refused(&refusal)),
                _ => return Err(status::mismatched_outcome()),
            }
        }
        Err(refused(AuthRefusal::OldRevision))
    }

    /// Who this is, and what was known of users when the password was right.
    async fn check(&self, name: &str, password: &str) -> Result<(UserName, AuthRevision), Status> {
        let pinned = self.now().await?;
        let book = pinned.auth().clone();
        drop(pinned);
        if !book.is_enabled() {
            return Err(refused(AuthRefusal::NotEnabled));
        }
        let user = UserName::new(name).zip(book.user(name));
        let Some((name, user)) = user else { return Err(refused(AuthRefusal::Failed)) };
        let Password::Hash(hash) = &user.password else { return Err(refused(AuthRefusal::NoPassword)) };
        let checked = self.passwords.is_right(password.to_owned(), hash.clone()).await;
        match checked.map_err(|error| status::password(&error))? {
            true => Ok((name, book.revision())),
            false => Err(refused(AuthRefusal::Failed)),
        }
    }
}

fn refused(refusal: AuthRefusal) -> Status {
    status::refused(&Refusal::Auth(refusal))
}

#[tonic::async_trait]
impl Auth for AuthService {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Result<Response<pb::AuthEnableResponse>, Status> {
        let header = self.change(&Caller::of(&request), AuthCommand::Enable).await?;
        Ok(Response::new(pb::AuthEnableResponse { header }))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Result<Response<pb::AuthDisableResponse>, Status> {
        let header = self.change(&Caller::of(&request), AuthCommand::Disable).await?;
        Ok(Response::new(pb::AuthDisableResponse { header }))
    }

    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let pinned = self.now_for(&Caller::of(&request)).await?;
        let (enabled, auth_revision) = (pinned.auth().is_enabled(), pinned.auth().revision().0);
        Ok(Response::new(pb::AuthStatusResponse { header: self.header(&pinned), enabled, auth_revision }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        let pb::AuthenticateRequest { name, password } = request.into_inner();
        let token = self.login(&name, &password).await?;
        Ok(Response::new(pb::AuthenticateResponse { header: Some(self.headers.now()), token }))
    }

    async fn user_add(
        &self,
        request: Request<pb::AuthUserAddRequest>,
    ) -> Result<Response<pb::AuthUserAddResponse>, Status> {
        let caller = Caller::of(&request);
        self.admin(&caller).await?;
        let request = request.into_inner();
        let user = UserName::new(&request.name);
        let password = match request.options {
            Some(options) if options.no_password => Password::None,
            _ => self.hash(request.password).await?,
        };
        let header = self.change(&caller, AuthCommand::AddUser { user, password }).await?;
        Ok(Response::new(pb::AuthUserAddResponse { header }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Result<Response<pb::AuthUserGetResponse>, Status> {
        let caller = Caller::of(&request);
        let name = request.into_inner().name;
        let pinned = self.now().await?;
        // Who asks for themselves may be told that there is no such user.
        let need = if caller.is(&name) { Need::Login } else { Need::Admin };
        caller.may(&pinned, [need]).map_err(|refusal| status::refused(&refusal))?;
        let user = pinned.auth().user(&name).ok_or_else(|| refused(AuthRefusal::UserNotFound))?;
        let roles = user.roles.iter().map(ToString::to_string).collect();
        Ok(Response::new(pb::AuthUserGetResponse { header: self.header(&pinned), roles }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Result<Response<pb::AuthUserListResponse>, Status> {
        let pinned = self.now_for(&Caller::of(&request)).await?;
        let users = pinned.auth().users().map(ToString::to_string).collect();
        Ok(Response::new(pb::AuthUserListResponse { header: self.header(&pinned), users }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Result<Response<pb::AuthUserDeleteResponse>, Status> {
        let caller = Caller::of(&request);
        let user = UserName::new(&request.into_inner().name);
        let header = self.change(&caller, AuthCommand::DeleteUser { user }).await?;
        Ok(Response::new(pb::AuthUserDeleteResponse { header }))
    }

    async fn user_change_password(
        &self,
        request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Result<Response<pb::AuthUserChangePasswordResponse>, Status> {
        let caller = Caller::of(&request);
        self.admin(&caller).await?;
        let request = request.into_inner();
        let user = UserName::new(&request.name);
        let password = self.hash(request.password).await?;
        let header = self.change(&caller, AuthCommand::ChangePassword { user, password }).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse { header }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Result<Response<pb::AuthUserGrantRoleResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let (user, role) = (UserName::new(&request.user), RoleName::new(&request.role));
        let header = self.change(&caller, AuthCommand::GrantRole { user, role }).await?;
        Ok(Response::new(pb::AuthUserGrantRoleResponse { header }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Result<Response<pb::AuthUserRevokeRoleResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let (user, role) = (UserName::new(&request.name), RoleName::new(&request.role));
        let header = self.change(&caller, AuthCommand::RevokeRole { user, role }).await?;
        Ok(Response::new(pb::AuthUserRevokeRoleResponse { header }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Result<Response<pb::AuthRoleAddResponse>, Status> {
        let caller = Caller::of(&request);
        let role = RoleName::new(&request.into_inner().name);
        let header = self.change(&caller, AuthCommand::AddRole { role }).await?;
        Ok(Response::new(pb::AuthRoleAddResponse { header }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Result<Response<pb::AuthRoleGetResponse>, Status> {
        let caller = Caller::of(&request);
        let name = request.into_inner().role;
        let pinned = self.now().await?;
        let book = pinned.auth();
        let own = caller.name().and_then(|user| book.user(user.as_str()));
        let own = own.is_some_and(|user| user.roles.contains(name.as_str()));
        let need = if own { Need::User } else { Need::Admin };
        caller.may(&pinned, [need]).map_err(|refusal| status::refused(&refusal))?;
        let role = book.role(&name).ok_or_else(|| refused(AuthRefusal::RoleNotFound))?;
        let perm = wire::permissions(&name, role);
        Ok(Response::new(pb::AuthRoleGetResponse { header: self.header(&pinned), perm }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
        let pinned = self.now_for(&Caller::of(&request)).await?;
        let roles = pinned.auth().roles().map(ToString::to_string).collect();
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header(&pinned), roles }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Result<Response<pb::AuthRoleDeleteResponse>, Status> {
        let caller = Caller::of(&request);
        let role = RoleName::new(&request.into_inner().role);
        let header = self.change(&caller, AuthCommand::DeleteRole { role }).await?;
        Ok(Response::new(pb::AuthRoleDeleteResponse { header }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Result<Response<pb::AuthRoleGrantPermissionResponse>, Status> {
        let caller = Caller::of(&request);
        self.admin(&caller).await?;
        let request = request.into_inner();
        let permission = wire::permission(request.perm).map_err(refused)?;
        let role = RoleName::new(&request.name);
        let header = self.change(&caller, AuthCommand::GrantPermission { role, permission }).await?;
        Ok(Response::new(pb::AuthRoleGrantPermissionResponse { header }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Result<Response<pb::AuthRoleRevokePermissionResponse>, Status> {
        let caller = Caller::of(&request);
        let request = request.into_inner();
        let (role, keys) = (RoleName::new(&request.role), wire::keys(request.key, request.range_end));
        let header = self.change(&caller, AuthCommand::RevokePermission { role, keys }).await?;
        Ok(Response::new(pb::AuthRoleRevokePermissionResponse { header }))
    }
}
