//! What a watcher is told of a change, by what its filter says of the object before and after.
//!
//! An object that leaves a filter is deleted as far as that watcher can see, and one that comes in is
//! added, whatever happened to it in the store. The scope is part of the filter and follows the same
//! rule. An object that was deleted and made again under its name is another object: never modified.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
}

impl EventType {
    /// As it is written in an event.
    pub fn name(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }
}

/// `is_same`: whether it is one object before and after.
pub fn transition(matched: bool, matches: bool, is_same: bool) -> &'static [EventType] {
    match (matched, matches) {
        (false, false) => &[],
        (false, true) => &[EventType::Added],
        (true, false) => &[EventType::Deleted],
        (true, true) if is_same => &[EventType::Modified],
        (true, true) => &[EventType::Deleted, EventType::Added],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventType::{Added, Deleted, Modified};

    #[test]
    fn every_way_into_and_out_of_a_filter() {
        assert_eq!(transition(false, false, true), []);
        assert_eq!(transition(false, true, true), [Added]);
        assert_eq!(transition(true, true, true), [Modified]);
        assert_eq!(transition(true, false, true), [Deleted]);
    }

    #[test]
    fn an_object_made_again_under_its_name_is_never_modified() {
        assert_eq!(transition(true, true, false), [Deleted, Added]);
        assert_eq!(transition(false, true, false), [Added]);
        assert_eq!(transition(true, false, false), [Deleted]);
    }
}
