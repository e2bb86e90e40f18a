//! Errors, by what the caller can do.
//!
//! Always true: an error says [`Fate::Refused`] or [`Fate::NotDone`] only when it is certain that
//! nothing changed. When in doubt it is [`Fate::Unknown`].

use crate::retry::Seen;
use meerkat_proto::error_text::EtcdError;
use std::fmt;
use std::sync::Arc;
use tonic::{Code, Status};

/// What became of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// A member answered no. Nothing changed, and asking again as is would be useless.
    Refused,
    /// It certainly did not happen. Sending it again is safe and may well work.
    NotDone,
    /// It may have happened. Look before you repeat.
    Unknown,
}

/// Where a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A member answered with an error.
    Answered,
    /// No endpoint could be connected to.
    Unreachable,
    /// The connection was lost while the request was under way.
    Broken,
    /// The time given to the request was over.
    Deadline,
    /// The request or the configuration cannot be meant; nothing was sent.
    Invalid,
    /// A member answered with something that is not an answer to the request.
    Garbled,
}

/// A failed request. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    fate: Fate,
    kind: ErrorKind,
    code: Option<Code>,
    etcd: Option<EtcdError>,
    message: String,
    endpoint: Option<Arc<str>>,
}

impl Error {
    /// What became of the request.
    pub fn fate(&self) -> Fate {
        self.0.fate
    }

    /// Where it failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The gRPC code, if a member or the transport gave one.
    pub fn code(&self) -> Option<Code> {
        self.0.code
    }

    /// The error that etcd clients know by this exact text.
    pub fn etcd(&self) -> Option<EtcdError> {
        self.0.etcd
    }

    /// The text as it came, without the advice that `Display` adds.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The endpoint that was asked last.
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    fn new(fate: Fate, kind: ErrorKind, message: impl Into<String>) -> Error {
        let inner = Inner { fate, kind, code: None, etcd: None, message: message.into(), endpoint: None };
        Error(Arc::new(inner))
    }

    /// The request or the configuration cannot be meant; nothing was sent.
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(Fate::Refused, ErrorKind::Invalid, message)
    }

    /// What a server would say, said before sending.
    pub(crate) fn refused_here(error: EtcdError) -> Error {
        Error(Arc::new(Inner {
            fate: Fate::Refused,
            kind: ErrorKind::Invalid,
            code: Some(error.code()),
            etcd: Some(error),
            message: error.message().to_owned(),
            endpoint: None,
        }))
    }

    /// The member answered, but not with an answer to this request.
    pub(crate) fn garbled(fate: Fate, message: impl Into<String>) -> Error {
        Error::new(fate, ErrorKind::Garbled, message)
    }

    /// No endpoint to send to.
    pub(crate) fn unreachable(message: impl Into<String>) -> Error {
        Error::new(Fate::NotDone, ErrorKind::Unreachable, message)
    }

    pub(crate) fn from_status(fate: Fate, seen: Seen, status: &Status, endpoint: Option<Arc<str>>) -> Error {
        let kind = match seen {
            Seen::NotSent => ErrorKind::Unreachable,
            Seen::Broken | Seen::Abandoned => ErrorKind::Broken,
            Seen::Deadline => ErrorKind::Deadline,
            Seen::Answered { .. } => ErrorKind::Answered,
        };
        let etcd = match seen {
            Seen::Answered { etcd, .. } => etcd,
            Seen::NotSent | Seen::Broken | Seen::Abandoned | Seen::Deadline => None,
        };
        let message = with_causes(status);
        Error(Arc::new(Inner { fate, kind, code: Some(status.code()), etcd, message, endpoint }))
    }

    /// The same failure with another fate.
    #[must_use]
    pub(crate) fn with_fate(self, fate: Fate) -> Error {
        let inner = &*self.0;
        Error(Arc::new(Inner {
            fate,
            kind: inner.kind,
            code: inner.code,
            etcd: inner.etcd,
            message: inner.message.clone(),
            endpoint: inner.endpoint.clone(),
        }))
    }
}

/// The transport hides the reason ("connection refused") behind its own words; a person wants both.
fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    // Bounded: chains are a few links long, and a loop in one is not ours to follow.
    for _ in 0..8 {
        let Some(error) = cause else { break };
        let part = error.to_string();
        if !part.is_empty() && !text.contains(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        cause = error.source();
    }
    if text.is_empty() { format!("{:?}", status.code()) } else { text }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if let Some(endpoint) = &self.0.endpoint {
            write!(f, " (from {endpoint})")?;
        }
        f.write_str(match self.0.fate {
            Fate::Refused => "; refused: nothing changed, change the request before asking again",
            Fate::NotDone => "; not done: it is safe to ask again",
            Fate::Unknown => "; outcome unknown: it may have happened, look before asking again",
        })
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("fate", &self.0.fate)
            .field("kind", &self.0.kind)
            .field("code", &self.0.code)
            .field("message", &self.0.message)
            .field("endpoint", &self.0.endpoint)
            .finish()
    }
}

impl std::error::Error for Error {}
