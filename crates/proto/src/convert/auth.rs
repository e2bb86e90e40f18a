//! Permissions to and from the wire.

use crate::pb::auth as pb;
use crate::pb::auth::permission::Type;
use bytes::Bytes;
use meerkat_types::{AuthRefusal, Key, KeyRange, Permission, PermissionKind, ROOT_ROLE};

/// A permission must be given and cover a key; its kind must be one that there is.
pub fn permission(wire: Option<pb::Permission>) -> Result<Permission, AuthRefusal> {
    let wire = wire.ok_or(AuthRefusal::PermissionNotGiven)?;
    let kind = match Type::try_from(wire.perm_type) {
        Ok(Type::Read) => PermissionKind::Read,
        Ok(Type::Write) => PermissionKind::Write,
        Ok(Type::Readwrite) => PermissionKind::ReadWrite,
        Err(_) => return Err(AuthRefusal::InvalidManagement),
    };
    let keys = keys(wire.key, wire.range_end).filter(|keys| !keys.is_empty());
    Ok(Permission { kind, keys: keys.ok_or(AuthRefusal::InvalidManagement)? })
}

/// `None` without a key: no permission is of that.
pub fn keys(key: Bytes, range_end: Bytes) -> Option<KeyRange> {
    Key::new(key).map(|key| KeyRange::from_wire(key, range_end))
}

/// What a role is told to have. Root has everything, whatever was given to it.
pub fn permissions(role: &str, permissions: &[Permission]) -> Vec<pb::Permission> {
    if role == ROOT_ROLE {
        return vec![pb::Permission {
            perm_type: Type::Readwrite.into(),
            key: Bytes::new(),
            range_end: Bytes::from_static(&[0]),
        }];
    }
    let wire = |permission: &Permission| pb::Permission {
        perm_type: match permission.kind {
            PermissionKind::Read => Type::Read,
            PermissionKind::Write => Type::Write,
            PermissionKind::ReadWrite => Type::Readwrite,
        }
        .into(),
        key: permission.keys.first().bytes().clone(),
        range_end: permission.keys.range_end(),
    };
    permissions.iter().map(wire).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(kind: i32, key: &'static [u8], end: &'static [u8]) -> pb::Permission {
        pb::Permission { perm_type: kind, key: Bytes::from_static(key), range_end: Bytes::from_static(end) }
    }

    #[test]
    fn a_permission_reads_back_and_one_without_keys_is_refused() {
        for kind in 0..3 {
            for end in [&b""[..], b"\0", b"b"] {
                let given = wire(kind, b"a", end);
                let read = permission(Some(given.clone())).expect("a permission");
                assert_eq!(permissions("r", &[read]), [given]);
            }
        }
        assert_eq!(permission(None), Err(AuthRefusal::PermissionNotGiven));
        for bad in [
            wire(0, b"", b""),
            wire(0, b"", b"\0"),
            wire(0, b"b", b"a"),
            wire(0, b"b", b"b"),
            wire(3, b"b", b""),
        ] {
            assert_eq!(permission(Some(bad.clone())), Err(AuthRefusal::InvalidManagement), "{bad:?}");
        }
        assert_eq!(permissions("root", &[]), [wire(2, b"", b"\0")]);
    }
}
