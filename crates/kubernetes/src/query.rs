//! The query string, decoded, and the readings that parameters share.
//!
//! Of a parameter that is repeated the first counts, and one that nobody asks for is ignored. A flag is
//! on when it is there at all, unless it says "0" or "false". What cannot be decoded is refused.

use crate::excerpt::excerpt;
use crate::percent::decode_parameter;
use crate::status::Refusal;
use crate::table::IncludeObject;
use std::time::Duration;

/// Room for two selectors as long as they may be, each of whose bytes is escaped.
pub const QUERY_BYTES_MAX: usize = 512 << 10;
pub const PARAMETERS_MAX: usize = 256;

/// How long a request that is no watch may take; a client may ask for less.
pub const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// `raw`: what follows the question mark, without it.
    pub fn parse(raw: &str) -> Result<Query, Refusal> {
        if QUERY_BYTES_MAX < raw.len() {
            return Err(Refusal::bad_request(format!("the query is longer than {QUERY_BYTES_MAX} bytes")));
        }
        let mut pairs = Vec::new();
        for part in raw.split('&').filter(|part| !part.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                let message = format!("the query has more than {PARAMETERS_MAX} parameters");
                return Err(Refusal::bad_request(message));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (Some(name), Some(value)) = (decode_parameter(name), decode_parameter(value)) else {
                return Err(Refusal::bad_request(format!(
                    "cannot decode the query parameter {:?}",
                    excerpt(part)
                )));
            };
            pairs.push((name, value));
        }
        Ok(Query { pairs })
    }

    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The same as [`Query::first`], with a parameter that is not there reading as empty.
    pub fn text(&self, name: &str) -> &str {
        self.first(name).unwrap_or_default()
    }

    /// None if the parameter is not there.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let parse = |value: &str| {
            value
                .parse()
                .map_err(|_| Refusal::bad_request(format!("{name} is not an integer: {:?}", excerpt(value))))
        };
        self.first(name).map(parse).transpose()
    }

    pub fn wants_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }

    /// How long a request that is no watch may take.
    pub fn timeout(&self) -> Result<Duration, Refusal> {
        let text = self.text("timeout");
        if text.is_empty() {
            return Ok(REQUEST_TIMEOUT_MAX);
        }
        match duration(text) {
            Some(Duration::ZERO) => Ok(REQUEST_TIMEOUT_MAX),
            Some(asked) => Ok(asked.min(REQUEST_TIMEOUT_MAX)),
            None => {
                let shown = excerpt(text);
                let why =
                    format!("invalid timeout specified in the request URL - invalid duration {shown:?}");
                Err(Refusal::bad_request(why))
            }
        }
    }

    /// Whether a person is thought to read the answer. Watches are never indented, whatever this says.
    pub fn pretty(&self, user_agent: &str) -> bool {
        match self.text("pretty") {
            "" => ["curl", "Wget", "Mozilla/5.0"].iter().any(|human| user_agent.starts_with(human)),
            asked => matches!(asked, "1" | "t" | "T" | "true" | "TRUE" | "True"),
        }
    }

    pub fn include_object(&self) -> Result<IncludeObject, Refusal> {
        IncludeObject::parse(self.text("includeObject"))
    }
}

/// `1m30s`, `1.5h`, `-300ms`: numbers with units, added up; or a bare `0`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    // Less than nothing is no bound either.
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        seconds += number.parse::<f64>().ok()? * seconds_in(unit)?;
        rest = tail;
    }
    if is_negative { Some(Duration::ZERO) } else { Duration::try_from_secs_f64(seconds).ok() }
}

fn seconds_in(unit: &str) -> Option<f64> {
    match unit {
        "ns" => Some(1e-9),
        "us" | "µs" | "μs" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "m" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn query(raw: &str) -> Query {
        Query::parse(raw).expect("a query")
    }

    #[test]
    fn the_first_of_a_repeated_parameter_counts() {
        let asked = query("a=1&b=2&a=3&&b");
        assert_eq!((asked.first("a"), asked.first("b"), asked.first("c")), (Some("1"), Some("2"), None));
        assert_eq!(asked.all("a").collect::<Vec<_>>(), ["1", "3"]);
        assert_eq!(query("x=a=b").first("x"), Some("a=b"));
    }

    #[test]
    fn what_is_escaped_is_read_as_it_was_meant() {
        let mut rng = StdRng::seed_from_u64(11);
        for _ in 0..500 {
            let word = |rng: &mut StdRng| -> String {
                (0..rng.random_range(1..8)).map(|_| char::from(rng.random_range(0..128_u8))).collect()
            };
            let pairs: Vec<(String, String)> =
                (0..rng.random_range(0..5)).map(|_| (word(&mut rng), word(&mut rng))).collect();
            let escape =
                |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            let raw: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
            assert_eq!(query(&raw.join("&")), Query { pairs });
        }
        assert_eq!(query("labelSelector=a+in+%28b%29").first("labelSelector"), Some("a in (b)"));
    }

    #[test]
    fn what_cannot_be_decoded_is_not_dropped() {
        for raw in ["labelSelector=%zz", "%=1", "a=%ff"] {
            assert_eq!(Query::parse(raw).expect_err(raw).code(), 400);
        }
    }

    #[test]
    fn a_refusal_does_not_repeat_a_long_parameter() {
        let long = "x".repeat(10_000);
        let asked = query(&format!("limit={long}&timeout={long}&includeObject={long}"));
        let refusals = [
            asked.integer("limit").expect_err("no integer"),
            asked.timeout().expect_err("no duration"),
            asked.include_object().expect_err("unknown"),
            Query::parse(&format!("{long}%")).expect_err("malformed"),
        ];
        for refusal in refusals {
            assert!(refusal.message.len() < 300, "{}", refusal.message);
        }
    }

    #[test]
    fn a_query_is_bounded() {
        let many = "a&".repeat(PARAMETERS_MAX);
        assert_eq!(Query::parse(&many).map(|query| query.pairs.len()), Ok(PARAMETERS_MAX));
        assert_eq!(Query::parse(&format!("{many}a")).expect_err("one too many").code(), 400);
        assert_eq!(Query::parse(&"a".repeat(QUERY_BYTES_MAX + 1)).expect_err("too long").code(), 400);
    }

    #[test]
    fn a_flag_is_on_unless_it_says_otherwise() {
        for (raw, expected) in [
            ("", None),
            ("watch", Some(true)),
            ("watch=", Some(true)),
            ("watch=1", Some(true)),
            ("watch=true", Some(true)),
            ("watch=yes", Some(true)),
            ("watch=0", Some(false)),
            ("watch=false", Some(false)),
            ("watch=False", Some(false)),
            ("watch=false&watch=true", Some(false)),
        ] {
            assert_eq!(query(raw).flag("watch"), expected, "{raw}");
            assert_eq!(query(raw).wants_watch(), expected == Some(true), "{raw}");
        }
    }

    #[test]
    fn an_integer_is_one_or_a_bad_request() {
        assert_eq!(query("limit=500").integer("limit"), Ok(Some(500)));
        assert_eq!(query("limit=-1").integer("limit"), Ok(Some(-1)));
        assert_eq!(query("").integer("limit"), Ok(None));
        for raw in ["limit=", "limit=x", "limit=1.5", "limit=9223372036854775808"] {
            assert_eq!(query(raw).integer("limit").expect_err(raw).code(), 400);
        }
    }

    #[test]
    fn a_timeout_is_a_duration_and_never_above_ours() {
        let check = |text: &str, ms: u64| {
            let raw = format!("timeout={text}");
            assert_eq!(query(&raw).timeout(), Ok(Duration::from_millis(ms)), "{text}");
        };
        check("10s", 10_000);
        check("0.5s", 500);
        check("300ms", 300);
        check("1s500ms", 1_500);
        check("1m", 60_000);
        check("1h", 60_000);
        check("0", 60_000);
        check("0s", 60_000);
        check("", 60_000);
        check("-1s", 60_000);
        for text in ["5", "-", "s", "1x", "1..s", "1s5", ".s", "1e3s", "%2B", "1 s"] {
            assert_eq!(query(&format!("timeout={text}")).timeout().expect_err(text).code(), 400);
        }
    }

    #[test]
    fn people_get_indented_answers_unless_they_say_otherwise() {
        for (raw, user_agent, expected) in [
            ("", "kubectl/v1.32.0", false),
            ("", "curl/8.5.0", true),
            ("", "Wget/1.21", true),
            ("", "Mozilla/5.0 (X11)", true),
            ("pretty=", "curl/8.5.0", true),
            ("pretty=false", "curl/8.5.0", false),
            ("pretty=nonsense", "curl/8.5.0", false),
            ("pretty=true", "kubectl/v1.32.0", true),
            ("pretty=1", "", true),
        ] {
            assert_eq!(query(raw).pretty(user_agent), expected, "{raw} {user_agent}");
        }
    }

    #[test]
    fn a_row_carries_metadata_unless_told_otherwise() {
        assert_eq!(query("").include_object(), Ok(IncludeObject::Metadata));
        assert_eq!(query("includeObject=None").include_object(), Ok(IncludeObject::None));
        assert_eq!(query("includeObject=Object").include_object(), Ok(IncludeObject::Object));
        assert_eq!(query("includeObject=all").include_object().expect_err("unknown").code(), 400);
    }
}
