//! Every limit, with its unit in its name and its reason beside it.

/// Largest encoded proposal. etcd's default; clients are tuned to it.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;

/// What a gRPC message may weigh above the request limit, for framing and other fields: as etcd.
pub const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;

/// Operations in one transaction. etcd's default.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// Nesting of transactions: a guard for the stack of every recursive walk. 128 operations bound
/// legal nesting to the same number, since each level takes at least one from its parent's rest.
pub const TXN_DEPTH_MAX: usize = TXN_OPERATIONS_MAX + 1;

/// Proposals taken from clients and not yet applied. Above it clients hear "too many requests",
/// as from etcd, rather than wait for a member that cannot keep up.
pub const PROPOSALS_PENDING_MAX: usize = 5_000;

/// Events one compaction step walks before it lets other work run: a few milliseconds of deletes.
pub const COMPACTION_STEP_EVENTS: usize = 1_000;
