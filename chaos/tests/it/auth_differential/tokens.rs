//! Tokens: where they are good, how long, and what ends them.

use super::client::{
    BAD_TOKEN, Client, DENIED, OLD, add_user, change_password, failed, furnish, grant_role, refused,
    revoke_role, start,
};
use meerkat_chaos::Failure;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::etcdserver as pb;
use std::time::Duration;

const BUDGET: Duration = Duration::from_secs(120);

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::broken(format!("{what}: expected {expected:?}, found {found:?}")))
}

#[test]
fn a_token_is_known_to_every_member_and_what_ends_it_ends_it_everywhere() {
    run_test("tokens of three members", BUDGET, async {
        let cluster = start(3, &[]).await?;
        let members = cluster.endpoints();
        furnish(&Client::nobody(&members[0])).await?;
        let root = Client::login(&members[1], "root").await?;
        let writer = Client::login(&members[2], "writer").await?;
        let token = writer.token.as_ref().map(|(_, token)| token.clone()).unwrap_or_default();
        let (letters, index) = token.split_once('.').unwrap_or_default();
        same(
            "sixteen letters",
            (letters.len(), letters.bytes().all(|letter| letter.is_ascii_alphabetic())),
            (16, true),
        )?;
        same("and a number", index.parse::<u64>().is_ok(), true)?;
        for member in &members {
            same("a put at each", writer.at(member).put("w/1").await, Ok(()))?;
        }
        // The two names of the metadata, and the word before the token.
        for (name, text) in [
            ("authorization", token.clone()),
            ("authorization", format!("Bearer {token}")),
            ("token", format!("Bearer {token}")),
        ] {
            let client = Client { channel: members[0].channel(), token: Some((name, text)) };
            same("the other spellings", client.put("w/1").await, Ok(()))?;
        }
        // Roles of others change, and nobody has to log in again; a right that is taken is gone at once.
        for round in 0..9 {
            add_user(&root.at(&members[round % 3]), &format!("user{round}")).await?;
            same("a put after it", writer.at(&members[(round + 1) % 3]).put("w/1").await, Ok(()))?;
        }
        revoke_role(&root, "writer", "writer").await?;
        for member in &members {
            same("no put any more", writer.at(member).put("w/1").await, refused(DENIED))?;
        }
        grant_role(&root.at(&members[2]), "writer", "writer").await?;
        for member in &members {
            same("a put again", writer.at(member).put("w/1").await, Ok(()))?;
        }
        change_password(&root, "writer", "other").await?;
        for member in &members {
            same("level", root.at(member).range("x", "").await, Ok(()))?;
            same("the old token", writer.at(member).put("w/1").await, refused(BAD_TOKEN))?;
        }
        let old = Client::nobody(&members[0])
            .token_for("writer", "writer")
            .await
            .map_err(|status| status.message().to_owned());
        same(
            "the old password",
            old,
            Err("etcdserver: authentication failed, invalid user ID or password".to_owned()),
        )?;
        root.auth().auth_disable(root.request(pb::AuthDisableRequest {})).await.map_err(failed("disable"))?;
        for member in &members {
            same("everybody puts", Client::nobody(member).put("x").await, Ok(()))?;
        }
        cluster.finish()
    });
}

#[test]
fn a_token_that_is_not_used_runs_out_and_one_that_is_used_does_not() {
    run_test("tokens run out", BUDGET, async {
        let cluster = start(1, &["--auth-token-ttl=8"]).await?;
        let member = &cluster.endpoints()[0];
        furnish(&Client::nobody(member)).await?;
        let (used, unused) = (Client::login(member, "writer").await?, Client::login(member, "writer").await?);
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            same("used", used.put("w/1").await, Ok(()))?;
        }
        same("not used", unused.put("w/1").await, refused(BAD_TOKEN))?;
        cluster.finish()
    });
}

#[test]
fn a_signed_token_is_good_until_users_or_roles_change() {
    run_test("signed tokens", BUDGET, async {
        let directory = tempfile::tempdir()?;
        let secret = directory.path().join("secret");
        std::fs::write(&secret, "a secret of some length")?;
        let flag = format!("--auth-token=jwt,priv-key={},sign-method=HS256,ttl=1m", secret.display());
        let cluster = start(3, &[&flag]).await?;
        let members = cluster.endpoints();
        furnish(&Client::nobody(&members[0])).await?;
        let writer = Client::login(&members[1], "writer").await?;
        for member in &members {
            same("a put at each", writer.at(member).put("w/1").await, Ok(()))?;
        }
        let root = Client::login(&members[2], "root").await?;
        add_user(&root, "new").await?;
        for member in &members {
            same("level", Client::login(member, "root").await?.range("x", "").await, Ok(()))?;
            same("a put by an old token", writer.at(member).put("w/1").await, refused(OLD))?;
            same("a read by an old token", writer.at(member).range("w/1", "").await, refused(OLD))?;
        }
        same("after logging in again", Client::login(&members[0], "writer").await?.put("w/1").await, Ok(()))?;
        let forged = writer.with("eyJhbGciOiJub25lIn0.eyJ1c2VybmFtZSI6InJvb3QiLCJyZXZpc2lvbiI6MX0.");
        same("a forged one", forged.put("w/1").await, refused(BAD_TOKEN))?;
        cluster.finish()
    });
}
