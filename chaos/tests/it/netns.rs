//! Members in network namespaces of their own: partitions of real packets, both ways and one way.
//! Skipped, with a line that says so, without root or the commands it takes.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use meerkat_chaos::driver::netns::NetnsGround;
use meerkat_chaos::driver::{ClusterSpec, Product};
use meerkat_chaos::ground::{Change, Ground, Link};
use meerkat_chaos::scenario::partition::{Cut, Plan, run};
use meerkat_chaos::scenario::run_test;

fn partition(name: &str, product: Product, cuts: &[Cut]) {
    let plan = Plan { product, cuts: cuts.to_vec(), lasting: Duration::from_secs(4) };
    run_test(name, Duration::from_secs(90), async { run(&plan).await });
}

#[test]
fn a_leader_cut_off_is_replaced_and_nothing_is_lost() {
    partition("netns partition", Product::Meerkat, &[Cut::Both]);
}

#[test]
fn a_leader_that_is_not_heard_or_does_not_hear_is_replaced_and_nothing_is_lost() {
    partition("netns one-way", Product::Meerkat, &[Cut::FromLeader, Cut::ToLeader]);
}

#[test]
fn etcd_passes_the_same_partitions_so_the_harness_itself_is_sound() {
    partition("netns control", Product::Etcd, &[Cut::Both, Cut::FromLeader, Cut::ToLeader]);
}

/// Without this the other tests would pass on a ground that cuts nothing.
#[test]
fn a_link_that_is_down_is_down_for_that_direction_only_and_comes_up_again() {
    run_test("netns links", Duration::from_secs(60), async {
        let mut ground = NetnsGround::start(&ClusterSpec::new(Product::Meerkat, 3)).await?;
        assert!(arrives(&ground, 0, 1) && arrives(&ground, 1, 0), "the link is up at first");
        ground.set_link(0, 1, Link::Down).await?;
        assert!(is_silent(&ground, 0, 1), "a packet went over a link that is down");
        assert!(arrives(&ground, 1, 0), "the other direction is down too");
        assert!(arrives(&ground, 0, 2) && arrives(&ground, 2, 1), "a cut reached other links");
        ground.set_link(0, 1, Link::Lossy(1000)).await?;
        assert!(is_silent(&ground, 0, 1), "a packet went over a link that loses all of them");
        ground.heal_links().await?;
        assert!(arrives(&ground, 0, 1), "the link did not come up");
        // The harness is not a member: it reaches one that nobody else does.
        for other in [1, 2] {
            ground.set_link(other, 0, Link::Down).await?;
            ground.set_link(0, other, Link::Down).await?;
        }
        let status = ground.endpoint(0).status(Duration::from_secs(10)).await;
        assert!(status.is_ok(), "the harness was cut off as well: {status:?}");
        ground.heal_links().await?;
        ground.kill(0).await?;
        ground.start(0, Change::default()).await?;
        ground.cluster().wait_until_ready(Duration::from_secs(20)).await?;
        ground.end()
    });
}

/// Whether a datagram that one member's namespace sends reaches another's.
fn arrives(ground: &NetnsGround, from: usize, to: usize) -> bool {
    arrives_within(ground, from, to, Duration::from_secs(3))
}

/// Whether it does not; where there is a way, it takes far less than this.
fn is_silent(ground: &NetnsGround, from: usize, to: usize) -> bool {
    !arrives_within(ground, from, to, Duration::from_millis(300))
}

fn arrives_within(ground: &NetnsGround, from: usize, to: usize, time: Duration) -> bool {
    const PORT: u16 = 7;
    let host = ground.endpoint(to).url().trim_start_matches("http://").to_owned();
    let host = host.split(':').next().expect("a host").to_owned();
    let receiver = within(ground, to, || UdpSocket::bind(("0.0.0.0", PORT)).expect("a port"));
    let sender = within(ground, from, || UdpSocket::bind("0.0.0.0:0").expect("a port"));
    receiver.set_read_timeout(Some(time)).expect("a timeout");
    sender.send_to(b"?", (host.as_str(), PORT)).expect("a datagram leaves");
    receiver.recv(&mut [0]).is_ok()
}

/// Does something in the namespace of a member, in a thread that ends there. A socket stays in the
/// namespace it was made in.
fn within<T: Send>(ground: &NetnsGround, member: usize, act: impl FnOnce() -> T + Send) -> T {
    let path = format!("/run/netns/{}", ground.launcher(member).last().expect("a name"));
    let namespace = std::fs::File::open(path).expect("a namespace");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the descriptor is open for the whole call, and setns moves this thread only.
            let moved = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
            assert_eq!(moved, 0, "{}", std::io::Error::last_os_error());
            act()
        });
        thread.join().expect("the thread ends well")
    })
}
