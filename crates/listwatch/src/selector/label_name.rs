//! What may be a label's key, and what its value.
//!
//! A key is a name, or a DNS prefix, a slash and a name. A value is empty or looks like a name.

const PREFIX_BYTES_MAX: usize = 253;
const NAME_BYTES_MAX: usize = 63;

/// The error says why.
pub fn check_label_key(key: &str) -> Result<(), String> {
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            check_prefix(prefix)?;
            name
        }
    };
    if name.is_empty() {
        return Err("the name of a label must not be empty".to_owned());
    }
    check_name(name, "the name of a label")
}

/// The error says why.
pub fn check_label_value(value: &str) -> Result<(), String> {
    if value.is_empty() { Ok(()) } else { check_name(value, "the value of a label") }
}

fn check_name(name: &str, what: &str) -> Result<(), String> {
    if NAME_BYTES_MAX < name.len() {
        return Err(format!("{what} must be no more than {NAME_BYTES_MAX} bytes"));
    }
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.bytes().all(inside) && has_alphanumeric_ends(name) {
        return Ok(());
    }
    Err(format!(
        "{what} must consist of alphanumeric characters, '-', '_' or '.', and begin and end with an alphanumeric"
    ))
}

fn check_prefix(prefix: &str) -> Result<(), String> {
    if PREFIX_BYTES_MAX < prefix.len() {
        return Err(format!("the prefix of a label must be no more than {PREFIX_BYTES_MAX} bytes"));
    }
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |part: &str| part.bytes().all(inside) && has_alphanumeric_ends(part);
    if prefix.split('.').all(is_label) {
        return Ok(());
    }
    Err("the prefix of a label must be a DNS name: lower case alphanumerics, '-' and '.'".to_owned())
}

fn has_alphanumeric_ends(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let (long, longest) = ("a".repeat(64), "a".repeat(63));
        let prefix = |bytes: usize| format!("{}/a", "a".repeat(bytes));
        for key in ["a", "A1", "a-b_c.d", "app.kubernetes.io/name", "1/2", &longest, &prefix(253)] {
            assert_eq!(check_label_key(key), Ok(()), "{key}");
        }
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a/b/c",
            "-a",
            "a-",
            "a b",
            "a\0",
            "ü",
            "A.b/c",
            "a_b/c",
            "a..b/c",
            ".a/b",
            "-a/b",
            "a.-b/c",
            &long,
            &prefix(254),
        ] {
            assert!(check_label_key(key).is_err(), "{key}");
        }
    }

    #[test]
    fn values() {
        let (long, longest) = ("a".repeat(64), "a".repeat(63));
        for value in ["", "a", "A-b_c.d", "5", &longest] {
            assert_eq!(check_label_value(value), Ok(()), "{value}");
        }
        for value in ["-5", "a/b", "a b", "a.", "_", "ü", &long] {
            assert!(check_label_value(value).is_err(), "{value}");
        }
    }
}
