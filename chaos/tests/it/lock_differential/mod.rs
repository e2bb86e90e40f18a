//! Meerkat and real etcd side by side: the Lock and Election services, the JSON gateway byte for byte; and
//! what of these only Meerkat has.

mod coordination;
mod gateway;
mod http;
mod metrics;
mod reflection;
mod sockets;

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;

const SEED: u64 = 20_261_117;
/// Many times what it takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(180);

async fn start(product: Product, flags: &[&str]) -> Result<Cluster, Failure> {
    Cluster::start(&ClusterSpec::new(product, 1).with_flags(flags)).await
}

#[test]
fn locks_and_elections_answer_as_etcds_do() {
    run_test("lock differential", BUDGET, coordination::compare(crate::seed(SEED), Product::Meerkat));
}

#[test]
fn etcd_answers_as_etcd_does_so_the_comparison_itself_is_sound() {
    run_test("lock differential control", BUDGET, coordination::compare(crate::seed(SEED), Product::Etcd));
}

#[test]
fn a_lock_without_a_lease_gets_one_of_sixty_seconds() {
    run_test("lock without a lease", BUDGET, coordination::without_a_lease());
}

#[test]
fn the_gateway_answers_byte_for_byte_as_etcds_does() {
    run_test("gateway differential", BUDGET, gateway::compare());
}

#[test]
fn the_gateways_sockets_and_times_are_those_of_etcd() {
    run_test("gateway sockets", BUDGET, sockets::compare());
}

#[test]
fn requests_on_an_open_stream_are_read_as_they_arrive() {
    run_test("gateway streams", BUDGET, gateway::streams_are_read_as_they_arrive());
}

#[test]
fn whatever_is_sent_to_the_gateway_is_answered_in_json() {
    run_test("gateway fuzz", BUDGET, gateway::fuzz(crate::seed(SEED)));
}

#[test]
fn the_gateway_can_be_switched_off_and_strangers_kept_out() {
    run_test("gateway flags", BUDGET, gateway::flags());
}

#[test]
fn every_metric_that_dashboards_use_is_there_and_counts_what_happened() {
    run_test("metrics", BUDGET, metrics::count_what_happened());
}

#[test]
fn reflection_tells_of_every_service_under_both_names() {
    run_test("reflection", BUDGET, reflection::tells_of_every_service());
}
