//! One watch stream, both ways: the body of its response, which also reads its requests.
//!
//! All that a stream does happens when its connection asks for the next frame: requests are read, the
//! hub is asked what is due, and about a frame of it is copied out. So a client that does not read costs
//! little but its place in the hub, and its requests wait with it. Frames are small and owned by nobody
//! else: what lies unsent in the connection holds no revision in memory.

use super::large::Large;
use super::message::{EtcdEvents, SMALL_MAX, Writer, Written};
use super::permission::Reader;
use super::{WatchCounters, trailers};
use crate::grpc::header::Headers;
use crate::grpc::status;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Stream};
use http_body::Frame;
use meerkat_proto::convert::watch::{WatchCall, call};
use meerkat_proto::pb::etcdserver as pb;
use meerkat_watch::{End, Out, Refused, Taken, WatchStream};
use prost::Message;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder, Streaming};

/// What one frame carries: the largest that every HTTP/2 peer takes.
const FRAME_BYTES: usize = SMALL_MAX;

/// What is asked of the hub at once; revisions weigh about twice their bytes there.
const TAKE_BYTES: usize = 2 * FRAME_BYTES;

/// More than most answers take.
const ANSWER_BYTES: usize = 512;

/// Requests read before answers are sent.
const REQUESTS_MAX: usize = 64;

pub(super) struct WatchBody {
    /// `None` once the client has said that there will be no more.
    requests: Option<Streaming<pb::WatchRequest>>,
    stream: WatchStream,
    headers: Headers,
    counters: Arc<WatchCounters>,
    reader: Reader,
    /// Taken from the hub, the first one last.
    taken: Vec<Out>,
    large: Option<Large>,
    progress_interval: Duration,
    ticker: Option<Pin<Box<Sleep>>>,
    message_bytes_max: usize,
    end: Option<Status>,
    finished: bool,
}

impl WatchBody {
    pub(super) fn new(
        requests: Body,
        stream: WatchStream,
        (headers, counters): (Headers, Arc<WatchCounters>),
        reader: Reader,
        progress_interval: Duration,
        message_bytes_max: usize,
    ) -> WatchBody {
        let requests = Streaming::new_request(Requests, requests, None, Some(message_bytes_max));
        // So that the streams of a restarted member do not all speak at once.
        let jitter = progress_interval.mul_f64(rand::random::<f64>() / 10.0);
        WatchBody {
            requests: Some(requests),
            stream,
            headers,
            counters,
            reader,
            taken: Vec::new(),
            large: None,
            progress_interval: progress_interval + jitter,
            ticker: None,
            message_bytes_max,
            end: None,
            finished: false,
        }
    }

    fn receive(&mut self, context: &mut Context<'_>) {
        for _ in 0..REQUESTS_MAX {
            let Some(requests) = &mut self.requests else { return };
            match Pin::new(requests).poll_next(context) {
                Poll::Pending => return,
                // The client has nothing more to ask; it may still listen.
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(Err(error))) => {
                    self.requests = None;
                    self.end = Some(status::watch_request(error, self.message_bytes_max));
                }
                Poll::Ready(Some(Ok(request))) => self.handle(request),
            }
        }
        // There may be more, and nobody else would say so.
        context.waker().wake_by_ref();
    }

    fn handle(&mut self, request: pb::WatchRequest) {
        match call(request) {
            None => {}
            Some(WatchCall::Cancel(id)) => self.stream.cancel(id),
            Some(WatchCall::Progress) => self.stream.request_progress(),
            Some(WatchCall::Create(create)) => {
                if let Err(reason) = self.reader.may_watch(&create.range) {
                    self.stream.refuse(Refused::NotPermitted(reason));
                    return;
                }
                if create.progress && self.ticker.is_none() {
                    self.ticker = Some(Box::pin(tokio::time::sleep(self.progress_interval)));
                }
                self.stream.register(create);
            }
        }
    }

    /// Whether progress marks were due.
    fn tick(&mut self, context: &mut Context<'_>) -> bool {
        let Some(ticker) = &mut self.ticker else { return false };
        if ticker.poll_unpin(context).is_pending() {
            return false;
        }
        ticker.as_mut().reset(Instant::now() + self.progress_interval);
        self.stream.tick();
        true
    }

    /// Up to a frame of what is due. Nothing, if nothing is: then the stream's reader is noted.
    fn fill(&mut self, context: &Context<'_>) -> BytesMut {
        let mut buffer = BytesMut::new();
        while buffer.len() < FRAME_BYTES && self.end.is_none() {
            if self.large.is_some() {
                self.write_large(&mut buffer);
                continue;
            }
            if self.taken.is_empty() && !self.take(context) {
                break;
            }
            self.write_taken(&mut buffer);
        }
        self.counters.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        buffer
    }

    fn take(&mut self, context: &Context<'_>) -> bool {
        match self.stream.take(TAKE_BYTES, context.waker(), &mut self.taken) {
            Taken::Open => {
                self.taken.reverse();
                true
            }
            Taken::Parked => false,
            Taken::Ended(end) => {
                self.end_by(&end);
                false
            }
        }
    }

    fn write_taken(&mut self, buffer: &mut BytesMut) {
        let mut writer = Writer::new(self.headers.now(), self.message_bytes_max);
        // Many answers fill a frame; growing it step by step would copy it again and again.
        if self.taken.len() > 2 {
            buffer.reserve((self.taken.len() * ANSWER_BYTES).min(FRAME_BYTES + ANSWER_BYTES));
        }
        let (mut events, mut responses) = (0, 0);
        while let Some(out) = self.taken.pop() {
            responses += 1;
            match out {
                Out::Control(control) => writer.control(&control, buffer),
                Out::Events(delivery) => match writer.delivery(&delivery, buffer) {
                    Written::Whole(count) => events += count,
                    Written::TooLarge(bytes) => {
                        self.end = Some(status::response_too_large(bytes));
                        break;
                    }
                    Written::Large(large) => {
                        events += large.events();
                        responses += large.responses() - 1;
                        self.stream.set_in_flight(Some(delivery.first));
                        self.large = Some(large);
                        break;
                    }
                },
            }
        }
        self.counters.events.fetch_add(events as u64, Ordering::Relaxed);
        self.counters.responses.fetch_add(responses as u64, Ordering::Relaxed);
    }

    fn write_large(&mut self, buffer: &mut BytesMut) {
        let Some(large) = &mut self.large else { return };
        match self.stream.in_flight() {
            Ok(batch) => {
                large.write(batch.wire(large.form, &EtcdEvents), FRAME_BYTES, buffer);
                if large.is_done() {
                    self.large = None;
                    self.stream.set_in_flight(None);
                }
            }
            Err(end) => self.end_by(&end),
        }
    }

    fn end_by(&mut self, end: &End) {
        self.end = Some(status::watch_ended(end));
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let me = &mut *self;
        loop {
            if me.finished {
                return Poll::Ready(None);
            }
            me.receive(context);
            // Before what is to be sent: a busy stream may have idle watchers.
            let ticked = me.tick(context);
            let frame = me.fill(context);
            if !frame.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(frame.freeze()))));
            }
            if let Some(end) = me.end.take() {
                me.finished = true;
                return Poll::Ready(Some(Ok(Frame::trailers(trailers(&end)))));
            }
            if !ticked {
                return Poll::Pending;
            }
        }
    }
}

/// Reads requests with a buffer of their size: a member may hold many thousands of streams.
struct Requests;

impl Decoder for Requests {
    type Item = pb::WatchRequest;
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<pb::WatchRequest>, Status> {
        pb::WatchRequest::decode(source).map(Some).map_err(|error| status::malformed(&error))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(256, 1024)
    }
}
