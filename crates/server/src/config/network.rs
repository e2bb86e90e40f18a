//! From where other members are dialled, and how ports are opened.

use super::MemberUrl;
use std::net::IpAddr;

/// The flags, as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawNetwork {
    pub set_member_localaddr: bool,
    pub socket_reuse_port: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkOptions {
    /// The address that connections to other members come from. `None`: whichever the system picks.
    pub dial_from: Option<IpAddr>,
    /// It was asked for, and no address of this member's would do.
    pub lacks_address: bool,
    /// Ports are opened though others have them open that say the same (SO_REUSEPORT).
    pub reuse_port: bool,
}

impl NetworkOptions {
    pub(super) fn new(raw: RawNetwork, advertised: &[MemberUrl]) -> NetworkOptions {
        let dial_from = local_address(advertised).filter(|_| raw.set_member_localaddr);
        let lacks_address = raw.set_member_localaddr && dial_from.is_none();
        NetworkOptions { dial_from, lacks_address, reuse_port: raw.socket_reuse_port }
    }
}

/// As in etcd: the first address, not a name, at which another machine could find this one.
fn local_address(advertised: &[MemberUrl]) -> Option<IpAddr> {
    let addresses = advertised.iter().filter_map(|url| url.bare_host()?.parse::<IpAddr>().ok());
    let mut reachable = addresses.filter(|address| !address.is_loopback() && !address.is_unspecified());
    reachable.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(advertised: &str, expected: Option<&str>) {
        let urls: Vec<MemberUrl> =
            advertised.split(',').map(|text| MemberUrl::parse(text).expect("a URL")).collect();
        let expected = expected.map(|text| text.parse().expect("an address"));
        let raw = RawNetwork { set_member_localaddr: true, ..RawNetwork::default() };
        let asked = NetworkOptions::new(raw, &urls);
        assert_eq!((asked.dial_from, asked.lacks_address), (expected, expected.is_none()), "{advertised}");
        assert_eq!(NetworkOptions::new(RawNetwork::default(), &urls), NetworkOptions::default());
    }

    #[test]
    fn members_are_dialled_from_the_first_address_that_others_could_find() {
        check("http://192.168.100.110:2380", Some("192.168.100.110"));
        check("http://123.example.com:2380,http://192.168.100.110:2380", Some("192.168.100.110"));
        check("http://127.0.0.1:2380,http://10.0.0.1:2380,http://10.0.0.2:2380", Some("10.0.0.1"));
        check("http://[2001:db8::1]:2380,http://192.168.100.110:2380", Some("2001:db8::1"));
        for nowhere in ["localhost", "123.example.com", "0.0.0.0", "[::]", "127.0.0.1", "[::1]"] {
            check(&format!("http://{nowhere}:2380"), None);
        }
    }
}
