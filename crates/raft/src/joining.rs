//! How a member with an empty directory finds the cluster it was added to.
//!
//! Any member that knows the cluster can tell. One that does not know of the newcomer yet, or not that
//! somebody has run in its place before, may only be behind: so all are asked, and for a while, before
//! the newcomer is told that it was not added.

use crate::network::link::{Dialer, connect};
use meerkat_proto::pb::peer as pb;
use meerkat_proto::pb::peer::peer_client::PeerClient;
use meerkat_types::{ClusterId, MemberId};
use std::time::{Duration, Instant};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(200);
/// How long the cluster is looked for.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// The place that a cluster keeps for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub cluster: ClusterId,
    pub member: MemberId,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    #[error(
        "--initial-cluster names no member but this one; to join a running cluster, name its members too"
    )]
    NobodyToAsk,
    #[error(
        "no member of the cluster answers at {asked} ({reason}); check --initial-cluster, and that the cluster runs"
    )]
    NoAnswer { asked: String, reason: String },
    #[error(
        "the cluster has no member at {own}, only at {known}; add this one first (`member add`), or mend --initial-advertise-peer-urls"
    )]
    NotAdded { own: String, known: String },
    #[error(
        "member {member} of the cluster, at {own}, has run before with another data directory, or is one of the first; put that directory back, or remove the member, add it again and start with an empty one"
    )]
    HasRunBefore { member: MemberId, own: String },
}

/// Looks for the place of a newcomer with the peer URLs `own`, at the peer URLs of others.
pub async fn find_place(
    own: &[String],
    others: &[String],
    dialer: Option<&Dialer>,
) -> Result<Place, JoinError> {
    if others.is_empty() {
        return Err(JoinError::NobodyToAsk);
    }
    let deadline = Instant::now() + GIVE_UP_AFTER;
    loop {
        let mut round = Round::default();
        for url in others {
            round.heard(match describe(url, dialer).await {
                Ok(cluster) => place_in(&cluster, own),
                Err(why) => Err(JoinError::NoAnswer { asked: others.join(","), reason: why }),
            });
        }
        let reason = match round.verdict() {
            Ok(place) => return Ok(place),
            Err(error @ JoinError::HasRunBefore { .. }) => return Err(error),
            Err(error) => error,
        };
        if deadline <= Instant::now() {
            return Err(reason);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What one round of asking has brought. The best informed is believed: who knows of an earlier life,
/// then who knows of the place, then who knows the cluster, then whoever is silent.
#[derive(Default)]
struct Round(Option<Result<Place, JoinError>>);

impl Round {
    fn heard(&mut self, answer: Result<Place, JoinError>) {
        let knows = |answer: &Result<Place, JoinError>| match answer {
            Err(JoinError::HasRunBefore { .. }) => 3,
            Ok(_) => 2,
            Err(JoinError::NotAdded { .. }) => 1,
            Err(JoinError::NoAnswer { .. } | JoinError::NobodyToAsk) => 0,
        };
        if self.0.as_ref().is_none_or(|best| knows(best) < knows(&answer)) {
            self.0 = Some(answer);
        }
    }

    fn verdict(self) -> Result<Place, JoinError> {
        self.0.unwrap_or(Err(JoinError::NobodyToAsk))
    }
}

async fn describe(url: &str, dialer: Option<&Dialer>) -> Result<pb::DescribeResponse, String> {
    let channel = connect(url, dialer).map_err(|error| error.to_string())?;
    let mut peer = PeerClient::new(channel);
    match tokio::time::timeout(ANSWER_TIMEOUT, peer.describe(pb::DescribeRequest {})).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!("no answer within {ANSWER_TIMEOUT:?}")),
    }
}

fn place_in(cluster: &pb::DescribeResponse, own: &[String]) -> Result<Place, JoinError> {
    let sorted = |urls: &[String]| {
        let mut urls = urls.to_vec();
        urls.sort_unstable();
        urls
    };
    let Some(member) = cluster.members.iter().find(|member| sorted(&member.peer_urls) == sorted(own)) else {
        let known: Vec<String> = cluster.members.iter().map(|member| member.peer_urls.join(",")).collect();
        return Err(JoinError::NotAdded { own: own.join(","), known: known.join(", ") });
    };
    let id = MemberId(member.id);
    if !member.name.is_empty() {
        return Err(JoinError::HasRunBefore { member: id, own: own.join(",") });
    }
    Ok(Place { cluster: ClusterId(cluster.cluster), member: id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_knows_of_an_earlier_life_is_believed_against_those_who_do_not() {
        let place = Place { cluster: ClusterId(9), member: MemberId(2) };
        let before = JoinError::HasRunBefore { member: MemberId(2), own: "b".to_owned() };
        let unknown = JoinError::NotAdded { own: "b".to_owned(), known: "a".to_owned() };
        let silent = JoinError::NoAnswer { asked: "c".to_owned(), reason: "no answer".to_owned() };
        let verdict = |answers: &[Result<Place, JoinError>]| {
            let mut round = Round::default();
            answers.iter().cloned().for_each(|answer| round.heard(answer));
            round.verdict()
        };
        assert_eq!(verdict(&[Ok(place), Err(before.clone()), Ok(place)]), Err(before));
        assert_eq!(verdict(&[Err(silent.clone()), Err(unknown.clone()), Ok(place)]), Ok(place));
        assert_eq!(verdict(&[Err(silent), Err(unknown.clone())]), Err(unknown));
    }

    #[test]
    fn a_place_is_found_by_all_its_urls_and_only_if_it_was_never_taken() {
        let member = |id, name: &str, urls: &[&str]| pb::MemberDescription {
            id,
            name: name.to_owned(),
            peer_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
            learner: false,
        };
        let members = vec![member(1, "a", &["http://a:1"]), member(2, "", &["http://b:1", "http://b:2"])];
        let cluster = pb::DescribeResponse { cluster: 9, members };
        let own = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
        let place = Place { cluster: ClusterId(9), member: MemberId(2) };
        assert_eq!(place_in(&cluster, &own(&["http://b:2", "http://b:1"])), Ok(place));
        let error = place_in(&cluster, &own(&["http://b:1"]));
        assert!(matches!(error, Err(JoinError::NotAdded { .. })), "{error:?}");
        let error = place_in(&cluster, &own(&["http://a:1"]));
        assert!(matches!(error, Err(JoinError::HasRunBefore { member: MemberId(1), .. })), "{error:?}");
    }
}
