//! Ports on 127.0.0.1 that stay ours while whoever listens on them is dead.
//!
//! Drawn as `chaos/src/driver/ports.rs` does, and held through the same locked files: from below the range
//! that outgoing connections get theirs from, so that none of those sits on a port when its member comes
//! back. The tests of `meerkat` use this file too.

use rand::random_range;
use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Mutex;

const LOWEST: u16 = 12_000;
const HIGHEST_DEFAULT: u16 = 32_000;
const ATTEMPTS_MAX: usize = 2_000;
/// Far more than tests that run at the same time need, and few enough for any limit on open files.
const HELD_MAX: usize = 300;

/// The locks of the ports that were handed out last.
static HELD: Mutex<VecDeque<File>> = Mutex::new(VecDeque::new());

/// A port that nobody listens on and no other test holds. Five digits, so that outputs of two servers align.
pub fn free_port() -> u16 {
    let (dir, highest) = (lock_dir(), highest_usable());
    for _ in 0..ATTEMPTS_MAX {
        let number = random_range(LOWEST..highest);
        let path = dir.join(number.to_string());
        let lock = File::options().create(true).truncate(false).write(true).open(path).expect("a lock file");
        if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
            let mut held = HELD.lock().expect("nobody panics with it");
            held.push_back(lock);
            if HELD_MAX < held.len() {
                held.pop_front();
            }
            return number;
        }
    }
    panic!("no free port on 127.0.0.1 between {LOWEST} and {highest}");
}

fn lock_dir() -> PathBuf {
    let dir = std::env::temp_dir().join("meerkat-chaos-ports");
    std::fs::create_dir_all(&dir).expect("a directory for the locks");
    dir
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
