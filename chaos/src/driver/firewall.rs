//! Packets that do not arrive: rules of the kernel's firewall in the network namespace of the member
//! that would receive them.
//!
//! The table is ours alone and is replaced as a whole each time, in one step, so that no packet passes
//! between two states of it. Lost packets are the kernel's dice, not the seed's.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::Failure;
use crate::ground::Link;

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// One that `ip netns` knows by name.
    Named(String),
    /// That of a running process.
    OfProcess(u32),
}

impl Room {
    /// The words before a command that make it run there.
    pub fn launcher(&self) -> Vec<String> {
        match self {
            Self::Named(name) => ["ip", "netns", "exec", name].map(str::to_owned).to_vec(),
            Self::OfProcess(pid) => vec!["nsenter".to_owned(), format!("--net=/proc/{pid}/ns/net")],
        }
    }
}

/// What one sender's packets meet: nothing, or the firewall. Delays are not the firewall's to make.
fn rule(from: Ipv4Addr, link: Link) -> Option<String> {
    match link {
        Link::Up | Link::Slow(..) => None,
        Link::Down => Some(format!("ip saddr {from} drop")),
        // The kernel's dice show at most 999.
        Link::Lossy(1000..) => Some(format!("ip saddr {from} drop")),
        Link::Lossy(per_mille) => Some(format!("ip saddr {from} numgen random mod 1000 < {per_mille} drop")),
    }
}

/// The whole table, from what comes from whom.
fn table(incoming: &[(Ipv4Addr, Link)]) -> String {
    let rules: String = incoming
        .iter()
        .filter_map(|(from, link)| rule(*from, *link))
        .map(|rule| format!("    {rule}\n"))
        .collect();
    // Declared first, so that it is there to be deleted.
    format!(
        "table inet meerkat_chaos\ndelete table inet meerkat_chaos\n\
         table inet meerkat_chaos {{\n  chain arriving {{\n    type filter hook input priority 0; policy accept;\n\
         {rules}  }}\n}}\n"
    )
}

/// Sets what becomes of packets that arrive in a room.
pub fn apply(room: &Room, incoming: &[(Ipv4Addr, Link)]) -> Result<(), Failure> {
    let words = [room.launcher(), vec!["nft".to_owned(), "-f".to_owned(), "-".to_owned()]].concat();
    run_with(&words, &table(incoming))
}

/// Runs a command to its end.
pub fn run(words: &[&str]) -> Result<(), Failure> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    run_with(&words, "")
}

/// Whether a command can be run and ends well.
pub fn works(words: &[&str]) -> bool {
    let Some((program, args)) = words.split_first() else { return false };
    let ended = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ended.is_ok_and(|status| status.success())
}

fn run_with(words: &[String], input: &str) -> Result<(), Failure> {
    let line = words.join(" ");
    let Some((program, args)) = words.split_first() else { return Ok(()) };
    let failed = |why: String| Failure::harness(format!("{line}: {why}"));
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Whoever does not read his input says why when he ends.
        drop(stdin.write_all(input.as_bytes()));
    }
    let ended = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if ended.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&ended.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_holds_a_rule_for_each_link_that_is_not_up() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let table =
            table(&[(one, Link::Up), (two, Link::Down), (three, Link::Lossy(50)), (four, Link::Lossy(1000))]);
        assert!(table.contains("ip saddr 10.0.0.4 drop\n"), "{table}");
        assert!(!table.contains("10.0.0.1"), "{table}");
        assert!(table.contains("ip saddr 10.0.0.2 drop\n"), "{table}");
        assert!(table.contains("ip saddr 10.0.0.3 numgen random mod 1000 < 50 drop\n"), "{table}");
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let failure = run(&["ls", "/nowhere-at-all"]).expect_err("there is no such directory");
        assert!(failure.to_string().contains("nowhere-at-all"), "{failure}");
        assert!(works(&["true"]) && !works(&["false"]) && !works(&["no-such-command-here"]));
    }
}
