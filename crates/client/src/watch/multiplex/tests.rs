//! A stream's watches, driven by hand: what is sent, and what each watch gets.

use super::*;
use crate::namespace::Namespace;
use crate::watch::mailbox::{Budget, Mailbox};
use crate::watch::status::WatchPhase;
use crate::watch::wire::Order;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::poll_fn;
use meerkat_proto::pb::etcdserver::watch_request::RequestUnion;
use meerkat_proto::pb::mvcc;
use meerkat_types::{Filter, Key, KeyRange, WatchStart};
use std::time::Duration;

/// A stream slot, with a clock that stands still unless it is told otherwise.
struct Desk {
    multiplex: Multiplex,
    inbox: Arc<Inbox>,
    now: Instant,
    serials: u64,
}

impl Desk {
    fn new() -> Desk {
        let inbox = Arc::new(Inbox::default());
        let mut multiplex = Multiplex::new(inbox.clone(), false);
        let now = Instant::now();
        multiplex.open("a".into(), true, now);
        Desk { multiplex, inbox, now, serials: 0 }
    }

    fn watch(&mut self, from: WatchStart, buffer: usize) -> Arc<Mailbox> {
        self.watch_with(from, buffer, false)
    }

    fn watch_with(&mut self, from: WatchStart, buffer: usize, marks: bool) -> Arc<Mailbox> {
        self.start(from, buffer, marks, false)
    }

    fn start(&mut self, from: WatchStart, buffer: usize, marks: bool, verbatim: bool) -> Arc<Mailbox> {
        self.serials += 1;
        let budget = Arc::new(Budget::default());
        let mailbox = Arc::new(Mailbox::new(Serial(self.serials), buffer, budget, self.inbox.clone()));
        let order = Order {
            range: KeyRange::One(Key::new(Bytes::from_static(b"k")).expect("a key")),
            namespace: Namespace::default(),
            previous: false,
            filter: Filter::default(),
            marks,
            verbatim,
        };
        self.multiplex.add(Start { order, from, mailbox: mailbox.clone() });
        mailbox
    }

    /// Everything there is to send, in words.
    fn sent(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while self.multiplex.has_request() {
            let Some(request) = self.multiplex.next_request() else { continue };
            sent.push(match request.request_union.expect("a request") {
                RequestUnion::CreateRequest(create) if create.watch_id == PROBE_ID => "probe".to_owned(),
                RequestUnion::CreateRequest(create) => {
                    assert!(create.fragment && create.progress_notify);
                    format!("create {} from {}", create.watch_id, create.start_revision)
                }
                RequestUnion::CancelRequest(cancel) => format!("cancel {}", cancel.watch_id),
                RequestUnion::ProgressRequest(_) => "progress".to_owned(),
            });
        }
        sent
    }

    fn hear(&mut self, response: pb::WatchResponse) -> Heard {
        self.multiplex.response(response, self.now)
    }

    fn created(&mut self, id: i64, header: i64) {
        let response = pb::WatchResponse { created: true, ..response(id, header) };
        assert_eq!(self.hear(response), Heard::Fine);
    }

    fn refused(&mut self, id: i64, reason: &str) -> Heard {
        let cancel_reason = reason.to_owned();
        self.hear(pb::WatchResponse { created: true, canceled: true, cancel_reason, ..response(id, 9) })
    }

    fn events(&mut self, id: i64, revisions: &[i64]) {
        let events = revisions.iter().map(|at| event(*at)).collect();
        assert_eq!(self.hear(pb::WatchResponse { events, ..response(id, 90) }), Heard::Fine);
    }

    fn lose(&mut self) {
        self.multiplex.lost(self.now, "lost");
        self.now += Duration::from_millis(700);
        self.multiplex.open("b".into(), true, self.now);
    }
}

fn response(id: i64, header: i64) -> pb::WatchResponse {
    let header = Some(pb::ResponseHeader { revision: header, ..Default::default() });
    pb::WatchResponse { header, watch_id: id, ..Default::default() }
}

fn event(revision: i64) -> mvcc::Event {
    let kv = mvcc::KeyValue { key: "k".into(), mod_revision: revision, ..Default::default() };
    mvcc::Event { kv: Some(kv), ..Default::default() }
}

/// What is there to read, in words.
fn read(mailbox: &Mailbox) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(Some(item)) = poll_fn(|context| mailbox.poll(context)).now_or_never() {
        found.push(match item {
            Ok(changes) if changes.events.is_empty() => format!("mark {}", changes.revision),
            Ok(changes) => changes.revision.to_string(),
            Err(WatchError::Compacted { oldest, next }) => format!("compacted {oldest}, owed {next}"),
            Err(WatchError::Refused(error)) => format!("refused: {}", error.message()),
            Err(WatchError::Closed) => "closed".to_owned(),
        });
    }
    found
}

fn at(revision: i64) -> WatchStart {
    WatchStart::At(Revision::new(revision))
}

#[test]
fn a_stream_is_greeted_before_anything_is_created() {
    let mut desk = Desk::new();
    desk.watch(WatchStart::Live, 9);
    desk.watch(at(5), 9);
    assert_eq!(desk.sent(), ["progress", "create 1 from 0", "create 2 from 5"]);
}

#[test]
fn each_watch_gets_its_own_events() {
    let mut desk = Desk::new();
    let (one, two) = (desk.watch(at(5), 9), desk.watch(at(5), 9));
    desk.sent();
    desk.created(1, 9);
    desk.created(2, 9);
    desk.events(2, &[5, 6]);
    desk.events(1, &[7]);
    desk.events(77, &[8]);
    assert_eq!((read(&one), read(&two)), (vec!["7".to_owned()], vec!["5".to_owned(), "6".to_owned()]));
}

#[test]
fn after_a_loss_every_watch_is_created_again_from_what_it_is_owed() {
    let mut desk = Desk::new();
    let (one, two) = (desk.watch(WatchStart::Live, 9), desk.watch(at(5), 9));
    desk.sent();
    desk.created(1, 20);
    desk.created(2, 20);
    desk.events(2, &[5, 6]);
    desk.lose();
    let mut sent = desk.sent();
    sent.sort();
    let expected = [
        ["create 3 from 21", "create 4 from 7", "progress"],
        ["create 3 from 7", "create 4 from 21", "progress"],
    ];
    assert!(expected.iter().any(|expected| sent == *expected), "{sent:?}");
    assert_eq!(one.status().phase, WatchPhase::Connecting);
    // What was on its way on the old stream is not for the new watches.
    desk.events(1, &[22]);
    assert_eq!(read(&one), Vec::<String>::new());
    desk.created(3, 20);
    desk.created(4, 20);
    let status = two.status();
    assert_eq!((status.resumes, status.endpoint.as_deref()), (1, Some("b")));
    assert_eq!(status.last_gap, Some(Duration::from_millis(700)));
}

#[test]
fn a_watch_that_was_never_created_did_not_resume() {
    let mut desk = Desk::new();
    let watch = desk.watch(WatchStart::Live, 9);
    desk.sent();
    desk.lose();
    assert_eq!(desk.sent(), ["progress", "create 2 from 0"]);
    desk.created(2, 20);
    assert_eq!((watch.status().resumes, watch.status().last_gap), (0, None));
}

#[test]
fn a_full_watch_is_parked_and_comes_back_when_it_was_read() {
    let mut desk = Desk::new();
    let (slow, other) = (desk.watch(at(5), 2), desk.watch(at(5), 9));
    desk.sent();
    desk.created(1, 9);
    desk.created(2, 9);
    desk.events(1, &[5, 6]);
    desk.events(1, &[7]);
    assert_eq!(desk.sent(), ["cancel 1"]);
    assert_eq!((slow.status().phase, slow.status().parked), (WatchPhase::Parked, 1));
    desk.events(1, &[8]);
    desk.events(2, &[5]);
    assert_eq!(read(&other), ["5"]);
    desk.multiplex.attend();
    assert_eq!(desk.sent(), Vec::<String>::new());
    assert_eq!(read(&slow), ["5", "6"]);
    desk.multiplex.attend();
    assert_eq!(desk.sent(), ["create 3 from 7"]);
    desk.created(3, 9);
    desk.events(3, &[7, 8]);
    assert_eq!(read(&slow), ["7", "8"]);
    assert_eq!(slow.status().resumes, 0, "being slow is no loss");
}

#[test]
fn a_parked_watch_stays_parked_over_a_loss() {
    let mut desk = Desk::new();
    let slow = desk.watch(at(5), 1);
    desk.sent();
    desk.created(1, 9);
    desk.events(1, &[5]);
    desk.events(1, &[6]);
    assert!(desk.multiplex.is_idle());
    desk.lose();
    assert_eq!(desk.sent(), ["progress"]);
    assert_eq!(read(&slow), ["5"]);
    desk.multiplex.attend();
    assert_eq!(desk.sent(), ["create 2 from 6"]);
}

#[test]
fn a_dropped_watch_is_cancelled() {
    let mut desk = Desk::new();
    let (one, two) = (desk.watch(at(5), 9), desk.watch(at(5), 9));
    assert_eq!(desk.sent().len(), 3);
    desk.created(1, 9);
    one.close();
    two.close();
    desk.multiplex.attend();
    assert_eq!(desk.sent(), ["cancel 1", "cancel 2"]);
    assert!(desk.multiplex.is_empty());
    desk.created(2, 9);
    desk.events(1, &[5]);
}

#[test]
fn compaction_is_told_once_and_the_id_is_given_back() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    desk.created(1, 9);
    let cancel = pb::WatchResponse { canceled: true, compact_revision: 8, ..response(1, 0) };
    assert_eq!(desk.hear(cancel.clone()), Heard::Fine);
    assert_eq!(desk.hear(cancel), Heard::Fine);
    assert_eq!(read(&watch), ["compacted 8, owed 5"]);
    assert_eq!(read(&watch), Vec::<String>::new());
    assert_eq!(desk.sent(), ["cancel 1"]);
    assert!(desk.multiplex.is_empty());
}

#[test]
fn a_compaction_below_what_is_owed_loses_nothing() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(8), 9);
    desk.sent();
    desk.created(1, 9);
    desk.hear(pb::WatchResponse { canceled: true, compact_revision: 8, ..response(1, 0) });
    assert_eq!(read(&watch), Vec::<String>::new());
    assert_eq!(desk.sent(), ["cancel 1", "create 2 from 8"]);
}

#[test]
fn refusals_without_an_id_are_told_apart_by_their_order() {
    let mut desk = Desk::new();
    let (one, two, three) = (desk.watch(at(5), 9), desk.watch(at(5), 9), desk.watch(at(5), 9));
    desk.multiplex.ask_probe();
    assert_eq!(desk.sent(), ["progress", "probe", "create 1 from 5", "create 2 from 5", "create 3 from 5"]);
    assert_eq!(desk.refused(-1, "mvcc: watcher range is empty"), Heard::Fine);
    desk.created(1, 9);
    assert_eq!(desk.refused(-1, "no"), Heard::Fine);
    desk.created(3, 9);
    assert_eq!(read(&two), ["refused: no"]);
    assert_eq!((one.status().phase, three.status().phase), (WatchPhase::Live, WatchPhase::Live));
}

#[test]
fn a_stale_token_is_renewed_and_the_watch_created_again_but_not_for_ever() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    for id in 1..=3 {
        desk.sent();
        let reason = "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
        assert_eq!(desk.refused(id, reason), Heard::Token);
        assert_eq!(read(&watch), Vec::<String>::new());
        desk.lose();
    }
    desk.sent();
    desk.refused(4, "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token");
    assert_eq!(read(&watch), ["refused: etcdserver: invalid auth token"]);
}

#[test]
fn when_authentication_is_switched_on_a_watch_gets_a_token_if_there_is_a_login() {
    let empty = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    assert_eq!(desk.refused(1, empty), Heard::Token);
    desk.lose();
    assert_eq!(desk.sent(), ["progress", "create 2 from 5"]);
    desk.created(2, 9);
    assert_eq!(watch.status().phase, WatchPhase::Live);
}

#[test]
fn without_a_login_a_watch_that_needs_a_token_is_refused_alone() {
    let empty = "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
    let mut desk = Desk::new();
    desk.multiplex.open("a".into(), false, desk.now);
    let (running, late) = (desk.watch(at(5), 9), desk.watch(at(5), 9));
    desk.sent();
    desk.created(1, 9);
    assert_eq!(desk.refused(2, empty), Heard::Fine);
    assert_eq!(read(&late), ["refused: etcdserver: user name is empty"]);
    assert_eq!(running.status().phase, WatchPhase::Live);
}

#[test]
fn a_denial_may_be_a_stale_token_once_and_then_is_believed() {
    let denied = "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    assert_eq!(desk.refused(1, denied), Heard::Token);
    desk.lose();
    desk.sent();
    desk.created(2, 9);
    // A restarted member has forgotten the token again.
    desk.lose();
    desk.sent();
    assert_eq!(desk.refused(3, denied), Heard::Token);
    desk.lose();
    desk.sent();
    assert_eq!(desk.refused(4, denied), Heard::Fine);
    assert_eq!(read(&watch), ["refused: etcdserver: permission denied"]);
}

#[test]
fn a_watch_cancelled_without_a_reason_is_created_again_a_few_times() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    for id in 1..=3 {
        desk.created(id, 9);
        desk.hear(pb::WatchResponse { canceled: true, ..response(id, 9) });
        assert_eq!(desk.sent(), [format!("cancel {id}"), format!("create {} from 5", id + 1)]);
    }
    desk.created(4, 9);
    desk.hear(pb::WatchResponse { canceled: true, ..response(4, 9) });
    assert_eq!(read(&watch).len(), 1);
}

#[test]
fn marks_move_watches_that_are_live_and_are_told_to_those_who_ask() {
    let mut desk = Desk::new();
    let (plain, keen) = (desk.watch(at(5), 9), desk.watch_with(at(5), 9, true));
    let late = desk.watch(at(5), 9);
    desk.sent();
    desk.created(1, 9);
    desk.created(2, 9);
    desk.hear(response(-1, 30));
    desk.hear(response(2, 40));
    assert_eq!((read(&plain), read(&keen)), (Vec::new(), vec!["mark 40".to_owned()]));
    assert_eq!(plain.status().next, Some(Revision::new(31)));
    assert_eq!(late.status().next, None);
    desk.created(3, 9);
    desk.lose();
    let mut sent = desk.sent();
    sent.iter_mut().for_each(|request| *request = request.split(" from ").last().unwrap_or("").to_owned());
    sent.sort();
    assert_eq!(sent, ["31", "41", "5", "progress"]);
}

#[test]
fn a_mark_that_may_have_been_made_before_a_creation_is_not_believed_for_it() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    desk.multiplex.ask_progress();
    desk.sent();
    desk.created(1, 30);
    desk.hear(response(-1, 30));
    assert_eq!(watch.status().next, Some(Revision::new(5)));
    desk.hear(response(-1, 31));
    assert_eq!(watch.status().next, Some(Revision::new(32)));
}

#[test]
fn while_the_store_stands_still_a_mark_that_was_asked_for_after_a_creation_is_believed() {
    let mut desk = Desk::new();
    let watch = desk.watch_with(at(5), 9, true);
    desk.sent();
    desk.multiplex.ask_progress();
    desk.sent();
    desk.created(1, 30);
    watch.want_mark();
    desk.multiplex.attend();
    assert_eq!(desk.sent(), ["progress"]);
    desk.hear(response(-1, 30));
    assert_eq!(read(&watch), [""; 0], "perhaps an answer to what was asked before");
    desk.hear(response(-1, 30));
    assert_eq!(read(&watch), ["mark 30"]);
    // What was asked on another stream does not count on this one.
    desk.lose();
    desk.sent();
    desk.created(2, 40);
    desk.multiplex.ask_progress();
    desk.sent();
    desk.hear(response(-1, 40));
    assert_eq!(read(&watch), ["mark 40"]);
}

#[test]
fn marks_of_a_server_that_answers_too_early_are_not_believed() {
    let mut desk = Desk::new();
    let watch = desk.watch(at(5), 9);
    desk.sent();
    desk.hear(response(-1, 9));
    desk.created(1, 9);
    desk.hear(response(-1, 30));
    assert_eq!(watch.status().next, Some(Revision::new(5)));
    // Its periodic ones come in order with events.
    desk.hear(response(1, 30));
    assert_eq!(watch.status().next, Some(Revision::new(31)));
}

#[test]
fn marks_are_told_word_for_word_if_asked_for() {
    for answers_early in [false, true] {
        let mut desk = Desk::new();
        let (quiet, keen) = (desk.start(at(5), 9, false, true), desk.start(at(5), 9, true, true));
        desk.sent();
        if answers_early {
            desk.hear(response(-1, 9));
        }
        desk.created(1, 9);
        desk.created(2, 9);
        // Asked for by the client itself.
        desk.hear(response(-1, 30));
        assert_eq!((read(&quiet), read(&keen)), (Vec::new(), Vec::new()));
        quiet.want_mark();
        desk.multiplex.attend();
        for _ in 0..2 {
            desk.hear(response(-1, 30));
        }
        assert_eq!((read(&quiet), read(&keen)), (vec!["mark 30".to_owned()], vec!["mark 30".to_owned()]));
        for _ in 0..2 {
            desk.hear(response(1, 30));
            desk.hear(response(2, 30));
            assert_eq!((read(&quiet), read(&keen)), (Vec::new(), vec!["mark 30".to_owned()]));
        }
    }
}

#[test]
fn cancellation_is_told_word_for_word_before_the_error() {
    let mut desk = Desk::new();
    let watch = desk.start(at(5), 9, false, true);
    desk.sent();
    desk.created(1, 9);
    desk.hear(pb::WatchResponse { canceled: true, compact_revision: 8, ..response(1, 3) });
    let mut begun = None;
    let mut next = || poll_fn(|context| watch.poll_response(&mut begun, context)).now_or_never();
    let Some(Some(Ok(WatchResponse { header, canceled: Some(canceled), .. }))) = next() else {
        panic!("no response says so");
    };
    assert_eq!(header.map(|header| header.revision), Some(Revision::new(3)));
    assert_eq!(canceled.compact_revision, Some(Revision::new(8)));
    assert!(matches!(next(), Some(Some(Err(WatchError::Compacted { .. })))));
}

#[test]
fn stream_waits_for_a_reader_where_the_member_decides_on_slow_ones() {
    let mut desk = Desk::new();
    desk.multiplex.on_demand = true;
    let watch = desk.watch(at(5), 1);
    desk.sent();
    desk.created(1, 9);
    desk.events(1, &[5]);
    assert!(desk.multiplex.is_held_up());
    desk.events(1, &[6]);
    assert_eq!((desk.sent(), watch.status().parked), (Vec::new(), 0));
    assert_eq!(read(&watch), ["5", "6"]);
    assert!(!desk.multiplex.is_held_up());
}

#[test]
fn what_makes_no_sense_costs_the_member_its_stream() {
    let mut desk = Desk::new();
    desk.watch(at(5), 9);
    desk.sent();
    desk.created(1, 9);
    let events = vec![mvcc::Event::default()];
    assert_eq!(desk.hear(pb::WatchResponse { events, ..response(1, 9) }), Heard::Nonsense);
}

#[test]
fn creations_wait_while_too_many_are_unanswered() {
    let mut desk = Desk::new();
    let watches: Vec<_> = (0..UNANSWERED_MAX + 10).map(|_| desk.watch(at(5), 9)).collect();
    assert_eq!(desk.sent().len(), 1 + UNANSWERED_MAX);
    desk.created(1, 9);
    assert_eq!(desk.sent().len(), 1);
    drop(watches);
}

/// Whatever a server sends, nothing here panics, and what is delivered goes up.
#[test]
fn no_answer_of_a_server_can_do_harm() {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    for seed in 0..2_000 {
        let mut chance = SmallRng::seed_from_u64(seed);
        let mut desk = Desk::new();
        let watches: Vec<_> = (0..3).map(|_| desk.watch(at(2), 3)).collect();
        let mut told = vec![Vec::new(); watches.len()];
        for _ in 0..60 {
            desk.sent();
            if desk.hear(anything(&mut chance)) != Heard::Fine {
                desk.lose();
            }
            let index = chance.random_range(0..watches.len());
            let read = read(&watches[index]);
            told[index].extend(read.iter().filter_map(|word| word.parse::<i64>().ok()));
            desk.multiplex.attend();
        }
        for told in told {
            assert!(told.is_sorted_by(|earlier, later| earlier < later), "seed {seed}: {told:?}");
        }
    }

    fn anything(chance: &mut SmallRng) -> pb::WatchResponse {
        const NUMBERS: [i64; 10] = [i64::MIN, -1, 0, 1, 2, 3, 4, 9, i64::MAX - 1, i64::MAX];
        let mut number = || NUMBERS[chance.random_range(0..NUMBERS.len())];
        let (id, header, compact, first, second) = (number(), number(), number(), number(), number());
        let reasons = ["", "no", "etcdserver: invalid auth token", "rpc error: code = desc = "];
        let mut events = vec![event(first), event(second), mvcc::Event::default()];
        events.truncate([0, 1, 2, 2, 3][chance.random_range(0..5)]);
        pb::WatchResponse {
            header: chance
                .random_bool(0.9)
                .then(|| pb::ResponseHeader { revision: header, ..Default::default() }),
            watch_id: if chance.random_bool(0.7) { chance.random_range(1..9) } else { id },
            created: chance.random_bool(0.4),
            canceled: chance.random_bool(0.1),
            compact_revision: if chance.random_bool(0.1) { compact } else { 0 },
            cancel_reason: reasons[chance.random_range(0..reasons.len())].to_owned(),
            fragment: chance.random_bool(0.2),
            events,
        }
    }
}
