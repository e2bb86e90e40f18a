//! The few pieces of HTTP/2 that a client of long-lived calls needs: frames in and out, as bytes.
//!
//! Every delivered event is a frame, and a general client spends more on a frame (a task to wake, a
//! buffer to share, a queue to pass) than on the event in it. Here a frame is a slice of what was read.
//! Nothing here holds state; the sessions of [`super::watch`] and [`super::lease`] do. Headers of answers are never decoded: an
//! answer that ends is a failed run whatever it says, and a general client has asked for the reason
//! beforehand.

/// What a client says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest frame we take: HTTP/2's default, which real clients leave alone.
pub const FRAME_BYTES_MAX: usize = 16_384;
const FRAME_HEAD_BYTES: usize = 9;

/// What HTTP/2 gives every window before anybody has said anything.
pub const WINDOW_BYTES_DEFAULT: u32 = 65_535;
/// What a server may send before it must hear from us. Far more than is ever in flight, so that
/// events wait for the server, the network or the machine, and never for a window update.
pub const STREAM_WINDOW_BYTES: u32 = 64 << 20;
pub const CONNECTION_WINDOW_BYTES: u32 = 256 << 20;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

pub const SETTING_STREAMS_MAX: u16 = 3;
pub const SETTING_STREAM_WINDOW: u16 = 4;
const SETTING_PUSH: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'a [u8],
}

/// The first frame of `bytes` and its length on the wire, or nothing while it is not whole yet.
pub fn next_frame(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, String> {
    let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    if length > FRAME_BYTES_MAX {
        return Err(format!("a frame of {length} bytes, over the {FRAME_BYTES_MAX} that we take"));
    }
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
    Ok(Some((Frame { kind: head[3], flags: head[4], stream, payload }, FRAME_HEAD_BYTES + length)))
}

impl<'a> Frame<'a> {
    /// The payload of a data frame, without its padding.
    pub fn data(&self) -> Result<&'a [u8], String> {
        if self.flags & PADDED == 0 {
            return Ok(self.payload);
        }
        let (padding, data) = self.payload.split_first().ok_or("a padded frame without a length")?;
        let length = data.len().checked_sub(usize::from(*padding)).ok_or("more padding than frame")?;
        Ok(&data[..length])
    }

    /// The pairs of a settings frame.
    pub fn settings(&self) -> impl Iterator<Item = (u16, u32)> + 'a {
        self.payload.chunks_exact(6).map(|pair| {
            let name = u16::from_be_bytes([pair[0], pair[1]]);
            (name, u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
        })
    }

    /// The number in a window update or a reset.
    pub fn number(&self) -> Result<u32, String> {
        let bytes = self.payload.first_chunk().ok_or("a frame too short for its number")?;
        Ok(u32::from_be_bytes(*bytes) & 0x7fff_ffff)
    }
}

pub fn write_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    write_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

fn write_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    assert!(length <= FRAME_BYTES_MAX, "our own frames are small");
    out.extend_from_slice(&[(length >> 16) as u8, (length >> 8) as u8, length as u8, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// Opens a connection: the preface, our settings, and the connection's window.
pub fn write_opening(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    let mut settings = Vec::new();
    for (name, value) in [(SETTING_PUSH, 0), (SETTING_STREAM_WINDOW, STREAM_WINDOW_BYTES)] {
        settings.extend_from_slice(&name.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }
    write_frame(out, SETTINGS, 0, 0, &settings);
    write_window_update(out, 0, CONNECTION_WINDOW_BYTES - WINDOW_BYTES_DEFAULT);
}

pub fn write_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    write_frame(out, WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

/// A gRPC message: a flag, which says "not compressed", and a length, then the bytes.
pub const MESSAGE_HEAD_BYTES: usize = 5;

/// The first message of `data`, or nothing while it is not whole yet.
pub fn next_message(data: &[u8], bytes_max: usize) -> Result<Option<&[u8]>, String> {
    let Some((head, rest)) = data.split_first_chunk::<MESSAGE_HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if head[0] != 0 || length > bytes_max {
        return Err("not a gRPC message, or a compressed one".to_owned());
    }
    Ok(rest.get(..length))
}

pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("our own requests are small");
    let mut framed = Vec::with_capacity(MESSAGE_HEAD_BYTES + message.len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// Clients' streams have odd numbers.
pub fn stream_id(index: usize) -> u32 {
    u32::try_from(2 * index + 1).expect("a server refuses far fewer streams")
}

/// Begins a gRPC call. The header block uses HPACK's static table and literals that neither side
/// remembers, so that it is the same for every call.
pub fn write_call(out: &mut Vec<u8>, stream: u32, authority: &str, path: &str) {
    // Indexed: `:method POST`, `:scheme http`.
    let mut block = vec![0x83, 0x86];
    // Literals with a name from the static table: `:path` is 4, `:authority` is 1, `content-type` 31.
    write_literal(&mut block, &[0x04], path);
    write_literal(&mut block, &[0x01], authority);
    write_literal(&mut block, &[0x0f, 0x10], "application/grpc");
    let mut te = vec![0x00];
    write_text(&mut te, "te");
    write_literal(&mut block, &te, "trailers");
    write_frame(out, HEADERS, END_HEADERS, stream, &block);
}

fn write_literal(block: &mut Vec<u8>, name: &[u8], value: &str) {
    block.extend_from_slice(name);
    write_text(block, value);
}

fn write_text(block: &mut Vec<u8>, text: &str) {
    // Seven bits of length, not Huffman-coded; longer ones continue in bytes of seven bits each.
    match u8::try_from(text.len()) {
        Ok(length) if length < 0x7f => block.push(length),
        _ => {
            block.push(0x7f);
            let mut rest = text.len() - 0x7f;
            while rest >= 0x80 {
                block.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            block.push(rest as u8);
        }
    }
    block.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_once_it_is_whole() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, DATA, END_STREAM, 0x0102_0304, b"hello");
        for end in 0..bytes.len() {
            assert_eq!(next_frame(&bytes[..end]), Ok(None), "{end}");
        }
        bytes.extend_from_slice(b"next");
        let frame = Frame { kind: DATA, flags: END_STREAM, stream: 0x0102_0304, payload: b"hello" };
        assert_eq!(next_frame(&bytes), Ok(Some((frame, 14))));
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_before_it_is_there() {
        assert!(next_frame(&[0, 0x40, 1, 0, 0, 0, 0, 0, 1]).is_err());
    }

    #[test]
    fn padding_is_no_data() {
        let frame = |payload| Frame { kind: DATA, flags: PADDED, stream: 1, payload };
        assert_eq!(frame(&[2, b'a', b'b', 0, 0]).data(), Ok(&b"ab"[..]));
        assert!(frame(&[5, b'a']).data().is_err());
        assert!(frame(&[]).data().is_err());
    }

    #[test]
    fn our_settings_are_what_we_read_back() {
        let mut bytes = Vec::new();
        write_opening(&mut bytes);
        let (settings, length) = next_frame(&bytes[PREFACE.len()..]).expect("good").expect("whole");
        let pairs: Vec<(u16, u32)> = settings.settings().collect();
        assert_eq!(pairs, [(SETTING_PUSH, 0), (SETTING_STREAM_WINDOW, STREAM_WINDOW_BYTES)]);
        let (window, _) = next_frame(&bytes[PREFACE.len() + length..]).expect("good").expect("whole");
        assert_eq!(window.number(), Ok(CONNECTION_WINDOW_BYTES - WINDOW_BYTES_DEFAULT));
    }

    #[test]
    fn long_texts_have_long_lengths() {
        let length_of = |length: usize| {
            let mut block = Vec::new();
            write_text(&mut block, &"x".repeat(length));
            block.truncate(block.len() - length);
            block
        };
        assert_eq!(length_of(126), [126]);
        assert_eq!(length_of(127), [0x7f, 0]);
        assert_eq!(length_of(127 + 300), [0x7f, 0xac, 0x02]);
    }
}
