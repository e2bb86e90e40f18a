//! Ports on 127.0.0.1 that stay ours for as long as we hold them.
//!
//! A member keeps its port while it is dead, so the usual trick (bind port 0, close, hope) will
//! not do: the kernel hands such a port to the next outgoing connection. These come from below the
//! ephemeral range, and each is held through a locked file that every harness on the machine
//! respects. The lock ends with the process that took it, whatever way that ends.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use rand::Rng;

use crate::Failure;

/// Ports are drawn from here: above the services of a usual machine, below the ephemeral range.
const LOWEST: u16 = 12_000;
const HIGHEST_DEFAULT: u16 = 32_000;
const ATTEMPTS_MAX: usize = 2_000;

/// One port, ours until dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Takes a port that nobody listens on and no other harness holds.
    pub fn take() -> Result<Self, Failure> {
        let dir = lock_dir()?;
        let highest = highest_usable();
        for _ in 0..ATTEMPTS_MAX {
            let number = rand::rng().random_range(LOWEST..highest);
            let lock = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(dir.join(number.to_string()))?;
            if lock.try_lock().is_err() {
                continue;
            }
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(Failure::harness(format!("no free port on 127.0.0.1 between {LOWEST} and {highest}")))
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn lock_dir() -> Result<PathBuf, Failure> {
    let dir = std::env::temp_dir().join("meerkat-chaos-ports");
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// The end of our range: where the kernel's ephemeral ports begin, if that is lower.
fn highest_usable() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ephemeral: Option<u16> = range.split_whitespace().next().and_then(|low| low.parse().ok());
    match ephemeral {
        Some(low) if LOWEST + 1_000 < low => low.min(HIGHEST_DEFAULT),
        _ => HIGHEST_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_ports_are_never_handed_out_twice() {
        let held: Vec<Port> = (0..50).map(|_| Port::take().expect("a port")).collect();
        let mut numbers: Vec<u16> = held.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), held.len());
    }
}
