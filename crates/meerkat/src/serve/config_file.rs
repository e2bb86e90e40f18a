//! etcd's configuration file: the flags by their names, in YAML, and two sections for TLS.
//!
//! A key that is not known is an error that names it: a setting that silently does nothing is the worst
//! kind. Durations are numbers of nanoseconds, as Go writes them, or text as on the command line.

use serde_norway::{Mapping, Value};

use super::flags::{self, Flag, Kind};

/// A setting: the flag, how it was spelled, and its value as text.
pub type Setting = (&'static Flag, String, String);

/// All settings of a file, in its order.
pub fn settings(text: &str) -> Result<Vec<Setting>, String> {
    let document: Value = serde_norway::from_str(text).map_err(|error| format!("not YAML: {error}"))?;
    let mapping = match document {
        Value::Null => Mapping::new(),
        Value::Mapping(mapping) => mapping,
        _ => return Err("expected a mapping of settings".to_owned()),
    };
    let mut settings = Vec::new();
    for (key, value) in &mapping {
        // In files etcd spells this one so.
        let key = match name(key)? {
            "experimental-snapshot-catch-up-entries" => "experimental-snapshot-catchup-entries",
            key => key,
        };
        match key {
            "client-transport-security" => section(key, value, client_flag, &mut settings)?,
            "peer-transport-security" => section(key, value, peer_flag, &mut settings)?,
            "socket-options" => section(key, value, socket_flag, &mut settings)?,
            "discovery-config" => discovery(key, value, &mut settings)?,
            _ => {
                let flag = flags::find(key).ok_or_else(|| unknown(key))?;
                let text = text_of(key, flag, value)?;
                settings.extend(text.map(|text| (flag, key.to_owned(), text)));
            }
        }
    }
    Ok(settings)
}

fn section(
    section: &str,
    value: &Value,
    flag_of: fn(&str) -> Option<&'static str>,
    settings: &mut Vec<Setting>,
) -> Result<(), String> {
    let mapping = match value {
        Value::Null => return Ok(()),
        Value::Mapping(mapping) => mapping,
        _ => return Err(format!("{section}: expected a mapping of settings")),
    };
    for (key, value) in mapping {
        let whole = format!("{section}.{}", name(key)?);
        let flag = flag_of(name(key)?).and_then(flags::find).ok_or_else(|| unknown(&whole))?;
        let text = text_of(&whole, flag, value)?;
        settings.extend(text.map(|text| (flag, flag.name.to_owned(), text)));
    }
    Ok(())
}

/// The one section with sections in it.
fn discovery(key: &str, value: &Value, settings: &mut Vec<Setting>) -> Result<(), String> {
    let (client, rest) = without("client", value);
    section(key, &rest, discovery_flag, settings)?;
    let (secure, rest) = without("secure", &client);
    let (auth, rest) = without("auth", &rest);
    for part in [rest, secure, auth] {
        section(&format!("{key}.client"), &part, discovery_client_flag, settings)?;
    }
    Ok(())
}

/// A section within a section, and what is left of the outer one.
fn without(inner: &str, outer: &Value) -> (Value, Value) {
    let Value::Mapping(mapping) = outer else { return (Value::Null, outer.clone()) };
    let mut rest = mapping.clone();
    let taken = rest.remove(inner).unwrap_or_default();
    (taken, Value::Mapping(rest))
}

fn discovery_flag(key: &str) -> Option<&'static str> {
    (key == "token").then_some("discovery-token")
}

fn discovery_client_flag(key: &str) -> Option<&'static str> {
    Some(match key {
        "endpoints" => "discovery-endpoints",
        "request-timeout" => "discovery-request-timeout",
        "dial-timeout" => "discovery-dial-timeout",
        "keepalive-time" => "discovery-keepalive-time",
        "keepalive-timeout" => "discovery-keepalive-timeout",
        "cert" => "discovery-cert",
        "key" => "discovery-key",
        "cacert" => "discovery-cacert",
        "insecure-transport" => "discovery-insecure-transport",
        "insecure-skip-tls-verify" => "discovery-insecure-skip-tls-verify",
        "username" => "discovery-user",
        "password" => "discovery-password",
        _ => return None,
    })
}

fn client_flag(key: &str) -> Option<&'static str> {
    Some(match key {
        "cert-file" => "cert-file",
        "key-file" => "key-file",
        "client-cert-file" => "client-cert-file",
        "client-key-file" => "client-key-file",
        "client-cert-auth" => "client-cert-auth",
        "trusted-ca-file" => "trusted-ca-file",
        "crl-file" => "client-crl-file",
        "auto-tls" => "auto-tls",
        "allowed-hostname" => "client-cert-allowed-hostname",
        _ => return None,
    })
}

fn peer_flag(key: &str) -> Option<&'static str> {
    Some(match key {
        "cert-file" => "peer-cert-file",
        "key-file" => "peer-key-file",
        "client-cert-file" => "peer-client-cert-file",
        "client-key-file" => "peer-client-key-file",
        "client-cert-auth" => "peer-client-cert-auth",
        "trusted-ca-file" => "peer-trusted-ca-file",
        "crl-file" => "peer-crl-file",
        "auto-tls" => "peer-auto-tls",
        "allowed-cn" => "peer-cert-allowed-cn",
        "allowed-hostname" => "peer-cert-allowed-hostname",
        "skip-client-san-verification" => "peer-skip-client-san-verification",
        _ => return None,
    })
}

fn socket_flag(key: &str) -> Option<&'static str> {
    Some(match key {
        "reuse-port" => "socket-reuse-port",
        "reuse-address" => "socket-reuse-address",
        _ => return None,
    })
}

fn name(key: &Value) -> Result<&str, String> {
    key.as_str().ok_or_else(|| format!("expected the name of a setting, not {key:?}"))
}

fn unknown(key: &str) -> String {
    format!("unknown setting {key:?}")
}

/// A value as the command line would have it; none if it is not given.
fn text_of(key: &str, flag: &'static Flag, value: &Value) -> Result<Option<String>, String> {
    let text = match value {
        Value::Null => return Ok(None),
        Value::Number(number) if flag.kind == Kind::Time => format!("{number}ns"),
        Value::Sequence(items) => {
            let items = items.iter().map(scalar).collect::<Option<Vec<String>>>();
            items.ok_or_else(|| format!("{key}: expected a list of texts"))?.join(",")
        }
        value => scalar(value).ok_or_else(|| format!("{key}: expected one value"))?,
    };
    Ok(Some(text))
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let got = settings(text).expect("a good file");
        let got: Vec<(&str, &str)> = got.iter().map(|(flag, _, value)| (flag.name, value.as_str())).collect();
        assert_eq!(got, expected, "for {text:?}");
    }

    #[test]
    fn settings_have_the_names_of_flags() {
        check("", &[]);
        check(
            "name: 'a'\nsnapshot-count: 5\npre-vote: false\nwal-dir:\n",
            &[("name", "a"), ("snapshot-count", "5"), ("pre-vote", "false")],
        );
        check(
            "log-outputs: [stderr, /var/log/a.log]\nenable-log-rotation: true\ncipher-suites: [A, B]",
            &[
                ("log-outputs", "stderr,/var/log/a.log"),
                ("enable-log-rotation", "true"),
                ("cipher-suites", "A,B"),
            ],
        );
        check("experimental-initial-corrupt-check: true", &[("initial-corrupt-check", "true")]);
    }

    #[test]
    fn durations_are_nanoseconds_or_text() {
        check(
            "watch-progress-notify-interval: 5000000000",
            &[("watch-progress-notify-interval", "5000000000ns")],
        );
        check("watch-progress-notify-interval: 5s", &[("watch-progress-notify-interval", "5s")]);
    }

    #[test]
    fn tls_has_sections() {
        check(
            "client-transport-security:\n  cert-file: c\n  client-cert-auth: true\npeer-transport-security:\n  \
             cert-file: p\n  allowed-cn: [a, b]\n  auto-tls: false\nsocket-options:\n  reuse-port: true\n",
            &[
                ("cert-file", "c"),
                ("client-cert-auth", "true"),
                ("peer-cert-file", "p"),
                ("peer-cert-allowed-cn", "a,b"),
                ("peer-auto-tls", "false"),
                ("socket-reuse-port", "true"),
            ],
        );
    }

    #[test]
    fn discovery_has_sections_in_its_section() {
        check(
            "discovery-config:\n  token: t\n  client:\n    endpoints: [a, b]\n    dial-timeout: 7\n    secure:\n      \
             insecure-transport: false\n    auth:\n      username: u\n      password: p\n",
            &[
                ("discovery-token", "t"),
                ("discovery-endpoints", "a,b"),
                ("discovery-dial-timeout", "7ns"),
                ("discovery-insecure-transport", "false"),
                ("discovery-user", "u"),
                ("discovery-password", "p"),
            ],
        );
        check("discovery-config:\n  token:\n  client:\n", &[]);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let refused = |text| settings(text).expect_err("must be refused");
        assert_eq!(refused("naem: x"), "unknown setting \"naem\"");
        assert_eq!(
            refused("peer-transport-security:\n  cret-file: x"),
            "unknown setting \"peer-transport-security.cret-file\""
        );
        assert!(refused("client-transport-security: 3").contains("expected a mapping"));
        assert_eq!(
            refused("discovery-config:\n  client:\n    secure:\n      crt: x"),
            "unknown setting \"discovery-config.client.crt\""
        );
        assert!(refused("discovery-config:\n  client: 3").contains("expected a mapping"));
        assert!(refused("name: {a: b}").contains("expected one value"));
        assert!(refused("- a").contains("expected a mapping"));
        assert!(refused("a: [").contains("not YAML"));
    }
}
