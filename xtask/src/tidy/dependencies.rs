//! Who may depend on whom, among our own crates.
//!
//! The table is the architecture: `state` cannot reach the network because nothing it may depend on
//! can. A crate that is missing from the table is refused, so that a new one is placed on purpose.
//! What only tests use is not held to the table.

use super::Violation;
use crate::metadata::Package;

/// A package, and those of ours that it may depend on.
const TABLE: &[(&str, &[&str])] = &[
    ("meerkat-types", &[]),
    ("meerkat-proto", &["meerkat-types"]),
    ("meerkat-backup", &[]),
    ("meerkat-mangle", &[]),
    ("meerkat-ports", &[]),
    ("meerkat-trust", &[]),
    ("meerkat-fault", &[]),
    ("meerkat-engine", &["meerkat-fault"]),
    ("meerkat-state", &["meerkat-types", "meerkat-fault", "meerkat-engine"]),
    ("meerkat-watch", &["meerkat-types", "meerkat-fault"]),
    (
        "meerkat-raft",
        &[
            "meerkat-types",
            "meerkat-proto",
            "meerkat-fault",
            "meerkat-engine",
            "meerkat-state",
            "meerkat-watch",
        ],
    ),
    (
        "meerkat-server",
        &[
            "meerkat-backup",
            "meerkat-types",
            "meerkat-proto",
            "meerkat-fault",
            "meerkat-engine",
            "meerkat-state",
            "meerkat-watch",
            "meerkat-raft",
            "meerkat-trust",
        ],
    ),
    ("meerkat-client", &["meerkat-types", "meerkat-proto", "meerkat-trust"]),
    ("meerkat-kubernetes", &[]),
    ("meerkat-watchcache", &["meerkat-kubernetes"]),
    ("meerkat-listwatch", &["meerkat-kubernetes", "meerkat-watchcache"]),
    // The operator's commands and the load generator speak through the generated stubs in `proto`: a
    // command shows what one member answered, and a load counts each attempt. The demo is an application.
    (
        "meerkat",
        &[
            "meerkat-backup",
            "meerkat-types",
            "meerkat-proto",
            "meerkat-fault",
            "meerkat-client",
            "meerkat-server",
            "meerkat-kubernetes",
            "meerkat-watchcache",
            "meerkat-listwatch",
        ],
    ),
    // Raw stubs on purpose: a client that hides repeats cannot judge a server. Never a server crate.
    ("meerkat-chaos", &["meerkat-types", "meerkat-proto", "meerkat-client", "meerkat-ports"]),
    // The whole member on simulated ground, judged by the checkers of chaos.
    (
        "meerkat-sim",
        &[
            "meerkat-proto",
            "meerkat-fault",
            "meerkat-engine",
            "meerkat-raft",
            "meerkat-server",
            "meerkat-chaos",
        ],
    ),
    ("xtask", &[]),
];

pub fn check(packages: &[Package]) -> Vec<Violation> {
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    packages.iter().flat_map(|package| check_package(package, &ours)).collect()
}

fn check_package(package: &Package, ours: &[&str]) -> Vec<Violation> {
    let manifest = package.directory.join("Cargo.toml");
    let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == package.name) else {
        let message = format!("{} has no row in the table of who may depend on whom", package.name);
        return vec![Violation::whole(manifest, message)];
    };
    let wanted = package.dependencies.iter().filter(|dependency| !dependency.dev);
    wanted
        .filter(|dependency| ours.contains(&dependency.name.as_str()))
        .filter(|dependency| !allowed.contains(&dependency.name.as_str()))
        .map(|dependency| {
            let message = format!("{} may not depend on {}", package.name, dependency.name);
            Violation::whole(&manifest, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies =
            dependencies.iter().map(|(name, dev)| Dependency { name: (*name).to_owned(), dev: *dev });
        Package { name: name.to_owned(), directory: "crates/it".into(), dependencies: dependencies.collect() }
    }

    fn check_one(it: Package) -> Vec<String> {
        let others = ["meerkat-types", "meerkat-raft", "meerkat-server"].map(|name| package(name, &[]));
        let packages: Vec<Package> = others.into_iter().chain([it]).collect();
        check(&packages).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_that_points_up_is_refused() {
        let found = check_one(package("meerkat-state", &[("meerkat-types", false), ("meerkat-raft", false)]));
        assert_eq!(found, ["crates/it/Cargo.toml: meerkat-state may not depend on meerkat-raft"]);
    }

    #[test]
    fn chaos_links_nothing_it_tests() {
        let found = check_one(package("meerkat-chaos", &[("meerkat-server", false)]));
        assert_eq!(found, ["crates/it/Cargo.toml: meerkat-chaos may not depend on meerkat-server"]);
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        let found = check_one(package("meerkat-extras", &[]));
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn what_only_tests_use_is_free() {
        assert_eq!(check_one(package("meerkat-state", &[("meerkat-raft", true)])), [""; 0]);
    }
}
