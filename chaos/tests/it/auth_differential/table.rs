//! Every row of the contract about who may do what, over a real socket.

use super::client::{
    BAD_TOKEN, Client, DENIED, EMPTY, Heard, bytes, failed, furnish, heard, put, range, refused, revoke_role,
    start,
};
use meerkat_chaos::Failure;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::admin::KeyTimesRequest;
use meerkat_proto::pb::admin::admin_client::AdminClient;
use meerkat_proto::pb::auth::Permission;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::cluster_client::ClusterClient;
use std::time::Duration;

const BUDGET: Duration = Duration::from_secs(90);
const WATCH_DENIED: &str = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
const WATCH_EMPTY: &str = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
const WATCH_BAD_TOKEN: &str = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";

/// Everybody there is.
struct Callers {
    root: Client,
    reader: Client,
    writer: Client,
    bare: Client,
    nobody: Client,
    stranger: Client,
}

impl Callers {
    async fn new(endpoint: &meerkat_chaos::endpoint::Endpoint) -> Result<Callers, Failure> {
        let nobody = Client::nobody(endpoint);
        furnish(&nobody).await?;
        Ok(Callers {
            root: Client::login(endpoint, "root").await?,
            reader: Client::login(endpoint, "reader").await?,
            writer: Client::login(endpoint, "writer").await?,
            bare: Client::login(endpoint, "bare").await?,
            stranger: nobody.with("abcdefghijklmnop.3"),
            nobody,
        })
    }
}

/// Compares, and goes on: one run shows all rows that are wrong.
#[derive(Default)]
struct Rows(Vec<String>);

impl Rows {
    fn check(&mut self, row: &str, found: Heard, expected: Heard) {
        if found != expected {
            self.0.push(format!("{row}: expected {expected:?}, found {found:?}"));
        }
    }

    fn verdict(self) -> Result<(), Failure> {
        Failure::from_findings("who may do what is as the contract says", self.0)
    }
}

#[test]
fn keys_are_read_and_written_by_who_may_and_by_nobody_else() {
    run_test("auth table, keys", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let Callers { root, reader, writer, bare, nobody, stranger } =
            Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        let (yes, denied) = (|| Ok(()), || refused(DENIED));
        rows.check("root puts", root.put("x").await, yes());
        rows.check("root reads all", root.range("\0", "\0").await, yes());
        rows.check("writer puts", writer.put("w/1").await, yes());
        rows.check("writer puts elsewhere", writer.put("x").await, denied());
        rows.check("reader puts", reader.put("r/1").await, denied());
        rows.check("bare puts", bare.put("w/1").await, denied());
        rows.check("nobody puts", nobody.put("w/1").await, refused(EMPTY));
        rows.check("a stranger puts", stranger.put("w/1").await, refused(BAD_TOKEN));
        rows.check("writer asks what was there", writer.put_with("w/1", 0, true).await, denied());
        rows.check("reader reads", reader.range("r/1", "").await, yes());
        rows.check("reader reads its prefix", reader.range("r/", "r0").await, yes());
        rows.check("reader reads more", reader.range("r/", "r1").await, denied());
        rows.check("reader reads from a key on", reader.range("r/1", "\0").await, denied());
        rows.check("writer reads", writer.range("w/1", "").await, denied());
        rows.check("nobody reads", nobody.range("r/1", "").await, refused(EMPTY));
        rows.check("nobody reads what the member knows", nobody.local_range("r/1", "").await, refused(EMPTY));
        rows.check("a stranger reads", stranger.range("r/1", "").await, refused(BAD_TOKEN));
        rows.check("writer deletes", writer.delete("w/1", "", false).await, yes());
        rows.check("writer deletes and looks", writer.delete("w/1", "", true).await, denied());
        rows.check("writer deletes more", writer.delete("w/", "w1", false).await, denied());
        // Streams of a long answer.
        let streamed = async |client: &Client, key: &str, end: &str| {
            let request = client.request(range(key, end, false));
            heard(client.kv().range_stream(request).await)
        };
        rows.check("reader streams", streamed(&reader, "r/", "r0").await, yes());
        rows.check("reader streams more", streamed(&reader, "r/", "\0").await, denied());
        let compact = pb::CompactionRequest { revision: 2, physical: false };
        let compacted = heard(writer.kv().compact(writer.request(compact)).await);
        rows.check("writer compacts", compacted, denied());
        rows.check("root compacts", heard(root.kv().compact(root.request(compact)).await), yes());
        rows.verdict()?;
        cluster.finish()
    });
}

fn txn(compare: Option<&str>, success: Vec<pb::request_op::Request>) -> pb::TxnRequest {
    let compare = compare.map(|key| pb::Compare {
        target: pb::compare::CompareTarget::Version.into(),
        key: bytes(key),
        target_union: Some(pb::compare::TargetUnion::Version(0)),
        ..Default::default()
    });
    let op = |request| pb::RequestOp { request: Some(request) };
    pb::TxnRequest {
        compare: compare.into_iter().collect(),
        success: vec![],
        // Not taken, and counts all the same.
        failure: success.into_iter().map(op).collect(),
    }
}

#[test]
fn a_transaction_needs_all_that_is_in_it_taken_or_not_and_however_deep() {
    run_test("auth table, transactions", BUDGET, async {
        use pb::request_op::Request;
        let cluster = start(1, &[]).await?;
        let Callers { root, reader, writer, nobody, .. } = Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        let (yes, denied) = (|| Ok(()), || refused(DENIED));
        let lease = root.lease().lease_grant(root.request(pb::LeaseGrantRequest { ttl: 600, id: 5 })).await;
        lease.map_err(failed("grant"))?;
        rows.check("root attaches a key", root.put_with("x", 5, false).await, yes());
        let w = |key: &str| vec![Request::RequestPut(put(key, 0, false))];
        let nested = |ops| txn(None, vec![Request::RequestTxn(txn(None, ops))]);
        rows.check("writer writes", writer.txn(txn(None, w("w/1"))).await, yes());
        rows.check("writer writes elsewhere", writer.txn(txn(None, w("x"))).await, denied());
        rows.check("writer compares", writer.txn(txn(Some("w/1"), w("w/1"))).await, denied());
        rows.check("writer writes, nested", writer.txn(nested(w("w/1"))).await, yes());
        rows.check("writer writes elsewhere, nested", writer.txn(nested(w("x"))).await, denied());
        for (what, op) in [
            ("a previous value", Request::RequestPut(put("w/1", 0, true))),
            ("a lease of others", Request::RequestPut(put("w/1", 5, false))),
            ("a range", Request::RequestRange(range("w/1", "", false))),
        ] {
            rows.check(what, writer.txn(txn(None, vec![op.clone()])).await, denied());
            rows.check(&format!("{what}, nested"), writer.txn(nested(vec![op])).await, denied());
        }
        let read = || Request::RequestRange(range("r/", "r0", false));
        rows.check("reader reads", reader.txn(txn(Some("r/1"), vec![read()])).await, yes());
        rows.check("reader compares elsewhere", reader.txn(txn(Some("w/1"), vec![read()])).await, denied());
        let more = Request::RequestRange(range("r/", "\0", false));
        rows.check("reader reads more", reader.txn(txn(None, vec![more])).await, denied());
        rows.check("nobody writes", nobody.txn(txn(None, w("w/1"))).await, refused(EMPTY));
        rows.check("nobody reads", nobody.txn(txn(None, vec![read()])).await, refused(EMPTY));
        rows.verdict()?;
        cluster.finish()
    });
}

#[test]
fn leases_belong_to_who_may_write_their_keys() {
    run_test("auth table, leases", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let Callers { root, writer, bare, nobody, stranger, .. } =
            Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        let (yes, denied) = (|| Ok(()), || refused(DENIED));
        let grant = async |client: &Client, id: i64| {
            heard(client.lease().lease_grant(client.request(pb::LeaseGrantRequest { ttl: 600, id })).await)
        };
        let revoke = async |client: &Client, id: i64| {
            heard(client.lease().lease_revoke(client.request(pb::LeaseRevokeRequest { id })).await)
        };
        let ttl = async |client: &Client, id: i64, keys: bool| {
            let message = pb::LeaseTimeToLiveRequest { id, keys };
            heard(client.lease().lease_time_to_live(client.request(message)).await)
        };
        let list = async |client: &Client| {
            heard(client.lease().lease_leases(client.request(pb::LeaseLeasesRequest {})).await)
        };
        rows.check("bare grants", grant(&bare, 1).await, yes());
        rows.check("bare lists what has no keys", list(&bare).await, yes());
        rows.check("nobody grants", grant(&nobody, 9).await, refused(EMPTY));
        rows.check("a stranger grants", grant(&stranger, 9).await, refused(BAD_TOKEN));
        rows.check("root grants", grant(&root, 2).await, yes());
        rows.check("root attaches", root.put_with("x", 2, false).await, yes());
        rows.check("writer attaches to its own", writer.put_with("w/1", 1, false).await, yes());
        rows.check("writer attaches to root's", writer.put_with("w/2", 2, false).await, denied());
        rows.check("bare renews the writer's", bare.keep_alive(1).await, denied());
        rows.check("writer renews", writer.keep_alive(1).await, yes());
        rows.check("nobody renews", nobody.keep_alive(1).await, refused(EMPTY));
        rows.check("bare asks for the time", ttl(&bare, 1, false).await, yes());
        rows.check("bare asks for the keys", ttl(&bare, 1, true).await, denied());
        rows.check("root asks for the keys", ttl(&root, 1, true).await, yes());
        rows.check("nobody asks for the time", ttl(&nobody, 1, false).await, refused(EMPTY));
        rows.check("bare lists", list(&bare).await, denied());
        rows.check("root lists", list(&root).await, yes());
        rows.check("bare revokes", revoke(&bare, 1).await, denied());
        rows.check("nobody revokes", revoke(&nobody, 1).await, refused(EMPTY));
        rows.check("writer revokes root's", revoke(&writer, 2).await, denied());
        rows.check("writer revokes", revoke(&writer, 1).await, yes());
        rows.verdict()?;
        cluster.finish()
    });
}

#[test]
fn a_watch_is_judged_when_it_is_made_by_its_whole_range_and_not_again() {
    // GHSA-xg4h-6gfc-h4m8: who may read one key could watch all keys from it on.
    run_test("auth table, watches", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let Callers { root, reader, bare, nobody, stranger, .. } =
            Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        let refusals = [
            (&reader, "r/1", "\0", WATCH_DENIED),
            (&reader, "r/", "r1", WATCH_DENIED),
            (&reader, "", "\0", WATCH_DENIED),
            (&bare, "r/1", "", WATCH_DENIED),
            (&nobody, "r/1", "", WATCH_EMPTY),
            (&stranger, "r/1", "", WATCH_BAD_TOKEN),
        ];
        for (client, key, end, reason) in refusals {
            let (first, _) = client.watch(key, end).await.map_err(failed("watch"))?;
            let found = (first.created, first.canceled, first.watch_id, first.cancel_reason.as_str());
            let same = found == (true, true, -1, reason);
            rows.check(
                &format!("watch {key:?} {end:?}: {found:?}"),
                if same { Ok(()) } else { refused("") },
                Ok(()),
            );
        }
        let (first, mut events) = reader.watch("r/", "r0").await.map_err(failed("watch"))?;
        rows.check(
            "reader watches",
            if first.canceled { refused(&first.cancel_reason) } else { Ok(()) },
            Ok(()),
        );
        // What is taken from the reader does not end what runs.
        revoke_role(&root, "reader", "reader").await?;
        rows.check("reader reads no more", reader.range("r/1", "").await, refused(DENIED));
        rows.check("root puts", root.put("r/1").await, Ok(()));
        let told = tokio::time::timeout(Duration::from_secs(20), events.message()).await;
        let told = told.map_err(|_| Failure::broken("the running watch is told nothing"))?;
        let told = told.map_err(failed("watch"))?.unwrap_or_default();
        rows.check("it is told", if told.events.len() == 1 { Ok(()) } else { refused("no event") }, Ok(()));
        let (first, _) = reader.watch("r/", "r0").await.map_err(failed("watch"))?;
        rows.check("a new one", Err(first.cancel_reason), refused(WATCH_DENIED));
        rows.verdict()?;
        cluster.finish()
    });
}

#[test]
fn administration_is_for_administrators() {
    run_test("auth table, administration", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let Callers { root, bare, nobody, stranger, .. } = Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        for (who, client, expected) in [
            ("bare", &bare, refused(DENIED)),
            ("nobody", &nobody, refused(EMPTY)),
            ("a stranger", &stranger, refused(BAD_TOKEN)),
        ] {
            for (call, found) in administration(client).await {
                rows.check(&format!("{who}: {call}"), found, expected.clone());
            }
        }
        for (call, found) in administration(&root).await {
            let may = !matches!(found.as_ref().map_err(String::as_str), Err(DENIED | EMPTY | BAD_TOKEN));
            rows.check(&format!("root: {call}: {found:?}"), if may { Ok(()) } else { refused("") }, Ok(()));
        }
        let status = async |client: &Client| {
            heard(client.maintenance().status(client.request(pb::StatusRequest {})).await)
        };
        let alarms = async |client: &Client| {
            heard(client.maintenance().alarm(client.request(pb::AlarmRequest::default())).await)
        };
        for (client, expected) in
            [(&bare, Ok(())), (&nobody, refused(EMPTY)), (&stranger, refused(BAD_TOKEN))]
        {
            rows.check("status", status(client).await, expected.clone());
            rows.check("alarms", alarms(client).await, expected);
        }
        for (client, linearizable, expected) in [
            (&bare, true, Ok(())),
            (&bare, false, Ok(())),
            (&nobody, true, refused(EMPTY)),
            (&nobody, false, refused(EMPTY)),
            (&stranger, true, refused(BAD_TOKEN)),
        ] {
            let request = client.request(pb::MemberListRequest { linearizable });
            let listed = ClusterClient::new(client.channel.clone()).member_list(request).await;
            rows.check(&format!("members, linearizable: {linearizable}"), heard(listed), expected);
        }
        rows.verdict()?;
        cluster.finish()
    });
}

/// Calls that only administrators may make, and what came of each.
async fn administration(client: &Client) -> Vec<(&'static str, Heard)> {
    let mut members = ClusterClient::new(client.channel.clone());
    let mut maintenance = client.maintenance();
    let mut admin = AdminClient::new(client.channel.clone());
    let alarm = pb::AlarmRequest { action: 2, member_id: 1, alarm: 1 };
    let urls = vec!["http://127.0.0.1:1".to_owned()];
    let change = pb::MemberUpdateRequest { id: 1, peer_ur_ls: urls };
    let times = KeyTimesRequest { key: bytes("x"), ..Default::default() };
    vec![
        ("member update", heard(members.member_update(client.request(change)).await)),
        (
            "member remove",
            heard(members.member_remove(client.request(pb::MemberRemoveRequest { id: 1 })).await),
        ),
        ("promote", heard(members.member_promote(client.request(pb::MemberPromoteRequest { id: 1 })).await)),
        ("hash", heard(maintenance.hash_kv(client.request(pb::HashKvRequest { revision: 0 })).await)),
        ("defragment", heard(maintenance.defragment(client.request(pb::DefragmentRequest {})).await)),
        (
            "move leader",
            heard(maintenance.move_leader(client.request(pb::MoveLeaderRequest { target_id: 1 })).await),
        ),
        ("disarm", heard(maintenance.alarm(client.request(alarm)).await)),
        ("key times", heard(admin.key_times(client.request(times)).await)),
        ("users", heard(client.auth().user_list(client.request(pb::AuthUserListRequest {})).await)),
        ("roles", heard(client.auth().role_list(client.request(pb::AuthRoleListRequest {})).await)),
        ("status of auth", heard(client.auth().auth_status(client.request(pb::AuthStatusRequest {})).await)),
        ("enable", heard(client.auth().auth_enable(client.request(pb::AuthEnableRequest {})).await)),
    ]
}

#[test]
fn everybody_may_look_at_themselves_and_permissions_of_no_keys_are_refused() {
    run_test("auth table, users and roles", BUDGET, async {
        let cluster = start(1, &[]).await?;
        let Callers { root, reader, nobody, .. } = Callers::new(&cluster.endpoints()[0]).await?;
        let mut rows = Rows::default();
        let user = async |client: &Client, name: &str| {
            let message = pb::AuthUserGetRequest { name: name.to_owned() };
            heard(client.auth().user_get(client.request(message)).await)
        };
        let role = async |client: &Client, role: &str| {
            let message = pb::AuthRoleGetRequest { role: role.to_owned() };
            heard(client.auth().role_get(client.request(message)).await)
        };
        rows.check("oneself", user(&reader, "reader").await, Ok(()));
        rows.check("another", user(&reader, "writer").await, refused(DENIED));
        rows.check("one's own role", role(&reader, "reader").await, Ok(()));
        rows.check("another's role", role(&reader, "writer").await, refused(DENIED));
        rows.check("nobody looks", user(&nobody, "reader").await, refused(EMPTY));
        rows.check("no such user", user(&root, "ghost").await, refused("etcdserver: user name not found"));
        rows.check("no such role", role(&root, "ghost").await, refused("etcdserver: role name not found"));
        let grant = async |perm: Option<Permission>| {
            let message = pb::AuthRoleGrantPermissionRequest { name: "reader".to_owned(), perm };
            heard(root.auth().role_grant_permission(root.request(message)).await)
        };
        let perm =
            |key: &str, end: &str| Some(Permission { perm_type: 0, key: bytes(key), range_end: bytes(end) });
        rows.check("nothing", grant(None).await, refused("etcdserver: permission not given"));
        let invalid = || refused("etcdserver: invalid auth management");
        rows.check("no key", grant(perm("", "\0")).await, invalid());
        rows.check("an end before the key", grant(perm("b", "a")).await, invalid());
        rows.check("an end at the key", grant(perm("b", "b")).await, invalid());
        rows.check("all from a key on", grant(perm("b", "\0")).await, Ok(()));
        rows.check("the reader reads on", reader.range("c", "\0").await, Ok(()));
        rows.verdict()?;
        cluster.finish()
    });
}
