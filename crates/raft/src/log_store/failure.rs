//! Why the log takes no more writes. The first reason stays; it is told to every later caller.

use std::fmt;
use std::io;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Failure {
    kind: io::ErrorKind,
    text: Arc<str>,
}

impl Failure {
    /// A write or sync went wrong while `doing`. What the disk now holds is unknown, so this is
    /// final; only a restart, which reads the disk again, can tell.
    pub fn of_disk(doing: &str, cause: &io::Error) -> Failure {
        Failure { kind: cause.kind(), text: format!("the log failed while {doing}: {cause}").into() }
    }

    pub fn closed() -> Failure {
        Failure { kind: io::ErrorKind::BrokenPipe, text: "the log is closed".into() }
    }

    pub fn panicked() -> Failure {
        Failure { kind: io::ErrorKind::Other, text: "the log failed: its flush thread panicked".into() }
    }

    /// An `io::Error` cannot be cloned; each caller gets one of its own.
    pub fn to_error(&self) -> io::Error {
        io::Error::new(self.kind, self.text.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
