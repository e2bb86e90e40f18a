//! Encrypted connections to etcd, with certificates made for the test.

use crate::server::{Cluster, Kind, Options};
use meerkat_client::{Client, ErrorKind, Fate, Tls};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use std::path::Path;
use std::time::{Duration, Instant};

struct Pem {
    certificate: String,
    key: String,
}

/// An authority, and a certificate of it for `name`.
fn authority_and(names: &[&str]) -> (String, Vec<Pem>) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority").pem();
    let issuer = Issuer::new(params, key);
    let made = names.iter().map(|name| {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![(*name).to_owned()]).expect("parameters");
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
        Pem { certificate, key: key.serialize_pem() }
    });
    (authority, made.collect())
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_trusted_server_and_a_known_client_talk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (authority, made) = authority_and(&["127.0.0.1", "client.test"]);
    let (server, own) = (&made[0], &made[1]);
    let options = Options {
        client_scheme: Some("https"),
        flags: vec![
            format!("--trusted-ca-file={}", write(dir.path(), "ca.pem", &authority)),
            format!("--cert-file={}", write(dir.path(), "server.pem", &server.certificate)),
            format!("--key-file={}", write(dir.path(), "server.key", &server.key)),
            "--client-cert-auth".to_owned(),
        ],
        listwatch: false,
    };
    let cluster = Cluster::start_with(Kind::Etcd, 1, &options);
    let config = || cluster.config().request_timeout(Duration::from_secs(5));
    let known = Tls::new().authority(&authority).identity(&own.certificate, &own.key);

    let end = Instant::now() + Duration::from_secs(30);
    let client = loop {
        match Client::connect_with(config().tls(known.clone())).await {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < end, "no connection: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    client.put("k", "v").await.expect("a put");
    assert_eq!(client.get("k").await.expect("a get").count, 1);

    let (stranger, _) = authority_and(&[]);
    let distrusting = config().tls(Tls::new().authority(stranger).identity(&own.certificate, &own.key));
    let unnamed = config().tls(Tls::new().authority(&authority));
    let misnamed = config().tls(known.domain("other.test"));
    for refused in [distrusting, unnamed, misnamed] {
        let error = Client::connect_with(refused).await.expect_err("no connection");
        assert_eq!((error.fate(), error.kind()), (Fate::NotDone, ErrorKind::Unreachable), "{error}");
    }
    let broken = Client::connect_with(config().tls(Tls::new().authority("not a certificate"))).await;
    assert_eq!(broken.expect_err("no certificate").fate(), Fate::Refused);
}
