//! Ways to show something wrong. Each is done to what was seen of a good life, and says whether it
//! could be done to this one.

use super::Life;
use super::judge::{self, Told};
use bytes::Bytes;

type Harm = fn(&mut Life) -> bool;

pub const HARMS: [(&str, Harm); 10] = [
    ("an object is missing from the cache", object_missing),
    ("an object is left in an index", left_in_index),
    ("the cache claims a revision it has not reached", revision_too_high),
    ("the cache is half empty after a relist", half_empty),
    ("the last thing a handler was told is lost", last_word_lost),
    ("an addition comes twice", added_twice),
    ("a delete is swallowed", delete_swallowed),
    ("an update tells of another past", another_past),
    ("a handler is not warned of a value that cannot be decoded", not_warned),
    ("a state that never was", never_was),
];

fn object_missing(life: &mut Life) -> bool {
    life.looks.iter_mut().rev().any(|seen| seen.objects.pop_last().is_some())
}

fn left_in_index(life: &mut Life) -> bool {
    life.looks.iter_mut().rev().any(|seen| {
        let Some(key) = seen.objects.keys().next().cloned() else { return false };
        seen.indexed.entry("?".to_owned()).or_default().push(key);
        true
    })
}

fn revision_too_high(life: &mut Life) -> bool {
    let world = life.world.lock();
    let expected = |revision: i64| world.at(revision).map(judge::expected);
    life.looks.iter_mut().any(|seen| {
        let Some(revision) = seen.revision else { return false };
        if world.current() <= revision || expected(revision) == expected(revision + 1) {
            return false;
        }
        seen.revision = Some(revision + 1);
        true
    })
}

fn half_empty(life: &mut Life) -> bool {
    life.looks.iter_mut().rev().any(|seen| {
        let before = seen.objects.len();
        let mut number = 0;
        seen.objects.retain(|_, _| {
            number += 1;
            number % 2 == 0
        });
        seen.objects.len() < before
    })
}

fn last_word_lost(life: &mut Life) -> bool {
    let counts = |told: &Told| !matches!(told, Told::Resync(..) | Told::Doubted(..));
    life.handlers.iter_mut().any(|told| remove(told, |told| told.iter().rposition(counts)))
}

fn added_twice(life: &mut Life) -> bool {
    life.handlers.iter_mut().any(|told| {
        let Some(first) = told.first().cloned() else { return false };
        told.insert(1, first);
        true
    })
}

fn delete_swallowed(life: &mut Life) -> bool {
    let gone = |told: &Told| matches!(told, Told::Gone { .. });
    life.handlers.iter_mut().any(|told| remove(told, |told| told.iter().position(gone)))
}

fn another_past(life: &mut Life) -> bool {
    life.handlers.iter_mut().flatten().any(|one| {
        let Told::Updated { old, .. } = one else { return false };
        old.modified -= 1;
        true
    })
}

fn not_warned(life: &mut Life) -> bool {
    let doubted = |one: &Told| matches!(one, Told::Doubted(..));
    life.handlers.iter_mut().any(|told| {
        let last_word = |key: &Bytes| told.iter().rev().find(|one| one.key() == key);
        let key = told.iter().map(Told::key).find(|key| last_word(key).is_some_and(doubted)).cloned();
        told.retain(|one| !doubted(one) || Some(one.key()) != key.as_ref());
        key.is_some()
    })
}

fn never_was(life: &mut Life) -> bool {
    life.handlers.iter_mut().flatten().any(|one| {
        let Told::Added(_, known) = one else { return false };
        known.value.push('x');
        true
    })
}

fn remove(told: &mut Vec<Told>, place: impl Fn(&[Told]) -> Option<usize>) -> bool {
    let place = place(told);
    if let Some(place) = place {
        told.remove(place);
    }
    place.is_some()
}
