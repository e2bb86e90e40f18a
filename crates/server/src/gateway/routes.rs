//! Which path of the gateway is which call.

use crate::descriptors;
use crate::methods::{METHODS, Method};
use http::Uri;
use prost_reflect::MethodDescriptor;
use std::collections::HashMap;

/// The calls by path, below the first part of it.
pub(super) struct Routes(HashMap<&'static str, Call>);

#[derive(Clone)]
pub(super) struct Call {
    pub(super) method: &'static Method,
    pub(super) uri: Uri,
    pub(super) descriptor: MethodDescriptor,
}

impl Routes {
    pub(super) fn new() -> Routes {
        let calls = METHODS.iter().filter(|method| !method.json.is_empty()).flat_map(|method| {
            let call = Call { method, uri: Uri::from_static(method.path), descriptor: find(method) };
            method.json.iter().map(move |path| (*path, call.clone()))
        });
        Routes(calls.collect())
    }

    /// `path` as the client wrote it; the old prefix `/v3beta` means `/v3`.
    pub(super) fn find(&self, path: &str) -> Option<&Call> {
        self.0.get(path.strip_prefix("/v3/").or_else(|| path.strip_prefix("/v3beta/"))?)
    }
}

/// The table is ours, and so are the protos: a test compares them.
fn find(method: &Method) -> MethodDescriptor {
    let service = descriptors::pool().get_service_by_name(method.service());
    let found = service.and_then(|service| service.methods().find(|known| known.name() == method.method()));
    found.unwrap_or_else(|| panic!("no proto declares {}", method.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_leads_to_a_call_and_the_old_prefix_to_the_same() {
        let routes = Routes::new();
        for (path, expected) in [
            ("kv/range", "etcdserverpb.KV.Range"),
            ("lease/revoke", "etcdserverpb.Lease.LeaseRevoke"),
            ("kv/lease/revoke", "etcdserverpb.Lease.LeaseRevoke"),
            ("maintenance/transfer-leadership", "etcdserverpb.Maintenance.MoveLeader"),
            ("auth/user/changepw", "etcdserverpb.Auth.UserChangePassword"),
        ] {
            for path in [format!("/v3/{path}"), format!("/v3beta/{path}")] {
                let found = routes.find(&path).map(|call| call.descriptor.full_name());
                assert_eq!(found, Some(expected), "{path}");
            }
        }
        for path in ["/v3/kv/nope", "/v3alpha/kv/range", "/v3", "/v3/", "/v3/kv/range/", "/v3betakv/range"] {
            assert!(routes.find(path).is_none(), "{path}");
        }
    }
}
