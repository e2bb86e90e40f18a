//! Meerkat and real etcd answer the same about who is a member, and change it the same way.

use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::differential::cluster::{Plan, run};
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::scenario::run_test;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::MemberUpdateRequest;

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const SEED: u64 = 20_250_301;
const STEPS: usize = 150;
const STEPS_OF_CONTROL: usize = 60;
/// Many times what it takes on a machine that does nothing else.
const BUDGET: Duration = Duration::from_secs(400);

#[test]
fn meerkat_changes_its_membership_as_etcd_does() {
    let plan = Plan { seed: crate::seed(SEED), steps: STEPS, members: 1, product: Product::Meerkat };
    run_test("cluster differential", BUDGET, async { Box::pin(run(&plan)).await });
}

/// A part of the steps is enough to see it. All of them: `meerkat-chaos cluster-differential --product
/// etcd`.
#[test]
fn etcd_changes_its_membership_as_etcd_does_so_the_comparison_itself_is_sound() {
    let plan = Plan { seed: crate::seed(SEED), steps: STEPS_OF_CONTROL, members: 3, product: Product::Etcd };
    run_test("cluster differential control", BUDGET, async { Box::pin(run(&plan)).await });
}

/// etcd 3.5 takes any words here, and its members end when they dial them; so it cannot be asked.
#[test]
fn an_update_to_what_is_no_peer_url_is_refused_and_changes_nothing() {
    run_test("updates to bad URLs", BUDGET, async {
        let cluster = Cluster::start(&ClusterSpec::new(Product::Meerkat, 1)).await?;
        let endpoint = cluster.members()[0].endpoint();
        let broken = Failure::from;
        let before = endpoint.member_list(true, ANSWER_WITHIN).await.map_err(broken)?.members;
        for words in [&[][..], &[""], &["rubbish"], &["http://127.0.0.1"], &["http://127.0.0.1:1/path"]] {
            let peer_ur_ls = words.iter().map(ToString::to_string).collect();
            let request = MemberUpdateRequest { id: before[0].id, peer_ur_ls };
            match endpoint.member_update(request, ANSWER_WITHIN).await {
                Err(status) if status.message() == EtcdError::MemberBadUrls.message() => {}
                other => return Err(Failure::broken(format!("{words:?} is answered with {other:?}"))),
            }
        }
        let after = endpoint.member_list(true, ANSWER_WITHIN).await.map_err(broken)?.members;
        if before != after {
            return Err(Failure::broken(format!("{before:?} has become {after:?}")));
        }
        cluster.finish()
    });
}
