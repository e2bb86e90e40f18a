//! Which calls are judged by their name alone, before their service sees them.
//!
//! What is in no row is for administrators: a service that is added must be let in on purpose.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Everybody,
    /// Anybody who says who they are.
    User,
    /// As `User`; the service is told whether it is an administrator.
    UserOrAdmin,
    Admin,
    /// It depends on what is asked.
    ByService,
}

/// The first row whose text the path begins with counts.
const RULES: &[(&str, Rule)] = &[
    ("/etcdserverpb.KV/", Rule::ByService),
    ("/etcdserverpb.Watch/", Rule::ByService),
    ("/etcdserverpb.Lease/", Rule::ByService),
    ("/etcdserverpb.Auth/", Rule::ByService),
    // These call the ones above in their caller's name.
    ("/v3lockpb.Lock/", Rule::ByService),
    ("/v3electionpb.Election/", Rule::ByService),
    ("/etcdserverpb.Cluster/MemberList", Rule::ByService),
    ("/etcdserverpb.Maintenance/Status", Rule::User),
    // Users may look, administrators may change them.
    ("/etcdserverpb.Maintenance/Alarm", Rule::UserOrAdmin),
    ("/grpc.health.v1.Health/", Rule::Everybody),
    ("/grpc.reflection.", Rule::Everybody),
];

pub(crate) fn rule(path: &str) -> Rule {
    RULES.iter().find(|(prefix, _)| path.starts_with(prefix)).map_or(Rule::Admin, |(_, rule)| *rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_let_in_is_for_administrators() {
        for path in ["KV/Range", "KV/RangeStream", "Watch/Watch", "Lease/LeaseGrant", "Auth/UserAdd"] {
            assert_eq!(rule(&format!("/etcdserverpb.{path}")), Rule::ByService, "{path}");
        }
        for path in
            ["/v3lockpb.Lock/Lock", "/v3electionpb.Election/Campaign", "/etcdserverpb.Cluster/MemberList"]
        {
            assert_eq!(rule(path), Rule::ByService, "{path}");
        }
        assert_eq!(rule("/etcdserverpb.Maintenance/Status"), Rule::User);
        assert_eq!(rule("/etcdserverpb.Maintenance/Alarm"), Rule::UserOrAdmin);
        assert_eq!(rule("/grpc.health.v1.Health/Check"), Rule::Everybody);
        let admin = [
            "/etcdserverpb.Cluster/MemberAdd",
            "/etcdserverpb.Cluster/MemberRemove",
            "/etcdserverpb.Cluster/MemberUpdate",
            "/etcdserverpb.Cluster/MemberPromote",
            "/etcdserverpb.Maintenance/Defragment",
            "/etcdserverpb.Maintenance/Hash",
            "/etcdserverpb.Maintenance/HashKV",
            "/etcdserverpb.Maintenance/Snapshot",
            "/etcdserverpb.Maintenance/MoveLeader",
            "/etcdserverpb.Maintenance/Downgrade",
            "/meerkat.admin.v1.Admin/KeyTimes",
            "/etcdserverpb.New/Thing",
        ];
        for path in admin {
            assert_eq!(rule(path), Rule::Admin, "{path}");
        }
    }
}
