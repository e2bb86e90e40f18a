//! What was learned about leases, and its plain lines.
//!
//! No answer about leases has a table, and only its header has a protobuf form: that is all that
//! `etcdctl` writes.

use meerkat_proto::pb::etcdserver as pb;
use prost::Message;

/// An answer about leases.
pub enum LeaseAnswer {
    Granted(pb::LeaseGrantResponse),
    Revoked {
        id: i64,
        response: pb::LeaseRevokeResponse,
    },
    TimeToLive {
        response: pb::LeaseTimeToLiveResponse,
        /// Whether its keys were asked for.
        with_keys: bool,
    },
    Leases(pb::LeaseLeasesResponse),
    KeptAlive(pb::LeaseKeepAliveResponse),
}

impl LeaseAnswer {
    pub fn header(&self) -> Option<&pb::ResponseHeader> {
        match self {
            LeaseAnswer::Granted(response) => response.header.as_ref(),
            LeaseAnswer::Revoked { response, .. } => response.header.as_ref(),
            LeaseAnswer::TimeToLive { response, .. } => response.header.as_ref(),
            LeaseAnswer::Leases(response) => response.header.as_ref(),
            LeaseAnswer::KeptAlive(response) => response.header.as_ref(),
        }
    }

    /// The header alone; of a revoke, nothing at all.
    pub(super) fn protobuf(&self) -> Option<Vec<u8>> {
        let has_form = !matches!(self, LeaseAnswer::Revoked { .. });
        has_form.then(|| self.header().map(Message::encode_to_vec).unwrap_or_default())
    }

    /// For eyes: without line ends, and in bytes, since keys are bytes.
    pub(super) fn lines(&self) -> Vec<Vec<u8>> {
        let one = |text: String| vec![text.into_bytes()];
        match self {
            LeaseAnswer::Granted(response) => {
                one(format!("lease {} granted with TTL({}s)", lease_id_text(response.id), response.ttl))
            }
            LeaseAnswer::Revoked { id, .. } => one(format!("lease {} revoked", lease_id_text(*id))),
            LeaseAnswer::TimeToLive { response, with_keys } => vec![time_to_live_line(response, *with_keys)],
            LeaseAnswer::Leases(response) => {
                let head = format!("found {} leases", response.leases.len());
                let ids = response.leases.iter().map(|lease| lease_id_text(lease.id));
                std::iter::once(head).chain(ids).map(String::into_bytes).collect()
            }
            LeaseAnswer::KeptAlive(response) => {
                one(format!("lease {} keepalived with TTL({})", lease_id_text(response.id), response.ttl))
            }
        }
    }
}

fn time_to_live_line(response: &pb::LeaseTimeToLiveResponse, with_keys: bool) -> Vec<u8> {
    let id = lease_id_text(response.id);
    // How a server says that there is no such lease.
    if response.granted_ttl == 0 && response.ttl == -1 {
        return format!("lease {id} already expired").into_bytes();
    }
    let mut line =
        format!("lease {id} granted with TTL({}s), remaining({}s)", response.granted_ttl, response.ttl)
            .into_bytes();
    if with_keys {
        line.extend_from_slice(b", attached keys([");
        line.extend_from_slice(&response.keys.join(&b' '));
        line.extend_from_slice(b"])");
    }
    line
}

/// Sixteen hexadecimal digits; of a negative id a sign and fifteen.
pub fn lease_id_text(id: i64) -> String {
    if id < 0 { format!("-{:015x}", id.unsigned_abs()) } else { format!("{id:016x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_go_pads_them() {
        let rows = [
            (0, "0000000000000000"),
            (0x1234, "0000000000001234"),
            (i64::MAX, "7fffffffffffffff"),
            (-1, "-000000000000001"),
            (i64::MIN, "-8000000000000000"),
        ];
        for (id, text) in rows {
            assert_eq!(lease_id_text(id), text);
        }
    }

    #[test]
    fn a_lease_that_is_gone_is_told_from_one_whose_time_is_up() {
        let line = |ttl, granted_ttl, with_keys| {
            let response = pb::LeaseTimeToLiveResponse { id: 1, ttl, granted_ttl, ..Default::default() };
            String::from_utf8(time_to_live_line(&response, with_keys)).expect("text")
        };
        assert_eq!(line(-1, 0, true), "lease 0000000000000001 already expired");
        assert_eq!(line(-1, 5, false), "lease 0000000000000001 granted with TTL(5s), remaining(-1s)");
        assert_eq!(
            line(4, 5, true),
            "lease 0000000000000001 granted with TTL(5s), remaining(4s), attached keys([])"
        );
    }
}
