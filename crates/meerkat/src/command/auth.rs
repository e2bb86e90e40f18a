//! `auth enable | disable | status`: whether the cluster asks who one is.

use clap::{Args, Subcommand};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver as pb;

use super::arguments::none;
use super::cluster::{Cluster, refused};
use crate::failure::Failure;
use crate::print::{self, Answer, AuthAnswer, Style};

/// Enable or disable authentication
#[derive(Args, Debug)]
pub struct AuthArgs {
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Subcommand, Debug)]
enum AuthCommand {
    /// Enables authentication
    Enable {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
    /// Disables authentication
    Disable {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
    /// Returns authentication status
    Status {
        #[arg(hide = true)]
        unwanted: Vec<String>,
    },
}

pub async fn run(args: &AuthArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    match &args.command {
        AuthCommand::Enable { unwanted } => {
            none(unwanted, "auth enable command does not accept any arguments")?;
            enable(cluster).await
        }
        AuthCommand::Disable { unwanted } => {
            none(unwanted, "auth disable command does not accept any arguments")?;
            let request = pb::AuthDisableRequest {};
            cluster
                .auth(|mut auth| async move { auth.auth_disable(request).await })
                .await
                .map_err(refused)?;
            println!("Authentication Disabled");
            Ok(())
        }
        AuthCommand::Status { unwanted } => {
            none(unwanted, "auth status command does not accept any arguments")?;
            let request = pb::AuthStatusRequest {};
            let status = cluster.auth(|mut auth| async move { auth.auth_status(request).await });
            print::show(&Answer::Auth(AuthAnswer::Status(status.await.map_err(refused)?)), style)
        }
    }
}

/// The user `root` must be there; the role that it needs is made if it is not.
async fn enable(cluster: &Cluster) -> Result<(), Failure> {
    match try_enable(cluster).await {
        Err(reason) if reason == EtcdError::RootRoleNotExist.message() => {
            make_root_role(cluster).await.map_err(refused)?;
            try_enable(cluster).await.map_err(refused)?;
        }
        outcome => outcome.map_err(refused)?,
    }
    println!("Authentication Enabled");
    Ok(())
}

async fn try_enable(cluster: &Cluster) -> Result<(), String> {
    let request = pb::AuthEnableRequest {};
    cluster.auth(|mut auth| async move { auth.auth_enable(request).await }).await.map(drop)
}

async fn make_root_role(cluster: &Cluster) -> Result<(), String> {
    let role = || "root".to_owned();
    let add = pb::AuthRoleAddRequest { name: role() };
    match cluster.auth(|mut auth| async move { auth.role_add(add).await }).await {
        Err(reason) if reason != EtcdError::RoleAlreadyExist.message() => return Err(reason),
        _ => {}
    }
    let grant = pb::AuthUserGrantRoleRequest { user: role(), role: role() };
    cluster.auth(|mut auth| async move { auth.user_grant_role(grant).await }).await.map(drop)
}
