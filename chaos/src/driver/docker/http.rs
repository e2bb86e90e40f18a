//! One request over the engine's unix socket, in as much HTTP/1.1 as that takes: a connection for
//! each, an answer with a length, in chunks, or until the end. What arrives is outside input: what
//! is not HTTP is refused, and an answer has a largest size.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::Failure;

/// Far above any list, inspection or tail of a log that is asked for here.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// What the engine answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// Asks once. `body` is JSON.
pub async fn ask(
    socket: &Path,
    method: &str,
    target: &str,
    body: Option<&serde_json::Value>,
    within: Duration,
) -> Result<Answer, Failure> {
    let asked = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(&request(method, target, body)).await?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let what = format!("{method} {target} of the Docker engine at {}", socket.display());
    match tokio::time::timeout(within, asked).await {
        Ok(Ok(answer)) => parse(&answer).map_err(|why| Failure::harness(format!("{what}: {why}"))),
        Ok(Err(error)) => Err(Failure::harness(format!("{what}: {error}"))),
        Err(_) => Err(Failure::harness(format!("{what}: no answer within {within:?}"))),
    }
}

fn request(method: &str, target: &str, body: Option<&serde_json::Value>) -> Vec<u8> {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn parse(answer: &[u8]) -> Result<Answer, String> {
    let end = find(answer, b"\r\n\r\n").ok_or("the answer has no head")?;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let body = &answer[end + 4..];
    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("no status in {:?}", head.lines().next().unwrap_or("")))?;
    let header = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.trim())
    };
    let body = if header("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
        join_chunks(body)?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.parse().map_err(|_| format!("a length of {length:?}"))?;
        body.get(..length).ok_or("the answer ends before its time")?.to_vec()
    } else {
        body.to_vec()
    };
    Ok(Answer { status, body })
}

fn join_chunks(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let mut whole = Vec::new();
    loop {
        let end = find(rest, b"\r\n").ok_or("a chunk without a length")?;
        let digits = String::from_utf8_lossy(&rest[..end]);
        let digits = digits.split(';').next().unwrap_or("").trim();
        let length =
            usize::from_str_radix(digits, 16).map_err(|_| format!("a chunk of length {digits:?}"))?;
        if length == 0 {
            return Ok(whole);
        }
        let from = end + 2;
        let until = from.checked_add(length).ok_or("a chunk beyond all bounds")?;
        whole.extend_from_slice(rest.get(from..until).ok_or("the answer ends within a chunk")?);
        rest = rest.get(until + 2..).ok_or("the answer ends after a chunk")?;
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A text as it may stand in a query.
pub fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: Result<(u16, &str), ()>) {
        let parsed = parse(answer.as_bytes()).map_err(|_| ());
        let expected = expected.map(|(status, body)| Answer { status, body: body.as_bytes().to_vec() });
        assert_eq!(parsed, expected, "{answer:?}");
    }

    #[test]
    fn an_answer_has_a_length_comes_in_chunks_or_ends_with_the_connection() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Ok((200, "[]")));
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
            Ok((200, "abc0123456789")),
        );
        check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, "")));
    }

    #[test]
    fn what_is_cut_short_or_is_no_http_is_refused() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]", Err(()));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc", Err(()));
        check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc\r\n", Err(()));
        check("hello\r\n\r\n", Err(()));
        check("", Err(()));
    }

    #[test]
    fn a_query_holds_no_letter_of_its_own_grammar() {
        assert_eq!(escape("{\"a\":[\"b=c\"]}"), "%7B%22a%22%3A%5B%22b%3Dc%22%5D%7D");
    }
}
