//! `user`: who may talk to the cluster, with which password and in which roles.

use clap::{Args, Subcommand};
use meerkat_proto::pb::auth::UserAddOptions;
use meerkat_proto::pb::etcdserver as pb;

use super::arguments::{none, only, pair};
use super::cluster::{Cluster, refused};
use super::{password, role};
use crate::failure::Failure;
use crate::print::{self, Answer, AuthAnswer, Style};

/// User related commands
#[derive(Args, Debug)]
pub struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
}

// No argument here is called `user`: that is the global flag's name.
#[derive(Subcommand, Debug)]
enum UserCommand {
    /// Adds a new user
    #[command(args_override_self = true)]
    Add(AddArgs),
    /// Deletes a user
    Delete {
        #[arg(value_name = "USER")]
        name: Vec<String>,
    },
    /// Gets detailed information of a user
    #[command(args_override_self = true)]
    Get {
        #[arg(value_name = "USER")]
        name: Vec<String>,
        /// Show permissions of roles granted to the user
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
        detail: bool,
    },
    /// Lists all users
    List {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
    /// Changes password of user
    #[command(args_override_self = true)]
    Passwd {
        #[arg(value_name = "USER")]
        name: Vec<String>,
        /// With =false, the password is the first word on stdin
        #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
        interactive: bool,
    },
    /// Grants a role to a user
    GrantRole {
        #[arg(value_name = "USER ROLE")]
        user_role: Vec<String>,
    },
    /// Revokes a role from a user
    RevokeRole {
        #[arg(value_name = "USER ROLE")]
        user_role: Vec<String>,
    },
}

#[derive(Args, Debug)]
struct AddArgs {
    /// Its name, or name:password
    #[arg(value_name = "USER")]
    name: Vec<String>,
    /// With =false, the password is the first word on stdin
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    interactive: bool,
    /// The password; other users of this machine can see it in the list of processes
    #[arg(long, default_value = "")]
    new_user_password: String,
    /// Create a user without password, who logs in by certificate only
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    no_password: bool,
}

pub async fn run(args: &UserArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match &args.command {
        UserCommand::Add(args) => add(args, cluster, style).await,
        UserCommand::Delete { name } => {
            let name = only(name, "user delete command requires user name as its argument")?;
            style.format.refuse_table()?;
            let request = pb::AuthUserDeleteRequest { name: name.to_owned() };
            let done = cluster.auth(|mut auth| async move { auth.user_delete(request).await });
            done_with(done.await.map_err(refused)?.header, format!("User {name} deleted"), style)
        }
        UserCommand::Get { name, detail } => {
            let name = only(name, "user get command requires user name as its argument")?;
            get(name, *detail, cluster, style).await
        }
        UserCommand::List { unwanted } => {
            none(unwanted, "user list command requires no arguments")?;
            let request = pb::AuthUserListRequest {};
            let users = cluster.auth(|mut auth| async move { auth.user_list(request).await });
            show(AuthAnswer::Users(users.await.map_err(refused)?), style)
        }
        UserCommand::Passwd { name, interactive } => passwd(name, *interactive, cluster, style).await,
        UserCommand::GrantRole { user_role } => {
            let words = "user grant command requires user name and role name as its argument";
            let (user, role) = pair(user_role, words)?;
            style.format.refuse_table()?;
            let request = pb::AuthUserGrantRoleRequest { user: user.to_owned(), role: role.to_owned() };
            let done = cluster.auth(|mut auth| async move { auth.user_grant_role(request).await });
            let line = format!("Role {role} is granted to user {user}");
            done_with(done.await.map_err(refused)?.header, line, style)
        }
        UserCommand::RevokeRole { user_role } => {
            let words = "user revoke-role requires user name and role name as its argument";
            let (user, role) = pair(user_role, words)?;
            style.format.refuse_table()?;
            let request = pb::AuthUserRevokeRoleRequest { name: user.to_owned(), role: role.to_owned() };
            let done = cluster.auth(|mut auth| async move { auth.user_revoke_role(request).await });
            let line = format!("Role {role} is revoked from user {user}");
            done_with(done.await.map_err(refused)?.header, line, style)
        }
    }
}

async fn add(args: &AddArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let given = only(&args.name, "user add command requires user name as its argument")?;
    style.format.refuse_table()?;
    let (name, password) = name_and_password(given, args)?;
    let request = pb::AuthUserAddRequest {
        name: name.clone(),
        password,
        options: Some(UserAddOptions { no_password: args.no_password }),
        ..Default::default()
    };
    let done = cluster.auth(|mut auth| async move { auth.user_add(request).await });
    done_with(done.await.map_err(refused)?.header, format!("User {name} created"), style)
}

fn name_and_password(given: &str, args: &AddArgs) -> Result<(String, String), Failure> {
    let (name, password) = match given.split_once(':') {
        _ if args.no_password => (given, String::new()),
        _ if !args.new_user_password.is_empty() => (given, args.new_user_password.clone()),
        Some(("", _)) => return Err(Failure::bad_arguments("empty user name is not allowed")),
        Some((name, password)) => (name, password.to_owned()),
        None => (given, read_password(given, args.interactive)?),
    };
    Ok((name.to_owned(), password))
}

fn read_password(user: &str, interactive: bool) -> Result<String, Failure> {
    let stdin = std::io::stdin().lock();
    if interactive { password::ask_new(user, stdin) } else { password::read_word(stdin) }
}

async fn passwd(user: &[String], interactive: bool, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let name = only(user, "user passwd command requires user name as its argument")?;
    style.format.refuse_table()?;
    let request = pb::AuthUserChangePasswordRequest {
        name: name.to_owned(),
        password: read_password(name, interactive)?,
        ..Default::default()
    };
    let done = cluster.auth(|mut auth| async move { auth.user_change_password(request).await });
    done_with(done.await.map_err(refused)?.header, "Password updated".to_owned(), style)
}

async fn get(name: &str, detail: bool, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    let request = pb::AuthUserGetRequest { name: name.to_owned() };
    let user = cluster.auth(|mut auth| async move { auth.user_get(request).await });
    let response = user.await.map_err(refused)?;
    if !detail {
        return show(AuthAnswer::User { name: name.to_owned(), response }, style);
    }
    println!("User: {name}");
    for granted in &response.roles {
        println!();
        role::get(granted, cluster, style).await?;
    }
    Ok(())
}

fn done_with(header: Option<pb::ResponseHeader>, line: String, style: Style) -> Result<(), Failure> {
    show(AuthAnswer::Done { header, line: line.into() }, style)
}

fn show(answer: AuthAnswer, style: Style) -> Result<(), Failure> {
    print::show(&Answer::Auth(answer), style)
}
