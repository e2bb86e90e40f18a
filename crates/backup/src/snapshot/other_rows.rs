//! The rows that are neither history nor lease: who may do what, and what is wrong with whom.
//!
//! | bucket | key | value |
//! |---|---|---|
//! | `auth` | `authEnabled` | one byte, 1 or 0 |
//! | `auth` | `authRevision` | 8 bytes, big endian |
//! | `authUsers` | the name | protobuf User: name, hash of the password, roles, options |
//! | `authRoles` | the name | protobuf Role: name, permissions |
//! | `alarm` | protobuf AlarmMember: member, kind | nothing |
//!
//! A row that cannot be read is an error and never passed over: what it would have forbidden is not
//! known.

use super::protobuf::{Value, each_field, put_bytes, put_number};
use super::rows::Row;

const ENABLED: &[u8] = b"authEnabled";
const REVISION: &[u8] = b"authRevision";

/// What a snapshot has besides history and leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherRows {
    /// Whether clients must say who they are.
    pub auth_enabled: bool,
    /// 0 if the file does not say.
    pub auth_revision: u64,
    pub users: Vec<UserRow>,
    pub roles: Vec<RoleRow>,
    pub alarms: Vec<AlarmRow>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct UserRow {
    pub name: String,
    /// What bcrypt made of the password.
    pub password: Vec<u8>,
    pub roles: Vec<String>,
    /// The user is known by a certificate only.
    pub no_password: bool,
}

impl std::fmt::Debug for UserRow {
    /// Without the hash, which is half a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserRow").field("name", &self.name).field("roles", &self.roles).finish()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRow {
    pub name: String,
    pub permissions: Vec<PermissionRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRow {
    pub kind: PermissionKind,
    pub key: Vec<u8>,
    pub range_end: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionKind {
    Read,
    Write,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlarmRow {
    pub member: u64,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    NoSpace,
    Corrupt,
}

impl OtherRows {
    /// The rows of each bucket, in the order of their keys.
    pub(super) fn buckets(&self) -> [(&'static str, Vec<Row>); 4] {
        let auth = vec![
            (ENABLED.to_vec(), vec![u8::from(self.auth_enabled)]),
            (REVISION.to_vec(), self.auth_revision.to_be_bytes().to_vec()),
        ];
        let roles = self.roles.iter().map(|role| (role.name.clone().into_bytes(), role.encode()));
        let users = self.users.iter().map(|user| (user.name.clone().into_bytes(), user.encode()));
        let alarms = self.alarms.iter().map(|alarm| (alarm.encode(), Vec::new()));
        [
            ("alarm", sorted(alarms)),
            ("auth", auth),
            ("authRoles", sorted(roles)),
            ("authUsers", sorted(users)),
        ]
    }

    /// Takes in a row of one of the buckets; says what is wrong with it otherwise.
    pub(super) fn take(&mut self, bucket: &str, key: &[u8], value: &[u8]) -> Result<(), String> {
        let name = || String::from_utf8_lossy(key);
        match bucket {
            "auth" => return self.take_auth(key, value),
            "authUsers" => match UserRow::decode(key, value) {
                Some(user) => self.users.push(user),
                None => return Err(format!("the row of {:?} in bucket \"authUsers\" is no user", name())),
            },
            "authRoles" => match RoleRow::decode(key, value) {
                Some(role) => self.roles.push(role),
                None => return Err(format!("the row of {:?} in bucket \"authRoles\" is no role", name())),
            },
            _ => match AlarmRow::decode(key) {
                Some(alarm) => self.alarms.push(alarm),
                None => return Err(format!("row {key:02x?} of bucket {bucket:?} is no alarm that is known")),
            },
        }
        Ok(())
    }

    fn take_auth(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        match (key, value) {
            (ENABLED, [0]) => self.auth_enabled = false,
            (ENABLED, [1]) => self.auth_enabled = true,
            (ENABLED, _) => return Err("the file does not say whether authentication is on".to_owned()),
            (REVISION, value) => match value.try_into() {
                Ok(bytes) => self.auth_revision = u64::from_be_bytes(bytes),
                Err(_) => return Err("the revision in bucket \"auth\" is none".to_owned()),
            },
            // etcd passes over what it does not know there.
            _ => {}
        }
        Ok(())
    }
}

fn sorted(rows: impl Iterator<Item = Row>) -> Vec<Row> {
    let mut rows: Vec<Row> = rows.collect();
    rows.sort();
    rows
}

impl UserRow {
    fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_bytes(&mut row, 1, self.name.as_bytes());
        if !self.password.is_empty() {
            put_bytes(&mut row, 2, &self.password);
        }
        self.roles.iter().for_each(|role| put_bytes(&mut row, 3, role.as_bytes()));
        let mut options = Vec::new();
        put_number(&mut options, 1, i64::from(self.no_password));
        put_bytes(&mut row, 4, &options);
        row
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<UserRow> {
        let mut user =
            UserRow { name: text(key)?, password: Vec::new(), roles: Vec::new(), no_password: false };
        let mut name: &[u8] = &[];
        each_field(value, |field, value| {
            match (field, value) {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => user.password = bytes.to_vec(),
                (3, Value::Bytes(bytes)) => user.roles.push(text(bytes)?),
                (4, Value::Bytes(bytes)) => user.no_password = no_password(bytes)?,
                (1..=4, _) => return None,
                _ => {}
            }
            Some(())
        })?;
        (name == key).then_some(user)
    }
}

fn no_password(options: &[u8]) -> Option<bool> {
    let mut no_password = false;
    each_field(options, |field, value| {
        match (field, value) {
            (1, Value::Number(number)) => no_password = number != 0,
            (1, _) => return None,
            _ => {}
        }
        Some(())
    })?;
    Some(no_password)
}

impl RoleRow {
    fn encode(&self) -> Vec<u8> {
        let mut row = Vec::new();
        put_bytes(&mut row, 1, self.name.as_bytes());
        self.permissions.iter().for_each(|permission| put_bytes(&mut row, 2, &permission.encode()));
        row
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<RoleRow> {
        let mut role = RoleRow { name: text(key)?, permissions: Vec::new() };
        let mut name: &[u8] = &[];
        each_field(value, |field, value| {
            match (field, value) {
                (1, Value::Bytes(bytes)) => name = bytes,
                (2, Value::Bytes(bytes)) => role.permissions.push(PermissionRow::decode(bytes)?),
                (1 | 2, _) => return None,
                _ => {}
            }
            Some(())
        })?;
        (name == key).then_some(role)
    }
}

impl PermissionRow {
    fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            PermissionKind::Read => 0,
            PermissionKind::Write => 1,
            PermissionKind::ReadWrite => 2,
        };
        let mut message = Vec::new();
        put_number(&mut message, 1, kind);
        for (field, bytes) in [(2, &self.key), (3, &self.range_end)] {
            if !bytes.is_empty() {
                put_bytes(&mut message, field, bytes);
            }
        }
        message
    }

    fn decode(message: &[u8]) -> Option<PermissionRow> {
        let mut permission =
            PermissionRow { kind: PermissionKind::Read, key: Vec::new(), range_end: Vec::new() };
        each_field(message, |field, value| {
            match (field, value) {
                (1, Value::Number(0)) => permission.kind = PermissionKind::Read,
                (1, Value::Number(1)) => permission.kind = PermissionKind::Write,
                (1, Value::Number(2)) => permission.kind = PermissionKind::ReadWrite,
                (2, Value::Bytes(bytes)) => permission.key = bytes.to_vec(),
                (3, Value::Bytes(bytes)) => permission.range_end = bytes.to_vec(),
                (1..=3, _) => return None,
                _ => {}
            }
            Some(())
        })?;
        Some(permission)
    }
}

impl AlarmRow {
    fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            AlarmKind::NoSpace => 1,
            AlarmKind::Corrupt => 2,
        };
        let mut key = Vec::new();
        put_number(&mut key, 1, self.member as i64);
        put_number(&mut key, 2, kind);
        key
    }

    fn decode(key: &[u8]) -> Option<AlarmRow> {
        let (mut member, mut kind) = (0, None);
        each_field(key, |field, value| {
            match (field, value) {
                (1, Value::Number(number)) => member = number,
                (2, Value::Number(1)) => kind = Some(AlarmKind::NoSpace),
                (2, Value::Number(2)) => kind = Some(AlarmKind::Corrupt),
                (1 | 2, _) => return None,
                _ => {}
            }
            Some(())
        })?;
        Some(AlarmRow { member, kind: kind? })
    }
}

/// A name: text, and not empty.
fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> OtherRows {
        let user = |name: &str, password: &[u8], roles: &[&str], no_password| UserRow {
            name: name.to_owned(),
            password: password.to_vec(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            no_password,
        };
        let permission = |kind, key: &[u8], range_end: &[u8]| PermissionRow {
            kind,
            key: key.to_vec(),
            range_end: range_end.to_vec(),
        };
        OtherRows {
            auth_enabled: true,
            auth_revision: 9,
            users: vec![user("bob", b"$2a$", &["r", "s"], false), user("cert", b"", &[], true)],
            roles: vec![RoleRow {
                name: "r".to_owned(),
                permissions: vec![
                    permission(PermissionKind::Read, b"a", b""),
                    permission(PermissionKind::Write, b"b", b"\0"),
                    permission(PermissionKind::ReadWrite, b"c", b"d"),
                ],
            }],
            alarms: vec![
                AlarmRow { member: 7, kind: AlarmKind::NoSpace },
                AlarmRow { member: u64::MAX, kind: AlarmKind::Corrupt },
            ],
        }
    }

    /// The bytes are those that etcd 3.5 writes for the same.
    #[test]
    fn rows_are_etcds() {
        let rows = some().buckets();
        let row = |bucket: usize, at: usize| {
            let (key, value) = &rows[bucket].1[at];
            (key.as_slice(), value.as_slice())
        };
        assert_eq!(rows.each_ref().map(|(name, _)| *name), ["alarm", "auth", "authRoles", "authUsers"]);
        assert_eq!(row(0, 0), (b"\x08\x07\x10\x01".as_slice(), b"".as_slice()));
        assert_eq!(row(0, 1).0, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x02");
        assert_eq!(row(1, 0), (b"authEnabled".as_slice(), b"\x01".as_slice()));
        assert_eq!(row(1, 1), (b"authRevision".as_slice(), b"\0\0\0\0\0\0\0\x09".as_slice()));
        let role = b"\x0a\x01r\x12\x03\x12\x01a\x12\x08\x08\x01\x12\x01b\x1a\x01\0\x12\x08\x08\x02\x12\x01c\x1a\x01d";
        assert_eq!(row(2, 0), (b"r".as_slice(), role.as_slice()));
        let user = b"\x0a\x03bob\x12\x04$2a$\x1a\x01r\x1a\x01s\x22\x00";
        assert_eq!(row(3, 0), (b"bob".as_slice(), user.as_slice()));
        assert_eq!(row(3, 1), (b"cert".as_slice(), b"\x0a\x04cert\x22\x02\x08\x01".as_slice()));
    }

    #[test]
    fn rows_read_back() {
        let mut back = OtherRows::default();
        for (bucket, rows) in some().buckets() {
            rows.iter().for_each(|(key, value)| back.take(bucket, key, value).expect("a row"));
        }
        assert_eq!(back, some());
    }

    #[test]
    fn what_is_no_row_says_so() {
        // Bucket, key, value, and what is said.
        let table: &[(&str, &[u8], &[u8], &str)] = &[
            ("auth", b"authEnabled", b"", "does not say whether authentication is on"),
            ("auth", b"authEnabled", b"\x02", "does not say whether authentication is on"),
            ("auth", b"authEnabled", b"\x01\x01", "does not say whether authentication is on"),
            ("auth", b"authRevision", b"\x01", "the revision in bucket \"auth\" is none"),
            ("authUsers", b"bob", b"", "the row of \"bob\" in bucket \"authUsers\" is no user"),
            ("authUsers", b"bob", b"\x0a\x03eve", "the row of \"bob\""),
            ("authUsers", b"bob", b"\x0a\x03bob\x1a\x01\xff", "is no user"),
            ("authUsers", b"bob", b"\x0a\x03bob\x1a\x00", "is no user"),
            ("authUsers", b"bob", b"\x0a\x03bob\x22\x02\x0a\x00", "is no user"),
            ("authUsers", b"bob", b"\x0a\x03bob\x12\x7f$2a", "is no user"),
            ("authUsers", b"\xff", b"\x0a\x01\xff", "is no user"),
            ("authRoles", b"r", b"\x0a\x01s", "the row of \"r\" in bucket \"authRoles\" is no role"),
            ("authRoles", b"r", b"\x0a\x01r\x12\x02\x08\x03", "is no role"),
            ("authRoles", b"r", b"\x0a\x01r\x10\x02", "is no role"),
            ("alarm", b"\x08\x07", b"", "is no alarm that is known"),
            ("alarm", b"\x08\x07\x10\x03", b"", "is no alarm that is known"),
            ("alarm", b"\x08", b"", "is no alarm that is known"),
        ];
        for (bucket, key, value, expected) in table {
            let said = OtherRows::default().take(bucket, key, value).expect_err(expected);
            assert!(said.contains(expected), "{said:?} should contain {expected:?}");
        }
        let mut rows = OtherRows::default();
        rows.take("auth", b"somethingNew", b"x").expect("passed over");
        rows.take("authUsers", b"old", b"\x0a\x03old\x12\x01h")
            .expect("a user from before there were options");
        assert!(!rows.users[0].no_password);
    }
}
