//! The services and messages of the wire as descriptors, for those who read what they do not know by type:
//! the JSON gateway, gRPC reflection, and the counters of calls.

use meerkat_proto::DESCRIPTORS;
use prost_reflect::DescriptorPool;
use std::sync::LazyLock;

/// What members say to each other, on another port.
const PEER_PACKAGE: &str = "meerkat.peer.v1";
/// What collectors of spans serve, and we call.
const COLLECTOR_PACKAGE: &str = "opentelemetry.proto.collector.trace.v1";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    // Compiled together with this program: a test decodes them.
    DescriptorPool::decode(DESCRIPTORS).expect("the descriptors were made by our own build")
});

pub(crate) fn pool() -> &'static DescriptorPool {
    &POOL
}

/// The services of the client port.
pub(crate) fn services() -> impl Iterator<Item = prost_reflect::ServiceDescriptor> {
    let elsewhere = [PEER_PACKAGE, COLLECTOR_PACKAGE];
    pool().services().filter(move |service| !elsewhere.contains(&service.package_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_of_the_client_port_are_known() {
        let names: Vec<String> = services().map(|service| service.full_name().to_owned()).collect();
        for name in ["etcdserverpb.KV", "etcdserverpb.Watch", "v3lockpb.Lock", "v3electionpb.Election"] {
            assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
        }
        for package in [PEER_PACKAGE, COLLECTOR_PACKAGE] {
            assert!(!names.iter().any(|name| name.starts_with(package)), "{package} in {names:?}");
        }
    }
}
