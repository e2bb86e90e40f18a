//! Which of two versions a client is to prefer: stable before beta before alpha, and the newer before the
//! older. A version of another form than `v2` or `v1beta3` comes after all of those, by its name.

use std::cmp::{Ordering, Reverse};

/// For sorting: the preferred one is less.
pub fn newest_first(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Stable,
    Beta,
    Alpha,
}

fn rank(version: &str) -> Option<(Stage, Reverse<u64>, Reverse<u64>)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (major, stage) = rest.split_at(digits);
    let (stage, minor) = if stage.is_empty() {
        (Stage::Stable, "0")
    } else if let Some(minor) = stage.strip_prefix("beta") {
        (Stage::Beta, minor)
    } else {
        (Stage::Alpha, stage.strip_prefix("alpha")?)
    };
    // Both must be plain digits: "v1beta+1" parses as a number but is no version.
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    Some((stage, Reverse(number(major)?), Reverse(number(minor)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_before_beta_before_alpha_before_the_rest() {
        let mut versions = vec![
            "foo10",
            "v1",
            "v2alpha1",
            "v10beta3",
            "v11alpha2",
            "v10",
            "foo1",
            "v3beta1",
            "v12alpha1",
            "v2",
        ];
        versions.sort_by(|a, b| newest_first(a, b));
        let sorted =
            ["v10", "v2", "v1", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "v2alpha1", "foo1", "foo10"];
        assert_eq!(versions, sorted);
    }
}
