//! The named formats of strings. One that is not known here says nothing, as everywhere.

use crate::timestamp::Timestamp;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether `text` is of the format `name`.
pub fn fits(name: &str, text: &str) -> bool {
    match name {
        "date-time" | "datetime" => Timestamp::parse(text).is_some(),
        "date" => text.len() == 10 && Timestamp::parse(&format!("{text}T00:00:00Z")).is_some(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => is_uuid(name, text),
        "byte" => is_base64(text),
        "duration" => is_duration(text),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "mac" => is_mac(text),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.len() <= 3
        && bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse().is_ok_and(|bits: u8| bits <= most)
}

fn is_uuid(name: &str, text: &str) -> bool {
    let hex: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let dashes_fit = match text.len() {
        32 => true,
        36 => [8, 13, 18, 23].iter().all(|at| text.as_bytes()[*at] == b'-'),
        _ => false,
    };
    let version = name.strip_prefix("uuid").and_then(|version| version.bytes().next());
    dashes_fit
        && hex.len() == 32
        && hex.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|version| hex[12] == version)
}

fn is_base64(text: &str) -> bool {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// `1h15m30.5s`, as durations are written in objects.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
        let is_number = rest[..number].parse::<f64>().is_ok();
        let after = &rest[number..];
        let unit = ["ns", "us", "\u{b5}s", "\u{3bc}s", "ms", "s", "m", "h", "d", "w"]
            .into_iter()
            .filter(|unit| after.starts_with(unit))
            .max_by_key(|unit| unit.len());
        match unit {
            Some(unit) if is_number => rest = &after[unit.len()..],
            _ => return false,
        }
    }
    true
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let inside = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(is_label)
}

fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.rsplit_once('@') else { return false };
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"@,;:<>()[]\\\"".contains(&byte);
    !name.is_empty() && name.len() <= 64 && name.bytes().all(plain) && is_hostname(host)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return text.starts_with('/') };
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(in_scheme)
        && !rest.is_empty()
        && !rest.chars().any(|letter| letter.is_control() || letter == ' ')
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let two = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_formats_tell_good_from_bad() {
        for (name, good, bad) in [
            ("date-time", "2024-01-01T00:00:00Z", "2024-01-01"),
            ("date", "2024-02-29", "2023-02-29"),
            ("ipv4", "1.2.3.4", "1.2.3"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "5f2b8f3e-1c2d-4e5f-8a9b-0c1d2e3f4a5b", "5f2b8f3e"),
            ("uuid4", "5f2b8f3e-1c2d-4e5f-8a9b-0c1d2e3f4a5b", "5f2b8f3e-1c2d-3e5f-8a9b-0c1d2e3f4a5b"),
            ("uuid", "5f2b8f3e1c2d4e5f8a9b0c1d2e3f4a5b", "5f2b8f3e1c2d4e5f8a9b0c1d2e3f4a5\u{e9}"),
            ("byte", "aGVsbG8=", "a==="),
            ("duration", "1h30m0.5s", "1x"),
            ("duration", "0", "s"),
            ("hostname", "a.b-c.example", "-a"),
            ("email", "a@b.c", "a b@c"),
            ("uri", "https://a/b", "no scheme"),
            ("mac", "00:11:22:33:44:55", "00:11:22"),
        ] {
            assert!(fits(name, good), "{name} {good}");
            assert!(!fits(name, bad), "{name} {bad}");
        }
        assert!(fits("colour-of-the-sky", "anything"));
    }
}
