//! The queue against a model that is too simple to be wrong, and its promises one by one.

use super::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

fn queue() -> (Queue<&'static str>, Instant) {
    let now = Instant::now();
    (Queue::new(RateLimits::default(), now), now)
}

#[test]
fn a_key_added_often_is_handed_out_once() {
    let (mut queue, _) = queue();
    assert!(queue.add("a"));
    assert!(!queue.add("a"));
    assert!(queue.add("b"));
    assert_eq!((queue.take(), queue.take(), queue.take()), (Some("a"), Some("b"), None));
}

#[test]
fn a_key_added_while_processed_comes_again_when_it_is_done() {
    let (mut queue, _) = queue();
    queue.add("a");
    assert_eq!(queue.take(), Some("a"));
    assert!(!queue.add("a"));
    assert_eq!(queue.take(), None, "nobody else may have it");
    assert!(queue.done(&"a"));
    assert_eq!(queue.take(), Some("a"));
    assert!(!queue.done(&"a"));
    assert_eq!(queue.take(), None);
}

#[test]
fn a_delayed_key_is_ready_when_due_and_the_earlier_time_counts() {
    let (mut queue, now) = queue();
    let ms = Duration::from_millis;
    assert!(queue.add_after("a", ms(50), now));
    assert!(!queue.add_after("a", ms(90), now), "later than what it has");
    assert!(queue.add_after("a", ms(20), now));
    assert_eq!(queue.next_due(), Some(now + ms(20)));
    queue.tick(now + ms(19));
    assert_eq!(queue.take(), None);
    queue.tick(now + ms(20));
    assert_eq!(queue.take(), Some("a"));
    queue.done(&"a");
    queue.tick(now + ms(90));
    assert_eq!((queue.take(), queue.next_due()), (None, None), "it was due once");
}

#[test]
fn shutting_down_hands_out_what_is_ready_and_drops_what_is_delayed() {
    let (mut queue, now) = queue();
    queue.add("a");
    queue.add_after("b", Duration::from_secs(1), now);
    queue.shut_down();
    assert!(!queue.add("c") && !queue.retry("d", now) && !queue.add_after("e", Duration::ZERO, now));
    queue.tick(now + Duration::from_secs(2));
    assert!(!queue.is_over());
    assert_eq!(queue.take(), Some("a"));
    assert!(queue.is_over() && !queue.is_drained());
    queue.done(&"a");
    assert!(queue.is_drained());
}

#[test]
fn a_key_made_dirty_before_the_shutdown_is_still_processed_after_it() {
    let (mut queue, _) = queue();
    queue.add("a");
    queue.take();
    queue.add("a");
    queue.shut_down();
    assert!(!queue.is_over());
    assert!(queue.done(&"a"));
    assert_eq!(queue.take(), Some("a"));
    queue.done(&"a");
    assert!(queue.is_drained());
}

#[test]
fn done_for_a_key_nobody_has_changes_nothing() {
    let (mut queue, _) = queue();
    queue.add("a");
    assert!(!queue.done(&"a"));
    assert_eq!((queue.take(), queue.take()), (Some("a"), None));
}

/// Lists only, no sets, no ordered maps.
#[derive(Default)]
struct Model {
    ready: Vec<u8>,
    processing: Vec<u8>,
    again: Vec<u8>,
    delayed: Vec<(Instant, u8)>,
    shut: bool,
}

impl Model {
    fn add(&mut self, key: u8) {
        let wanted = if self.processing.contains(&key) { &mut self.again } else { &mut self.ready };
        if !self.shut && !wanted.contains(&key) {
            wanted.push(key);
        }
    }

    fn add_at(&mut self, key: u8, at: Instant) {
        if self.shut {
            return;
        }
        match self.delayed.iter().position(|(_, other)| *other == key) {
            Some(place) if self.delayed[place].0 <= at => {}
            Some(place) => {
                self.delayed.remove(place);
                self.delayed.push((at, key));
            }
            None => self.delayed.push((at, key)),
        }
    }

    fn tick(&mut self, now: Instant) {
        // A stable sort: those due at one time keep the order in which they came.
        let mut due: Vec<(Instant, u8)> = self.delayed.clone();
        due.retain(|(at, _)| *at <= now);
        due.sort_by_key(|(at, _)| *at);
        self.delayed.retain(|(at, _)| now < *at);
        for (_, key) in due {
            self.add(key);
        }
    }

    fn take(&mut self) -> Option<u8> {
        let key = if self.ready.is_empty() { None } else { Some(self.ready.remove(0)) }?;
        self.processing.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        self.processing.retain(|other| *other != key);
        if let Some(place) = self.again.iter().position(|other| *other == key) {
            self.again.remove(place);
            self.ready.push(key);
        }
    }
}

/// One random step on both.
fn step(queue: &mut Queue<u8>, model: &mut Model, now: &mut Instant, draws: &mut StdRng) {
    let key = draws.random_range(0..6u8);
    match draws.random_range(0..100) {
        0..30 => {
            queue.add(key);
            model.add(key);
        }
        30..45 => {
            let delay = Duration::from_millis(draws.random_range(1..50));
            queue.add_after(key, delay, *now);
            model.add_at(key, *now + delay);
        }
        45..50 => {
            // The limiter has tests of its own: here its answer is taken as given.
            let before = queue.due.get(&key).map(|place| place.0);
            queue.retry(key, *now);
            match queue.due.get(&key).map(|place| place.0) {
                Some(at) if before != Some(at) => model.add_at(key, at),
                _ => {}
            }
        }
        50..60 => {
            *now += Duration::from_millis(draws.random_range(0..40));
            queue.tick(*now);
            model.tick(*now);
        }
        60..80 => assert_eq!(queue.take(), model.take()),
        80..99 => {
            if let Some(key) = model.processing.choose(draws).copied() {
                queue.done(&key);
                model.done(key);
            }
        }
        _ if draws.random_bool(0.1) => {
            queue.shut_down();
            model.shut = true;
            model.delayed.clear();
        }
        _ => {}
    }
}

fn compare(queue: &Queue<u8>, model: &Model) {
    assert_eq!(queue.ready.iter().copied().collect::<Vec<u8>>(), model.ready);
    assert_eq!(queue.processing.len(), model.processing.len());
    assert_eq!(queue.dirty.len(), model.ready.len() + model.again.len());
    assert_eq!(queue.next_due(), model.delayed.iter().map(|(at, _)| *at).min());
    assert_eq!(queue.due.len(), queue.delayed.len());
    let left = !model.ready.is_empty() || !model.again.is_empty();
    assert_eq!(queue.is_over(), model.shut && !left);
    assert_eq!(queue.is_drained(), model.shut && !left && model.processing.is_empty());
}

#[test]
fn any_sequence_of_calls_agrees_with_the_model() {
    for seed in 0..2_000 {
        let mut draws = StdRng::seed_from_u64(seed);
        let mut now = Instant::now();
        let mut queue = Queue::new(RateLimits::default(), now);
        let mut model = Model::default();
        for _ in 0..200 {
            step(&mut queue, &mut model, &mut now, &mut draws);
            compare(&queue, &model);
        }
    }
}
