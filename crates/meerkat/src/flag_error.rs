//! What is wrong with a flag, in the words of pflag, the library under etcd's tools.

use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ErrorKind};

/// A switch's value, in any of Go's words for it.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// The parser's complaint and its advice; `None` if it is about no flag.
pub fn text(error: &clap::Error) -> Option<String> {
    let context = |kind| error.get(kind).map(ToString::to_string);
    let flag = context(ContextKind::InvalidArg).filter(|flag| flag.starts_with('-'))?;
    // Behind the name the parser puts a word for the value.
    let flag = flag.split([' ', '=', '[']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    let complaint = match error.kind() {
        ErrorKind::UnknownArgument => unknown(flag)?,
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::ValueValidation => {
            let reason = reason(error, &value)?;
            format!("invalid argument {value:?} for \"{flag}\" flag: {reason}")
        }
        _ => return None,
    };
    let rendered = error.to_string();
    let advice = rendered.split_once("\n\n").map_or("", |(_, advice)| advice.trim_end());
    Some(format!("{complaint}\n\n{advice}"))
}

fn unknown(flag: &str) -> Option<String> {
    if flag.starts_with("--") {
        return Some(format!("unknown flag: {flag}"));
    }
    let letter = flag.chars().nth(1)?;
    Some(format!("unknown shorthand flag: {letter:?} in {flag}"))
}

fn reason(error: &clap::Error, value: &str) -> Option<String> {
    let source = std::error::Error::source(error)?;
    let Some(number) = source.downcast_ref::<ParseIntError>() else { return Some(source.to_string()) };
    let what = match number.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Some(format!("strconv.ParseInt: parsing {value:?}: {what}"))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command, value_parser};

    use super::*;

    fn complaint(line: &str) -> Option<String> {
        let command = Command::new("tool").arg(Arg::new("name")).args([
            Arg::new("rev").long("rev").value_parser(value_parser!(i64)),
            Arg::new("write-out").short('w').long("write-out"),
            Arg::new("prefix").long("prefix").num_args(0..=1).require_equals(true).value_parser(switch),
        ]);
        let error = command.no_binary_name(true).try_get_matches_from(line.split(' ')).expect_err(line);
        text(&error).map(|text| text.lines().next().unwrap_or_default().to_owned())
    }

    #[test]
    fn complaints_about_flags_are_in_pflags_words() {
        for (line, expected) in [
            ("--bogus", "unknown flag: --bogus"),
            ("--bogus=1", "unknown flag: --bogus"),
            ("-c", "unknown shorthand flag: 'c' in -c"),
            ("--rev", "flag needs an argument: --rev"),
            ("-w", "flag needs an argument: --write-out"),
            (
                "--rev x",
                "invalid argument \"x\" for \"--rev\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
            ),
            (
                "--rev=9223372036854775808",
                "invalid argument \"9223372036854775808\" for \"--rev\" flag: strconv.ParseInt: parsing \"9223372036854775808\": value out of range",
            ),
            (
                "--prefix=maybe",
                "invalid argument \"maybe\" for \"--prefix\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
        ] {
            assert_eq!(complaint(line).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(complaint("one two"), None);
    }

    #[test]
    fn switch_takes_gos_words() {
        for (text, expected) in [("1", true), ("t", true), ("True", true), ("0", false), ("F", false)] {
            assert_eq!(switch(text), Ok(expected), "{text}");
        }
        assert!(switch("yes").is_err() && switch("").is_err());
    }
}
