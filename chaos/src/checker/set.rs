//! A set to which elements are only added shows every element from its acknowledgement on, and none
//! that was refused or never sent.
//!
//! An element of unknown outcome may be there or not; once somebody has seen it, it stays.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::outcome::Outcome;

/// One attempt to add an element. No element is added twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Which.
    pub element: u64,
    /// When it was sent.
    pub invoked: Duration,
    /// When its outcome was known.
    pub returned: Duration,
    /// What its client knows.
    pub outcome: Outcome<()>,
}

/// One answered read of the whole set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The member that answered.
    pub member: usize,
    /// When it was sent.
    pub invoked: Duration,
    /// When it was answered.
    pub returned: Duration,
    /// All elements it showed, each once.
    pub elements: Vec<u64>,
}

/// What the looks show that they must not, and what they do not show that they must.
pub fn check(adds: &[Add], looks: &[Look]) -> Vec<String> {
    let sent: HashMap<u64, &Add> = adds.iter().map(|add| (add.element, add)).collect();
    let mut findings = Vec::new();
    // From when each element has to be shown: its acknowledgement, or the first look that showed it.
    let mut due: HashMap<u64, Duration> = HashMap::new();
    for add in adds.iter().filter(|add| add.outcome.ok().is_some()) {
        due.insert(add.element, add.returned);
    }
    for look in looks {
        for element in &look.elements {
            findings.extend(foreign(look, *element, sent.get(element).copied()));
            let since = due.entry(*element).or_insert(look.returned);
            *since = (*since).min(look.returned);
        }
    }
    let mut by_due: BTreeMap<Duration, Vec<u64>> = BTreeMap::new();
    for (element, since) in due {
        by_due.entry(since).or_default().push(element);
    }
    for look in looks {
        let shown: std::collections::HashSet<u64> = look.elements.iter().copied().collect();
        if shown.len() != look.elements.len() {
            findings.push(format!("shown twice by {}", brief(look)));
        }
        let owed = by_due.range(..look.invoked).flat_map(|(since, elements)| {
            elements.iter().filter(|element| !shown.contains(*element)).map(move |element| (since, element))
        });
        let missing: Vec<_> = owed.collect();
        if let Some((since, element)) = missing.first() {
            findings.push(format!(
                "{} missing from {}, the first of them {element}, there since {since:?}: {:?}",
                missing.len(),
                brief(look),
                sent.get(*element)
            ));
        }
    }
    findings
}

fn foreign(look: &Look, element: u64, add: Option<&Add>) -> Option<String> {
    match add {
        None => Some(format!("{element} was never added, but is shown by {}", brief(look))),
        Some(add) if look.returned < add.invoked => {
            Some(format!("shown before it was sent, by {}: {add:?}", brief(look)))
        }
        Some(add) if matches!(add.outcome, Outcome::Failed(_)) => {
            Some(format!("refused, but shown by {}: {add:?}", brief(look)))
        }
        Some(_) => None,
    }
}

fn brief(look: &Look) -> String {
    format!(
        "the look at m{} from {:?} to {:?} ({} elements)",
        look.member,
        look.invoked,
        look.returned,
        look.elements.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn add(element: u64, invoked: u64, returned: u64, outcome: Outcome<()>) -> Add {
        Add { element, invoked: at(invoked), returned: at(returned), outcome }
    }

    fn look(invoked: u64, returned: u64, elements: &[u64]) -> Look {
        Look { member: 0, invoked: at(invoked), returned: at(returned), elements: elements.to_vec() }
    }

    fn ok(element: u64) -> Add {
        add(element, 10, 20, Outcome::Ok(()))
    }

    #[test]
    fn what_was_acknowledged_is_shown_from_then_on() {
        assert!(check(&[ok(1), ok(2)], &[look(21, 22, &[1, 2])]).is_empty());
        assert!(check(&[ok(1), ok(2)], &[look(15, 22, &[2])]).is_empty(), "the look began before");
        assert_eq!(check(&[ok(1), ok(2)], &[look(21, 22, &[2])]).len(), 1);
    }

    #[test]
    fn what_was_refused_or_never_sent_is_not_shown() {
        let refused = add(1, 10, 20, Outcome::Failed("no".into()));
        assert!(check(std::slice::from_ref(&refused), &[look(21, 22, &[])]).is_empty());
        assert_eq!(check(&[refused], &[look(21, 22, &[1])]).len(), 1);
        assert_eq!(check(&[], &[look(21, 22, &[1])]).len(), 1);
    }

    #[test]
    fn nothing_is_shown_before_it_was_sent_nor_twice() {
        assert_eq!(check(&[ok(1)], &[look(1, 5, &[1])]).len(), 1);
        assert_eq!(check(&[ok(1)], &[look(21, 25, &[1, 1])]).len(), 1);
    }

    #[test]
    fn what_nobody_knows_may_be_there_or_not_but_stays_once_seen() {
        let unknown = [add(1, 10, 20, Outcome::Unknown("lost".into()))];
        assert!(check(&unknown, &[look(21, 22, &[])]).is_empty());
        assert!(check(&unknown, &[look(21, 22, &[]), look(30, 31, &[1])]).is_empty());
        assert_eq!(check(&unknown, &[look(21, 22, &[1]), look(30, 31, &[])]).len(), 1);
    }

    #[test]
    fn an_acknowledged_element_seen_early_is_owed_from_then_on() {
        let slow = [add(1, 10, 90, Outcome::Ok(()))];
        assert_eq!(check(&slow, &[look(20, 30, &[1]), look(40, 50, &[])]).len(), 1);
    }
}
