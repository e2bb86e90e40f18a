//! What a process asks its host for, answered from the seed: the time and random bytes.
//!
//! Every library asks the C library, so the three functions here, which stand in for its own, reach
//! all of them: the order in hash tables, election timeouts, identities. Time is that of the runtime
//! that is being run, and the world's outside of any. Until [`simulate`] is called, and in the process
//! that only starts others, the answers are the real ones.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

/// The monotonic clock's first reading: far enough from zero that code may look back.
const START_NANOS: u64 = 1_000_000 * 1_000_000_000;
/// The wall clock's.
const EPOCH_NANOS: u64 = 1_700_000_000 * 1_000_000_000;

static SIMULATED: AtomicBool = AtomicBool::new(false);
static NOW_NANOS: AtomicU64 = AtomicU64::new(START_NANOS);
static RANDOM: AtomicU64 = AtomicU64::new(0);
static WALL_SKEW_MILLIS: AtomicI64 = AtomicI64::new(0);
static FIRST: OnceLock<Instant> = OnceLock::new();

thread_local! {
    /// Set while the runtime is asked for its time, which may ask here again.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// From now on time stands still but for [`set_now`], and randomness follows from `seed`.
pub fn simulate(seed: u64) {
    RANDOM.store(seed, Ordering::SeqCst);
    SIMULATED.store(true, Ordering::SeqCst);
    FIRST.get_or_init(Instant::now);
}

/// Back to the real clock and real randomness, in a process that only starts others.
pub fn stop_simulating() {
    SIMULATED.store(false, Ordering::SeqCst);
}

/// Milliseconds since the world began.
pub fn set_now(millis: u64) {
    NOW_NANOS.store(START_NANOS + millis * 1_000_000, Ordering::Relaxed);
}

/// Milliseconds since the world began, to whoever is being run.
pub fn now() -> u64 {
    (monotonic_nanos() - START_NANOS) / 1_000_000
}

/// How far the wall clock of the member that is being run is off.
pub fn set_wall_skew(millis: i64) {
    WALL_SKEW_MILLIS.store(millis, Ordering::Relaxed);
}

fn monotonic_nanos() -> u64 {
    let outside = NOW_NANOS.load(Ordering::Relaxed);
    let Some(first) = FIRST.get() else { return outside };
    if tokio::runtime::Handle::try_current().is_err() {
        return outside;
    }
    ASKING.with(|asking| {
        if asking.replace(true) {
            return outside;
        }
        let since = tokio::time::Instant::now().into_std().saturating_duration_since(*first);
        asking.set(false);
        START_NANOS + u64::try_from(since.as_nanos()).unwrap_or(0)
    })
}

/// One step of a splitmix generator.
fn next_random() -> u64 {
    let mut word = RANDOM.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Stands in for the C library's.
///
/// # Safety
/// As there: `out` points to a `timespec`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, out: *mut libc::timespec) -> libc::c_int {
    if !SIMULATED.load(Ordering::Relaxed) {
        // SAFETY: the caller's arguments are passed on as they came.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, out) as libc::c_int };
    }
    let nanos = if matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) {
        let skew = WALL_SKEW_MILLIS.load(Ordering::Relaxed).saturating_mul(1_000_000);
        (EPOCH_NANOS + (monotonic_nanos() - START_NANOS)).saturating_add_signed(skew)
    } else {
        monotonic_nanos()
    };
    // SAFETY: the caller vouches for `out`.
    unsafe {
        (*out).tv_sec = (nanos / 1_000_000_000) as libc::time_t;
        (*out).tv_nsec = (nanos % 1_000_000_000) as libc::c_long;
    }
    0
}

/// Stands in for the C library's.
///
/// # Safety
/// As there: `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut libc::c_void, len: usize, flags: libc::c_uint) -> isize {
    if !SIMULATED.load(Ordering::Relaxed) {
        // SAFETY: the caller's arguments are passed on as they came.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, len, flags) as isize };
    }
    // SAFETY: the caller vouches for `len` bytes, and they are only written.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&next_random().to_le_bytes()[..chunk.len()]);
    }
    len as isize
}

/// Stands in for the C library's.
///
/// # Safety
/// As there: `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getentropy(buffer: *mut libc::c_void, len: usize) -> libc::c_int {
    // SAFETY: the caller's arguments are passed on as they came.
    let got = unsafe { getrandom(buffer, len, 0) };
    if usize::try_from(got) == Ok(len) { 0 } else { -1 }
}
