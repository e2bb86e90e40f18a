//! Which names an object of a kind may have.
//!
//! A rule answers with the reason in words, or with nothing if the name is good. Every rule implies that
//! the name is a single segment of a path, so a name that passes can be put into a key and into a URL.

use serde::Deserialize;

const SUBDOMAIN_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;
/// A cron job's name gets eleven characters more for each of its jobs, and a job's name is a label's value.
const CRON_JOB_BYTES_MAX: usize = 52;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum NameRule {
    /// Labels joined by dots. What most kinds have.
    #[default]
    DnsSubdomain,
    DnsLabel,
    /// A label that begins with a letter.
    DnsLabelFromLetter,
    CronJob,
    /// Anything that fits between two slashes: roles may be called `system:node`.
    PathSegment,
}

impl NameRule {
    /// Why not.
    pub fn refuses(self, name: &str) -> Option<String> {
        match self {
            NameRule::DnsSubdomain => subdomain(name, SUBDOMAIN_BYTES_MAX),
            NameRule::DnsLabel => label(name),
            NameRule::DnsLabelFromLetter => label_from_letter(name),
            NameRule::CronJob => subdomain(name, CRON_JOB_BYTES_MAX),
            NameRule::PathSegment => path_segment(name),
        }
    }
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} bytes"))
}

fn is_label(text: &str) -> bool {
    let (Some(first), Some(last)) = (text.bytes().next(), text.bytes().last()) else { return false };
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    alphanumeric(first) && alphanumeric(last) && text.bytes().all(|byte| alphanumeric(byte) || byte == b'-')
}

fn subdomain(name: &str, most: usize) -> Option<String> {
    too_long(name, most).or_else(|| {
        (!name.split('.').all(is_label)).then(|| {
            "must be lower case letters, digits, '-' and '.', and begin and end each part with a letter or a digit"
                .to_owned()
        })
    })
}

fn label(name: &str) -> Option<String> {
    too_long(name, LABEL_BYTES_MAX).or_else(|| {
        (!is_label(name)).then(|| {
            "must be lower case letters, digits and '-', and begin and end with a letter or a digit"
                .to_owned()
        })
    })
}

fn label_from_letter(name: &str) -> Option<String> {
    label(name).or_else(|| {
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        (!begins).then(|| "must begin with a lower case letter".to_owned())
    })
}

fn path_segment(name: &str) -> Option<String> {
    if name.is_empty() || name == "." || name == ".." {
        return Some("must not be empty, '.' or '..'".to_owned());
    }
    name.bytes()
        .any(|byte| byte == b'/' || byte == b'%' || byte == 0)
        .then(|| "must not contain '/', '%' or a zero byte".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_takes_its_own_names() {
        let long = "a".repeat(64);
        let cron = "a".repeat(53);
        for (rule, good, bad) in [
            (
                NameRule::DnsSubdomain,
                vec!["a", "a.b-c.0", long.as_str()],
                vec!["", "A", "a..b", "-a", "a/b", "a_b"],
            ),
            (NameRule::DnsLabel, vec!["default", "0a"], vec!["", "a.b", "a-", long.as_str()]),
            (NameRule::DnsLabelFromLetter, vec!["web", "w0"], vec!["0w", "w.x"]),
            (NameRule::CronJob, vec!["nightly"], vec![cron.as_str(), "a/b"]),
            (NameRule::PathSegment, vec!["system:node", "A b"], vec!["", ".", "..", "a/b", "a%2fb", "a\0"]),
        ] {
            for name in good {
                assert_eq!(rule.refuses(name), None, "{rule:?} {name:?}");
            }
            for name in bad {
                assert!(rule.refuses(name).is_some(), "{rule:?} {name:?}");
            }
        }
    }
}
