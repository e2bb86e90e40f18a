//! How many files this process and those it starts may have open.

use crate::Failure;

/// Raises the limit to so many, unless it is that high. Children inherit it.
pub fn raise(wanted: u64) -> Result<(), Failure> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a valid rlimit that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    if wanted <= limit.rlim_cur {
        return Ok(());
    }
    let raised = libc::rlimit { rlim_cur: wanted, rlim_max: limit.rlim_max.max(wanted) };
    // SAFETY: the pointer is to a valid rlimit, which the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(Failure::harness(format!(
            "{wanted} open files are needed, {} are allowed: raise the hard limit (ulimit -Hn)",
            limit.rlim_max
        )));
    }
    Ok(())
}
