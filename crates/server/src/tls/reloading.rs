//! A thing made of files, made again when they change.
//!
//! Looked at when it is used, not watched: a handshake costs far more than asking for the state of
//! five files. If the new files cannot be used, the old thing stays, and one line in the log says so
//! for each new state of the files; they are tried again when they change again, and every
//! [`RETRY_AFTER`]: not everything that keeps a file from being read shows in it.

use super::material::{Stamp, TlsError, stamp};
use meerkat_fault::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RETRY_AFTER: Duration = Duration::from_secs(5);

type Make<T> = Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>;

pub(super) struct Reloading<T> {
    what: String,
    files: Vec<PathBuf>,
    make: Make<T>,
    retry_after: Duration,
    /// Free while the files are read: a mistake in reading them is one handshake's.
    state: Mutex<State<T>>,
}

struct State<T> {
    /// Of the files as they were last looked at, whether or not they could be used.
    seen: Vec<Stamp>,
    current: Arc<T>,
    /// When they were tried last, unless they are in use.
    failed: Option<Instant>,
    tries: u64,
}

impl<T> Reloading<T> {
    pub(super) fn new(
        what: impl Into<String>,
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Reloading<T>, TlsError> {
        // Before they are read: a change in between is then seen as one.
        let seen = files.iter().map(|file| stamp(file)).collect();
        let current = Arc::new(make()?);
        Ok(Reloading {
            what: what.into(),
            files,
            make: Box::new(make),
            retry_after: RETRY_AFTER,
            state: Mutex::new(State { seen, current, failed: None, tries: 0 }),
        })
    }

    pub(super) fn now(&self) -> Arc<T> {
        let seen: Vec<Stamp> = self.files.iter().map(|file| stamp(file)).collect();
        let (is_new, number) = {
            let mut state = self.state.lock();
            let is_new = seen != state.seen;
            if !is_new && state.failed.is_none_or(|failed| failed.elapsed() < self.retry_after) {
                return state.current.clone();
            }
            // Nobody else tries the same files meanwhile.
            state.seen = seen;
            state.failed = Some(Instant::now());
            state.tries += 1;
            (is_new, state.tries)
        };
        let made = (self.make)();
        let mut state = self.state.lock();
        // Whoever began later has read newer files.
        if state.tries == number {
            match made {
                Ok(made) => {
                    tracing::info!("{}: the new certificate files are in force", self.what);
                    state.current = Arc::new(made);
                    state.failed = None;
                }
                Err(error) if is_new => self.tell(&error),
                Err(_) => {}
            }
        }
        state.current.clone()
    }

    fn tell(&self, error: &TlsError) {
        tracing::error!(
            %error,
            "{}: the new certificate files cannot be used; those before stay in force until they are mended",
            self.what
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_made_again_and_what_is_broken_is_not_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("it");
        std::fs::write(&file, "one").expect("written");
        let path = file.clone();
        let it = Reloading::new("it", vec![file.clone()], move || {
            let text = std::fs::read_to_string(&path).map_err(|error| TlsError::file(&path, error))?;
            if text.contains("broken") { Err(TlsError::file(&path, "broken")) } else { Ok(text) }
        });
        let it = it.expect("there is a file");
        assert_eq!(*it.now(), "one");
        std::fs::write(&file, "second").expect("written");
        assert_eq!(*it.now(), "second");
        std::fs::write(&file, "broken!").expect("written");
        assert_eq!(*it.now(), "second");
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(*it.now(), "second");
        std::fs::write(&file, "the third").expect("written");
        assert_eq!(*it.now(), "the third");
    }

    #[test]
    fn what_could_not_be_read_is_tried_again_though_the_file_looks_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("it");
        std::fs::write(&file, "one").expect("written");
        let broken = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (path, is_broken) = (file.clone(), broken.clone());
        let it = Reloading::new("it", vec![file.clone()], move || {
            if is_broken.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(TlsError::file(&path, "not now"));
            }
            std::fs::read_to_string(&path).map_err(|error| TlsError::file(&path, error))
        });
        let mut it = it.expect("there is a file");
        broken.store(true, std::sync::atomic::Ordering::Relaxed);
        std::fs::write(&file, "second").expect("written");
        assert_eq!(*it.now(), "one");
        broken.store(false, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(*it.now(), "one", "not at each use");
        it.retry_after = Duration::ZERO;
        assert_eq!(*it.now(), "second");
    }

    #[test]
    fn a_mistake_in_reading_is_that_of_one_use_and_is_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("it");
        std::fs::write(&file, "one").expect("written");
        let (path, uses) = (file.clone(), std::sync::atomic::AtomicU32::new(0));
        let it = Reloading::new("it", vec![file.clone()], move || {
            assert_ne!(uses.fetch_add(1, std::sync::atomic::Ordering::Relaxed), 1, "a mistake");
            std::fs::read_to_string(&path).map_err(|error| TlsError::file(&path, error))
        });
        let mut it = it.expect("there is a file");
        std::fs::write(&file, "second").expect("written");
        let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| it.now()));
        assert!(used.is_err());
        assert_eq!(*it.now(), "one");
        it.retry_after = Duration::ZERO;
        assert_eq!(*it.now(), "second");
    }

    #[test]
    fn a_file_whose_mode_changes_is_another() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("it");
        std::fs::write(&file, "one").expect("written");
        let before = stamp(&file);
        assert_eq!(stamp(&file), before);
        // The clock of the file system is not fine.
        std::thread::sleep(Duration::from_millis(50));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
        assert_ne!(stamp(&file), before);
    }

    #[test]
    fn what_cannot_be_used_at_first_is_an_error() {
        let failed = Reloading::<()>::new("it", vec![], || Err(TlsError::file("x".as_ref(), "broken")));
        assert!(failed.is_err());
    }
}
