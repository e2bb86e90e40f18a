//! Leases by name.

/// Any number but zero; zero is how the wire spells "no lease".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(i64);

impl LeaseId {
    /// `None` for the wire's zero.
    pub fn from_wire(id: i64) -> Option<LeaseId> {
        if id == 0 { None } else { Some(LeaseId(id)) }
    }

    pub fn get(self) -> i64 {
        self.0
    }
}
