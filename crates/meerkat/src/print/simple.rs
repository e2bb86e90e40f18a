//! The format for eyes and pipes: keys and values on lines of their own, lists comma-separated.
//!
//! Bytes go out as they are, unless hexadecimal was asked for.

use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::{Event, KeyValue};
use pb::response_op::Response;

use super::{
    Answer, TimedRange, alarm_text, member_columns, rfc3339, snapshot_columns, status_columns,
    watcher_columns,
};
use crate::go_duration;

pub fn render(answer: &Answer, hex: bool, out: &mut Vec<u8>) {
    let mut page = Page { hex, out };
    match answer {
        Answer::Get { response, values_only: false } => page.kvs(response.kvs()),
        Answer::Get { response, values_only: true } => {
            response.kvs().iter().for_each(|kv| page.bytes_line(&kv.value));
        }
        Answer::Timed(timed) => page.timed(timed),
        Answer::Put(response) => page.put(response),
        Answer::Del(response) => page.del(response),
        Answer::Txn(response) => page.txn(response),
        Answer::Members(response) => {
            response.members.iter().for_each(|member| page.row(&member_columns(member)));
        }
        Answer::MemberChange { change, members } => {
            page.line(&change.line(members.header.map_or(0, |header| header.cluster_id)));
        }
        Answer::Statuses(list) => {
            list.iter().for_each(|(endpoint, status)| page.row(&status_columns(endpoint, status)));
        }
        Answer::Hashes(list) => {
            list.iter().for_each(|(endpoint, hash)| page.row(&[endpoint.clone(), hash.hash.to_string()]));
        }
        Answer::Snapshot(status) => page.row(&snapshot_columns(status)),
        Answer::Watch(response) => response.events.iter().for_each(|event| page.event(event)),
        Answer::Watchers(list) => {
            for at in list {
                at.watchers.iter().for_each(|watcher| page.row(&watcher_columns(&at.endpoint, watcher)));
            }
        }
        Answer::Auth(auth) => auth.lines().iter().for_each(|line| page.bytes_line_as_is(line)),
        Answer::Alarms(response) => {
            response.alarms.iter().for_each(|alarm| page.line(&alarm_text(alarm)));
        }
        Answer::Downgrade { what, response } => {
            page.line(&format!("Downgrade {what} success, cluster version {}", response.version));
        }
        Answer::LeaderMoved { from, to, .. } => {
            page.line(&format!("Leadership transferred from {from:x} to {to:x}"));
        }
        Answer::Lease(lease) => lease.lines().iter().for_each(|line| page.bytes_line_as_is(line)),
        // The unhealthy ones go to stderr, where the command puts them.
        Answer::Health(list) => {
            for health in list.iter().filter(|health| health.error.is_empty()) {
                let took = go_duration::format(health.took);
                page.line(&format!(
                    "{} is healthy: successfully committed proposal: took = {took}",
                    health.endpoint
                ));
            }
        }
    }
}

struct Page<'o> {
    hex: bool,
    out: &'o mut Vec<u8>,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'\n');
    }

    fn row(&mut self, columns: &[String]) {
        self.line(&columns.join(", "));
    }

    fn bytes_line(&mut self, bytes: &[u8]) {
        if self.hex {
            let hex: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            self.line(&hex);
        } else {
            self.bytes_line_as_is(bytes);
        }
    }

    /// Bytes that `etcdctl` prints as they are even if hexadecimal was asked for.
    fn bytes_line_as_is(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.out.push(b'\n');
    }

    fn kvs(&mut self, kvs: &[KeyValue]) {
        for kv in kvs {
            self.bytes_line(&kv.key);
            self.bytes_line(&kv.value);
        }
    }

    fn timed(&mut self, timed: &TimedRange) {
        for (kv, time) in timed.rows() {
            self.kvs(std::slice::from_ref(kv));
            self.line(&format!("created {}", rfc3339(time.created_ms)));
            self.line(&format!("changed {}", rfc3339(time.modified_ms)));
        }
    }

    fn event(&mut self, event: &Event) {
        self.line(event.r#type().as_str_name());
        self.kvs(event.prev_kv.as_slice());
        self.kvs(event.kv.as_slice());
    }

    fn put(&mut self, response: &pb::PutResponse) {
        self.line("OK");
        self.kvs(response.prev_kv.as_slice());
    }

    fn del(&mut self, response: &pb::DeleteRangeResponse) {
        self.line(&response.deleted.to_string());
        self.kvs(&response.prev_kvs);
    }

    fn txn(&mut self, response: &pb::TxnResponse) {
        self.line(if response.succeeded { "SUCCESS" } else { "FAILURE" });
        for operation in &response.responses {
            self.line("");
            match &operation.response {
                Some(Response::ResponsePut(response)) => self.put(response),
                Some(Response::ResponseRange(response)) => self.kvs(response.kvs()),
                Some(Response::ResponseDeleteRange(response)) => self.del(response),
                Some(Response::ResponseTxn(response)) => self.txn(response),
                None => {}
            }
        }
    }
}
