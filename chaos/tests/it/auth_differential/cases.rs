//! Cases at the edges, told to etcd 3.5.1 and to Meerkat in the same order: who may write and not read, leases
//! with keys of several owners, transactions in transactions, ranges that are permitted in part or have no
//! keys, tokens of users who are gone.
//!
//! Every answer must be the same, but for rows that say what late releases do, where 3.5.1 is open: those must
//! be refused here as they say, whatever etcd does.

use super::client::{
    BAD_TOKEN, Client, DENIED, EMPTY, add_role, add_user, bytes, change_password, enable, failed, grant_role,
    put, range, revoke_role,
};
use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, ClusterSpec, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::etcdserver::request_op::Request as Op;
use meerkat_proto::pb::etcdserver::response_op::Response as Done;
use meerkat_proto::pb::mvcc::KeyValue;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Response, Status};

const BUDGET: Duration = Duration::from_secs(150);
const LEASE_OF_ROOT: i64 = 5;
const LEASE_OF_WRITER: i64 = 6;
/// Of nobody's keys.
const LEASE_BARE: i64 = 7;
/// How deep transactions are put into each other.
const DEPTHS: usize = 4;

/// Name, kind of permission, key and end.
type RoleOf = (&'static str, i32, &'static str, &'static str);

/// What was asked, what was said, and what late releases say where 3.5.1 does not.
struct Row {
    name: String,
    said: String,
    late: Option<&'static str>,
}

/// One product, and all who ask it.
struct Story {
    endpoint: Endpoint,
    users: BTreeMap<&'static str, Client>,
    rows: Vec<Row>,
}

impl Story {
    /// Roles have the names of what they allow: `read r/`, `write w/`.
    async fn begin(endpoint: &Endpoint) -> Result<Story, Failure> {
        let nobody = Client::nobody(endpoint);
        let table: [(&str, &[RoleOf]); 8] = [
            ("root", &[]),
            ("bare", &[]),
            ("reader", &[("read r/", 0, "r/", "r0")]),
            ("writer", &[("write w/", 1, "w/", "w0")]),
            // May write all of it, and read one key of it.
            ("mixed", &[("write m/", 1, "m/", "m0"), ("read m/1", 0, "m/1", "")]),
            // Two that touch, and two with a gap between.
            ("joined", &[("a to c", 2, "a", "c"), ("c to e", 2, "c", "e")]),
            ("gapped", &[("f to g", 2, "f", "g"), ("h to i", 2, "h", "i")]),
            ("open", &[("from o", 2, "o", "\0")]),
        ];
        for (user, roles) in table {
            add_user(&nobody, user).await?;
            for (role, kind, key, end) in roles {
                add_role(&nobody, role, *kind, key, end).await?;
                grant_role(&nobody, user, role).await?;
            }
        }
        grant_role(&nobody, "root", "root").await?;
        enable(&nobody).await?;
        let mut users = BTreeMap::new();
        for (user, _) in table {
            users.insert(user, Client::login(endpoint, user).await?);
        }
        users.insert("nobody", nobody);
        Ok(Story { endpoint: endpoint.clone(), users, rows: Vec::new() })
    }

    fn who(&self, name: &str) -> Client {
        self.users[name].clone()
    }

    fn note(&mut self, name: impl Into<String>, said: String) {
        self.rows.push(Row { name: name.into(), said, late: None });
    }

    fn note_late(&mut self, name: impl Into<String>, said: String, late: &'static str) {
        self.rows.push(Row { name: name.into(), said, late: Some(late) });
    }

    async fn put(&mut self, who: &str, message: pb::PutRequest) {
        let client = self.who(who);
        let name = format!("{who} puts {message:?}");
        let said = said(client.kv().put(client.request(message)).await, |done| kvs(&done.prev_kv));
        self.note(name, said);
    }

    async fn range(&mut self, who: &str, key: &str, end: &str) {
        let client = self.who(who);
        let said =
            said(client.kv().range(client.request(range(key, end, false))).await, |done| found(done.kvs));
        self.note(format!("{who} reads {key:?} to {end:?}"), said);
    }

    async fn delete(&mut self, who: &str, key: &str, end: &str, prev_kv: bool) {
        let client = self.who(who);
        let message = pb::DeleteRangeRequest { key: bytes(key), range_end: bytes(end), prev_kv };
        let answer = client.kv().delete_range(client.request(message)).await;
        let said = said(answer, |done| format!("{} {}", done.deleted, kvs(&done.prev_kvs)));
        self.note(format!("{who} deletes {key:?} to {end:?}, {prev_kv}"), said);
    }

    async fn txn(&self, who: &str, message: pb::TxnRequest) -> String {
        let client = self.who(who);
        said(client.kv().txn(client.request(message)).await, txn_done)
    }

    async fn watch(&self, who: &str, key: &str, end: &str) -> String {
        match self.who(who).watch(key, end).await {
            Ok((first, _)) => format!("{} {} {}", first.created, first.canceled, first.cancel_reason),
            Err(status) => refusal(&status),
        }
    }
}

fn refusal(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// Without revisions: what only one of both let in has made them differ.
fn said<T>(answer: Result<Response<T>, Status>, tell: impl Fn(T) -> String) -> String {
    match answer {
        Ok(answer) => format!("done {}", tell(answer.into_inner())),
        Err(status) => refusal(&status),
    }
}

fn kvs<'a>(found: impl IntoIterator<Item = &'a KeyValue>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = found.into_iter().map(|kv| format!("{}={} ", text(&kv.key), text(&kv.value)));
    found.collect()
}

fn found(list: pb::KvList) -> String {
    list.into_decoded().map_or_else(|error| error.to_string(), |list| kvs(&list))
}

fn txn_done(done: pb::TxnResponse) -> String {
    let parts = done.responses.into_iter().map(|part| match part.response {
        Some(Done::ResponsePut(put)) => format!("put {}", kvs(&put.prev_kv)),
        Some(Done::ResponseRange(done)) => format!("found {}", found(done.kvs)),
        Some(Done::ResponseDeleteRange(gone)) => format!("deleted {} {}", gone.deleted, kvs(&gone.prev_kvs)),
        Some(Done::ResponseTxn(inner)) => format!("({})", txn_done(inner)),
        None => "nothing".to_owned(),
    });
    format!("{} {}", done.succeeded, parts.collect::<Vec<_>>().join(", "))
}

/// What was there before is read, and who may only write is not shown it.
async fn previous_values(story: &mut Story) {
    for key in ["w/1", "w/2", "m/1", "m/2"] {
        story.put("root", put(key, 0, false)).await;
    }
    for (who, key) in [
        ("writer", "w/1"),
        ("writer", "w/none"),
        ("mixed", "m/1"),
        ("mixed", "m/2"),
        ("reader", "r/1"),
        ("bare", "w/1"),
        ("nobody", "w/1"),
    ] {
        story.put(who, put(key, 0, false)).await;
        story.put(who, put(key, 0, true)).await;
        story.put(who, pb::PutRequest { ignore_value: true, value: bytes(""), ..put(key, 0, false) }).await;
        story.put(who, pb::PutRequest { ignore_lease: true, ..put(key, 0, true) }).await;
        story.delete(who, &format!("{key}x"), "", true).await;
    }
    for (who, key, end) in [
        ("writer", "w/1", ""),
        ("writer", "w/", "w0"),
        ("writer", "w/5", "w/9"),
        ("mixed", "m/1", ""),
        ("mixed", "m/1", "m/2"),
        ("mixed", "m/1", "m/1\0"),
        ("mixed", "m/", "m0"),
        ("reader", "r/1", ""),
        ("nobody", "w/1", ""),
    ] {
        story.delete(who, key, end, true).await;
        story.delete(who, key, end, false).await;
    }
    story.range("root", "\0", "\0").await;
}

/// Ranges without keys, to all that is above, and with holes in what is permitted.
async fn ranges(story: &mut Story) {
    for key in ["a", "b", "c", "d", "f", "g", "h", "o", "p", "r/1", "r/5"] {
        story.put("root", put(key, 0, false)).await;
    }
    for (key, end) in [("", ""), ("", "\0"), ("", "b"), ("\0", ""), ("\0", "\0"), ("\0", "b")] {
        for who in ["root", "reader", "open", "bare", "nobody"] {
            story.range(who, key, end).await;
            story.delete(who, key, end, false).await;
            let said = story.watch(who, key, end).await;
            // 3.5.1 tells all who are refused the same.
            story.note_watch(who, key, end, said);
        }
        if key == "\0" && !end.is_empty() {
            for key in ["a", "b", "c", "d", "f", "g", "h", "o", "p", "r/1", "r/5"] {
                story.put("root", put(key, 0, false)).await;
            }
        }
    }
    for (who, key, end) in [
        ("reader", "r/", "r0"),
        ("reader", "r/", "r1"),
        ("reader", "q", "r/5"),
        ("reader", "r/5", "r/1"),
        ("reader", "r/1", "r/1"),
        ("reader", "x/5", "x/1"),
        ("reader", "r/1", "\0"),
        ("reader", "r0", ""),
        ("reader", "r/", ""),
        ("reader", "r", ""),
        ("joined", "a", "e"),
        ("joined", "b", "d"),
        ("joined", "a", "f"),
        ("joined", "a", "e\0"),
        ("joined", "e", ""),
        ("gapped", "f", "i"),
        ("gapped", "f", "g"),
        ("gapped", "g", ""),
        ("gapped", "h", "i"),
        ("gapped", "f", "g\0"),
        ("open", "o", "\0"),
        ("open", "p", "\0"),
        ("open", "n", "\0"),
        ("open", "o", "z"),
        ("open", "zz", ""),
        ("open", "z", "p"),
        ("root", "r/5", "r/1"),
    ] {
        story.range(who, key, end).await;
        let said = story.watch(who, key, end).await;
        story.note_watch(who, key, end, said);
        story.delete(who, key, end, true).await;
        story.put(who, put(key, 0, true)).await;
    }
}

impl Story {
    /// What late releases close: all keys from one on, for who may read that one. And they say why a watch is
    /// refused, which 3.5.1 does not.
    fn note_watch(&mut self, who: &str, key: &str, end: &str, said: String) {
        let name = format!("{who} watches {key:?} to {end:?}");
        let from_one = who == "reader" && (key, end) == ("r/1", "\0");
        match who {
            "nobody" => self.note_late(name, said, EMPTY),
            _ if from_one => self.note_late(name, said, DENIED),
            _ => self.note(name, said),
        }
    }
}

/// A lease belongs to who may write all its keys.
async fn leases(story: &mut Story) {
    for (who, id) in [("root", LEASE_OF_ROOT), ("writer", LEASE_OF_WRITER), ("bare", LEASE_BARE)] {
        let client = story.who(who);
        let answer = client.lease().lease_grant(client.request(pb::LeaseGrantRequest { ttl: 900, id })).await;
        story.note(format!("{who} grants {id}"), said(answer, |granted| granted.ttl.to_string()));
    }
    for (who, key, lease) in [
        ("root", "x", LEASE_OF_ROOT),
        ("root", "w/9", LEASE_OF_ROOT),
        ("writer", "w/1", LEASE_OF_ROOT),
        ("writer", "w/1", LEASE_OF_WRITER),
        ("writer", "w/2", LEASE_OF_WRITER),
        ("writer", "w/3", 999),
        ("writer", "x", LEASE_OF_WRITER),
        ("bare", "w/1", LEASE_BARE),
        ("gapped", "f", LEASE_OF_WRITER),
        ("open", "x", LEASE_OF_ROOT),
        ("nobody", "w/1", LEASE_BARE),
        ("mixed", "m/1", LEASE_BARE),
    ] {
        story.put(who, put(key, lease, false)).await;
    }
    // The lease stays, and is not asked for: nothing is attached.
    story.put("writer", pb::PutRequest { ignore_lease: true, ..put("w/9", 0, false) }).await;
    for id in [LEASE_OF_ROOT, LEASE_OF_WRITER, LEASE_BARE, 999] {
        time_to_live(story, id).await;
    }
    for (who, id) in [
        ("writer", LEASE_OF_ROOT),
        ("reader", LEASE_OF_WRITER),
        ("bare", LEASE_OF_WRITER),
        ("nobody", LEASE_OF_WRITER),
        ("bare", LEASE_BARE),
        ("bare", 999),
        ("writer", LEASE_OF_WRITER),
        ("root", LEASE_OF_ROOT),
        ("mixed", LEASE_BARE),
    ] {
        let client = story.who(who);
        let answer = client.lease().lease_revoke(client.request(pb::LeaseRevokeRequest { id })).await;
        story.note(format!("{who} revokes {id}"), said(answer, |_| String::new()));
    }
    story.range("root", "m/", "y").await;
}

/// 3.5.1 tells everybody, and keeps every lease alive for everybody.
async fn time_to_live(story: &mut Story, id: i64) {
    for (who, keys_refused) in [
        ("root", None),
        ("bare", Some(DENIED)),
        ("writer", Some(DENIED)),
        ("mixed", Some(DENIED)),
        ("nobody", Some(EMPTY)),
    ] {
        let client = story.who(who);
        for keys in [false, true] {
            let message = pb::LeaseTimeToLiveRequest { id, keys };
            let answer = client.lease().lease_time_to_live(client.request(message)).await;
            let said = said(answer, |found| {
                let mut keys = found.keys;
                keys.sort();
                format!("{} {} {keys:?}", 0 < found.ttl, found.granted_ttl)
            });
            let name = format!("{who} asks for the time of {id}, {keys}");
            let has_keys =
                matches!(id, LEASE_OF_ROOT | LEASE_OF_WRITER) || (id == LEASE_BARE && who != "mixed");
            match (who, keys_refused) {
                ("nobody", _) => story.note_late(name, said, EMPTY),
                (_, Some(refused)) if keys && has_keys => story.note_late(name, said, refused),
                _ => story.note(name, said),
            }
        }
        let said = client.keep_alive(id).await.map_or_else(|text| text, |()| "done".to_owned());
        let refused = match (who, id) {
            ("nobody", _) => Some(EMPTY),
            ("root", _) | (_, 999) | ("writer", LEASE_OF_WRITER) | ("mixed", LEASE_BARE) => None,
            _ => Some(DENIED),
        };
        let name = format!("{who} renews {id}");
        match refused {
            Some(refused) => story.note_late(name, said, refused),
            None => story.note(name, said),
        }
    }
}

fn txn(compare: Option<&str>, success: Vec<Op>, failure: Vec<Op>) -> pb::TxnRequest {
    let compare = compare.map(|key| pb::Compare {
        result: pb::compare::CompareResult::Greater.into(),
        target: pb::compare::CompareTarget::Version.into(),
        key: bytes(key),
        target_union: Some(pb::compare::TargetUnion::Version(-1)),
        ..Default::default()
    });
    let op = |request| pb::RequestOp { request: Some(request) };
    pb::TxnRequest {
        compare: compare.into_iter().collect(),
        success: success.into_iter().map(op).collect(),
        failure: failure.into_iter().map(op).collect(),
    }
}

/// The same transaction in as many others. What is not taken counts as well.
fn nested(inner: pb::TxnRequest, depth: usize, is_taken: bool) -> pb::TxnRequest {
    let mut outer = inner;
    for _ in 0..depth {
        let op = vec![Op::RequestTxn(outer)];
        outer = if is_taken { txn(None, op, vec![]) } else { txn(None, vec![], op) };
    }
    outer
}

/// What is asked for in a transaction needs what it needs outside of one, however deep it is.
async fn transactions(story: &mut Story) {
    story.put("root", put("m/1", 0, false)).await;
    let lease = pb::LeaseGrantRequest { ttl: 900, id: 8 };
    let root = story.who("root");
    let granted = root.lease().lease_grant(root.request(lease)).await;
    story.note("root grants 8", said(granted, |_| String::new()));
    story.put("root", put("x", 8, false)).await;
    let writes = |key: &str| Op::RequestPut(put(key, 0, false));
    let reads = |key: &str, end: &str| Op::RequestRange(range(key, end, false));
    let deletes = |key: &str, end: &str, prev_kv| {
        Op::RequestDeleteRange(pb::DeleteRangeRequest { key: bytes(key), range_end: bytes(end), prev_kv })
    };
    let of = |op: Op| txn(None, vec![op], vec![]);
    // Whether 3.5.1 looks at it where it is not nested.
    let table: [(&str, &str, pb::TxnRequest, bool, bool); 15] = [
        ("writer", "writes", of(writes("w/1")), true, true),
        ("writer", "writes elsewhere", of(writes("x")), false, true),
        ("writer", "writes elsewhere in the other branch", txn(None, vec![], vec![writes("x")]), false, true),
        ("writer", "writes and looks", of(Op::RequestPut(put("w/1", 0, true))), false, false),
        ("mixed", "writes and looks", of(Op::RequestPut(put("m/1", 0, true))), true, true),
        ("writer", "attaches", of(Op::RequestPut(put("w/1", 8, false))), false, false),
        ("writer", "reads", of(reads("w/1", "")), false, true),
        ("reader", "reads", of(reads("r/", "r0")), true, true),
        ("reader", "reads more", of(reads("r/", "\0")), false, true),
        ("reader", "compares", txn(Some("r/1"), vec![], vec![]), true, true),
        ("reader", "compares elsewhere", txn(Some("w/1"), vec![reads("r/1", "")], vec![]), false, true),
        ("writer", "deletes", of(deletes("w/", "w0", false)), true, true),
        ("writer", "deletes and looks", of(deletes("w/", "w0", true)), false, true),
        ("writer", "deletes elsewhere", of(deletes("m/1", "", false)), false, true),
        ("bare", "does nothing", txn(None, vec![], vec![]), true, true),
    ];
    for (who, what, inner, may, known) in table {
        for depth in 0..DEPTHS {
            for is_taken in [true, false] {
                let said = story.txn(who, nested(inner.clone(), depth, is_taken)).await;
                let name = format!("{who} {what}, {depth} deep, taken: {is_taken}");
                if may || (known && depth == 0) {
                    story.note(name, said);
                } else {
                    story.note_late(name, said, DENIED);
                }
            }
        }
    }
}

/// What a token is worth when its user is gone, is another, or has another password or role.
async fn tokens(story: &mut Story) -> Result<(), Failure> {
    let (root, nobody) = (story.who("root"), story.who("nobody"));
    let remove = async |name: &str| {
        let message = pb::AuthUserDeleteRequest { name: name.to_owned() };
        root.auth().user_delete(root.request(message)).await.map(drop).map_err(failed("delete a user"))
    };
    add_user(&root, "gone").await?;
    grant_role(&root, "gone", "from o").await?;
    let gone = Client::login(&story.endpoint, "gone").await?;
    story.users.insert("gone", gone.clone());
    let (_, mut running) = gone.watch("o", "\0").await.map_err(failed("watch"))?;
    story.put("gone", put("o", 0, false)).await;
    // Its own put first: what is heard later is of the time without the user.
    let told = tokio::time::timeout(Duration::from_secs(20), running.message()).await;
    told.map_err(|_| Failure::broken("a watch is not told its user's own put"))?.map_err(failed("hear"))?;
    remove("gone").await?;
    let rest = async |story: &mut Story, when: &str| {
        story.note(when, String::new());
        story.put("gone", put("o", 0, false)).await;
        story.range("gone", "o", "").await;
        let said = story.txn("gone", txn(Some("o"), vec![], vec![])).await;
        story.note("gone compares", said);
        let said = story.watch("gone", "o", "").await;
        story.note_late("gone watches", said, BAD_TOKEN);
        let client = story.who("gone");
        let granted =
            client.lease().lease_grant(client.request(pb::LeaseGrantRequest { ttl: 900, id: 9 })).await;
        story.note_late("gone grants", said_or_done(&granted), BAD_TOKEN);
        let looked =
            client.auth().user_get(client.request(pb::AuthUserGetRequest { name: "gone".to_owned() })).await;
        story.note("gone looks at itself", said_or_done(&looked));
    };
    rest(story, "deleted").await;
    // What ran goes on.
    story.put("root", put("o", 0, false)).await;
    let told = tokio::time::timeout(Duration::from_secs(20), running.message()).await;
    let told = told.map_err(|_| Failure::broken("the watch that ran is told nothing"))?;
    story.note(
        "what ran is told",
        told.map_or_else(
            |status| refusal(&status),
            |told| {
                told.map_or_else(String::new, |told| format!("{} {}", told.canceled, !told.events.is_empty()))
            },
        ),
    );
    add_user(&root, "gone").await?;
    grant_role(&root, "gone", "from o").await?;
    rest(story, "another of that name").await;
    story.users.insert("gone", Client::login(&story.endpoint, "gone").await?);
    story.put("gone", put("o", 0, false)).await;
    change_password(&root, "gone", "other").await?;
    rest(story, "another password").await;
    let token = nobody.token_for("gone", "other").await.map_err(failed("login"))?;
    story.users.insert("gone", nobody.with(&token));
    revoke_role(&root, "gone", "from o").await?;
    story.put("gone", put("o", 0, false)).await;
    grant_role(&root, "gone", "from o").await?;
    story.put("gone", put("o", 0, false)).await;
    let message = pb::AuthRoleDeleteRequest { role: "from o".to_owned() };
    root.auth().role_delete(root.request(message)).await.map_err(failed("delete a role"))?;
    story.put("gone", put("o", 0, false)).await;
    story.put("open", put("o", 0, false)).await;
    Ok(())
}

fn said_or_done<T>(answer: &Result<Response<T>, Status>) -> String {
    answer.as_ref().map_or_else(refusal, |_| "done".to_owned())
}

/// What only administrators may, and what a token is worth once nobody was asked for a while.
async fn administration(story: &mut Story) -> Result<(), Failure> {
    for who in ["bare", "writer", "nobody"] {
        let client = story.who(who);
        let compact = pb::CompactionRequest { revision: 1, physical: false };
        let answer = client.kv().compact(client.request(compact)).await;
        let late = if who == "nobody" { EMPTY } else { DENIED };
        story.note_late(format!("{who} compacts"), said_or_done(&answer), late);
    }
    let root = story.who("root");
    let off = root.auth().auth_disable(root.request(pb::AuthDisableRequest {})).await;
    off.map_err(failed("disable"))?;
    story.put("nobody", put("x", 0, true)).await;
    enable(&story.who("nobody")).await?;
    story.put("root", put("x", 0, false)).await;
    story.put("nobody", put("x", 0, false)).await;
    story.users.insert("root", Client::login(&story.endpoint, "root").await?);
    story.put("root", put("x", 0, false)).await;
    Ok(())
}

async fn tell(product: Product) -> Result<Vec<Row>, Failure> {
    let cluster = Cluster::start(&ClusterSpec::new(product, 1).with_flags(&["--bcrypt-cost=4"])).await?;
    let mut story = Story::begin(&cluster.endpoints()[0]).await?;
    previous_values(&mut story).await;
    ranges(&mut story).await;
    leases(&mut story).await;
    transactions(&mut story).await;
    tokens(&mut story).await?;
    administration(&mut story).await?;
    cluster.finish()?;
    Ok(story.rows)
}

fn compare(theirs: &[Row], ours: &[Row]) -> Vec<String> {
    let mut findings = Vec::new();
    for (theirs, ours) in theirs.iter().zip(ours) {
        let name = &ours.name;
        let is_as_late = ours.late.is_none_or(|late| ours.said.ends_with(late));
        let is_same = theirs.said == ours.said || ours.late.is_some();
        if theirs.name != *name || !is_as_late || !is_same {
            let (theirs, ours, late) = (&theirs.said, &ours.said, ours.late.unwrap_or("as etcd"));
            findings.push(format!("{name}\n  etcd: {theirs}\n  ours: {ours}\n  late: {late}"));
        }
    }
    if theirs.len() != ours.len() {
        findings.push(format!("{} answers, and {}", theirs.len(), ours.len()));
    }
    findings
}

#[test]
fn cases_at_the_edges_are_judged_as_etcd_judges_them() {
    run_test("auth cases", BUDGET, async {
        let (theirs, ours) =
            tokio::try_join!(Box::pin(tell(Product::Etcd)), Box::pin(tell(Product::Meerkat)))?;
        let open = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs.said != ours.said).count();
        println!(
            "auth cases: {} answers, of which 3.5.1 gives {open} otherwise than late releases",
            ours.len()
        );
        Failure::from_findings("cases at the edges are as in etcd", compare(&theirs, &ours))
    });
}
