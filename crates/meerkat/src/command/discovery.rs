//! `--discovery-srv`: the members of a cluster as a domain's SRV records name them.
//!
//! `_etcd-client-ssl._tcp.<domain>` names members to be talked to encrypted, `_etcd-client._tcp.<domain>`
//! those in clear. A domain need have only one of them.

use crate::dns::Resolver;
use crate::endpoint::Endpoint;
use crate::failure::Failure;

/// What to look for, and what of it to take.
pub struct Discovery<'a> {
    pub domain: &'a str,
    /// Of several clusters in one domain, this one.
    pub service_name: Option<&'a str>,
    /// Take members that are to be talked to in clear, too.
    pub insecure: bool,
}

impl Discovery<'_> {
    /// The members that the domain names. Tells on stderr which of them are passed over.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, Failure> {
        self.endpoints_by(&Resolver::of_system())
    }

    fn endpoints_by(&self, resolver: &Resolver) -> Result<Vec<Endpoint>, Failure> {
        let mut found = Vec::new();
        let mut reasons = Vec::new();
        for (service, scheme) in [("etcd-client-ssl", "https"), ("etcd-client", "http")] {
            let suffix = self.service_name.map_or(String::new(), |name| format!("-{name}"));
            let name = format!("_{service}{suffix}._tcp.{}", self.domain);
            let records = resolver.srv(&name).unwrap_or_else(|reason| {
                reasons.push(reason);
                Vec::new()
            });
            for srv in records {
                let endpoint = format!("{scheme}://{}:{}", srv.target, srv.port);
                if scheme == "http" && !self.insecure {
                    eprintln!("ignoring discovered insecure endpoint {endpoint:?}");
                    continue;
                }
                found.push(Endpoint::parse(&endpoint)?);
            }
        }
        match (found.is_empty(), &reasons[..]) {
            (true, [first, second]) => Err(self.failed(&format!("dns lookup errors: {first} and {second}"))),
            (true, _) => Err(self.failed("it names no members to talk to")),
            (false, _) => Ok(found),
        }
    }

    fn failed(&self, reason: &str) -> Failure {
        Failure::error(format!("--discovery-srv {}: {reason}", self.domain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::test_server::TestServer;

    #[test]
    fn a_domain_names_its_members_and_which_of_them_to_encrypt() {
        let server = TestServer::start(&[
            ("_etcd-client-ssl-x._tcp.example.org", "s", 2379),
            ("_etcd-client-x._tcp.example.org", "p", 2379),
            ("_etcd-client._tcp.plain.org", "q", 2379),
        ]);
        let found = |domain, service_name, insecure| {
            let discovery = Discovery { domain, service_name, insecure };
            let endpoints = discovery.endpoints_by(&Resolver::at(server.address()));
            endpoints.map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        let good = |domain, service, insecure| found(domain, service, insecure).expect("members");
        assert_eq!(good("example.org.", Some("x"), true), "https://s:2379 http://p:2379");
        assert_eq!(good("example.org", Some("x"), false), "https://s:2379");
        assert_eq!(good("plain.org", None, true), "http://q:2379");
        let bad = |domain, insecure| found(domain, None, insecure).expect_err("nobody").message;
        assert_eq!(bad("plain.org", false), "--discovery-srv plain.org: it names no members to talk to");
        let at = server.address();
        let both = format!(
            "--discovery-srv nowhere.org: dns lookup errors: lookup _etcd-client-ssl._tcp.nowhere.org on {at}: \
             no such host and lookup _etcd-client._tcp.nowhere.org on {at}: no such host"
        );
        assert_eq!(bad("nowhere.org", true), both);
    }
}
