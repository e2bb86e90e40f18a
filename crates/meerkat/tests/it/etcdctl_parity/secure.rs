//! Encrypted connections to a real etcd, with certificates made for the test.

use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::etcd::{etcd_is_here, etcdctl};
use crate::process::{Running, clean, etcd_program, free_port, meerkat, run, stderr, stdout, wait_until};

/// Paths of an authority's certificate, and of a certificate and key that it vouches for.
struct Files {
    authority: String,
    certificate: String,
    key: String,
}

fn files(dir: &Path) -> Files {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("an authority").pem();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    Files {
        authority: write("ca.pem", &authority),
        certificate: write("own.pem", &certificate),
        key: write("own.key", &key.serialize_pem()),
    }
}

fn secure_etcd(dir: &Path, files: &Files) -> (Running, String) {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let client = format!("https://{endpoint}");
    let peer = format!("http://127.0.0.1:{}", free_port());
    let process = clean(Command::new(etcd_program("etcd").expect("checked before")))
        .args(["--log-level=error", "--client-cert-auth", "--trusted-ca-file", &files.authority])
        .args(["--cert-file", &files.certificate, "--key-file", &files.key])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
        .arg(dir.join("data"))
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts");
    (Running(process), endpoint)
}

#[test]
fn only_trusted_servers_and_known_clients_talk() {
    if !etcd_is_here() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let files = files(dir.path());
    let (_process, endpoint) = secure_etcd(dir.path(), &files);
    let url = format!("https://{endpoint}");
    let known = ["--cacert", &files.authority, "--cert", &files.certificate, "--key", &files.key];
    let own = &known[2..];
    wait_until("etcd serves", || {
        run(meerkat().args(["--endpoints", &url, "endpoint", "health"]).args(known), b"").status.success()
    });
    let rows: [(&str, Vec<&str>, bool); 7] = [
        (&url, known.to_vec(), true),
        // Without a scheme the files decide.
        (&endpoint, known.to_vec(), true),
        (&url, [own, &["--insecure-skip-tls-verify"]].concat(), true),
        (&endpoint, [own, &["--insecure-skip-tls-verify", "--insecure-transport=false"]].concat(), true),
        (&url, own.to_vec(), false),
        (&url, known[..2].to_vec(), false),
        (&endpoint, vec![], false),
    ];
    for (at, flags, succeeds) in rows {
        // etcdctl tries until its time is over.
        let patience = if succeeds { "--command-timeout=10s" } else { "--command-timeout=1s" };
        let status = |mut tool: Command| {
            let output = run(tool.args(["--endpoints", at, patience, "put", "k", "v"]).args(&flags), b"");
            (output.status.success(), stdout(&output), stderr(&output))
        };
        let (ours, theirs) = (status(meerkat()), status(etcdctl()));
        assert_eq!((ours.0, &ours.1), (succeeds, &theirs.1), "{flags:?}: {}", ours.2);
        assert_eq!(theirs.0, succeeds, "{flags:?}: etcdctl {}", theirs.2);
        let complaint =
            |text: &str| text.lines().rfind(|line| line.starts_with("Error: ")).map(str::to_owned);
        assert_eq!(complaint(&ours.2), complaint(&theirs.2), "{flags:?}");
    }
    // What stays, and what goes by the library, is encrypted as well.
    let with = |args: &[&str]| {
        let output = run(meerkat().args(["--endpoints", &url]).args(known).args(args), b"");
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(with(&["lock", "l", "--", "echo", "held"]), "held\n");
    let granted = with(&["lease", "grant", "100"]);
    let lease = granted.split(' ').nth(1).expect("its id");
    assert_eq!(
        with(&["lease", "keep-alive", "--once", lease]),
        format!("lease {lease} keepalived with TTL(100)\n")
    );
}
