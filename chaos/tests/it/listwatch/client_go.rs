//! client-go: a shared informer and a dynamic one, leader election, server-side apply and pages, while members are
//! killed. Only in the long form: building it takes minutes.

use std::path::Path;
use std::time::Duration;

use meerkat_chaos::Failure;
use meerkat_chaos::binary::long_forms_wanted;
use meerkat_chaos::driver::Cluster;
use meerkat_chaos::listwatch::client_go::{Manner, Program, build, record};
use meerkat_chaos::listwatch::tier::Tier;
use meerkat_chaos::listwatch::truth::{self, CONFIG_MAPS};
use meerkat_chaos::listwatch::{start, wait_until_open};
use meerkat_chaos::scenario::run_test;

const LAMPS: &str = "/registry/go.example.com/lamps/";
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Whose doors a program is given.
#[derive(Clone, Copy, Debug)]
enum Doors {
    Members,
    Tier,
}

const RUNS: [(Doors, Manner); 3] = [
    (Doors::Members, Manner { protobuf: true, watch_list: false }),
    (Doors::Members, Manner { protobuf: false, watch_list: true }),
    (Doors::Tier, Manner { protobuf: true, watch_list: true }),
];

#[test]
fn client_go_outlives_killed_members() {
    if !long_forms_wanted() {
        println!("client-go: left to the long form (MEERKAT_LONG=1)");
        return;
    }
    run_test("client-go", Duration::from_secs(2_400), async {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/listwatch/client_go");
        let program = build(&source, Path::new(env!("CARGO_TARGET_TMPDIR"))).await?;
        for (doors, manner) in RUNS {
            println!("client-go: {doors:?}, {manner:?}");
            drive(&program, doors, manner).await.map_err(|failure| failure.during(&format!("{doors:?}")))?;
        }
        Ok(())
    });
}

async fn drive(program: &Path, doors: Doors, manner: Manner) -> Result<(), Failure> {
    let mut cluster = start(3).await?;
    let endpoints: Vec<String> = cluster.endpoints().iter().map(|one| one.url().to_owned()).collect();
    let mut tier = Tier::start(&endpoints, cluster.dir()).await?;
    let urls = match doors {
        Doors::Members => cluster.members().iter().map(|member| member.listwatch_url()).collect(),
        Doors::Tier => vec![tier.url()],
    };
    let file = cluster.dir().join("informers");
    let mut strikes = 0;
    let running = Program::start(program, &urls, manner, &file)?;
    running
        .run(async || {
            strikes += 1;
            strike(&mut cluster, strikes).await
        })
        .await?;
    cluster.revive(READY_WITHIN).await?;
    for (informer, place) in [("configmaps", CONFIG_MAPS), ("lamps", LAMPS)] {
        let truth = truth::read(cluster.members()[0].endpoint(), place).await?;
        let told = record::read(&file, informer)?;
        let (findings, relists) = record::check(&told, &truth);
        Failure::from_findings("an informer is told what happened", findings)?;
        println!(
            "client-go: {strikes} members killed; of {} changes of {informer} none lost, repeated or reordered in {} \
             notes; {relists} lists after the first",
            truth.changes().len(),
            told.notes.len(),
        );
        if strikes < relists {
            return Err(Failure::broken(format!("{informer}: {relists} relists for {strikes} strikes")));
        }
    }
    tier.kill()?;
    cluster.finish()
}

/// Brings back the member that is down, and kills another: the leader every other time.
async fn strike(cluster: &mut Cluster, number: usize) -> Result<(), Failure> {
    cluster.revive(READY_WITHIN).await?;
    for member in 0..cluster.members().len() {
        wait_until_open(cluster, member).await?;
    }
    let leader = cluster.leader(READY_WITHIN).await?;
    let victim = if number % 2 == 1 { leader } else { (leader + 1) % cluster.members().len() };
    println!(
        "client-go: kill -9 of member {victim}, {}",
        if victim == leader { "the leader" } else { "a follower" }
    );
    cluster.member(victim).kill()
}
