//! How far a migration has got, as the destination keeps it.

use bytes::Bytes;

/// Kept at the destination for as long as the migration lasts.
pub const PROGRESS_KEY: &[u8] = b"\0meerkat/migration";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The keys up to `after` are copied as they were at revision `at`.
    Copying { at: i64, after: Bytes },
    /// Every revision below `next` is carried, and the first `done` changes of it.
    Following { next: i64, done: usize },
}

impl Progress {
    pub fn encode(&self) -> Bytes {
        match self {
            Progress::Copying { at, after } => {
                let hex: String = after.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("copying {at} {hex}").into()
            }
            Progress::Following { next, done } => format!("following {next} {done}").into(),
        }
    }

    pub fn decode(bytes: &[u8]) -> Option<Progress> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.split(' ');
        let (stage, number, rest) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        match (stage, words.next()) {
            ("copying", None) => Some(Progress::Copying { at: number, after: unhex(rest)? }),
            ("following", None) => Some(Progress::Following { next: number, done: rest.parse().ok()? }),
            _ => None,
        }
    }
}

fn unhex(text: &str) -> Option<Bytes> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_back_and_nothing_else_does() {
        let all = [
            Progress::Copying { at: 7, after: Bytes::new() },
            Progress::Copying { at: i64::MAX, after: Bytes::from_static(b"\0a \xff") },
            Progress::Following { next: 9, done: 300 },
        ];
        for progress in all {
            assert_eq!(Progress::decode(&progress.encode()), Some(progress));
        }
        for text in ["", "copying 7", "copying 7 abc", "copying x ", "following 9 3 4", "gone 1 2"] {
            assert_eq!(Progress::decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
