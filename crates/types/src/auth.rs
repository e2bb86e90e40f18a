//! Users, roles and permissions, and what the cluster can agree on about them.
//!
//! A name is never empty and a [`Permission`] always covers a key: what the wire allows beyond that
//! is refused where it is read. Passwords never come here, only what is kept of them.

use crate::{KeyRange, LogIndex};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// Whoever has this role may do everything, and it need not exist to be given.
pub const ROOT_ROLE: &str = "root";
/// Who must be able to do everything before authentication can be switched on.
pub const ROOT_USER: &str = "root";

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// `None` for an empty text.
            pub fn new(text: &str) -> Option<$name> {
                (!text.is_empty()).then(|| $name(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }
    };
}

name!(UserName);
name!(RoleName);

/// How often users, roles or permissions have changed. 1 before anything has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthRevision(pub u64);

impl AuthRevision {
    /// Of a request that was taken while nobody had to say who asks.
    pub const NONE: AuthRevision = AuthRevision(0);
    pub const FIRST: AuthRevision = AuthRevision(1);

    pub const fn next(self) -> AuthRevision {
        AuthRevision(self.0 + 1)
    }
}

impl fmt::Display for AuthRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who asked for a command, and what was known of users and roles when it was let in. The command is
/// judged again when it is applied; if it was let in under another revision, it is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// `None`: nobody said who.
    pub user: Option<UserName>,
    pub revision: AuthRevision,
    pub way: Way,
}

impl Asker {
    /// A client, while nobody has to say who asks.
    pub const NOBODY: Asker = Asker { user: None, revision: AuthRevision::NONE, way: Way::Direct };
}

/// How a command came to be, and so what of it is judged when it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Who asks wrote the command: all of it is judged.
    Direct,
    /// A door wrote the command, to do what it was asked for. What the command writes is judged. What it
    /// compares, looks at and attaches keys to is the door's own, which has judged by its own rules what
    /// may be shown; those hold as long as the revision is the same.
    Door,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PermissionKind {
    Read,
    Write,
    ReadWrite,
}

impl PermissionKind {
    pub const fn allows(self, access: Access) -> bool {
        matches!(
            (self, access),
            (PermissionKind::ReadWrite, _)
                | (PermissionKind::Read, Access::Read)
                | (PermissionKind::Write, Access::Write)
        )
    }
}

/// What is done to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    pub kind: PermissionKind,
    pub keys: KeyRange,
}

/// What is kept of a user's password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The user is known by a certificate only.
    None,
    /// What bcrypt made of it.
    Hash(Bytes),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A hash in a log is half a password.
        f.write_str(match self {
            Password::None => "none",
            Password::Hash(_) => "some",
        })
    }
}

/// The SHA-256 of a token's letters: what the log and the members keep of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenDigest(pub [u8; 32]);

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token")
    }
}

/// A change of users, roles or permissions. Names that the wire left empty are `None`: whether that
/// or a missing right is told first depends on who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthCommand {
    Enable,
    Disable,
    AddUser {
        user: Option<UserName>,
        password: Password,
    },
    DeleteUser {
        user: Option<UserName>,
    },
    ChangePassword {
        user: Option<UserName>,
        password: Password,
    },
    GrantRole {
        user: Option<UserName>,
        role: Option<RoleName>,
    },
    RevokeRole {
        user: Option<UserName>,
        role: Option<RoleName>,
    },
    AddRole {
        role: Option<RoleName>,
    },
    DeleteRole {
        role: Option<RoleName>,
    },
    GrantPermission {
        role: Option<RoleName>,
        permission: Permission,
    },
    /// `None`: a range that no permission can be of.
    RevokePermission {
        role: Option<RoleName>,
        keys: Option<KeyRange>,
    },
    /// The user's password was found right under `checked`: give out a token.
    AssignToken {
        user: UserName,
        token: TokenDigest,
        checked: AuthRevision,
    },
}

/// What came of an [`AuthCommand`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthDone {
    /// The revision of users and roles after it.
    Changed(AuthRevision),
    /// The token's number: the index of its entry in the log.
    TokenAssigned { index: LogIndex },
}

/// A token that every member is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedToken {
    pub token: TokenDigest,
    pub user: UserName,
    /// The index of its entry in the log.
    pub index: LogIndex,
}

/// Why something about users and roles, or by somebody, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthRefusal {
    #[error("there is no user root")]
    RootUserMissing,
    #[error("the user root has not the role root")]
    RootRoleMissing,
    #[error("a user of this name exists")]
    UserExists,
    #[error("nobody said who asks, or which user is meant")]
    UserEmpty,
    #[error("no such user")]
    UserNotFound,
    #[error("a role of this name exists")]
    RoleExists,
    #[error("no such role")]
    RoleNotFound,
    #[error("nobody said which role is meant")]
    RoleEmpty,
    #[error("the user may not do this")]
    PermissionDenied,
    #[error("the user has not this role")]
    RoleNotGranted,
    #[error("the role has not this permission")]
    PermissionNotGranted,
    #[error("nobody said which permission is meant")]
    PermissionNotGiven,
    #[error("authentication is off")]
    NotEnabled,
    #[error("wrong name or password")]
    Failed,
    #[error("the user has no password and is known by a certificate only")]
    NoPassword,
    #[error("the token is not known, or not any more")]
    InvalidToken,
    #[error("it would lock everybody out, or the range is none")]
    InvalidManagement,
    #[error("users or roles have changed since the request was let in")]
    OldRevision,
}
