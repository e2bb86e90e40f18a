//! What of the binary is more than a command line: the stores that the list-watch door is served from.
//!
//! Apart from `main`, so that tests meet them as the binary does.

pub mod listwatch;
