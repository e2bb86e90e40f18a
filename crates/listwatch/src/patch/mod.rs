//! Changes to an object, in the four languages that clients speak.
//!
//! Each language is a function from the object as it is and the patch to the object as it shall be. None
//! looks at who asks or at what the kind allows: what comes out goes through the write rules like any
//! update. A patch that fails leaves nothing half done, and a hostile one costs bounded time and memory.

pub mod apply;
pub mod field_set;
pub mod json;
pub mod lists;
mod managers;
pub mod merge;
pub mod strategic;
pub mod typed;

use crate::status::{Reason, Refusal};

/// Bytes of a message that quotes a patch.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The language of a patch, which is told by its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    /// `built_in`: the kind is one whose lists have known merge keys. Those of a CRD have none, so that a
    /// strategic patch means nothing there.
    pub fn of_content_type(content_type: &str, built_in: bool) -> Result<PatchType, Refusal> {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/strategic-merge-patch+json" if built_in => Ok(PatchType::Strategic),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            _ => {
                let supported = if built_in {
                    "application/json-patch+json, application/merge-patch+json, \
                     application/strategic-merge-patch+json, application/apply-patch+yaml"
                } else {
                    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                };
                let message = format!("the patch is in no known format; known are: {supported}");
                Err(Refusal::new(Reason::UnsupportedMediaType, message))
            }
        }
    }
}

/// A patch that can be read and cannot be carried out. What the message quotes of it is cut.
fn unprocessable(message: impl Into<String>) -> Refusal {
    let mut message = message.into();
    if MESSAGE_BYTES_MAX < message.len() {
        let mut end = MESSAGE_BYTES_MAX;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    Refusal::new(Reason::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_quote_is_cut() {
        let message = unprocessable("\u{e9}".repeat(10_000)).message;
        assert!(message.len() <= MESSAGE_BYTES_MAX + 3 && message.ends_with("..."));
    }

    #[test]
    fn the_content_type_tells_the_language() {
        for (content_type, built_in, expected) in [
            ("application/json-patch+json", false, Ok(PatchType::Json)),
            ("application/merge-patch+json; charset=utf-8", false, Ok(PatchType::Merge)),
            ("Application/Strategic-Merge-Patch+json", true, Ok(PatchType::Strategic)),
            ("application/strategic-merge-patch+json", false, Err(415)),
            ("application/apply-patch+yaml", false, Ok(PatchType::Apply)),
            ("application/json", true, Err(415)),
            ("", true, Err(415)),
        ] {
            let found = PatchType::of_content_type(content_type, built_in).map_err(|refusal| refusal.code());
            assert_eq!(found, expected, "{content_type}");
        }
    }
}
