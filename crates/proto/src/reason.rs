//! Why something outside failed, in the words of Go's tools, which scripts look for.

use std::error::Error;
use std::io;

/// The reason under all the layers that passed it on.
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut reason = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    reason.downcast_ref::<io::Error>().map_or_else(|| reason.to_string(), of_system)
}

/// What the operating system says, as Go writes it: in lower case, without the number.
pub fn of_system(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(code) = error.raw_os_error() else { return text };
    let said = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
    let mut letters = said.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("a layer")]
    struct Layer(#[source] io::Error);

    #[test]
    fn system_errors_read_as_from_go() {
        // ECONNREFUSED and ENOENT on Linux.
        for (code, expected) in [(111, "connection refused"), (2, "no such file or directory")] {
            assert_eq!(of_system(&io::Error::from_raw_os_error(code)), expected);
            assert_eq!(innermost(&Layer(io::Error::from_raw_os_error(code))), expected);
        }
        assert_eq!(of_system(&io::Error::other("Not the system")), "Not the system");
    }
}
