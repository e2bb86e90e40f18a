//! The rules of [`Config`] as rows: flags in, the refusal or what was understood out.

use super::*;

fn raw(change: impl FnOnce(&mut RawFlags)) -> RawFlags {
    let mut raw = RawFlags::default();
    change(&mut raw);
    raw
}

fn accept(change: impl FnOnce(&mut RawFlags)) -> Config {
    Config::from_flags(raw(change)).expect("these flags are good")
}

fn check_refused(expected: &str, change: impl FnOnce(&mut RawFlags)) {
    let config = Config::from_flags(raw(change));
    let refusal = config.and_then(|config| config.verify_bootstrap()).expect_err("must be refused");
    assert_eq!(refusal.to_string(), expected);
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn without_flags_a_member_is_a_cluster_of_one_as_etcd_starts_it() {
    let config = accept(|_| {});
    assert_eq!(config.verify_bootstrap(), Ok(()));
    assert_eq!(config.data_dir, PathBuf::from("default.etcd"));
    assert_eq!(config.initial_cluster_text(), "default=http://localhost:2380");
    assert_eq!(config.listen_client_urls[0].to_string(), "http://localhost:2379");
    assert_eq!(config.advertise_client_urls[0].to_string(), "http://localhost:2379");
    assert_eq!(config.quota_backend_bytes, Some(2 << 30));
    assert_eq!((config.max_txn_ops, config.max_request_bytes), (128, 1_572_864));
    assert_eq!(config.max_concurrent_streams, None);
    assert!(config.listen_metrics_urls.is_empty());
}

#[test]
fn a_name_alone_moves_the_data_directory_and_the_cluster_of_one() {
    let config = accept(|raw| raw.name = "abc".to_owned());
    assert_eq!(config.data_dir, PathBuf::from("abc.etcd"));
    assert_eq!(config.initial_cluster_text(), "abc=http://localhost:2380");
}

#[test]
fn an_election_lasts_at_least_five_heartbeats_and_less_than_fifty_seconds() {
    check_refused(
        "--election-timeout[1000ms] should be at least as 5 times as --heartbeat-interval[300ms]",
        |raw| raw.heartbeat_interval_ms = 300,
    );
    check_refused("--election-timeout[60000ms] is too long, and should be set less than 50000ms", |raw| {
        raw.election_timeout_ms = 60_000;
    });
    check_refused("--election-timeout must be >0 (set to 0ms)", |raw| raw.election_timeout_ms = 0);
    check_refused("--heartbeat-interval must be >0 (set to 0ms)", |raw| raw.heartbeat_interval_ms = 0);
    accept(|raw| raw.heartbeat_interval_ms = 200);
    accept(|raw| raw.election_timeout_ms = 50_000);
}

#[test]
fn a_listener_needs_an_advertised_address_beside_it() {
    check_refused("--advertise-client-urls is required when --listen-client-urls is set explicitly", |raw| {
        raw.listen_client_urls = some("http://127.0.0.1:42379")
    });
}

#[test]
fn a_listener_binds_an_address_and_not_a_name() {
    check_refused("expected IP in URL for binding (http://foo.bar:42379)", |raw| {
        raw.listen_client_urls = some("http://foo.bar:42379");
        raw.advertise_client_urls = some("http://foo.bar:42379");
    });
    check_refused("expected IP in URL for binding (http://foo:1)", |raw| {
        raw.listen_peer_urls = some("http://foo:1");
    });
    accept(|raw| raw.listen_peer_urls = some("http://[::]:2380,http://localhost:2381"));
}

#[test]
fn a_listener_that_is_named_twice_is_opened_once() {
    let raw = RawFlags {
        listen_peer_urls: some("http://127.0.0.1:1,http://127.0.0.1:2,http://127.0.0.1:1"),
        ..RawFlags::default()
    };
    assert_eq!(Config::from_flags(raw).expect("as in etcd").listen_peer_urls.len(), 2);
}

#[test]
fn a_port_for_grpc_is_none_for_plain_http() {
    let refusal = "cannot bind both --listen-client-urls and --listen-client-http-urls on the same url \
                   http://127.0.0.1:1";
    check_refused(refusal, |raw| {
        raw.listen_client_urls = some("http://127.0.0.1:1");
        raw.advertise_client_urls = some("http://127.0.0.1:1");
        raw.listen_client_http_urls = some("http://127.0.0.1:1");
    });
}

#[test]
fn a_tls_address_needs_a_certificate() {
    check_refused(
        "TLS key/cert (--peer-cert-file, --peer-key-file) must be provided for peer url \
         https://127.0.0.1:2380 with HTTPS scheme (or --peer-auto-tls)",
        |raw| raw.listen_peer_urls = some("https://127.0.0.1:2380"),
    );
    check_refused(
        "client TLS key/cert (--cert-file, --key-file) must be provided for metrics secure url",
        |raw| raw.listen_metrics_urls = some("https://127.0.0.1:2381"),
    );
    accept(|raw| {
        raw.listen_peer_urls = some("unix://h:2380");
        raw.initial_advertise_peer_urls = some("unix://h:2380");
        raw.initial_cluster = some("default=unix://h:2380");
    });
    accept(|raw| {
        raw.listen_client_urls = some("unix://localhost:1,https://127.0.0.1:2");
        raw.advertise_client_urls = some("unix://localhost:1");
        raw.tls.client.auto_tls = true;
        raw.initial_cluster = some("default=https://h:2380");
    });
}

#[test]
fn a_member_finds_its_name_in_its_initial_cluster() {
    check_refused("couldn't find local name \"a\" in the initial cluster configuration", |raw| {
        raw.name = "a".to_owned();
        raw.initial_cluster = some("b=http://localhost:42380");
    });
    check_refused("couldn't find local name \"default\" in the initial cluster configuration", |raw| {
        raw.initial_cluster = some("");
    });
}

#[test]
fn no_address_belongs_to_two_members() {
    check_refused(
        "initial cluster a=http://localhost:2380,b=http://localhost:2380 has duplicate url",
        |raw| {
            raw.name = "a".to_owned();
            raw.initial_cluster = some("b=http://localhost:2380,a=http://localhost:2380");
        },
    );
}

#[test]
fn advertised_and_listed_addresses_are_the_same_set() {
    check_refused(
        "--initial-cluster has a=http://localhost:1 but missing from \
         --initial-advertise-peer-urls=http://localhost:2",
        |raw| {
            raw.name = "a".to_owned();
            raw.initial_cluster = some("a=http://localhost:1");
            raw.initial_advertise_peer_urls = some("http://localhost:2");
        },
    );
    check_refused(
        "--initial-advertise-peer-urls has http://localhost:2 but missing from \
         --initial-cluster=a=http://localhost:1",
        |raw| {
            raw.name = "a".to_owned();
            raw.initial_cluster = some("a=http://localhost:1");
            raw.initial_advertise_peer_urls = some("http://localhost:1,http://localhost:2");
        },
    );
    let config = accept(|raw| raw.initial_cluster = some("default=http://127.0.0.1:2380"));
    assert_eq!(config.verify_bootstrap(), Ok(()), "localhost is 127.0.0.1");
}

#[test]
fn a_restarted_member_may_carry_a_stale_initial_cluster() {
    let config = accept(|raw| raw.initial_cluster = some("gone=http://h:1"));
    assert!(config.verify_bootstrap().is_err(), "only bootstrapping looks at it");
}

#[test]
fn a_malformed_initial_cluster_is_always_refused() {
    check_refused(
        "error setting up initial cluster: URL scheme must be http, https, unix, or unixs: ",
        |raw| raw.initial_cluster = some("a"),
    );
}

#[test]
fn the_cluster_is_new_or_existing_and_nothing_else() {
    check_refused("invalid value \"foo\" for --initial-cluster-state: expected 'new' or 'existing'", |raw| {
        raw.initial_cluster_state = "foo".to_owned()
    });
    let config = accept(|raw| raw.initial_cluster_state = "existing".to_owned());
    assert_eq!(config.initial_cluster_state, InitialClusterState::Existing);
}

#[test]
fn a_quota_of_zero_is_the_default_and_a_negative_one_is_none() {
    assert_eq!(accept(|raw| raw.quota_backend_bytes = -1).quota_backend_bytes, None);
    assert_eq!(accept(|raw| raw.quota_backend_bytes = 7).quota_backend_bytes, Some(7));
}

#[test]
fn a_size_of_zero_is_refused_by_its_flag() {
    check_refused("--max-txn-ops must be >0 (set to 0)", |raw| raw.max_txn_ops = 0);
    check_refused("--meerkat-flush-log-bytes must be >0 (set to 0)", |raw| raw.tuning.flush_log_bytes = 0);
}

#[test]
fn a_cluster_is_listed_or_found_but_not_both() {
    let srv = |raw: &mut RawFlags| raw.discovery.srv = "example.org.".to_owned();
    let config = accept(srv);
    let dns = DnsDiscovery { domain: "example.org.".to_owned(), service_name: None };
    assert_eq!(config.discovery, Some(Discovery::Dns(dns)));
    assert!(config.initial_cluster.is_empty(), "nobody is known yet");
    check_refused(
        "multiple discovery or bootstrap flags are set. Choose one of \"initial-cluster\", \"discovery\", \
         \"discovery-endpoints\" or \"discovery-srv\"",
        |raw| {
            srv(raw);
            raw.initial_cluster = some("default=http://localhost:2380");
        },
    );
    let listed_as_nothing = accept(|raw| {
        srv(raw);
        raw.initial_cluster = some("");
    });
    assert!(listed_as_nothing.discovery.is_some());
    check_refused("couldn't find local name \"default\" in the initial cluster configuration", |raw| {
        raw.discovery.srv_name = "x".to_owned();
    });
}

#[test]
fn the_domain_is_whom_peers_prove_to_be_unless_an_authority_is_given() {
    let expected = |ca: &str| {
        let config = accept(|raw| {
            raw.discovery.srv = "example.org.".to_owned();
            raw.tls.peer.cert_file = "c".to_owned();
            raw.tls.peer.key_file = "k".to_owned();
            raw.tls.peer.trusted_ca_file = ca.to_owned();
        });
        config.tls.peer.server_name
    };
    assert_eq!(expected("").as_deref(), Some("example.org"));
    assert_eq!(expected("ca"), None);
    assert_eq!(accept(|_| {}).tls.peer.server_name, None);
}

#[test]
fn a_registry_has_a_token_endpoints_and_a_whole_login() {
    let registry = |change: fn(&mut RawDiscovery)| {
        raw(|raw| {
            raw.discovery.token = "t".to_owned();
            raw.discovery.endpoints = "a:1, http://b:2".to_owned();
            change(&mut raw.discovery);
        })
    };
    let read = |change| match Config::from_flags(registry(change)) {
        Ok(Config { discovery: Some(Discovery::Registry(found)), initial_cluster_token, .. }) => {
            let login = found.login.map(|(user, Secret(password))| format!(" {user}/{password}"));
            format!("{initial_cluster_token} {}{}", found.endpoints.join(" "), login.unwrap_or_default())
        }
        Ok(other) => format!("{:?}", other.discovery),
        Err(error) => error.to_string(),
    };
    let both = "both --discovery-token and --discovery-endpoints must be set";
    let login = "--discovery-user and a password go together: NAME:PASSWORD, or --discovery-password";
    assert_eq!(read(|_| {}), "t a:1 http://b:2");
    assert_eq!(read(|flags| flags.token.clear()), both);
    assert_eq!(read(|flags| flags.endpoints.clear()), both);
    let empty = "--discovery-endpoints must not contain empty endpoints";
    assert_eq!(read(|flags| flags.endpoints.push(',')), empty);
    assert_eq!(read(|flags| flags.user = "u:p:q".to_owned()), "t a:1 http://b:2 u/p:q");
    assert_eq!(read(|flags| flags.user = "u".to_owned()), login);
    assert_eq!(read(|flags| flags.password = Secret("p".to_owned())), login);
    assert!(read(|flags| flags.srv = "d".to_owned()).starts_with("multiple discovery or bootstrap flags"));
}

#[test]
fn a_member_comes_to_a_registry_as_a_cluster_of_its_own() {
    let check = |listed: Option<String>, srv_name: &str| {
        let config = accept(|raw| {
            raw.discovery.token = "t".to_owned();
            raw.discovery.endpoints = "a:1".to_owned();
            raw.discovery.srv_name = srv_name.to_owned();
            raw.initial_cluster = listed.clone();
        });
        assert_eq!(config.initial_cluster_text(), "default=http://localhost:2380", "{listed:?} {srv_name:?}");
        assert_eq!(config.verify_bootstrap(), Ok(()));
    };
    check(None, "");
    check(some(""), "");
    check(None, "x");
}
