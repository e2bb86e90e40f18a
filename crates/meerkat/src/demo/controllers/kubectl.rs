//! kubectl, as it is.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// No command of the demo takes longer, unless it waits for something that does not come.
const WITHIN: Duration = Duration::from_secs(60);

pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    /// For what it caches.
    home: PathBuf,
}

impl Kubectl {
    /// Has this binary write a kubeconfig for a door into `directory`.
    pub async fn prepare(program: &Path, door: &str, directory: &Path) -> Result<Kubectl, String> {
        let kubeconfig = directory.join("kubeconfig");
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        command.args(["kubeconfig", "--force", "--server", door, "--out"]).arg(&kubeconfig);
        finished(command, "").await?;
        Ok(Kubectl { program: program.to_owned(), kubeconfig, home: directory.to_owned() })
    }

    /// Runs it against this door, and gives what it printed.
    pub async fn run(&self, door: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--server", door]).args(arguments);
        command.env("HOME", &self.home).env_remove("KUBECONFIG");
        finished(command, input).await
    }
}

async fn finished(mut command: Command, input: &str) -> Result<String, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let named = format!("{:?}", command.as_std());
    let run = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(WITHIN, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{named}: {error}")),
        Err(_) => return Err(format!("{named}: not done after {WITHIN:?}")),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    Err(format!("{named}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The kubectl to use: the one that is named, the one in `.tools` here, or the one on PATH.
pub fn find(named: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(program) = named {
        return Ok(program.to_owned());
    }
    let local = [PathBuf::from(".tools/kubectl")].into_iter();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&on_path).map(|dir| dir.join("kubectl")).collect();
    let found = local.chain(on_path).find(|program| program.is_file());
    let found = found.ok_or("there is no kubectl on PATH; name one with --kubectl, or run scripts/setup")?;
    std::path::absolute(&found).map_err(|error| format!("{}: {error}", found.display()))
}
