//! A user may log in by showing a certificate in their name, at a member as at a real etcd.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::authority::{Authority, Pair};
use crate::member::{Place, ask, links, tool};
use crate::process::{Running, clean, etcd_program, wait_until};

/// A server that lets in who shows a certificate.
struct Server {
    _process: Running,
    endpoint: String,
    authority: String,
}

impl Server {
    fn start(program: &Path, directory: &Path, authority: &Authority) -> Server {
        let place = Place::new();
        let own = authority.issue("member", &["127.0.0.1"]);
        let (client, peer) = (format!("https://{}", place.client), format!("http://{}", place.peer));
        let process = clean(Command::new(program))
            .args(["--client-cert-auth", "--trusted-ca-file", &authority.file])
            .args(["--cert-file", &own.cert, "--key-file", &own.key])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
            .arg(directory.join(place.client.replace(':', "-")))
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        Server { _process: Running(process), endpoint: client, authority: authority.file.clone() }
    }

    /// Exit status, what was printed, and the last words of a complaint.
    fn told(&self, who: &Pair, args: &[&str]) -> (Option<i32>, String, String) {
        let connection = ["--endpoints", &self.endpoint, "--cacert", &self.authority];
        let files = ["--cert", &who.cert, "--key", &who.key, "--command-timeout=20s"];
        let output = ask(&tool(), &[&connection, &files[..], args].concat());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        // The real tool also says when and to whom.
        let words = complaint.rsplit("Error: ").next().unwrap_or_default().trim().to_owned();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), words)
    }
}

fn servers(directory: &Path) -> Vec<PathBuf> {
    std::iter::once(links(directory).join("etcd")).chain(etcd_program("etcd")).collect()
}

#[test]
fn a_certificate_is_a_login_unless_a_password_says_otherwise() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(directory.path(), "ours");
    let [root, anna, nobody] = ["root", "anna", "nobody"].map(|name| authority.issue(name, &[]));
    let steps: &[(&Pair, &[&str])] = &[
        (&nobody, &["put", "before", "auth"]),
        (&root, &["user", "add", "root:secret"]),
        (&root, &["user", "grant-role", "root", "root"]),
        (&root, &["user", "add", "anna", "--no-password"]),
        (&root, &["role", "add", "reader"]),
        (&root, &["role", "grant-permission", "reader", "readwrite", "a", "b"]),
        (&root, &["user", "grant-role", "anna", "reader"]),
        (&root, &["auth", "enable"]),
        // From here on the certificate says who it is.
        (&anna, &["put", "a1", "by anna"]),
        (&anna, &["get", "a1"]),
        (&anna, &["put", "z", "not hers"]),
        (&anna, &["get", "a", "z"]),
        (&anna, &["user", "list"]),
        (&nobody, &["get", "a1"]),
        (&root, &["get", "", "--from-key", "--keys-only"]),
        (&root, &["user", "list"]),
        // A password counts for more than the certificate.
        (&anna, &["put", "z", "as root", "--user", "root:secret"]),
        (&root, &["put", "z", "wrong", "--user", "root:guess"]),
        (&anna, &["get", "a1", "--user", "anna:"]),
        // Who loses the role loses the keys, with the certificate unchanged.
        (&root, &["user", "revoke-role", "anna", "reader"]),
        (&anna, &["get", "a1"]),
        (&root, &["user", "delete", "anna"]),
        (&anna, &["get", "a1"]),
        // A probe with a certificate of its own, which is no user here.
        (&nobody, &["alarm", "list"]),
        (&root, &["auth", "disable"]),
        (&nobody, &["get", "z"]),
    ];
    let mut answers: Vec<Vec<_>> = Vec::new();
    for program in servers(directory.path()) {
        let server = Server::start(&program, directory.path(), &authority);
        wait_until("it serves", || server.told(&root, &["get", "nothing"]).0 == Some(0));
        answers.push(steps.iter().map(|(who, args)| (args.to_vec(), server.told(who, args))).collect());
    }
    let ours = &answers[0];
    let said = |args: &[&str]| {
        let found = ours.iter().filter(|(asked, _)| asked == args).map(|(_, told)| told.clone());
        found.collect::<Vec<_>>()
    };
    assert_eq!(said(&["put", "a1", "by anna"])[0].1, "OK\n");
    for refused in [&["put", "z", "not hers"][..], &["get", "a", "z"], &["user", "list"]] {
        assert_eq!(said(refused)[0].2, "etcdserver: permission denied", "{refused:?}");
    }
    assert_eq!(said(&["get", "z"])[0].1, "z\nas root\n");
    let outcomes: Vec<bool> = said(&["get", "a1"]).iter().map(|told| told.0 == Some(0)).collect();
    assert_eq!(
        outcomes,
        [true, false, false, false],
        "hers, a stranger's, without the role, without the user"
    );
    for theirs in &answers[1..] {
        assert_eq!(ours, theirs);
    }
}
