//! An answer of the Lease service, and whether two are the same one.
//!
//! Equal means: the same code and words, or the same header revision, names and granted times. Left
//! open by the contract (D), and so not looked at, is the order of leases in a list and of keys of a
//! lease. Remaining times may lie apart by what passes between two requests.

use meerkat_proto::pb::etcdserver::{
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRevokeResponse,
    LeaseTimeToLiveResponse, ResponseHeader,
};
use tonic::{Code, Status};

use super::names::Names;

/// How far apart two remaining times may be, in seconds. Each is rounded down by itself, and a
/// member may be slow to answer on a busy machine.
pub const REMAINING_APART_MAX: i64 = 5;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAnswer {
    /// To a grant.
    Grant(LeaseGrantResponse),
    /// To a revoke.
    Revoke(LeaseRevokeResponse),
    /// To the question how long a lease lives.
    TimeToLive(LeaseTimeToLiveResponse),
    /// To the question which leases there are.
    Leases(LeaseLeasesResponse),
    /// To one renewal.
    KeepAlive(LeaseKeepAliveResponse),
    /// The end of a stream.
    Ended,
    /// A refusal.
    Refused(Code, String),
}

impl LeaseAnswer {
    /// A refusal.
    pub fn refused(status: &Status) -> Self {
        Self::Refused(status.code(), status.message().to_owned())
    }

    /// The revision in its header.
    pub fn revision(&self) -> Option<i64> {
        let header = match self {
            Self::Grant(answer) => answer.header.as_ref(),
            Self::Revoke(answer) => answer.header.as_ref(),
            Self::TimeToLive(answer) => answer.header.as_ref(),
            Self::Leases(answer) => answer.header.as_ref(),
            Self::KeepAlive(answer) => answer.header.as_ref(),
            Self::Ended | Self::Refused(..) => None,
        };
        header.map(|header| header.revision)
    }

    /// With names for ids, in one order, and without what differs between clusters by nature.
    #[must_use]
    pub fn comparable(mut self, names: &Names) -> Self {
        match &mut self {
            Self::Grant(answer) => {
                anonymous(answer.header.as_mut());
                answer.id = names.name(answer.id);
            }
            Self::Revoke(answer) => anonymous(answer.header.as_mut()),
            Self::TimeToLive(answer) => {
                anonymous(answer.header.as_mut());
                answer.id = names.name(answer.id);
                answer.keys.sort();
            }
            Self::Leases(answer) => {
                anonymous(answer.header.as_mut());
                answer.leases.iter_mut().for_each(|lease| lease.id = names.name(lease.id));
                answer.leases.sort_by_key(|lease| lease.id);
            }
            Self::KeepAlive(answer) => {
                anonymous(answer.header.as_mut());
                answer.id = names.name(answer.id);
            }
            Self::Ended | Self::Refused(..) => {}
        }
        self
    }
}

fn anonymous(header: Option<&mut ResponseHeader>) {
    if let Some(header) = header {
        *header = ResponseHeader { revision: header.revision, ..Default::default() };
    }
}

/// Whether two comparable answers are the same.
pub fn same(etcd: &LeaseAnswer, other: &LeaseAnswer) -> bool {
    let (LeaseAnswer::TimeToLive(etcd), LeaseAnswer::TimeToLive(other)) = (etcd, other) else {
        return etcd == other;
    };
    let without = |answer: &LeaseTimeToLiveResponse| LeaseTimeToLiveResponse { ttl: 0, ..answer.clone() };
    without(etcd) == without(other) && remaining_is_near(etcd, other)
}

/// A lease that is there has some time left, never more than it was granted; one that is not has
/// exactly the answer that says so.
fn remaining_is_near(etcd: &LeaseTimeToLiveResponse, other: &LeaseTimeToLiveResponse) -> bool {
    if etcd.granted_ttl == 0 {
        return etcd.ttl == other.ttl;
    }
    let sane = |answer: &LeaseTimeToLiveResponse| (0..=answer.granted_ttl).contains(&answer.ttl);
    sane(etcd) && sane(other) && (etcd.ttl - other.ttl).abs() <= REMAINING_APART_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use meerkat_proto::pb::etcdserver::LeaseStatus;

    fn remaining(ttl: i64, granted_ttl: i64, keys: &[&'static str]) -> LeaseAnswer {
        let keys = keys.iter().map(|key| (*key).into()).collect();
        LeaseAnswer::TimeToLive(LeaseTimeToLiveResponse {
            id: 1,
            ttl,
            granted_ttl,
            keys,
            ..Default::default()
        })
        .comparable(&Names::default())
    }

    #[test]
    fn remaining_times_may_be_a_little_apart_and_never_beyond_what_was_granted() {
        assert!(same(&remaining(60, 60, &[]), &remaining(59, 60, &[])));
        for wrong in [remaining(50, 60, &[]), remaining(61, 60, &[]), remaining(-1, 60, &[])] {
            assert!(!same(&remaining(60, 60, &[]), &wrong), "{wrong:?}");
        }
        assert!(!same(&remaining(60, 60, &[]), &remaining(60, 61, &[])));
    }

    #[test]
    fn a_lease_that_is_not_there_has_one_answer() {
        assert!(same(&remaining(-1, 0, &[]), &remaining(-1, 0, &[])));
        assert!(!same(&remaining(-1, 0, &[]), &remaining(0, 0, &[])));
    }

    #[test]
    fn keys_and_leases_come_in_any_order_but_all_of_them() {
        assert!(same(&remaining(9, 9, &["a", "b"]), &remaining(9, 9, &["b", "a"])));
        assert!(!same(&remaining(9, 9, &["a", "b"]), &remaining(9, 9, &["a"])));
        let leases = |ids: &[i64]| {
            let leases = ids.iter().map(|id| LeaseStatus { id: *id }).collect();
            LeaseAnswer::Leases(LeaseLeasesResponse { leases, ..Default::default() })
                .comparable(&Names::default())
        };
        assert!(same(&leases(&[3, 1]), &leases(&[1, 3])));
        assert!(!same(&leases(&[3, 1]), &leases(&[1, 3, 3])));
    }

    #[test]
    fn ids_and_terms_are_left_out_and_revisions_are_not() {
        let at = |revision, raft_term, member_id| {
            let header = ResponseHeader { cluster_id: member_id, member_id, revision, raft_term };
            LeaseAnswer::Revoke(LeaseRevokeResponse { header: Some(header) }).comparable(&Names::default())
        };
        assert!(same(&at(5, 2, 7), &at(5, 3, 8)));
        assert!(!same(&at(5, 2, 7), &at(6, 2, 7)));
    }

    #[test]
    fn a_refusal_must_have_the_same_code_and_the_same_words() {
        let refused = |code, text: &str| LeaseAnswer::Refused(code, text.to_owned());
        assert!(same(&refused(Code::NotFound, "x"), &refused(Code::NotFound, "x")));
        assert!(!same(&refused(Code::NotFound, "x"), &refused(Code::NotFound, "y")));
        assert!(!same(&refused(Code::NotFound, "x"), &refused(Code::Unknown, "x")));
    }
}
