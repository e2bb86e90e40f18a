//! `version`: of this tool, and of the API that it speaks.

use clap::Args;

/// Prints the version of the tool and of the API
#[derive(Args, Debug)]
pub struct VersionArgs {
    #[arg(hide = true)]
    ignored: Vec<String>,
}
