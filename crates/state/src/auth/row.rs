//! The rows of `meta` about users and roles.
//!
//! | key | value |
//! |---|---|
//! | `auth` | whether it is on; varint revision; varint index before which tokens are void |
//! | `auth-user/` name | varint index before which tokens are void; 0 or 1 and the hash of the password; varint number of roles, each as text |
//! | `auth-role/` name | varint number of permissions, each: kind, key as bytes, end as clients write it |
//!
//! Texts and bytes have a varint length before them.

use super::book::{AuthBook, User};
use crate::error::{StateError, damaged};
use crate::mvcc::wire::{put_varint, take, take_varint};
use bytes::Bytes;
use meerkat_engine::{Column, View};
use meerkat_types::{
    AuthRevision, Key, KeyRange, LogIndex, Password, Permission, PermissionKind, RoleName, UserName,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const AUTH: &[u8] = b"auth";
const USER: &[u8] = b"auth-user/";
const USER_END: &[u8] = b"auth-user0";
const ROLE: &[u8] = b"auth-role/";
const ROLE_END: &[u8] = b"auth-role0";

/// The position of each value is its number on disk.
const KINDS: [PermissionKind; 3] = [PermissionKind::Read, PermissionKind::Write, PermissionKind::ReadWrite];

pub(super) fn user_key(name: &UserName) -> Vec<u8> {
    [USER, name.as_str().as_bytes()].concat()
}

pub(super) fn role_key(name: &RoleName) -> Vec<u8> {
    [ROLE, name.as_str().as_bytes()].concat()
}

pub(crate) fn load(view: &View) -> Result<AuthBook, StateError> {
    let Some(row) = view.get(Column::Meta, AUTH)? else {
        // Users come with the first row of the book, so there are none.
        return Ok(AuthBook::default());
    };
    let head = decode_head(&row).ok_or(damaged("auth"))?;
    let users = load_all(view, (USER, USER_END), UserName::new, decode_user).map_err(|_| damaged("user"))?;
    let roles = load_all(view, (ROLE, ROLE_END), RoleName::new, decode_role).map_err(|_| damaged("role"))?;
    Ok(AuthBook::new(head, users, roles))
}

/// Every row of a book, the book's own first.
pub(crate) fn rows(book: &AuthBook) -> Vec<(Vec<u8>, Vec<u8>)> {
    let users = book
        .users()
        .filter_map(|name| book.user(name.as_str()).map(|user| (user_key(name), encode_user(user))));
    let roles = book
        .roles()
        .filter_map(|name| book.role(name.as_str()).map(|role| (role_key(name), encode_role(role))));
    std::iter::once((AUTH.to_vec(), encode_head(book))).chain(users).chain(roles).collect()
}

fn load_all<N: Ord, T>(
    view: &View,
    (first, end): (&[u8], &[u8]),
    name: impl Fn(&str) -> Option<N>,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<BTreeMap<N, T>, StateError> {
    let mut all = BTreeMap::new();
    let mut rows = view.scan(Column::Meta, first, Some(end));
    while let Some((key, row)) = rows.row() {
        let name = std::str::from_utf8(&key[first.len()..]).ok().and_then(&name);
        let (name, value) = name.zip(decode(row)).ok_or(damaged("user or role"))?;
        all.insert(name, value);
        rows.step();
    }
    rows.finish()?;
    Ok(all)
}

pub(super) fn encode_head(book: &AuthBook) -> Vec<u8> {
    let mut row = vec![u8::from(book.enabled)];
    put_varint(&mut row, book.revision.0);
    put_varint(&mut row, book.tokens_after.0);
    row
}

fn decode_head(mut row: &[u8]) -> Option<(bool, AuthRevision, LogIndex)> {
    let enabled = flag(&mut row)?;
    let revision = AuthRevision(take_varint(&mut row)?);
    let tokens_after = LogIndex(take_varint(&mut row)?);
    row.is_empty().then_some((enabled, revision, tokens_after))
}

pub(super) fn encode_user(user: &User) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(&mut row, user.tokens_after.0);
    match &user.password {
        Password::None => row.push(0),
        Password::Hash(hash) => {
            row.push(1);
            put_bytes(&mut row, hash);
        }
    }
    put_varint(&mut row, user.roles.len() as u64);
    user.roles.iter().for_each(|role| put_bytes(&mut row, role.as_str().as_bytes()));
    row
}

fn decode_user(mut row: &[u8]) -> Option<User> {
    let tokens_after = LogIndex(take_varint(&mut row)?);
    let password = match flag(&mut row)? {
        false => Password::None,
        true => Password::Hash(take_bytes(&mut row)?),
    };
    let number = take_varint(&mut row)?;
    let mut role = || RoleName::new(std::str::from_utf8(&take_bytes(&mut row)?).ok()?);
    let roles = (0..number).map(|_| role()).collect::<Option<BTreeSet<_>>>()?;
    row.is_empty().then_some(User { password, roles, tokens_after })
}

pub(super) fn encode_role(permissions: &[Permission]) -> Vec<u8> {
    let mut row = Vec::new();
    put_varint(&mut row, permissions.len() as u64);
    for permission in permissions {
        let kind = KINDS.iter().position(|kind| *kind == permission.kind);
        row.push(u8::try_from(kind.expect("every kind is in the table")).expect("the table is short"));
        put_bytes(&mut row, permission.keys.first().as_bytes());
        put_bytes(&mut row, &permission.keys.range_end());
    }
    row
}

fn decode_role(mut row: &[u8]) -> Option<Vec<Permission>> {
    let number = take_varint(&mut row)?;
    let mut permission = || {
        let kind = *KINDS.get(usize::from(*take(&mut row, 1)?.first()?))?;
        let key = Key::new(take_bytes(&mut row)?)?;
        Some(Permission { kind, keys: KeyRange::from_wire(key, take_bytes(&mut row)?) })
    };
    let permissions = (0..number).map(|_| permission()).collect::<Option<Vec<_>>>()?;
    row.is_empty().then_some(permissions)
}

fn flag(row: &mut &[u8]) -> Option<bool> {
    match take(row, 1)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn put_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(row, bytes.len() as u64);
    row.extend_from_slice(bytes);
}

fn take_bytes(row: &mut &[u8]) -> Option<Bytes> {
    let len = usize::try_from(take_varint(row)?).ok()?;
    take(row, len).map(Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_and_a_cut_row_does_not() {
        let role = |name| RoleName::new(name).expect("not empty");
        for password in [Password::None, Password::Hash(Bytes::from_static(b"$2b$04$x"))] {
            for roles in [BTreeSet::new(), BTreeSet::from([role("a"), role("root")])] {
                let user = User { password: password.clone(), roles, tokens_after: LogIndex(300) };
                let row = encode_user(&user);
                assert_eq!(decode_user(&row), Some(user));
                (0..row.len()).for_each(|cut| assert_eq!(decode_user(&row[..cut]), None, "cut at {cut}"));
            }
        }
        let key = || Key::new(Bytes::from_static(b"k\0")).expect("not empty");
        let ranges = [KeyRange::One(key()), KeyRange::From(key()), KeyRange::prefix(b"k")];
        let permissions: Vec<Permission> =
            KINDS.into_iter().zip(ranges).map(|(kind, keys)| Permission { kind, keys }).collect();
        let row = encode_role(&permissions);
        assert_eq!(decode_role(&row), Some(permissions));
        (0..row.len()).for_each(|cut| assert_eq!(decode_role(&row[..cut]), None, "cut at {cut}"));
        let head = AuthBook::new((true, AuthRevision(7), LogIndex(300)), BTreeMap::new(), BTreeMap::new());
        assert_eq!(decode_head(&encode_head(&head)), Some((true, AuthRevision(7), LogIndex(300))));
        assert_eq!(decode_head(&[2, 1, 1]), None);
    }
}
