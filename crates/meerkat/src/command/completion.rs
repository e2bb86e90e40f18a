//! `completion`: a script that teaches a shell this tool's commands and flags.

use std::io::Write;

use clap::Args;
use clap_complete::{Shell, generate};

use crate::failure::Failure;

/// Generate completion script
///
/// bash: meerkat completion bash > /etc/bash_completion.d/meerkat;
/// zsh: meerkat completion zsh > "${fpath[1]}/_meerkat";
/// fish: meerkat completion fish > ~/.config/fish/completions/meerkat.fish
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// bash, zsh, fish or powershell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// For `tree`, every command there is.
pub fn run(args: &CompletionArgs, mut tree: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    let name = tree.get_name().to_owned();
    generate(args.shell, &mut tree, name, &mut script);
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
