//! What `/version` says.
//!
//! Clients choose by the minor version what they may ask for: ours is the release whose behaviour the door
//! keeps. All values are strings, numbers too.

use serde_json::{Value, json};

/// The release of Kubernetes that the door behaves like, by its major and minor version.
pub const RELEASE: (u16, u16) = (1, 36);

/// `v1.36.0+meerkat-0.1.0`
pub fn git_version() -> String {
    let (major, minor) = RELEASE;
    format!("v{major}.{minor}.0+meerkat-{}", env!("CARGO_PKG_VERSION"))
}

pub fn document() -> Value {
    let (major, minor) = RELEASE;
    json!({
        "major": major.to_string(),
        "minor": minor.to_string(),
        "gitVersion": git_version(),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// By the names that Go has for them, which clients expect.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_string_and_the_parts_agree() {
        let document = document();
        let fields = document.as_object().expect("an object");
        assert!(fields.values().all(Value::is_string));
        let (major, minor) = RELEASE;
        assert!(git_version().starts_with(&format!("v{major}.{minor}.0+meerkat-")));
        assert_eq!(
            (&document["major"], &document["minor"]),
            (&json!(major.to_string()), &json!(minor.to_string()))
        );
    }
}
