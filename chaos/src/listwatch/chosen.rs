//! Label selectors of every kind, drawn at random, with an evaluation of our own.

use rand::Rng;
use rand::rngs::StdRng;

use super::stock::Labels;

/// Keys and values that objects and selectors are drawn from. `n` has numbers.
const KEYS: [&str; 4] = ["a", "b", "c", "n"];
const VALUES: [&str; 4] = ["x", "y", "z", ""];

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    Is(String, String),
    IsNot(String, String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Has(String),
    HasNot(String),
    Above(String, i64),
    Below(String, i64),
}

impl Term {
    fn draw(random: &mut StdRng) -> Term {
        let key = KEYS[random.random_range(0..KEYS.len())].to_owned();
        let value = |random: &mut StdRng| VALUES[random.random_range(0..VALUES.len())].to_owned();
        let several = |random: &mut StdRng| (0..random.random_range(1..4)).map(|_| value(random)).collect();
        match random.random_range(0..9) {
            0 | 1 => Term::Is(key, value(random)),
            2 => Term::IsNot(key, value(random)),
            3 => Term::In(key, several(random)),
            4 => Term::NotIn(key, several(random)),
            5 => Term::Has(key),
            6 => Term::HasNot(key),
            7 => Term::Above("n".to_owned(), random.random_range(0..10)),
            _ => Term::Below("n".to_owned(), random.random_range(0..10)),
        }
    }

    fn holds(&self, labels: &Labels) -> bool {
        let number = |key: &String| labels.get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Term::Is(key, value) => labels.get(key) == Some(value),
            Term::IsNot(key, value) => labels.get(key) != Some(value),
            Term::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Term::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Term::Has(key) => labels.contains_key(key),
            Term::HasNot(key) => !labels.contains_key(key),
            Term::Above(key, bound) => number(key).is_some_and(|number| *bound < number),
            Term::Below(key, bound) => number(key).is_some_and(|number| number < *bound),
        }
    }

    /// As it stands in a query, escaped.
    fn text(&self) -> String {
        match self {
            Term::Is(key, value) => format!("{key}%3D{value}"),
            Term::IsNot(key, value) => format!("{key}!%3D{value}"),
            Term::In(key, values) => format!("{key}%20in%20({})", values.join(",")),
            Term::NotIn(key, values) => format!("{key}%20notin%20({})", values.join(",")),
            Term::Has(key) => key.clone(),
            Term::HasNot(key) => format!("!{key}"),
            Term::Above(key, bound) => format!("{key}%3E{bound}"),
            Term::Below(key, bound) => format!("{key}%3C{bound}"),
        }
    }
}

/// Conditions that must all hold.
pub fn draw(random: &mut StdRng) -> Vec<Term> {
    (0..random.random_range(1..4)).map(|_| Term::draw(random)).collect()
}

pub fn holds(terms: &[Term], labels: &Labels) -> bool {
    terms.iter().all(|term| term.holds(labels))
}

/// As it stands in a query, escaped.
pub fn text(terms: &[Term]) -> String {
    terms.iter().map(Term::text).collect::<Vec<_>>().join(",")
}

/// Labels of one object: each key is there or not.
pub fn labels(random: &mut StdRng) -> Labels {
    let mut labels = Labels::new();
    for key in KEYS {
        if random.random_bool(0.7) {
            let value = match key {
                "n" => random.random_range(0..10).to_string(),
                _ => VALUES[random.random_range(0..VALUES.len())].to_owned(),
            };
            labels.insert(key.to_owned(), value);
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_missing_label_is_not_equal_and_not_in_and_no_number() {
        let labels = Labels::from([("a".to_owned(), "x".to_owned()), ("n".to_owned(), "5".to_owned())]);
        let (b, x) = ("b".to_owned(), "x".to_owned());
        assert!(Term::IsNot(b.clone(), x.clone()).holds(&labels));
        assert!(Term::NotIn(b.clone(), vec![x.clone()]).holds(&labels));
        assert!(!Term::Is(b.clone(), x.clone()).holds(&labels) && Term::Is("a".to_owned(), x).holds(&labels));
        assert!(!Term::Above(b, 1).holds(&labels) && Term::Above("n".to_owned(), 4).holds(&labels));
        assert!(!Term::Below("n".to_owned(), 5).holds(&labels));
    }

    #[test]
    fn some_selectors_choose_some_objects_and_not_all() {
        let mut random = StdRng::seed_from_u64(1);
        let objects: Vec<Labels> = (0..200).map(|_| labels(&mut random)).collect();
        let chosen = |terms: &[Term]| objects.iter().filter(|labels| holds(terms, labels)).count();
        let counts: Vec<usize> = (0..100).map(|_| chosen(&draw(&mut random))).collect();
        let part = counts.iter().filter(|count| 0 < **count && **count < 200).count();
        assert!(50 < part, "{counts:?}");
    }
}
