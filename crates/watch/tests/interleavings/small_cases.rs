//! The races that other stores lost events in, in every order of a few steps.

use crate::every_order::Act::{
    Cancel, Compact, Deal, Install, Overrun, Publish, Put, PutHuge, Read, Register, RequestProgress, Resume,
    Step, TakeAll, TakeOne, Tick,
};
use crate::every_order::{Act, Case, at, small, without_ring};
use crate::world::Seen;
use meerkat_watch::SlowPolicy::{Cancel as EndSlow, Coalesce, Wait};
use meerkat_watch::WatchStart;

/// Revisions 2 and 3, both published.
const TWO_REVISIONS: &[Act] = &[Put("a"), Publish, Put("b"), Publish];

fn sum(seen: &[Seen], pick: fn(&Seen) -> usize) -> usize {
    seen.iter().map(pick).sum()
}

#[test]
fn xline_166_677_848_between_replay_and_live_nothing_is_lost_or_repeated() {
    for start in [WatchStart::Live, at(1), at(2), at(3), at(4), at(5), at(6)] {
        for policy in [Wait, Coalesce, EndSlow] {
            for config in [small(2), without_ring(2)] {
                let writer = vec![Put("a"), Publish, Put("b"), Publish];
                let client = vec![Register(start), TakeAll, TakeAll];
                let catch_up = vec![Step, Read, Deal];
                let case =
                    Case { config, policy, before: TWO_REVISIONS, actors: vec![writer, client, catch_up] };
                let seen = case.run();
                assert_eq!(seen.len(), 4_200, "every order");
                assert_eq!(sum(&seen, |seen| seen.told.compacted), 0, "nothing was compacted");
                if let (WatchStart::At(first), Wait | EndSlow) = (start, policy) {
                    let owed = (6 - first.get().max(2)) as usize;
                    assert!(seen.iter().all(|seen| seen.told.events == owed), "all {owed} from {first}");
                }
            }
        }
    }
}

#[test]
fn etcd_20655_watchers_created_in_quick_succession_are_each_told_everything() {
    for config in [small(1), small(4), without_ring(1)] {
        let writer = vec![Put("a"), Publish, Put("a"), Publish];
        let starts = [WatchStart::Live, at(2), at(4), at(3)];
        let client = starts.map(Register).into_iter().chain([TakeAll]).collect();
        let actors = vec![writer, client, vec![Step, Deal]];
        let seen = Case { config, policy: Wait, before: TWO_REVISIONS, actors }.run();
        assert_eq!(seen.len(), 6_930, "every order");
        // The one that starts live is owed what is committed after it was made.
        let rest = 4 + 2 + 3;
        assert!(seen.iter().all(|seen| (rest..=rest + 2).contains(&seen.told.events)));
    }
}

#[test]
fn etcd_17529_a_slow_watcher_overtaken_by_compaction_is_told() {
    for start in [WatchStart::Live, at(2), at(4)] {
        for config in [small(1), without_ring(1)] {
            let writer = vec![PutHuge("a"), Publish, Put("b"), Publish, Compact];
            let client = vec![Register(start), TakeOne, TakeOne];
            let actors = vec![writer, client, vec![Step, Read, Deal]];
            let seen = Case { config, policy: Wait, before: TWO_REVISIONS, actors }.run();
            let told = seen.iter().filter(|seen| 0 < seen.told.compacted).count();
            assert!(0 < told, "{start:?}: some orders are too late");
            // One that is owed four revisions cannot have them all in time.
            assert!(start == at(2) || told < seen.len(), "{start:?}: some orders are in time");
        }
    }
}

#[test]
fn etcd_15220_no_event_at_or_below_a_mark_follows_it() {
    for start in [at(2), at(4)] {
        for config in [small(1), without_ring(1)] {
            let writer = vec![Put("a"), Publish, Put("b"), Publish];
            let client = vec![Register(start), TakeOne, Tick, RequestProgress, Tick, TakeAll];
            let actors = vec![writer, client, vec![Step, Deal]];
            let seen = Case { config, policy: Wait, before: &[Put("a"), Publish], actors }.run();
            assert!(0 < sum(&seen, |seen| seen.told.marks), "some orders give a mark to the watcher");
            assert!(seen.len() <= sum(&seen, |seen| seen.told.stream_marks), "at rest each gets one");
        }
    }
}

#[test]
fn etcd_20221_nothing_below_the_requested_revision() {
    for start in [WatchStart::Live, at(4), at(5), at(6)] {
        for publish in [[Publish, Publish], [Overrun, Publish], [Publish, Overrun]] {
            let mut writer = vec![Put("a"), Publish, Put("b")];
            writer.extend(publish);
            let client = vec![Register(start), RequestProgress, Tick, TakeAll];
            let actors = vec![writer, client, vec![Step, Deal]];
            let seen = Case { config: small(2), policy: Wait, before: TWO_REVISIONS, actors }.run();
            assert_eq!(seen.len(), 6_930, "every order");
            let most = if let WatchStart::At(first) = start { (6 - first.get()) as usize } else { 2 };
            assert!(seen.iter().all(|seen| seen.told.events <= most));
        }
    }
}

#[test]
fn databend_meta_watchers_survive_a_snapshot_install() {
    for start in [WatchStart::Live, at(2), at(5)] {
        for policy in [Wait, EndSlow] {
            let writer = vec![Put("a"), Publish, Install(2), Publish, Put("b"), Publish];
            let client = vec![Register(start), TakeAll, TakeAll];
            let actors = vec![writer, client, vec![Step, Deal]];
            let seen = Case { config: small(4), policy, before: TWO_REVISIONS, actors }.run();
            assert_eq!(seen.len(), 4_620, "every order");
            if let WatchStart::At(first) = start {
                let owed = (8 - first.get()) as usize;
                assert!(seen.iter().all(|seen| seen.told.events == owed), "all {owed} from {first}");
            }
        }
    }
}

#[test]
fn etcd_15271_nothing_goes_back_in_time_when_what_is_queued_is_swept_away() {
    for policy in [Wait, Coalesce, EndSlow] {
        let writer = vec![Put("a"), Publish, Put("a"), Publish, Install(1), Publish];
        let client = vec![TakeOne, Tick, TakeOne, RequestProgress];
        let actors = vec![writer, client, vec![Step, Deal]];
        let before = &[Put("a"), Publish, Register(WatchStart::Live), TakeAll];
        let seen = Case { config: small(2), policy, before, actors }.run();
        assert_eq!(seen.len(), 13_860, "every order");
        assert!(policy == Coalesce || seen.iter().all(|seen| seen.told.events == 3), "all three, once");
    }
}

#[test]
fn a_watcher_ended_for_being_slow_goes_on_where_it_is_told_to() {
    for config in [small(1), without_ring(1)] {
        let writer = vec![Put("a"), Publish, Put("b"), Publish, Put("c"), Overrun, Publish];
        let client = vec![TakeOne, Resume, TakeOne, Resume];
        let before = const { &[Register(at(2)), TakeAll] };
        let actors = vec![writer, client, vec![Step, Deal]];
        let seen = Case { config, policy: EndSlow, before, actors }.run();
        // Without a ring everything comes from history, and nobody is slow.
        let some_end = 0 < sum(&seen, |seen| seen.told.fell_behind);
        assert_eq!(some_end, 0 < config.ring_bytes, "some orders end it");
        assert!(seen.iter().all(|seen| seen.told.events == 3), "all three, once");
    }
}

#[test]
fn a_canceled_number_can_be_used_again_at_once() {
    let writer = vec![Put("a"), Publish, Put("b"), Publish];
    let client = vec![Register(at(2)), Cancel(0), Register(at(3)), TakeAll];
    let actors = vec![writer, client, vec![Step, Read, Deal]];
    let seen = Case { config: small(2), policy: Wait, before: TWO_REVISIONS, actors }.run();
    assert_eq!(seen.len(), 11_550, "every order");
    assert!(seen.iter().all(|seen| 3 <= seen.told.events), "the second is told its three");
}
