//! The workspace as cargo sees it: its packages, and what each declares that it depends on.
//!
//! Read once per task from `cargo metadata`; never from the manifests themselves, whose inheritance
//! cargo has already resolved.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::process::cargo;

#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    /// Relative to the workspace: `crates/raft`, `chaos`.
    pub directory: PathBuf,
    pub dependencies: Vec<Dependency>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    /// Needed only by tests, benches and examples.
    pub dev: bool,
}

/// Where the workspace lies: one above this package.
pub fn workspace_root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or(here.clone(), Path::to_path_buf)
}

pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let output = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|err| format!("cannot start cargo metadata: {err}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    parse(root, &output.stdout)
}

fn parse(root: &Path, json: &[u8]) -> Result<Vec<Package>, String> {
    let metadata: Value = serde_json::from_slice(json).map_err(|err| format!("cargo metadata: {err}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    packages.iter().map(|package| parse_package(root, package)).collect()
}

fn parse_package(root: &Path, package: &Value) -> Result<Package, String> {
    let name = package["name"].as_str().ok_or("a package without a name")?;
    let manifest = Path::new(package["manifest_path"].as_str().ok_or("a package without a manifest")?);
    let directory = manifest.parent().unwrap_or(manifest);
    let directory = directory.strip_prefix(root).unwrap_or(directory).to_path_buf();
    let dependencies =
        package["dependencies"].as_array().into_iter().flatten().map(|dependency| Dependency {
            name: dependency["name"].as_str().unwrap_or_default().to_owned(),
            dev: dependency["kind"].as_str() == Some("dev"),
        });
    Ok(Package { name: name.to_owned(), directory, dependencies: dependencies.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_carry_their_directory_and_the_kind_of_each_dependency() {
        let json =
            br#"{"packages": [{"name": "meerkat-state", "manifest_path": "/src/crates/state/Cargo.toml",
            "dependencies": [{"name": "bytes", "kind": null}, {"name": "tempfile", "kind": "dev"}]}]}"#;
        let packages = parse(Path::new("/src"), json).expect("metadata");
        assert_eq!(packages[0].directory, Path::new("crates/state"));
        let expected = [
            Dependency { name: "bytes".to_owned(), dev: false },
            Dependency { name: "tempfile".to_owned(), dev: true },
        ];
        assert_eq!(packages[0].dependencies, expected);
    }
}
