//! Servers that are not there, or hang up: what the tool says of them.

use std::net::TcpListener;

use crate::process::{free_port, meerkat, run, stderr};

fn ask(endpoint: &str) -> String {
    let flags = ["--insecure-skip-tls-verify", "--command-timeout=1s", "--endpoints", endpoint];
    let output = run(meerkat().args(flags).args(["get", "key"]), b"");
    assert_eq!(output.status.code(), Some(1), "{endpoint}");
    stderr(&output)
}

#[test]
fn refused_connection_is_told_in_gos_words() {
    let endpoint = format!("127.0.0.1:{}", free_port());
    let said = ask(&endpoint);
    assert!(said.contains(&format!("{endpoint}: connection refused")), "{said}");
    assert!(said.ends_with("Error: context deadline exceeded\n"), "{said}");
}

#[test]
fn server_that_hangs_up_is_tried_until_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for scheme in ["http", "https"] {
        let said = ask(&format!("{scheme}://{address}"));
        assert!(said.ends_with("Error: context deadline exceeded\n"), "{scheme}: {said}");
        assert!(!said.contains("transport error"), "{scheme}: {said}");
    }
}
