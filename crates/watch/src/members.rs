//! The watchers of one key or one range: mostly one, at times thousands.
//!
//! Removal is by place, and the last one moves into the gap; whoever removes tells the moved one.

#[derive(Debug)]
pub(crate) enum Members {
    One(u32),
    Many(Vec<u32>),
}

impl Members {
    /// Adds one; says at which place.
    pub(crate) fn push(&mut self, slot: u32) -> u32 {
        match self {
            Members::One(first) => {
                *self = Members::Many(vec![*first, slot]);
                1
            }
            Members::Many(slots) => {
                slots.push(slot);
                (slots.len() - 1) as u32
            }
        }
    }

    /// Takes `slot` out of its place. Not for the last one: then the whole list goes.
    /// Says who now stands in that place, if somebody moved.
    pub(crate) fn remove(&mut self, slot: u32, place: u32) -> Option<u32> {
        let Members::Many(slots) = self else { unreachable!("the last one leaves with its list") };
        let removed = slots.swap_remove(place as usize);
        assert_eq!(removed, slot, "a watcher knows its place");
        let moved = slots.get(place as usize).copied();
        if let [last] = slots.as_slice() {
            *self = Members::One(*last);
        }
        moved
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Members::One(slot) => std::slice::from_ref(slot),
            Members::Many(slots) => slots,
        }
    }
}
