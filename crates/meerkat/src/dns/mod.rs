//! SRV records of a domain, asked of the name servers that this machine is told of.
//!
//! An answer is somebody else's input: what is not an answer to the question is passed over, and whatever is
//! wrong with one that is, is an error.

mod message;
mod resolver;
#[cfg(test)]
pub mod test_server;

pub use resolver::Resolver;
