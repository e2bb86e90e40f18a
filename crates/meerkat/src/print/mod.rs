//! How answers look: one file a format, all with `etcdctl`'s exact text, since scripts parse it.
//!
//! A command says *what* came back as an [`Answer`]; nothing here sends a request. Rendering goes
//! to bytes, because keys and values are bytes.

mod fields;
mod json;
mod simple;
mod table;

use std::io::Write;
use std::time::Duration;

use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

use crate::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Simple,
    Json,
    Fields,
    Table,
    Protobuf,
}

impl Format {
    pub fn parse(name: &str) -> Result<Format, Failure> {
        match name {
            "simple" => Ok(Format::Simple),
            "json" => Ok(Format::Json),
            "fields" => Ok(Format::Fields),
            "table" => Ok(Format::Table),
            "protobuf" => Ok(Format::Protobuf),
            _ => Err(Failure::bad_feature("unsupported output format")),
        }
    }

    /// For commands that change something: what cannot be shown must not be done first.
    pub fn refuse_table(self) -> Result<(), Failure> {
        if self == Format::Table { Err(unsupported("table")) } else { Ok(()) }
    }
}

/// How to render, apart from what.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub format: Format,
    /// Byte strings as `\x61\x62`, member ids in JSON as hexadecimal.
    pub hex: bool,
}

/// Something a command has to show.
pub enum Answer {
    Get { response: pb::RangeResponse, values_only: bool },
    Put(pb::PutResponse),
    Del(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    Members(pb::MemberListResponse),
    Statuses(Vec<(String, pb::StatusResponse)>),
    Hashes(Vec<(String, pb::HashKvResponse)>),
    Health(Vec<EndpointHealth>),
}

/// Whether an endpoint answers, and how fast.
pub struct EndpointHealth {
    pub endpoint: String,
    pub took: Duration,
    /// Empty if it is healthy.
    pub error: String,
}

/// Renders an answer and writes it to stdout.
pub fn show(answer: &Answer, style: Style) -> Result<(), Failure> {
    let bytes = render(answer, style)?;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
        // The reader has seen enough, as with `| head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn render(answer: &Answer, style: Style) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    match style.format {
        Format::Simple => simple::render(answer, style.hex, &mut out),
        Format::Json => json::render(answer, style.hex, &mut out),
        Format::Fields => fields::render(answer, &mut out),
        Format::Table => table::render(answer, &mut out).ok_or_else(|| unsupported("table"))?,
        Format::Protobuf => protobuf(answer, &mut out).ok_or_else(|| unsupported("protobuf"))?,
    }
    Ok(out)
}

fn unsupported(format: &str) -> Failure {
    Failure::bad_feature(format!("{format} not supported as output format"))
}

fn protobuf(answer: &Answer, out: &mut Vec<u8>) -> Option<()> {
    *out = match answer {
        Answer::Get { response, .. } => response.encode_to_vec(),
        Answer::Put(response) => response.encode_to_vec(),
        Answer::Del(response) => response.encode_to_vec(),
        Answer::Txn(response) => response.encode_to_vec(),
        Answer::Members(response) => response.encode_to_vec(),
        Answer::Statuses(_) | Answer::Hashes(_) | Answer::Health(_) => return None,
    };
    Some(())
}

/// The columns of a member, as `simple` and `table` show them.
fn member_columns(member: &pb::Member) -> Vec<String> {
    vec![
        format!("{:x}", member.id),
        if member.name.is_empty() { "unstarted" } else { "started" }.to_owned(),
        member.name.clone(),
        member.peer_ur_ls.join(","),
        member.client_ur_ls.join(","),
        member.is_learner.to_string(),
    ]
}

/// The columns of an endpoint's status, as `simple` and `table` show them.
fn status_columns(endpoint: &str, status: &pb::StatusResponse) -> Vec<String> {
    let member = status.header.as_ref().map_or(0, |header| header.member_id);
    vec![
        endpoint.to_owned(),
        format!("{member:x}"),
        status.version.clone(),
        decimal_bytes(u64::try_from(status.db_size).unwrap_or(0)),
        (status.leader == member).to_string(),
        status.is_learner.to_string(),
        status.raft_term.to_string(),
        status.raft_index.to_string(),
        status.raft_applied_index.to_string(),
        status.errors.join(", "),
    ]
}

/// A size for people: `25 kB`, `1.5 GB`, in powers of a thousand.
fn decimal_bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = (bytes as f64).log(1000.0).floor() as usize;
    let scaled = (bytes as f64 / 1000_f64.powi(power as i32) * 10.0 + 0.5).floor() / 10.0;
    if scaled < 10.0 {
        format!("{scaled:.1} {}", UNITS[power])
    } else {
        format!("{scaled:.0} {}", UNITS[power])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_for_people() {
        let rows = [
            (0, "0 B"),
            (9, "9 B"),
            (82, "82 B"),
            (1_000, "1.0 kB"),
            (24_576, "25 kB"),
            (2_147_483_648, "2.1 GB"),
        ];
        for (bytes, text) in rows {
            assert_eq!(decimal_bytes(bytes), text);
        }
    }

    #[test]
    fn what_has_no_table_is_refused_with_etcdctls_words() {
        let style = Style { format: Format::Table, hex: false };
        let refusal = render(&Answer::Put(pb::PutResponse::default()), style).expect_err("no table of a put");
        assert_eq!(refusal, Failure::bad_feature("table not supported as output format"));
    }
}
