//! `/debug/vars`: what etcd tells there about the process and its Raft, as far as it exists here.

use meerkat_raft::RaftNode;

pub(super) fn render(raft: &RaftNode) -> String {
    let status = raft.status();
    let me = raft.member_id();
    let state = if status.leader == Some(me) { "StateLeader" } else { "StateFollower" };
    let vars = serde_json::json!({
        "cmdline": std::env::args().collect::<Vec<_>>(),
        "file_descriptor_limit": crate::metrics::process::files_max(),
        "raft.status": {
            "id": me.to_string(),
            "term": raft.leadership().term().0,
            "commit": status.committed_index.0,
            "applied": status.applied_index.0,
            "lead": status.leader.map_or_else(|| "0".to_owned(), |leader| leader.to_string()),
            "raftState": state,
        },
    });
    format!("{vars:#}\n")
}
