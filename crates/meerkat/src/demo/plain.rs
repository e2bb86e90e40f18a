//! The model as lines, for logs and machines without a terminal.
//!
//! Prints each line of the log once, a line of state every few seconds, and at the end, as the
//! screen does too when it has closed, the table and the verdict. The last line is the verdict.

use std::time::Duration;

use super::model::{LogLine, Model, Phase};
use super::verdict::{TABLE_HEAD, Verdict, member_name, table_row};

/// Between two lines of state.
const STATE_INTERVAL: Duration = Duration::from_secs(2);

/// What was printed already.
#[derive(Default)]
pub struct Plain {
    lines: u64,
    next_state: Duration,
}

impl Plain {
    /// The lines that are new since the last call.
    pub fn news(&mut self, model: &Model) -> Vec<String> {
        let fresh = model.said.saturating_sub(self.lines) as usize;
        let forgotten = fresh.saturating_sub(model.log.len());
        let fresh = model.log.iter().skip((model.log.len() + forgotten).saturating_sub(fresh));
        let mut lines: Vec<String> = fresh.map(log_line).collect();
        self.lines = model.said;
        if self.next_state <= model.now && matches!(model.phase, Phase::Running) {
            self.next_state = model.now + STATE_INTERVAL;
            lines.push(format!("{:>7.1} s  | {}", model.now.as_secs_f64(), state(model)));
        }
        lines
    }
}

fn log_line(line: &LogLine) -> String {
    format!("{:>7.1} s  {}", line.at.as_secs_f64(), line.text)
}

fn state(model: &Model) -> String {
    let leader = model.leader();
    let member = |(at, row): (usize, &super::model::MemberRow)| {
        let role = if leader == Some(at) { " leads" } else { "" };
        format!("{} {}{role}", member_name(at), row.condition.text())
    };
    let members: Vec<String> = model.members.iter().enumerate().map(member).collect();
    let watcher = |(at, row): (usize, &super::model::WatcherRow)| {
        let on = row.on.map_or_else(|| "-".to_owned(), member_name);
        let revision = row.record.highest().map_or(0, |revision| revision.get());
        format!("w{} on {on} at {revision}", at + 1)
    };
    let watchers: Vec<String> = model.watchers.iter().enumerate().map(watcher).collect();
    let wrong: u64 = model.watchers.iter().map(|row| row.record.gaps + row.record.repeats).sum();
    let writes = format!("{} writes/s", model.write_rate());
    format!("{} | {writes} | {} | gaps and repeats {wrong}", members.join(", "), watchers.join(", "))
}

/// The table of the faults, then the writes, the reasons of a failure, and the verdict.
pub fn closing(model: &Model, verdict: &Verdict) -> Vec<String> {
    let head = TABLE_HEAD.map(str::to_owned);
    let faults = model.faults.iter().enumerate().map(|(at, fault)| table_row(at + 1, fault));
    let mut lines = vec![String::new(), "time until events flowed again, for each fault:".to_owned()];
    lines.extend(aligned(std::iter::once(head).chain(faults).collect()));
    lines.push(String::new());
    lines.push(verdict.writes_line());
    lines.extend(verdict.reasons());
    lines.push(verdict.line());
    lines
}

fn aligned<const COLUMNS: usize>(rows: Vec<[String; COLUMNS]>) -> Vec<String> {
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::model::Input;
    use super::super::sample;
    use super::*;

    #[test]
    fn every_line_is_printed_once() {
        let mut model = sample::in_the_middle_of_a_kill();
        let mut plain = Plain::default();
        let first = plain.news(&model);
        assert_eq!(first[0], "   12.0 s  fault 1 of 2: kill -9 of m2");
        let state = "m1 up leads, m2 down, m3 up | 1 writes/s | \
                     w1 on m1 at 1205, w2 on - at 1204, w3 on m3 at 1205 | gaps and repeats 0";
        assert_eq!(first[1], format!("   12.5 s  | {state}"));
        assert_eq!(plain.news(&model), [""; 0]);
        model.apply(Duration::from_millis(12_600), Input::Said("m2 is back".to_owned()));
        assert_eq!(plain.news(&model), ["   12.6 s  m2 is back"]);
    }

    #[test]
    fn the_verdict_is_the_last_line_below_the_table() {
        let model = sample::done();
        let Phase::Done(verdict) = &model.phase else { panic!("the sample is done") };
        let lines = closing(&model, verdict);
        let table: Vec<&str> = lines.iter().skip(2).take(2).map(String::as_str).collect();
        let head = "#  fault                          member  watcher 1  watcher 2     watcher 3  slowest";
        let row = "1  kill -9 of a watcher's member  m2      0.25 s     0.40 s m2→m3  0.25 s     0.40 s";
        assert_eq!(table, [head, row]);
        assert_eq!(lines.last(), Some(&verdict.line()));
    }
}
