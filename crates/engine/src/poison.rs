//! After one failed write, refuse all further ones.
//!
//! A failed write or flush leaves memory and disk in unknown relation: going on could make a later
//! batch durable without the earlier one. Set once, never cleared; a restart is the cure.

use std::sync::OnceLock;

#[derive(Default)]
pub(crate) struct Poison {
    reason: OnceLock<String>,
}

impl Poison {
    /// Why writing has ended, if it has.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Ends writing. The first reason is the one that is kept: the rest are its consequences.
    pub(crate) fn set(&self, reason: &str) {
        if self.reason.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "the database takes no more writes");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays() {
        let poison = Poison::default();
        assert_eq!(poison.reason(), None);
        poison.set("disk full");
        poison.set("because of that");
        assert_eq!(poison.reason(), Some("disk full"));
    }
}
