//! A process for each seed, forked from one that has done nothing yet, so that no seed meets what
//! another left behind: counters, caches, generators of random numbers.

use crate::host;
use crate::setup::Setup;
use crate::world::{self, Outcome};
use meerkat_fault::STATUS;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::FromRawFd;
use std::path::PathBuf;

/// Real seconds after which a seed is taken to hang.
const HANGS_AFTER_SECONDS: u32 = 120;
/// A failure's text is cut here: less than a pipe holds, so that nobody waits to write it.
const TEXT_CHARS: usize = 8_000;

/// Starts this program over with memory at the same addresses each time: some hash tables take their
/// order from these.
pub fn settle_addresses() -> io::Result<()> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: takes and returns plain numbers.
    let persona = unsafe { libc::personality(ASK) };
    if persona < 0 {
        return Err(io::Error::last_os_error());
    }
    if persona & libc::ADDR_NO_RANDOMIZE != 0 {
        return Ok(());
    }
    // SAFETY: as above.
    if unsafe { libc::personality((persona | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong) } < 0 {
        return Err(io::Error::last_os_error());
    }
    use std::os::unix::process::CommandExt;
    Err(std::process::Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).exec())
}

/// Runs the seeds, so many at a time, and hands over each one's outcome as it ends. Must be called
/// while this process has one thread.
pub fn run_all(
    seeds: Range<u64>,
    jobs: usize,
    mut ended: impl FnMut(Outcome) -> io::Result<()>,
) -> io::Result<()> {
    warm_up()?;
    let mut running: BTreeMap<libc::pid_t, (u64, File)> = BTreeMap::new();
    let mut left = seeds;
    loop {
        while running.len() < jobs.max(1) {
            let Some(seed) = left.next() else { break };
            let (pid, answer) = start(seed)?;
            running.insert(pid, (seed, answer));
        }
        if running.is_empty() {
            return Ok(());
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        let Some((seed, mut answer)) = running.remove(&pid) else { continue };
        let mut text = Vec::new();
        answer.read_to_end(&mut text)?;
        let outcome = serde_json::from_slice(&text).unwrap_or_else(|_| Outcome {
            seed,
            failure: Some(format!(
                "its process ended with status {status:#x} and no outcome ({})",
                ending(status)
            )),
            ..Outcome::default()
        });
        // Left behind by a process that did not end by itself.
        let _ = std::fs::remove_dir_all(directory(pid));
        ended(outcome)?;
    }
}

fn ending(status: libc::c_int) -> &'static str {
    let is_fail_stop = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == i32::from(STATUS);
    if is_fail_stop { "a member met a mistake of its own, see above" } else { "a panic, or it hung" }
}

/// On a thread of its own, whose generators of random numbers go with it: each seed makes its own.
fn warm_up() -> io::Result<()> {
    // SAFETY: asks for a number.
    let dir = directory(unsafe { libc::getpid() });
    let warming = dir.clone();
    let warmed = std::thread::spawn(move || world::warm_up(&warming)).join();
    host::stop_simulating();
    let _ = std::fs::remove_dir_all(&dir);
    warmed.map_err(|_| io::Error::other("a cluster without faults does not start"))
}

fn start(seed: u64) -> io::Result<(libc::pid_t, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nobody else has them.
    let (answer, mut writer) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: this process has one thread, so the child may go on as if it were this one.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(answer);
            // SAFETY: takes a plain number.
            unsafe { libc::alarm(HANGS_AFTER_SECONDS) };
            // Or nobody would hear of a part of a task that died in here.
            meerkat_fault::end_process_on_panic();
            let mut outcome = run_here(seed);
            if outcome.failure.is_none() && meerkat_fault::request_panics() != 0 {
                outcome.failure =
                    Some("a request met a mistake of ours: replay the seed to see it".to_owned());
            }
            if let Some(failure) = &mut outcome.failure {
                *failure = failure.chars().take(TEXT_CHARS).collect();
            }
            let told = serde_json::to_vec(&outcome)
                .map_err(io::Error::other)
                .and_then(|text| writer.write_all(&text));
            // At once: what a normal exit would run belongs to the parent.
            // SAFETY: takes a plain number.
            unsafe { libc::_exit(i32::from(told.is_err())) }
        }
        pid => Ok((pid, answer)),
    }
}

fn run_here(seed: u64) -> Outcome {
    // SAFETY: asks for a number.
    let dir = directory(unsafe { libc::getpid() });
    // One of the same number may have been killed here before.
    let _ = std::fs::remove_dir_all(&dir);
    let outcome = world::run(&Setup::of(seed), &dir);
    let _ = std::fs::remove_dir_all(&dir);
    outcome
}

fn directory(pid: libc::pid_t) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let root = if memory.is_dir() { memory } else { std::env::temp_dir() };
    root.join(format!("meerkat-sim-{pid}"))
}
