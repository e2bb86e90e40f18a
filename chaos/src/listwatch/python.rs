//! The Kubernetes client for Python, from PyPI.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::{Failure, Patience};

/// Runs a script with the client at hand; what it printed. A script says what is wrong by failing.
pub async fn run(script: &Path, kubeconfig: &Path, within: Duration) -> Result<String, Failure> {
    let child = Command::new(python()?)
        .arg(script)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let name = script.display();
    let output = Patience::of(format!("{name} ends"), within).wait(child.wait_with_output()).await??;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        Ok(out.into_owned())
    } else {
        Err(Failure::broken(format!("{name} failed\n--- out\n{out}\n--- err\n{err}")))
    }
}

fn python() -> Result<PathBuf, Failure> {
    let python = super::tools().join("venv/bin/python");
    let has_client = std::process::Command::new(&python)
        .args(["-c", "import kubernetes"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_client {
        Ok(python)
    } else {
        Err(Failure::Missing("the Kubernetes client for Python: run scripts/setup".to_owned()))
    }
}
