//! The flags that every command has, and the variables that stand in for them: `etcdctl`'s, as
//! `ETCDCTL_<FLAG>`.
//!
//! A flag wins over its variable. What is given is used or refused, never ignored.

use std::fs;
use std::io;
use std::time::Duration;

use clap::Args;
use meerkat_client::Tls;
use meerkat_proto::reason;

use super::cluster::{Dialing, Login};
use super::discovery::Discovery;
use super::password;
use crate::endpoint::{Endpoint, Scheme};
use crate::failure::Failure;
use crate::go_duration;
use crate::print::{Format, Style};

const ENDPOINT_DEFAULT: &str = "127.0.0.1:2379";

/// Connections are asked for a sign of life no more often than this, as by etcd's own client: servers
/// hang up on clients that ask more often than every five seconds.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(10);

#[derive(Args, Debug)]
pub struct GlobalArgs {
    /// Members to talk to, comma-separated or given several times [default: 127.0.0.1:2379; MEERKAT_ENDPOINTS, ETCDCTL_ENDPOINTS]
    #[arg(long, global = true, action = clap::ArgAction::Append)]
    endpoints: Vec<String>,
    /// Output format: simple, json, fields, table or protobuf [default: simple]
    #[arg(short, long, global = true)]
    write_out: Option<String>,
    /// Print byte strings in hexadecimal
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hex: Option<bool>,
    /// How long a request may take [default: 5s]
    #[arg(long, global = true)]
    command_timeout: Option<String>,
    /// How long a connection may take [default: 2s]
    #[arg(long, global = true)]
    dial_timeout: Option<String>,
    /// Username[:password] for authentication; asks for the password if it is not supplied
    #[arg(long, global = true)]
    user: Option<String>,
    /// Password for authentication; --user is then the name alone
    #[arg(long, global = true)]
    password: Option<String>,
    /// Trust servers whose certificate this CA bundle (PEM) vouches for
    #[arg(long, global = true)]
    cacert: Option<String>,
    /// Identify this client with this certificate (PEM)
    #[arg(long, global = true)]
    cert: Option<String>,
    /// The key of that certificate (PEM)
    #[arg(long, global = true)]
    key: Option<String>,
    /// Encrypt, but believe any server. For testing only
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_skip_tls_verify: Option<bool>,
    /// With =false, encrypt connections to endpoints that do not say http:// [default: true]
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_transport: Option<bool>,
    /// How often a long connection is asked for a sign of life; no more often than every 10s [default: 2s]
    #[arg(long, global = true)]
    keepalive_time: Option<String>,
    /// How long it may take to give one [default: 6s]
    #[arg(long, global = true)]
    keepalive_timeout: Option<String>,
    /// Say on stderr what the flags and variables come to
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    debug: Option<bool>,
    /// Find the members by the SRV records of this domain
    #[arg(short = 'd', long, global = true)]
    discovery_srv: Option<String>,
    /// Of several clusters in that domain, this one
    #[arg(long, global = true)]
    discovery_srv_name: Option<String>,
    /// With =false, pass over members that the domain names to be talked to in clear [default: true]
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_discovery: Option<bool>,
}

/// What the global flags and variables come to.
pub struct Settings {
    pub endpoints: Vec<Endpoint>,
    pub style: Style,
    pub dialing: Dialing,
}

/// The endpoints to talk to: those of the flag, else of the environment, else this machine's. For
/// commands that talk in clear only.
pub fn plain_endpoints(
    flag: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Endpoint>, Failure> {
    let endpoints = any_endpoints(flag, variable)?;
    let refused = endpoints.iter().find_map(|endpoint| match endpoint.scheme() {
        Some(Scheme::Https) => Some((endpoint, "does not speak TLS")),
        Some(Scheme::Unix) => Some((endpoint, "takes host:port only")),
        Some(Scheme::Http) | None => None,
    });
    match refused {
        Some((endpoint, why)) => {
            Err(Failure::bad_arguments(format!("endpoint {endpoint}: this command {why}")))
        }
        None => Ok(endpoints),
    }
}

pub fn any_endpoints(
    flag: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Endpoint>, Failure> {
    let from_environment = ["MEERKAT_ENDPOINTS", "ETCDCTL_ENDPOINTS"].into_iter().filter_map(variable);
    let chosen =
        flag.map(str::to_owned).or_else(|| from_environment.into_iter().find(|text| !text.is_empty()));
    Endpoint::parse_list(chosen.as_deref().unwrap_or(ENDPOINT_DEFAULT))
}

/// Reads flags, variables and the files they name; asks on the terminal for a password that is missing.
pub fn settings(global: &GlobalArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Failure> {
    let given = Given { variable: &variable };
    let insecure_discovery = given.switch(global.insecure_discovery, "INSECURE_DISCOVERY")?.unwrap_or(true);
    let domain = given.text(&global.discovery_srv, "DISCOVERY_SRV").filter(|domain| !domain.is_empty());
    let endpoints = match &domain {
        Some(domain) => Discovery {
            domain,
            service_name: given.text(&global.discovery_srv_name, "DISCOVERY_SRV_NAME").as_deref(),
            insecure: insecure_discovery,
        }
        .endpoints()?,
        None => {
            let given = (!global.endpoints.is_empty()).then(|| global.endpoints.join(","));
            any_endpoints(given.as_deref(), &variable)?
        }
    };
    // Whom the domain names must have a certificate of the domain, unless anybody will do.
    let server_name = domain.filter(|_| !insecure_discovery);
    let settings = Settings {
        endpoints,
        style: Style {
            format: Format::parse(given.text(&global.write_out, "WRITE_OUT").as_deref().unwrap_or("simple"))?,
            hex: given.switch(global.hex, "HEX")?.unwrap_or(false),
        },
        dialing: Dialing {
            command_timeout: given.duration(&global.command_timeout, "COMMAND_TIMEOUT", "5s")?,
            dial_timeout: given.duration(&global.dial_timeout, "DIAL_TIMEOUT", "2s")?,
            keep_alive_interval: given
                .duration(&global.keepalive_time, "KEEPALIVE_TIME", "2s")?
                .max(KEEP_ALIVE_MIN),
            keep_alive_timeout: given.duration(&global.keepalive_timeout, "KEEPALIVE_TIMEOUT", "6s")?,
            tls: tls(global, &given, server_name)?,
            login: login(
                given.text(&global.user, "USER"),
                given.text(&global.password, "PASSWORD"),
                "Password: ",
            )?,
        },
    };
    if given.switch(global.debug, "DEBUG")?.unwrap_or(false) {
        tell(&settings);
    }
    Ok(settings)
}

/// Where a setting comes from: its flag, else its variable.
struct Given<'v> {
    variable: &'v dyn Fn(&str) -> Option<String>,
}

impl Given<'_> {
    fn text(&self, flag: &Option<String>, name: &str) -> Option<String> {
        flag.clone().or_else(|| (self.variable)(&format!("ETCDCTL_{name}")).filter(|text| !text.is_empty()))
    }

    fn switch(&self, flag: Option<bool>, name: &str) -> Result<Option<bool>, Failure> {
        let Some(text) = self.text(&flag.map(|on| on.to_string()), name) else { return Ok(None) };
        match text.to_lowercase().as_str() {
            "true" | "t" | "1" => Ok(Some(true)),
            "false" | "f" | "0" => Ok(Some(false)),
            _ => Err(Failure::bad_arguments(format!("ETCDCTL_{name}={text:?}: expected true or false"))),
        }
    }

    fn duration(&self, flag: &Option<String>, name: &str, default: &str) -> Result<Duration, Failure> {
        let text = self.text(flag, name).unwrap_or_else(|| default.to_owned());
        let flag_name = name.to_lowercase().replace('_', "-");
        go_duration::parse(&text).map_err(|reason| {
            Failure::error(format!("invalid argument {text:?} for \"--{flag_name}\" flag: {reason}"))
        })
    }
}

/// `None` if nothing asks for encryption of connections whose endpoint does not.
fn tls(global: &GlobalArgs, given: &Given<'_>, server_name: Option<String>) -> Result<TlsChoice, Failure> {
    let file = |flag: &Option<String>, name: &str| {
        let path = given.text(flag, name);
        match path.as_deref() {
            Some("") => Err(Failure::bad_arguments(format!(
                "empty string is passed to --{} option",
                name.to_lowercase()
            ))),
            _ => Ok(path),
        }
    };
    let files = TlsFiles {
        cacert: file(&global.cacert, "CACERT")?,
        cert: file(&global.cert, "CERT")?,
        key: file(&global.key, "KEY")?,
    };
    let insecure = given.switch(global.insecure_transport, "INSECURE_TRANSPORT")?.unwrap_or(true);
    let anyone = given.switch(global.insecure_skip_tls_verify, "INSECURE_SKIP_TLS_VERIFY")?.unwrap_or(false);
    let choice = files.load(insecure, anyone)?;
    Ok(match server_name {
        Some(name) => TlsChoice { tls: choice.tls.domain(name), by_default: true },
        None => choice,
    })
}

/// How connections are encrypted, and whether those are that do not say.
#[derive(Clone, Debug)]
pub struct TlsChoice {
    pub tls: Tls,
    pub by_default: bool,
}

/// The files that say whom to trust and who this is.
pub struct TlsFiles {
    pub cacert: Option<String>,
    pub cert: Option<String>,
    pub key: Option<String>,
}

impl TlsFiles {
    pub fn load(&self, insecure_transport: bool, trust_anyone: bool) -> Result<TlsChoice, Failure> {
        let read = |path: &str, flag: &str| {
            fs::read(path).map_err(|error| {
                Failure::bad_arguments(format!("{flag} {path}: {}", reason::of_system(&error)))
            })
        };
        let mut tls = Tls::new();
        if let Some(path) = &self.cacert {
            tls = tls.authority(read(path, "--cacert")?);
        }
        match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                tls = tls.identity(read(cert, "--cert")?, read(key, "--key")?);
            }
            (None, None) => {}
            (Some(_), None) => {
                return Err(Failure::bad_arguments(
                    "--cert needs --key: a certificate is proved with its key",
                ));
            }
            (None, Some(_)) => {
                return Err(Failure::bad_arguments("--key needs --cert: a key alone names nobody"));
            }
        }
        if trust_anyone {
            tls = tls.trust_anyone();
        }
        let by_default = self.cacert.is_some() || self.cert.is_some() || !insecure_transport;
        Ok(TlsChoice { tls, by_default })
    }
}

/// `name:password`, or a name and a password; a password that is missing is asked for.
pub fn login(user: Option<String>, password: Option<String>, prompt: &str) -> Result<Option<Login>, Failure> {
    let Some(user) = user.filter(|user| !user.is_empty()) else {
        return match password.is_some_and(|password| !password.is_empty()) {
            true => Err(Failure::bad_arguments("a password without a user: say whose it is with --user")),
            false => Ok(None),
        };
    };
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        return Ok(Some(Login { user, password }));
    }
    if let Some((name, password)) = user.split_once(':') {
        return Ok(Some(Login { user: name.to_owned(), password: password.to_owned() }));
    }
    let password = password::ask(prompt, io::stdin().lock())?;
    Ok(Some(Login { user, password }))
}

/// Everything but the secrets.
fn tell(settings: &Settings) {
    let endpoints: Vec<String> = settings.endpoints.iter().map(Endpoint::to_string).collect();
    let dialing = &settings.dialing;
    let lines = [
        ("ENDPOINTS", endpoints.join(",")),
        ("WRITE_OUT", format!("{:?}", settings.style.format).to_lowercase()),
        ("HEX", settings.style.hex.to_string()),
        ("COMMAND_TIMEOUT", go_duration::format(dialing.command_timeout)),
        ("DIAL_TIMEOUT", go_duration::format(dialing.dial_timeout)),
        ("KEEPALIVE_TIME", go_duration::format(dialing.keep_alive_interval)),
        ("KEEPALIVE_TIMEOUT", go_duration::format(dialing.keep_alive_timeout)),
        ("USER", dialing.login.as_ref().map_or(String::new(), |login| login.user.clone())),
        ("INSECURE_TRANSPORT", (!dialing.tls.by_default).to_string()),
    ];
    for (name, value) in lines {
        eprintln!("ETCDCTL_{name}={value}");
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        global: GlobalArgs,
    }

    fn check(args: &[&str], environment: &[(&str, &str)], expected: &str) {
        let line = Line::try_parse_from(["meerkat"].iter().chain(args)).expect("good arguments");
        let variable =
            |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        let got = match settings(&line.global, variable) {
            Ok(s) => {
                let endpoints: Vec<String> = s.endpoints.iter().map(Endpoint::to_string).collect();
                let user =
                    s.dialing.login.map_or(String::new(), |l| format!(" as {}/{}", l.user, l.password));
                format!(
                    "{} {:?} {} {:?}{}{user}",
                    endpoints.join(","),
                    s.style.format,
                    s.style.hex,
                    s.dialing.command_timeout,
                    if s.dialing.tls.by_default { " encrypted" } else { "" }
                )
            }
            Err(failure) => failure.message,
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn variables_stand_in_for_flags_and_yield_to_them() {
        check(&[], &[("ETCDCTL_ENDPOINTS", "e:1")], "e:1 Simple false 5s");
        let both = [("ETCDCTL_ENDPOINTS", "e:1"), ("MEERKAT_ENDPOINTS", "m:1")];
        check(&[], &both, "m:1 Simple false 5s");
        check(&["--endpoints=f:1"], &[("ETCDCTL_ENDPOINTS", "e:1")], "f:1 Simple false 5s");
        check(&["--endpoints=f:1", "--endpoints=g:1,h:1"], &[], "f:1,g:1,h:1 Simple false 5s");
        let three =
            [("ETCDCTL_WRITE_OUT", "table"), ("ETCDCTL_HEX", "true"), ("ETCDCTL_COMMAND_TIMEOUT", "1m")];
        check(&[], &three, "127.0.0.1:2379 Table true 60s");
    }

    #[test]
    fn a_user_has_a_password_in_one_of_two_places() {
        check(&["--user=a:b:c", "--endpoints=e:1"], &[], "e:1 Simple false 5s as a/b:c");
        check(&["--user=a", "--password=p", "--endpoints=e:1"], &[], "e:1 Simple false 5s as a/p");
        check(&["--endpoints=e:1"], &[("ETCDCTL_USER", "a:b")], "e:1 Simple false 5s as a/b");
        check(&["--password=p"], &[], "a password without a user: say whose it is with --user");
    }

    #[test]
    fn what_is_given_is_used_or_refused_and_not_ignored() {
        check(&["--insecure-transport=false", "--endpoints=e:1"], &[], "e:1 Simple false 5s encrypted");
        check(&["--cert=a"], &[], "--cert needs --key: a certificate is proved with its key");
        check(&["--cacert="], &[], "empty string is passed to --cacert option");
        check(&["--cacert=/no/such/file"], &[], "--cacert /no/such/file: no such file or directory");
        check(&["-w", "xml"], &[], "unsupported output format");
        check(&[], &[("ETCDCTL_HEX", "maybe")], "ETCDCTL_HEX=\"maybe\": expected true or false");
        check(
            &["--command-timeout", "1x"],
            &[],
            "invalid argument \"1x\" for \"--command-timeout\" flag: time: unknown unit \"x\" in duration \"1x\"",
        );
    }
}
