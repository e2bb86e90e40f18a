//! Controls: the harness run on etcd, which shows that a failure is Meerkat's and not the harness's own.
//!
//! A control says something about the harness (`HARNESS`) and nothing about Meerkat. So controls run when the harness
//! differs from the one they last passed on, and in the long form. `chaos/controls.txt` holds the digest of
//! that harness; `cargo xtask controls` runs them and writes it.

use std::path::Path;

use crate::source::{self, Source};

const STAMP: &str = "chaos/controls.txt";
/// The harness itself, its scenarios, what it preloads into members, and what gives it ports.
const HARNESS: [&str; 4] = ["chaos/interpose", "chaos/scenarios", "chaos/src", "crates/ports/src"];
/// How the name of every control ends.
const SUFFIX: &str = "_is_sound";

pub fn is_control(test: &str) -> bool {
    test.ends_with(SUFFIX)
}

/// Whether they passed on the harness as it is.
pub fn are_proved(root: &Path) -> Result<bool, String> {
    let (stamp, digest) = (std::fs::read_to_string(root.join(STAMP)).unwrap_or_default(), harness(root)?);
    println!("controls: the harness is {digest}; they last passed on {}", stamp.trim());
    Ok(stamp.trim() == digest)
}

pub fn write_stamp(root: &Path) -> Result<(), String> {
    let path = root.join(STAMP);
    let digest = harness(root)?;
    std::fs::write(&path, format!("{digest}\n"))
        .map_err(|err| format!("cannot write {}: {err}", path.display()))
}

fn harness(root: &Path) -> Result<String, String> {
    Ok(digest(&source::load(root)?))
}

/// Of the names and texts of the harness, in the order of names.
fn digest(sources: &[Source]) -> String {
    let is_harness = |source: &&Source| HARNESS.iter().any(|dir| source.path.starts_with(dir));
    let mut files: Vec<&Source> = sources.iter().filter(is_harness).collect();
    files.sort_by_key(|source| source.path.clone());
    let bytes = files.iter().flat_map(|source| {
        let name = source.path.to_string_lossy().into_owned().into_bytes();
        name.into_iter().chain([0]).chain(source.text.bytes()).chain([0])
    });
    // FNV-1a: no library is needed to notice a change.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_the_harness_changes_its_digest_and_nothing_else_does() {
        let harness = |text: &str, ports: &str, test: &str| {
            digest(&[
                Source::new("chaos/src/lib.rs", text),
                Source::new("crates/ports/src/lib.rs", ports),
                Source::new("chaos/tests/it/main.rs", test),
            ])
        };
        assert_eq!(harness("a", "b", "c"), harness("a", "b", "d"));
        assert_ne!(harness("a", "b", "c"), harness("d", "b", "c"));
        assert_ne!(harness("a", "b", "c"), harness("a", "d", "c"));
        let swapped = [Source::new("chaos/src/b.rs", ""), Source::new("chaos/src/a.rs", "x")];
        let sorted = [Source::new("chaos/src/a.rs", "x"), Source::new("chaos/src/b.rs", "")];
        assert_eq!(digest(&swapped), digest(&sorted));
    }

    #[test]
    fn a_control_is_known_by_its_name() {
        assert!(is_control("crash::the_same_run_passes_on_etcd_so_the_harness_itself_is_sound"));
        assert!(!is_control("crash::no_acknowledged_write_is_lost"));
    }
}
