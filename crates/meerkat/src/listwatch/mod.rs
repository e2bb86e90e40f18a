//! The list-watch door in this binary: over the member that it runs in, or over a cluster far away.
//!
//! `meerkat_listwatch` knows no cluster, and `meerkat_server` knows no door; here they meet.

pub mod addresses;
mod member_access;
mod member_store;
mod port;
mod remote_history;
mod remote_proof;
mod remote_store;
mod remote_watch;

pub use member_store::MemberStore;
pub use port::DoorPort;
pub use remote_store::RemoteStore;

use meerkat_listwatch::door::{self, DoorConfig};
use meerkat_server::Port;
use meerkat_server::config::MemberUrl;
use std::sync::Arc;

/// The door of a member, on listeners that are open.
pub fn member_door(ports: Vec<Port>, urls: &[MemberUrl]) -> meerkat_server::Door {
    let at = addresses::text(urls);
    Box::new(move |store, stopping| {
        Box::pin(async move {
            tracing::info!(%at, "serving the list-watch door");
            let config =
                DoorConfig { access: member_access::access(store.access()), ..DoorConfig::default() };
            let store = Arc::new(MemberStore::new(store));
            let ports = ports.into_iter().map(DoorPort).collect();
            let served = door::serve::<DoorPort>(store, ports, config, stopping.stopped());
            served.await.map_err(|error| error.to_string())
        })
    })
}
