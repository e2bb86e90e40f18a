//! `role`: what users in a role may do, key range by key range.

use std::ffi::OsString;

use bytes::Bytes;
use clap::{Args, Subcommand};
use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::auth::permission::Type;
use meerkat_proto::pb::etcdserver as pb;

use super::arguments::{none, only};
use super::cluster::{Cluster, refused};
use super::key_range::{KeyRange, bytes, prefix_end};
use crate::failure::Failure;
use crate::print::{self, Answer, AuthAnswer, Style};

/// Role related commands
#[derive(Args, Debug)]
pub struct RoleArgs {
    #[command(subcommand)]
    command: RoleCommand,
}

#[derive(Subcommand, Debug)]
enum RoleCommand {
    /// Adds a new role
    Add {
        #[arg(value_name = "ROLE")]
        role: Vec<String>,
    },
    /// Deletes a role
    Delete {
        #[arg(value_name = "ROLE")]
        role: Vec<String>,
    },
    /// Gets detailed information of a role
    Get {
        #[arg(value_name = "ROLE")]
        role: Vec<String>,
    },
    /// Lists all roles
    List {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
    /// Grants a key to a role
    #[command(args_override_self = true)]
    GrantPermission(PermissionArgs),
    /// Revokes a key from a role
    #[command(args_override_self = true)]
    RevokePermission(PermissionArgs),
}

#[derive(Args, Debug)]
struct PermissionArgs {
    /// <role> <read|write|readwrite> <key> [endkey]; to revoke, without the kind of permission
    #[arg(value_name = "ROLE PERMISSION KEY")]
    words: Vec<OsString>,
    /// All keys with that prefix
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    prefix: bool,
    /// All keys from that one on, in the order of their bytes
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    from_key: bool,
}

pub async fn run(args: &RoleArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match &args.command {
        RoleCommand::Add { role } => {
            let name = only(role, "role add command requires role name as its argument")?;
            style.format.refuse_table()?;
            let request = pb::AuthRoleAddRequest { name: name.to_owned() };
            let done = cluster.auth(|mut auth| async move { auth.role_add(request).await });
            done_with(done.await.map_err(refused)?.header, format!("Role {name} created"), style)
        }
        RoleCommand::Delete { role } => {
            let name = only(role, "role delete command requires role name as its argument")?;
            style.format.refuse_table()?;
            let request = pb::AuthRoleDeleteRequest { role: name.to_owned() };
            let done = cluster.auth(|mut auth| async move { auth.role_delete(request).await });
            done_with(done.await.map_err(refused)?.header, format!("Role {name} deleted"), style)
        }
        RoleCommand::Get { role } => {
            get(only(role, "role get command requires role name as its argument")?, cluster, style).await
        }
        RoleCommand::List { unwanted } => {
            none(unwanted, "role list command requires no arguments")?;
            let request = pb::AuthRoleListRequest {};
            let roles = cluster.auth(|mut auth| async move { auth.role_list(request).await });
            print::show(&Answer::Auth(AuthAnswer::Roles(roles.await.map_err(refused)?)), style)
        }
        RoleCommand::GrantPermission(args) => grant(args, cluster, style).await,
        RoleCommand::RevokePermission(args) => revoke(args, cluster, style).await,
    }
}

pub async fn get(name: &str, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let request = pb::AuthRoleGetRequest { role: name.to_owned() };
    let role = cluster.auth(|mut auth| async move { auth.role_get(request).await });
    let response = role.await.map_err(refused)?;
    print::show(&Answer::Auth(AuthAnswer::Role { name: name.to_owned(), response }), style)
}

async fn grant(args: &PermissionArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let [role, kind, keys @ ..] = args.words.as_slice() else { return Err(grant_words()) };
    if keys.is_empty() {
        return Err(grant_words());
    }
    let perm_type = permission_type(&kind.to_string_lossy())?;
    let KeyRange { key, range_end } = range(keys, args.prefix, args.from_key)?;
    style.format.refuse_table()?;
    let name = role.to_string_lossy().into_owned();
    let perm = Some(Permission { perm_type: perm_type.into(), key, range_end });
    let request = pb::AuthRoleGrantPermissionRequest { name: name.clone(), perm };
    let done = cluster.auth(|mut auth| async move { auth.role_grant_permission(request).await });
    done_with(done.await.map_err(refused)?.header, format!("Role {name} updated"), style)
}

fn grant_words() -> Failure {
    Failure::bad_arguments(
        "role grant command requires role name, permission type, and key [endkey] as its argument",
    )
}

async fn revoke(args: &PermissionArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let (role, keys) = match args.words.as_slice() {
        [role, keys @ ..] if !keys.is_empty() => (role, keys),
        _ => {
            return Err(Failure::bad_arguments(
                "role revoke-permission command requires role name and key [endkey] as its argument",
            ));
        }
    };
    let KeyRange { key, range_end } = range(keys, args.prefix, args.from_key)?;
    style.format.refuse_table()?;
    let role = role.to_string_lossy().into_owned();
    let line = revoked_line(&role, &bytes(&keys[0]), &range_end);
    let request = pb::AuthRoleRevokePermissionRequest { role, key, range_end };
    let done = cluster.auth(|mut auth| async move { auth.role_revoke_permission(request).await });
    let header = done.await.map_err(refused)?.header;
    print::show(&Answer::Auth(AuthAnswer::Done { header, line }), style)
}

/// Names the key as it was given.
fn revoked_line(role: &str, key: &[u8], range_end: &[u8]) -> Vec<u8> {
    let tail = format!(" is revoked from role {role}");
    let parts: Vec<&[u8]> = match range_end {
        [] => vec![b"Permission of key ", key],
        [0] => vec![b"Permission of range [", key, b", <open ended>"],
        end => vec![b"Permission of range [", key, b", ", end, b")"],
    };
    [parts.concat().as_slice(), tail.as_bytes()].concat()
}

fn permission_type(text: &str) -> Result<Type, Failure> {
    match text.to_uppercase().as_str() {
        "READ" => Ok(Type::Read),
        "WRITE" => Ok(Type::Write),
        "READWRITE" => Ok(Type::Readwrite),
        _ => Err(Failure::bad_arguments(format!("invalid permission type: {text}"))),
    }
}

/// Which keys are meant. The empty key is spelled as the first possible one: permissions know no empty
/// key.
fn range(keys: &[OsString], prefix: bool, from_key: bool) -> Result<KeyRange, Failure> {
    const ZERO: Bytes = Bytes::from_static(b"\0");
    let refused = |why: &str| Err(Failure::bad_arguments(why));
    let key = bytes(&keys[0]);
    let range_end = match (keys.get(1), prefix, from_key) {
        (None, true, true) => return refused("--from-key and --prefix flags are mutually exclusive"),
        (Some(_), true, _) => return refused("unexpected endkey argument with --prefix flag"),
        (Some(_), _, true) => return refused("unexpected endkey argument with --from-key flag"),
        (Some(end), ..) => bytes(end),
        (None, true, false) if key.is_empty() => ZERO,
        (None, true, false) => prefix_end(&key),
        (None, false, true) => ZERO,
        (None, false, false) => Bytes::new(),
    };
    Ok(KeyRange { key: if key.is_empty() { ZERO } else { key }, range_end })
}

fn done_with(header: Option<pb::ResponseHeader>, line: String, style: Style) -> Result<(), Failure> {
    print::show(&Answer::Auth(AuthAnswer::Done { header, line: line.into() }), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_cover_the_keys_that_are_said() {
        let read = |keys: &[&str], prefix, from_key| {
            let keys: Vec<OsString> = keys.iter().map(OsString::from).collect();
            match range(&keys, prefix, from_key) {
                Ok(KeyRange { key, range_end }) => format!("{key:?}..{range_end:?}"),
                Err(failure) => failure.message,
            }
        };
        assert_eq!(read(&["a"], false, false), r#"b"a"..b"""#);
        assert_eq!(read(&["a"], true, false), r#"b"a"..b"b""#);
        assert_eq!(read(&["a"], false, true), r#"b"a"..b"\0""#);
        assert_eq!(read(&["a", "c"], false, false), r#"b"a"..b"c""#);
        assert_eq!(read(&[""], true, false), r#"b"\0"..b"\0""#);
        assert_eq!(read(&[""], false, true), r#"b"\0"..b"\0""#);
        assert_eq!(read(&[""], false, false), r#"b"\0"..b"""#);
        assert_eq!(read(&["a"], true, true), "--from-key and --prefix flags are mutually exclusive");
        assert_eq!(read(&["a", "b"], true, false), "unexpected endkey argument with --prefix flag");
    }
}
