//! Elements are added, each under a key of its own, and the whole is looked at.
//!
//! A set takes elements for a while and then the next one begins, so that a look stays small however
//! long the run is. At the end every member is asked for every set.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use meerkat_proto::pb::etcdserver::RangeResponse;
use rand::Rng;

use super::crew::{ANSWER_WITHIN, Crew, Hand, read_back};
use super::wire;
use super::{Setting, Workload};
use crate::Failure;
use crate::checker::set::{self, Add, Look};
use crate::outcome::{Outcome, describe};
use crate::record::Verdict;

const NAME: &str = "set";
const ADDERS: usize = 3;
const LOOKERS: usize = 2;
const REST: Duration = Duration::from_millis(90);
const REST_OF_LOOKERS: Duration = Duration::from_millis(400);
/// How long one set takes elements.
const EACH: Duration = Duration::from_secs(15);

struct Set {
    setting: Setting,
    crew: Crew<Record>,
}

/// What one client did to each set.
type Record = BTreeMap<u64, Acts>;

#[derive(Clone, Debug, Default)]
struct Acts {
    adds: Vec<Add>,
    looks: Vec<Look>,
}

/// Starts the clients.
pub fn start(setting: Setting) -> Box<dyn Workload> {
    let mut crew = Crew::new();
    let prefix = setting.prefix.clone();
    crew.add(&setting, NAME, ADDERS, |hand| add_on(hand, prefix.clone()));
    crew.add(&setting, NAME, LOOKERS, |hand| look_on(hand, prefix.clone()));
    Box::new(Set { setting, crew })
}

fn current(now: Duration) -> u64 {
    now.as_secs() / EACH.as_secs()
}

fn prefix_of(prefix: &str, set: u64) -> String {
    format!("{prefix}{set:06}/")
}

async fn add_on(mut hand: Hand, prefix: String) -> Record {
    let mut record = Record::new();
    let mut sequence = 0;
    while !hand.stopped() {
        let set = current(hand.now());
        sequence += 1;
        let element = (hand.number as u64) << 32 | sequence;
        let key: Bytes = format!("{}{element:016x}", prefix_of(&prefix, set)).into();
        let request = wire::put(&key, "");
        let called = hand.write(async |endpoint| endpoint.put(request, ANSWER_WITHIN).await).await;
        let outcome = match called.outcome {
            Outcome::Ok(_) => Outcome::Ok(()),
            Outcome::Failed(why) => Outcome::Failed(why),
            Outcome::Unknown(why) => Outcome::Unknown(why),
        };
        let add = Add { element, invoked: called.invoked, returned: called.returned, outcome };
        record.entry(set).or_default().adds.push(add);
        hand.rest(REST).await;
    }
    record
}

async fn look_on(mut hand: Hand, prefix: String) -> Record {
    let mut record = Record::new();
    while !hand.stopped() {
        // The one before may still get elements that were sent in time and happened late.
        let set = current(hand.now()).saturating_sub(hand.dice.random_range(0..2));
        let of = prefix_of(&prefix, set);
        let request = wire::get_all(of.as_bytes());
        let called = hand.read(async |endpoint| endpoint.range(request, ANSWER_WITHIN).await).await;
        if let Outcome::Ok(answer) = &called.outcome {
            let (member, elements) = (called.member, elements(&of, answer));
            let look = Look { member, invoked: called.invoked, returned: called.returned, elements };
            record.entry(set).or_default().looks.push(look);
        }
        hand.rest(REST_OF_LOOKERS).await;
    }
    record
}

/// A key of another form becomes an element that was never added, which the checker reports.
fn elements(of: &str, answer: &RangeResponse) -> Vec<u64> {
    let element = |key: &[u8]| {
        let digits = std::str::from_utf8(key).ok()?.strip_prefix(of)?;
        u64::from_str_radix(digits, 16).ok()
    };
    answer.kvs().iter().map(|kv| element(&kv.key).unwrap_or(u64::MAX)).collect()
}

impl Workload for Set {
    fn name(&self) -> &'static str {
        NAME
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Vec<Verdict>, Failure>> {
        Box::pin(async move {
            let mut all = Record::new();
            for record in self.crew.finish().await? {
                for (set, acts) in record {
                    let known = all.entry(set).or_default();
                    known.adds.extend(acts.adds);
                    known.looks.extend(acts.looks);
                }
            }
            for (set, acts) in &mut all {
                acts.looks.extend(last_looks(&self.setting, *set).await?);
            }
            Ok(vec![judge(&all)])
        })
    }
}

/// Every member is asked: what is lost on one must not hide behind another.
async fn last_looks(setting: &Setting, set: u64) -> Result<Vec<Look>, Failure> {
    let of = prefix_of(&setting.prefix, set);
    let mut looks = Vec::new();
    for contact in setting.roster.all() {
        let invoked = setting.began.elapsed();
        let answer = read_back(&contact.endpoint, wire::get_all(of.as_bytes())).await;
        let answer = answer.map_err(|status| {
            Failure::broken(format!("cannot read {} back: {}", contact.endpoint.url(), describe(&status)))
        })?;
        let (member, elements) = (contact.member, elements(&of, &answer));
        looks.push(Look { member, invoked, returned: setting.began.elapsed(), elements });
    }
    Ok(looks)
}

fn judge(all: &Record) -> Verdict {
    let mut findings = Vec::new();
    let mut judged = 0;
    for (set, acts) in all {
        judged += (acts.adds.len() + acts.looks.len()) as u64;
        findings
            .extend(set::check(&acts.adds, &acts.looks).into_iter().map(|what| format!("set {set}: {what}")));
    }
    let promise = "what was acknowledged is there from then on; what was refused never is".to_owned();
    Verdict { workload: NAME.to_owned(), promise, judged, findings }
}
