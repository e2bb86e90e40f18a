//! The words of an expression.

use super::parse::Literal;
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Literal(Literal),
    Name(String),
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Literal(literal) => write!(f, "{literal:?}"),
            Token::Name(name) => write!(f, "'{name}'"),
            Token::Sign(sign) => write!(f, "'{sign}'"),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

pub fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let (mut tokens, mut rest) = (Vec::new(), source);
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.find('\n').map_or("", |end| &comment[end..]);
            continue;
        }
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, tail) = if let Some(found) = text(rest)? {
            found
        } else if first.is_ascii_digit()
            || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
        {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            word(rest)
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("syntax error: unexpected character {first:?}"))?;
            (Token::Sign(sign), &rest[sign.len()..])
        };
        tokens.push(token);
        rest = tail;
    }
}

fn word(rest: &str) -> (Token, &str) {
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    let token = match word {
        "true" => Token::Literal(Literal::Bool(true)),
        "false" => Token::Literal(Literal::Bool(false)),
        "null" => Token::Literal(Literal::Null),
        "in" => Token::Sign("in"),
        name => Token::Name(name.to_owned()),
    };
    (token, tail)
}

fn number(rest: &str) -> Result<(Token, &str), String> {
    let bad = |text: &str| format!("syntax error: invalid number {text}");
    if let Some(hex) = rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
        let (digits, tail) = split(hex, |c| c.is_ascii_hexdigit());
        let value = u64::from_str_radix(digits, 16).map_err(|_| bad(digits))?;
        return unsigned(value, tail).ok_or_else(|| bad(digits));
    }
    let (whole, mut tail) = split(rest, |c| c.is_ascii_digit());
    let mut is_double = false;
    if let Some(after) = tail.strip_prefix('.')
        && after.starts_with(|c: char| c.is_ascii_digit())
    {
        is_double = true;
        tail = split(after, |c| c.is_ascii_digit()).1;
    }
    if let Some(after) = tail.strip_prefix(['e', 'E']) {
        let after = after.strip_prefix(['+', '-']).unwrap_or(after);
        if after.starts_with(|c: char| c.is_ascii_digit()) {
            is_double = true;
            tail = split(after, |c| c.is_ascii_digit()).1;
        }
    }
    let text = &rest[..rest.len() - tail.len()];
    if is_double {
        let value: f64 = text.parse().map_err(|_| bad(text))?;
        return Ok((Token::Literal(Literal::Double(value)), tail));
    }
    let value: u64 = whole.parse().map_err(|_| bad(text))?;
    unsigned(value, tail).ok_or_else(|| bad(text))
}

fn unsigned(value: u64, tail: &str) -> Option<(Token, &str)> {
    if let Some(tail) = tail.strip_prefix(['u', 'U']) {
        return Some((Token::Literal(Literal::UInt(value)), tail));
    }
    Some((Token::Literal(Literal::Int(i64::try_from(value).ok()?)), tail))
}

fn split(text: &str, is_in: fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c: char| !is_in(c)).unwrap_or(text.len()))
}

/// `"a"`, `'a'`, three quotes of either sort, with `r` before it for no escapes and `b` for bytes.
fn text(rest: &str) -> Result<Option<(Token, &str)>, String> {
    let at = rest.bytes().take(3).position(|byte| byte == b'"' || byte == b'\'');
    let marks = at.map_or("-", |at| &rest[..at]);
    let (is_raw, is_bytes) = match marks.to_ascii_lowercase().as_str() {
        "" => (false, false),
        "r" => (true, false),
        "b" => (false, true),
        "rb" | "br" => (true, true),
        _ => return Ok(None),
    };
    let quoted = &rest[marks.len()..];
    let quote =
        ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| quoted.starts_with(quote)).unwrap_or("\"");
    let mut out = Vec::new();
    let mut inside = &quoted[quote.len()..];
    loop {
        if let Some(tail) = inside.strip_prefix(quote) {
            if is_bytes {
                return Ok(Some((Token::Literal(Literal::Bytes(out)), tail)));
            }
            let text = String::from_utf8(out).map_err(|_| "syntax error: a string is no UTF-8".to_owned())?;
            return Ok(Some((Token::Literal(Literal::Text(text)), tail)));
        }
        let letter = inside.chars().next().ok_or("syntax error: a string does not end")?;
        if quote.len() == 1 && letter == '\n' {
            return Err("syntax error: a string does not end on its line".to_owned());
        }
        if letter == '\\' && !is_raw {
            inside = escape(&inside[1..], is_bytes, &mut out)?;
        } else {
            out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            inside = &inside[letter.len_utf8()..];
        }
    }
}

fn escape<'s>(rest: &'s str, is_bytes: bool, out: &mut Vec<u8>) -> Result<&'s str, String> {
    let bad = || "syntax error: invalid escape in a string".to_owned();
    let letter = rest.chars().next().ok_or_else(bad)?;
    let plain = match letter {
        'a' => Some(7),
        'b' => Some(8),
        'f' => Some(12),
        'n' => Some(b'\n'),
        'r' => Some(b'\r'),
        't' => Some(b'\t'),
        'v' => Some(11),
        '\\' | '\'' | '"' | '`' | '?' => u8::try_from(letter).ok(),
        _ => None,
    };
    if let Some(byte) = plain {
        out.push(byte);
        return Ok(&rest[letter.len_utf8()..]);
    }
    let (skipped, digits, radix) = match letter {
        'x' | 'X' => (1, 2, 16),
        'u' if !is_bytes => (1, 4, 16),
        'U' if !is_bytes => (1, 8, 16),
        '0'..='3' => (0, 3, 8),
        _ => return Err(bad()),
    };
    let digits = rest.get(skipped..skipped + digits).ok_or_else(bad)?;
    let code = u32::from_str_radix(digits, radix).map_err(|_| bad())?;
    match u8::try_from(code) {
        Ok(byte) if is_bytes => out.push(byte),
        _ => {
            let letter = char::from_u32(code).ok_or_else(bad)?;
            out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(&rest[skipped + digits.len()..])
}
