//! What names, labels and other words of metadata may look like.
//!
//! Each check answers with the reason why a word is refused, so that whoever reports it adds the field only.
//! All of them are linear in the word. Every [`NameRule`] implies that a name is a single segment of a path,
//! so a name that passes can be put into a key and into a URL.

use serde::Deserialize;

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
/// A cron job's name gets eleven characters more for each of its jobs, and a job's name is a label's value.
const CRON_JOB_BYTES_MAX: usize = 52;

/// Which names objects of a kind may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum NameRule {
    /// DNS labels joined by dots: what most kinds ask for.
    #[default]
    DnsSubdomain,
    /// One DNS label: namespaces.
    DnsLabel,
    /// One DNS label that starts with a letter: services.
    DnsLabelFromLetter,
    CronJob,
    /// Anything that can stand in a path between two slashes: roles may be called `system:node`.
    PathSegment,
}

impl NameRule {
    /// Why `name` is no name for such an object.
    pub fn refuses(self, name: &str) -> Option<String> {
        match self {
            NameRule::DnsSubdomain => subdomain(name),
            NameRule::CronJob => too_long(name, CRON_JOB_BYTES_MAX).or_else(|| subdomain(name)),
            NameRule::DnsLabel => label(name),
            NameRule::DnsLabelFromLetter => label_from_letter(name),
            NameRule::PathSegment => path_segment(name),
        }
    }

    /// Why no name can start with `prefix`. More will follow it, so it may end in a dash.
    pub fn refuses_prefix(self, prefix: &str) -> Option<String> {
        match (self, prefix.strip_suffix('-')) {
            (NameRule::PathSegment, _) if matches!(prefix, "." | "..") => None,
            (NameRule::PathSegment, _) | (_, None) => self.refuses(prefix),
            (_, Some(start)) => self.refuses(&format!("{start}a")),
        }
    }
}

fn too_long(word: &str, most: usize) -> Option<String> {
    if most < word.len() { Some(format!("must be no more than {most} bytes")) } else { None }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// `middle` may stand anywhere but at the ends, where only `end` may.
fn is_shaped(word: &str, end: fn(u8) -> bool, middle: fn(u8) -> bool) -> bool {
    let bytes = word.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => end(*first) && end(*last) && bytes.iter().all(|byte| middle(*byte)),
        _ => false,
    }
}

fn is_label_shaped(word: &str) -> bool {
    is_shaped(word, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

/// A DNS-1123 label.
pub fn label(word: &str) -> Option<String> {
    too_long(word, LABEL_BYTES_MAX).or_else(|| {
        if is_label_shaped(word) {
            return None;
        }
        Some(
            "a lowercase RFC 1123 label has only a-z, 0-9 and '-', and a letter or digit at each end"
                .to_owned(),
        )
    })
}

/// A DNS-1035 label.
pub fn label_from_letter(word: &str) -> Option<String> {
    too_long(word, LABEL_BYTES_MAX).or_else(|| {
        if is_label_shaped(word) && word.starts_with(|first: char| first.is_ascii_lowercase()) {
            return None;
        }
        let why =
            "a DNS-1035 label has only a-z, 0-9 and '-', starts with a letter and does not end with '-'";
        Some(why.to_owned())
    })
}

/// A DNS-1123 subdomain.
pub fn subdomain(word: &str) -> Option<String> {
    too_long(word, SUBDOMAIN_BYTES_MAX).or_else(|| {
        if word.split('.').all(is_label_shaped) {
            return None;
        }
        let why = "a lowercase RFC 1123 subdomain has only a-z, 0-9, '-' and '.', \
                   and a letter or digit at each end and around each dot";
        Some(why.to_owned())
    })
}

fn path_segment(word: &str) -> Option<String> {
    match word {
        "" => Some("may not be empty".to_owned()),
        "." | ".." => Some(format!("may not be '{word}'")),
        _ if word.contains('/') => Some("may not contain '/'".to_owned()),
        _ if word.contains('%') => Some("may not contain '%'".to_owned()),
        _ if word.contains('\0') => Some("may not contain a zero byte".to_owned()),
        _ => None,
    }
}

fn is_word_shaped(word: &str) -> bool {
    is_shaped(
        word,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
    )
}

/// `[prefix/]name`: the key of a label or an annotation, the name of a finalizer.
pub fn qualified(word: &str) -> Option<String> {
    let name = match word.split_once('/') {
        None => word,
        Some((prefix, name)) if name.contains('/') || prefix.is_empty() => {
            return Some("a qualified name is a name, or a DNS subdomain, one '/' and a name".to_owned());
        }
        Some((prefix, name)) => {
            if let Some(why) = subdomain(prefix) {
                return Some(format!("prefix part: {why}"));
            }
            name
        }
    };
    if let Some(why) = too_long(name, LABEL_BYTES_MAX) {
        return Some(format!("name part {why}"));
    }
    if is_word_shaped(name) {
        return None;
    }
    Some("name part has only letters, digits, '-', '_' and '.', and a letter or digit at each end".to_owned())
}

/// The value of a label.
pub fn label_value(word: &str) -> Option<String> {
    too_long(word, LABEL_BYTES_MAX).or_else(|| {
        if word.is_empty() || is_word_shaped(word) {
            return None;
        }
        let why = "a label's value is empty, or has only letters, digits, '-', '_' and '.', \
                   and a letter or digit at each end";
        Some(why.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: NameRule, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(rule.refuses(name), None, "{rule:?} {name:?}");
        }
        for name in bad {
            assert!(rule.refuses(name).is_some(), "{rule:?} {name:?}");
        }
    }

    #[test]
    fn names_by_rule() {
        let (at_most, too_many) = ("a".repeat(63), "a".repeat(64));
        check(
            NameRule::DnsSubdomain,
            &["a", "0", "a-b.c", "a.b.c", "a.b-c.0", &too_many, &"a".repeat(253)],
            &["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.", "a.-b", "a/b", "\u{e9}", &"a".repeat(254)],
        );
        check(NameRule::CronJob, &["nightly", &"a".repeat(52)], &["a/b", "", &"a".repeat(53)]);
        check(NameRule::DnsLabel, &["a", "0a", "default", &at_most], &["", "a.b", "A", "a-", &too_many]);
        check(NameRule::DnsLabelFromLetter, &["a", "a0", &at_most], &["0a", "a.b", "a-", ""]);
        let bad = ["", ".", "..", "a/b", "a%2fb", "a\0"];
        check(NameRule::PathSegment, &["system:Node_1", "A b", "..."], &bad);
    }

    #[test]
    fn a_prefix_may_end_in_a_dash_because_more_follows() {
        for (rule, prefix, good) in [
            (NameRule::DnsSubdomain, "web-", true),
            (NameRule::DnsSubdomain, "web", true),
            (NameRule::DnsSubdomain, "Web-", false),
            (NameRule::DnsSubdomain, "web_", false),
            (NameRule::CronJob, "nightly-", true),
            (NameRule::PathSegment, "..", true),
            (NameRule::PathSegment, "a/", false),
        ] {
            assert_eq!(rule.refuses_prefix(prefix).is_none(), good, "{rule:?} {prefix}");
        }
    }

    #[test]
    fn qualified_names() {
        let (long, longest) = ("n".repeat(64), "n".repeat(63));
        let prefix = |bytes: usize| format!("{}/a", "a".repeat(bytes));
        for good in [
            "a",
            "A1",
            "A_b.c",
            "a-b_c.d",
            "example.com/a",
            "a/b",
            "1/2",
            "kubernetes.io/metadata.name",
            &longest,
            &prefix(253),
        ] {
            assert_eq!(qualified(good), None, "{good}");
        }
        for bad in [
            "",
            "/",
            "/a",
            "a/",
            "a/b/c",
            "Ex.com/a",
            "a_b/c",
            "a..b/c",
            ".a/b",
            "-a/b",
            "a.-b/c",
            "-a",
            "a-",
            "a b",
            "a\0",
            "a/\u{e9}",
            &long,
            &prefix(254),
        ] {
            assert!(qualified(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn the_values_of_labels() {
        let (long, longest) = ("v".repeat(64), "v".repeat(63));
        for good in ["", "a", "5", "A.b_c-1", &longest] {
            assert_eq!(label_value(good), None, "{good}");
        }
        for bad in ["-", "-5", "_", "a-", "a.", "a/b", "a b", " ", "\u{fc}", &long] {
            assert!(label_value(bad).is_some(), "{bad}");
        }
    }
}
