//! The users and roles there are, and how a command changes them.

use super::keys::KeySet;
use meerkat_types::{
    Access, AuthCommand, AuthDone, AuthRefusal, AuthRevision, KeyRange, LogIndex, Password, Permission,
    PermissionKind, ROOT_ROLE, ROOT_USER, RoleName, UserName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that is known about users, roles and permissions, at one point of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthBook {
    pub(super) enabled: bool,
    pub(super) revision: AuthRevision,
    /// The index of the entry that last switched authentication off: tokens from before are void.
    pub(super) tokens_after: LogIndex,
    users: BTreeMap<UserName, Arc<Account>>,
    roles: BTreeMap<RoleName, Arc<Vec<Permission>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub password: Password,
    pub roles: BTreeSet<RoleName>,
    /// The index of the entry that last set the password: the user's tokens from before are void.
    pub tokens_after: LogIndex,
}

/// A user with what follows from the roles.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    user: User,
    root: bool,
    read: KeySet,
    write: KeySet,
}

/// What a command changed, as rows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    User(UserName),
    Role(RoleName),
}

impl Default for AuthBook {
    fn default() -> AuthBook {
        AuthBook {
            enabled: false,
            revision: AuthRevision::FIRST,
            tokens_after: LogIndex(0),
            users: BTreeMap::new(),
            roles: BTreeMap::new(),
        }
    }
}

impl AuthBook {
    pub(super) fn new(
        (enabled, revision, tokens_after): (bool, AuthRevision, LogIndex),
        users: BTreeMap<UserName, User>,
        roles: BTreeMap<RoleName, Vec<Permission>>,
    ) -> AuthBook {
        let roles = roles.into_iter().map(|(name, role)| (name, Arc::new(role))).collect();
        let mut book = AuthBook { enabled, revision, tokens_after, users: BTreeMap::new(), roles };
        users.into_iter().for_each(|(name, user)| book.set_user(name, user));
        book
    }

    /// As a backup has it. Permissions of one range are one; nobody has a token yet.
    pub fn restored(
        enabled: bool,
        revision: AuthRevision,
        users: BTreeMap<UserName, User>,
        roles: BTreeMap<RoleName, Vec<Permission>>,
    ) -> AuthBook {
        let roles = roles.into_iter().map(|(name, permissions)| (name, united(permissions))).collect();
        AuthBook::new((enabled, revision.max(AuthRevision::FIRST), LogIndex(0)), users, roles)
    }

    /// With authentication on and `root` as the only user, whose password the entry at `index` set.
    #[doc(hidden)]
    pub fn with_root(password: Password, index: LogIndex) -> AuthBook {
        let mut book = AuthBook::default();
        let (user, role) = (UserName::new(ROOT_USER), RoleName::new(ROOT_ROLE));
        for command in [
            AuthCommand::AddUser { user: user.clone(), password },
            AuthCommand::GrantRole { user, role },
            AuthCommand::Enable,
        ] {
            book.change(&command, index).expect("an empty book takes them");
        }
        book
    }

    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub fn revision(&self) -> AuthRevision {
        self.revision
    }

    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name).map(|account| &account.user)
    }

    /// In ascending order.
    pub fn users(&self) -> impl Iterator<Item = &UserName> {
        self.users.keys()
    }

    /// The permissions of a role, in ascending order of key and end.
    pub fn role(&self, name: &str) -> Option<&[Permission]> {
        self.roles.get(name).map(|role| role.as_slice())
    }

    /// In ascending order.
    pub fn roles(&self) -> impl Iterator<Item = &RoleName> {
        self.roles.keys()
    }

    /// Whether a token that was given to the user by the entry at `index` still stands.
    pub fn token_stands(&self, user: &str, index: LogIndex) -> bool {
        self.enabled
            && self.tokens_after < index
            && self.users.get(user).is_some_and(|account| account.user.tokens_after < index)
    }

    pub(super) fn is_root(&self, user: &str) -> Option<bool> {
        self.users.get(user).map(|account| account.root)
    }

    pub(super) fn covers(&self, user: &str, access: Access, keys: &KeyRange) -> bool {
        self.users.get(user).is_some_and(|account| account.root || account.keys(access).covers(keys))
    }

    pub(super) fn covers_key(&self, user: &str, access: Access, key: &[u8]) -> bool {
        self.users.get(user).is_some_and(|account| account.root || account.keys(access).covers_key(key))
    }

    /// Makes the change, by the entry at `index`. Refused, it changes nothing; without effect, it does
    /// not raise the revision. The changes are those of rows other than the book's own.
    pub(crate) fn change(
        &mut self,
        command: &AuthCommand,
        index: LogIndex,
    ) -> Result<(AuthDone, Vec<Change>), AuthRefusal> {
        let changed = match command {
            AuthCommand::Enable => return self.enable(),
            AuthCommand::AssignToken { user, checked, .. } => return self.assign(user, *checked, index),
            AuthCommand::Disable => self.disable(index),
            AuthCommand::AddUser { user, password } => Some(self.add_user(user.as_ref(), password, index)?),
            AuthCommand::DeleteUser { user } => Some(self.delete_user(user.as_ref())?),
            AuthCommand::ChangePassword { user, password } => {
                Some(self.change_password(user.as_ref(), password, index)?)
            }
            AuthCommand::GrantRole { user, role } => self.grant_role(user.as_ref(), role.as_ref())?,
            AuthCommand::RevokeRole { user, role } => Some(self.revoke_role(user.as_ref(), role.as_ref())?),
            AuthCommand::AddRole { role } => Some(self.add_role(role.as_ref())?),
            AuthCommand::DeleteRole { role } => Some(self.delete_role(role.as_ref())?),
            AuthCommand::GrantPermission { role, permission } => {
                Some(self.grant_permission(role.as_ref(), permission)?)
            }
            AuthCommand::RevokePermission { role, keys } => {
                Some(self.revoke_permission(role.as_ref(), keys.as_ref())?)
            }
        };
        if changed.is_some() {
            self.revision = self.revision.next();
        }
        Ok((AuthDone::Changed(self.revision), changed.unwrap_or_default()))
    }

    fn enable(&mut self) -> Result<(AuthDone, Vec<Change>), AuthRefusal> {
        if !self.enabled && !self.is_root(ROOT_USER).ok_or(AuthRefusal::RootUserMissing)? {
            return Err(AuthRefusal::RootRoleMissing);
        }
        self.enabled = true;
        Ok((AuthDone::Changed(self.revision), Vec::new()))
    }

    fn disable(&mut self, index: LogIndex) -> Option<Vec<Change>> {
        if !self.enabled {
            return None;
        }
        self.enabled = false;
        self.tokens_after = index;
        Some(Vec::new())
    }

    fn assign(
        &self,
        user: &UserName,
        checked: AuthRevision,
        index: LogIndex,
    ) -> Result<(AuthDone, Vec<Change>), AuthRefusal> {
        if !self.enabled {
            return Err(AuthRefusal::NotEnabled);
        }
        // The password may be another by now.
        if self.revision != checked {
            return Err(AuthRefusal::OldRevision);
        }
        match self.user(user.as_str()).map(|user| &user.password) {
            Some(Password::Hash(_)) => Ok((AuthDone::TokenAssigned { index }, Vec::new())),
            Some(Password::None) | None => Err(AuthRefusal::Failed),
        }
    }

    fn add_user(
        &mut self,
        name: Option<&UserName>,
        password: &Password,
        index: LogIndex,
    ) -> Result<Vec<Change>, AuthRefusal> {
        let name = name.ok_or(AuthRefusal::UserEmpty)?;
        if self.users.contains_key(name) {
            return Err(AuthRefusal::UserExists);
        }
        let user = User { password: password.clone(), roles: BTreeSet::new(), tokens_after: index };
        self.set_user(name.clone(), user);
        Ok(vec![Change::User(name.clone())])
    }

    fn delete_user(&mut self, name: Option<&UserName>) -> Result<Vec<Change>, AuthRefusal> {
        if self.enabled && name.is_some_and(|name| name.as_str() == ROOT_USER) {
            return Err(AuthRefusal::InvalidManagement);
        }
        let name = name.ok_or(AuthRefusal::UserNotFound)?;
        self.users.remove(name).ok_or(AuthRefusal::UserNotFound)?;
        Ok(vec![Change::User(name.clone())])
    }

    /// Who has no password does not get one: the change only ends the tokens, of which there are none.
    fn change_password(
        &mut self,
        name: Option<&UserName>,
        password: &Password,
        index: LogIndex,
    ) -> Result<Vec<Change>, AuthRefusal> {
        let (name, mut user) = self.known(name)?;
        user.tokens_after = index;
        if let (Password::Hash(_), Password::Hash(_)) = (&user.password, password) {
            user.password = password.clone();
        }
        self.set_user(name.clone(), user);
        Ok(vec![Change::User(name)])
    }

    fn grant_role(
        &mut self,
        name: Option<&UserName>,
        role: Option<&RoleName>,
    ) -> Result<Option<Vec<Change>>, AuthRefusal> {
        let (name, mut user) = self.known(name)?;
        let role = role.ok_or(AuthRefusal::RoleNotFound)?;
        if role.as_str() != ROOT_ROLE && !self.roles.contains_key(role) {
            return Err(AuthRefusal::RoleNotFound);
        }
        if !user.roles.insert(role.clone()) {
            return Ok(None);
        }
        self.set_user(name.clone(), user);
        Ok(Some(vec![Change::User(name)]))
    }

    fn revoke_role(
        &mut self,
        name: Option<&UserName>,
        role: Option<&RoleName>,
    ) -> Result<Vec<Change>, AuthRefusal> {
        let is = |given: Option<&str>, text: &str| given == Some(text);
        if self.enabled
            && is(name.map(UserName::as_str), ROOT_USER)
            && is(role.map(RoleName::as_str), ROOT_ROLE)
        {
            return Err(AuthRefusal::InvalidManagement);
        }
        let (name, mut user) = self.known(name)?;
        if !role.is_some_and(|role| user.roles.remove(role)) {
            return Err(AuthRefusal::RoleNotGranted);
        }
        self.set_user(name.clone(), user);
        Ok(vec![Change::User(name)])
    }

    fn add_role(&mut self, role: Option<&RoleName>) -> Result<Vec<Change>, AuthRefusal> {
        let role = role.ok_or(AuthRefusal::RoleEmpty)?;
        if self.roles.contains_key(role) {
            return Err(AuthRefusal::RoleExists);
        }
        self.roles.insert(role.clone(), Arc::default());
        Ok(vec![Change::Role(role.clone())])
    }

    /// Whoever had it has it no more.
    fn delete_role(&mut self, role: Option<&RoleName>) -> Result<Vec<Change>, AuthRefusal> {
        if self.enabled && role.is_some_and(|role| role.as_str() == ROOT_ROLE) {
            return Err(AuthRefusal::InvalidManagement);
        }
        let role = role.ok_or(AuthRefusal::RoleNotFound)?;
        self.roles.remove(role).ok_or(AuthRefusal::RoleNotFound)?;
        let mut changes = vec![Change::Role(role.clone())];
        for (name, mut user) in self.holders(role) {
            user.roles.remove(role);
            self.set_user(name.clone(), user);
            changes.push(Change::User(name));
        }
        Ok(changes)
    }

    /// Also a change if it was there before, as in etcd.
    fn grant_permission(
        &mut self,
        role: Option<&RoleName>,
        permission: &Permission,
    ) -> Result<Vec<Change>, AuthRefusal> {
        let (name, mut permissions) = self.known_role(role)?;
        match permissions.iter_mut().find(|known| known.keys == permission.keys) {
            Some(known) => known.kind = permission.kind,
            None => permissions.push(permission.clone()),
        }
        sort(&mut permissions);
        self.set_role(&name, permissions);
        Ok(vec![Change::Role(name)])
    }

    fn revoke_permission(
        &mut self,
        role: Option<&RoleName>,
        keys: Option<&KeyRange>,
    ) -> Result<Vec<Change>, AuthRefusal> {
        let (name, mut permissions) = self.known_role(role)?;
        let at = permissions.iter().position(|known| Some(&known.keys) == keys);
        permissions.remove(at.ok_or(AuthRefusal::PermissionNotGranted)?);
        self.set_role(&name, permissions);
        Ok(vec![Change::Role(name)])
    }

    fn known(&self, name: Option<&UserName>) -> Result<(UserName, User), AuthRefusal> {
        let (name, account) =
            name.and_then(|name| self.users.get_key_value(name)).ok_or(AuthRefusal::UserNotFound)?;
        Ok((name.clone(), account.user.clone()))
    }

    fn known_role(&self, name: Option<&RoleName>) -> Result<(RoleName, Vec<Permission>), AuthRefusal> {
        let (name, role) =
            name.and_then(|name| self.roles.get_key_value(name)).ok_or(AuthRefusal::RoleNotFound)?;
        Ok((name.clone(), role.as_ref().clone()))
    }

    fn holders(&self, role: &RoleName) -> Vec<(UserName, User)> {
        let holds = |(_, account): &(&UserName, &Arc<Account>)| account.user.roles.contains(role);
        self.users.iter().filter(holds).map(|(name, account)| (name.clone(), account.user.clone())).collect()
    }

    fn set_role(&mut self, name: &RoleName, permissions: Vec<Permission>) {
        self.roles.insert(name.clone(), Arc::new(permissions));
        self.holders(name).into_iter().for_each(|(name, user)| self.set_user(name, user));
    }

    fn set_user(&mut self, name: UserName, user: User) {
        let account = self.account(user);
        self.users.insert(name, Arc::new(account));
    }

    fn account(&self, user: User) -> Account {
        let keys = |access: Access| {
            let roles = user.roles.iter().filter_map(|role| self.roles.get(role));
            let permissions = roles.flat_map(|role| role.iter());
            KeySet::of(permissions.filter(|given| given.kind.allows(access)).map(|given| &given.keys))
        };
        let (read, write) = (keys(Access::Read), keys(Access::Write));
        Account { root: user.roles.contains(ROOT_ROLE), read, write, user }
    }
}

fn sort(permissions: &mut [Permission]) {
    permissions.sort_by_cached_key(|known| (known.keys.first().clone(), known.keys.range_end()));
}

/// In order, and one for each range: etcd may have noted a range twice, and then grants both.
fn united(mut permissions: Vec<Permission>) -> Vec<Permission> {
    sort(&mut permissions);
    permissions.dedup_by(|next, known| {
        let same = next.keys == known.keys;
        if same && next.kind != known.kind {
            known.kind = PermissionKind::ReadWrite;
        }
        same
    });
    permissions
}

impl Account {
    fn keys(&self, access: Access) -> &KeySet {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }
}

#[cfg(test)]
mod tests;
