//! The text of a transaction: comparisons, then what to do if they hold, then what to do if not,
//! each part ended by an empty line.
//!
//! ```text
//! mod("key") > "0"
//!
//! put key "a new value"
//! get key --prefix
//!
//! del 'another key'
//!
//! ```
//!
//! A comparison is `target("key") operator "value"` with Go's quotes; a request is a command line
//! of `get`, `put` or `del`. What does not parse is refused with the line; nothing is guessed.

use std::ffi::OsString;
use std::io::BufRead;
use std::os::unix::ffi::OsStringExt;

use clap::Parser;
use meerkat_proto::pb::etcdserver as pb;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;

use super::txn::read_line;
use super::{del, get, put};
use crate::failure::Failure;
use crate::go_quote::{quote, unquote_front};

/// A part of the text, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Compares,
    Success,
    Failure,
}

/// Reads a whole transaction; `prompt` is called before each part.
pub fn read(
    mut input: impl BufRead,
    prompt: impl Fn(Section) -> Result<(), Failure>,
) -> Result<pb::TxnRequest, Failure> {
    prompt(Section::Compares)?;
    let compare = part(&mut input, compare)?;
    prompt(Section::Success)?;
    let success = part(&mut input, operation)?;
    prompt(Section::Failure)?;
    let failure = part(&mut input, operation)?;
    Ok(pb::TxnRequest { compare, success, failure })
}

fn part<T>(input: &mut impl BufRead, parse: impl Fn(&[u8]) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    let mut parsed = Vec::new();
    loop {
        match read_line(input)? {
            Some(line) if line.is_empty() => return Ok(parsed),
            Some(line) => parsed.push(parse(&line)?),
            None => return Err(Failure::bad_input("EOF")),
        }
    }
}

fn compare(line: &[u8]) -> Result<pb::Compare, Failure> {
    let text = String::from_utf8_lossy(line);
    let Some(open) = line.iter().position(|byte| *byte == b'(') else {
        return Err(Failure::bad_input(format!("malformed comparison: {text}")));
    };
    let target = String::from_utf8_lossy(&line[..open]).trim().to_owned();
    let parts = Comparison::read(&line[open + 1..]);
    let Some(value) = parts.value else {
        return Err(Failure::bad_input(format!(
            "malformed comparison: {text}; got {target}({}) {} \"\"",
            quote(&parts.key),
            String::from_utf8_lossy(&parts.operator)
        )));
    };
    let result = match parts.operator.as_slice() {
        b"=" => CompareResult::Equal,
        b"!=" => CompareResult::NotEqual,
        b">" => CompareResult::Greater,
        b"<" => CompareResult::Less,
        other => {
            let operator = String::from_utf8_lossy(other);
            return Err(Failure::bad_input(format!(
                "malformed comparison: {text} (unknown operator {operator})"
            )));
        }
    };
    let (target, target_union) = against(&target, value, &text)?;
    Ok(pb::Compare {
        result: result.into(),
        target: target.into(),
        key: parts.key.into(),
        target_union: Some(target_union),
        range_end: Default::default(),
    })
}

/// What is compared, with what.
fn against(target: &str, value: Vec<u8>, line: &str) -> Result<(CompareTarget, TargetUnion), Failure> {
    let number = |radix| {
        let text = std::str::from_utf8(&value).ok();
        text.and_then(|text| i64::from_str_radix(text, radix).ok())
            .ok_or_else(|| Failure::bad_input(format!("invalid txn compare request: {line}")))
    };
    Ok(match target {
        "ver" | "version" => (CompareTarget::Version, TargetUnion::Version(number(10)?)),
        "create" => (CompareTarget::Create, TargetUnion::CreateRevision(number(10)?)),
        "mod" => (CompareTarget::Mod, TargetUnion::ModRevision(number(10)?)),
        // Leases are written in hexadecimal everywhere else too.
        "lease" => (CompareTarget::Lease, TargetUnion::Lease(number(16)?)),
        "val" | "value" => (CompareTarget::Value, TargetUnion::Value(value.into())),
        other => {
            return Err(Failure::bad_input(format!("malformed comparison: {line} (unknown target {other})")));
        }
    })
}

/// As much of `"key") operator "value"` as could be read.
#[derive(Default)]
struct Comparison {
    key: Vec<u8>,
    operator: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Comparison {
    fn read(text: &[u8]) -> Comparison {
        let mut parts = Comparison::default();
        let Some((key, rest)) = unquote_front(text) else { return parts };
        parts.key = key;
        let Some(rest) = rest.strip_prefix(b") ") else { return parts };
        let rest = rest.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        parts.operator = rest[..end].to_vec();
        parts.value = unquote_front(rest[end..].trim_ascii_start()).map(|(value, _)| value);
        parts
    }
}

#[derive(Parser)]
#[command(name = "get", no_binary_name = true, disable_help_flag = true)]
struct GetLine {
    #[command(flatten)]
    args: get::GetArgs,
}

#[derive(Parser)]
#[command(name = "put", no_binary_name = true, disable_help_flag = true)]
struct PutLine {
    #[command(flatten)]
    args: put::PutArgs,
}

#[derive(Parser)]
#[command(name = "del", no_binary_name = true, disable_help_flag = true)]
struct DelLine {
    #[command(flatten)]
    args: del::DelArgs,
}

fn operation(line: &[u8]) -> Result<pb::RequestOp, Failure> {
    let text = String::from_utf8_lossy(line);
    let invalid = || Failure::bad_input(format!("invalid txn request: {text}"));
    let words = words(line).ok_or_else(invalid)?;
    let [command, args @ ..] = words.as_slice() else { return Err(invalid()) };
    if args.is_empty() {
        return Err(Failure::bad_input(format!("invalid txn compare request: {text}")));
    }
    let request = match command.to_str() {
        Some("get") => {
            let line = GetLine::try_parse_from(args).map_err(|_| invalid())?;
            Request::RequestRange(get::request_in_txn(&line.args)?)
        }
        Some("put") => {
            let line = PutLine::try_parse_from(args).map_err(|_| invalid())?;
            Request::RequestPut(put::request(&line.args, std::io::empty())?)
        }
        Some("del") => {
            let line = DelLine::try_parse_from(args).map_err(|_| invalid())?;
            Request::RequestDeleteRange(del::request(&line.args)?)
        }
        _ => return Err(invalid()),
    };
    Ok(pb::RequestOp { request: Some(request) })
}

/// Splits a command line: words, `"quoted in Go's way"`, and `'quoted as they are'`.
pub fn words(line: &[u8]) -> Option<Vec<OsString>> {
    let mut rest = line.trim_ascii_start();
    let mut words = Vec::new();
    while let Some(first) = rest.first() {
        let (word, tail) = match first {
            b'"' => unquote_front(rest)?,
            b'\'' => {
                let end = 1 + rest[1..].iter().position(|byte| *byte == b'\'')?;
                (rest[1..end].to_vec(), &rest[end + 1..])
            }
            _ => {
                let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                (rest[..end].to_vec(), &rest[end..])
            }
        };
        words.push(OsString::from_vec(word));
        rest = tail.trim_ascii_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<pb::TxnRequest, Failure> {
        read(text.as_bytes(), |_| Ok(()))
    }

    fn check_refused(text: &str, expected: &str) {
        let failure = parse(text).expect_err("must be refused");
        assert_eq!(failure.message, expected);
    }

    #[test]
    fn a_transaction_has_three_parts_and_each_may_be_empty() {
        assert_eq!(parse("\n\n\n"), Ok(pb::TxnRequest::default()));
        let txn =
            parse("mod(\"foo\") > \"0\"\nval(\"c\") != \"x y\"\n\nput a b\nget a --prefix\n\ndel a b\n\n");
        let txn = txn.expect("a good transaction");
        assert_eq!((txn.compare.len(), txn.success.len(), txn.failure.len()), (2, 2, 1));
    }

    #[test]
    fn each_target_and_operator_has_its_meaning() {
        let rows = [
            ("ver(\"k\") = \"1\"", CompareTarget::Version, CompareResult::Equal, TargetUnion::Version(1)),
            ("version(\"k\") < \"2\"", CompareTarget::Version, CompareResult::Less, TargetUnion::Version(2)),
            (
                "create(\"k\") > \"3\"",
                CompareTarget::Create,
                CompareResult::Greater,
                TargetUnion::CreateRevision(3),
            ),
            ("mod(\"k\") != \"4\"", CompareTarget::Mod, CompareResult::NotEqual, TargetUnion::ModRevision(4)),
            ("lease(\"k\") = \"1f\"", CompareTarget::Lease, CompareResult::Equal, TargetUnion::Lease(31)),
            (
                "val(\"k\") = \"\\x00\\xff\"",
                CompareTarget::Value,
                CompareResult::Equal,
                TargetUnion::Value(bytes::Bytes::from_static(b"\x00\xff")),
            ),
        ];
        for (line, target, result, union) in rows {
            let compare = compare(line.as_bytes()).expect(line);
            assert_eq!(&compare.key[..], b"k");
            assert_eq!((compare.target(), compare.result()), (target, result), "{line}");
            assert_eq!(compare.target_union, Some(union), "{line}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_line() {
        check_refused("foo\n", "malformed comparison: foo");
        check_refused("mod(foo) > \"0\"\n\n", "malformed comparison: mod(foo) > \"0\"; got mod(\"\")  \"\"");
        check_refused(
            "create(\"b\")=\"0\"\n",
            "malformed comparison: create(\"b\")=\"0\"; got create(\"b\")  \"\"",
        );
        check_refused(
            "mod(\"foo\") > 0\n",
            "malformed comparison: mod(\"foo\") > 0; got mod(\"foo\") > \"\"",
        );
        check_refused(
            "bog(\"f\") > \"0\"\n",
            "malformed comparison: bog(\"f\") > \"0\" (unknown target bog)",
        );
        check_refused("mod(\"foo\") > \"abc\"\n", "invalid txn compare request: mod(\"foo\") > \"abc\"");
        check_refused("\nbogus x\n\n", "invalid txn request: bogus x");
        check_refused("\nget foo --bogus\n\n", "invalid txn request: get foo --bogus");
        check_refused("\nget\n\n\n", "invalid txn compare request: get");
        check_refused("\nput a\n\n\n", "put command needs 1 argument and input from stdin or 2 arguments");
        check_refused("", "EOF");
        check_refused("\nget a\n", "EOF");
    }

    #[test]
    fn words_may_be_quoted_in_two_ways() {
        let split = |line: &str| {
            let words = words(line.as_bytes()).expect("well-quoted");
            words.into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(split(r#"put  a   "b \"c\"\n" 'd "e"'"#), ["put", "a", "b \"c\"\n", "d \"e\""]);
        assert_eq!(words(b"put 'a"), None);
    }

    #[test]
    fn a_value_that_looks_like_a_flag_goes_after_two_dashes() {
        let txn = parse("\nput --prev-kv a -- -b\n\n\n").expect("a good transaction");
        let Some(Request::RequestPut(put)) = &txn.success[0].request else { panic!("a put") };
        assert_eq!((&put.key[..], &put.value[..], put.prev_kv), (&b"a"[..], &b"-b"[..], true));
    }
}
