//! How many arguments a command takes, in `etcdctl`'s words when there are too many or too few.

use crate::failure::Failure;

/// The one argument that a command takes.
pub fn only<'a>(args: &'a [String], otherwise: &str) -> Result<&'a str, Failure> {
    match args {
        [one] => Ok(one),
        _ => Err(Failure::bad_arguments(otherwise)),
    }
}

/// For commands that take none.
pub fn none(args: &[String], otherwise: &str) -> Result<(), Failure> {
    if args.is_empty() { Ok(()) } else { Err(Failure::bad_arguments(otherwise)) }
}

/// The two arguments that a command takes.
pub fn pair<'a>(args: &'a [String], otherwise: &str) -> Result<(&'a str, &'a str), Failure> {
    match args {
        [one, other] => Ok((one, other)),
        _ => Err(Failure::bad_arguments(otherwise)),
    }
}
