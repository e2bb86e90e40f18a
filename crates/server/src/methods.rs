//! Every method of the client port, and how a member treats calls of it: one table.
//!
//! Always true: each method that the protos declare has one row, and each row a method; a test compares the
//! two. What reads the table: admission ([`crate::grpc`]), counters, spans, the JSON gateway.

/// One method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method {
    /// `/service/method`.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    pub(crate) rule: Rule,
    pub(crate) learner: Learner,
    pub(crate) memory: Memory,
    /// Its paths at the JSON gateway, below `/v3/`.
    pub(crate) json: &'static [&'static str],
}

/// Which side sends more than one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Unary,
    ServerStream,
    BidiStream,
}

/// Who may call it, as far as its name alone decides. The later, the stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    Anyone,
    /// It depends on what is asked: the service judges.
    ByService,
    /// Any user.
    User,
    /// As `User`; the service is told whether the user is an administrator.
    UserOrAdmin,
    Admin,
}

/// Whether a learner answers. One refuses what a member with a vote should be asked; a linearizable Range the
/// KV service refuses, which alone knows what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Learner {
    Answers,
    Refuses,
}

/// Whether calls are refused while memory is short: those that may bring or fetch data. What keeps leases
/// alive, what deletes and what an operator asks is always answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Sheds,
    Keeps,
}

use Kind::{BidiStream, ServerStream, Unary};
use Learner::{Answers, Refuses};
use Memory::{Keeps, Sheds};
use Rule::{Admin, Anyone, ByService, User, UserOrAdmin};

const fn row(
    path: &'static str,
    kind: Kind,
    rule: Rule,
    learner: Learner,
    memory: Memory,
    json: &'static [&'static str],
) -> Method {
    Method { path, kind, rule, learner, memory, json }
}

/// In the order of their paths.
#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("/etcdserverpb.Auth/AuthDisable",                  Unary,        ByService,   Refuses, Keeps, &["auth/disable"]),
    row("/etcdserverpb.Auth/AuthEnable",                   Unary,        ByService,   Refuses, Keeps, &["auth/enable"]),
    row("/etcdserverpb.Auth/AuthStatus",                   Unary,        ByService,   Refuses, Keeps, &["auth/status"]),
    row("/etcdserverpb.Auth/Authenticate",                 Unary,        ByService,   Refuses, Keeps, &["auth/authenticate"]),
    row("/etcdserverpb.Auth/RoleAdd",                      Unary,        ByService,   Refuses, Keeps, &["auth/role/add"]),
    row("/etcdserverpb.Auth/RoleDelete",                   Unary,        ByService,   Refuses, Keeps, &["auth/role/delete"]),
    row("/etcdserverpb.Auth/RoleGet",                      Unary,        ByService,   Refuses, Keeps, &["auth/role/get"]),
    row("/etcdserverpb.Auth/RoleGrantPermission",          Unary,        ByService,   Refuses, Keeps, &["auth/role/grant"]),
    row("/etcdserverpb.Auth/RoleList",                     Unary,        ByService,   Refuses, Keeps, &["auth/role/list"]),
    row("/etcdserverpb.Auth/RoleRevokePermission",         Unary,        ByService,   Refuses, Keeps, &["auth/role/revoke"]),
    row("/etcdserverpb.Auth/UserAdd",                      Unary,        ByService,   Refuses, Keeps, &["auth/user/add"]),
    row("/etcdserverpb.Auth/UserChangePassword",           Unary,        ByService,   Refuses, Keeps, &["auth/user/changepw"]),
    row("/etcdserverpb.Auth/UserDelete",                   Unary,        ByService,   Refuses, Keeps, &["auth/user/delete"]),
    row("/etcdserverpb.Auth/UserGet",                      Unary,        ByService,   Refuses, Keeps, &["auth/user/get"]),
    row("/etcdserverpb.Auth/UserGrantRole",                Unary,        ByService,   Refuses, Keeps, &["auth/user/grant"]),
    row("/etcdserverpb.Auth/UserList",                     Unary,        ByService,   Refuses, Keeps, &["auth/user/list"]),
    row("/etcdserverpb.Auth/UserRevokeRole",               Unary,        ByService,   Refuses, Keeps, &["auth/user/revoke"]),
    row("/etcdserverpb.Cluster/MemberAdd",                 Unary,        Admin,       Refuses, Keeps, &["cluster/member/add"]),
    row("/etcdserverpb.Cluster/MemberList",                Unary,        ByService,   Refuses, Keeps, &["cluster/member/list"]),
    row("/etcdserverpb.Cluster/MemberPromote",             Unary,        Admin,       Refuses, Keeps, &["cluster/member/promote"]),
    row("/etcdserverpb.Cluster/MemberRemove",              Unary,        Admin,       Refuses, Keeps, &["cluster/member/remove"]),
    row("/etcdserverpb.Cluster/MemberUpdate",              Unary,        Admin,       Refuses, Keeps, &["cluster/member/update"]),
    row("/etcdserverpb.KV/Compact",                        Unary,        ByService,   Refuses, Keeps, &["kv/compaction"]),
    row("/etcdserverpb.KV/DeleteRange",                    Unary,        ByService,   Refuses, Keeps, &["kv/deleterange"]),
    row("/etcdserverpb.KV/Put",                            Unary,        ByService,   Refuses, Sheds, &["kv/put"]),
    row("/etcdserverpb.KV/Range",                          Unary,        ByService,   Answers, Sheds, &["kv/range"]),
    row("/etcdserverpb.KV/RangeStream",                    ServerStream, ByService,   Answers, Sheds, &[]),
    row("/etcdserverpb.KV/Txn",                            Unary,        ByService,   Refuses, Sheds, &["kv/txn"]),
    row("/etcdserverpb.Lease/LeaseGrant",                  Unary,        ByService,   Refuses, Sheds, &["lease/grant"]),
    row("/etcdserverpb.Lease/LeaseKeepAlive",              BidiStream,   ByService,   Refuses, Keeps, &["lease/keepalive"]),
    row("/etcdserverpb.Lease/LeaseLeases",                 Unary,        ByService,   Refuses, Keeps, &["lease/leases", "kv/lease/leases"]),
    row("/etcdserverpb.Lease/LeaseRevoke",                 Unary,        ByService,   Refuses, Keeps, &["lease/revoke", "kv/lease/revoke"]),
    row("/etcdserverpb.Lease/LeaseTimeToLive",             Unary,        ByService,   Refuses, Keeps, &["lease/timetolive", "kv/lease/timetolive"]),
    row("/etcdserverpb.Maintenance/Alarm",                 Unary,        UserOrAdmin, Refuses, Keeps, &["maintenance/alarm"]),
    row("/etcdserverpb.Maintenance/Defragment",            Unary,        Admin,       Refuses, Keeps, &["maintenance/defragment"]),
    row("/etcdserverpb.Maintenance/Downgrade",             Unary,        Admin,       Refuses, Keeps, &["maintenance/downgrade"]),
    row("/etcdserverpb.Maintenance/Hash",                  Unary,        Admin,       Refuses, Keeps, &["maintenance/hash"]),
    row("/etcdserverpb.Maintenance/HashKV",                Unary,        Admin,       Refuses, Keeps, &["maintenance/hashkv"]),
    row("/etcdserverpb.Maintenance/MoveLeader",            Unary,        Admin,       Refuses, Keeps, &["maintenance/transfer-leadership"]),
    row("/etcdserverpb.Maintenance/Snapshot",              ServerStream, Admin,       Answers, Keeps, &["maintenance/snapshot"]),
    row("/etcdserverpb.Maintenance/Status",                Unary,        User,        Answers, Keeps, &["maintenance/status"]),
    row("/etcdserverpb.Watch/Watch",                       BidiStream,   ByService,   Refuses, Sheds, &["watch"]),
    row("/grpc.health.v1.Health/Check",                    Unary,        Anyone,      Answers, Keeps, &[]),
    row("/grpc.health.v1.Health/Watch",                    ServerStream, Anyone,      Answers, Keeps, &[]),
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", BidiStream,   Anyone,      Answers, Keeps, &[]),
    row("/meerkat.admin.v1.Admin/KeyTimes",                Unary,        Admin,       Answers, Keeps, &[]),
    row("/meerkat.admin.v1.Admin/ListWatchers",            ServerStream, Admin,       Answers, Keeps, &[]),
    row("/meerkat.admin.v1.Admin/RevisionAtTime",          Unary,        Admin,       Answers, Keeps, &[]),
    row("/meerkat.admin.v1.Admin/StateDigest",             Unary,        Admin,       Answers, Keeps, &[]),
    row("/v3electionpb.Election/Campaign",                 Unary,        ByService,   Refuses, Keeps, &["election/campaign"]),
    row("/v3electionpb.Election/Leader",                   Unary,        ByService,   Refuses, Keeps, &["election/leader"]),
    row("/v3electionpb.Election/Observe",                  ServerStream, ByService,   Refuses, Keeps, &["election/observe"]),
    row("/v3electionpb.Election/Proclaim",                 Unary,        ByService,   Refuses, Keeps, &["election/proclaim"]),
    row("/v3electionpb.Election/Resign",                   Unary,        ByService,   Refuses, Keeps, &["election/resign"]),
    row("/v3lockpb.Lock/Lock",                             Unary,        ByService,   Refuses, Keeps, &["lock/lock"]),
    row("/v3lockpb.Lock/Unlock",                           Unary,        ByService,   Refuses, Keeps, &["lock/unlock"]),
];

/// Where in [`METHODS`] the method of that path is. Asked of every call: a quarter of what a map with the
/// standard library's hash takes.
pub(crate) fn find(path: &str) -> Option<usize> {
    let mut slot = slot(path.as_bytes());
    loop {
        let at = usize::from(SLOTS[slot]);
        if METHODS.get(at)?.path == path {
            return Some(at);
        }
        slot = (slot + 1) % SLOTS.len();
    }
}

/// A row's number, in the slot of its path or in the next that was free; else a number that no row has.
static SLOTS: [u8; 256] = {
    let mut slots = [u8::MAX; 256];
    let mut row = 0;
    while row < METHODS.len() {
        let mut slot = slot(METHODS[row].path.as_bytes());
        while slots[slot] != u8::MAX {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = row as u8;
        row += 1;
    }
    slots
};

/// By the path's length and its end, in which paths differ most.
const fn slot(path: &[u8]) -> usize {
    let Some(end) = path.last_chunk() else { return 0 };
    let mixed = (u64::from_le_bytes(*end) ^ path.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize
}

/// How a call of that path is treated. One without a row, which its service will refuse as unknown, is treated
/// as the strictest row of the service says; of a service without rows, it is for administrators.
pub(crate) fn treatment(path: &str) -> Method {
    if let Some(found) = find(path) {
        return METHODS[found];
    }
    let service = path.trim_start_matches('/').split('/').next();
    let of_service = METHODS.iter().filter(|method| Some(method.service()) == service);
    let strictest = of_service.max_by_key(|method| (method.rule, method.learner));
    let (rule, learner) = strictest.map_or((Admin, Refuses), |method| (method.rule, method.learner));
    row("", Unary, rule, learner, Keeps, &[])
}

impl Method {
    pub(crate) fn service(&self) -> &'static str {
        self.name().split('/').next().unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &'static str {
        self.name().split('/').nth(1).unwrap_or_default()
    }

    /// `service/method`.
    pub(crate) fn name(&self) -> &'static str {
        self.path.trim_start_matches('/')
    }
}

impl Kind {
    /// Whether a client may go on sending for as long as it likes.
    pub(crate) fn client_streams(self) -> bool {
        self == BidiStream
    }

    /// In the words of metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unary => "unary",
            ServerStream => "server_stream",
            BidiStream => "bidi_stream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors;

    #[test]
    fn every_method_of_the_protos_has_a_row_and_every_row_a_method() {
        let mut declared: Vec<(String, bool, bool)> = descriptors::services()
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| {
                let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
                (path, method.is_client_streaming(), method.is_server_streaming())
            })
            .collect();
        declared.sort();
        let rows =
            METHODS.iter().map(|row| (row.path.to_owned(), row.kind.client_streams(), row.kind != Unary));
        assert_eq!(rows.collect::<Vec<_>>(), declared, "left: the table; right: the protos");
    }

    #[test]
    fn a_method_is_found_by_its_path_and_by_nothing_else() {
        for (at, method) in METHODS.iter().enumerate() {
            assert_eq!(find(method.path), Some(at), "{}", method.path);
            assert_eq!(format!("/{}/{}", method.service(), method.method()), method.path);
        }
        for path in ["", "/", "/etcdserverpb.KV/", "/etcdserverpb.KV/Rang", "etcdserverpb.KV/Range"] {
            assert_eq!(find(path), None, "{path}");
        }
    }

    #[test]
    fn every_method_of_etcd_has_a_json_path() {
        let etcds = ["/etcdserverpb.", "/v3lockpb.", "/v3electionpb."];
        for method in METHODS {
            // Newer than etcd's gateway: a stream of pages, which JSON clients have no use for.
            let expected = etcds.iter().any(|package| method.path.starts_with(package))
                && method.method() != "RangeStream";
            assert_eq!(!method.json.is_empty(), expected, "{}", method.path);
        }
    }

    #[test]
    fn unlisted_methods_require_root() {
        for (path, rule, learner) in [
            ("/etcdserverpb.KV/Nope", ByService, Refuses),
            ("/etcdserverpb.Cluster/Nope", Admin, Refuses),
            ("/etcdserverpb.Maintenance/Nope", Admin, Refuses),
            ("/v3lockpb.Lock/Nope", ByService, Refuses),
            ("/grpc.health.v1.Health/Nope", Anyone, Answers),
            ("/meerkat.admin.v1.Admin/Nope", Admin, Answers),
            ("/etcdserverpb.New/Thing", Admin, Refuses),
            ("", Admin, Refuses),
        ] {
            let treated = treatment(path);
            assert_eq!((treated.rule, treated.learner, treated.memory), (rule, learner, Keeps), "{path}");
        }
    }

    #[test]
    fn only_these_calls_are_for_others_than_administrators() {
        let rule_of = |path| treatment(path).rule;
        for method in METHODS {
            let expected = match (method.service(), method.method()) {
                ("etcdserverpb.Maintenance", "Status") => User,
                ("etcdserverpb.Maintenance", "Alarm") => UserOrAdmin,
                ("etcdserverpb.Cluster", "MemberList") => ByService,
                ("etcdserverpb.Cluster" | "etcdserverpb.Maintenance" | "meerkat.admin.v1.Admin", _) => Admin,
                ("grpc.health.v1.Health" | "grpc.reflection.v1.ServerReflection", _) => Anyone,
                _ => ByService,
            };
            assert_eq!(rule_of(method.path), expected, "{}", method.path);
        }
    }

    #[test]
    fn a_learner_reads_and_tells_of_itself_and_refuses_the_rest() {
        let answered = METHODS.iter().filter(|method| method.learner == Answers);
        let etcds = answered
            .filter(|method| !method.path.starts_with("/grpc.") && !method.path.starts_with("/meerkat."));
        assert_eq!(
            etcds.map(Method::name).collect::<Vec<_>>(),
            [
                "etcdserverpb.KV/Range",
                "etcdserverpb.KV/RangeStream",
                "etcdserverpb.Maintenance/Snapshot",
                "etcdserverpb.Maintenance/Status",
            ]
        );
    }
}
