//! Which keys a command means: one, a range, all with a prefix, or all from one on.
//!
//! The wire spells "to the end" as a range end of one zero byte, and the first possible key too;
//! that spelling is made here and nowhere else.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;

use crate::failure::Failure;

/// Key and range end of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub key: Bytes,
    pub range_end: Bytes,
}

const ZERO: Bytes = Bytes::from_static(b"\0");

/// Reads `<key> [range_end]` with `--prefix` and `--from-key`.
pub fn read(args: &[OsString], prefix: bool, from_key: bool) -> Result<KeyRange, Failure> {
    if prefix && from_key {
        return Err(Failure::bad_arguments(
            "`--prefix` and `--from-key` cannot be set at the same time, choose one",
        ));
    }
    if args.len() > 1 && (prefix || from_key) {
        return Err(Failure::bad_arguments(
            "too many arguments, only accept one argument when `--prefix` or `--from-key` is set",
        ));
    }
    let key = bytes(&args[0]);
    let range_end = args.get(1).map(bytes).unwrap_or_default();
    Ok(match (prefix, from_key) {
        (true, _) | (_, true) if key.is_empty() => KeyRange { key: ZERO, range_end: ZERO },
        (true, _) => KeyRange { range_end: prefix_end(&key), key },
        (_, true) => KeyRange { key, range_end: ZERO },
        (false, false) => KeyRange { key, range_end },
    })
}

pub fn bytes(argument: &OsString) -> Bytes {
    Bytes::copy_from_slice(argument.as_bytes())
}

/// The first key after all keys with that prefix.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    match prefix.iter().rposition(|byte| *byte < 0xff) {
        Some(last) => {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            end.into()
        }
        None => ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn check(args: &[&[u8]], prefix: bool, from_key: bool, expected: (&[u8], &[u8])) {
        let args: Vec<OsString> = args.iter().map(|arg| OsString::from_vec(arg.to_vec())).collect();
        let range = read(&args, prefix, from_key).expect("a good range");
        assert_eq!((&range.key[..], &range.range_end[..]), expected);
    }

    #[test]
    fn keys_become_ranges() {
        check(&[b"a"], false, false, (b"a", b""));
        check(&[b"a", b"c"], false, false, (b"a", b"c"));
        check(&[b"a"], true, false, (b"a", b"b"));
        check(&[b"a\xff\xff"], true, false, (b"a\xff\xff", b"b"));
        check(&[b"\xff"], true, false, (b"\xff", b"\0"));
        check(&[b""], true, false, (b"\0", b"\0"));
        check(&[b"a"], false, true, (b"a", b"\0"));
        check(&[b""], false, true, (b"\0", b"\0"));
    }

    #[test]
    fn contradictions_are_refused() {
        let one = [OsString::from("a")];
        let two = [OsString::from("a"), OsString::from("b")];
        assert!(read(&one, true, true).is_err());
        assert!(read(&two, true, false).is_err());
        assert!(read(&two, false, true).is_err());
    }
}
