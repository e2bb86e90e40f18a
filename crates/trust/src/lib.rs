//! Which certificates are believed, on both sides of a connection.
//!
//! What the library below believes, and one thing more: a certificate that says of itself that it is an
//! authority (`CA:TRUE`) may be shown by a server or a client, as Go allows and as many set-ups have it, where
//! one self-signed certificate is both what is shown and what is trusted. Nothing else is eased: times,
//! purposes, names, signatures, revocations and the constraints of those that signed are all looked at.
//!
//! ```text
//!   rustls' verifier ──► believed
//!          └──► "an authority used as an end entity" ──► authority_leaf ──► believed, or why not
//! ```

mod authority_leaf;
mod callers;
pub mod certificate;
mod der;
mod roots;
mod servers;

pub use callers::callers;
pub use roots::Roots;
pub use servers::servers;
