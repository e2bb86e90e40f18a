//! One span: what happened under which name, from when to when, and under which other span.

use super::trace_context::{SpanId, TraceId};
use bytes::Bytes;
use meerkat_proto::pb::otlp;
use otlp::any_value::Value;
use otlp::span::SpanKind;
use otlp::status::StatusCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tonic::Code;

const FLAG_SAMPLED: u32 = 1;
const FLAG_PARENT_IS_KNOWN: u32 = 0x100;
const FLAG_PARENT_IS_REMOTE: u32 = 0x200;

/// A span that has begun.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    parent: Option<SpanId>,
    kind: SpanKind,
    state: String,
    at: SystemTime,
    /// The clock on the wall may be set in between.
    began: Instant,
}

impl Begun {
    /// A call, under the span of its caller if that named one.
    pub(super) fn call(trace: TraceId, parent: Option<SpanId>, state: String) -> Begun {
        Begun::new(trace, parent, SpanKind::Server, state)
    }

    /// A part of what is done for a call.
    pub(super) fn part(trace: TraceId, parent: SpanId) -> Begun {
        Begun::new(trace, Some(parent), SpanKind::Internal, String::new())
    }

    fn new(trace: TraceId, parent: Option<SpanId>, kind: SpanKind, state: String) -> Begun {
        let (at, began) = (SystemTime::now(), Instant::now());
        Begun { trace, span: SpanId::random(), parent, kind, state, at, began }
    }

    /// The span as it is sent, had it ended now.
    pub(super) fn ended(
        &self,
        name: &str,
        attributes: Vec<otlp::KeyValue>,
        status: Option<otlp::Status>,
    ) -> otlp::Span {
        let start = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let remote = match self.kind {
            SpanKind::Server if self.parent.is_some() => FLAG_PARENT_IS_REMOTE,
            _ => 0,
        };
        otlp::Span {
            trace_id: Bytes::copy_from_slice(self.trace.bytes()),
            span_id: Bytes::copy_from_slice(self.span.bytes()),
            trace_state: self.state.clone(),
            parent_span_id: self.parent.map(|id| Bytes::copy_from_slice(id.bytes())).unwrap_or_default(),
            name: name.to_owned(),
            kind: self.kind.into(),
            start_time_unix_nano: nanos(start),
            end_time_unix_nano: nanos(start.saturating_add(self.began.elapsed())),
            attributes,
            status,
            flags: FLAG_SAMPLED | FLAG_PARENT_IS_KNOWN | remote,
        }
    }
}

/// What the end of a call says of the server: only what is the server's fault is an error of its span, as in
/// etcd. A refusal is an answer.
pub(super) fn status(code: Code, message: &str) -> Option<otlp::Status> {
    match code {
        Code::Unknown
        | Code::DeadlineExceeded
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => {
            Some(otlp::Status { message: message.to_owned(), code: StatusCode::Error.into() })
        }
        _ => None,
    }
}

pub(super) fn text(key: &str, value: impl Into<String>) -> otlp::KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

pub(super) fn number(key: &str, value: i64) -> otlp::KeyValue {
    attribute(key, Value::IntValue(value))
}

fn attribute(key: &str, value: Value) -> otlp::KeyValue {
    otlp::KeyValue { key: key.to_owned(), value: Some(otlp::AnyValue { value: Some(value) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_the_servers_fault_is_an_error() {
        let is_error = |code: Code| status(code, "why").is_some();
        for code in [Code::Unknown, Code::DeadlineExceeded, Code::Internal, Code::Unavailable] {
            assert!(is_error(code), "{code:?}");
        }
        for code in [Code::Ok, Code::Cancelled, Code::InvalidArgument, Code::NotFound, Code::OutOfRange] {
            assert!(!is_error(code), "{code:?}");
        }
        let sent = status(Code::Unavailable, "why").expect("an error");
        assert_eq!((sent.message.as_str(), sent.code()), ("why", StatusCode::Error));
    }

    #[test]
    fn a_span_says_where_it_belongs() {
        let (trace, parent) = (TraceId::random(), SpanId::random());
        let call = Begun::call(trace, Some(parent), "a=1".to_owned());
        let sent = call.ended("a.B/C", vec![number("n", 7)], None);
        assert_eq!(sent.trace_id, trace.bytes()[..]);
        assert_eq!(sent.parent_span_id, parent.bytes()[..]);
        assert_eq!((sent.name.as_str(), sent.trace_state.as_str(), sent.flags), ("a.B/C", "a=1", 0x301));
        assert_eq!(sent.kind(), SpanKind::Server);
        assert!(sent.start_time_unix_nano <= sent.end_time_unix_nano);
        let part = Begun::part(trace, call.span).ended("part", Vec::new(), None);
        assert_eq!(part.parent_span_id, call.span.bytes()[..]);
        assert_eq!((part.kind(), part.flags), (SpanKind::Internal, 0x101));
        let first = Begun::call(trace, None, String::new()).ended("first", Vec::new(), None);
        assert_eq!((first.parent_span_id.len(), first.flags), (0, 0x101));
    }
}
