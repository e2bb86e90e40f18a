//! A road to one member on which marked requests, or their answers, get lost or come late.
//!
//! It reads HTTP/2 frames, so it knows when the member has answered: a lost answer is one that the
//! member did give. Headers wait for the first data behind them, so of a lost request the member sees
//! nothing at all. With every loss the connection is lost too, as the client's only hint.

use bytes::{Buf, Bytes, BytesMut};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request with these bytes in it is struck.
pub const MARK: &str = "this request is to be struck";

/// What happens to a marked request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on; what the member answers is not.
    AnswerLost,
    /// It never comes to the member.
    RequestLost,
    /// It comes to the member when [`Road::release`] says so. The client is long gone by then.
    RequestLate,
}

/// What happened on the road so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Toll {
    fault: Option<Fault>,
    left: u32,
    released: bool,
    /// Marked requests that were struck.
    pub struck: u32,
    /// Late requests that the member has answered.
    pub answered: u32,
    /// Late requests that it has answered, or cut off.
    pub over: u32,
}

/// The road. Open for as long as its runtime lives.
pub struct Road {
    pub url: String,
    toll: Arc<watch::Sender<Toll>>,
}

impl Road {
    pub async fn to(port: u16) -> Road {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a bound port"));
        let toll = Arc::new(watch::Sender::new(Toll::default()));
        let shared = toll.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, port, shared.clone()));
            }
        });
        Road { url, toll }
    }

    /// Strikes the next `count` marked requests.
    pub fn strike(&self, fault: Fault, count: u32) {
        self.toll.send_modify(|toll| (toll.fault, toll.left) = (Some(fault), count));
    }

    pub fn toll(&self) -> Toll {
        *self.toll.borrow()
    }

    /// Strikes no more, hands late requests to the member, and waits until it is done with each.
    pub async fn release(&self) {
        self.toll.send_modify(|toll| (toll.left, toll.released) = (0, true));
        let mut toll = self.toll.subscribe();
        let late = toll.borrow().fault == Some(Fault::RequestLate);
        let all_over = toll.wait_for(|toll| !late || toll.over == toll.struck);
        tokio::time::timeout(Duration::from_secs(30), all_over)
            .await
            .expect("an end in time")
            .expect("a road");
    }
}

fn next_fault(toll: &watch::Sender<Toll>) -> Option<Fault> {
    let mut met = None;
    toll.send_modify(|toll| {
        if 0 < toll.left {
            (toll.left, toll.struck) = (toll.left - 1, toll.struck + 1);
            met = toll.fault;
        }
    });
    met
}

const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// One frame as it goes over the wire.
struct Frame(Bytes);

impl Frame {
    fn kind(&self) -> u8 {
        self.0[3]
    }

    fn stream(&self) -> u32 {
        (&self.0[5..9]).get_u32() & 0x7fff_ffff
    }

    fn is_headers(&self) -> bool {
        matches!(self.kind(), HEADERS | CONTINUATION)
    }

    fn is_marked(&self) -> bool {
        self.kind() == DATA && self.0.windows(MARK.len()).any(|bytes| bytes == MARK.as_bytes())
    }

    /// The member has said all it has to say about this stream.
    fn ends_answer(&self, stream: u32) -> bool {
        self.stream() == stream && self.kind() == HEADERS && self.0[4] & END_STREAM != 0
    }

    fn resets(&self, stream: u32) -> bool {
        self.stream() == stream && self.kind() == RESET
    }
}

/// One direction, frame by frame. To stop waiting for one loses nothing.
struct Frames {
    from: OwnedReadHalf,
    read: BytesMut,
}

impl Frames {
    async fn take(&mut self, length: usize) -> Option<Bytes> {
        self.fill(length).await?;
        Some(self.read.split_to(length).freeze())
    }

    async fn fill(&mut self, length: usize) -> Option<()> {
        while self.read.len() < length {
            if self.from.read_buf(&mut self.read).await.ok()? == 0 {
                return None;
            }
        }
        Some(())
    }

    async fn next(&mut self) -> Option<Frame> {
        self.fill(9).await?;
        let length =
            usize::from(self.read[0]) << 16 | usize::from(self.read[1]) << 8 | usize::from(self.read[2]);
        self.take(9 + length).await.map(Frame)
    }
}

/// A marked request that has not been passed on, with all headers before it.
struct Held {
    stream: u32,
    bytes: Vec<u8>,
}

async fn connect(client: TcpStream, port: u16, toll: Arc<watch::Sender<Toll>>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
    let (from_client, mut to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    let mut requests = Frames { from: from_client, read: BytesMut::new() };
    let mut answers = Frames { from: from_server, read: BytesMut::new() };
    let lost = AtomicU32::new(0);
    let held = tokio::select! {
        held = pass_requests(&mut requests, &mut to_server, &toll, &lost) => held,
        () = pass_answers(&mut answers, &mut to_client, &lost) => None,
    };
    drop((requests, to_client));
    if let Some(held) = held {
        let answered = deliver(held, &mut answers, &mut to_server, &toll).await;
        toll.send_modify(|toll| {
            toll.over += 1;
            toll.answered += u32::from(answered);
        });
    }
}

/// Ends with the client, or with a request that is not to be passed on; gives it back if it is to be
/// passed on later.
async fn pass_requests(
    requests: &mut Frames,
    to: &mut OwnedWriteHalf,
    toll: &watch::Sender<Toll>,
    lost: &AtomicU32,
) -> Option<Held> {
    let mut waiting = requests.take(PREFACE).await?.to_vec();
    loop {
        let frame = requests.next().await?;
        waiting.extend_from_slice(&frame.0);
        if frame.is_headers() {
            continue;
        }
        if frame.is_marked() {
            match next_fault(toll) {
                None => {}
                Some(Fault::AnswerLost) => lost.store(frame.stream(), Ordering::SeqCst),
                Some(Fault::RequestLost) => return None,
                Some(Fault::RequestLate) => {
                    // The client's own end of the stream will not come any more.
                    let flags = waiting.len() - frame.0.len() + 4;
                    waiting[flags] |= END_STREAM;
                    return Some(Held { stream: frame.stream(), bytes: waiting });
                }
            }
        }
        to.write_all(&waiting).await.ok()?;
        waiting.clear();
    }
}

/// Ends with the member, or with an answer that is to be lost.
async fn pass_answers(answers: &mut Frames, to: &mut OwnedWriteHalf, lost: &AtomicU32) {
    while let Some(frame) = answers.next().await {
        let stream = lost.load(Ordering::SeqCst);
        if stream != 0 && frame.stream() == stream {
            if frame.ends_answer(stream) {
                return;
            }
        } else if to.write_all(&frame.0).await.is_err() {
            return;
        }
    }
}

/// Hands a late request to the member. Whether it was answered.
async fn deliver(
    held: Held,
    answers: &mut Frames,
    to: &mut OwnedWriteHalf,
    toll: &watch::Sender<Toll>,
) -> bool {
    let mut told = toll.subscribe();
    if told.wait_for(|toll| toll.released).await.is_err() || to.write_all(&held.bytes).await.is_err() {
        return false;
    }
    while let Some(frame) = answers.next().await {
        if frame.ends_answer(held.stream) {
            return true;
        }
        if frame.resets(held.stream) {
            return false;
        }
    }
    false
}
