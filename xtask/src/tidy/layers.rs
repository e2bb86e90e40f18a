//! The layers of the fault harness: a module of `chaos/src` uses those below it and never one above.
//!
//! The table is an order, so no cycle fits in it. A module that is missing from it is refused, so that a
//! new one is placed on purpose. Tests at the foot of a file are held to it like the rest.

use super::Violation;
use crate::source::{Source, find_words};

const ROOT: &str = "chaos/src";

/// From the lowest to the highest. Modules of one layer do not use each other.
const LAYERS: &[&[&str]] = &[
    &["failure"],
    // What a client may conclude from an answer, what a member tells of itself, where programs are, and how
    // long to wait.
    &["outcome", "metrics", "binary", "patience"],
    // What happened, as plain data.
    &["record"],
    // A record in, findings out, without I/O.
    &["checker"],
    // Members: how they are spoken to, what can be done to them, how they are run.
    &["endpoint"],
    &["ground"],
    &["driver"],
    // Clients that write down what they are told.
    &["watch"],
    &["lease", "failover", "listwatch"],
    // Load, harm, and the page that shows both.
    &["workload", "nemesis", "report"],
    // Everything together.
    &["run"],
    &["differential"],
    &["scenario"],
];

pub fn check(source: &Source) -> Vec<Violation> {
    let Ok(within) = source.path.strip_prefix(ROOT) else { return Vec::new() };
    let within = within.with_extension("");
    let module = within.iter().next().map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    // The roots name every module; nobody can use them.
    if ["lib", "main"].contains(&module.as_str()) {
        return Vec::new();
    }
    let Some(own) = layer_of(&module) else {
        return vec![Violation::whole(&source.path, format!("{module} has no place in the layers of chaos"))];
    };
    let above = |used: &str| used != module && layer_of(used).is_some_and(|layer| own <= layer);
    let used = find_words(&source.code, "crate::").flat_map(|at| named(&source.code, at + "crate::".len()));
    used.filter(|(_, used)| above(used))
        .map(|(at, used)| {
            Violation::at(source, at, format!("{module} may not use {used}, which is not below it"))
        })
        .collect()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// The names that stand next in a path: one, or those of a group in braces, each with its place.
fn named(code: &str, at: usize) -> Vec<(usize, &str)> {
    let word = |at: usize| {
        let rest = &code[at..];
        let end = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        (at, &rest[..end.unwrap_or(rest.len())])
    };
    if !code[at..].starts_with('{') {
        return vec![word(at)];
    }
    let mut names = Vec::new();
    let mut depth = 0;
    for (place, letter) in code[at..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(letter, '{' | ',') {
            let after = &code[at + place + 1..];
            names.push(word(code.len() - after.trim_start().len()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_uses_what_is_below_it() {
        let text =
            "use crate::Failure;\nuse crate::record::{Trace, run};\nfn f(at: crate::endpoint::Endpoint) {}\n";
        assert_eq!(found("chaos/src/nemesis/kill.rs", text), [""; 0]);
    }

    #[test]
    fn a_module_above_is_refused_wherever_it_is_named() {
        for text in [
            "use crate::run::Plan;",
            "pub use crate::{Failure, record::{self, Trace}, run as all};",
            "fn f(plan: &crate::run::Plan) {}",
            "use crate::{\n    record::Trace,\n    run};",
        ] {
            let line = if text.contains('\n') { 3 } else { 1 };
            let wanted =
                format!("chaos/src/checker/set.rs:{line}: checker may not use run, which is not below it");
            assert_eq!(found("chaos/src/checker/set.rs", text), [wanted], "{text}");
        }
        assert_eq!(found("chaos/src/outcome.rs", "use crate::record;").len(), 1);
    }

    #[test]
    fn modules_of_one_layer_do_not_use_each_other() {
        assert_eq!(found("chaos/src/workload/set.rs", "use crate::nemesis::Blow;").len(), 1);
        assert_eq!(found("chaos/src/workload/set.rs", "use crate::workload::wire;"), [""; 0]);
    }

    #[test]
    fn a_module_without_a_layer_is_refused() {
        let refused = "chaos/src/extras/mod.rs: extras has no place in the layers of chaos";
        assert_eq!(found("chaos/src/extras/mod.rs", "//! Doc."), [refused]);
        assert_eq!(found("chaos/src/lib.rs", "pub use crate::run::Plan;"), [""; 0]);
        assert_eq!(found("crates/raft/src/extras.rs", "use crate::run::Plan;"), [""; 0]);
    }
}
