//! Clients that write something else than a host into the `:authority` of their requests.
//!
//! HTTP/2 has a host and a port there. Some clients of etcd put a whole URL there (etcdctl 3.4 for
//! `defrag --cluster`) or the path of a unix socket (etcdctl 3.5.1); Go's server takes both, and the library
//! that reads requests here refuses them before any of us sees the request. So the bytes of a connection
//! are read along, and where such a value is spelt out it is replaced by a name that means nothing. No call
//! of gRPC asks for its host; plain HTTP does where a list of hosts is given, and refuses it, as etcd does.
//!
//! Always true: bytes that hold no such value come out as they went in, and in the same order; what comes out
//! in place of a value is exactly as long as it was once it is read, so that both ends make the same room for
//! it in the table of headers that they share. At most one frame is held back, and none over [`FRAME_BYTES`].

mod block;
mod frames;
mod huffman;

use frames::Frames;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest frame that our side allows: HTTP/2's default.
const FRAME_BYTES: usize = 16 << 10;

/// A connection whose requests name hosts.
pub(crate) struct Hosts<T> {
    inner: T,
    frames: Frames,
    /// What has been read along and not been taken yet.
    ready: Vec<u8>,
    taken: usize,
}

impl<T> Hosts<T> {
    pub(crate) fn of(inner: T) -> Hosts<T> {
        Hosts { inner, frames: Frames::default(), ready: Vec::new(), taken: 0 }
    }

    /// Hands out what is ready, if anything is.
    fn give(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let rest = &self.ready[self.taken..];
        if rest.is_empty() {
            return false;
        }
        let given = rest.len().min(into.remaining());
        into.put_slice(&rest[..given]);
        self.taken += given;
        if self.taken == self.ready.len() {
            self.ready = Vec::new();
            self.taken = 0;
        }
        true
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Hosts<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if into.remaining() == 0 || this.give(into) {
                return Poll::Ready(Ok(()));
            }
            let before = into.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, into))?;
            let came = &into.filled()[before..];
            if came.is_empty() {
                // Whatever is held back was the beginning of a frame that never ended.
                this.ready = this.frames.rest();
                if this.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            if this.frames.pass(came) {
                return Poll::Ready(Ok(()));
            }
            this.ready = this.frames.read(came);
            into.set_filled(before);
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Hosts<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::block::tests::{frame, headers};
    use super::block::with_a_host;
    use super::frames::HEAD_BYTES;
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

    /// A frame of data that begins as one of headers would.
    fn data() -> Vec<u8> {
        let inside = frame(4, &headers(b"http://127.0.0.1:2379"));
        let mut data = u32::try_from(inside.len()).expect("short").to_be_bytes()[1..].to_vec();
        data.extend([0, 0, 0, 0, 0, 1]);
        data.extend(inside);
        data
    }

    fn conversation(authority: &[u8]) -> Vec<u8> {
        let request = frame(4, &headers(authority));
        [OPENING, SETTINGS, &request, &data(), &data(), &request, SETTINGS].concat()
    }

    /// What comes out when this goes in, in pieces of chance.
    async fn through(bytes: &[u8], chance: &mut StdRng) -> Vec<u8> {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let mut hosts = Hosts::of(far);
        let mut out = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(chance.random_range(1..=rest.len()));
            near.write_all(piece).await.expect("there is room");
            rest = after;
            if chance.random() {
                let mut room = vec![0; chance.random_range(1..100)];
                let read = tokio::time::timeout(std::time::Duration::ZERO, hosts.read(&mut room));
                out.extend(read.await.map_or(&[][..], |read| &room[..read.expect("it is open")]));
            }
        }
        drop(near);
        hosts.read_to_end(&mut out).await.expect("it has ended");
        out
    }

    #[tokio::test(start_paused = true)]
    async fn however_it_comes_the_same_goes_on() {
        for seed in 0..300 {
            let mut chance = StdRng::seed_from_u64(seed);
            let plain = conversation(b"127.0.0.1:2379");
            assert_eq!(through(&plain, &mut chance).await, plain, "seed {seed}");
            let url = conversation(b"http://127.0.0.1:2379");
            let named = conversation(b"xxxxxxxxxxxxxxxxxxxxx");
            assert_eq!(through(&url, &mut chance).await, named, "seed {seed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_is_no_http2_passes_and_so_does_a_frame_without_an_end() {
        let mut chance = StdRng::seed_from_u64(1);
        let request = frame(4, &headers(b"http://127.0.0.1:2379"));
        let http1 = [b"PRINT / HTTP/1.1\r\n\r\n".as_slice(), &request].concat();
        assert_eq!(through(&http1, &mut chance).await, http1);
        let cut = [OPENING, &request[..request.len() - 1]].concat();
        assert_eq!(through(&cut, &mut chance).await, cut);
        let too_long = [OPENING, b"\x00\x40\x01\x01\x04\0\0\0\x01", &request].concat();
        assert_eq!(through(&too_long, &mut chance).await, too_long);
    }

    fn spoil(bytes: &mut [u8], chance: &mut StdRng) {
        for _ in 0..chance.random_range(1..20) {
            let at = chance.random_range(0..bytes.len());
            bytes[at] = chance.random();
        }
    }

    /// What should come out, made of all that goes in: frame by frame, as far as there are whole ones.
    fn mended(bytes: &[u8]) -> Vec<u8> {
        let (opening, mut rest) = bytes.split_at(OPENING.len());
        let mut out = opening.to_vec();
        while let Some([a, b, c, kind, ..]) = rest.first_chunk::<HEAD_BYTES>() {
            let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let Some((frame, after)) = rest.split_at_checked(HEAD_BYTES + length) else { break };
            let changed = with_a_host(frame).filter(|_| *kind == 1);
            out.extend(changed.unwrap_or_else(|| frame.to_vec()));
            rest = after;
        }
        out.extend(rest);
        out
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_chance_neither_grow_nor_stop_it() {
        let (mut changed, mut same) = (0, 0);
        for seed in 0..2_000 {
            let mut chance = StdRng::seed_from_u64(seed);
            let mut bytes = conversation(b"/run/m.sock");
            spoil(&mut bytes[OPENING.len()..], &mut chance);
            let out = through(&bytes, &mut chance).await;
            assert_eq!(out, mended(&bytes), "seed {seed}");
            assert!(out.len().abs_diff(bytes.len()) <= 64, "seed {seed}: {} of {}", out.len(), bytes.len());
            if out == bytes { same += 1 } else { changed += 1 }
        }
        assert!(100 < changed && 100 < same, "{changed} were changed, and {same} were not");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_of_chance_behind_a_host_come_out_as_they_went_in() {
        let begin = [OPENING, SETTINGS, &frame(4, &headers(b"127.0.0.1:2379"))].concat().len() + HEAD_BYTES;
        for seed in 0..500 {
            let mut chance = StdRng::seed_from_u64(seed);
            let mut bytes = conversation(b"127.0.0.1:2379");
            // What is within the first frame of data.
            spoil(&mut bytes[begin..][..data().len() - HEAD_BYTES], &mut chance);
            assert_eq!(through(&bytes, &mut chance).await, bytes, "seed {seed}");
        }
    }
}
