//! A watch over a bare socket, cheap enough for ten thousand of them in one process.
//!
//! Nothing is parsed but the framing and the revision of each event.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::Failure;

/// One read takes no more.
const READ_BYTES: usize = 16 << 10;

/// An event: its revision, and microseconds since the beginning at which its last byte came.
pub type Arrival = (u64, u64);

/// A watch whose answer has begun.
#[derive(Debug)]
pub struct RawWatch {
    stream: TcpStream,
    framing: Framing,
    began: Instant,
}

impl RawWatch {
    /// Asks, and waits for the answer to begin. `receive_bytes`: the socket's buffer, if it is to be small.
    pub async fn begin(
        server: &str,
        path: &str,
        began: Instant,
        receive_bytes: Option<u32>,
    ) -> Result<RawWatch, Failure> {
        let address = server.strip_prefix("http://").unwrap_or(server);
        let to = address.parse().map_err(|error| Failure::harness(format!("{address}: {error}")))?;
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        let mut stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut watch = RawWatch { stream, framing: Framing::default(), began };
        let mut early = Vec::new();
        while matches!(watch.framing.state, State::Head) {
            if !watch.read(&mut early).await? {
                return Err(Failure::broken("a watch ended before it began"));
            }
        }
        if !early.is_empty() {
            return Err(Failure::harness("an event before its time"));
        }
        Ok(watch)
    }

    /// Reads what is there, waiting for at least something. False at the end.
    pub async fn read(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool, Failure> {
        self.stream.readable().await?;
        self.pull(arrivals)
    }

    /// Reads on and on into a list that others look at, until the stream ends.
    pub async fn follow(mut self, arrivals: Arc<Mutex<Vec<Arrival>>>) -> Result<(), Failure> {
        let mut own = Vec::new();
        loop {
            let goes_on = self.read(&mut own).await?;
            if !own.is_empty() {
                arrivals.lock().append(&mut own);
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn pull(&mut self, arrivals: &mut Vec<Arrival>) -> Result<bool, Failure> {
        let mut bytes = [0; READ_BYTES];
        let read = match self.stream.try_read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(true),
            Err(_) => return Ok(false),
        };
        let at = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut wrong = None;
        let framed = self.framing.take(&bytes[..read], |line| match revision(line) {
            Some(revision) => arrivals.push((revision, at)),
            None => wrong = Some(String::from_utf8_lossy(line).into_owned()),
        });
        framed.map_err(Failure::broken)?;
        match wrong {
            None => Ok(!matches!(self.framing.state, State::End)),
            Some(line) => Err(Failure::broken(format!("a line of a watch without a revision: {line}"))),
        }
    }
}

/// The revision that an event says, wherever in it.
fn revision(line: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"resourceVersion\":\"";
    let after = line.windows(NAME.len()).position(|window| window == NAME)? + NAME.len();
    let digits = line[after..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    /// The length of the next chunk, as far as it was read.
    Length(usize),
    /// So many bytes of a chunk are to come.
    Data(usize),
    /// The line end after a chunk.
    AfterData,
    End,
}

/// Chunks of HTTP/1.1, put together to lines.
#[derive(Debug, Default)]
struct Framing {
    state: State,
    /// What has come of the head or of the line.
    part: Vec<u8>,
}

impl Framing {
    fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), String> {
        while let Some(first) = bytes.first() {
            match self.state {
                State::Head => {
                    self.part.push(*first);
                    bytes = &bytes[1..];
                    if self.part.ends_with(b"\r\n\r\n") {
                        self.head()?;
                    }
                }
                State::Length(length) => {
                    bytes = &bytes[1..];
                    self.state = match first {
                        b'\r' => State::Length(length),
                        b'\n' if length == 0 => State::End,
                        b'\n' => State::Data(length),
                        digit => {
                            let digit = char::from(*digit).to_digit(16).ok_or("a chunk without a length")?;
                            State::Length(length * 16 + digit as usize)
                        }
                    };
                }
                State::Data(left) => {
                    let (now, later) = bytes.split_at(left.min(bytes.len()));
                    self.lines(now, &mut each);
                    bytes = later;
                    self.state =
                        if now.len() == left { State::AfterData } else { State::Data(left - now.len()) };
                }
                State::AfterData => {
                    bytes = &bytes[1..];
                    if *first == b'\n' {
                        self.state = State::Length(0);
                    }
                }
                State::End => return Ok(()),
            }
        }
        Ok(())
    }

    fn head(&mut self) -> Result<(), String> {
        let head = String::from_utf8_lossy(&self.part).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") || !head.contains("transfer-encoding: chunked") {
            return Err(format!("not the beginning of a watch: {head}"));
        }
        self.part = Vec::new();
        self.state = State::Length(0);
        Ok(())
    }

    fn lines(&mut self, data: &[u8], each: &mut impl FnMut(&[u8])) {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            let whole = piece.ends_with(b"\n");
            if whole && self.part.is_empty() {
                each(piece);
            } else {
                self.part.extend_from_slice(piece);
                if whole {
                    each(&self.part);
                    self.part.clear();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_wherever_they_are_cut() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            a\r\n{\"a\":\r1}\n{\r\n11\r\n\"b\":2}\n{\"c\":333}\n\r\n0\r\n\r\n";
        let expected: [&[u8]; 3] = [b"{\"a\":\r1}\n", b"{\"b\":2}\n", b"{\"c\":333}\n"];
        for size in 1..answer.len() {
            let (mut framing, mut lines) = (Framing::default(), Vec::new());
            for piece in answer.chunks(size) {
                framing.take(piece, |line| lines.push(line.to_vec())).expect("well framed");
            }
            assert_eq!(lines, expected, "in pieces of {size}");
            assert!(matches!(framing.state, State::End));
        }
    }

    #[test]
    fn what_is_no_watch_is_refused() {
        let take = |answer: &[u8]| Framing::default().take(answer, |_| ());
        assert!(take(b"HTTP/1.1 410 Gone\r\n\r\n").is_err());
        assert!(take(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz").is_err());
    }

    #[test]
    fn the_revision_is_found_in_an_event() {
        let event = br#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"417"}}}"#;
        assert_eq!(revision(event), Some(417));
        assert_eq!(revision(b"{}"), None);
    }
}
