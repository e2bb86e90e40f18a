//! Changes to an object, in the four languages that clients speak,
//! see [`crate::negotiation::PatchForm`].
//!
//! Each language is a function from the object as it is and the patch to the object as it shall be. None
//! looks at who asks or at what the kind allows: what comes out goes through the write rules like any
//! update. A patch that fails leaves nothing half done, and a hostile one costs bounded time and memory.

pub mod apply;
pub mod field_set;
pub mod json;
mod last_applied;
pub mod lists;
mod managers;
pub mod merge;
pub mod strategic;
pub mod typed;

use crate::excerpt::excerpt_of;
use crate::status::{Reason, Refusal};

/// Bytes of a message that quotes a patch.
const MESSAGE_BYTES_MAX: usize = 1024;

/// A patch that can be read and cannot be carried out. What the message quotes of it is cut.
fn unprocessable(message: impl Into<String>) -> Refusal {
    Refusal::new(Reason::Invalid, excerpt_of(&message.into(), MESSAGE_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_cut() {
        let message = unprocessable("\u{e9}".repeat(10_000)).message;
        assert!(message.len() <= MESSAGE_BYTES_MAX + 3 && message.ends_with("..."));
    }
}
