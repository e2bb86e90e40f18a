//! Who asks, and whether they may.
//!
//! Always true: while authentication is off a request pays one atomic load and a look into its metadata
//! for it, and nothing is allocated. While it is on, a write is let in here and judged again when it is
//! applied, where all members know the same; a read is judged by the same point of the state that it
//! reads. What is not known is refused.
//!
//! `credentials` is what a request says of who sent it, `guard` who that is and what they may do,
//! `simple` and `jwt` the two kinds of token, `password` what costs time on purpose. Which call is judged by its
//! name is in [`crate::methods`].

pub(crate) mod credentials;
pub(crate) mod guard;
pub(crate) mod jwt;
pub(crate) mod password;
pub(crate) mod simple;

pub(crate) use credentials::Credentials;
pub(crate) use guard::{Caller, Guard, NotAdmin, Proof};
pub(crate) use password::{PasswordError, Passwords};
pub(crate) use simple::SimpleTokens;
