//! Hands each line to every place it goes to, one line at a time.
//!
//! Whoever logs never hears of a line that could not be written, and is never stopped by it: a log that is
//! full must not be the end of a member. It is told on stderr, seldom, with how much was lost.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use meerkat_fault::Mutex;
use meerkat_proto::reason;
use tracing_subscriber::fmt::MakeWriter;

use super::log_file::LogFile;
use super::outputs::{Target, refused};
use super::rotation::Rotation;

/// How often stderr hears of one kind of trouble with one file at most.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(3_600);

/// All places of the log.
pub struct Writers {
    /// Held while one line is written everywhere, so that lines never mix. Nothing is logged meanwhile; after
    /// a panic, the last line goes to stderr alone.
    places: Mutex<Vec<Place>>,
}

enum Place {
    Stderr,
    Stdout,
    File(LogFile, Complaints),
}

impl Writers {
    /// # Errors
    /// If a file cannot be opened; the text is etcd's.
    pub fn open(targets: &[Target], rotation: Option<Rotation>) -> Result<Writers, String> {
        let open = |target: &Target| match target {
            Target::Stderr => Ok(Place::Stderr),
            Target::Stdout => Ok(Place::Stdout),
            Target::File(path) => LogFile::open(path, rotation)
                .map(|file| Place::File(file, Complaints::default()))
                .map_err(|error| not_opened(path, &error)),
        };
        let places = targets.iter().map(open).collect::<Result<Vec<Place>, String>>()?;
        Ok(Writers { places: Mutex::new(places) })
    }
}

fn not_opened(path: &Path, error: &io::Error) -> String {
    let name = path.display().to_string();
    refused(&name, &format!("open {name}: {}", reason::of_system(error)))
}

impl<'w> MakeWriter<'w> for Writers {
    type Writer = &'w Writers;

    fn make_writer(&'w self) -> &'w Writers {
        self
    }
}

impl Write for &Writers {
    /// Gets each line as a whole, in one call, and always takes all of it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut places = self.places.lock();
        places.iter_mut().for_each(|place| place.write(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Place {
    fn write(&mut self, line: &[u8]) {
        match self {
            // There is nowhere left to tell that these cannot be written to.
            Place::Stderr => drop(io::stderr().lock().write_all(line)),
            Place::Stdout => drop(io::stdout().lock().write_all(line)),
            Place::File(file, complaints) => {
                let now = Instant::now();
                if let Err(error) = file.make_room(line.len(), now) {
                    let path = file.path().display();
                    complaints.rotation.tell(now, || format!("cannot rotate the log {path}: {error}"));
                }
                if let Err(error) = file.append(line) {
                    complaints.lost += 1;
                    let (path, lost) = (file.path().display(), complaints.lost);
                    complaints.writing.tell(now, || {
                        format!("cannot write to the log {path}: {error} (lines lost: {lost})")
                    });
                }
            }
        }
    }
}

/// What went wrong with one file. Neither kind keeps the other from being told.
#[derive(Default)]
struct Complaints {
    lost: u64,
    rotation: Seldom,
    writing: Seldom,
}

/// When stderr last heard of one kind of trouble.
#[derive(Default)]
struct Seldom {
    last: Option<Instant>,
}

impl Seldom {
    fn tell(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.is_time(now) {
            drop(writeln!(io::stderr().lock(), "meerkat: {}", text()));
        }
    }

    fn is_time(&mut self, now: Instant) -> bool {
        let is_time = self.last.is_none_or(|last| COMPLAINT_INTERVAL <= now.duration_since(last));
        if is_time {
            self.last = Some(now);
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn file(path: &Path) -> Target {
        Target::File(path.to_owned())
    }

    #[test]
    fn every_file_gets_every_line_whole_from_many_threads() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = ["a.log", "b.log"].map(|name| directory.path().join(name));
        let targets: Vec<Target> = paths.iter().map(|path| file(path)).collect();
        let writers = Arc::new(Writers::open(&targets, None).expect("open"));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let writers = Arc::clone(&writers);
                std::thread::spawn(move || {
                    for at in 0..250 {
                        let line = format!("{thread}.{at} is said\n");
                        writers.make_writer().write_all(line.as_bytes()).expect("never fails");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let [one, other] = paths.map(|path| std::fs::read_to_string(path).expect("text"));
        assert_eq!(one, other);
        let mut lines: Vec<&str> = one.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 1_000);
        assert!(lines.iter().all(|line| line.ends_with(" is said")));
    }

    #[test]
    fn a_full_disk_stops_neither_the_caller_nor_other_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let good = directory.path().join("good.log");
        let writers = Writers::open(&[file(Path::new("/dev/full")), file(&good)], None).expect("open");
        for _ in 0..3 {
            writers.make_writer().write_all(b"a line\n").expect("never fails");
        }
        assert_eq!(std::fs::read_to_string(good).expect("text"), "a line\n".repeat(3));
        let places = writers.places.lock();
        assert!(matches!(&places[0], Place::File(_, Complaints { lost: 3, .. })));
    }

    #[test]
    fn complaints_are_few() {
        let mut complaints = Seldom::default();
        let start = Instant::now();
        let times = [0, 1, 3_599, 3_600, 3_601, 7_200].map(Duration::from_secs);
        let told = times.map(|after| complaints.is_time(start + after));
        assert_eq!(told, [true, false, false, true, false, true]);
    }

    #[test]
    fn a_log_that_cannot_be_rotated_may_still_complain_of_lost_lines() {
        let directory = tempfile::tempdir().expect("a directory");
        // Good for a name, but not with the time in it.
        let path = directory.path().join("x".repeat(250));
        let rotation = Rotation { bytes_max: 4, ..Rotation::from_json("{}").expect("defaults") };
        let writers = Writers::open(&[file(&path)], Some(rotation)).expect("open");
        for _ in 0..2 {
            writers.make_writer().write_all(b"one\n").expect("never fails");
        }
        let places = writers.places.lock();
        let Place::File(_, complaints) = &places[0] else { panic!("a file was asked for") };
        assert!(complaints.rotation.last.is_some(), "told of");
        assert!(complaints.writing.last.is_none(), "still to be told of");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_in_etcds_words() {
        let refusal = Writers::open(&[file(Path::new("/no/such/x.log"))], None).err().expect("no directory");
        assert_eq!(refusal, "open sink \"/no/such/x.log\": open /no/such/x.log: no such file or directory");
    }
}
