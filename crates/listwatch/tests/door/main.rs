//! The door over a real socket and a store in memory: what clients rely on, and what they must not be able
//! to do.

mod hostile;
mod limits;
mod long_lists;
mod pages;
mod reads;
mod rig;
mod rules;
mod sockets;
mod trouble;
mod watches;
mod writes;
