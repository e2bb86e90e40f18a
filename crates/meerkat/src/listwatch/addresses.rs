//! Where the door may be opened. It asks nobody for a password, so that whoever reaches it may read and
//! change everything: beyond this machine only where callers have to show a certificate, or if somebody
//! said that this is meant.

use meerkat_server::config::{MemberUrl, Transport};
use std::net::IpAddr;

/// What is told to whom opens the door to others.
pub const WARNING: &str = "the list-watch door is open to other machines without authentication: \
                           whoever reaches it can read and change everything";

/// How far the door may be opened.
#[derive(Clone, Copy, Debug)]
pub struct Leave {
    /// Somebody said that everybody may come in.
    pub insecure: bool,
    /// There is a certificate for `https://`.
    pub tls: bool,
    /// Who comes in by `https://` has to show a certificate.
    pub callers_prove: bool,
}

/// The URLs of a flag, unless one of them would open the door to others without leave.
///
/// # Errors
/// If one is no URL to listen on, or would open the door further than there is leave for.
pub fn parse(flag: &str, text: &str, leave: Leave) -> Result<Vec<MemberUrl>, String> {
    let urls = MemberUrl::parse_list(text).map_err(|error| format!("--{flag}: {error}"))?;
    if let Some(url) = urls.iter().find(|url| !url.can_be_bound()) {
        return Err(format!("--{flag}: {url}: expected an IP address or localhost to listen on"));
    }
    if let Some(url) = urls.iter().find(|url| url.socket_path().is_some()) {
        return Err(format!("--{flag}: {url}: expected http:// or https://"));
    }
    if let Some(url) = urls.iter().find(|url| url.transport() == Transport::Tls && !leave.tls) {
        return Err(format!("--{flag}: {url} needs a certificate: give --cert-file and --key-file"));
    }
    match urls.iter().find(|url| is_open_to_others(url, leave.callers_prove)) {
        Some(url) if !leave.insecure => Err(format!(
            "--{flag}: {url} can be reached from other machines, and the list-watch door asks nobody who they \
             are: listen on 127.0.0.1, or on https:// with --trusted-ca-file so that callers need a certificate, \
             or say --listwatch-allow-insecure if everybody on that network may read and change everything"
        )),
        Some(_) | None => Ok(urls),
    }
}

/// Whether others can reach one of them.
pub fn are_open_to_others(urls: &[MemberUrl], callers_prove: bool) -> bool {
    urls.iter().any(|url| is_open_to_others(url, callers_prove))
}

/// For the log.
pub fn text(urls: &[MemberUrl]) -> String {
    urls.iter().map(MemberUrl::to_string).collect::<Vec<_>>().join(",")
}

fn is_open_to_others(url: &MemberUrl, callers_prove: bool) -> bool {
    let is_proven = url.transport() == Transport::Tls && callers_prove;
    !is_loopback(url) && !is_proven
}

fn is_loopback(url: &MemberUrl) -> bool {
    let bare = url.bare_host().unwrap_or_default();
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Leave = Leave { insecure: false, tls: false, callers_prove: false };

    #[test]
    fn only_this_machine_is_let_in_unless_told_otherwise() {
        for text in ["http://127.0.0.1:2378", "http://localhost:2378,http://[::1]:2378", ""] {
            let urls = parse("listen-listwatch-urls", text, NONE).expect("of this machine");
            assert!(!are_open_to_others(&urls, false), "{text}");
        }
        for text in ["http://0.0.0.0:2378", "http://127.0.0.1:2378,http://10.0.0.1:2378", "http://[::]:1"] {
            let refused = parse("listen-listwatch-urls", text, NONE).expect_err("open to others");
            assert!(refused.contains("--listwatch-allow-insecure"), "{refused}");
            let urls = parse("listen-listwatch-urls", text, Leave { insecure: true, ..NONE })
                .expect("somebody said so");
            assert!(are_open_to_others(&urls, false), "{text}");
        }
    }

    #[test]
    fn where_callers_show_certificates_others_are_let_in() {
        let text = "https://0.0.0.0:2378";
        let parsed = |leave| parse("listen-listwatch-urls", text, leave);
        assert!(parsed(NONE).expect_err("no certificate").contains("--cert-file"));
        assert!(parsed(Leave { tls: true, ..NONE }).expect_err("open").contains("--trusted-ca-file"));
        let urls = parsed(Leave { tls: true, callers_prove: true, ..NONE }).expect("proven");
        assert!(!are_open_to_others(&urls, true));
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused_by_name() {
        for text in
            ["https://127.0.0.1:1", "127.0.0.1:1", "http://example.com:80", "http://127.0.0.1", "unix://a"]
        {
            let refused = parse("listen-urls", text, Leave { insecure: true, ..NONE }).expect_err(text);
            assert!(refused.starts_with("--listen-urls: "), "{refused}");
        }
    }
}
