//! The format with one labelled field a line: every number an answer holds, and byte strings in
//! Go's quotes. A header or number that was not sent counts as zero.

use meerkat_proto::pb::etcdserver as pb;
use meerkat_proto::pb::mvcc::KeyValue;
use pb::response_op::Response;

use super::{
    Answer, AuthAnswer, EndpointHealth, EndpointWatchers, LeaseAnswer, TimedRange, rfc3339, watcher_state,
};
use crate::go_duration;
use crate::go_quote::quote;

/// `None` for answers that `etcdctl` has no fields of.
pub fn render(answer: &Answer, out: &mut Vec<u8>) -> Option<()> {
    let mut page = Page { out };
    match answer {
        Answer::Get { response, .. } => page.range(response),
        Answer::Timed(timed) => page.timed(timed),
        Answer::Put(response) => page.put(response),
        Answer::Del(response) => page.del(response),
        Answer::Txn(response) => page.txn(response),
        Answer::Members(response) | Answer::MemberChange { members: response, .. } => page.members(response),
        Answer::Statuses(list) => list.iter().for_each(|(endpoint, status)| page.status(endpoint, status)),
        Answer::Hashes(list) => {
            for (endpoint, hash) in list {
                page.header(hash.header.as_ref());
                page.field("Endpoint", quote(endpoint.as_bytes()));
                page.field("Hash", hash.hash);
                page.blank();
            }
        }
        Answer::Snapshot(status) => {
            page.field("Hash", status.hash);
            page.field("Revision", status.revision);
            page.field("Keys", status.total_keys);
            page.field("Size", status.total_bytes);
            page.field("Version", &status.version);
        }
        Answer::Health(list) => list.iter().for_each(|health| page.health(health)),
        Answer::Watch(response) => page.watch(response),
        Answer::Watchers(list) => list.iter().for_each(|at| page.watchers(at)),
        Answer::Lease(lease) => page.lease(lease),
        Answer::Auth(auth) => page.auth(auth)?,
        Answer::Alarms(response) => page.alarms(response),
        Answer::Downgrade { .. } | Answer::LeaderMoved { .. } => return None,
    }
    Some(())
}

struct Page<'o> {
    out: &'o mut Vec<u8>,
}

impl Page<'_> {
    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        self.out.extend_from_slice(format!("\"{name}\" : {value}\n").as_bytes());
    }

    fn blank(&mut self) {
        self.out.push(b'\n');
    }

    fn header(&mut self, header: Option<&pb::ResponseHeader>) {
        let none = pb::ResponseHeader::default();
        let header = header.unwrap_or(&none);
        self.field("ClusterID", header.cluster_id);
        self.field("MemberID", header.member_id);
        self.field("Revision", header.revision);
        self.field("RaftTerm", header.raft_term);
    }

    fn kv(&mut self, prefix: &str, kv: &KeyValue) {
        self.field(&format!("{prefix}Key"), quote(&kv.key));
        self.field(&format!("{prefix}CreateRevision"), kv.create_revision);
        self.field(&format!("{prefix}ModRevision"), kv.mod_revision);
        self.field(&format!("{prefix}Version"), kv.version);
        self.field(&format!("{prefix}Value"), quote(&kv.value));
        self.field(&format!("{prefix}Lease"), kv.lease);
    }

    fn range(&mut self, response: &pb::RangeResponse) {
        self.header(response.header.as_ref());
        response.kvs().iter().for_each(|kv| self.kv("", kv));
        self.field("More", response.more);
        self.field("Count", response.count);
    }

    fn timed(&mut self, timed: &TimedRange) {
        self.header(timed.response.header.as_ref());
        for (kv, time) in timed.rows() {
            self.kv("", kv);
            self.field("CreateTime", quote(rfc3339(time.created_ms).as_bytes()));
            self.field("ModTime", quote(rfc3339(time.modified_ms).as_bytes()));
        }
        self.field("More", timed.response.more);
        self.field("Count", timed.response.count);
    }

    fn watch(&mut self, response: &pb::WatchResponse) {
        self.header(response.header.as_ref());
        for event in &response.events {
            self.field("Type", event.r#type().as_str_name());
            event.prev_kv.iter().for_each(|kv| self.kv("Prev", kv));
            event.kv.iter().for_each(|kv| self.kv("", kv));
        }
    }

    fn watchers(&mut self, at: &EndpointWatchers) {
        for watcher in &at.watchers {
            self.field("Endpoint", quote(at.endpoint.as_bytes()));
            self.field("MemberID", at.member_id);
            self.field("Revision", at.revision);
            self.field("Client", quote(watcher.client_address.as_bytes()));
            self.field("Stream", watcher.stream_id);
            self.field("WatchID", watcher.watch_id);
            self.field("Key", quote(&watcher.key));
            self.field("RangeEnd", quote(&watcher.range_end));
            self.field("State", quote(watcher_state(watcher).as_bytes()));
            self.field("NextRevision", watcher.next_revision);
            self.field("LagRevisions", watcher.lag_revisions);
            self.field("LagMs", watcher.lag_ms);
            self.field("StreamQueuedBytes", watcher.stream_queued_bytes);
            self.field("StreamQueuedItems", watcher.stream_queued_items);
            self.blank();
        }
    }

    fn lease(&mut self, lease: &LeaseAnswer) {
        self.header(lease.header());
        match lease {
            LeaseAnswer::Granted(response) => {
                self.field("ID", response.id);
                self.field("TTL", response.ttl);
            }
            LeaseAnswer::Revoked { .. } => {}
            LeaseAnswer::TimeToLive { response, .. } => {
                self.field("ID", response.id);
                self.field("TTL", response.ttl);
                self.field("GrantedTTL", response.granted_ttl);
                response.keys.iter().for_each(|key| self.field("Key", quote(key)));
            }
            LeaseAnswer::Leases(response) => {
                response.leases.iter().for_each(|lease| self.field("ID", lease.id));
            }
            LeaseAnswer::KeptAlive(response) => {
                self.field("ID", response.id);
                self.field("TTL", response.ttl);
            }
        }
    }

    fn auth(&mut self, auth: &AuthAnswer) -> Option<()> {
        match auth {
            AuthAnswer::Done { header, .. } => self.header(header.as_ref()),
            AuthAnswer::Role { response, .. } => {
                self.header(response.header.as_ref());
                for permission in &response.perm {
                    // With two spaces: `etcdctl` puts one more between what it joins.
                    self.field("PermType", format!(" {}", permission.perm_type().as_str_name()));
                    self.field("Key", quote(&permission.key));
                    self.field("RangeEnd", quote(&permission.range_end));
                }
            }
            AuthAnswer::Roles(response) => {
                self.header(response.header.as_ref());
                let names: String =
                    response.roles.iter().map(|role| format!(" {}", quote(role.as_bytes()))).collect();
                self.out.extend_from_slice(format!("\"Roles\" :{names}\n").as_bytes());
            }
            AuthAnswer::Status(_) | AuthAnswer::User { .. } | AuthAnswer::Users(_) => return None,
        }
        Some(())
    }

    fn alarms(&mut self, response: &pb::AlarmResponse) {
        self.header(response.header.as_ref());
        for alarm in &response.alarms {
            self.field("MemberID", alarm.member_id);
            self.field("AlarmType", alarm.alarm().as_str_name());
            self.blank();
        }
    }

    fn put(&mut self, response: &pb::PutResponse) {
        self.header(response.header.as_ref());
        response.prev_kv.iter().for_each(|kv| self.kv("Prev", kv));
    }

    fn del(&mut self, response: &pb::DeleteRangeResponse) {
        self.header(response.header.as_ref());
        self.field("Deleted", response.deleted);
        response.prev_kvs.iter().for_each(|kv| self.kv("Prev", kv));
    }

    fn txn(&mut self, response: &pb::TxnResponse) {
        self.header(response.header.as_ref());
        self.field("Succeeded", response.succeeded);
        for operation in &response.responses {
            match &operation.response {
                Some(Response::ResponsePut(response)) => self.put(response),
                Some(Response::ResponseRange(response)) => self.range(response),
                Some(Response::ResponseDeleteRange(response)) => self.del(response),
                Some(Response::ResponseTxn(response)) => self.txn(response),
                None => {}
            }
        }
    }

    fn members(&mut self, response: &pb::MemberListResponse) {
        self.header(response.header.as_ref());
        for member in &response.members {
            self.field("ID", member.id);
            self.field("Name", quote(member.name.as_bytes()));
            member.peer_ur_ls.iter().for_each(|url| self.field("PeerURL", quote(url.as_bytes())));
            member.client_ur_ls.iter().for_each(|url| self.field("ClientURL", quote(url.as_bytes())));
            self.field("IsLearner", member.is_learner);
            self.blank();
        }
    }

    fn status(&mut self, endpoint: &str, status: &pb::StatusResponse) {
        self.header(status.header.as_ref());
        self.field("Version", quote(status.version.as_bytes()));
        self.field("DBSize", status.db_size);
        self.field("Leader", status.leader);
        self.field("IsLearner", status.is_learner);
        self.field("RaftIndex", status.raft_index);
        self.field("RaftTerm", status.raft_term);
        self.field("RaftAppliedIndex", status.raft_applied_index);
        self.field("Errors", format!("[{}]", status.errors.join(" ")));
        self.field("Endpoint", quote(endpoint.as_bytes()));
        self.blank();
    }

    fn health(&mut self, health: &EndpointHealth) {
        self.field("Endpoint", quote(health.endpoint.as_bytes()));
        self.field("Health", health.error.is_empty());
        self.field("Took", go_duration::format(health.took));
        self.field("Error", &health.error);
        self.blank();
    }
}
