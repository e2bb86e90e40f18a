//! Starting other programs, with a heading, and turning their failure into one sentence.
//!
//! Every command runs in the directory it is given, never in whatever directory the caller stood in.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The cargo that runs us, so that a chosen toolchain stays chosen.
pub fn cargo(directory: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    forget_our_package(&mut command);
    command
}

/// Takes away what the cargo that runs us says of our own package. Some build scripts look at these
/// variables (that of ring does): they would run again with each change, and all that stands on them would
/// be compiled again.
pub fn forget_our_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
}

pub fn bash(directory: &Path, script: &str, arguments: &[String]) -> Command {
    let mut command = Command::new("bash");
    command.arg(script).args(arguments).current_dir(directory);
    forget_our_package(&mut command);
    command
}

/// Runs to the end, output passed through.
pub fn run(what: &str, mut command: Command) -> Result<(), String> {
    println!("==> {what}");
    let status = command.status().map_err(|err| format!("{what}: cannot start {command:?}: {err}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what} failed: {status}")) }
}
