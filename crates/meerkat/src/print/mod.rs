//! How answers look: one file a format, all with `etcdctl`'s exact text, since scripts parse it.
//!
//! A command says *what* came back as an [`Answer`]; nothing here sends a request. Rendering goes
//! to bytes, because keys and values are bytes.

mod auth;
mod fields;
mod json;
mod lease;
mod simple;
mod table;
pub mod time_text;

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Duration;

use meerkat_proto::pb::admin;
use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::KeyValue;
use prost::Message;

use crate::failure::Failure;
use crate::go_quote::quote;

pub use self::auth::AuthAnswer;
pub use self::lease::{LeaseAnswer, lease_id_text};
pub use self::time_text::rfc3339;

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

    /// For those of them whose answer has no labelled fields either.
    pub fn refuse_table_and_fields(self) -> Result<(), Failure> {
        self.refuse_table()?;
        if self == Format::Fields { Err(unsupported("fields")) } else { Ok(()) }
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
    Get {
        response: pb::RangeResponse,
        values_only: bool,
    },
    Timed(TimedRange),
    Put(pb::PutResponse),
    Del(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    Members(pb::MemberListResponse),
    /// With all members after it.
    MemberChange {
        change: MemberChange,
        members: pb::MemberListResponse,
    },
    Statuses(Vec<(String, pb::StatusResponse)>),
    Hashes(Vec<(String, pb::HashKvResponse)>),
    Health(Vec<EndpointHealth>),
    /// What a watch was told; the canceled one of a watch that was never created has no header.
    Watch(pb::WatchResponse),
    Watchers(Vec<EndpointWatchers>),
    Lease(LeaseAnswer),
    Snapshot(meerkat_backup::snapshot::SnapshotStatus),
    Auth(AuthAnswer),
    Alarms(pb::AlarmResponse),
    Downgrade {
        /// What was asked for, in a word.
        what: &'static str,
        response: pb::DowngradeResponse,
    },
    LeaderMoved {
        from: u64,
        to: u64,
        response: pb::MoveLeaderResponse,
    },
}

/// What was done to the membership, and to whom.
pub enum MemberChange {
    Added(pb::Member),
    Removed(u64),
    Updated(u64),
    Promoted(u64),
}

impl MemberChange {
    fn line(&self, cluster: u64) -> String {
        match self {
            MemberChange::Added(member) => {
                let learner = if member.is_learner { " as learner" } else { "" };
                format!("Member {:16x} added{learner} to cluster {cluster:16x}", member.id)
            }
            MemberChange::Removed(id) => format!("Member {id:16x} removed from cluster {cluster:16x}"),
            MemberChange::Updated(id) => format!("Member {id:16x} updated in cluster {cluster:16x}"),
            MemberChange::Promoted(id) => format!("Member {id:16x} promoted in cluster {cluster:16x}"),
        }
    }
}

/// A range with the times of each of its key-values, in the same order.
pub struct TimedRange {
    pub response: pb::RangeResponse,
    pub times: Vec<KeyTime>,
}

/// In milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTime {
    pub created_ms: u64,
    pub modified_ms: u64,
}

impl TimedRange {
    fn rows(&self) -> impl Iterator<Item = (&KeyValue, &KeyTime)> {
        self.response.kvs().iter().zip(&self.times)
    }
}

/// Everyone who watches at one endpoint.
pub struct EndpointWatchers {
    pub endpoint: String,
    pub member_id: u64,
    /// The newest revision the member has given to its watchers.
    pub revision: i64,
    pub watchers: Vec<admin::Watcher>,
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
    show_next(answer, style).map(drop)
}

/// As [`show`], for one answer of many: breaks off when nobody reads them any more.
pub fn show_next(answer: &Answer, style: Style) -> Result<ControlFlow<()>, Failure> {
    let bytes = render(answer, style)?;
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&bytes).and_then(|()| stdout.flush()) {
        // The reader has seen enough, as with `| head`.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        outcome => Ok(ControlFlow::Continue(outcome?)),
    }
}

fn render(answer: &Answer, style: Style) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    // A mark of progress is a line of text in every format.
    if let Answer::Watch(response) = answer
        && let Some(revision) = progress_mark(response)
    {
        out.extend_from_slice(format!("progress notify: {revision}\n").as_bytes());
    }
    match style.format {
        Format::Simple => simple::render(answer, style.hex, &mut out),
        Format::Json => json::render(answer, style.hex, &mut out),
        Format::Fields => fields::render(answer, &mut out).ok_or_else(|| unsupported("fields"))?,
        Format::Table => table::render(answer, &mut out).ok_or_else(|| unsupported("table"))?,
        Format::Protobuf => protobuf(answer, &mut out).ok_or_else(|| unsupported("protobuf"))?,
    }
    Ok(out)
}

/// The revision up to which a watch has been told everything, if that is all that the response says.
pub fn progress_mark(response: &pb::WatchResponse) -> Option<i64> {
    let silent = response.events.is_empty() && !response.created && !response.canceled;
    let revision = response.header.map_or(0, |header| header.revision);
    (silent && response.compact_revision == 0 && revision != 0).then_some(revision)
}

fn unsupported(format: &str) -> Failure {
    Failure::bad_feature(format!("{format} not supported as output format"))
}

fn protobuf(answer: &Answer, out: &mut Vec<u8>) -> Option<()> {
    let bytes = match answer {
        Answer::Get { response, .. } => response.encode_to_vec(),
        Answer::Put(response) => response.encode_to_vec(),
        Answer::Del(response) => response.encode_to_vec(),
        Answer::Txn(response) => response.encode_to_vec(),
        Answer::Members(response) => response.encode_to_vec(),
        Answer::MemberChange { change: MemberChange::Added(member), members } => pb::MemberAddResponse {
            header: members.header,
            member: Some(member.clone()),
            members: members.members.clone(),
        }
        .encode_to_vec(),
        // The other answers are a list of all members too.
        Answer::MemberChange { members, .. } => members.encode_to_vec(),
        Answer::Watch(response) => {
            // As etcd's Go client keeps it, which forgets these two.
            pb::WatchResponse { watch_id: 0, cancel_reason: String::new(), ..response.clone() }
                .encode_to_vec()
        }
        Answer::Lease(lease) => lease.protobuf()?,
        Answer::Auth(auth) => auth.protobuf(),
        Answer::Alarms(response) => response.encode_to_vec(),
        Answer::Downgrade { response, .. } => response.encode_to_vec(),
        Answer::LeaderMoved { response, .. } => response.encode_to_vec(),
        Answer::Timed(_)
        | Answer::Statuses(_)
        | Answer::Hashes(_)
        | Answer::Health(_)
        | Answer::Watchers(_)
        | Answer::Snapshot(_) => return None,
    };
    out.extend_from_slice(&bytes);
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

/// The columns of a snapshot's status, as `simple` and `table` show them.
fn snapshot_columns(status: &meerkat_backup::snapshot::SnapshotStatus) -> Vec<String> {
    vec![
        format!("{:x}", status.hash),
        status.revision.to_string(),
        status.total_keys.to_string(),
        decimal_bytes(status.total_bytes),
        status.version.clone(),
    ]
}

/// The columns of a watcher, as `simple` and `table` show them.
fn watcher_columns(endpoint: &str, watcher: &admin::Watcher) -> Vec<String> {
    vec![
        endpoint.to_owned(),
        watcher.client_address.clone(),
        watcher.stream_id.to_string(),
        watcher.watch_id.to_string(),
        key_range_text(&watcher.key, &watcher.range_end),
        watcher_state(watcher).to_owned(),
        watcher.next_revision.to_string(),
        watcher.lag_revisions.to_string(),
        format!("{}.{:03}", watcher.lag_ms / 1_000, watcher.lag_ms % 1_000),
        watcher.stream_queued_bytes.to_string(),
    ]
}

fn watcher_state(watcher: &admin::Watcher) -> &'static str {
    match watcher.state() {
        admin::WatcherState::Unspecified => "unknown",
        admin::WatcherState::Synced => "synced",
        admin::WatcherState::CatchingUp => "catching up",
        admin::WatcherState::Ended => "ended",
    }
}

/// One key, from a key to an end that is not in it, or from a key on.
fn key_range_text(key: &[u8], range_end: &[u8]) -> String {
    match range_end {
        [] => quote(key),
        [0] => format!("{}..", quote(key)),
        end => format!("{}..{}", quote(key), quote(end)),
    }
}

/// An alarm as Go writes such a message for people, with a space after each field.
fn alarm_text(alarm: &pb::AlarmMember) -> String {
    let member = if alarm.member_id == 0 { String::new() } else { format!("memberID:{} ", alarm.member_id) };
    let kind = match alarm.alarm() {
        pb::AlarmType::None => String::new(),
        kind => format!("alarm:{} ", kind.as_str_name()),
    };
    member + &kind
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
    fn a_watcher_is_a_row_that_says_what_it_is_owed() {
        let watcher = admin::Watcher {
            stream_id: 4,
            watch_id: 1,
            client_address: "10.0.0.1:5000".to_owned(),
            key: "a\n".into(),
            range_end: "b".into(),
            state: admin::WatcherState::CatchingUp.into(),
            next_revision: 7,
            lag_revisions: 3,
            lag_ms: 1_020,
            stream_queued_bytes: 99,
            ..Default::default()
        };
        let row = watcher_columns("m:1", &watcher).join(" ");
        assert_eq!(row, "m:1 10.0.0.1:5000 4 1 \"a\\n\"..\"b\" catching up 7 3 1.020 99");
        assert_eq!(key_range_text(b"k", b""), "\"k\"");
        assert_eq!(key_range_text(b"k", b"\0"), "\"k\"..");
    }

    #[test]
    fn what_has_no_table_is_refused_with_etcdctls_words() {
        let style = Style { format: Format::Table, hex: false };
        let refusal = render(&Answer::Put(pb::PutResponse::default()), style).expect_err("no table of a put");
        assert_eq!(refusal, Failure::bad_feature("table not supported as output format"));
    }
}
