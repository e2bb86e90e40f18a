//! The members that clients may talk to, as they come and go.

use std::sync::Arc;

use parking_lot::RwLock;
use rand::Rng;

use crate::endpoint::Endpoint;

/// One member, as clients know it.
#[derive(Clone, Debug)]
pub struct Contact {
    /// Its number on the ground.
    pub member: usize,
    /// The stubs.
    pub endpoint: Endpoint,
}

/// A list that all clients share. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Roster(Arc<RwLock<Vec<Contact>>>);

impl Roster {
    /// Those there are now.
    pub fn all(&self) -> Vec<Contact> {
        self.0.read().clone()
    }

    /// Of members that stay, numbered in this order.
    pub fn of(endpoints: &[Endpoint]) -> Self {
        let contact = |(member, endpoint): (usize, &Endpoint)| Contact { member, endpoint: endpoint.clone() };
        let roster = Self::default();
        roster.set(endpoints.iter().enumerate().map(contact).collect());
        roster
    }

    /// The one at a place, counted around. Panics if the list is empty.
    pub fn at(&self, place: usize) -> Contact {
        let contacts = self.0.read();
        contacts[place % contacts.len()].clone()
    }

    /// Replaces the list.
    pub fn set(&self, contacts: Vec<Contact>) {
        *self.0.write() = contacts;
    }

    /// Any of them. Panics if the list is empty, which it never is during a run.
    pub fn any(&self, dice: &mut impl Rng) -> Contact {
        let contacts = self.0.read();
        contacts[dice.random_range(0..contacts.len())].clone()
    }
}
