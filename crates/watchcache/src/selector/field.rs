//! Field selectors: `metadata.name=web,status.phase!=Running`.
//!
//! Only equal and not equal. In a value a backslash, a comma and an equals sign stand behind a
//! backslash. A field that an object lacks reads as empty. Which fields a kind can be selected by is
//! for the caller to say: any other is refused, because it could only match nothing or everything.

use super::{Lookup, SelectorError, check_count, check_length};
use crate::request_path::is_path_segment;
use meerkat_kubernetes::excerpt::excerpt;
use meerkat_kubernetes::status::Refusal;
use std::fmt;

/// Every kind can be selected by these two.
pub const METADATA_NAME: &str = "metadata.name";
pub const METADATA_NAMESPACE: &str = "metadata.namespace";

/// Holds for an object if all its terms do. Without terms it holds for every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    /// Sorted, and none twice.
    terms: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldTerm {
    Is { field: String, value: String },
    IsNot { field: String, value: String },
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        check_length(text)?;
        let mut terms = Vec::new();
        for (at, part) in parts(text).filter(|(_, part)| !part.is_empty()) {
            check_count(terms.len(), at)?;
            terms.push(term(at, part)?);
        }
        terms.sort();
        terms.dedup();
        Ok(FieldSelector { terms })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// `fields`: the selectable ones of an object, its name and its namespace among them.
    pub fn matches(&self, fields: &impl Lookup) -> bool {
        let read = |field: &str| fields.value(field).unwrap_or_default();
        self.terms.iter().all(|term| match term {
            FieldTerm::Is { field, value } => read(field) == value,
            FieldTerm::IsNot { field, value } => read(field) != value,
        })
    }

    /// The value that the field has in every object that is selected. There may be contradictory ones,
    /// so this narrows a search but does not replace [`FieldSelector::matches`].
    pub fn required(&self, asked: &str) -> Option<&str> {
        self.terms.iter().find_map(|term| match term {
            FieldTerm::Is { field, value } if field == asked => Some(value.as_str()),
            _ => None,
        })
    }

    /// The name of the only object that can be selected, if it can be a part of a key.
    pub fn only_name(&self) -> Option<&str> {
        self.required(METADATA_NAME).filter(|name| is_path_segment(name))
    }

    /// `selectable`: which fields the kind has, apart from the two that every kind has.
    pub fn check_fields(&self, selectable: impl Fn(&str) -> bool) -> Result<(), Refusal> {
        for term in &self.terms {
            let field = term.field();
            if field != METADATA_NAME && field != METADATA_NAMESPACE && !selectable(field) {
                return Err(Refusal::bad_request(format!("field label not supported: {}", excerpt(field))));
            }
        }
        Ok(())
    }
}

impl FieldTerm {
    pub fn field(&self) -> &str {
        match self {
            FieldTerm::Is { field, .. } | FieldTerm::IsNot { field, .. } => field,
        }
    }
}

/// The one spelling that all selectors of this meaning share. It parses to the same selector.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, term) in self.terms.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            let (field, sign, value) = match term {
                FieldTerm::Is { field, value } => (field, "=", value),
                FieldTerm::IsNot { field, value } => (field, "!=", value),
            };
            write!(f, "{comma}{field}{sign}{}", escaped(value))?;
        }
        Ok(())
    }
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Cuts at the commas that stand behind no backslash, and says where each part begins.
fn parts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut behind_backslash = false;
    let is_cut = move |c: char| {
        let cut = c == ',' && !behind_backslash;
        behind_backslash = c == '\\' && !behind_backslash;
        cut
    };
    let mut at = 0;
    text.split(is_cut).map(move |part| {
        let begin = at;
        at += part.len() + 1;
        (begin, part)
    })
}

fn term(at: usize, part: &str) -> Result<FieldTerm, SelectorError> {
    // The leftmost sign counts, and of two that begin there the longer one.
    let Some(sign_at) = part.find(['=', '!']) else {
        return Err(SelectorError::new(at, format!("found {:?}, expected =, == or != in it", excerpt(part))));
    };
    let (field, rest) = part.split_at(sign_at);
    if field.is_empty() {
        return Err(SelectorError::new(at, format!("found {:?}, expected a field in front", excerpt(part))));
    }
    let (sign, raw) = ["!=", "==", "="]
        .into_iter()
        .find_map(|sign| rest.strip_prefix(sign).map(|raw| (sign, raw)))
        .ok_or_else(|| SelectorError::new(at + sign_at, "found '!', expected =, == or !="))?;
    let (field, value) = (field.to_owned(), unescaped(at + sign_at + sign.len(), raw)?);
    Ok(if sign == "!=" { FieldTerm::IsNot { field, value } } else { FieldTerm::Is { field, value } })
}

fn unescaped(at: usize, raw: &str) -> Result<String, SelectorError> {
    let mut value = String::with_capacity(raw.len());
    let mut chars = raw.char_indices();
    while let Some((offset, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped @ ('\\' | ',' | '='))) => value.push(escaped),
                _ => {
                    let cause = "a backslash stands before a backslash, a comma or an equals sign only";
                    return Err(SelectorError::new(at + offset, cause));
                }
            },
            '=' => return Err(SelectorError::new(at + offset, "found '=' in a value without a backslash")),
            plain => value.push(plain),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::super::{SELECTOR_BYTES_MAX, TERMS_MAX};
    use super::*;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    fn parse(text: &str) -> FieldSelector {
        FieldSelector::parse(text).unwrap_or_else(|why| panic!("{text:?}: {why}"))
    }

    #[test]
    fn every_spelling_has_one_canonical_form() {
        for (text, canonical) in [
            ("", ""),
            (",", ""),
            ("a=b", "a=b"),
            ("a==b", "a=b"),
            ("a!=b", "a!=b"),
            ("a=", "a="),
            ("a!=", "a!="),
            ("b=1,,a=2,b=1,", "a=2,b=1"),
            ("a=x y", "a=x y"),
            ("a=b!", "a=b!"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            (r"a=x\\,b=y", r"a=x\\,b=y"),
            ("a=ü", "a=ü"),
        ] {
            assert_eq!(parse(text).to_string(), canonical, "{text:?}");
            assert_eq!(parse(canonical), parse(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, at) in [
            ("a", 0),
            ("x=1,a", 4),
            ("=b", 0),
            ("!=b", 0),
            ("a!b", 1),
            ("!a", 0),
            ("a=b=c", 3),
            ("a===b", 3),
            (r"a=\x", 2),
            (r"x=1,a=b\", 7),
        ] {
            assert_eq!(FieldSelector::parse(text).expect_err(text).at, at, "{text:?}");
        }
    }

    #[test]
    fn a_selector_is_bounded() {
        let many = vec!["a=1"; TERMS_MAX].join(",");
        assert_eq!(parse(&many).to_string(), "a=1");
        assert!(FieldSelector::parse(&format!("{many},a=1")).is_err());
        assert!(FieldSelector::parse(&",".repeat(SELECTOR_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn a_field_that_is_not_there_reads_as_empty() {
        let fields = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("", true),
            ("a=1", true),
            ("a=2", false),
            ("a!=1", false),
            ("a!=2", true),
            ("b=", true),
            ("b!=", false),
            ("b!=1", true),
            ("a=1,b=1", false),
            ("a=1,a=2", false),
        ] {
            assert_eq!(parse(text).matches(&fields), expected, "{text:?}");
        }
    }

    #[test]
    fn one_name_narrows_the_search() {
        for (text, name) in [
            ("metadata.name=a", Some("a")),
            ("metadata.namespace==b,metadata.name==a", Some("a")),
            ("metadata.name!=a", None),
            ("spec.nodeName=a", None),
            ("metadata.name=", None),
            ("metadata.name=..,metadata.namespace=a/b", None),
        ] {
            assert_eq!(parse(text).only_name(), name, "{text:?}");
        }
        assert_eq!(parse("spec.nodeName=n").required("spec.nodeName"), Some("n"));
    }

    #[test]
    fn a_field_that_the_kind_does_not_offer_is_a_bad_request() {
        let selector = parse("metadata.name=a,metadata.namespace=b,spec.nodeName=c");
        assert_eq!(selector.check_fields(|field| field == "spec.nodeName"), Ok(()));
        let refusal = selector.check_fields(|_| false).expect_err("not selectable");
        assert_eq!(
            (refusal.code(), refusal.message.as_str()),
            (400, "field label not supported: spec.nodeName")
        );
    }

    #[test]
    fn values_survive_their_escaping() {
        let mut rng = StdRng::seed_from_u64(10);
        for _ in 0..2_000 {
            let mut terms: Vec<FieldTerm> = (0..rng.random_range(0..4))
                .map(|_| {
                    let value: String = (0..rng.random_range(0..6))
                        .map(|_| *['\\', ',', '=', '!', 'a', ' ', 'é'].choose(&mut rng).expect("not empty"))
                        .collect();
                    let field = (*["a", "b.c"].choose(&mut rng).expect("not empty")).to_owned();
                    if rng.random_bool(0.5) {
                        FieldTerm::Is { field, value }
                    } else {
                        FieldTerm::IsNot { field, value }
                    }
                })
                .collect();
            terms.sort();
            terms.dedup();
            let selector = FieldSelector { terms };
            assert_eq!(parse(&selector.to_string()), selector);
        }
    }
}
