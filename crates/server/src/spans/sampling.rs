//! Which calls are traced.

use super::trace_context::{Parent, TraceId};

pub(crate) const MILLION: u32 = 1_000_000;

/// A caller that names its trace has decided. Where nobody has, this many of a million traces are kept: by
/// their ids, so that whoever asks the same of the same trace decides alike, and as etcd decides.
pub(super) fn is_sampled(parent: Option<&Parent>, trace: &TraceId, per_million: u32) -> bool {
    if let Some(parent) = parent {
        return parent.sampled;
    }
    let [.., a, b, c, d, e, f, g, h] = *trace.bytes();
    let drawn = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
    let bound = (u128::from(per_million) << 63) / u128::from(MILLION);
    u128::from(drawn) < bound
}

#[cfg(test)]
mod tests {
    use super::super::trace_context::SpanId;
    use super::*;

    fn trace(end: u64) -> TraceId {
        TraceId::new((1 << 100 | u128::from(end)).to_be_bytes()).expect("some")
    }

    #[test]
    fn a_parent_decides_whatever_the_rate() {
        let span = SpanId::new([1; 8]).expect("some");
        for sampled in [true, false] {
            let parent = Parent { trace: trace(0), span, sampled };
            for per_million in [0, 1, MILLION] {
                assert_eq!(is_sampled(Some(&parent), &trace(u64::MAX), per_million), sampled);
                assert_eq!(is_sampled(Some(&parent), &trace(0), per_million), sampled);
            }
        }
    }

    #[test]
    fn without_one_the_id_decides() {
        let half = u64::MAX / 2;
        for (end, per_million, expected) in [
            (0, 0, false),
            (u64::MAX, 0, false),
            (0, 1, true),
            (u64::MAX, MILLION, true),
            (half, MILLION / 2, true),
            (half + 1, MILLION / 2, false),
            (u64::MAX, MILLION - 1, false),
        ] {
            assert_eq!(is_sampled(None, &trace(end), per_million), expected, "{end} at {per_million}");
        }
    }

    #[test]
    fn a_tenth_is_about_a_tenth() {
        let kept = (0..20_000).filter(|_| is_sampled(None, &TraceId::random(), MILLION / 10)).count();
        assert!((1_600..2_400).contains(&kept), "{kept} of 20000");
    }
}
