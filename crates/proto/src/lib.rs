//! The wire: messages and services as generated, and the checked door between them and `types`.
//!
//! Everything a client, a peer or an operator sends is a [`pb`] message first. [`convert`] turns
//! one into a value that cannot be wrong, or into a refusal; past it nothing looks at `pb` again
//! until the answer is built. [`error_text`] is the one list of refusals that clients know by heart.
//!
//! Never build a `types` value from a `pb` message anywhere else: the checks would be skipped.

pub mod convert;
pub mod error_text;
pub mod go_duration;
pub mod range_response;
pub mod reason;

/// Every `.proto` text as a `FileDescriptorSet`, for those who read messages that they do not know: the
/// JSON gateway and gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The generated messages and services, by package.
///
/// Generated code names its neighbours by package, so the packages keep their own names inside and
/// are given the project's names here.
pub mod pb {
    pub use packages::authpb as auth;
    pub use packages::etcdserverpb as etcdserver;
    pub use packages::grpc::health::v1 as health;
    pub use packages::grpc::reflection::v1 as reflection;
    pub use packages::meerkat::admin::v1 as admin;
    pub use packages::meerkat::entry::v1 as entry;
    pub use packages::meerkat::peer::v1 as peer;
    pub use packages::mvccpb as mvcc;
    pub use packages::opentelemetry::proto::collector::trace::v1 as otlp;
    pub use packages::v3electionpb as election;
    pub use packages::v3lockpb as lock;

    #[allow(clippy::all, clippy::unwrap_used, missing_docs, rustdoc::all)]
    mod packages {
        pub mod mvccpb {
            tonic::include_proto!("mvccpb");
        }
        pub mod authpb {
            tonic::include_proto!("authpb");
        }
        pub mod etcdserverpb {
            tonic::include_proto!("etcdserverpb");
            pub use crate::range_response::{KvList, RangeResponse};
        }
        pub mod v3lockpb {
            tonic::include_proto!("v3lockpb");
        }
        pub mod v3electionpb {
            tonic::include_proto!("v3electionpb");
        }
        pub mod grpc {
            pub mod health {
                pub mod v1 {
                    tonic::include_proto!("grpc.health.v1");
                }
            }
            pub mod reflection {
                pub mod v1 {
                    tonic::include_proto!("grpc.reflection.v1");
                }
            }
        }
        pub mod opentelemetry {
            pub mod proto {
                pub mod collector {
                    pub mod trace {
                        pub mod v1 {
                            tonic::include_proto!("opentelemetry.proto.collector.trace.v1");
                        }
                    }
                }
            }
        }
        pub mod meerkat {
            pub mod admin {
                pub mod v1 {
                    tonic::include_proto!("meerkat.admin.v1");
                }
            }
            pub mod entry {
                pub mod v1 {
                    tonic::include_proto!("meerkat.entry.v1");
                }
            }
            pub mod peer {
                pub mod v1 {
                    tonic::include_proto!("meerkat.peer.v1");
                }
            }
        }
    }
}
