//! Headers that name media types, taken apart.
//!
//! No clause is lost for being strange: one that makes no sense matches nothing, and the next is tried.
//! A header that is out of all bounds is cut at the bound.

use crate::excerpt::head;

const HEADER_BYTES_MAX: usize = 8 << 10;
const CLAUSES_MAX: usize = 64;

/// A media type or a range of them, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MediaRange {
    /// In lower case, `*` for any.
    pub kind: String,
    pub subtype: String,
    /// Names in lower case.
    params: Vec<(String, String)>,
}

impl MediaRange {
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn covers(&self, media_type: &str) -> bool {
        match (self.kind.as_str(), self.subtype.as_str()) {
            ("*", "*") => true,
            (kind, "*") => media_type.split('/').next() == Some(kind),
            (kind, subtype) => media_type.split_once('/') == Some((kind, subtype)),
        }
    }

    /// How much is left open.
    fn wildcards(&self) -> u8 {
        u8::from(self.kind == "*") + u8::from(self.subtype == "*")
    }
}

/// The clauses of an Accept header, most wanted first: by quality, then the definite before the open,
/// then as they came. What has a quality of zero is not wanted at all.
pub(crate) fn accept_clauses(header: &str) -> Vec<MediaRange> {
    let mut clauses: Vec<(f32, MediaRange)> = split_outside_quotes(head(header, HEADER_BYTES_MAX), ',')
        .filter_map(media_range)
        .take(CLAUSES_MAX)
        .map(|range| (quality(&range), range))
        .filter(|(quality, _)| 0.0 < *quality)
        .collect();
    clauses.sort_by(|(one, one_range), (other, other_range)| {
        other.total_cmp(one).then(one_range.wildcards().cmp(&other_range.wildcards()))
    });
    clauses.into_iter().map(|(_, range)| range).collect()
}

/// `application/json; charset=utf-8`. None for what is no media type.
pub(crate) fn media_range(text: &str) -> Option<MediaRange> {
    let mut parts = split_outside_quotes(text, ';').map(str::trim);
    let (kind, subtype) = parts.next()?.split_once('/')?;
    if kind.is_empty() || subtype.is_empty() {
        return None;
    }
    let params = parts.filter_map(|param| {
        let (name, value) = param.split_once('=')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
    });
    let params = params.collect();
    Some(MediaRange { kind: kind.to_ascii_lowercase(), subtype: subtype.to_ascii_lowercase(), params })
}

fn quality(range: &MediaRange) -> f32 {
    let asked = range.param("q").and_then(|text| text.parse::<f32>().ok());
    asked.filter(|quality| (0.0..=1.0).contains(quality)).unwrap_or(1.0)
}

fn split_outside_quotes(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c: char| {
        quoted ^= c == '"';
        c == at && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(header: &str) -> Vec<String> {
        accept_clauses(header).iter().map(|range| format!("{}/{}", range.kind, range.subtype)).collect()
    }

    #[test]
    fn the_most_wanted_comes_first() {
        assert_eq!(shown("a/b, c/d"), ["a/b", "c/d"]);
        assert_eq!(shown("a/b;q=0.5, c/d;q=0.9, e/f"), ["e/f", "c/d", "a/b"]);
        assert_eq!(shown("*/*, a/*, a/b"), ["a/b", "a/*", "*/*"]);
        assert_eq!(shown("a/b;q=0, c/d;q=0.0"), Vec::<String>::new());
        assert_eq!(shown("a/b;q=0.1, c/d;q=nonsense, e/f;q=7"), ["c/d", "e/f", "a/b"]);
    }

    #[test]
    fn what_makes_no_sense_is_passed_over() {
        assert_eq!(shown(",;,/,a,a/,/b,;q=1, c/d ,"), ["c/d"]);
        assert_eq!(shown(""), Vec::<String>::new());
    }

    #[test]
    fn parameters_are_found_whatever_their_order_and_spacing() {
        let range = media_range(r#"Application/JSON ; AS=Table;v = v1; x="a,b;c""#).expect("a media type");
        assert_eq!((range.kind.as_str(), range.subtype.as_str()), ("application", "json"));
        assert_eq!((range.param("as"), range.param("v")), (Some("Table"), Some("v1")));
        assert_eq!(range.param("g"), None);
        assert_eq!(shown(r#"a/b;x="c/d,e/f", g/h"#), ["a/b", "g/h"]);
    }

    #[test]
    fn a_range_covers_what_it_leaves_open() {
        let covers = |range: &str, media| media_range(range).expect("a range").covers(media);
        assert!(covers("*/*", "a/b") && covers("a/*", "a/b") && covers("a/b", "a/b"));
        assert!(!covers("b/*", "a/b") && !covers("a/c", "a/b") && !covers("*/b", "a/b"));
    }

    #[test]
    fn a_header_is_bounded() {
        assert_eq!(shown(&"a/b,".repeat(1_000)).len(), CLAUSES_MAX);
        assert_eq!(shown(&"a".repeat(1 << 20)).len(), 0);
        // The bound falls into the middle of a character.
        assert_eq!(shown(&format!("a/b,x{}, c/d", "é".repeat(8 << 10))), ["a/b"]);
    }
}
