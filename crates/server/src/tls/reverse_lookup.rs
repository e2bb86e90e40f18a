//! Which name an address has, as the system's resolver knows it.
//!
//! Certificates for many members at once (`*.etcd.example.org`) name no address and no host that could be
//! looked up; etcd asks for the caller's name then, and so does this.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

/// Longer than any name; what the system's own header says.
const NAME_BYTES_MAX: usize = 1_025;

/// The name of whoever is at an address, if it has one.
pub(super) async fn name_of(address: IpAddr) -> Option<String> {
    // The system's resolver may wait for a server.
    tokio::task::spawn_blocking(move || look_up(address)).await.ok().flatten()
}

/// Whether a name that begins with `*.` is for that host.
pub(super) fn covers(wildcard: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    wildcard.strip_prefix('*').is_some_and(|suffix| {
        suffix.starts_with('.') && 1 < suffix.len() && host.ends_with(&suffix.to_ascii_lowercase())
    })
}

fn look_up(address: IpAddr) -> Option<String> {
    let socket = socket2::SockAddr::from(SocketAddr::new(address, 0));
    let mut name = [0_u8; NAME_BYTES_MAX];
    // SAFETY: the address is valid for its own length, the buffer for the length that is given; nothing is
    // kept after the call, and no service name is asked for.
    let code = unsafe {
        libc::getnameinfo(
            socket.as_ptr().cast(),
            socket.len(),
            name.as_mut_ptr().cast(),
            NAME_BYTES_MAX as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if code != 0 {
        return None;
    }
    CStr::from_bytes_until_nul(&name).ok().and_then(|name| name.to_str().ok()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_what_is_below_it() {
        for (wildcard, host, expected) in [
            ("*.etcd.test", "m0.etcd.test", true),
            ("*.etcd.test", "M0.Etcd.Test.", true),
            ("*.etcd.test", "etcd.test", false),
            ("*.etcd.test", "m0.other.test", false),
            ("*.etcd.test", "m0.evil-etcd.test", false),
            ("m0.etcd.test", "m0.etcd.test", false),
            ("*.", "m0.", false),
            ("*", "m0", false),
        ] {
            assert_eq!(covers(wildcard, host), expected, "{wildcard} {host}");
        }
    }
}
