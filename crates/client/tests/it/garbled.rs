//! A server that answers garbage: every call ends, with an answer or an error, and none panics.

use crate::fake::{Fake, Reply, healthy};
use meerkat_client::{Client, Compare, Config, Keys, LeaseId, MemberId, Op, Revision};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc;
use prost::Message;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROUNDS: usize = 60;

fn samples() -> Vec<Vec<u8>> {
    let header = Some(pb::ResponseHeader { cluster_id: 1, member_id: 2, revision: 3, raft_term: 4 });
    let kv = mvcc::KeyValue {
        key: "a/k".into(),
        create_revision: 2,
        mod_revision: 3,
        version: 4,
        value: "v".into(),
        lease: 5,
    };
    let put = pb::PutResponse { header, prev_kv: Some(kv.clone()) };
    let op = pb::ResponseOp { response: Some(pb::response_op::Response::ResponsePut(put.clone())) };
    let member = pb::Member { id: 1, name: "m".into(), ..Default::default() };
    vec![
        put.encode_to_vec(),
        pb::RangeResponse { header, kvs: vec![kv].into(), more: true, count: -1 }.encode_to_vec(),
        pb::TxnResponse { header, succeeded: true, responses: vec![op, pb::ResponseOp::default()] }
            .encode_to_vec(),
        pb::LeaseGrantResponse { header, id: -1, ttl: i64::MAX, error: String::new() }.encode_to_vec(),
        pb::LeaseKeepAliveResponse { header, id: 7, ttl: i64::MAX }.encode_to_vec(),
        pb::LeaseTimeToLiveResponse { ttl: i64::MIN, granted_ttl: i64::MAX, ..Default::default() }
            .encode_to_vec(),
        pb::MemberListResponse { header, members: vec![member] }.encode_to_vec(),
        pb::StatusResponse { db_size: -1, ..Default::default() }.encode_to_vec(),
        vec![0xff; 64],
    ]
}

fn garble(random: &mut StdRng) -> Reply {
    let samples = samples();
    let mut bytes = samples[random.random_range(0..samples.len())].clone();
    for _ in 0..random.random_range(0..4) {
        let at = random.random_range(0..=bytes.len());
        match random.random_range(0..4) {
            0 if at < bytes.len() => bytes[at] = random.random(),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.random()),
            _ => bytes.extend_from_slice(&random.random::<[u8; 5]>()),
        }
    }
    match random.random_range(0..20) {
        0 => Reply::Cut,
        1 => Reply::Status(tonic::Code::from(random.random_range(0..20)), "nonsense".to_owned()),
        _ => Reply::Message(bytes.into()),
    }
}

/// Whatever comes back is fine, as long as it comes back.
async fn call_everything(client: &Client) {
    let id = LeaseId::from_wire(7).expect("not zero");
    let inside = client.namespace("a/");
    let lease = client.leases().keep_alive(id);
    drop(client.get(Keys::all()).await);
    drop(inside.get(Keys::all()).await);
    drop(inside.put("k", "v").previous().await);
    drop(inside.delete(Keys::all()).previous().await);
    let guard = Compare::key("k").mod_revision().equals(Revision::new(5));
    drop(inside.txn().when([guard]).then([Op::put("k", "v"), Op::get("k")]).await);
    drop(client.compact(Revision::new(3)).await);
    if let Ok(granted) = client.leases().grant(Duration::from_secs(5)).await {
        drop(client.leases().keep_alive(granted));
    }
    drop(client.leases().time_to_live(id).with_keys().await);
    drop(client.leases().list().await);
    drop(client.leases().revoke(id).await);
    drop(client.cluster().members().await);
    drop(client.cluster().add(["http://127.0.0.1:1"]).await);
    drop(client.cluster().remove(MemberId(1)).await);
    drop(client.maintenance().status().await);
    drop(client.maintenance().hash_kv(None).await);
    drop(client.maintenance().alarms().await);
    drop(client.auth().status().await);
    drop(client.auth().users().await);
    drop(client.auth().role("r").await);
    assert_eq!(lease.id(), id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_makes_the_client_panic() {
    // Tasks of the client's own would panic unseen.
    let panics = Arc::new(Mutex::new(Vec::new()));
    let (seen, before) = (panics.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        if place.contains("client/src/") || place.contains("proto/src/") {
            seen.lock().expect("the places").push(place);
        }
        before(panic);
    }));
    for seed in 0..4 {
        let random = Mutex::new(StdRng::seed_from_u64(seed));
        let fake = Fake::start(move |method, before| match method {
            // Mostly healthy, or the calls would never get through.
            "Status" if before % 8 != 7 => healthy(),
            _ => garble(&mut random.lock().expect("the generator")),
        })
        .await;
        let config = Config::new([fake.url.clone()]).lazy().request_timeout(Duration::from_millis(100));
        let client = Client::connect_with(config).await.expect("lazily");
        let rounds = (0..ROUNDS).map(|_| {
            let client = client.clone();
            tokio::spawn(async move { call_everything(&client).await })
        });
        for round in futures::future::join_all(rounds).await {
            round.expect("no panic");
        }
        assert!(0 < fake.calls("Put") && 0 < fake.calls("LeaseKeepAlive"), "the calls got through");
        let sane = tokio::time::timeout(Duration::from_secs(5), client.get("k").into_future()).await;
        drop(sane.expect("the client still answers"));
        assert_eq!(*panics.lock().expect("the places"), Vec::<String>::new());
    }
}
