//! What was learned about users and roles, and its plain lines.

use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::auth::permission::Type;
use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

/// An answer about users and roles.
pub enum AuthAnswer {
    /// Something was changed; the answer is a header and nothing more.
    Done {
        header: Option<pb::ResponseHeader>,
        /// What was changed, for eyes. Bytes, since it may name keys.
        line: Vec<u8>,
    },
    Status(pb::AuthStatusResponse),
    User {
        name: String,
        response: pb::AuthUserGetResponse,
    },
    Users(pb::AuthUserListResponse),
    Role {
        name: String,
        response: pb::AuthRoleGetResponse,
    },
    Roles(pb::AuthRoleListResponse),
}

impl AuthAnswer {
    pub(super) fn protobuf(&self) -> Vec<u8> {
        match self {
            // All such answers are encoded alike.
            AuthAnswer::Done { header, .. } => pb::AuthUserAddResponse { header: *header }.encode_to_vec(),
            AuthAnswer::Status(response) => response.encode_to_vec(),
            AuthAnswer::User { response, .. } => response.encode_to_vec(),
            AuthAnswer::Users(response) => response.encode_to_vec(),
            AuthAnswer::Role { response, .. } => response.encode_to_vec(),
            AuthAnswer::Roles(response) => response.encode_to_vec(),
        }
    }

    /// For eyes, without line ends.
    pub(super) fn lines(&self) -> Vec<Vec<u8>> {
        match self {
            AuthAnswer::Done { line, .. } => vec![line.clone()],
            AuthAnswer::Status(status) => vec![
                format!("Authentication Status: {}", status.enabled).into(),
                format!("AuthRevision: {}", status.auth_revision).into(),
            ],
            AuthAnswer::User { name, response } => {
                let roles: String = response.roles.iter().map(|role| format!(" {role}")).collect();
                vec![format!("User: {name}").into(), format!("Roles:{roles}").into()]
            }
            AuthAnswer::Users(response) => response.users.iter().map(|user| user.clone().into()).collect(),
            AuthAnswer::Role { name, response } => role_lines(name, &response.perm),
            AuthAnswer::Roles(response) => response.roles.iter().map(|role| role.clone().into()).collect(),
        }
    }
}

fn role_lines(name: &str, permissions: &[Permission]) -> Vec<Vec<u8>> {
    // The role that may do everything has no permission to show for it.
    let all_powerful = name == "root" && permissions.is_empty();
    let section = |title: &str, kind: Type| {
        let granted = permissions
            .iter()
            .filter(|permission| permission.perm_type() == kind || permission.perm_type() == Type::Readwrite)
            .map(permission_line);
        let everything = all_powerful.then(|| b"\t[, <open ended>".to_vec());
        std::iter::once(title.as_bytes().to_vec()).chain(everything).chain(granted).collect::<Vec<_>>()
    };
    let head = format!("Role {name}").into_bytes();
    [vec![head], section("KV Read:", Type::Read), section("KV Write:", Type::Write)].concat()
}

fn permission_line(permission: &Permission) -> Vec<u8> {
    let (key, end): (&[u8], &[u8]) = (&permission.key, &permission.range_end);
    let mut line = match end {
        [] => return [b"\t", key].concat(),
        [0] => [b"\t[", key, b", <open ended>"].concat(),
        end => [b"\t[", key, b", ", end, b")"].concat(),
    };
    if !key.is_empty() && is_prefix_end(key, end) {
        line.extend_from_slice(&[b" (prefix ", key, b")"].concat());
    }
    line
}

/// Whether the range from `key` to `end` is that of all keys with the prefix `key`.
fn is_prefix_end(key: &[u8], end: &[u8]) -> bool {
    match key.iter().rposition(|byte| *byte < 0xff) {
        Some(last) => end.len() == last + 1 && end[..last] == key[..last] && end[last] == key[last] + 1,
        None => end == b"\0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_says_which_keys_it_is_for() {
        let line = |key: &'static [u8], end: &'static [u8]| {
            let permission = Permission { perm_type: 0, key: key.into(), range_end: end.into() };
            String::from_utf8_lossy(&permission_line(&permission)).into_owned()
        };
        assert_eq!(line(b"foo", b""), "\tfoo");
        assert_eq!(line(b"a", b"c"), "\t[a, c)");
        assert_eq!(line(b"a", b"b"), "\t[a, b) (prefix a)");
        assert_eq!(line(b"a\xff", b"b"), "\t[a\u{fffd}, b) (prefix a\u{fffd})");
        assert_eq!(line(b"y", b"\0"), "\t[y, <open ended>");
        assert_eq!(line(b"\xff", b"\0"), "\t[\u{fffd}, <open ended> (prefix \u{fffd})");
    }

    #[test]
    fn root_may_do_everything() {
        let lines = role_lines("root", &[]).join(&b'\n');
        let text = "Role root\nKV Read:\n\t[, <open ended>\nKV Write:\n\t[, <open ended>";
        assert_eq!(String::from_utf8_lossy(&lines), text);
    }
}
