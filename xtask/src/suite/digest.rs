//! What is kept of a suite's output, line by line: sums, things left out, which tests failed, and why.

/// Of why tests failed; what is longer stands in the log.
const EXCERPT_LINES_MAX: usize = 60;
/// Of one panic.
const PANIC_LINES_MAX: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// The lines in which the test harness sums up, and those that tell of something left out.
    pub notable: Vec<String>,
    /// Names of tests, as the harness lists them at its end.
    pub failed_tests: Vec<String>,
    /// What panics said.
    pub excerpt: Vec<String>,
    /// Whether a test says that the system did what it promised never to do. What tests print that pass is
    /// not heeded: some judge histories that are known to be bad.
    pub broken_promise: bool,
    is_of_successes: bool,
    place: Place,
}

/// Where in the output we are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Elsewhere,
    /// Below `failures:`, where names follow if it is the list.
    Failures,
    /// Within a panic, with so many lines of it still of interest.
    Panic(usize),
}

impl Digest {
    pub fn line(&mut self, line: &str) {
        if line.starts_with("test result:") || line.contains("SKIPPED") {
            self.notable.push(line.to_owned());
        }
        self.is_of_successes = line == "successes:" || (self.is_of_successes && line != "failures:");
        self.broken_promise |= !self.is_of_successes && line.contains("broken promise");
        if line == "failures:" {
            self.place = Place::Failures;
        } else if line.starts_with("thread '") && line.contains("panicked at") {
            self.place = Place::Panic(PANIC_LINES_MAX);
        }
        match self.place {
            Place::Elsewhere => {}
            Place::Failures => match line.strip_prefix("    ") {
                Some(name) => self.failed_tests.push(name.to_owned()),
                None if line == "failures:" => {}
                None => self.place = Place::Elsewhere,
            },
            Place::Panic(0) => self.place = Place::Elsewhere,
            Place::Panic(_)
                if line.starts_with("note: run with `RUST_BACKTRACE") || line == "stack backtrace:" =>
            {
                self.place = Place::Elsewhere;
            }
            Place::Panic(left) => {
                self.place = Place::Panic(left - 1);
                if self.excerpt.len() < EXCERPT_LINES_MAX {
                    self.excerpt.push(line.to_owned());
                }
            }
        }
    }

    /// Passed and failed, by the harness's own lines.
    pub fn counts(&self) -> (u64, u64) {
        let counts = self.notable.iter().filter_map(|line| counts(line));
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    }

    pub fn skipped(&self) -> bool {
        self.notable.iter().any(|line| line.contains("SKIPPED"))
    }
}

/// Passed and failed of a line like `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (_, numbers) = line.strip_prefix("test result:")?.split_once(". ")?;
    let count =
        |word: &str| numbers.split(';').find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok());
    Some((count("passed")?, count("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(output: &str) -> Digest {
        let mut digest = Digest::default();
        output.lines().for_each(|line| digest.line(line));
        digest
    }

    #[test]
    fn counts_come_from_the_harness_own_line() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("running 3 tests"), None);
        let two = digest(&format!("{line}\n{line}"));
        assert_eq!(two.counts(), (24, 6));
    }

    #[test]
    fn failed_tests_and_their_panics_are_found_in_what_the_harness_prints() {
        let digest = digest(
            "test a::one ... ok\n\
             test a::two ... FAILED\n\
             \n\
             successes:\n    a::one\n\
             \n\
             failures:\n\
             \n\
             ---- a::two stdout ----\n\
             \n\
             thread 'a::two' (7) panicked at tests/it/a.rs:3:5:\n\
             assertion failed: left == right\n  left: 1\n\
             note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n\
             what else it printed\n\
             \n\
             \n\
             failures:\n    a::two\n    b\n\
             \n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\n\
             \x20   not a name\n",
        );
        assert_eq!(digest.failed_tests, ["a::two", "b"]);
        assert_eq!(
            digest.excerpt,
            [
                "thread 'a::two' (7) panicked at tests/it/a.rs:3:5:",
                "assertion failed: left == right",
                "  left: 1"
            ]
        );
        assert!(!digest.broken_promise && !digest.skipped());
        assert_eq!(digest.counts(), (1, 2));
    }

    #[test]
    fn a_broken_promise_is_noticed_and_long_panics_are_cut() {
        let words = "word\n".repeat(1000);
        let digest = digest(&format!("thread 'x' panicked at y:\nbroken promise: lost\n{words}"));
        assert!(digest.broken_promise);
        let of = |output: &str| super::tests::digest(output).broken_promise;
        assert!(!of("successes:\n\n---- a stdout ----\nbroken promise: known to be bad\n"));
        assert!(of("successes:\n    a\nfailures:\n\n---- b stdout ----\nbroken promise: lost\n"));
        assert_eq!(digest.excerpt.len(), PANIC_LINES_MAX);
    }
}
