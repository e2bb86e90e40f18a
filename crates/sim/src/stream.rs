//! The ends of the simulated network: a stream, a port that takes them, and the way to open one.

use crate::net::{DialOutcome, Machine, Net, Port};
use bytes::Buf;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// One end of a stream.
pub struct SimStream {
    net: Net,
    write: usize,
    read: usize,
}

impl SimStream {
    pub(crate) fn new(net: Net, write: usize, read: usize) -> SimStream {
        SimStream { net, write, read }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut wires = self.net.shared.lock();
        wires.end(self.write);
        wires.leave(self.read);
        let ours = (wires.pipes[self.read].reader.take(), wires.pipes[self.write].writer.take());
        drop(wires);
        // Outside of the lock: a waker may be the last to hold a task, and the task a stream.
        drop(ours);
    }
}

impl AsyncRead for SimStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wires = self.net.shared.lock();
        let pipe = &mut wires.pipes[self.read];
        if !pipe.ready.is_empty() {
            let taken = pipe.ready.len().min(buffer.remaining());
            buffer.put_slice(&pipe.ready[..taken]);
            pipe.ready.advance(taken);
            pipe.room += taken;
            let writer = pipe.writer.take();
            drop(wires);
            writer.into_iter().for_each(std::task::Waker::wake);
            return Poll::Ready(Ok(()));
        }
        if pipe.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.ended {
            return Poll::Ready(Ok(()));
        }
        let old = pipe.reader.replace(cx.waker().clone());
        drop(wires);
        drop(old);
        Poll::Pending
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut wires = self.net.shared.lock();
        let pipe = &mut wires.pipes[self.write];
        if pipe.reset || pipe.closed {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.room == 0 {
            let old = pipe.writer.replace(cx.waker().clone());
            drop(wires);
            drop(old);
            return Poll::Pending;
        }
        Poll::Ready(Ok(wires.send(self.write, bytes)))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.shared.lock().end(self.write);
        Poll::Ready(Ok(()))
    }
}

impl Connected for SimStream {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// A port that streams come in at; gone when dropped.
pub struct SimListener {
    net: Net,
    at: (Machine, u16),
}

impl SimListener {
    pub fn open(net: &Net, machine: Machine, port: u16) -> SimListener {
        let at = (machine, port);
        let old = net.shared.lock().ports.insert(at, Port::default());
        drop(old);
        SimListener { net: net.clone(), at }
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let port = self.net.shared.lock().ports.remove(&self.at);
        drop(port);
    }
}

impl meerkat_server::Listener for SimListener {
    type Io = SimStream;

    async fn accept(&mut self) -> io::Result<(SimStream, SocketAddr)> {
        let stream = poll_fn(|cx| {
            let mut wires = self.net.shared.lock();
            let Some(port) = wires.ports.get_mut(&self.at) else {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::NotConnected)));
            };
            if let Some(stream) = port.queue.pop_front() {
                return Poll::Ready(Ok(stream));
            }
            let old = port.waker.replace(cx.waker().clone());
            drop(wires);
            drop(old);
            Poll::Pending
        })
        .await?;
        Ok((stream, SocketAddr::from(([10, 0, 0, 0], 1))))
    }
}

/// An attempt to connect; given up when dropped.
struct Dialing {
    net: Net,
    number: usize,
}

impl Drop for Dialing {
    fn drop(&mut self) {
        let mut wires = self.net.shared.lock();
        let dial = &mut wires.dials[self.number];
        let left = (std::mem::replace(&mut dial.outcome, DialOutcome::Over), dial.waker.take());
        drop(wires);
        drop(left);
    }
}

/// Opens a stream to the machine that the host's last number names, at the URL's port.
pub async fn dial(net: Net, from: Machine, uri: http::Uri) -> io::Result<SimStream> {
    let bad =
        || io::Error::new(io::ErrorKind::InvalidInput, format!("{uri} names no machine of the simulation"));
    let to = uri.host().and_then(|host| host.rsplit('.').next()?.parse().ok()).ok_or_else(bad)?;
    let port = uri.port_u16().ok_or_else(bad)?;
    let number = net.shared.lock().dial(from, to, port);
    let dialing = Dialing { net, number };
    poll_fn(|cx| {
        let mut wires = dialing.net.shared.lock();
        let dial = &mut wires.dials[dialing.number];
        match std::mem::replace(&mut dial.outcome, DialOutcome::Over) {
            DialOutcome::Ready(stream) => Poll::Ready(Ok(stream)),
            DialOutcome::ReadyRefused => Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into())),
            waiting => {
                dial.outcome = waiting;
                let old = dial.waker.replace(cx.waker().clone());
                drop(wires);
                drop(old);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use meerkat_server::Listener;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A stream from machine 0 to a port of machine 1, and the time by then.
    fn connected(net: &Net) -> (SimStream, SimStream, u64) {
        let mut port = SimListener::open(net, 1, 7);
        let mut dialing = Box::pin(dial(net.clone(), 0, "http://10.0.0.1:7".parse().expect("a URL")));
        for now in 1..100 {
            net.deliver(now);
            if let Some(client) = (&mut dialing).now_or_never() {
                let (server, _) = port.accept().now_or_never().expect("it came in").expect("accepted");
                return (client.expect("connected"), server, now);
            }
        }
        panic!("no connection in 100 ms");
    }

    fn read(stream: &mut SimStream) -> Option<io::Result<Vec<u8>>> {
        let mut bytes = vec![0; 64];
        let read = stream.read(&mut bytes).now_or_never()?;
        Some(read.map(|count| bytes[..count].to_vec()))
    }

    fn write(stream: &mut SimStream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).now_or_never().expect("there is room")
    }

    #[test]
    fn bytes_arrive_later_and_in_order_and_then_the_end() {
        let net = Net::new(2, 1);
        let (mut client, mut server, now) = connected(&net);
        write(&mut client, b"one ").expect("written");
        write(&mut client, b"two").expect("written");
        assert!(read(&mut server).is_none(), "nothing arrives at the instant it was sent");
        drop(client);
        net.deliver(now + 50);
        assert_eq!(read(&mut server).expect("there").expect("read"), b"one two");
        assert_eq!(read(&mut server).expect("the end").expect("read"), b"");
    }

    #[test]
    fn a_cut_link_delivers_when_it_heals() {
        let net = Net::new(2, 2);
        let (mut client, mut server, now) = connected(&net);
        net.cut(0, 1, true);
        write(&mut client, b"late").expect("written");
        write(&mut server, b"other way").expect("written");
        net.deliver(now + 1_000);
        assert!(read(&mut server).is_none());
        assert_eq!(read(&mut client).expect("there").expect("read"), b"other way");
        net.cut(0, 1, false);
        net.deliver(now + 1_100);
        assert_eq!(read(&mut server).expect("there").expect("read"), b"late");
    }

    #[test]
    fn a_dead_process_resets_and_a_dead_machine_is_silent_until_it_is_back() {
        let net = Net::new(2, 3);
        let (mut client, server, now) = connected(&net);
        net.vanish(1);
        drop(server);
        write(&mut client, b"anybody?").expect("written");
        net.deliver(now + 1_000);
        assert!(read(&mut client).is_none(), "not even a farewell");
        net.reappear(1);
        write(&mut client, b"anybody?").expect("written");
        net.deliver(now + 2_000);
        let error = read(&mut client).expect("an answer").expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(write(&mut client, b"more").is_err());
    }

    #[test]
    fn a_port_that_is_not_open_refuses() {
        let net = Net::new(2, 4);
        let mut dialing = Box::pin(dial(net.clone(), 0, "http://10.0.0.1:8".parse().expect("a URL")));
        assert!((&mut dialing).now_or_never().is_none());
        for now in 1..50 {
            net.deliver(now);
        }
        let refused = dialing.now_or_never().expect("an answer").err().expect("a refusal");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
