//! Which panic ends the process, and how.
//!
//! The decision is made in the panic hook, on the thread that panics and before anything unwinds, from
//! what this thread is doing: which supervised work it runs, and whether it holds a lock to change what is
//! behind it. So no destructor and no other task sees what was half changed.

use crate::{lock, points};
use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::PanicHookInfo;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

/// The exit status of a member that met a mistake of its own: `EX_SOFTWARE` of sysexits.h.
pub const STATUS: u8 = 70;

/// How long the log may take for its last line.
const LAST_LINE_WITHIN: Duration = Duration::from_millis(500);

thread_local! {
    static WORK: Cell<Option<&'static str>> = const { Cell::new(None) };
    static AT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What a panic costs.
#[derive(Debug, PartialEq, Eq)]
enum Cost {
    /// The process: this supervised work cannot go on.
    Work(&'static str),
    /// The process: what other threads share may be half changed.
    SharedState,
    /// What was asked for, and nothing else.
    Request,
}

fn cost(work: Option<&'static str>, holds_lock: bool) -> Cost {
    match (work, holds_lock) {
        (Some(name), _) => Cost::Work(name),
        (None, true) => Cost::SharedState,
        (None, false) => Cost::Request,
    }
}

/// From now on a panic in supervised work, or while a lock of ours is held, ends this process with
/// [`STATUS`]. Every panic is logged, with its place.
pub fn end_process_on_panic() {
    std::panic::set_hook(Box::new(on_panic));
}

fn on_panic(info: &PanicHookInfo<'_>) {
    let what = words(info.payload());
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let current = std::thread::current();
    let thread = current.name().unwrap_or_default();
    let (failed, index) = match cost(WORK.get(), lock::is_held()) {
        Cost::Work(name) => (name, AT.get()),
        Cost::SharedState => ("shared state", AT.get()),
        Cost::Request => {
            tracing::error!(
                what,
                place,
                thread,
                "a request met a mistake of ours and has failed; report this"
            );
            return;
        }
    };
    // Whatever holds up the log, perhaps this very panic, must not hold up the end.
    std::thread::spawn(|| {
        std::thread::sleep(LAST_LINE_WITHIN);
        end();
    });
    const MESSAGE: &str = "this member met a mistake of its own and ends; start it again, and report this";
    tracing::error!(failed, what, place, thread, index, "{MESSAGE}");
    eprintln!("Error: {failed} failed at {place}: {what}: {MESSAGE}");
    end()
}

fn words(payload: &dyn Any) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned.or(payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

fn end() -> ! {
    // SAFETY: _exit has no preconditions. It runs no destructor and nothing registered with atexit, which
    // could meet what was half changed, or wait for it.
    unsafe { libc::_exit(i32::from(STATUS)) }
}

/// Says which entry of the log this thread is at, for the line that names a mistake.
pub fn at(index: Option<u64>) {
    AT.set(index);
}

/// Work that goes on for as long as the member does, or that nobody waits for: a panic in it ends the
/// process. `name` is one of [`TASKS`](crate::TASKS).
pub fn supervised<F: Future>(name: &'static str, work: F) -> Supervised<F> {
    points::require_task(name);
    Supervised { name, work }
}

pub struct Supervised<F> {
    name: &'static str,
    work: F,
}

impl<F: Future> Future for Supervised<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _running = Running::begin(self.name);
        // SAFETY: `work` is never moved out of its pinned owner, which has no Drop of its own.
        let work = unsafe { self.map_unchecked_mut(|this| &mut this.work) };
        work.poll(context)
    }
}

/// The name of this thread's work, until it is dropped.
struct Running {
    before: Option<&'static str>,
}

impl Running {
    fn begin(name: &'static str) -> Running {
        Running { before: WORK.replace(Some(name)) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        WORK.set(self.before);
    }
}

/// A thread of this name, supervised: a panic in it ends the process.
pub fn spawn_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    points::require_task(name);
    let supervised = move || {
        let _running = Running::begin(name);
        work()
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(supervised)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Says to this very test program, started by itself, what to do wrong.
    const DEED: &str = "MEERKAT_FAULT_TEST_DEED";

    #[test]
    fn what_this_thread_does_decides_what_a_panic_costs() {
        assert_eq!(cost(None, false), Cost::Request);
        assert_eq!(cost(None, true), Cost::SharedState);
        assert_eq!(cost(Some("apply"), false), Cost::Work("apply"));
        assert_eq!(cost(Some("apply"), true), Cost::Work("apply"));
    }

    struct Shouts;

    impl Drop for Shouts {
        fn drop(&mut self) {
            eprintln!("a destructor ran");
        }
    }

    /// Runs only in the process that the test below starts.
    #[test]
    fn deeds() {
        let Ok(deed) = std::env::var(DEED) else { return };
        end_process_on_panic();
        let shared = crate::Mutex::new(0);
        let _shouts = Shouts;
        match deed.as_str() {
            "thread" => drop(
                spawn_thread("apply", || {
                    at(Some(41));
                    panic!("a deed");
                })
                .map(JoinHandle::join),
            ),
            "task" => {
                let mut context = Context::from_waker(std::task::Waker::noop());
                let task = std::pin::pin!(supervised("proposals", async { panic!("a deed") }));
                let _: Poll<()> = task.poll(&mut context);
            }
            "lock" => {
                let _guard = shared.lock();
                panic!("a deed");
            }
            "after" => {
                drop(shared.lock());
                drop(std::panic::catch_unwind(|| panic!("a deed")));
                std::process::exit(0);
            }
            other => eprintln!("there is no deed {other}"),
        }
    }

    fn commit(deed: &str) -> (Option<i32>, String) {
        let program = std::env::current_exe().expect("a test has a program");
        let mut command = Command::new(program);
        command.args(["failstop::tests::deeds", "--exact", "--nocapture", "--test-threads=1"]);
        let output = command.env(DEED, deed).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn a_panic_in_supervised_work_or_under_a_lock_ends_the_process_before_anything_unwinds() {
        for (deed, name) in [("thread", "apply"), ("task", "proposals"), ("lock", "shared state")] {
            let (status, said) = commit(deed);
            assert_eq!(status, Some(i32::from(STATUS)), "{deed}: {said}");
            let place = concat!(file!(), ":");
            assert!(said.contains(&format!("Error: {name} failed at {place}")), "{deed}: {said}");
            assert!(!said.contains("a destructor ran"), "{deed}: {said}");
        }
    }

    #[test]
    fn a_panic_of_a_request_that_changes_nothing_leaves_the_process_alone() {
        let (status, said) = commit("after");
        assert_eq!(status, Some(0), "{said}");
    }
}
