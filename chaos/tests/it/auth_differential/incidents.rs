//! What went wrong with users and roles elsewhere. Numbers are issues of etcd.

use super::client::{
    Client, DENIED, add_role, add_user, auth_revision, failed, furnish, grant_role, refused, revoke_role,
    start,
};
use meerkat_chaos::Failure;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::admin::StateDigestRequest;
use meerkat_proto::pb::admin::admin_client::AdminClient;
use std::time::{Duration, Instant};

const BUDGET: Duration = Duration::from_secs(180);
const AWAY: usize = 2;
/// More than the log keeps.
const WRITES: usize = 900;

#[test]
fn a_member_that_was_away_while_users_changed_knows_them_after_a_snapshot() {
    // 14571, 11651: users and roles, or their revision, were not restored from a snapshot.
    run_test("users after a snapshot", BUDGET, async {
        let flags = [
            "--snapshot-count=100",
            "--snapshot-catchup-entries=10",
            "--meerkat-log-segment-bytes=16384",
            "--meerkat-flush-log-bytes=16384",
            "--meerkat-flush-interval-ms=100",
        ];
        let mut cluster = start(3, &flags).await?;
        let members = cluster.endpoints();
        furnish(&Client::nobody(&members[0])).await?;
        let root = Client::login(&members[0], "root").await?;
        cluster.member(AWAY).kill()?;
        let printed = cluster.members()[AWAY].printed()?.len();
        add_user(&root, "late").await?;
        add_role(&root, "late", 2, "late/", "late0").await?;
        grant_role(&root, "late", "late").await?;
        revoke_role(&root, "reader", "reader").await?;
        for number in 0..WRITES {
            let put = root.put(&format!("fill/{}", number % 50)).await;
            put.map_err(|text| Failure::broken(format!("fill: {text}")))?;
        }
        cluster.member(AWAY).start()?;
        let back = &members[AWAY];
        let late = until_login(back, "late").await?;
        let installed = cluster.members()[AWAY].printed()?[printed..].contains("\"installing a snapshot\"");
        let reader = Client::login(back, "reader").await?;
        let mut wrong = Vec::new();
        let mut check = |what: &str, found, expected| {
            if found != expected {
                wrong.push(format!("{what}: expected {expected:?}, found {found:?}"));
            }
        };
        if !installed {
            return Err(Failure::harness("the member caught up without a snapshot"));
        }
        // By what this member knows itself.
        check("what was granted", late.local_range("late/", "late0").await, Ok(()));
        check("what was not", late.local_range("x", "").await, refused(DENIED));
        check("what was taken", reader.local_range("r/1", "").await, refused(DENIED));
        check("a write", late.put("late/1").await, Ok(()));
        let expected = auth_revision(&root).await?;
        for member in &members {
            let found = auth_revision(&Client::login(member, "root").await?).await?;
            check("the revision", Err(found.to_string()), Err(expected.to_string()));
        }
        Failure::from_findings("a snapshot carries users and roles", wrong)?;
        same_state(&members).await?;
        cluster.finish()
    });
}

/// Logs in as soon as the member serves.
async fn until_login(member: &meerkat_chaos::endpoint::Endpoint, user: &str) -> Result<Client, Failure> {
    let began = Instant::now();
    loop {
        match Client::login(member, user).await {
            Err(_) if began.elapsed() < Duration::from_secs(60) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            answer => return answer,
        }
    }
}

/// All members have applied the same log to the same effect.
async fn same_state(members: &[meerkat_chaos::endpoint::Endpoint]) -> Result<(), Failure> {
    // One that all of them know: the member that was away has no older ones.
    let root = Client::login(&members[0], "root").await?;
    let began = Instant::now();
    loop {
        let mut digests = Vec::new();
        for member in members {
            let request = root.request(StateDigestRequest {});
            let digest = AdminClient::new(member.channel()).state_digest(request).await;
            let digest = digest.map_err(failed("digest"))?.into_inner();
            digests.push((digest.log_index, digest.digest));
        }
        let first = digests[0].clone();
        let comparable = digests.iter().filter(|digest| digest.0 == first.0);
        if let Some(other) = comparable.clone().find(|digest| digest.1 != first.1) {
            return Err(Failure::broken(format!("members differ at entry {}: {other:?}", first.0)));
        }
        if comparable.count() == members.len() {
            return Ok(());
        }
        if Duration::from_secs(20) < began.elapsed() {
            return Err(Failure::harness("the members were never at the same entry"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
