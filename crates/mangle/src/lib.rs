//! Bytes that somebody almost would have written: what the fuzz tests feed to readers.
//!
//! A [`Fuzz`] gives a reader, in this order, every input of a corpus, every good sample, and then as many
//! inputs made from them as the run is long: bits turned over, parts cut out, doubled or taken from another
//! sample, lengths and counters replaced by the largest there are, and plain noise. All of it comes from one
//! seed. A reader may refuse an input or make something of it; it must not panic, take seconds for it, or ask
//! for memory that the input does not justify. Whichever input it fails on is printed in the form that a
//! corpus has, so that it can be added there.
//!
//! Only tests use this.

mod mutate;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};

/// What one input may take on a machine that does much else.
const SLOW: Duration = Duration::from_secs(20);

/// A length that was believed asks for more than this at once. Address space, not resident memory: an
/// allocation that nobody has written to yet counts.
const MEMORY_MAX_BYTES: u64 = 3 << 30;

/// A long run does so many times the work of a short one.
const LONG_FACTOR: usize = 50;

/// A fixed seed, so that a red run is red again; another one through the environment.
pub fn seed() -> u64 {
    std::env::var("MEERKAT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_117)
}

/// This many in a short run, more in a long one.
pub fn rounds(short: usize) -> usize {
    let long = std::env::var("MEERKAT_LONG").is_ok_and(|value| value == "1");
    if long { short * LONG_FACTOR } else { short }
}

/// The inputs of one reader.
pub struct Fuzz {
    name: &'static str,
    seed: u64,
    random: StdRng,
    corpus: Vec<Vec<u8>>,
    samples: Vec<Vec<u8>>,
}

impl Fuzz {
    /// A corpus has one input to a line, in hexadecimal; what follows a `#` says why it is there. A line that
    /// begins with one is only words.
    ///
    /// # Panics
    /// If the corpus cannot be read, or there is no sample.
    pub fn new(name: &'static str, corpus: &str, samples: Vec<Vec<u8>>) -> Fuzz {
        assert!(!samples.is_empty(), "{name}: mutation needs something good to begin with");
        let corpus = parse_corpus(corpus).unwrap_or_else(|line| panic!("{name}: corpus line {line}"));
        let seed = seed();
        Fuzz { name, seed, random: StdRng::seed_from_u64(seed), corpus, samples }
    }

    /// Feeds everything to `read`, which says whether it made something of the input.
    ///
    /// # Panics
    /// If the reader does, or takes too long or too much memory; if it refuses a good sample; or if it
    /// never took, or never refused, a mutated input: then the mutations do not try what they should.
    pub fn run(mut self, short_rounds: usize, mut read: impl FnMut(&[u8]) -> bool) {
        let before = memory_peak_bytes();
        for input in self.take_corpus() {
            self.feed("the corpus", &input, &mut read);
        }
        for sample in self.samples.clone() {
            assert!(
                self.feed("a good sample", &sample, &mut read),
                "{}: a good sample is refused",
                self.name
            );
        }
        let rounds = rounds(short_rounds);
        let mut taken = 0;
        for round in 0..rounds {
            let input = self.next_input();
            taken += usize::from(self.feed(&format!("round {round}"), &input, &mut read));
        }
        let grown = memory_peak_bytes().saturating_sub(before);
        println!("{}: seed {}, {rounds} inputs, {taken} of them taken", self.name, self.seed);
        assert!(grown < MEMORY_MAX_BYTES, "{}: some input made memory grow by {grown} bytes", self.name);
        assert!(0 < taken && taken < rounds, "{}: {taken} of {rounds} inputs were taken", self.name);
    }

    /// The corpus, for a reader that is too slow or too far away for [`Fuzz::run`].
    pub fn take_corpus(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.corpus)
    }

    /// The next input, made from the samples.
    pub fn next_input(&mut self) -> Vec<u8> {
        if self.random.random_range(0..16) == 0 {
            return mutate::noise(&mut self.random);
        }
        let pick = self.random.random_range(0..self.samples.len());
        let other = self.random.random_range(0..self.samples.len());
        let mut input = self.samples[pick].clone();
        for _ in 0..self.random.random_range(1..4) {
            mutate::once(&mut self.random, &mut input, &self.samples[other]);
        }
        input
    }

    fn feed(&self, which: &str, input: &[u8], read: &mut impl FnMut(&[u8]) -> bool) -> bool {
        let shown = Shown { fuzz: self, which, input };
        let began = Instant::now();
        let taken = read(input);
        assert!(began.elapsed() < SLOW, "an input took {:?}", began.elapsed());
        drop(shown);
        taken
    }
}

/// Says which input it was, if a panic passes by.
struct Shown<'a> {
    fuzz: &'a Fuzz,
    which: &'a str,
    input: &'a [u8],
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Fuzz { name, seed, .. } = self.fuzz;
            eprintln!("{name}: MEERKAT_SEED={seed}, {}, for the corpus:\n{}", self.which, hex(self.input));
        }
    }
}

/// As a line of a corpus has it.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inputs of a corpus, or the number of the line that is none.
fn parse_corpus(text: &str) -> Result<Vec<Vec<u8>>, usize> {
    let mut inputs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let (digits, _why) = line.split_once('#').unwrap_or((line, ""));
        inputs.push(parse_hex(digits.trim()).ok_or(at + 1)?);
    }
    Ok(inputs)
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

/// The most address space that this process ever had.
fn memory_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;

    #[test]
    fn a_corpus_reads_back_and_a_bad_line_is_named() {
        assert_eq!(
            parse_corpus("# only words\n00ff # why\n\nab"),
            Ok(vec![vec![0, 255], vec![], vec![0xab]])
        );
        assert_eq!(parse_corpus("00\n0"), Err(2));
        assert_eq!(parse_corpus("zz"), Err(1));
        assert_eq!(parse_hex(&hex(&[1, 0xfe])), Some(vec![1, 0xfe]));
    }

    /// One at a time: memory is that of the whole process.
    static ONE: Mutex<()> = Mutex::new(());

    fn run(read: impl FnMut(&[u8]) -> bool) -> bool {
        let _one = ONE.lock();
        let fuzz = Fuzz::new("it", "ff", vec![vec![1, 2, 3, 4, 0, 0], vec![4, 9, 9, 9, 9, 9]]);
        catch_unwind(AssertUnwindSafe(|| fuzz.run(2_000, read))).is_ok()
    }

    #[test]
    fn a_reader_that_trusts_a_length_is_found() {
        let careful = |input: &[u8]| input.first().is_some_and(|len| usize::from(*len) < input.len());
        assert!(run(careful));
        assert!(!run(|input| careful(input) | (input.len() > 3 && input[usize::from(input[0])] == 1)));
        assert!(!run(|input| careful(input) | (input[1] == 1)));
    }

    #[test]
    fn a_reader_that_takes_or_refuses_everything_is_not_tested() {
        assert!(!run(|_| true));
        assert!(!run(|_| false));
    }

    #[test]
    fn a_reader_that_asks_for_what_a_length_says_is_found() {
        let greedy = |input: &[u8]| {
            let Some(len) = input.get(..4) else { return false };
            let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
            // Room that nobody looks at is not even asked for, once optimised.
            let room: Vec<u8> = std::hint::black_box(Vec::with_capacity(len));
            input.len() < room.capacity()
        };
        assert!(!run(greedy));
    }

    #[test]
    fn one_seed_gives_one_run() {
        let inputs = || {
            let mut fuzz = Fuzz::new("it", "", vec![vec![7; 40]]);
            (0..200).map(|_| fuzz.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(), inputs());
    }
}
