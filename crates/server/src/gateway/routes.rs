//! Which path of the gateway is which call: the table of etcd's own gateway.

use crate::descriptors;
use prost_reflect::MethodDescriptor;
use std::collections::HashMap;

const TABLE: &[(&str, &str)] = &[
    ("/v3/kv/range", "etcdserverpb.KV.Range"),
    ("/v3/kv/put", "etcdserverpb.KV.Put"),
    ("/v3/kv/deleterange", "etcdserverpb.KV.DeleteRange"),
    ("/v3/kv/txn", "etcdserverpb.KV.Txn"),
    ("/v3/kv/compaction", "etcdserverpb.KV.Compact"),
    ("/v3/watch", "etcdserverpb.Watch.Watch"),
    ("/v3/lease/grant", "etcdserverpb.Lease.LeaseGrant"),
    ("/v3/lease/revoke", "etcdserverpb.Lease.LeaseRevoke"),
    ("/v3/kv/lease/revoke", "etcdserverpb.Lease.LeaseRevoke"),
    ("/v3/lease/keepalive", "etcdserverpb.Lease.LeaseKeepAlive"),
    ("/v3/lease/timetolive", "etcdserverpb.Lease.LeaseTimeToLive"),
    ("/v3/kv/lease/timetolive", "etcdserverpb.Lease.LeaseTimeToLive"),
    ("/v3/lease/leases", "etcdserverpb.Lease.LeaseLeases"),
    ("/v3/kv/lease/leases", "etcdserverpb.Lease.LeaseLeases"),
    ("/v3/cluster/member/add", "etcdserverpb.Cluster.MemberAdd"),
    ("/v3/cluster/member/remove", "etcdserverpb.Cluster.MemberRemove"),
    ("/v3/cluster/member/update", "etcdserverpb.Cluster.MemberUpdate"),
    ("/v3/cluster/member/list", "etcdserverpb.Cluster.MemberList"),
    ("/v3/cluster/member/promote", "etcdserverpb.Cluster.MemberPromote"),
    ("/v3/maintenance/alarm", "etcdserverpb.Maintenance.Alarm"),
    ("/v3/maintenance/status", "etcdserverpb.Maintenance.Status"),
    ("/v3/maintenance/defragment", "etcdserverpb.Maintenance.Defragment"),
    ("/v3/maintenance/hash", "etcdserverpb.Maintenance.Hash"),
    ("/v3/maintenance/hashkv", "etcdserverpb.Maintenance.HashKV"),
    ("/v3/maintenance/snapshot", "etcdserverpb.Maintenance.Snapshot"),
    ("/v3/maintenance/transfer-leadership", "etcdserverpb.Maintenance.MoveLeader"),
    ("/v3/maintenance/downgrade", "etcdserverpb.Maintenance.Downgrade"),
    ("/v3/auth/enable", "etcdserverpb.Auth.AuthEnable"),
    ("/v3/auth/disable", "etcdserverpb.Auth.AuthDisable"),
    ("/v3/auth/status", "etcdserverpb.Auth.AuthStatus"),
    ("/v3/auth/authenticate", "etcdserverpb.Auth.Authenticate"),
    ("/v3/auth/user/add", "etcdserverpb.Auth.UserAdd"),
    ("/v3/auth/user/get", "etcdserverpb.Auth.UserGet"),
    ("/v3/auth/user/list", "etcdserverpb.Auth.UserList"),
    ("/v3/auth/user/delete", "etcdserverpb.Auth.UserDelete"),
    ("/v3/auth/user/changepw", "etcdserverpb.Auth.UserChangePassword"),
    ("/v3/auth/user/grant", "etcdserverpb.Auth.UserGrantRole"),
    ("/v3/auth/user/revoke", "etcdserverpb.Auth.UserRevokeRole"),
    ("/v3/auth/role/add", "etcdserverpb.Auth.RoleAdd"),
    ("/v3/auth/role/get", "etcdserverpb.Auth.RoleGet"),
    ("/v3/auth/role/list", "etcdserverpb.Auth.RoleList"),
    ("/v3/auth/role/delete", "etcdserverpb.Auth.RoleDelete"),
    ("/v3/auth/role/grant", "etcdserverpb.Auth.RoleGrantPermission"),
    ("/v3/auth/role/revoke", "etcdserverpb.Auth.RoleRevokePermission"),
    ("/v3/lock/lock", "v3lockpb.Lock.Lock"),
    ("/v3/lock/unlock", "v3lockpb.Lock.Unlock"),
    ("/v3/election/campaign", "v3electionpb.Election.Campaign"),
    ("/v3/election/proclaim", "v3electionpb.Election.Proclaim"),
    ("/v3/election/leader", "v3electionpb.Election.Leader"),
    ("/v3/election/observe", "v3electionpb.Election.Observe"),
    ("/v3/election/resign", "v3electionpb.Election.Resign"),
];

/// The calls by path.
pub(super) struct Routes(HashMap<&'static str, MethodDescriptor>);

impl Routes {
    pub(super) fn new() -> Routes {
        Routes(TABLE.iter().map(|(path, method)| (*path, find(method))).collect())
    }

    /// `path` as the client wrote it; the old prefix `/v3beta` means `/v3`.
    pub(super) fn find(&self, path: &str) -> Option<&MethodDescriptor> {
        match path.strip_prefix("/v3beta/") {
            Some(rest) => self.0.get(format!("/v3/{rest}").as_str()),
            None => self.0.get(path),
        }
    }
}

/// The table is ours, and so are the protos: a name that is in one only is found by the first test.
fn find(name: &str) -> MethodDescriptor {
    let (service, method) = name.rsplit_once('.').unwrap_or_default();
    let service = descriptors::pool().get_service_by_name(service);
    let found = service.and_then(|service| service.methods().find(|known| known.name() == method));
    found.unwrap_or_else(|| panic!("no proto declares {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_leads_to_a_call_and_the_old_prefix_to_the_same() {
        let routes = Routes::new();
        for (path, method) in TABLE {
            let old = path.replace("/v3/", "/v3beta/");
            for path in [*path, &old] {
                assert_eq!(routes.find(path).map(|found| found.full_name()), Some(*method), "{path}");
            }
        }
        for path in ["/v3/kv/nope", "/v3alpha/kv/range", "/v3", "/v3/", "/v3/kv/range/", "/v3betakv/range"] {
            assert!(routes.find(path).is_none(), "{path}");
        }
    }

    #[test]
    fn every_call_of_etcds_services_has_a_path() {
        let services = descriptors::services()
            .filter(|service| ["etcdserverpb", "v3lockpb", "v3electionpb"].contains(&service.package_name()));
        for method in services.flat_map(|service| service.methods().collect::<Vec<_>>()) {
            // Newer than the gateway's table: a stream of pages, which JSON clients have no use for.
            let reached = TABLE.iter().any(|(_, name)| *name == method.full_name());
            assert!(reached || method.name() == "RangeStream", "{}", method.full_name());
        }
    }
}
