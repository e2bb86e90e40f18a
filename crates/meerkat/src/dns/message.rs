//! DNS messages, as far as SRV records need them: a question's bytes, and the records in an answer's.
//!
//! Reading is bounded by the message: a name is at most 255 bytes long, and compression that points in
//! circles ends there. A host that could not stand in a URL is refused, not repaired.

const TYPE_SRV: u16 = 33;
const CLASS_INTERNET: u16 = 1;
const HEADER_BYTES: usize = 12;
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 255;
const JUMPS_MAX: usize = 32;

/// Where a service is to be had. The order is that in which they are wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Srv {
    pub priority: u16,
    /// A host name without the dot at its end.
    pub target: String,
    pub port: u16,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The records, the most wanted first; perhaps none.
    Records(Vec<Srv>),
    NoSuchName,
    /// It did not fit: ask again over TCP.
    TooLong,
    /// It is not the answer to this question.
    OfAnother,
}

/// The bytes that ask for the SRV records of a name.
pub fn question(id: u16, name: &str) -> Result<Vec<u8>, String> {
    const RECURSION_DESIRED: u16 = 0x0100;
    let mut bytes = Vec::new();
    for word in [id, RECURSION_DESIRED, 1, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    let labels: Vec<&str> = name.trim_end_matches('.').split('.').collect();
    let is_name = labels.iter().all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()));
    if !is_name || NAME_BYTES_MAX < name.len() {
        return Err("no such host".to_owned());
    }
    for label in labels {
        bytes.push(u8::try_from(label.len()).unwrap_or_default());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&TYPE_SRV.to_be_bytes());
    bytes.extend_from_slice(&CLASS_INTERNET.to_be_bytes());
    Ok(bytes)
}

/// What a message says to a question.
pub fn answer(message: &[u8], question: &[u8]) -> Result<Answer, String> {
    const IS_ANSWER: u16 = 0x8000;
    const TRUNCATED: u16 = 0x0200;
    const CODE: u16 = 0x000f;
    const NO_SUCH_NAME: u16 = 3;
    let mut reader = Reader { message, at: 0 };
    let header: [Option<u16>; 6] = std::array::from_fn(|_| reader.word());
    let [Some(id), Some(flags), Some(questions), Some(answers), ..] = header else {
        return Ok(Answer::OfAnother);
    };
    let is_ours = question.starts_with(&id.to_be_bytes()) && flags & IS_ANSWER != 0;
    let asked = &question[HEADER_BYTES..];
    let repeated = message.get(HEADER_BYTES..HEADER_BYTES + asked.len());
    let is_repeated = questions == 1 && repeated.is_some_and(|bytes| bytes.eq_ignore_ascii_case(asked));
    if !is_ours || (questions != 0 && !is_repeated) {
        return Ok(Answer::OfAnother);
    }
    match flags & CODE {
        0 if questions == 0 => return Ok(Answer::OfAnother),
        0 => {}
        NO_SUCH_NAME => return Ok(Answer::NoSuchName),
        _ => return Err("server misbehaving".to_owned()),
    }
    if flags & TRUNCATED != 0 {
        return Ok(Answer::TooLong);
    }
    reader.at = HEADER_BYTES + asked.len();
    let mut records = Vec::new();
    for _ in 0..answers {
        records.extend(reader.record().ok_or("cannot unmarshal DNS message")?);
    }
    records.sort();
    Ok(Answer::Records(records))
}

struct Reader<'m> {
    message: &'m [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.message.len()).then_some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.message.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.byte()?, self.byte()?]))
    }

    /// The next record, if it is one of those that were asked for.
    fn record(&mut self) -> Option<Option<Srv>> {
        self.name()?;
        let (kind, class) = (self.word()?, self.word()?);
        self.skip(4)?;
        let length = usize::from(self.word()?);
        let end = self.at + length;
        if (kind, class) != (TYPE_SRV, CLASS_INTERNET) {
            self.skip(length)?;
            return Some(None);
        }
        let (priority, _weight, port) = (self.word()?, self.word()?, self.word()?);
        let target = self.name()?;
        // Data that is longer or shorter than it says is none.
        if end < self.at || self.message.len() < end {
            return None;
        }
        self.at = end;
        // The root as the target says that the service is not to be had here.
        if target.is_empty() {
            return Some(None);
        }
        is_host(&target).then_some(Some(Srv { priority, target, port }))
    }

    /// A name, which may go on at another place of the message.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut back_to = None;
        let mut jumps = 0;
        loop {
            let length = self.byte()?;
            match length {
                0 => break,
                0xc0.. => {
                    let low = self.byte()?;
                    back_to.get_or_insert(self.at);
                    self.at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                    jumps += 1;
                    if JUMPS_MAX < jumps {
                        return None;
                    }
                }
                // Reserved.
                0x40..0xc0 => return None,
                length => {
                    let label = self.message.get(self.at..self.at + usize::from(length))?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.push_str(&String::from_utf8_lossy(label));
                    self.at += usize::from(length);
                    if NAME_BYTES_MAX < name.len() {
                        return None;
                    }
                }
            }
        }
        self.at = back_to.unwrap_or(self.at);
        Some(name)
    }
}

fn is_host(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::super::test_server::answer_with;
    use super::*;
    use meerkat_mangle::Fuzz;

    fn asked() -> Vec<u8> {
        question(7, "_etcd-client._tcp.example.org").expect("a name")
    }

    #[test]
    fn records_come_in_the_order_of_their_priority_and_garbage_is_refused() {
        let good = answer_with(&asked(), &[(2, "b", 2379), (1, "a", 2380)]);
        let Ok(Answer::Records(records)) = answer(&good, &asked()) else { panic!("no records") };
        let seen: Vec<_> = records.iter().map(|srv| (srv.target.as_str(), srv.port)).collect();
        assert_eq!(seen, [("a", 2380), ("b", 2379)]);
        for length in 0..good.len() {
            let cut = answer(&good[..length], &asked());
            assert!(cut.is_err() || cut == Ok(Answer::OfAnother), "cut off at {length}: {cut:?}");
        }
        let mut circle = good.clone();
        let record = asked().len();
        circle[record..record + 2].copy_from_slice(&[0xc0, u8::try_from(record).expect("near")]);
        assert!(answer(&circle, &asked()).is_err(), "a name that points at itself");
    }

    #[test]
    fn what_answers_another_question_is_passed_over() {
        let good = answer_with(&asked(), &[(1, "a", 1)]);
        let other = |change: fn(&mut Vec<u8>)| {
            let mut message = good.clone();
            change(&mut message);
            answer(&message, &asked())
        };
        assert_eq!(other(|message| message[1] = 8), Ok(Answer::OfAnother));
        assert_eq!(other(|message| message[2] &= 0x7f), Ok(Answer::OfAnother), "a question");
        assert_eq!(other(|message| message[15] ^= 1), Ok(Answer::OfAnother), "another name");
        // A server may spell the name as it likes.
        assert!(matches!(other(|message| message.make_ascii_uppercase()), Ok(Answer::Records(_))));
        assert_eq!(other(|message| message[3] |= 3), Ok(Answer::NoSuchName));
        assert_eq!(other(|message| message[3] |= 2), Err("server misbehaving".to_owned()));
        assert_eq!(other(|message| message[2] |= 2), Ok(Answer::TooLong));
    }

    #[test]
    fn a_target_that_is_no_host_is_refused_and_the_root_is_nobody() {
        for target in ["a/b", "a=b", "a,b", "a b", "a:1", "\u{e9}"] {
            let message = answer_with(&asked(), &[(1, target, 1)]);
            assert!(answer(&message, &asked()).is_err(), "{target:?}");
        }
        let nobody = answer_with(&asked(), &[(1, "", 0)]);
        assert_eq!(answer(&nobody, &asked()), Ok(Answer::Records(Vec::new())));
    }

    #[test]
    fn a_name_that_cannot_be_asked_for_is_refused() {
        let long = "a".repeat(64);
        for name in ["", "a..b", long.as_str(), "a.".repeat(130).as_str()] {
            assert!(question(1, name).is_err(), "{name:?}");
        }
        assert_eq!(question(1, "a.b."), question(1, "a.b"));
    }

    #[test]
    fn whatever_comes_back_is_read_or_refused() {
        let samples = vec![
            answer_with(&asked(), &[(1, "m0.example.org", 2380), (1, "m1.example.org", 2380)]),
            answer_with(&asked(), &[(0, "a", 1)]),
        ];
        Fuzz::new("dns answers", "", samples).run(20_000, |input| {
            let read = answer(input, &asked());
            if let Ok(Answer::Records(records)) = &read {
                assert!(records.iter().all(|srv| is_host(&srv.target) && !srv.target.is_empty()));
            }
            matches!(read, Ok(Answer::Records(_)))
        });
    }
}
