//! Whether two streams that were asked the same have said the same.
//!
//! Compared for each watcher: the reply to its creation, all its events, every reply that it was
//! canceled. Compared for each stream: the replies that concern no watcher, and its end. Not
//! compared: how events were batched, since a transcript has already judged that, and progress
//! marks, which come by the clock (`marks_missing` judges those after a quiet while).

use meerkat_proto::pb::mvcc::Event;

use super::allow_list::Row;
use super::transcript::{Life, Transcript, revision_of};
use super::world::{StreamState, Watcher, World, is_delete, key_of};
use crate::driver::Product;

/// Differences shown of one stream; the rest are usually their echoes.
const SHOWN_MAX: usize = 4;

/// What came of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Differences nobody wants.
    pub findings: Vec<String>,
    /// Rows of the allow-list that were needed.
    pub allowed: Vec<Row>,
}

/// Compares one stream's two transcripts.
pub fn streams(
    world: &World,
    state: &StreamState,
    etcd: &Transcript,
    other: &Transcript,
    product: Product,
) -> Verdict {
    let mut verdict = Verdict::default();
    for (whose, heard) in [("etcd", etcd), ("other", other)] {
        verdict.findings.extend(heard.violations().iter().map(|what| format!("{whose}: {what}")));
    }
    if etcd.general != other.general {
        verdict.findings.push(format!(
            "replies that concern no watcher differ\n      etcd:  {:?}\n      other: {:?}",
            tail(&etcd.general),
            tail(&other.general)
        ));
    }
    if etcd.ended() != other.ended() {
        verdict.findings.push(format!("the ends differ: {:?} and {:?}", etcd.ended(), other.ended()));
    }
    if etcd.ids().ne(other.ids()) {
        verdict.findings.push("the ids of watchers differ".to_owned());
    }
    for (id, watchers) in &state.watchers {
        let pairs = etcd.lives(*id).iter().zip(other.lives(*id));
        if etcd.lives(*id).len() != watchers.len() || other.lives(*id).len() != watchers.len() {
            verdict.findings.push(format!("watcher {id}: not created equally often"));
        }
        for (watcher, (etcd, other)) in watchers.iter().zip(pairs) {
            let judge = Judge { world, watcher, product };
            judge.lives(*id, etcd, other, &mut verdict);
        }
    }
    verdict.findings.truncate(SHOWN_MAX);
    verdict
}

fn tail<T>(all: &[T]) -> &[T] {
    &all[all.len().saturating_sub(3)..]
}

struct Judge<'a> {
    world: &'a World,
    watcher: &'a Watcher,
    product: Product,
}

impl Judge<'_> {
    fn lives(&self, id: i64, etcd: &Life, other: &Life, verdict: &mut Verdict) {
        let mut find = |what: String| {
            let asked = &self.watcher.request;
            verdict.findings.push(format!(
                "watcher {id}: {what}\n      asked: {asked:?}, compacted at {}",
                self.watcher.compacted
            ));
        };
        if etcd.created_at != other.created_at {
            find(format!("created at {} and at {}", etcd.created_at, other.created_at));
        }
        if etcd.ends != other.ends {
            find(format!("ends differ: {:?} and {:?}", etcd.ends, other.ends));
        }
        for (whose, life) in [("etcd", etcd), ("other", other)] {
            if life.pieces != 0 && !self.watcher.request.fragment {
                find(format!("{whose} sent pieces to a watcher that did not ask for them"));
            }
            if !life.marks.is_empty() && !self.watcher.request.progress_notify {
                find(format!("{whose} sent progress marks to a watcher that did not ask for them"));
            }
        }
        if let Some(what) = self.marks_below_start(etcd, other, &mut verdict.allowed) {
            verdict.findings.push(format!("watcher {id}: {what}"));
        }
        if let Some(what) = self.events(&etcd.events, &other.events, &mut verdict.allowed) {
            let asked = &self.watcher.request;
            verdict.findings.push(format!(
                "watcher {id}: {what}\n      asked: {asked:?}, compacted at {}",
                self.watcher.compacted
            ));
        }
    }

    fn marks_below_start(&self, etcd: &Life, other: &Life, allowed: &mut Vec<Row>) -> Option<String> {
        let early = |life: &Life| life.marks.iter().any(|mark| *mark < self.watcher.request.start_revision);
        if early(etcd) {
            allowed.push(Row::MarkBeforeTheStart);
        }
        (self.product == Product::Meerkat && early(other))
            .then(|| "a progress mark below the revision it begins at".to_owned())
    }

    fn events(&self, etcd: &[Event], other: &[Event], allowed: &mut Vec<Row>) -> Option<String> {
        let (mut left, mut right) = (etcd.iter().peekable(), other.iter().peekable());
        loop {
            match (left.peek(), right.peek()) {
                (None, None) => return None,
                (Some(one), Some(two)) if one == two => {
                    left.next();
                    right.next();
                }
                (Some(one), Some(two)) if self.keeps_previous(one, two) => {
                    allowed.push(Row::PreviousValueKept);
                    left.next();
                    right.next();
                }
                // More on the other's side first: Meerkat has what etcd has lost, never less.
                (_, Some(two)) if self.lost_by(Product::Etcd, two) => {
                    allowed.push(Row::DeletionAtTheBound);
                    right.next();
                }
                (Some(one), _) if self.lost_by(self.product, one) => {
                    allowed.push(Row::DeletionAtTheBound);
                    left.next();
                }
                (one, two) => {
                    return Some(format!(
                        "events differ ({} and {} in all)\n      etcd:  {one:?}\n      other: {two:?}",
                        etcd.len(),
                        other.len()
                    ));
                }
            }
        }
    }

    /// Whether two events differ in a previous value that only etcd no longer has.
    fn keeps_previous(&self, etcd: &Event, other: &Event) -> bool {
        let same = Event { prev_kv: None, ..other.clone() };
        let right = || self.in_history(other).is_some_and(|event| event.prev_kv == other.prev_kv);
        *etcd == same && revision_of(other) <= self.world.compacted && right()
    }

    /// Whether a product may have lost this event to a compaction at its very revision. Meerkat may
    /// not lose the deletion itself.
    fn lost_by(&self, product: Product, event: &Event) -> bool {
        let real = self.in_history(event).is_some() && self.watcher.wants(event);
        let gone = real && self.world.may_be_gone(self.watcher, event);
        gone && (product == Product::Etcd || !is_delete(event))
    }

    fn in_history(&self, event: &Event) -> Option<&Event> {
        let same = |known: &&Event| {
            key_of(known) == key_of(event) && known.r#type == event.r#type && known.kv == event.kv
        };
        self.world.at(revision_of(event)).find(same)
    }
}

/// Watchers that asked for progress marks and, after a quiet while, have none at the store's
/// revision.
pub fn marks_missing(world: &World, state: &StreamState, heard: &Transcript) -> Vec<String> {
    let mut missing = Vec::new();
    for (id, watchers) in &state.watchers {
        let Some((watcher, life)) = watchers.last().zip(heard.lives(*id).last()) else { continue };
        let owed = watcher.request.progress_notify
            && !watcher.canceled
            && !watcher.is_compacted()
            && watcher.request.start_revision <= world.revision;
        if owed && life.marks.last() != Some(&world.revision) {
            missing.push(format!(
                "watcher {id}: no mark at {}, marks: {:?}",
                world.revision,
                tail(&life.marks)
            ));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::WatchCreateRequest;
    use meerkat_proto::pb::mvcc::KeyValue;
    use meerkat_proto::pb::mvcc::event::EventType;

    fn event(key: &'static str, revision: i64, kind: EventType) -> Event {
        let kv = KeyValue { key: key.into(), mod_revision: revision, ..Default::default() };
        Event { r#type: kind as i32, kv: Some(kv), prev_kv: None }
    }

    fn put(key: &'static str, revision: i64) -> Event {
        event(key, revision, EventType::Put)
    }

    fn delete(key: &'static str, revision: i64) -> Event {
        event(key, revision, EventType::Delete)
    }

    fn with_previous(event: Event, value: &'static str) -> Event {
        Event { prev_kv: Some(KeyValue { value: value.into(), ..Default::default() }), ..event }
    }

    /// A watcher of everything from revision 3, where the store is compacted, and this history.
    fn judge(product: Product, etcd: &[Event], other: &[Event]) -> Result<Vec<Row>, String> {
        let mut world = World::new(1);
        (world.revision, world.compacted) = (5, 3);
        world.history =
            vec![put("a", 2), with_previous(delete("a", 3), "old"), put("b", 3), put("c", 4), put("d", 5)];
        let request = WatchCreateRequest { range_end: "\0".into(), start_revision: 3, ..Default::default() };
        let watcher = Watcher::new(request, 5, 3);
        let mut allowed = Vec::new();
        match (Judge { world: &world, watcher: &watcher, product }).events(etcd, other, &mut allowed) {
            None => Ok(allowed),
            Some(what) => Err(what),
        }
    }

    #[test]
    fn equal_events_need_no_allowance() {
        let all = [delete("a", 3), put("b", 3), put("c", 4)];
        assert_eq!(judge(Product::Meerkat, &all, &all), Ok(vec![]));
    }

    #[test]
    fn a_missing_a_repeated_and_a_changed_event_are_found() {
        let all = [delete("a", 3), put("b", 3), put("c", 4), put("d", 5)];
        for wrong in [
            vec![delete("a", 3), put("b", 3), put("d", 5)],
            vec![delete("a", 3), put("b", 3), put("c", 4)],
            vec![delete("a", 3), put("b", 3), put("c", 4), put("d", 5), put("d", 5)],
            vec![delete("a", 3), put("b", 3), put("c", 4), delete("d", 5)],
            vec![put("b", 3), delete("a", 3), put("c", 4), put("d", 5)],
        ] {
            assert!(judge(Product::Meerkat, &all, &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn only_etcd_may_lose_the_deletion_at_the_compacted_revision() {
        let (all, less) = ([delete("a", 3), put("b", 3)], [put("b", 3)]);
        assert_eq!(judge(Product::Meerkat, &less, &all), Ok(vec![Row::DeletionAtTheBound]));
        assert_eq!(judge(Product::Etcd, &all, &less), Ok(vec![Row::DeletionAtTheBound]));
        assert!(judge(Product::Meerkat, &all, &less).is_err());
    }

    #[test]
    fn a_previous_value_below_the_bound_may_be_kept_but_must_be_right() {
        let etcd = [delete("a", 3)];
        let kept = [with_previous(delete("a", 3), "old")];
        assert_eq!(judge(Product::Meerkat, &etcd, &kept), Ok(vec![Row::PreviousValueKept]));
        let wrong = [with_previous(delete("a", 3), "other")];
        assert!(judge(Product::Meerkat, &etcd, &wrong).is_err());
        assert!(judge(Product::Meerkat, &[put("c", 4)], &[with_previous(put("c", 4), "old")]).is_err());
    }
}
