//! Models of runs that never happened, for the tests of what is made from a model.

use std::collections::BTreeMap;
use std::time::Duration;

use meerkat_types::Revision;

use super::checker::{History, Number, Seen};
use super::model::{Condition, Input, Model, Status, WriteEnd};
use super::script::{Fault, Kind, WATCHERS};
use super::verdict;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn seen(number: u64) -> Seen {
    Seen { revision: Revision::new(1_202 + number as i64), number: Number(number) }
}

fn write(model: &mut Model, at: u64, number: u64) {
    model.apply(ms(at), Input::Sent(Number(number)));
    let end = WriteEnd::Acknowledged(seen(number).revision);
    model.apply(ms(at), Input::Written { number: Number(number), end });
}

fn tell(model: &mut Model, at: u64, watchers: &[usize], number: u64) {
    for watcher in watchers {
        model.apply(ms(at), Input::Event { watcher: *watcher, seen: seen(number) });
    }
}

fn hangs(model: &mut Model, at: u64, watcher: usize, on: Option<usize>, resumes: u64) {
    let last_gap = (resumes > 0).then_some(ms(310));
    model.apply(ms(at), Input::Hangs { watcher, on, resumes, last_gap });
}

/// The second member was killed; the second watcher hung on it and looks for another.
pub fn in_the_middle_of_a_kill() -> Model {
    let mut model = Model::new(7, 2);
    model.apply(ms(500), Input::Begin(seen(0).revision));
    for member in 0..3 {
        model.apply(ms(600), Input::Condition { member, condition: Condition::Up });
        let status = Some(Status { leads: member == 0, revision: seen(3).revision, term: 3 });
        model.apply(ms(600), Input::Status { member, status });
        hangs(&mut model, 700, member, Some(member), 0);
    }
    for number in 0..3 {
        write(&mut model, 11_000 + 100 * number, number);
        tell(&mut model, 11_050 + 100 * number, &[0, 1, 2], number);
    }
    model.apply(ms(12_000), Input::Said("fault 1 of 2: kill -9 of m2".to_owned()));
    let fault = Fault { kind: Kind::KillWatched, watcher: 1 };
    model.apply(ms(12_000), Input::Condition { member: 1, condition: Condition::Down });
    let sight = model.sight();
    model.apply(ms(12_000), Input::Struck { fault, members: vec![1], sight });
    hangs(&mut model, 12_050, 1, None, 0);
    write(&mut model, 12_200, 3);
    tell(&mut model, 12_250, &[0, 2], 3);
    model.pass_time(ms(12_500));
    model
}

/// The same run, with a second watcher that came back at the third member.
pub fn done() -> Model {
    let mut model = in_the_middle_of_a_kill();
    model.planned = 1;
    hangs(&mut model, 12_350, 1, Some(2), 1);
    tell(&mut model, 12_400, &[1], 3);
    model.apply(ms(13_000), Input::Returned);
    model.apply(ms(13_000), Input::Condition { member: 1, condition: Condition::Up });
    model.apply(ms(13_500), Input::Over);
    let numbers: BTreeMap<Revision, Number> =
        (0..4).map(|number| (seen(number).revision, Number(number))).collect();
    let verdict = verdict::reach(&model, &History { at: seen(3).revision, numbers });
    assert_eq!(model.watchers.len(), WATCHERS);
    model.apply(ms(14_000), Input::Done(Box::new(verdict)));
    model
}
