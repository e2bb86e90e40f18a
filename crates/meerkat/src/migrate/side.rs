//! How the two clusters of a migration are reached, and as whom.

use clap::Args;
use meerkat_client::Client;
use std::time::Duration;

use crate::command::{Cluster, Dialing, TlsFiles, login};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub struct Source {
    /// Members of the etcd to copy, comma-separated
    #[arg(long, value_name = "ENDPOINTS")]
    from: String,
    /// Trust source servers whose certificate this CA bundle vouches for
    #[arg(long, value_name = "FILE")]
    from_cacert: Option<String>,
    /// Identify this client with this certificate at the source
    #[arg(long, value_name = "FILE")]
    from_cert: Option<String>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE")]
    from_key: Option<String>,
    /// With =false, encrypt connections to a source that does not say http://
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    from_insecure_transport: bool,
    /// Source username[:password]
    #[arg(long, value_name = "USER")]
    from_user: Option<String>,
    /// Source password
    #[arg(long, value_name = "PASSWORD")]
    from_password: Option<String>,
}

#[derive(Args, Debug)]
pub struct Destination {
    /// Members of the Meerkat to copy to, comma-separated; it must be empty
    #[arg(long, value_name = "ENDPOINTS")]
    to: String,
    /// Trust destination servers whose certificate this CA bundle vouches for
    #[arg(long, value_name = "FILE")]
    to_cacert: Option<String>,
    /// Identify this client with this certificate at the destination
    #[arg(long, value_name = "FILE")]
    to_cert: Option<String>,
    /// The key of that certificate
    #[arg(long, value_name = "FILE")]
    to_key: Option<String>,
    /// With =false, encrypt connections to a destination that does not say http://
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    to_insecure_transport: bool,
    /// Destination username[:password]
    #[arg(long, value_name = "USER")]
    to_user: Option<String>,
    /// Destination password
    #[arg(long, value_name = "PASSWORD")]
    to_password: Option<String>,
}

/// One of the two, whichever.
struct Side<'a> {
    flag: &'static str,
    endpoints: &'a str,
    files: TlsFiles,
    insecure_transport: bool,
    user: (Option<String>, Option<String>),
    prompt: &'static str,
}

impl Source {
    pub async fn connect(&self) -> Result<Client, Failure> {
        let side = Side {
            flag: "--from",
            endpoints: &self.from,
            files: TlsFiles {
                cacert: self.from_cacert.clone(),
                cert: self.from_cert.clone(),
                key: self.from_key.clone(),
            },
            insecure_transport: self.from_insecure_transport,
            user: (self.from_user.clone(), self.from_password.clone()),
            prompt: "Source Password: ",
        };
        side.connect().await
    }
}

impl Destination {
    pub async fn connect(&self) -> Result<Client, Failure> {
        let side = Side {
            flag: "--to",
            endpoints: &self.to,
            files: TlsFiles {
                cacert: self.to_cacert.clone(),
                cert: self.to_cert.clone(),
                key: self.to_key.clone(),
            },
            insecure_transport: self.to_insecure_transport,
            user: (self.to_user.clone(), self.to_password.clone()),
            prompt: "Destination Password: ",
        };
        side.connect().await
    }
}

impl Side<'_> {
    async fn connect(self) -> Result<Client, Failure> {
        let flag = self.flag;
        let named = |failure: Failure| Failure::error(format!("{flag}: {}", failure.message));
        let (user, password) = self.user;
        let dialing = Dialing {
            tls: self.files.load(self.insecure_transport, false).map_err(named)?,
            login: login(user, password, self.prompt).map_err(named)?,
            ..Dialing::plain(DIAL_TIMEOUT, REQUEST_TIMEOUT)
        };
        let endpoints = Endpoint::parse_list(self.endpoints).map_err(named)?;
        Cluster::new(endpoints, dialing).client().await.map_err(named)
    }
}
