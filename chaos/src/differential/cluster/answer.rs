//! An answer about membership, and its comparable form.
//!
//! Equal means: the same code and words, or the same members with the same names, roles and URLs, in
//! ascending order of id, under a header with the same revision from the same member. Ids and ports
//! differ between clusters by nature: numbers stand for them. Of a term and a cluster id only their
//! presence is looked at.

use std::collections::HashMap;

use meerkat_proto::pb::etcdserver::{Member, MoveLeaderResponse, ResponseHeader, StatusResponse};
use tonic::{Code, Status};

/// An answer as it came.
#[derive(Clone, Debug)]
pub enum Raw {
    /// To any request of the Cluster service.
    Members {
        /// The header.
        header: Option<ResponseHeader>,
        /// The member it is about, if it names one.
        member: Option<Member>,
        /// The list.
        members: Vec<Member>,
    },
    /// To Status.
    Status(Box<StatusResponse>),
    /// To MoveLeader.
    Moved(MoveLeaderResponse),
    /// To something whose content is not compared.
    Served,
    /// A refusal, or silence.
    Refused(Status),
}

/// An answer as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To any request of the Cluster service.
    Members {
        /// The header.
        head: Option<Head>,
        /// The member it is about.
        member: Option<Listed>,
        /// The list, by number.
        members: Vec<Listed>,
        /// Whether ids ascended.
        ascending: bool,
    },
    /// To Status.
    Status {
        /// Who answered.
        from: Option<usize>,
        /// Who leads.
        leader: Option<usize>,
        /// Whether it is a learner.
        learner: bool,
        /// What it complains of.
        errors: Vec<String>,
    },
    /// To MoveLeader, and whether that had a header.
    Moved(bool),
    /// To something whose content is not compared.
    Served,
    /// A refusal.
    Refused(Code, String),
    /// Nothing within the client's deadline.
    Hung,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The revision.
    pub revision: i64,
    /// Who answered.
    pub from: Option<usize>,
    /// Whether there are a term and a cluster id.
    pub complete: bool,
}

/// A member in a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its number; none if nobody added it.
    pub mate: Option<usize>,
    /// Its name.
    pub name: String,
    /// Its peer URLs, in their order.
    pub peer_urls: Vec<String>,
    /// Its client URLs, in their order.
    pub client_urls: Vec<String>,
    /// Whether it is a learner.
    pub learner: bool,
}

/// What one cluster calls members and places.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The id of each member, by number.
    pub ids: Vec<u64>,
    /// What stands for a URL that only this cluster has.
    pub urls: HashMap<String, String>,
}

impl Names {
    /// The number of a member.
    pub fn number(&self, id: u64) -> Option<usize> {
        self.ids.iter().position(|known| *known == id)
    }

    /// An answer as it is compared.
    pub fn comparable(&self, raw: &Raw) -> Answer {
        match raw {
            Raw::Members { header, member, members } => {
                let ascending = members.windows(2).all(|pair| pair[0].id < pair[1].id);
                let mut listed: Vec<Listed> = members.iter().map(|member| self.listed(member)).collect();
                listed.sort();
                Answer::Members {
                    head: header.as_ref().map(|header| self.head(header)),
                    member: member.as_ref().map(|member| self.listed(member)),
                    members: listed,
                    ascending,
                }
            }
            Raw::Status(status) => Answer::Status {
                from: status.header.as_ref().and_then(|header| self.number(header.member_id)),
                leader: self.number(status.leader),
                learner: status.is_learner,
                errors: status.errors.clone(),
            },
            Raw::Moved(moved) => Answer::Moved(moved.header.is_some()),
            Raw::Served => Answer::Served,
            Raw::Refused(status) if is_silence(status) => Answer::Hung,
            Raw::Refused(status) => Answer::Refused(status.code(), status.message().to_owned()),
        }
    }

    fn head(&self, header: &ResponseHeader) -> Head {
        Head {
            revision: header.revision,
            from: self.number(header.member_id),
            complete: header.raft_term != 0 && header.cluster_id != 0,
        }
    }

    fn listed(&self, member: &Member) -> Listed {
        let shown = |urls: &[String]| {
            urls.iter().map(|url| self.urls.get(url).unwrap_or(url).clone()).collect::<Vec<_>>()
        };
        Listed {
            mate: self.number(member.id),
            name: member.name.clone(),
            peer_urls: shown(&member.peer_ur_ls),
            client_urls: shown(&member.client_ur_ls),
            learner: member.is_learner,
        }
    }
}

/// Whether nothing came within the client's own deadline.
fn is_silence(status: &Status) -> bool {
    status.code() == Code::DeadlineExceeded && status.message().starts_with("no")
}

impl Answer {
    /// Whether something may have changed.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u64, port: u16) -> Member {
        let peer_ur_ls = vec![format!("http://127.0.0.1:{port}")];
        Member { id, name: "m".to_owned(), peer_ur_ls, ..Default::default() }
    }

    fn names(ids: &[u64], port: u16) -> Names {
        let urls = [(format!("http://127.0.0.1:{port}"), "peer".to_owned())].into();
        Names { ids: ids.to_vec(), urls }
    }

    fn list(members: Vec<Member>, from: u64, revision: i64) -> Raw {
        let header =
            Some(ResponseHeader { cluster_id: from + 7, member_id: from, revision, raft_term: from });
        Raw::Members { header, member: None, members }
    }

    #[test]
    fn ids_and_ports_are_hidden_and_who_is_who_is_not() {
        let one = names(&[40, 90], 1).comparable(&list(vec![member(40, 1), member(90, 1)], 40, 0));
        let two = names(&[8, 5], 2).comparable(&list(vec![member(5, 2), member(8, 2)], 8, 0));
        assert_eq!(one, two);
        let other_answers = names(&[5, 8], 2).comparable(&list(vec![member(5, 2), member(8, 2)], 8, 0));
        assert_ne!(one, other_answers);
    }

    #[test]
    fn order_revision_role_and_strangers_are_seen() {
        let good = || list(vec![member(5, 1), member(8, 1)], 5, 0);
        let names = names(&[5, 8], 1);
        let wrong = [
            list(vec![member(8, 1), member(5, 1)], 5, 0),
            list(vec![member(5, 1), member(8, 1)], 5, 3),
            list(vec![member(5, 1), Member { is_learner: true, ..member(8, 1) }], 5, 0),
            list(vec![member(5, 1), member(9, 1)], 5, 0),
            list(vec![member(5, 1), member(8, 2)], 5, 0),
            list(vec![member(5, 1)], 5, 0),
        ];
        for wrong in wrong {
            assert_ne!(names.comparable(&good()), names.comparable(&wrong), "{wrong:?}");
        }
    }
}
