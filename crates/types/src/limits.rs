//! Every limit, with its unit in its name and its reason beside it.

/// Largest encoded proposal. etcd's default; clients are tuned to it.
pub const REQUEST_BYTES_MAX: usize = 1_572_864;

/// What a gRPC message may weigh above the request limit, for framing and other fields: as etcd.
pub const REQUEST_OVERHEAD_BYTES: usize = 512 * 1024;

/// Operations in one transaction. etcd's default.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// Transactions inside transactions, the outermost counted. Below etcd's bound, which its number of
/// operations gives: a decoder of protobuf stops at 100 nested messages, a level takes two of them,
/// and an entry of the log takes two more than a client's request. An entry that was agreed on and
/// cannot be read would stop every member, so what is let in must leave room.
pub const TXN_DEPTH_MAX: usize = 48;
const _: () = assert!(2 * TXN_DEPTH_MAX + 2 <= 100);
const _: () = assert!(TXN_DEPTH_MAX <= TXN_OPERATIONS_MAX);

/// Proposals taken from clients and not yet applied. Above it clients hear "too many requests",
/// as from etcd, rather than wait for a member that cannot keep up.
pub const PROPOSALS_PENDING_MAX: usize = 5_000;

/// Bytes of those proposals: a few hundred of the largest, so that a burst of them is refused before
/// it takes the memory of everybody else.
pub const PROPOSALS_PENDING_BYTES_MAX: usize = 256 << 20;

/// Entries that are agreed on and not applied yet, above which a member takes no more proposals: as
/// etcd.
pub const APPLY_BACKLOG_MAX: u64 = 5_000;

/// The longest a lease can be asked to live: as etcd, near three centuries.
pub const LEASE_TTL_SECONDS_MAX: i64 = 9_000_000_000;

/// Leases in one note of what is left of them: as etcd. A note is one log entry.
pub const LEASE_NOTES_MAX: usize = 1_000;

/// Leases that a leader lets expire in a second: as etcd, so that the end of many at once leaves room
/// for other writes.
pub const LEASE_EXPIRIES_PER_SECOND: u32 = 1_000;

/// Events one compaction step walks before it lets other work run: a few milliseconds of deletes.
pub const COMPACTION_STEP_EVENTS: usize = 1_000;
