//! The model as a screen. Reads everything, decides nothing, and draws into any ratatui buffer.
//!
//! Made for 110 columns and 36 lines; larger screens give the room to the log, smaller ones lose
//! the log first.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Sparkline, Table};

use super::model::{Condition, FaultRow, FaultState, MemberRow, Model, Phase, WatcherRow};
use super::verdict::{TABLE_HEAD, member_name, seconds, table_row};

pub const WIDTH: u16 = 110;
pub const HEIGHT: u16 = 36;

const GOOD: Style = Style::new().fg(Color::Green);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);
const DIM: Style = Style::new().fg(Color::DarkGray);
const HEAD: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const LOUD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Faults that the table shows at once: the latest.
const FAULT_ROWS_MAX: usize = 8;

pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let faults = model.faults.len().clamp(1, FAULT_ROWS_MAX) as u16;
    let [head, members, watchers, events, table, log, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(faults + 3),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [members, writer] = Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(members);
    frame.render_widget(title(model), head);
    draw_members(frame, model, members);
    frame.render_widget(writer_panel(model), writer);
    draw_watchers(frame, model, watchers);
    draw_events(frame, model, events);
    draw_faults(frame, model, table);
    draw_log(frame, model, log);
    frame.render_widget(foot_line(model), foot);
}

fn panel(title: &str) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(DIM).title(Span::styled(title, HEAD))
}

fn title(model: &Model) -> Paragraph<'_> {
    let what = match &model.phase {
        Phase::Starting => "starting three members".to_owned(),
        Phase::Running if model.faults.is_empty() => format!("{} faults to come", model.planned),
        Phase::Running => format!("fault {} of {}", model.faults.len(), model.planned),
        Phase::Checking => "comparing every watcher with the store".to_owned(),
        Phase::Done(_) => "done".to_owned(),
    };
    let clock = format!("{:>6.1} s", model.now.as_secs_f64());
    Paragraph::new(Line::from(vec![
        Span::styled(" meerkat demo failover ", LOUD.add_modifier(Modifier::REVERSED)),
        Span::raw(format!("  {what}")),
        Span::styled(format!("   seed {}  {clock}", model.seed), DIM),
    ]))
}

fn draw_members(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let leader = model.leader();
    let rows = model.members.iter().enumerate().map(|(at, row)| member_row(at, row, leader == Some(at)));
    let widths = [5, 12, 8, 12, 8].map(Constraint::Length);
    let head = Row::new(["", "state", "role", "revision", "term"]).style(DIM);
    frame.render_widget(Table::new(rows, widths).header(head).block(panel(" members ")), area);
}

fn member_row(at: usize, row: &MemberRow, leads: bool) -> Row<'static> {
    let (mark, style) = match row.condition {
        Condition::Up => ("●", GOOD),
        Condition::Starting => ("○", WARN),
        Condition::Paused => ("‖", WARN),
        Condition::Cut => ("✂", WARN),
        Condition::Down => ("✖", BAD),
    };
    let role = match (leads, row.status) {
        (true, _) => Span::styled("leader", LOUD),
        (false, Some(_)) => Span::raw("follower"),
        (false, None) => Span::raw(""),
    };
    let said = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    Row::new([
        Cell::from(format!(" {}", member_name(at))),
        Cell::from(Span::styled(format!("{mark} {}", row.condition.text()), style)),
        Cell::from(role),
        Cell::from(said(row.status.map(|status| grouped(status.revision.get().unsigned_abs())))),
        Cell::from(said(row.status.map(|status| status.term.to_string()))),
    ])
}

fn writer_panel(model: &Model) -> Paragraph<'_> {
    let writes = &model.writes;
    let last = writes.last.map_or_else(|| "–".to_owned(), |at| grouped(at.get().unsigned_abs()));
    let counts = format!(
        " unknown {}   not done {}",
        grouped(writes.unknown.len() as u64),
        grouped(writes.not_done.len() as u64)
    );
    let lines = vec![
        Line::from(vec![
            Span::raw(" rate         "),
            Span::styled(format!("{} writes/s", model.write_rate()), LOUD),
        ]),
        Line::from(vec![
            Span::raw(" acknowledged "),
            Span::styled(grouped(writes.acknowledged.len() as u64), LOUD),
        ]),
        Line::from(format!(" last at      revision {last}")),
        Line::from(counts),
    ];
    Paragraph::new(lines).block(panel(" writer "))
}

fn draw_watchers(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.watchers.iter().enumerate().map(|(at, row)| watcher_row(at, row));
    let widths = [12, 12, 12, 12, 8, 10, 12, 14].map(Constraint::Length);
    let head = ["", "hangs on", "revision", "events", "gaps", "repeats", "resumes", "last reconnect"];
    let table = Table::new(rows, widths).header(Row::new(head).style(DIM)).block(panel(" watchers "));
    frame.render_widget(table, area);
}

fn watcher_row(at: usize, row: &WatcherRow) -> Row<'static> {
    let on = match (&row.ended, row.on) {
        (Some(_), _) => Span::styled("ended", BAD),
        (None, Some(member)) => Span::styled(member_name(member), GOOD),
        (None, None) => Span::styled("looking …", WARN),
    };
    let wrong = |count: u64| Span::styled(grouped(count), if count == 0 { GOOD } else { BAD });
    let revision = row.record.highest().map_or_else(|| "–".to_owned(), |at| grouped(at.get().unsigned_abs()));
    Row::new([
        Cell::from(format!(" watcher {}", at + 1)),
        Cell::from(on),
        Cell::from(revision),
        Cell::from(grouped(row.record.len() as u64)),
        Cell::from(wrong(row.record.gaps)),
        Cell::from(wrong(row.record.repeats + row.record.late)),
        Cell::from(grouped(row.resumes)),
        Cell::from(row.last_gap.map_or_else(|| "–".to_owned(), seconds)),
    ])
}

fn draw_events(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let steps = model.event_steps();
    let room = usize::from(area.width.saturating_sub(2));
    // The last step is not over; it would show a fall that did not happen.
    let complete = steps.len().saturating_sub(1);
    let shown: Vec<u64> = steps.iter().take(complete).skip(complete.saturating_sub(room)).copied().collect();
    let title = format!(" events at all watchers: {}/s ", grouped(model.event_rate()));
    let sparkline = Sparkline::default().data(&shown).style(Style::new().fg(Color::Blue));
    frame.render_widget(sparkline.block(panel(&title)), area);
}

fn draw_faults(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let skipped = model.faults.len().saturating_sub(FAULT_ROWS_MAX);
    let rows = model.faults.iter().enumerate().skip(skipped).map(|(at, row)| fault_row(at + 1, row));
    let widths = [4, 29, 8, 17, 17, 17, 10].map(Constraint::Length);
    let table = Table::new(rows, widths)
        .header(Row::new(TABLE_HEAD.map(|text| if text == "#" { " #" } else { text })).style(DIM))
        .block(panel(" faults, and how long until events flowed again "));
    frame.render_widget(table, area);
}

fn fault_row(number: usize, fault: &FaultRow) -> Row<'static> {
    let style = match (fault.state, fault.all_resumed()) {
        (FaultState::Struck, _) => WARN,
        (_, false) => WARN,
        (FaultState::Returned | FaultState::Over, true) => Style::new(),
    };
    let mut cells = table_row(number, fault);
    cells[0].insert(0, ' ');
    Row::new(cells).style(style)
}

fn draw_log(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let room = usize::from(area.height.saturating_sub(2));
    let lines = model.log.iter().skip(model.log.len().saturating_sub(room));
    let line = |at: Duration, text: &str| {
        let style = if text.starts_with("PROBLEM") { BAD } else { Style::new() };
        let first = text.lines().next().unwrap_or_default().to_owned();
        let clock = Span::styled(format!(" {:>6.1} s  ", at.as_secs_f64()), DIM);
        Line::from(vec![clock, Span::styled(first, style)])
    };
    let lines: Vec<Line<'_>> = lines.map(|entry| line(entry.at, &entry.text)).collect();
    frame.render_widget(Paragraph::new(lines).block(panel(" what happens ")), area);
}

fn foot_line(model: &Model) -> Paragraph<'_> {
    match &model.phase {
        Phase::Done(verdict) => {
            let color = if verdict.passed() { Color::Green } else { Color::Red };
            let style = LOUD.fg(Color::Black).bg(color);
            Paragraph::new(verdict.line()).style(style).alignment(Alignment::Center)
        }
        _ => Paragraph::new(" q or Ctrl-C stops everything").style(DIM),
    }
}

/// 1234567 as 1,234,567.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn lines(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
        terminal.draw(|frame| draw(frame, model)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).map(|line| line.trim_end().to_owned()).collect()
    }

    const IN_THE_MIDDLE: &str = r"
 meerkat demo failover   fault 1 of 2   seed 7    12.5 s
╭ members ───────────────────────────────────────────────────────╮╭ writer ──────────────────────────────────╮
│      state        role     revision     term                   ││ rate         1 writes/s                  │
│ m1   ● up         leader   1,205        3                      ││ acknowledged 4                           │
│ m2   ✖ down                –            –                      ││ last at      revision 1,205              │
│ m3   ● up         follower 1,205        3                      ││ unknown 0   not done 0                   │
╰────────────────────────────────────────────────────────────────╯╰──────────────────────────────────────────╯
╭ watchers ──────────────────────────────────────────────────────────────────────────────────────────────────╮
│             hangs on     revision     events       gaps     repeats    resumes      last reconnect         │
│ watcher 1   m1           1,205        4            0        0          0            –                      │
│ watcher 2   looking …    1,204        3            0        0          0            –                      │
│ watcher 3   m3           1,205        4            0        0          0            –                      │
╰────────────────────────────────────────────────────────────────────────────────────────────────────────────╯
╭ events at all watchers: 2/s ───────────────────────────────────────────────────────────────────────────────╮
│                     █                                                                                      │
│                     █                                                                                      │
│                     █                                                                                      │
│                     █ ▇                                                                                    │
╰────────────────────────────────────────────────────────────────────────────────────────────────────────────╯
╭ faults, and how long until events flowed again ────────────────────────────────────────────────────────────╮
│ #   fault                         member   watcher 1         watcher 2         watcher 3         slowest   │
│ 1   kill -9 of a watcher's member m2       0.25 s            …                 0.25 s            …         │
╰────────────────────────────────────────────────────────────────────────────────────────────────────────────╯
";

    fn check(lines: &[String], expected: &str) {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected:?} in\n{}", lines.join("\n"));
    }

    #[test]
    fn the_screen_in_the_middle_of_a_fault() {
        let shown = lines(&sample::in_the_middle_of_a_kill(), WIDTH, HEIGHT);
        assert_eq!(shown[..23].join("\n"), IN_THE_MIDDLE.trim_matches('\n'));
        check(&shown, "│   12.0 s  fault 1 of 2: kill -9 of m2");
        check(&shown, " q or Ctrl-C stops everything");
    }

    #[test]
    fn the_screen_at_the_end_shows_the_verdict() {
        let shown = lines(&sample::done(), WIDTH, HEIGHT);
        check(&shown, "PASS: 0 lost, 0 repeated, 0 reordered over 1 fault, 3 watchers, 4 events each");
        check(&shown, "0.40 s m2→m3");
    }

    #[test]
    fn no_size_of_a_terminal_is_too_small() {
        for (width, height) in [(1, 1), (10, 3), (80, 24), (300, 100)] {
            lines(&sample::done(), width, height);
            lines(&sample::in_the_middle_of_a_kill(), width, height);
        }
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
