//! Selectors: which objects a list or a watch is about, by their labels and by their fields.
//!
//! A selector is a set of terms that must all hold. It is read once, at the door, where everything that
//! is wrong with it is found; matching cannot fail. Two texts with the same meaning as far as order,
//! spaces and repetition go make equal selectors, which print alike, so a selector can be a key of
//! something shared. Length and number of terms are bounded, because matching costs both per object.

mod field;
mod label;

pub use field::{FieldSelector, FieldTerm, METADATA_NAME, METADATA_NAMESPACE};
pub use label::{LabelSelector, LabelTerm, LabelTest};

use meerkat_kubernetes::status::Refusal;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Some hundred of the longest terms, or a set of a thousand of the longest values.
pub const SELECTOR_BYTES_MAX: usize = 64 << 10;
pub const TERMS_MAX: usize = 512;

/// The labels or the fields of one object.
pub trait Lookup {
    fn value(&self, key: &str) -> Option<&str>;
}

/// `metadata.labels` as it stands in an object.
impl Lookup for Map<String, Value> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }
}

impl Lookup for BTreeMap<String, String> {
    fn value(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// An object may have no labels at all.
impl<L: Lookup> Lookup for Option<&L> {
    fn value(&self, key: &str) -> Option<&str> {
        self.and_then(|labels| labels.value(key))
    }
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {cause}")]
pub struct SelectorError {
    /// Bytes before what is wrong.
    pub at: usize,
    pub cause: String,
}

impl SelectorError {
    fn new(at: usize, cause: impl Into<String>) -> SelectorError {
        SelectorError { at, cause: cause.into() }
    }

    /// `parameter`: where the selector stood.
    pub fn refusal(&self, parameter: &str) -> Refusal {
        Refusal::bad_request(format!("unable to parse {parameter}: {self}"))
    }
}

fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() <= SELECTOR_BYTES_MAX {
        return Ok(());
    }
    let cause = format!("a selector has at most {SELECTOR_BYTES_MAX} bytes");
    Err(SelectorError::new(SELECTOR_BYTES_MAX, cause))
}

fn check_count(terms: usize, at: usize) -> Result<(), SelectorError> {
    if terms < TERMS_MAX {
        return Ok(());
    }
    Err(SelectorError::new(at, format!("a selector has at most {TERMS_MAX} terms")))
}
