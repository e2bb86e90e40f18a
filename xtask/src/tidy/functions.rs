//! A function fits on a screen, so that it can be checked by eye.

use super::Violation;
use crate::source::{Source, find_words};

/// From the line of `fn` to that of the closing brace, both counted.
const LINES_MAX: usize = 70;

pub fn check(source: &Source) -> Vec<Violation> {
    let mut found = Vec::new();
    for at in find_words(&source.code, "fn") {
        let Some(end) = body_end(&source.code, at) else { continue };
        let lines = source.code[at..end].matches('\n').count() + 1;
        if lines > LINES_MAX {
            let name = name(&source.code[at..end]);
            found.push(Violation::at(source, at, format!("fn {name} has {lines} lines, over {LINES_MAX}")));
        }
    }
    found
}

fn name(function: &str) -> &str {
    let rest = function.trim_start_matches("fn").trim_start();
    let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    &rest[..end.unwrap_or(rest.len())]
}

/// One past the closing brace of the function at `at`, or nothing for one without a body: a trait's
/// declaration, or a function type.
fn body_end(code: &str, at: usize) -> Option<usize> {
    let open = body_start(code, at)?;
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The first brace outside all parentheses and brackets; the end of the signature, or of whatever
/// encloses it, says that no body follows.
fn body_start(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b'{' if depth == 0 => return Some(at),
            b';' | b'}' if depth == 0 => return None,
            b',' | b'=' if depth == 0 && !inside_signature(&code[from..at]) => return None,
            _ => {}
        }
    }
    None
}

/// Whether a comma or an equals sign after `before` still belongs to the signature: it stands
/// between type parameters, or in a where clause. An arrow's bracket closes nothing.
fn inside_signature(before: &str) -> bool {
    let plain = before.replace("->", "  ");
    plain.matches('>').count() < plain.matches('<').count() || find_words(before, "where").next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&Source::new("a.rs", text)).iter().map(ToString::to_string).collect()
    }

    fn long(signature: &str) -> String {
        format!("{signature} {{\n{}}}\n", "    step(\"}\"); // }\n".repeat(LINES_MAX))
    }

    #[test]
    fn a_function_longer_than_a_screen_is_refused() {
        let fits = format!("fn fits() {{\n{}}}\n", "    step();\n".repeat(LINES_MAX - 2));
        assert_eq!(found(&fits), [""; 0]);
        assert_eq!(found(&long("pub fn outgrown(a: u8)")), ["a.rs:1: fn outgrown has 72 lines, over 70"]);
    }

    #[test]
    fn no_signature_hides_its_body() {
        for signature in [
            "fn f<A, B>(a: [u8; 4], b: (A, B)) -> Result<A, B>",
            "fn f<A>(a: A) -> impl Iterator<Item = A>",
            "fn f<A, B>(a: A)\nwhere\n    A: Into<B>,\n    B: Clone,\n",
            "async fn f(call: fn(u8) -> u8)",
        ] {
            assert_eq!(found(&long(signature)).len(), 1, "{signature}");
        }
    }

    #[test]
    fn a_declaration_has_no_body_to_measure() {
        let body = long("impl It for X");
        assert_eq!(found(&format!("trait It {{ fn f(&self) -> [u8; 4]; }}\n{body}")), [""; 0]);
        assert_eq!(found(&format!("struct X {{ call: fn(u8) -> u8, more: u8 }}\n{body}")), [""; 0]);
    }
}
