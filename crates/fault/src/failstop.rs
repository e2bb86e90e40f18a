//! Which panic ends the process, and how.
//!
//! The decision is made in the panic hook, on the thread that panics and before anything unwinds, from
//! what this thread is doing: which supervised work it runs, and whether it holds a lock to change what is
//! behind it. So no destructor and no other task sees what was half changed.

use crate::{lock, points};
use std::any::Any;
use std::cell::Cell;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::panic::PanicHookInfo;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The exit status of a member that met a mistake of its own: `EX_SOFTWARE` of sysexits.h.
pub const STATUS: u8 = 70;

/// How long stderr and the log may take for their last line.
const LAST_LINE_WITHIN: Duration = Duration::from_millis(500);

static REQUEST_PANICS: AtomicU64 = AtomicU64::new(0);

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

/// How many panics have ended no process: of requests, and of what starts anew by itself. Counted where
/// [`end_process_on_panic`] was asked for.
pub fn request_panics() -> u64 {
    REQUEST_PANICS.load(Ordering::Relaxed)
}

/// Must not panic itself, which would abort: with another status, and without a word.
fn on_panic(info: &PanicHookInfo<'_>) {
    let what = one_line(words(info.payload()));
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let current = std::thread::current();
    let thread = current.name().unwrap_or_default();
    let (failed, index) = match cost(WORK.get(), lock::is_held()) {
        Cost::Work(name) => (name, AT.get()),
        Cost::SharedState => ("shared state", AT.get()),
        Cost::Request => {
            REQUEST_PANICS.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                what,
                place,
                thread,
                "a request met a mistake of ours and has failed; report this"
            );
            return;
        }
    };
    end_soon();
    const MESSAGE: &str = "this member met a mistake of its own and ends; start it again, and report this";
    let entry = index.map(|index| format!(" (entry {index})")).unwrap_or_default();
    // Before the log, which may be what holds us up.
    say(&format!("Error: {failed} failed at {place}{entry}: {what}: {MESSAGE}\n"));
    tracing::error!(failed, what, place, thread, index, "{MESSAGE}");
    end()
}

/// Whatever holds up the last lines, perhaps this very panic, must not hold up the end.
fn end_soon() {
    let timer = || {
        std::thread::sleep(LAST_LINE_WITHIN);
        end();
    };
    if Builder::new().spawn(timer).is_err() {
        // With no room for a thread, the kernel ends us: with a signal, but it does.
        // SAFETY: takes a plain number.
        unsafe { libc::alarm(1) };
    }
}

/// On stderr, past its lock, which this thread may hold; whether or not anybody can hear it.
fn say(line: &str) {
    // SAFETY: nothing is closed, as it is never dropped, and writing to what is not open only fails.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    drop(stderr.write_all(line.as_bytes()));
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
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

/// Does a part of the supervised work `name` on this thread: a panic in it ends the process.
pub fn part<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    points::require_task(name);
    let _running = Running::begin(name);
    work()
}

/// A thread of this name, supervised: a panic in it ends the process.
pub fn spawn_thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    points::require_task(name);
    Builder::new().name(name.to_owned()).spawn(move || part(name, work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use tracing::span;

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

    /// A log that never takes its line.
    struct Stuck;

    impl tracing::Subscriber for Stuck {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            std::thread::sleep(Duration::from_secs(600));
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    /// Runs only in the process that the tests below start.
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
            "part" => part("space", || panic!("a deed\n  in lines")),
            "log" => {
                tracing::subscriber::set_global_default(Stuck).expect("there is no other");
                part("space", || panic!("a deed"));
            }
            "after" => {
                drop(shared.lock());
                part("space", || ());
                drop(std::panic::catch_unwind(|| panic!("a deed")));
                assert_eq!(request_panics(), 1);
                std::process::exit(0);
            }
            other => eprintln!("there is no deed {other}"),
        }
    }

    fn commit(deed: &str, stderr: impl Into<Stdio>) -> (Option<i32>, String) {
        let program = std::env::current_exe().expect("a test has a program");
        let mut command = Command::new(program);
        command.args(["failstop::tests::deeds", "--exact", "--nocapture", "--test-threads=1"]);
        let output = command.env(DEED, deed).stderr(stderr).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    #[test]
    fn a_panic_in_supervised_work_or_under_a_lock_ends_the_process_before_anything_unwinds() {
        let deeds = [
            ("thread", "apply"),
            ("task", "proposals"),
            ("part", "space"),
            ("log", "space"),
            ("lock", "shared state"),
        ];
        for (deed, name) in deeds {
            let (status, said) = commit(deed, Stdio::piped());
            assert_eq!(status, Some(i32::from(STATUS)), "{deed}: {said}");
            let place = concat!(file!(), ":");
            assert!(said.contains(&format!("Error: {name} failed at {place}")), "{deed}: {said}");
            assert!(!said.contains("a destructor ran"), "{deed}: {said}");
        }
    }

    #[test]
    fn the_line_is_one_and_names_the_entry() {
        let (_, said) = commit("thread", Stdio::piped());
        assert!(said.contains(" (entry 41): a deed: "), "{said}");
        let (_, said) = commit("part", Stdio::piped());
        assert!(said.contains(": a deed in lines: this member"), "{said}");
    }

    #[test]
    fn nobody_to_hear_the_words_changes_nothing() {
        let full = File::options().write(true).open("/dev/full").expect("there is one");
        assert_eq!(commit("part", full).0, Some(i32::from(STATUS)));
    }

    #[test]
    fn a_panic_of_a_request_that_changes_nothing_leaves_the_process_alone_and_is_counted() {
        let (status, said) = commit("after", Stdio::piped());
        assert_eq!(status, Some(0), "{said}");
    }
}
