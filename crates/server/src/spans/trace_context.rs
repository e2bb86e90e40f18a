//! What a caller says of the trace that its call belongs to: W3C's Trace Context, in the metadata of a call.
//!
//! Whatever cannot be read counts as not said: a caller's headers never fail its call.

use http::HeaderMap;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// `00-<32 digits>-<16 digits>-<2 digits>`. Later versions may be longer, after one more dash.
const PARENT_BYTES: usize = 55;

/// What every vendor must be able to carry, and all that we do.
const STATE_BYTES_MAX: usize = 512;

const SAMPLED: u8 = 1;

/// Never all zeros, as neither is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceId([u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId([u8; 8]);

impl TraceId {
    pub(super) fn new(bytes: [u8; 16]) -> Option<TraceId> {
        (bytes != [0; 16]).then_some(TraceId(bytes))
    }

    pub(super) fn random() -> TraceId {
        loop {
            if let Some(id) = TraceId::new(rand::random()) {
                return id;
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    pub(super) fn new(bytes: [u8; 8]) -> Option<SpanId> {
        (bytes != [0; 8]).then_some(SpanId(bytes))
    }

    pub(super) fn random() -> SpanId {
        loop {
            if let Some(id) = SpanId::new(rand::random()) {
                return id;
            }
        }
    }

    pub(super) fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// The span of the caller that this call is made under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Whether the caller keeps its span, and so wants ours.
    pub(super) sampled: bool,
}

impl Parent {
    /// Nothing if two are named: nobody could say which is meant.
    pub(super) fn of(headers: &HeaderMap) -> Option<Parent> {
        let mut values = headers.get_all(PARENT).iter();
        let first = values.next()?;
        if values.next().is_some() { None } else { Parent::parse(first.as_bytes()) }
    }

    fn parse(text: &[u8]) -> Option<Parent> {
        let (known, more) = text.split_at_checked(PARENT_BYTES)?;
        let [version] = hex(&known[..2])?;
        let is_read = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.first().is_none_or(|next| *next == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| known[*at] == b'-');
        if !is_read || !dashes {
            return None;
        }
        let [flags] = hex(&known[53..])?;
        Some(Parent {
            trace: TraceId::new(hex(&known[3..35])?)?,
            span: SpanId::new(hex(&known[36..52])?)?,
            sampled: flags & SAMPLED != 0,
        })
    }
}

/// What vendors along the way say of the trace, to be handed on as it is; empty if it is longer than we carry.
pub(super) fn state_of(headers: &HeaderMap) -> String {
    let texts = headers.get_all(STATE).iter().map(|value| value.to_str().ok());
    let texts: Option<Vec<&str>> = texts.collect();
    let state = texts.unwrap_or_default().join(",");
    if state.len() <= STATE_BYTES_MAX { state } else { String::new() }
}

/// Bytes from digits, of which the capital ones do not count.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let pairs = digits.as_chunks::<2>().0;
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

const fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    fn parent(sampled: bool) -> Parent {
        let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
        let span = 0xb7ad_6b71_6920_3331_u64.to_be_bytes();
        Parent { trace: TraceId::new(trace).expect("some"), span: SpanId::new(span).expect("some"), sampled }
    }

    fn headers(name: &'static str, values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn a_parent_is_read_in_every_form_that_the_standard_has() {
        for (text, sampled) in [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("00-{TRACE}-{SPAN}-00"), false),
            // Flags that are not known yet are no reason to lose the trace.
            (format!("00-{TRACE}-{SPAN}-fe"), false),
            (format!("00-{TRACE}-{SPAN}-ff"), true),
            // Nor are versions to come.
            (format!("01-{TRACE}-{SPAN}-01"), true),
            (format!("fe-{TRACE}-{SPAN}-01-what-comes"), true),
            (format!("cc-{TRACE}-{SPAN}-01-"), true),
        ] {
            assert_eq!(Parent::parse(text.as_bytes()), Some(parent(sampled)), "{text}");
        }
    }

    #[test]
    fn what_is_malformed_counts_as_not_said() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        let mut rows: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole.as_bytes()[..end].to_vec()).collect();
        for text in [
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-010"),
            format!("01-{TRACE}-{SPAN}-01x"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{}-01", SPAN.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}-{SPAN}+01"),
            "-".repeat(PARENT_BYTES),
            "é".repeat(PARENT_BYTES),
            "0".repeat(1 << 16),
        ] {
            rows.push(text.into_bytes());
        }
        rows.push(vec![0xff; PARENT_BYTES]);
        for text in rows {
            assert_eq!(Parent::parse(&text), None, "{}", String::from_utf8_lossy(&text));
        }
    }

    #[test]
    fn no_single_byte_can_be_another_without_being_noticed_or_meant() {
        let whole = format!("00-{TRACE}-{SPAN}-01").into_bytes();
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut text = whole.clone();
                text[at] = byte;
                let digit = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                let expected = if [2, 35, 52].contains(&at) { byte == b'-' } else { digit };
                assert_eq!(Parent::parse(&text).is_some(), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn one_parent_is_heard_and_of_two_neither() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        assert_eq!(Parent::of(&HeaderMap::new()), None);
        assert_eq!(Parent::of(&headers(PARENT, &[text.as_bytes()])), Some(parent(true)));
        assert_eq!(Parent::of(&headers(PARENT, &[text.as_bytes(), text.as_bytes()])), None);
    }

    #[test]
    fn the_state_is_handed_on_unless_it_is_too_long_or_no_text() {
        assert_eq!(state_of(&HeaderMap::new()), "");
        assert_eq!(state_of(&headers(STATE, &[b"a=1", b"b=2"])), "a=1,b=2");
        assert_eq!(state_of(&headers(STATE, &[&[b'a'; STATE_BYTES_MAX]])).len(), STATE_BYTES_MAX);
        assert_eq!(state_of(&headers(STATE, &[&[b'a'; STATE_BYTES_MAX + 1]])), "");
        assert_eq!(state_of(&headers(STATE, &[b"a=\xff"])), "");
    }
}
