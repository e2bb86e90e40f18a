//! `txn`: a transaction written as text, from stdin.

use std::io::{BufRead, Write};

use clap::Args;

use super::cluster::{Cluster, refused};
use super::txn_text::{self, Section};
use crate::failure::Failure;
use crate::print::{self, Answer, Style};

/// Processes all the requests in one transaction, read from stdin
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct TxnArgs {
    /// Ask for each part
    #[arg(short, long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    interactive: bool,
    #[arg(hide = true)]
    surplus: Vec<String>,
}

pub async fn run(args: &TxnArgs, cluster: &Cluster, style: Style) -> Result<(), Failure> {
    if !args.surplus.is_empty() {
        return Err(Failure::bad_arguments("txn command does not accept argument"));
    }
    style.format.refuse_table()?;
    let prompt = |section: Section| {
        if args.interactive {
            println!("{}", prompt_text(section));
            std::io::stdout().flush()?;
        }
        Ok(())
    };
    let request = txn_text::read(std::io::stdin().lock(), prompt)?;
    let response = cluster.kv(|mut kv| async move { kv.txn(request).await }).await.map_err(refused)?;
    print::show(&Answer::Txn(response), style)
}

fn prompt_text(section: Section) -> &'static str {
    match section {
        Section::Compares => "compares:",
        Section::Success => "success requests (get, put, del):",
        Section::Failure => "failure requests (get, put, del):",
    }
}

/// One line without its end; `None` where the input ends before a line does.
pub fn read_line(input: &mut impl BufRead) -> Result<Option<Vec<u8>>, Failure> {
    let mut line = Vec::new();
    input.read_until(b'\n', &mut line)?;
    Ok(line.strip_suffix(b"\n").map(<[u8]>::to_vec))
}
