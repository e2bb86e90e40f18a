//! Changes of users and roles, row by row.

use super::*;
use bytes::Bytes;
use meerkat_types::{Key, PermissionKind, TokenDigest};

/// A book, and the index of the next entry.
struct Desk {
    book: AuthBook,
    index: LogIndex,
}

impl Desk {
    fn new() -> Desk {
        Desk { book: AuthBook::default(), index: LogIndex(1) }
    }

    fn change(&mut self, command: AuthCommand) -> Result<(), AuthRefusal> {
        let before = self.book.clone();
        self.index = self.index.next();
        let changed = self.book.change(&command, self.index).map(drop);
        if changed.is_err() {
            assert_eq!(self.book, before, "{command:?} is refused and still changes something");
        }
        changed
    }

    /// How much the revision rises by a change that is made.
    fn raise(&mut self, command: AuthCommand) -> u64 {
        let before = self.book.revision().0;
        self.change(command).expect("changes");
        self.book.revision().0 - before
    }
}

fn user(name: &str) -> Option<UserName> {
    UserName::new(name)
}

fn role(name: &str) -> Option<RoleName> {
    RoleName::new(name)
}

fn add_user(name: &str) -> AuthCommand {
    AuthCommand::AddUser { user: user(name), password: Password::Hash(Bytes::from_static(b"old")) }
}

fn grant(name: &str, kind: PermissionKind, keys: &KeyRange) -> AuthCommand {
    AuthCommand::GrantPermission { role: role(name), permission: Permission { kind, keys: keys.clone() } }
}

/// With `root`, who is root, and `u`, who has the role `r`, which reads and writes `k/`.
fn furnished() -> Desk {
    let mut desk = Desk::new();
    for command in [
        add_user("root"),
        AuthCommand::GrantRole { user: user("root"), role: role("root") },
        add_user("u"),
        AuthCommand::AddRole { role: role("r") },
        grant("r", PermissionKind::ReadWrite, &KeyRange::prefix(b"k/")),
        AuthCommand::GrantRole { user: user("u"), role: role("r") },
    ] {
        desk.change(command).expect("changes");
    }
    desk
}

#[test]
fn authentication_needs_a_root_who_is_root() {
    let mut desk = Desk::new();
    assert_eq!(desk.change(AuthCommand::Enable), Err(AuthRefusal::RootUserMissing));
    desk.change(add_user("root")).expect("changes");
    assert_eq!(desk.change(AuthCommand::Enable), Err(AuthRefusal::RootRoleMissing));
    // The role need not exist.
    desk.change(AuthCommand::GrantRole { user: user("root"), role: role("root") }).expect("changes");
    assert_eq!(desk.raise(AuthCommand::Enable), 0);
    assert_eq!(desk.raise(AuthCommand::Enable), 0, "again is nothing");
    assert!(desk.book.is_enabled());
    assert_eq!(desk.raise(AuthCommand::Disable), 1);
    assert_eq!(desk.raise(AuthCommand::Disable), 0, "again is nothing");
}

#[test]
fn only_what_changes_something_raises_the_revision() {
    let mut desk = furnished();
    assert_eq!(desk.book.revision(), AuthRevision(7));
    let keys = KeyRange::prefix(b"k/");
    assert_eq!(desk.raise(AuthCommand::GrantRole { user: user("u"), role: role("r") }), 0);
    assert_eq!(desk.raise(grant("r", PermissionKind::ReadWrite, &keys)), 1, "as etcd counts it");
    assert_eq!(desk.raise(grant("r", PermissionKind::Read, &keys)), 1);
    assert_eq!(desk.book.role("r").map(<[Permission]>::len), Some(1), "the kind is replaced");
    assert_eq!(desk.raise(AuthCommand::RevokePermission { role: role("r"), keys: Some(keys) }), 1);
    assert_eq!(desk.raise(AuthCommand::RevokeRole { user: user("u"), role: role("r") }), 1);
    let password = Password::Hash(Bytes::from_static(b"new"));
    assert_eq!(desk.raise(AuthCommand::ChangePassword { user: user("u"), password }), 1);
    assert_eq!(desk.raise(AuthCommand::DeleteRole { role: role("r") }), 1);
    assert_eq!(desk.raise(AuthCommand::DeleteUser { user: user("u") }), 1);
}

#[test]
fn refusals_are_etcds_and_change_nothing() {
    use AuthRefusal::*;
    let mut desk = furnished();
    let other = Some(KeyRange::prefix(b"k"));
    let table = [
        (add_user(""), UserEmpty),
        (add_user("u"), UserExists),
        (AuthCommand::DeleteUser { user: user("x") }, UserNotFound),
        (AuthCommand::DeleteUser { user: None }, UserNotFound),
        (AuthCommand::ChangePassword { user: user("x"), password: Password::None }, UserNotFound),
        (AuthCommand::GrantRole { user: user("x"), role: role("r") }, UserNotFound),
        (AuthCommand::GrantRole { user: user("u"), role: role("x") }, RoleNotFound),
        (AuthCommand::GrantRole { user: user("u"), role: None }, RoleNotFound),
        (AuthCommand::RevokeRole { user: user("x"), role: role("r") }, UserNotFound),
        (AuthCommand::RevokeRole { user: user("u"), role: role("root") }, RoleNotGranted),
        (AuthCommand::AddRole { role: None }, RoleEmpty),
        (AuthCommand::AddRole { role: role("r") }, RoleExists),
        (AuthCommand::DeleteRole { role: role("x") }, RoleNotFound),
        (grant("x", PermissionKind::Read, &KeyRange::everything()), RoleNotFound),
        (AuthCommand::RevokePermission { role: role("x"), keys: None }, RoleNotFound),
        (AuthCommand::RevokePermission { role: role("r"), keys: None }, PermissionNotGranted),
        (AuthCommand::RevokePermission { role: role("r"), keys: other }, PermissionNotGranted),
    ];
    for (command, refusal) in table {
        assert_eq!(desk.change(command.clone()), Err(refusal), "{command:?}");
    }
    let locked = [
        AuthCommand::DeleteUser { user: user("root") },
        AuthCommand::RevokeRole { user: user("root"), role: role("root") },
        AuthCommand::DeleteRole { role: role("root") },
    ];
    desk.change(AuthCommand::Enable).expect("changes");
    for command in locked {
        assert_eq!(desk.change(command.clone()), Err(InvalidManagement), "{command:?}");
    }
    desk.change(AuthCommand::Disable).expect("changes");
    desk.change(AuthCommand::RevokeRole { user: user("root"), role: role("root") }).expect("not locked now");
}

#[test]
fn a_deleted_role_is_nobodys_and_gives_nothing() {
    let mut desk = furnished();
    let key = KeyRange::One(Key::new(Bytes::from_static(b"k/1")).expect("not empty"));
    assert!(desk.book.covers("u", Access::Write, &key));
    desk.change(AuthCommand::DeleteRole { role: role("r") }).expect("changes");
    assert!(!desk.book.covers("u", Access::Read, &key));
    assert!(desk.book.user("u").is_some_and(|user| user.roles.is_empty()));
    // A new role of the same name is another.
    desk.change(AuthCommand::AddRole { role: role("r") }).expect("changes");
    assert!(!desk.book.covers("u", Access::Read, &key));
}

#[test]
fn tokens_stand_until_the_password_changes_the_user_goes_or_authentication_ends() {
    let assign = |desk: &mut Desk, checked: AuthRevision| {
        let user = UserName::new("u").expect("not empty");
        desk.change(AuthCommand::AssignToken { user, token: TokenDigest([1; 32]), checked })?;
        Ok::<LogIndex, AuthRefusal>(desk.index)
    };
    let mut desk = furnished();
    let revision = desk.book.revision();
    assert_eq!(assign(&mut desk, revision), Err(AuthRefusal::NotEnabled));
    desk.change(AuthCommand::Enable).expect("changes");
    assert_eq!(assign(&mut desk, AuthRevision(1)), Err(AuthRefusal::OldRevision));
    let token = assign(&mut desk, revision).expect("assigned");
    assert!(desk.book.token_stands("u", token));
    // What others do does not matter to it.
    desk.change(add_user("v")).expect("changes");
    assert!(desk.book.token_stands("u", token));
    let password = Password::Hash(Bytes::from_static(b"new"));
    desk.change(AuthCommand::ChangePassword { user: user("u"), password }).expect("changes");
    assert!(!desk.book.token_stands("u", token));
    let revision = desk.book.revision();
    let token = assign(&mut desk, revision).expect("assigned");
    assert!(desk.book.token_stands("u", token));
    desk.change(AuthCommand::Disable).expect("changes");
    desk.change(AuthCommand::Enable).expect("changes");
    assert!(!desk.book.token_stands("u", token));
    let revision = desk.book.revision();
    let token = assign(&mut desk, revision).expect("assigned");
    desk.change(AuthCommand::DeleteUser { user: user("u") }).expect("changes");
    assert!(!desk.book.token_stands("u", token));
    desk.change(add_user("u")).expect("changes");
    assert!(!desk.book.token_stands("u", token), "another of the same name");
}

#[test]
fn who_has_no_password_gets_no_token_and_no_password() {
    let mut desk = furnished();
    desk.change(AuthCommand::AddUser { user: user("c"), password: Password::None }).expect("changes");
    desk.change(AuthCommand::Enable).expect("changes");
    let password = Password::Hash(Bytes::from_static(b"new"));
    desk.change(AuthCommand::ChangePassword { user: user("c"), password }).expect("changes");
    assert_eq!(desk.book.user("c").map(|user| user.password.clone()), Some(Password::None));
    let user = UserName::new("c").expect("not empty");
    let checked = desk.book.revision();
    let assign = AuthCommand::AssignToken { user, token: TokenDigest([1; 32]), checked };
    assert_eq!(desk.change(assign), Err(AuthRefusal::Failed));
}
