//! How many files this process may have open, and for what.
//!
//! A member that has none left cannot begin its next log file, and ends. So a quarter of them is the
//! database's, [`OTHERS`] are for the log, for peers and for whatever else opens a file, and clients have
//! the rest: who comes when as many are connected waits until another has gone. Where there are too few for
//! that, the database, peers, clients and everything else have a quarter each.

use crate::listen::Places;
use std::io;
use std::sync::{Arc, LazyLock};

/// For everything but the database and clients: as many as etcd keeps back from them.
const OTHERS: u64 = 150;

/// Of those, for connections of other members: a few for each of two dozen.
const PEERS: u64 = 100;
const _: () = assert!(PEERS < OTHERS);

/// Where there are plenty, so many more, for strangers: who comes and says nothing has a place until it is
/// found out, and should not have that of a member.
const PEERS_PLENTY: u64 = 4_096;

/// A database that may have this many open need not count them: that is hundreds of gigabytes.
const DATABASE_PLENTY: u64 = 4_096;

/// What is assumed if the system does not say.
const LIMIT_USUAL: u64 = 1_024;

/// Of the process, so it is shared by all that listen in it. Read when first asked for.
static CLIENTS: LazyLock<Arc<Places>> = LazyLock::new(|| {
    let clients = clients_max(soft_limit());
    Arc::new(Places::new("clients", usize::try_from(clients).unwrap_or(usize::MAX)))
});

/// A place for each connection of another member that may be open, at whichever port of this one.
pub(crate) fn places_of_peers() -> Arc<Places> {
    Arc::new(Places::new("members", usize::try_from(peers_max(soft_limit())).unwrap_or(usize::MAX)))
}

/// Lets this process open as many files as the system gives it at most, and says how many that are. Call
/// once, before anything listens.
pub fn raise_limit() {
    match raised() {
        Ok(limit) => tracing::info!(
            limit,
            clients = clients_max(limit),
            "as many files may be open, and as many clients be connected"
        ),
        Err(error) => {
            let limit = soft_limit();
            tracing::warn!(%error, limit, "the limit of open files could not be raised");
        }
    }
}

fn raised() -> io::Result<u64> {
    let mut limit = limits()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the call reads one struct, which lives until it returns.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

fn limits() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills one struct, which lives until it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

fn soft_limit() -> u64 {
    limits().map_or(LIMIT_USUAL, |limit| limit.rlim_cur)
}

/// A place for each client that may be connected, at whichever port.
pub(crate) fn places_of_clients() -> Arc<Places> {
    CLIENTS.clone()
}

/// Files that the database may have open; `None`: as many as it has.
pub(crate) fn database_max() -> Option<u32> {
    database_share(soft_limit())
}

fn database_share(limit: u64) -> Option<u32> {
    let share = limit / 4;
    if DATABASE_PLENTY <= share { None } else { u32::try_from(share).ok() }
}

/// Never none, as with clients.
fn peers_max(limit: u64) -> u64 {
    (limit / 16).clamp(PEERS, PEERS_PLENTY).min(limit / 4).max(1)
}

/// Never none: where there are too few files for all, a quarter of them.
fn clients_max(limit: u64) -> u64 {
    let quarter = limit / 4;
    let others = OTHERS - PEERS + peers_max(limit);
    limit.saturating_sub(quarter).saturating_sub(others).max(quarter).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_the_database_the_log_and_peers_do_not_need() {
        for (limit, clients, database) in [
            (0, 1, Some(0)),
            (64, 16, Some(16)),
            (256, 78, Some(64)),
            (1_024, 618, Some(256)),
            (16_383, 11_215, Some(4_095)),
            (20_000, 13_700, None),
            (u64::MAX, u64::MAX - u64::MAX / 4 - 50 - PEERS_PLENTY, None),
        ] {
            assert_eq!((clients_max(limit), database_share(limit)), (clients, database), "{limit}");
        }
    }

    #[test]
    fn peers_get_a_sixteenth_but_not_too_few_nor_over_a_quarter() {
        for (limit, peers) in [
            (0, 1),
            (4, 1),
            (64, 16),
            (256, 64),
            (399, 99),
            (400, 100),
            (1_024, 100),
            (1_616, 101),
            (20_000, 1_250),
            (1 << 20, PEERS_PLENTY),
            (u64::MAX, PEERS_PLENTY),
        ] {
            assert_eq!(peers_max(limit), peers, "{limit}");
        }
    }

    #[test]
    fn all_together_never_get_more_than_there_are() {
        for limit in (4..20_000).chain([65_535, 65_536, 1 << 20, u64::MAX]) {
            let database = database_share(limit).map_or(limit / 4, u64::from);
            let rest = (OTHERS - PEERS).min(limit / 4);
            let together = [database, peers_max(limit), clients_max(limit), rest];
            let sum = together.iter().try_fold(0, |sum: u64, share| sum.checked_add(*share));
            assert!(sum.is_some_and(|sum| sum <= limit), "{together:?} of {limit}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_what_the_system_gives() {
        let raised = raised().expect("a process may use what it was given");
        let limits = limits().expect("they can be read");
        assert_eq!((raised, limits.rlim_cur), (limits.rlim_max, limits.rlim_max));
    }
}
