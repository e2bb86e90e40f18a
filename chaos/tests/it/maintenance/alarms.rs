//! Alarms that an operator raises, one and both at once, told to etcd 3.5.1 and to Meerkat in the same order:
//! what is refused while they are on, what Status and `/health` say, and whom a request may name.
//!
//! 3.5.1 forgets one kind of alarm, though it lists it still, when the other is raised or cleared. Late releases
//! heed both, and so those rows say what late releases do.

use meerkat_chaos::Failure;
use meerkat_chaos::driver::{Cluster, Product};
use meerkat_chaos::endpoint::Endpoint;
use meerkat_chaos::scenario::run_test;
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::alarm_request::AlarmAction::{self, Activate, Deactivate, Get};
use meerkat_proto::pb::etcdserver::request_op::Request as Op;
use meerkat_proto::pb::etcdserver::{
    AlarmType, CompactionRequest, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RangeRequest, RequestOp,
    TxnRequest,
};
use tonic::Status;

use super::{BUDGET, WITHIN, alarm_request, broken, calm, http_get};

/// An id that no member has.
const STRANGER: u64 = 0x0bad_cafe;
const NONE: AlarmType = AlarmType::None;
const NOSPACE: AlarmType = AlarmType::Nospace;
const CORRUPT: AlarmType = AlarmType::Corrupt;

/// What was asked, what was said, and what late releases say where 3.5.1 does not.
struct Row {
    name: String,
    said: String,
    late: Option<String>,
}

/// One member of one product.
struct Story {
    endpoint: Endpoint,
    port: u16,
    id: u64,
    /// The alarms that are on, as the story goes.
    on: &'static str,
    lease: i64,
    rows: Vec<Row>,
}

/// How much a request of the store does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Adds,
    Changes,
    Reads,
}

fn outcome<T>(answer: Result<T, Status>) -> String {
    answer.map_or_else(|status| format!("{:?}: {}", status.code(), status.message()), |_| "done".to_owned())
}

fn put(key: &str) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value: "v".into(), ..PutRequest::default() }
}

fn txn(success: Op, failure: Option<Op>) -> TxnRequest {
    let op = |request| RequestOp { request: Some(request) };
    TxnRequest {
        compare: Vec::new(),
        success: vec![op(success)],
        failure: failure.into_iter().map(op).collect(),
    }
}

impl Story {
    async fn begin(cluster: &Cluster) -> Result<Story, Failure> {
        let endpoint = cluster.members()[0].endpoint().clone();
        let id = endpoint.status(WITHIN).await.map_err(broken)?.header.unwrap_or_default().member_id;
        let port = cluster.members()[0].client_port();
        Ok(Story { endpoint, port, id, on: "none", lease: 100, rows: Vec::new() })
    }

    fn note(&mut self, name: &str, said: String, late: Option<String>) {
        self.rows.push(Row { name: format!("with {}: {name}", self.on), said, late });
    }

    fn name(&self, id: u64) -> String {
        match id {
            0 => "zero".to_owned(),
            STRANGER => "a stranger".to_owned(),
            id if id == self.id => "the member".to_owned(),
            id => format!("{id:x}"),
        }
    }

    async fn alarm(&mut self, action: AlarmAction, id: u64, kind: AlarmType) {
        let said = match self.endpoint.alarm(alarm_request(action, id, kind), WITHIN).await {
            Err(status) => outcome::<()>(Err(status)),
            Ok(answer) => {
                let on = answer.alarms.iter();
                let told = |kind| AlarmType::try_from(kind).map_or_else(|_| "?", |kind| kind.as_str_name());
                let mut on: Vec<String> =
                    on.map(|on| format!("{} of {}", told(on.alarm), self.name(on.member_id))).collect();
                on.sort();
                on.join(", ")
            }
        };
        let name = format!("{} {} of {}", action.as_str_name(), kind.as_str_name(), self.name(id));
        self.note(&name, said, None);
    }

    /// What is refused, by the alarm that late releases heed; `None` where 3.5.1 does the same.
    async fn store(&mut self, late: Option<EtcdError>) {
        let endpoint = self.endpoint.clone();
        let delete = || DeleteRangeRequest { key: "gone".into(), ..DeleteRangeRequest::default() };
        let read = || RangeRequest { key: "k".into(), ..RangeRequest::default() };
        self.lease += 1;
        let grant = LeaseGrantRequest { ttl: 900, id: self.lease };
        let put_else = txn(Op::RequestRange(read()), Some(Op::RequestPut(put("k"))));
        let delete_in_txn = txn(Op::RequestDeleteRange(delete()), None);
        let rows = [
            ("put", Does::Adds, outcome(endpoint.put(put("k"), WITHIN).await)),
            ("put, if not", Does::Adds, outcome(endpoint.txn(put_else, WITHIN).await)),
            ("grant", Does::Adds, outcome(endpoint.lease_grant(grant, WITHIN).await)),
            ("delete", Does::Changes, outcome(endpoint.delete(delete(), WITHIN).await)),
            ("delete in a transaction", Does::Changes, outcome(endpoint.txn(delete_in_txn, WITHIN).await)),
            ("read", Does::Reads, outcome(endpoint.range(read(), WITHIN).await)),
            ("read in a transaction", Does::Reads, {
                outcome(endpoint.txn(txn(Op::RequestRange(read()), None), WITHIN).await)
            }),
        ];
        for (name, does, said) in rows {
            let is_refused = match late {
                Some(EtcdError::Corrupt) => does != Does::Reads,
                Some(_) => does == Does::Adds,
                None => false,
            };
            let late = late.filter(|_| is_refused).map(|late| late.message().to_owned());
            self.note(name, said, late);
        }
        let at = endpoint.range(read(), WITHIN).await.ok().and_then(|found| found.header);
        if late.is_none() {
            let revision = at.unwrap_or_default().revision;
            let compacted = endpoint.compact(CompactionRequest { revision, physical: true }, WITHIN).await;
            self.note("compact", outcome(compacted), None);
            self.note("revoke", outcome(endpoint.lease_revoke(self.lease, WITHIN).await), None);
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        for (id, kind) in [
            (0, NONE),
            (self.id, NONE),
            (STRANGER, NONE),
            (0, NOSPACE),
            (STRANGER, CORRUPT),
            (self.id, CORRUPT),
        ] {
            self.alarm(Get, id, kind).await;
        }
        let status = self.endpoint.status(WITHIN).await.map_err(broken)?;
        let word = |word: &str| match word.strip_prefix("memberID:").and_then(|id| id.parse().ok()) {
            Some(id) => self.name(id),
            None => word.to_owned(),
        };
        let mut errors: Vec<String> = status
            .errors
            .iter()
            .map(|error| error.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
            .collect();
        errors.sort();
        self.note("status", errors.join(", "), None);
        for path in [
            "/health",
            "/health?exclude=NOSPACE",
            "/health?exclude=CORRUPT",
            "/health?exclude=NOSPACE&exclude=CORRUPT",
        ] {
            let said = http_get(self.port, path)?;
            let code = said.split_whitespace().nth(1).unwrap_or_default().to_owned();
            let body = said.rsplit("\r\n\r\n").next().unwrap_or_default().trim();
            // Of both it names the one that it comes upon first.
            let body = if self.on == "both" && path == "/health" {
                body.replace("NOSPACE", "SOME").replace("CORRUPT", "SOME")
            } else {
                body.to_owned()
            };
            // 3.5.1 leaves out only the first of a kind.
            let is_left_out = self.on == "NOSPACE of two" && path.contains("=NOSPACE");
            let late = is_left_out.then(|| r#"200 {"health":"true","reason":""}"#.to_owned());
            self.note(path, format!("{code} {body}"), late);
        }
        Ok(())
    }

    /// From now on this is on: looks at it, and tries the store.
    async fn stands(&mut self, on: &'static str, late: Option<EtcdError>) -> Result<(), Failure> {
        self.on = on;
        self.look().await?;
        self.store(late).await;
        Ok(())
    }
}

/// Raised and cleared, in one order and in the other.
async fn both_at_once(story: &mut Story) -> Result<(), Failure> {
    let own = story.id;
    story.look().await?;
    story.store(None).await;
    story.alarm(Activate, own, NOSPACE).await;
    story.stands("NOSPACE", None).await?;
    story.alarm(Activate, own, NOSPACE).await;
    story.alarm(Activate, own, CORRUPT).await;
    story.stands("both", None).await?;
    story.alarm(Deactivate, own, CORRUPT).await;
    story.stands("NOSPACE again", Some(EtcdError::NoSpace)).await?;
    story.alarm(Deactivate, own, NOSPACE).await;
    story.stands("none again", None).await?;
    story.alarm(Activate, own, CORRUPT).await;
    story.stands("CORRUPT", None).await?;
    story.alarm(Activate, own, NOSPACE).await;
    story.stands("both", Some(EtcdError::Corrupt)).await?;
    story.alarm(Deactivate, own, NOSPACE).await;
    story.on = "CORRUPT again";
    story.store(Some(EtcdError::Corrupt)).await;
    story.alarm(Deactivate, own, CORRUPT).await;
    story.stands("none at last", None).await?;
    Ok(())
}

/// An alarm is of whom the request names, be it a member or not, and only that one's is cleared.
async fn of_whom(story: &mut Story) -> Result<(), Failure> {
    let own = story.id;
    for id in [0, STRANGER] {
        story.on = "none";
        for kind in [NONE, NOSPACE, CORRUPT] {
            story.alarm(Deactivate, id, kind).await;
        }
        story.alarm(Activate, id, NONE).await;
        story.look().await?;
        story.store(None).await;
        story.alarm(Activate, id, NOSPACE).await;
        story.stands("NOSPACE of another", None).await?;
        // Not this one's.
        for (other, kind) in [(own, NOSPACE), (id, NONE), (id, CORRUPT), (id ^ 1, NOSPACE)] {
            story.alarm(Deactivate, other, kind).await;
        }
        story.alarm(Get, 0, NONE).await;
        story.alarm(Deactivate, id, NOSPACE).await;
        story.stands("none again", None).await?;
    }
    // Of two who have the same, the other's stays.
    story.alarm(Activate, own, NOSPACE).await;
    story.alarm(Activate, STRANGER, NOSPACE).await;
    story.stands("NOSPACE of two", None).await?;
    story.alarm(Deactivate, own, NOSPACE).await;
    story.stands("NOSPACE of a stranger", Some(EtcdError::NoSpace)).await?;
    story.alarm(Deactivate, STRANGER, NOSPACE).await;
    story.stands("none in the end", None).await?;
    Ok(())
}

async fn tell(product: Product) -> Result<Vec<Row>, Failure> {
    let cluster = Cluster::start(&calm(product, 1)).await?;
    let mut story = Story::begin(&cluster).await?;
    both_at_once(&mut story).await?;
    of_whom(&mut story).await?;
    cluster.finish()?;
    Ok(story.rows)
}

#[test]
fn alarms_of_operators_are_heeded_as_etcd_heeds_them_and_both_at_once() {
    run_test("alarms of operators", BUDGET, async {
        let (theirs, ours) = tokio::try_join!(tell(Product::Etcd), tell(Product::Meerkat))?;
        let mut findings = Vec::new();
        for (theirs, ours) in theirs.iter().zip(&ours) {
            let is_right = match &ours.late {
                Some(late) => ours.said.ends_with(late),
                None => theirs.said == ours.said,
            };
            if !is_right || theirs.name != ours.name {
                let (name, late) = (&ours.name, ours.late.as_deref().unwrap_or("as etcd"));
                findings
                    .push(format!("{name}\n  etcd: {}\n  ours: {}\n  late: {late}", theirs.said, ours.said));
            }
        }
        if theirs.len() != ours.len() {
            findings.push(format!("{} answers, and {}", theirs.len(), ours.len()));
        }
        println!("alarms of operators: {} answers", ours.len());
        Failure::from_findings("alarms are etcd's", findings)
    });
}
