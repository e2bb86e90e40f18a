//! Commands about users and roles, and who asked, to and from the log's own bytes.

use super::{EntryError, keys_from_wire, keys_to_wire, number_of, value_of};
use bytes::Bytes;
use meerkat_proto::pb::entry as pb;
use meerkat_proto::pb::entry::proposal::Command as Wire;
use meerkat_types::{
    Asker, AuthCommand, AuthRevision, Password, Permission, PermissionKind, RoleName, TokenDigest, UserName,
    Way,
};

/// The position of each value is its number in the log.
const KINDS: [PermissionKind; 3] = [PermissionKind::Read, PermissionKind::Write, PermissionKind::ReadWrite];

pub(super) fn asker_to_wire(asker: &Asker) -> pb::Asker {
    pb::Asker {
        user: user_text(asker.user.as_ref()),
        revision: asker.revision.0,
        by_door: asker.way == Way::Door,
    }
}

pub(super) fn asker_from_wire(wire: pb::Asker) -> Asker {
    let way = if wire.by_door { Way::Door } else { Way::Direct };
    Asker { user: UserName::new(&wire.user), revision: AuthRevision(wire.revision), way }
}

pub(super) fn to_wire(command: &AuthCommand) -> Wire {
    match command {
        AuthCommand::Enable => Wire::EnableAuth(pb::Nothing {}),
        AuthCommand::Disable => Wire::DisableAuth(pb::Nothing {}),
        AuthCommand::AddUser { user, password } => {
            Wire::AddUser(pb::AddUser { user: user_text(user.as_ref()), password_hash: hash(password) })
        }
        AuthCommand::DeleteUser { user } => {
            Wire::DeleteUser(pb::DeleteUser { user: user_text(user.as_ref()) })
        }
        AuthCommand::ChangePassword { user, password } => Wire::ChangePassword(pb::ChangePassword {
            user: user_text(user.as_ref()),
            password_hash: hash(password),
        }),
        AuthCommand::GrantRole { user, role } => {
            Wire::GrantRole(pb::UserRole { user: user_text(user.as_ref()), role: role_text(role.as_ref()) })
        }
        AuthCommand::RevokeRole { user, role } => {
            Wire::RevokeRole(pb::UserRole { user: user_text(user.as_ref()), role: role_text(role.as_ref()) })
        }
        AuthCommand::AddRole { role } => Wire::AddRole(pb::Role { role: role_text(role.as_ref()) }),
        AuthCommand::DeleteRole { role } => Wire::DeleteRole(pb::Role { role: role_text(role.as_ref()) }),
        AuthCommand::GrantPermission { role, permission } => Wire::GrantPermission(pb::GrantPermission {
            role: role_text(role.as_ref()),
            kind: number_of(&KINDS, &permission.kind),
            keys: Some(keys_to_wire(&permission.keys)),
        }),
        AuthCommand::RevokePermission { role, keys } => Wire::RevokePermission(pb::RevokePermission {
            role: role_text(role.as_ref()),
            keys: keys.as_ref().map(keys_to_wire),
        }),
        AuthCommand::AssignToken { user, token, checked } => Wire::AssignToken(pb::AssignToken {
            user: user.as_str().to_owned(),
            token_sha256: Bytes::copy_from_slice(&token.0),
            checked: checked.0,
        }),
    }
}

/// Every command that the room above does not know is expected to be one of these.
pub(super) fn from_wire(wire: Wire) -> Result<AuthCommand, EntryError> {
    Ok(match wire {
        Wire::EnableAuth(pb::Nothing {}) => AuthCommand::Enable,
        Wire::DisableAuth(pb::Nothing {}) => AuthCommand::Disable,
        Wire::AddUser(wire) => {
            AuthCommand::AddUser { user: UserName::new(&wire.user), password: password(wire.password_hash) }
        }
        Wire::DeleteUser(wire) => AuthCommand::DeleteUser { user: UserName::new(&wire.user) },
        Wire::ChangePassword(wire) => AuthCommand::ChangePassword {
            user: UserName::new(&wire.user),
            password: password(wire.password_hash),
        },
        Wire::GrantRole(wire) => {
            AuthCommand::GrantRole { user: UserName::new(&wire.user), role: RoleName::new(&wire.role) }
        }
        Wire::RevokeRole(wire) => {
            AuthCommand::RevokeRole { user: UserName::new(&wire.user), role: RoleName::new(&wire.role) }
        }
        Wire::AddRole(wire) => AuthCommand::AddRole { role: RoleName::new(&wire.role) },
        Wire::DeleteRole(wire) => AuthCommand::DeleteRole { role: RoleName::new(&wire.role) },
        Wire::GrantPermission(wire) => AuthCommand::GrantPermission {
            role: RoleName::new(&wire.role),
            permission: Permission {
                kind: value_of(&KINDS, wire.kind, "an unknown kind of permission")?,
                keys: keys_from_wire(wire.keys)?,
            },
        },
        Wire::RevokePermission(wire) => AuthCommand::RevokePermission {
            role: RoleName::new(&wire.role),
            keys: wire.keys.map(|keys| keys_from_wire(Some(keys))).transpose()?,
        },
        Wire::AssignToken(wire) => AuthCommand::AssignToken {
            user: UserName::new(&wire.user).ok_or(EntryError::Unknown { what: "a user without a name" })?,
            token: TokenDigest(
                wire.token_sha256
                    .as_ref()
                    .try_into()
                    .map_err(|_| EntryError::Unknown { what: "a token of another length" })?,
            ),
            checked: AuthRevision(wire.checked),
        },
        _ => return Err(EntryError::Unknown { what: "a command this version does not know" }),
    })
}

fn user_text(user: Option<&UserName>) -> String {
    user.map(|user| user.as_str().to_owned()).unwrap_or_default()
}

fn role_text(role: Option<&RoleName>) -> String {
    role.map(|role| role.as_str().to_owned()).unwrap_or_default()
}

fn hash(password: &Password) -> Option<Bytes> {
    match password {
        Password::None => None,
        Password::Hash(hash) => Some(hash.clone()),
    }
}

fn password(hash: Option<Bytes>) -> Password {
    hash.map_or(Password::None, Password::Hash)
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::*;
    use meerkat_types::{Command, KeyRange};

    #[test]
    fn every_command_about_users_and_roles_survives_the_log() {
        let (user, role) = (UserName::new("u"), RoleName::new("r"));
        let keys = KeyRange::prefix(b"k/");
        let mut commands = vec![
            AuthCommand::Enable,
            AuthCommand::Disable,
            AuthCommand::DeleteUser { user: user.clone() },
            AuthCommand::DeleteUser { user: None },
            AuthCommand::GrantRole { user: user.clone(), role: role.clone() },
            AuthCommand::RevokeRole { user: user.clone(), role: None },
            AuthCommand::AddRole { role: role.clone() },
            AuthCommand::DeleteRole { role: role.clone() },
            AuthCommand::RevokePermission { role: role.clone(), keys: Some(keys.clone()) },
            AuthCommand::RevokePermission { role: role.clone(), keys: None },
            AuthCommand::AssignToken {
                user: UserName::new("u").expect("not empty"),
                token: TokenDigest([7; 32]),
                checked: AuthRevision(3),
            },
        ];
        for password in [Password::None, Password::Hash(Bytes::from_static(b"$2b$"))] {
            commands.push(AuthCommand::AddUser { user: user.clone(), password: password.clone() });
            commands.push(AuthCommand::ChangePassword { user: user.clone(), password });
        }
        for kind in KINDS {
            let permission = Permission { kind, keys: keys.clone() };
            commands.push(AuthCommand::GrantPermission { role: role.clone(), permission });
        }
        commands.into_iter().for_each(|command| check(Command::Auth(command)));
    }
}
