//! Asks each member how it is, several times a second, past the network that can be cut.

use std::time::Duration;

use meerkat_proto::pb::etcdserver as pb;
use meerkat_types::Revision;
use pb::maintenance_client::MaintenanceClient;
use tonic::transport::Endpoint;

use super::model::{Input, Status};
use super::teller::Teller;

const INTERVAL: Duration = Duration::from_millis(200);
/// A member that takes longer is shown as one that does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs until it is dropped.
pub async fn observe(member: usize, address: String, teller: Teller) {
    let Ok(endpoint) = Endpoint::from_shared(format!("http://{address}")) else { return };
    // It dials when first asked, and again after a loss.
    let channel = endpoint.connect_timeout(ANSWER_TIMEOUT).connect_lazy();
    let mut maintenance = MaintenanceClient::new(channel);
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = maintenance.status(pb::StatusRequest {});
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        let status = answer.ok().and_then(Result::ok).map(|response| read(&response.into_inner()));
        teller.tell(Input::Status { member, status }).await;
    }
}

fn read(response: &pb::StatusResponse) -> Status {
    let header = response.header.unwrap_or_default();
    Status {
        leads: response.leader != 0 && response.leader == header.member_id,
        revision: Revision::new(header.revision),
        term: response.raft_term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(member_id: u64, leader: u64) -> pb::StatusResponse {
        let header = pb::ResponseHeader { member_id, revision: 12, ..Default::default() };
        pb::StatusResponse { header: Some(header), leader, raft_term: 4, ..Default::default() }
    }

    #[test]
    fn a_member_leads_when_it_names_itself() {
        assert_eq!(read(&response(7, 7)), Status { leads: true, revision: Revision::new(12), term: 4 });
        assert!(!read(&response(7, 8)).leads);
        assert!(!read(&response(0, 0)).leads, "zero is nobody");
        assert!(!read(&pb::StatusResponse::default()).leads);
    }
}
