//! Bounds that keep one client from taking a member away from the others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use meerkat_proto::error_text::EtcdError;
use tonic::Code;

use super::{BUDGET, WITHIN, broken, check, in_time, put};

/// What the member gives them, and some for a machine that does much else.
const CUT_WITHIN: Duration = Duration::from_secs(45);

/// Nothing at all, half of a word, a head that does not end, and bodies that do not.
const BEGINNINGS: &[&[u8]] = &[
    b"",
    b"PRI * HT",
    b"GET /health HTTP/1.1\r\nX-Slow: ",
    b"POST /v3/kv/put HTTP/1.1\r\nHost: member\r\nContent-Length: 1000\r\n\r\n{",
    b"POST /v3/watch HTTP/1.1\r\nHost: member\r\nContent-Length: 1000\r\n\r\n{",
];

#[test]
fn clients_that_never_finish_their_request_are_cut_off_and_cost_others_nothing() {
    run_test("slow loris", BUDGET, async {
        let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
        let (port, endpoint) = (cluster.members()[0].client_port(), cluster.members()[0].endpoint());
        let mut slow = Vec::new();
        for n in 0..200 {
            let mut socket = TcpStream::connect(("127.0.0.1", port))?;
            socket.set_read_timeout(Some(CUT_WITHIN))?;
            socket.write_all(BEGINNINGS[n % BEGINNINGS.len()])?;
            slow.push(socket);
        }
        let began = Instant::now();
        put(endpoint, "k", 1).await.map_err(broken)?;
        in_time(began, WITHIN, "others are served beside the slow ones")?;
        for mut socket in slow {
            let ended = match socket.read_to_end(&mut Vec::new()) {
                Ok(_) => true,
                Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            };
            check(ended, "a connection that never said anything whole is still open")?;
        }
        in_time(began, CUT_WITHIN + Duration::from_secs(15), "they are cut off")?;
        put(endpoint, "k", 1).await.map_err(broken)?;
        cluster.finish()
    });
}

#[test]
fn a_connection_has_no_more_streams_than_allowed_and_another_has_its_own() {
    run_test("streams of a connection", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 1).with_flags(&["--max-concurrent-streams=1"]);
        let cluster = Cluster::start(&spec).await?;
        let full = cluster.members()[0].endpoint().apart(None)?;
        // One call first, so that the client has heard of the bound.
        full.status(WITHIN).await.map_err(broken)?;
        let held = full.keep_alive();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let refused = full.status(Duration::from_millis(700)).await.err();
        let waits =
            refused.is_some_and(|status| matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled));
        check(waits, "a second stream is served beside the first")?;
        let other = cluster.members()[0].endpoint().apart(None)?;
        other.status(WITHIN).await.map_err(broken)?;
        drop(held);
        cluster.finish()
    });
}

#[test]
fn a_member_short_of_memory_refuses_data_and_still_tells_of_itself() {
    run_test("memory", BUDGET, async {
        let mut cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
        let endpoint = cluster.members()[0].endpoint().clone();
        put(&endpoint, "k", 1).await.map_err(broken)?;
        cluster.member(0).stop(WITHIN)?;
        cluster.member(0).start_altered(&[], &["--meerkat-memory-limit-bytes=1000000".to_owned()])?;
        super::until("it tells of itself", WITHIN, async || {
            Ok(endpoint.status(WITHIN).await.is_ok_and(|status| status.leader != 0))
        })
        .await?;
        let refused = put(&endpoint, "k", 1).await.err();
        let refused = refused.is_some_and(|status| {
            status.message() == EtcdError::TooManyRequests.message()
                && status.code() == Code::ResourceExhausted
        });
        check(refused, "a member above its bound takes a put")?;
        cluster.finish()
    });
}
