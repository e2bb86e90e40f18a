//! Which cluster the SRV records of a domain describe, and which of its members this one is.
//!
//! A record is a member. The one whose address is an advertised address of this member goes by this
//! member's name; the others by numbers, which are nobody's names and differ from member to member, so that
//! [`InitialNames::OwnOnly`] goes with them. Nobody is left out: a host without an address yet is a member
//! all the same, or a member that starts too early would begin a smaller cluster of its own.
//!
//! Pure: what was asked and heard is handed in.

use std::net::SocketAddr;

use meerkat_server::config::{Config, InitialNames, MemberUrl};

/// Schemes, and the services that name members reached so.
pub const SERVICES: [(&str, &str); 2] = [("https", "etcd-server-ssl"), ("http", "etcd-server")];

/// What name servers said.
pub struct Heard {
    /// Where this member says that it is, and what that resolves to.
    pub advertised: Vec<(MemberUrl, Vec<SocketAddr>)>,
    pub services: [Service; 2],
}

pub struct Service {
    pub scheme: &'static str,
    /// With the name of the cluster, if it has one.
    pub service: String,
    /// Or why there are none.
    pub records: Result<Vec<Listed>, String>,
}

/// A record and what its target resolves to.
#[derive(Clone, Debug)]
pub struct Listed {
    pub target: String,
    pub port: u16,
    /// Empty if it does not, yet.
    pub addresses: Vec<SocketAddr>,
}

/// The configuration with the cluster that was found.
pub fn begin(mut config: Config, heard: &Heard) -> Result<Config, String> {
    let mut cluster = Vec::new();
    let mut own = Vec::new();
    let mut reasons = Vec::new();
    let mut number = 0;
    for service in &heard.services {
        match service.members(&heard.advertised) {
            Err(reason) => {
                reasons.push(format!("error querying DNS SRV records for _{} {reason}", service.service))
            }
            Ok(members) => {
                for member in members {
                    let name = match &member.advertised {
                        Some(advertised) => {
                            own.push((advertised.clone(), member.url.clone()));
                            config.name.clone()
                        }
                        None => {
                            let free = (number..).find(|number| number.to_string() != config.name);
                            let taken = free.unwrap_or(number);
                            number = taken + 1;
                            taken.to_string()
                        }
                    };
                    cluster.push((name, member.url));
                }
            }
        }
    }
    for reason in &reasons {
        tracing::warn!(error = reason, "failed to resolve during SRV discovery");
    }
    if cluster.is_empty() {
        return Err(reasons.join("; "));
    }
    if own.is_empty() {
        return Err(format!("cannot find local etcd member {:?} in SRV records", config.name));
    }
    cluster.sort();
    config.initial_cluster = cluster;
    config.initial_names = InitialNames::OwnOnly;
    // An advertised address and its record are one place, as the resolver has it. One without a record stays
    // as it is, and is found missing with all other faults of an initial cluster.
    for url in &mut config.initial_advertise_peer_urls {
        if let Some((_, listed)) = own.iter().find(|(advertised, _)| advertised == url) {
            *url = listed.clone();
        }
    }
    tracing::info!(cluster = config.initial_cluster_text(), "got bootstrap from DNS for etcd-server");
    Ok(config)
}

struct Found {
    url: MemberUrl,
    /// The address of this member that it is, if it is this member.
    advertised: Option<MemberUrl>,
}

impl Service {
    fn members(&self, advertised: &[(MemberUrl, Vec<SocketAddr>)]) -> Result<Vec<Found>, String> {
        let records = self.records.as_ref().map_err(String::clone)?;
        records.iter().map(|listed| self.member(listed, advertised)).collect()
    }

    fn member(&self, listed: &Listed, advertised: &[(MemberUrl, Vec<SocketAddr>)]) -> Result<Found, String> {
        let text = format!("{}://{}:{}", self.scheme, listed.target, listed.port);
        let url = MemberUrl::parse(&text).map_err(|error| error.to_string())?;
        let is_here = |(place, addresses): &&(MemberUrl, Vec<SocketAddr>)| {
            place.host_and_port() == url.host_and_port()
                || addresses.iter().any(|address| listed.addresses.contains(address))
        };
        let Some((place, _)) = advertised.iter().find(is_here) else {
            return Ok(Found { url, advertised: None });
        };
        if place.transport() != url.transport() {
            return Err(format!(
                "bootstrap at {url} from DNS for {} has scheme mismatch with expected peer {place}",
                self.service
            ));
        }
        Ok(Found { url, advertised: Some(place.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use meerkat_server::config::{RawDiscovery, RawFlags};

    use super::*;

    const NONE: Result<&[(&str, &str)], &str> = Err("lookup: no such host");

    /// Records as `host:port` and the address that the host has.
    fn service(at: usize, records: Result<&[(&str, &str)], &str>) -> Service {
        let listed = |(place, address): &(&str, &str)| {
            let (target, port) = place.split_once(':').expect("a host and a port");
            let port = port.parse().expect("a number");
            let ip = address.parse::<std::net::IpAddr>().ok();
            let addresses = ip.map(|ip| SocketAddr::from((ip, port))).into_iter().collect();
            Listed { target: target.to_owned(), port, addresses }
        };
        let (scheme, service) = SERVICES[at];
        let records = records.map(|rows| rows.iter().map(listed).collect()).map_err(str::to_owned);
        Service { scheme, service: service.to_owned(), records }
    }

    fn begun(
        advertised: &[(&str, &str)],
        secure: Result<&[(&str, &str)], &str>,
        plain: Result<&[(&str, &str)], &str>,
    ) -> Result<Config, String> {
        let urls: Vec<&str> = advertised.iter().map(|(url, _)| *url).collect();
        let raw = RawFlags {
            name: "me".to_owned(),
            initial_advertise_peer_urls: Some(urls.join(",")),
            discovery: RawDiscovery { srv: "example.org".to_owned(), ..RawDiscovery::default() },
            ..RawFlags::default()
        };
        let config = Config::from_flags(raw).expect("good flags");
        let place = |(url, ip): &(&str, &str)| {
            let url = MemberUrl::parse(url).expect("an address");
            let port = url.host_and_port().expect("a port").1;
            (url, vec![SocketAddr::from((ip.parse::<std::net::IpAddr>().expect("an address"), port))])
        };
        let services = [service(0, secure), service(1, plain)];
        begin(config, &Heard { advertised: advertised.iter().map(place).collect(), services })
    }

    fn check(
        advertised: &[(&str, &str)],
        secure: Result<&[(&str, &str)], &str>,
        plain: Result<&[(&str, &str)], &str>,
        expected: &str,
    ) {
        let got = match begun(advertised, secure, plain) {
            Ok(config) => match config.verify_bootstrap() {
                Ok(()) => config.initial_cluster_text(),
                Err(error) => error.to_string(),
            },
            Err(reason) => reason,
        };
        assert_eq!(got, expected);
    }

    const ME: (&str, &str) = ("http://10.0.0.1:2380", "10.0.0.1");

    #[test]
    fn this_member_is_the_record_with_its_address() {
        let three = [("a:2380", "10.0.0.1"), ("b:2380", "10.0.0.2"), ("c:2380", "10.0.0.3")];
        check(&[ME], NONE, Ok(&three), "0=http://b:2380,1=http://c:2380,me=http://a:2380");
        let config = begun(&[ME], NONE, Ok(&three)).expect("found");
        assert_eq!(config.initial_names, InitialNames::OwnOnly);
        let secure = ("https://10.0.0.1:2380", "10.0.0.1");
        check(&[secure], Ok(&three[..2]), NONE, "0=https://b:2380,me=https://a:2380");
    }

    #[test]
    fn a_name_that_is_advertised_as_it_is_listed_needs_no_resolver() {
        check(&[("http://a:2380", "10.9.9.9")], NONE, Ok(&[("a:2380", "")]), "me=http://a:2380");
    }

    #[test]
    fn a_host_without_an_address_yet_is_a_member_all_the_same() {
        let two = [("a:2380", "10.0.0.1"), ("b:2380", "")];
        check(&[ME], NONE, Ok(&two), "0=http://b:2380,me=http://a:2380");
    }

    #[test]
    fn the_records_of_both_services_are_one_cluster() {
        let (mine, other) = ([("a:2380", "10.0.0.1")], [("s:2380", "10.0.0.7")]);
        check(&[ME], Ok(&other), Ok(&mine), "0=https://s:2380,me=http://a:2380");
    }

    #[test]
    fn a_port_of_somebody_else_on_this_host_is_not_this_member() {
        let rows = [("a:2380", "10.0.0.1"), ("a:2381", "10.0.0.1")];
        check(&[ME], NONE, Ok(&rows), "0=http://a:2381,me=http://a:2380");
    }

    #[test]
    fn what_is_wrong_is_told_as_etcd_tells_it() {
        let b = [("b:2380", "10.0.0.2")];
        check(&[ME], NONE, Ok(&b), "cannot find local etcd member \"me\" in SRV records");
        check(
            &[ME],
            NONE,
            NONE,
            "error querying DNS SRV records for _etcd-server-ssl lookup: no such host; \
             error querying DNS SRV records for _etcd-server lookup: no such host",
        );
        let (a, two) = ([("a:2380", "10.0.0.1")], [ME, ("http://10.0.0.1:2390", "10.0.0.1")]);
        check(
            &[ME],
            Ok(&a),
            NONE,
            "error querying DNS SRV records for _etcd-server-ssl bootstrap at https://a:2380 from DNS for \
             etcd-server-ssl has scheme mismatch with expected peer http://10.0.0.1:2380; \
             error querying DNS SRV records for _etcd-server lookup: no such host",
        );
        check(
            &two,
            NONE,
            Ok(&a),
            "--initial-advertise-peer-urls has http://10.0.0.1:2390 but missing from --initial-cluster=me=http://a:2380",
        );
    }

    #[test]
    fn a_service_that_lists_this_member_under_the_other_scheme_is_passed_over() {
        let both = [("a:2380", "10.0.0.1"), ("b:2380", "10.0.0.2")];
        check(&[ME], Ok(&both), Ok(&both), "0=http://b:2380,me=http://a:2380");
    }
}
