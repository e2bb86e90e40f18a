//! Users, roles and alarms as rows of a backup, and back.
//!
//! Always true: what a backup forbids, the state that is made from it forbids too. A row that the state
//! cannot hold is an error, never left out.

use meerkat_backup::snapshot::{
    AlarmKind as SavedAlarm, AlarmRow, OtherRows, PermissionKind as SavedKind, PermissionRow, RoleRow,
    UserRow,
};
use meerkat_state::{AuthBook, User};
use meerkat_types::{
    Alarm, AlarmKind, AuthRevision, Key, KeyRange, LogIndex, MemberId, Password, Permission, PermissionKind,
    RoleName, UserName,
};
use std::collections::BTreeMap;

pub(crate) fn to_rows(book: &AuthBook, alarms: impl Iterator<Item = Alarm>) -> OtherRows {
    let user = |name: &UserName| book.user(name.as_str()).map(|user| user_row(name, user));
    let role = |name: &RoleName| {
        let permissions = book.role(name.as_str())?.iter().map(permission_row).collect();
        Some(RoleRow { name: name.as_str().to_owned(), permissions })
    };
    OtherRows {
        auth_enabled: book.is_enabled(),
        auth_revision: book.revision().0,
        users: book.users().filter_map(user).collect(),
        roles: book.roles().filter_map(role).collect(),
        alarms: alarms.map(alarm_row).collect(),
    }
}

fn user_row(name: &UserName, user: &User) -> UserRow {
    let (password, no_password) = match &user.password {
        Password::None => (Vec::new(), true),
        Password::Hash(hash) => (hash.to_vec(), false),
    };
    let roles = user.roles.iter().map(|role| role.as_str().to_owned()).collect();
    UserRow { name: name.as_str().to_owned(), password, roles, no_password }
}

fn permission_row(permission: &Permission) -> PermissionRow {
    let kind = match permission.kind {
        PermissionKind::Read => SavedKind::Read,
        PermissionKind::Write => SavedKind::Write,
        PermissionKind::ReadWrite => SavedKind::ReadWrite,
    };
    let key = permission.keys.first().as_bytes().to_vec();
    PermissionRow { kind, key, range_end: permission.keys.range_end().to_vec() }
}

fn alarm_row(alarm: Alarm) -> AlarmRow {
    let kind = match alarm.kind {
        AlarmKind::NoSpace => SavedAlarm::NoSpace,
        AlarmKind::Corrupt => SavedAlarm::Corrupt,
    };
    AlarmRow { member: alarm.member.0, kind }
}

/// The users and roles of a backup; otherwise what is wrong with it.
pub(crate) fn to_book(rows: &OtherRows) -> Result<AuthBook, String> {
    let mut users = BTreeMap::new();
    for row in &rows.users {
        let name = UserName::new(&row.name).ok_or("a user has no name")?;
        let roles = row.roles.iter().map(|role| RoleName::new(role));
        let roles =
            roles.collect::<Option<_>>().ok_or_else(|| format!("user {name:?} has a role without a name"))?;
        let password = match row.no_password {
            true => Password::None,
            false => Password::Hash(row.password.clone().into()),
        };
        users.insert(name, User { password, roles, tokens_after: LogIndex(0) });
    }
    let mut roles = BTreeMap::new();
    for row in &rows.roles {
        let name = RoleName::new(&row.name).ok_or("a role has no name")?;
        let permissions = row.permissions.iter().map(permission).collect::<Option<Vec<_>>>();
        let permissions =
            permissions.ok_or_else(|| format!("role {name:?} has a permission for the empty key"))?;
        roles.insert(name, permissions);
    }
    Ok(AuthBook::restored(rows.auth_enabled, AuthRevision(rows.auth_revision), users, roles))
}

/// `None` if no key could ever be in it.
fn permission(row: &PermissionRow) -> Option<Permission> {
    let kind = match row.kind {
        SavedKind::Read => PermissionKind::Read,
        SavedKind::Write => PermissionKind::Write,
        SavedKind::ReadWrite => PermissionKind::ReadWrite,
    };
    // No key is empty: a range that begins before the first key begins with it.
    let first = if row.key.is_empty() && !row.range_end.is_empty() { vec![0] } else { row.key.clone() };
    let keys = KeyRange::from_wire(Key::new(first.into())?, row.range_end.clone().into());
    Some(Permission { kind, keys })
}

/// The alarms of a backup: those that the new cluster begins with, and those that it does not.
///
/// CORRUPT is said of the data, which comes along, and stays until a person has looked. NOSPACE is said
/// of a member's room: it stays with a member that is of the new cluster too, which clears it itself, and
/// goes with any other, since nobody would ever clear it and every new member looks at its own room.
pub(crate) fn alarms(rows: &OtherRows, is_member: impl Fn(MemberId) -> bool) -> (Vec<Alarm>, Vec<Alarm>) {
    let all = rows.alarms.iter().map(|row| {
        let kind = match row.kind {
            SavedAlarm::NoSpace => AlarmKind::NoSpace,
            SavedAlarm::Corrupt => AlarmKind::Corrupt,
        };
        Alarm { kind, member: MemberId(row.member) }
    });
    all.partition(|alarm| alarm.kind == AlarmKind::Corrupt || is_member(alarm.member))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission_row(kind: SavedKind, key: &[u8], range_end: &[u8]) -> PermissionRow {
        PermissionRow { kind, key: key.to_vec(), range_end: range_end.to_vec() }
    }

    fn rows(permissions: Vec<PermissionRow>) -> OtherRows {
        let user = |name: &str, password: &[u8], roles: &[&str]| UserRow {
            name: name.to_owned(),
            password: password.to_vec(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            no_password: password.is_empty(),
        };
        OtherRows {
            auth_enabled: true,
            auth_revision: 12,
            users: vec![user("cert", b"", &[]), user("root", b"$2a$10$x", &["r", "root"])],
            roles: vec![RoleRow { name: "r".to_owned(), permissions }],
            alarms: Vec::new(),
        }
    }

    #[test]
    fn rows_make_the_book_that_makes_the_rows() {
        let saved = rows(vec![
            permission_row(SavedKind::Read, b"a", b""),
            permission_row(SavedKind::Write, b"b", b"\0"),
            permission_row(SavedKind::ReadWrite, b"c", b"d"),
        ]);
        let book = to_book(&saved).expect("a book");
        assert!(book.is_enabled() && book.revision() == AuthRevision(12));
        assert_eq!(book.user("cert").map(|user| user.password.clone()), Some(Password::None));
        assert_eq!(to_rows(&book, std::iter::empty()), saved);
        // A file of a cluster that never had users says nothing of them.
        let book = to_book(&OtherRows::default()).expect("a book");
        assert_eq!(book, AuthBook::default());
    }

    #[test]
    fn permissions_that_etcd_keeps_otherwise_grant_the_same() {
        let check = |given: Vec<PermissionRow>, expected: Vec<PermissionRow>| {
            let book = to_book(&rows(given)).expect("a book");
            assert_eq!(to_rows(&book, std::iter::empty()).roles[0].permissions, expected);
        };
        let (read, write, both) = (SavedKind::Read, SavedKind::Write, SavedKind::ReadWrite);
        check(
            vec![
                permission_row(write, b"b", b"c"),
                permission_row(read, b"a", b""),
                permission_row(read, b"b", b"c"),
            ],
            vec![permission_row(read, b"a", b""), permission_row(both, b"b", b"c")],
        );
        check(
            vec![
                permission_row(read, b"a", b"c"),
                permission_row(read, b"a", b"b"),
                permission_row(read, b"a", b"c"),
            ],
            vec![permission_row(read, b"a", b"b"), permission_row(read, b"a", b"c")],
        );
        check(vec![permission_row(read, b"", b"\0")], vec![permission_row(read, b"\0", b"\0")]);
        check(vec![permission_row(read, b"", b"z")], vec![permission_row(read, b"\0", b"z")]);
        let refused = to_book(&rows(vec![permission_row(read, b"", b"")])).expect_err("no key");
        assert_eq!(refused, "role \"r\" has a permission for the empty key");
    }

    #[test]
    fn corrupt_stays_and_room_is_the_members_own() {
        let row = |member, kind| AlarmRow { member, kind };
        let saved = OtherRows {
            alarms: vec![
                row(1, SavedAlarm::NoSpace),
                row(2, SavedAlarm::NoSpace),
                row(1, SavedAlarm::Corrupt),
                row(2, SavedAlarm::Corrupt),
            ],
            ..OtherRows::default()
        };
        let alarm = |member, kind| Alarm { kind, member: MemberId(member) };
        let (kept, left) = alarms(&saved, |member| member == MemberId(2));
        assert_eq!(
            kept,
            [alarm(2, AlarmKind::NoSpace), alarm(1, AlarmKind::Corrupt), alarm(2, AlarmKind::Corrupt)]
        );
        assert_eq!(left, [alarm(1, AlarmKind::NoSpace)]);
        assert_eq!(to_rows(&AuthBook::default(), kept.into_iter()).alarms, saved.alarms[1..]);
    }
}
