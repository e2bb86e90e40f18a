//! What `--log-outputs` names: stderr, stdout, and files. The rules and the texts of refusals are etcd's.

use std::path::PathBuf;

/// One place where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Stderr,
    Stdout,
    File(PathBuf),
}

/// Takes all and keeps nothing; as in etcd, nothing else is written to beside it.
const DISCARD: &str = "/dev/null";

/// A list with commas, of which each counts once. `default` is stderr, and stands alone.
pub fn parse(outputs: &str) -> Result<Vec<Target>, String> {
    let mut names: Vec<&str> = outputs.split(',').map(str::trim).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > 1 && names.contains(&"default") {
        return Err("multi logoutput for \"default\" is not supported yet".to_owned());
    }
    if names.contains(&DISCARD) {
        names = vec![DISCARD];
    }
    names.into_iter().map(target).collect()
}

fn target(name: &str) -> Result<Target, String> {
    match name {
        "default" | "stderr" => Ok(Target::Stderr),
        "stdout" => Ok(Target::Stdout),
        "systemd/journal" => Err("--log-outputs=systemd/journal is not supported: write to stderr, which a \
                                  service's manager hands on to the journal"
            .to_owned()),
        "" => Err(refused(name, "open : no such file or directory")),
        _ => path(name).map(Target::File),
    }
}

/// A path, or a URL of a file.
fn path(name: &str) -> Result<PathBuf, String> {
    let Some(scheme) = scheme(name) else { return Ok(PathBuf::from(name)) };
    if scheme != "file" {
        return Err(refused(name, &format!("no sink found for scheme {scheme:?}")));
    }
    let rest = &name["file:".len()..];
    let Some(rest) = rest.strip_prefix("//") else { return Ok(PathBuf::from(rest)) };
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return Err(refused(name, "file URLs must leave host empty or use localhost"));
    }
    Ok(PathBuf::from(rest))
}

/// The scheme of a URL: what stands before a colon, if nothing in it could not.
fn scheme(name: &str) -> Option<&str> {
    let (scheme, _) = name.split_once(':')?;
    let starts_well = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let goes_on_well = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    Some(scheme).filter(|_| starts_well && goes_on_well)
}

/// What is said of a place that cannot be written to.
pub fn refused(name: &str, reason: &str) -> String {
    format!("open sink {name:?}: {reason}")
}

/// One file can be rotated, and there has to be one. That two which are no files pass is etcd's rule.
pub fn check_for_rotation(targets: &[Target]) -> Result<(), String> {
    let files = targets.iter().filter(|target| matches!(target, Target::File(_))).count();
    if files > 1 || (files == 0 && targets.len() == 1) {
        return Err(
            "--log-outputs requires a single file path when --log-rotate-config-json is defined".into()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Target {
        Target::File(PathBuf::from(path))
    }

    #[test]
    fn a_list_of_outputs_is_what_it_names() {
        use Target::{Stderr, Stdout};
        for (text, expected) in [
            ("default", vec![Stderr]),
            ("stderr,stderr", vec![Stderr]),
            ("stdout", vec![Stdout]),
            ("stdout,stderr", vec![Stderr, Stdout]),
            ("stderr, stdout", vec![Stderr, Stdout]),
            ("a.log", vec![file("a.log")]),
            ("stdout,/var/log/x,logs/y.log", vec![file("/var/log/x"), file("logs/y.log"), Stdout]),
            ("file:///var/log/x", vec![file("/var/log/x")]),
            ("file://localhost/var/log/x", vec![file("/var/log/x")]),
            ("logs/a:b", vec![file("logs/a:b")]),
            ("stderr,/dev/null,/var/log/x", vec![file("/dev/null")]),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_written_to_is_refused_by_name() {
        for (text, expected) in [
            ("default,stdout", "multi logoutput for \"default\" is not supported yet"),
            ("", "open sink \"\": open : no such file or directory"),
            ("stdout,", "open sink \"\": open : no such file or directory"),
            ("foo://x", "open sink \"foo://x\": no sink found for scheme \"foo\""),
            ("file://elsewhere/x", "leave host empty or use localhost"),
            ("systemd/journal", "not supported"),
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    #[test]
    fn one_file_can_be_rotated() {
        for (text, passes) in [
            ("a.log", true),
            ("a.log,stderr", true),
            ("stdout,stderr", true),
            ("stderr", false),
            ("default", false),
            ("a.log,b.log", false),
        ] {
            let targets = parse(text).expect(text);
            assert_eq!(check_for_rotation(&targets).is_ok(), passes, "{text}");
        }
    }
}
