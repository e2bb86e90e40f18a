//! What a call to the door can end in.

use serde_json::Value;
use std::fmt;

use crate::Fate;

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    fate: Fate,
    code: Option<u16>,
    reason: Option<String>,
    message: String,
}

impl Error {
    /// What became of the call.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// The HTTP status, if a member answered.
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// The reason in the member's Status, such as `NotFound`, `AlreadyExists` or `Conflict`.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        self.code == Some(404)
    }

    /// The object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some("AlreadyExists")
    }

    /// The object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.code == Some(409) && !self.is_already_exists()
    }

    /// The state asked for can no longer be read.
    pub fn is_expired(&self) -> bool {
        self.code == Some(410)
    }

    pub(crate) fn new(fate: Fate, message: impl Into<String>) -> Error {
        Error { fate, code: None, reason: None, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::new(Fate::Refused, message)
    }

    /// From an answer: `body` is a Status, or whatever a server in between says.
    pub(crate) fn answered(fate: Fate, code: u16, body: &[u8]) -> Error {
        let status: Option<Value> = serde_json::from_slice(body).ok();
        let text = |name: &str| {
            let text = status.as_ref().and_then(|status| status.get(name)).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let message = text("message").unwrap_or_else(|| format!("the member answered {code}"));
        Error { fate, code: Some(code), reason: text("reason"), message }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.fate {
            Fate::Refused => Ok(()),
            Fate::NotDone => f.write_str(" (nothing was done)"),
            Fate::Unknown => f.write_str(" (it may have happened)"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_by_its_reason_and_its_code() {
        let body =
            br#"{"kind":"Status","reason":"AlreadyExists","message":"pods \"a\" already exists","code":409}"#;
        let error = Error::answered(Fate::Refused, 409, body);
        assert!(error.is_already_exists() && !error.is_conflict());
        assert_eq!(error.to_string(), "pods \"a\" already exists");
        let error = Error::answered(Fate::Refused, 409, br#"{"reason":"Conflict"}"#);
        assert!(error.is_conflict());
        let error = Error::answered(Fate::Unknown, 502, b"<html>");
        assert_eq!(error.to_string(), "the member answered 502 (it may have happened)");
    }
}
