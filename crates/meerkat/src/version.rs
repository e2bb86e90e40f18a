//! What the binary says about its version, in the form of whichever program it stands in for.
//!
//! Scripts read the first line; the numbers are those of the etcd whose behaviour is matched.

use meerkat_server::{API_VERSION, SERVER_VERSION};

const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// As `etcd --version`; what Go would say of itself is what is true here.
pub fn of_server() -> String {
    format!(
        "etcd Version: {SERVER_VERSION}\nGit SHA: meerkat-{OWN_VERSION}\nGo Version: none\nGo OS/Arch: {}/{}\n",
        std::env::consts::OS,
        architecture(),
    )
}

/// As `etcdctl version`.
pub fn of_tool(called: &str) -> String {
    match called {
        "etcdctl" | "etcdutl" => format!("{called} version: {SERVER_VERSION}\nAPI version: {API_VERSION}\n"),
        _ => format!(
            "meerkat version: {OWN_VERSION}\netcd version: {SERVER_VERSION}\nAPI version: {API_VERSION}\n"
        ),
    }
}

/// In Go's words.
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
    fn scripts_find_the_version_where_they_look() {
        assert!(of_server().starts_with("etcd Version: 3.6."));
        assert!(of_tool("etcdctl").starts_with("etcdctl version: 3.6."));
        assert!(of_tool("etcdutl").ends_with("\nAPI version: 3.6\n"));
        assert!(of_tool("meerkat").starts_with("meerkat version: "));
    }
}
