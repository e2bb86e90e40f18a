//! Follows a connection's bytes from frame to frame, and sees each block of headers as a whole.

use super::{FRAME_BYTES, block};

/// What a connection over HTTP/2 opens with.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Of a frame: its length, its type, its flags and its stream.
pub(super) const HEAD_BYTES: usize = 9;

/// The type of frames that open a block of headers.
const HEADERS: u8 = 1;

/// Where in a connection the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// So many bytes were those of [`OPENING`].
    Opening(usize),
    /// In something else than HTTP/2, to the end.
    Foreign,
    BetweenFrames,
    /// So many bytes before the end of a frame that is of no concern.
    InFrame(usize),
}

/// What to do with the bytes that come next.
enum Step {
    /// So many pass as they are.
    Pass(usize),
    /// So many are a frame with headers, whole.
    Headers(usize),
    /// It cannot be told before there are more of them.
    Wait,
}

impl Position {
    /// Goes as far as one step leads. There is at least one byte.
    fn step(&mut self, bytes: &[u8]) -> Step {
        match *self {
            Position::Opening(matched) => {
                let rest = &OPENING[matched..];
                let length = rest.len().min(bytes.len());
                if bytes[..length] != rest[..length] {
                    *self = Position::Foreign;
                    return Step::Pass(bytes.len());
                }
                *self = match matched + length {
                    matched if matched < OPENING.len() => Position::Opening(matched),
                    _ => Position::BetweenFrames,
                };
                Step::Pass(length)
            }
            Position::Foreign => Step::Pass(bytes.len()),
            Position::BetweenFrames => self.begin_frame(bytes),
            Position::InFrame(left) => self.pass_frame(left, bytes.len()),
        }
    }

    fn begin_frame(&mut self, bytes: &[u8]) -> Step {
        let Some((head, after)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Step::Wait;
        };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if head[3] != HEADERS || FRAME_BYTES < length {
            return self.pass_frame(HEAD_BYTES + length, bytes.len());
        }
        if after.len() < length { Step::Wait } else { Step::Headers(HEAD_BYTES + length) }
    }

    fn pass_frame(&mut self, left: usize, there: usize) -> Step {
        let length = left.min(there);
        *self = if length == left { Position::BetweenFrames } else { Position::InFrame(left - length) };
        Step::Pass(length)
    }
}

#[derive(Debug)]
pub(super) struct Frames {
    position: Position,
    /// The beginning of a frame of which the rest has not come.
    held: Vec<u8>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames { position: Position::Opening(0), held: Vec::new() }
    }
}

impl Frames {
    /// Whether these bytes may go on just as they came. If not, nothing has happened yet, and they are to be
    /// [read](Frames::read).
    pub(super) fn pass(&mut self, came: &[u8]) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        let mut position = self.position;
        let mut rest = came;
        while !rest.is_empty() {
            let length = match position.step(rest) {
                Step::Headers(length) if block::with_a_host(&rest[..length]).is_none() => length,
                Step::Pass(length) => length,
                Step::Headers(_) | Step::Wait => return false,
            };
            rest = &rest[length..];
        }
        self.position = position;
        true
    }

    /// What goes on in place of these bytes and those held back before, as far as it can be told now.
    pub(super) fn read(&mut self, came: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(came);
        let mut out = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let length = match self.position.step(rest) {
                Step::Pass(length) => {
                    out.extend_from_slice(&rest[..length]);
                    length
                }
                Step::Headers(length) => {
                    match block::with_a_host(&rest[..length]) {
                        Some(frame) => out.extend(frame),
                        None => out.extend_from_slice(&rest[..length]),
                    }
                    length
                }
                Step::Wait => {
                    self.held = rest.to_vec();
                    break;
                }
            };
            rest = &rest[length..];
        }
        out
    }

    /// What is held back, when nothing more comes.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}
