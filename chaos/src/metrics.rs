//! The numbers a member publishes for operators, read as any scraper would.

use std::collections::HashMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

/// One reading: every series by its name, labels included.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    series: HashMap<String, f64>,
}

impl Metrics {
    /// Reads `/metrics` at an address, over HTTP/1.1.
    pub async fn read(address: &str) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Self::parse(&String::from_utf8_lossy(&answer))
    }

    fn parse(answer: &str) -> Result<Self, Failure> {
        let (head, page) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
        let head = head.to_ascii_lowercase();
        if !head.starts_with("http/1.1 200 ") || head.contains("transfer-encoding") {
            return Err(Failure::broken(format!("not a page of metrics with a length: {head:?}")));
        }
        let mut series = HashMap::new();
        for line in page.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let number = line.rsplit_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)));
            let (name, value) = number
                .ok_or_else(|| Failure::broken(format!("a line of metrics without a number: {line:?}")))?;
            series.insert(name.to_owned(), value);
        }
        Ok(Self { series })
    }

    /// The names of all series, without their labels.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(|series| series.split('{').next().unwrap_or(series))
    }

    /// One number. A name that the member does not publish is a broken promise: dashboards use it.
    pub fn get(&self, name: &str) -> Result<f64, Failure> {
        let value = self.series.get(name).copied();
        value.ok_or_else(|| Failure::broken(format!("the metric {name} is not published")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_by_name_and_a_wrong_one_is_refused() {
        let page = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n# HELP a b\n# TYPE a counter\na 3\nb{c=\"d\"} 0.5\n";
        let metrics = Metrics::parse(page).expect("a page");
        assert_eq!(metrics.get("a").expect("a"), 3.0);
        assert_eq!(metrics.get("b{c=\"d\"}").expect("b"), 0.5);
        assert!(metrics.get("c").is_err());
        assert!(Metrics::parse("HTTP/1.1 404 Not Found\r\n\r\na 3\n").is_err());
        assert!(Metrics::parse("HTTP/1.1 200 OK\r\n\r\nwithout\n").is_err());
    }
}
