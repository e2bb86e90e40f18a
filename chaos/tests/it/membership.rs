//! Members come and go while the cluster serves: nothing is lost, nothing splits, every step ends.

use std::time::{Duration, Instant};

use bytes::Bytes;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Member, Product, Role};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::outcome::describe;
use meerkat_chaos::scenario::growth::{Plan, run};
use meerkat_chaos::scenario::{run_test, settle};
use meerkat_chaos::{Failure, Patience};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::{MemberUpdateRequest, PutRequest, RangeRequest};
use tonic::Status;

const BUDGET: Duration = Duration::from_secs(240);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const CHANGE_WITHIN: Duration = Duration::from_secs(40);
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How often a move of the lead is tried that an election comes between.
const MOVES_MAX: usize = 5;

fn refused(status: Status) -> Failure {
    status.into()
}

fn ensure(truth: bool, what: impl Into<String>) -> Result<(), Failure> {
    if truth { Ok(()) } else { Err(Failure::broken(what)) }
}

fn spec(members: usize) -> ClusterSpec {
    ClusterSpec::new(Product::Meerkat, members).with_quick_elections()
}

async fn put(endpoint: &Endpoint, key: &'static str) -> Result<(), Status> {
    let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from_static(b"v"));
    endpoint.put(PutRequest { key, value, ..Default::default() }, ANSWER_WITHIN).await.map(drop)
}

async fn get(endpoint: &Endpoint, key: &'static str, serializable: bool) -> Result<usize, Status> {
    let key = Bytes::from_static(key.as_bytes());
    let answer =
        endpoint.range(RangeRequest { key, serializable, ..Default::default() }, ANSWER_WITHIN).await?;
    Ok(answer.kvs().len())
}

/// A member that was removed ends by itself, saying why; started again, it does the same.
async fn stays_out(mut gone: Member) -> Result<(), Failure> {
    for life in 0..2 {
        if life == 1 {
            gone.start()?;
        }
        let status = gone.wait_for_exit(READY_WITHIN)?;
        ensure(!status.success(), format!("{} ended as if all was well", gone.name()))?;
        let said = gone.printed()?.matches("was removed from the cluster").count();
        ensure(life < said, format!("{} does not say why it ends: {}", gone.name(), gone.tail()))?;
    }
    Ok(())
}

#[test]
fn one_becomes_three_becomes_five_becomes_three_under_load() {
    let plan = Plan { product: Product::Meerkat, kills: false };
    if let Some(story) = run_test("growth", BUDGET, async { run(&plan).await }) {
        assert_eq!(story.faults("membership").count(), 6, "{:?}", story.record.faults);
    }
}

#[test]
fn it_does_so_while_the_leader_is_killed_after_each_step() {
    let plan = Plan { product: Product::Meerkat, kills: true };
    if let Some(story) = run_test("growth with kills", BUDGET, async { run(&plan).await }) {
        let made = |kind| story.faults(kind).count();
        assert_eq!((made("membership"), made("kill")), (6, 5), "{:?}", story.record.faults);
    }
}

#[test]
fn the_same_run_passes_on_etcd_so_the_harness_itself_is_sound() {
    let plan = Plan { product: Product::Etcd, kills: false };
    run_test("growth control", BUDGET, async { run(&plan).await });
}

/// As operators do it: the dead one is removed, another is added in its place.
#[test]
fn a_dead_member_is_replaced_and_its_directory_stays_out() {
    run_test("replacement", BUDGET, async {
        let mut cluster = Cluster::start(&spec(3)).await?;
        let dead = (cluster.leader(READY_WITHIN).await? + 1) % 3;
        put(cluster.members()[0].endpoint(), "before").await.map_err(refused)?;
        cluster.member(dead).kill()?;
        let mut gone = cluster.forget(dead, CHANGE_WITHIN).await?;
        let joined = cluster.join(Role::Voter, CHANGE_WITHIN).await?;
        let new = cluster.members()[joined.index].endpoint().clone();
        put(&new, "after").await.map_err(refused)?;
        for key in ["before", "after"] {
            let found = get(&new, key, false).await.map_err(refused)?;
            ensure(found == 1, format!("{key} is not at the new member"))?;
        }
        // Its disk comes back later.
        gone.start()?;
        stays_out(gone).await?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

#[test]
fn a_leader_that_is_removed_hands_over_first_and_stays_out() {
    run_test("removal of the leader", BUDGET, async {
        let mut cluster = Cluster::start(&spec(3)).await?;
        let leader = cluster.leader(READY_WITHIN).await?;
        let began = Instant::now();
        let gone = cluster.forget(leader, CHANGE_WITHIN).await?;
        println!("the leader was removed after {:?}", began.elapsed());
        stays_out(gone).await?;
        put(cluster.members()[0].endpoint(), "k").await.map_err(refused)?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

#[test]
fn a_learner_reads_what_needs_no_majority_until_it_is_promoted() {
    run_test("learner", BUDGET, async {
        let mut cluster = Cluster::start(&spec(1)).await?;
        put(cluster.members()[0].endpoint(), "k").await.map_err(refused)?;
        let joined = cluster.join(Role::Learner, CHANGE_WITHIN).await?;
        let learner = cluster.members()[joined.index].endpoint().clone();
        let status = learner.status(ANSWER_WITHIN).await.map_err(refused)?;
        ensure(status.is_learner, "it does not say that it is a learner")?;
        let patience = Patience::of("the learner follows", READY_WITHIN);
        while get(&learner, "k", true).await.map_err(refused)? == 0 {
            patience.pause(Duration::from_millis(50), "it lacks a key").await?;
        }
        patience.came()?;
        let refusals = [
            get(&learner, "k", false).await.map(drop),
            put(&learner, "k").await,
            learner.member_list(false, ANSWER_WITHIN).await.map(drop),
            learner.lease_leases(ANSWER_WITHIN).await.map(drop),
        ];
        for answer in refusals {
            let message = answer.err().map(|status| status.message().to_owned()).unwrap_or_default();
            ensure(message == EtcdError::NotSupportedForLearner.message(), format!("answered {message:?}"))?;
        }
        let voter = cluster.members()[0].endpoint().clone();
        let second = voter.move_leader(joined.id, ANSWER_WITHIN).await.map(drop);
        let message = second.err().map(|status| status.message().to_owned()).unwrap_or_default();
        ensure(message == EtcdError::BadLeaderTransferee.message(), format!("answered {message:?}"))?;
        cluster.promote(joined.id, CHANGE_WITHIN).await?;
        cluster.member(joined.index).wait_until_ready(READY_WITHIN).await?;
        put(&learner, "k").await.map_err(refused)?;
        let status = learner.status(ANSWER_WITHIN).await.map_err(refused)?;
        ensure(!status.is_learner, "it still says that it is a learner")?;
        cluster.finish()
    });
}

/// etcd loses its majority here, since the second member counts from the moment it is added.
#[test]
fn adding_a_member_that_never_starts_costs_nobody_a_write() {
    run_test("a member that never starts", BUDGET, async {
        let mut cluster = Cluster::start(&spec(1)).await?;
        let joined = cluster.announce(Role::Voter, CHANGE_WITHIN).await?;
        let first = cluster.members()[0].endpoint().clone();
        for _ in 0..20 {
            put(&first, "k").await.map_err(refused)?;
        }
        let listed = first.member_list(true, ANSWER_WITHIN).await.map_err(refused)?.members;
        let unstarted = listed.iter().find(|member| member.id == joined.id);
        let as_asked = unstarted.is_some_and(|member| member.name.is_empty() && !member.is_learner);
        ensure(as_asked, format!("{listed:?}"))?;
        drop(cluster.forget(joined.index, CHANGE_WITHIN).await?);
        put(&first, "k").await.map_err(refused)?;
        cluster.finish()
    });
}

#[test]
fn the_lead_goes_where_it_is_moved() {
    run_test("move leader", BUDGET, async {
        // Slow elections: the lead is to go by our will, and not by that of a busy machine.
        let spec = ClusterSpec::new(Product::Meerkat, 3).with_slow_elections();
        let mut cluster = Cluster::start(&spec).await?;
        for round in 0..6 {
            undisturbed(async || move_the_lead(&cluster, 1 + round % 2).await).await?;
        }
        undisturbed(async || refuse_bad_moves(&cluster).await).await?;
        cluster.wait_until_ready(READY_WITHIN).await?;
        cluster.finish()
    });
}

/// Less than a follower waits for a leader that is gone, with slow elections.
const HANDED_OVER_WITHIN: Duration = Duration::from_millis(1_500);

/// Elections are slow here: without the hand-over nobody would lead for seconds after the end of the leader.
#[test]
fn leader_hands_over_on_sigterm() {
    run_test("SIGTERM of the leader", BUDGET, async {
        let spec = ClusterSpec::new(Product::Meerkat, 3).with_slow_elections();
        let mut cluster = Cluster::start(&spec).await?;
        for round in 0..3 {
            let leader = cluster.leader(READY_WITHIN).await?;
            let follower = cluster.members()[(leader + 1) % 3].endpoint().clone();
            put(&follower, "before").await.map_err(refused)?;
            let old = cluster.id_of(leader, READY_WITHIN).await?;
            let began = Instant::now();
            cluster.members()[leader].terminate()?;
            put(&follower, "after").await.map_err(refused)?;
            let took = began.elapsed();
            println!("round {round}: the first write after SIGTERM took {took:?}");
            if HANDED_OVER_WITHIN < took {
                return Err(Failure::slow(format!("the first write after SIGTERM took {took:?}")));
            }
            let ended = cluster.member(leader).wait_for_exit(READY_WITHIN)?;
            ensure(ended.success(), format!("it ended with {ended}"))?;
            let status = follower.status(ANSWER_WITHIN).await.map_err(refused)?;
            let other = status.leader != 0 && status.leader != old;
            ensure(other, format!("{:x} leads when the old leader {old:x} has ended", status.leader))?;
            cluster.member(leader).start()?;
            cluster.member(leader).wait_until_ready(READY_WITHIN).await?;
        }
        cluster.finish()
    });
}

/// What came of an attempt: an election that nobody asked for may have come between, and then it proves
/// nothing.
enum Attempt {
    Good,
    Disturbed(String),
}

/// Tries until no election comes between.
async fn undisturbed(attempt: impl AsyncFn() -> Result<Attempt, Failure>) -> Result<(), Failure> {
    for _ in 0..MOVES_MAX {
        match attempt().await? {
            Attempt::Good => return Ok(()),
            Attempt::Disturbed(what) => println!("an election came between: {what}"),
        }
    }
    Err(Failure::slow(format!("an election came between {MOVES_MAX} times")))
}

/// The highest term that any member knows of.
async fn term(cluster: &Cluster) -> Result<u64, Failure> {
    let mut highest = 0;
    for endpoint in cluster.endpoints() {
        highest = highest.max(endpoint.status(ANSWER_WITHIN).await.map_err(refused)?.raft_term);
    }
    Ok(highest)
}

/// Moves the lead so many members on: it goes there and to nobody else.
async fn move_the_lead(cluster: &Cluster, on: usize) -> Result<Attempt, Failure> {
    let before = term(cluster).await?;
    let from = cluster.leader(READY_WITHIN).await?;
    let to = (from + on) % 3;
    let id = cluster.id_of(to, READY_WITHIN).await?;
    let began = Instant::now();
    let moved = cluster.members()[from].endpoint().move_leader(id, ANSWER_WITHIN).await;
    println!("moved in {:?}", began.elapsed());
    let now = cluster.leader(READY_WITHIN).await?;
    let elections = term(cluster).await?.saturating_sub(before);
    match moved {
        Ok(_) if now == to => {}
        Ok(_) if 1 < elections => return Ok(Attempt::Disturbed(format!("m{now} leads and not m{to}"))),
        Ok(_) => return Err(Failure::broken(format!("m{now} leads and not m{to}"))),
        Err(status) if 0 < elections => return Ok(Attempt::Disturbed(describe(&status))),
        Err(status) => return Err(refused(status)),
    }
    put(cluster.members()[from].endpoint(), "k").await.map_err(refused)?;
    Ok(Attempt::Good)
}

/// The lead is not moved by who does not have it, nor to who is no member; to who has it, it need not be.
async fn refuse_bad_moves(cluster: &Cluster) -> Result<Attempt, Failure> {
    let before = term(cluster).await?;
    let leader = cluster.leader(READY_WITHIN).await?;
    let follower = cluster.members()[(leader + 1) % 3].endpoint();
    let (own, leader) = (cluster.id_of(leader, READY_WITHIN).await?, cluster.members()[leader].endpoint());
    let said = [
        leader.move_leader(own, ANSWER_WITHIN).await,
        follower.move_leader(own, ANSWER_WITHIN).await,
        leader.move_leader(42, ANSWER_WITHIN).await,
    ]
    .map(|answer| answer.err().map(|status| status.message().to_owned()).unwrap_or_default());
    if said == ["", EtcdError::NotLeader.message(), EtcdError::BadLeaderTransferee.message()] {
        return Ok(Attempt::Good);
    }
    let elections = term(cluster).await?.saturating_sub(before);
    ensure(0 < elections, format!("answered {said:?}"))?;
    Ok(Attempt::Disturbed(format!("answered {said:?}")))
}

/// The member's peers reach it through a door; then without one.
#[test]
fn peers_follow_a_member_to_its_new_address() {
    run_test("peer URLs", BUDGET, async {
        let (mut cluster, mut doors) = Cluster::start_with_doors(&spec(3)).await?;
        let leader = cluster.leader(READY_WITHIN).await?;
        let moved = (leader + 1) % 3;
        let id = cluster.id_of(moved, READY_WITHIN).await?;
        let url = format!("http://127.0.0.1:{}", cluster.members()[moved].peer_port());
        let request = MemberUpdateRequest { id, peer_ur_ls: vec![url.clone()] };
        let answer = cluster.members()[moved].endpoint().member_update(request, ANSWER_WITHIN).await;
        let listed = answer.map_err(refused)?.members;
        let told = listed.iter().any(|member| member.id == id && member.peer_ur_ls == [url.clone()]);
        ensure(told, format!("{listed:?}"))?;
        drop(doors.remove(moved));
        cluster.member(moved).kill()?;
        cluster.member(moved).start()?;
        cluster.member(moved).wait_until_ready(READY_WITHIN).await?;
        put(cluster.members()[moved].endpoint(), "k").await.map_err(refused)?;
        settle::agree(&cluster, Product::Meerkat).await?;
        cluster.finish()
    });
}

/// A wiped member has forgotten what it acknowledged: it may come back only as another one.
#[test]
fn a_wiped_member_that_claims_to_join_is_refused_with_the_way_out() {
    run_test("wiped", BUDGET, async {
        let mut cluster = Cluster::start(&spec(3)).await?;
        let victim = (cluster.leader(READY_WITHIN).await? + 1) % 3;
        cluster.member(victim).kill()?;
        std::fs::remove_dir_all(cluster.members()[victim].data_dir())?;
        cluster.member(victim).start_changed(&["--initial-cluster-state=existing".to_owned()])?;
        let status = cluster.member(victim).wait_for_exit(READY_WITHIN)?;
        let said = cluster.members()[victim].printed()?;
        ensure(!status.success() && said.contains("has run before"), cluster.members()[victim].tail())?;
        cluster.finish()
    });
}
