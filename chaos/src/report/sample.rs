//! A made-up run for the tests of the pages: busy, with gaps, a change of leader and odd names.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Story;
use crate::record::Verdict;
use crate::record::trace::{Ended, Fault, Held, Lag, Led, Op, Record};

/// A run of so many seconds. A leader dies in every tenth second and is missed for 1.2 s.
pub fn story(seconds: u64) -> Story {
    let mut dice = StdRng::seed_from_u64(seconds);
    let mut record = Record {
        clients: (0..6).map(|client| format!("{}/{client}", ["register", "bank"][client % 2])).collect(),
        watchers: vec!["watch/0".to_owned(), "watch/<slow> & \"late\"".to_owned()],
        ..Record::default()
    };
    for client in 0..6 {
        let mut at = 0;
        while at < seconds * 1_000_000 {
            let dead = (5_000_000..6_200_000).contains(&(at % 10_000_000));
            let took = if dead { 6_250_000 - at % 10_000_000 } else { dice.random_range(2_000..40_000) };
            let ended = if dead && client % 3 == 0 { Ended::Unknown } else { Ended::Ok };
            record.ops.push(Op { client, writes: client < 4, invoked_us: at, returned_us: at + took, ended });
            at += took + 2_000;
        }
    }
    for second in 0..seconds {
        let at_us = second * 1_000_000;
        for watcher in 0..2 {
            record.lags.push(Lag { at_us, watcher, revisions: dice.random_range(0..40) });
        }
        for member in 0..3 {
            let pid = 100 + u32::try_from(member).unwrap_or(0);
            record.held.push(Held { at_us, member, rss_bytes: 40 << 20, files: 60, pid });
        }
        if second % 10 == 5 {
            let fault = Fault {
                kind: "kill".to_owned(),
                what: "m1 killed </title><script>alert(1)</script>".to_owned(),
                members: vec![1],
                made: true,
                struck_us: at_us,
                healed_us: (second + 2 < seconds).then_some(at_us + 2_000_000),
            };
            record.faults.push(fault);
            record.leaders.push(Led { at_us, member: None, term: second });
            record.leaders.push(Led { at_us: at_us + 1_200_000, member: Some(2), term: second + 1 });
        }
    }
    Story {
        scenario: "sample".to_owned(),
        seed: 7,
        target: "meerkat".to_owned(),
        driver: "local".to_owned(),
        version: "0.1.0".to_owned(),
        replay: "meerkat-chaos run sample --seed 7".to_owned(),
        length: Duration::from_secs(seconds),
        record,
        verdicts: vec![Verdict {
            workload: "register".to_owned(),
            promise: "reads and writes are linearizable".to_owned(),
            judged: 1_000,
            findings: Vec::new(),
        }],
        members: vec!["m0".to_owned(), "m1".to_owned(), "m2".to_owned()],
        troubles: Vec::new(),
    }
}
