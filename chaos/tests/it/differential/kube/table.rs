//! Reads, transactions and compactions, in this order: later ones see what earlier ones wrote.
//!
//! Each row names the line of the contract's section I that it stands for, and what that line says of the
//! answer. Both servers have to give the same answer, and that one.

use std::collections::BTreeMap;

use bytes::Bytes;
use meerkat_chaos::differential::request::{Answer, Request};
use meerkat_proto::error_text::EtcdError;
use meerkat_proto::pb::etcdserver::response_op::Response as Done;
use meerkat_proto::pb::etcdserver::{CompactionRequest, RangeResponse};
use meerkat_proto::pb::mvcc::KeyValue;

use super::shapes::{self, COMPACT_KEY};

pub const PODS: &str = "/registry/pods/default/";
/// No object may be larger than a request.
const LARGE: usize = 1_400_000;

/// What a server remembers of answers.
#[derive(Debug, Default)]
pub struct Book {
    /// Revisions of headers, by the `keep` of their steps.
    revisions: BTreeMap<&'static str, i64>,
    /// The last key of the last list.
    last_key: Vec<u8>,
}

pub struct Step {
    /// The line of section I.
    pub row: &'static str,
    /// In a few words, for reports.
    pub what: &'static str,
    pub ask: fn(&Book) -> Request,
    /// What the contract says of the answer.
    pub expect: fn(&Book, &Answer) -> bool,
    /// Under which name its revision is remembered.
    pub keep: Option<&'static str>,
}

impl Book {
    pub fn note(&mut self, step: &Step, answer: &Answer) {
        if let Some(name) = step.keep {
            self.revisions.insert(name, revision(answer));
        }
        if let Answer::Range(range) = answer
            && let Some(last) = range.kvs().last()
        {
            self.last_key = last.key.to_vec();
        }
    }

    fn at(&self, name: &str) -> i64 {
        self.revisions.get(name).copied().unwrap_or(0)
    }
}

fn revision(answer: &Answer) -> i64 {
    answer.header().map_or(0, |header| header.revision)
}

fn kvs(answer: &Answer) -> &[KeyValue] {
    match answer {
        Answer::Range(range) => range.kvs(),
        _ => &[],
    }
}

/// How many key-values, how many there are from here on, and whether there are more.
fn is_list(answer: &Answer, len: usize, count: i64, more: bool) -> bool {
    matches!(answer, Answer::Range(range) if (range.kvs().len(), range.count, range.more) == (len, count, more))
}

/// A transaction that was taken as one of its branches, with one operation or none in it.
fn txn(answer: &Answer, succeeded: bool) -> Option<Option<&Done>> {
    match answer {
        Answer::Txn(done) if done.succeeded == succeeded => {
            Some(done.responses.first().and_then(|op| op.response.as_ref()))
        }
        _ => None,
    }
}

fn conflict(answer: &Answer) -> Option<&RangeResponse> {
    match txn(answer, false)? {
        Some(Done::ResponseRange(range)) => Some(range),
        _ => None,
    }
}

fn is_refusal(answer: &Answer, error: EtcdError) -> bool {
    matches!(answer, Answer::Refused(code, text) if (*code, text.as_str()) == (error.code(), error.message()))
}

fn pod(name: char) -> String {
    format!("{PODS}{name}")
}

fn plain(value: &'static str) -> Bytes {
    Bytes::from_static(value.as_bytes())
}

/// A step without a `keep`.
const fn step(
    row: &'static str,
    what: &'static str,
    ask: fn(&Book) -> Request,
    expect: fn(&Book, &Answer) -> bool,
) -> Step {
    Step { row, what, ask, expect, keep: None }
}

const fn kept(
    name: &'static str,
    row: &'static str,
    what: &'static str,
    ask: fn(&Book) -> Request,
    expect: fn(&Book, &Answer) -> bool,
) -> Step {
    Step { row, what, ask, expect, keep: Some(name) }
}

/// Gets, creations and updates.
pub const OBJECTS: &[Step] = &[
    step(
        "Health/ready",
        "a key that is not there is fine",
        |_| Request::Range(shapes::get("/registry/health", 0)),
        |_, answer| is_list(answer, 0, 0, false) && revision(answer) == 1,
    ),
    step(
        "Get",
        "absent",
        |_| Request::Range(shapes::get(&pod('a'), 0)),
        |_, answer| is_list(answer, 0, 0, false),
    ),
    kept(
        "a",
        "Create",
        "a new object; its version is the header's revision",
        |_| Request::Txn(shapes::create(&pod('a'), plain("a1"), 0)),
        |_, answer| revision(answer) == 2 && matches!(txn(answer, true), Some(Some(Done::ResponsePut(_)))),
    ),
    step(
        "Create",
        "it exists: no branch, no revision",
        |_| Request::Txn(shapes::create(&pod('a'), plain("again"), 0)),
        |book, answer| txn(answer, false) == Some(None) && revision(answer) == book.at("a"),
    ),
    step(
        "Get",
        "present",
        |_| Request::Range(shapes::get(&pod('a'), 0)),
        |book, answer| {
            is_list(answer, 1, 1, false)
                && kvs(answer)[0].mod_revision == book.at("a")
                && kvs(answer)[0].version == 1
        },
    ),
    kept(
        "a2",
        "Update",
        "of what was read",
        |book| Request::Txn(shapes::update(&pod('a'), plain("a2"), 0, book.at("a"))),
        |book, answer| txn(answer, true).is_some() && revision(answer) == book.at("a") + 1,
    ),
    step(
        "Update",
        "a conflict brings the object that is there",
        |book| Request::Txn(shapes::update(&pod('a'), plain("late"), 0, book.at("a"))),
        |book, answer| {
            let there = |range: &RangeResponse| {
                range.kvs().len() == 1 && range.kvs()[0].mod_revision == book.at("a2")
            };
            conflict(answer).is_some_and(there) && revision(answer) == book.at("a2")
        },
    ),
    step(
        "Update",
        "of what is gone brings nothing",
        |book| Request::Txn(shapes::update(&pod('z'), plain("late"), 0, book.at("a"))),
        |_, answer| conflict(answer).is_some_and(|range| range.kvs().is_empty() && range.count == 0),
    ),
    step(
        "Get",
        "as it was",
        |book| Request::Range(shapes::get(&pod('a'), book.at("a"))),
        |book, answer| {
            kvs(answer).len() == 1 && kvs(answer)[0].value == "a1" && revision(answer) == book.at("a2")
        },
    ),
    step(
        "Load shape",
        "an object of 1.4 MB",
        |_| Request::Txn(shapes::create(&pod('l'), vec![b'x'; LARGE], 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    step(
        "Load shape",
        "and back",
        |_| Request::Range(shapes::get(&pod('l'), 0)),
        |_, answer| kvs(answer).len() == 1 && kvs(answer)[0].value.len() == LARGE,
    ),
];

/// Lists in pages, counts and keys, with writes in between.
pub const LISTS: &[Step] = &[
    step(
        "Create",
        "b",
        |_| Request::Txn(shapes::create(&pod('b'), plain("b"), 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    step(
        "Create",
        "c",
        |_| Request::Txn(shapes::create(&pod('c'), plain("c"), 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    kept(
        "d",
        "Create",
        "d",
        |_| Request::Txn(shapes::create(&pod('d'), plain("d"), 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    kept(
        "list",
        "List",
        "the first page: what is left is counted as a whole",
        |_| Request::Range(shapes::page(PODS, None, 2, 0)),
        |_, answer| is_list(answer, 2, 5, true),
    ),
    step(
        "Update",
        "behind the list's back",
        |book| Request::Txn(shapes::update(&pod('d'), plain("d2"), 0, book.at("d"))),
        |_, answer| txn(answer, true).is_some(),
    ),
    kept(
        "e",
        "Create",
        "behind the list's back",
        |_| Request::Txn(shapes::create(&pod('e'), plain("e"), 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    step(
        "List",
        "the second page, of the first one's revision",
        |book| Request::Range(shapes::page(PODS, Some(&book.last_key), 2, book.at("list"))),
        |book, answer| {
            is_list(answer, 2, 3, true) && kvs(answer)[1].value == "d" && revision(answer) == book.at("e")
        },
    ),
    step(
        "List",
        "the last page",
        |book| Request::Range(shapes::page(PODS, Some(&book.last_key), 2, book.at("list"))),
        |_, answer| is_list(answer, 1, 1, false),
    ),
    step(
        "Watch-cache init",
        "one page of 10,000",
        |_| Request::Range(shapes::page(PODS, None, 10_000, 0)),
        |_, answer| is_list(answer, 6, 6, false),
    ),
    step(
        "Count",
        "of a prefix",
        |_| Request::Range(shapes::count(PODS)),
        |_, answer| is_list(answer, 0, 6, false),
    ),
    step(
        "Count",
        "of nothing",
        |_| Request::Range(shapes::count("/registry/nodes/")),
        |_, answer| is_list(answer, 0, 0, false),
    ),
    step(
        "Keys",
        "without their values",
        |_| Request::Range(shapes::keys(PODS)),
        |_, answer| {
            is_list(answer, 6, 6, false)
                && kvs(answer).iter().all(|kv| kv.value.is_empty() && 0 < kv.version && 0 < kv.mod_revision)
        },
    ),
    step(
        "Consistent reads",
        "the revision as of now",
        |_| Request::Range(shapes::page(PODS, None, 1, 0)),
        |book, answer| is_list(answer, 1, 6, true) && revision(answer) == book.at("e"),
    ),
    step(
        "Consistency checker",
        "the whole list as it was",
        |book| Request::Range(shapes::page(PODS, None, 10_000, book.at("list"))),
        |_, answer| is_list(answer, 5, 5, false),
    ),
];

/// Deletions, compactions, and the errors that are looked for.
pub const ENDS: &[Step] = &[
    step(
        "Delete",
        "a conflict brings the object that is there",
        |_| Request::Txn(shapes::delete(&pod('e'), 2, false)),
        |book, answer| conflict(answer).is_some_and(|range| range.kvs()[0].mod_revision == book.at("e")),
    ),
    step(
        "Delete",
        "of what was read",
        |book| Request::Txn(shapes::delete(&pod('e'), book.at("e"), false)),
        |book, answer| {
            let one = |done: &Done| matches!(done, Done::ResponseDeleteRange(done) if (done.deleted, done.prev_kvs.len()) == (1, 0));
            txn(answer, true).flatten().is_some_and(one) && revision(answer) == book.at("e") + 1
        },
    ),
    step(
        "Delete",
        "of what is gone",
        |book| Request::Txn(shapes::delete(&pod('e'), book.at("e"), false)),
        |_, answer| conflict(answer).is_some_and(|range| range.kvs().is_empty()),
    ),
    kept(
        "deleted",
        "Delete",
        "and what it was",
        |book| Request::Txn(shapes::delete(&pod('a'), book.at("a2"), true)),
        |_, answer| {
            let one = |done: &Done| matches!(done, Done::ResponseDeleteRange(done) if done.prev_kvs.len() == 1 && done.prev_kvs[0].value == "a2");
            txn(answer, true).flatten().is_some_and(one)
        },
    ),
    step(
        "Errors matched",
        "a revision that is yet to come",
        |book| Request::Range(shapes::page(PODS, None, 500, book.at("deleted") + 1_000)),
        |_, answer| is_refusal(answer, EtcdError::FutureRev),
    ),
    step(
        "Compaction",
        "nobody has compacted yet",
        |_| Request::Range(shapes::get(COMPACT_KEY, 0)),
        |_, answer| is_list(answer, 0, 0, false),
    ),
    step(
        "Compaction",
        "the first turn",
        |_| Request::Txn(shapes::compact_turn(0, 0)),
        |_, answer| txn(answer, true).is_some(),
    ),
    step(
        "Compaction",
        "a turn that another server has taken",
        |_| Request::Txn(shapes::compact_turn(0, 0)),
        |_, answer| {
            conflict(answer).is_some_and(|range| range.kvs()[0].version == 1 && range.kvs()[0].value == "0")
        },
    ),
    step(
        "Compaction",
        "the next turn",
        |book| Request::Txn(shapes::compact_turn(1, book.at("list"))),
        |_, answer| txn(answer, true).is_some(),
    ),
    step(
        "Compaction",
        "what was seen five minutes ago",
        |book| Request::Compact(CompactionRequest { revision: book.at("list"), physical: false }),
        |_, answer| matches!(answer, Answer::Compact(_)),
    ),
    step(
        "Compaction",
        "once more",
        |book| Request::Compact(CompactionRequest { revision: book.at("list"), physical: false }),
        |_, answer| is_refusal(answer, EtcdError::Compacted),
    ),
    step(
        "Errors matched",
        "a page of a list that is compacted",
        |book| Request::Range(shapes::page(PODS, Some(&book.last_key), 2, book.at("list") - 1)),
        |_, answer| is_refusal(answer, EtcdError::Compacted),
    ),
    step(
        "Consistency checker",
        "exactly at the compacted revision",
        |book| Request::Range(shapes::page(PODS, None, 10_000, book.at("list"))),
        |_, answer| is_list(answer, 5, 5, false),
    ),
];
