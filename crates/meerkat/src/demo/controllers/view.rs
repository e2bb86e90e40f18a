//! The board as a screen: reads everything, decides nothing.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Paragraph, Row, Table};

use super::super::verdict::member_name;
use super::board::{CacheRow, Condition, LogLine, Sight};

const GOOD: Style = Style::new().fg(Color::Green);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);
const DIM: Style = Style::new().fg(Color::DarkGray);
const HEAD: Style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
const LOUD: Style = Style::new().add_modifier(Modifier::BOLD);

pub fn draw(frame: &mut Frame<'_>, sight: &Sight) {
    let [head, world, caches, log, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(5),
        Constraint::Length(sight.caches.len() as u16 + 3),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let [members, nodes] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(world);
    frame.render_widget(title(sight), head);
    frame.render_widget(members_panel(sight), members);
    frame.render_widget(nodes_panel(sight), nodes);
    draw_caches(frame, sight, caches);
    frame.render_widget(log_panel(sight, log.height), log);
    frame.render_widget(Paragraph::new(Span::styled(" q stops it", DIM)), foot);
}

fn panel(title: &str) -> Block<'_> {
    Block::bordered().border_type(BorderType::Rounded).border_style(DIM).title(Span::styled(title, HEAD))
}

fn title(sight: &Sight) -> Paragraph<'_> {
    Paragraph::new(Line::from(vec![
        Span::styled(" meerkat demo controllers ", LOUD.add_modifier(Modifier::REVERSED)),
        Span::raw(format!("  {} pods wanted", sight.wanted)),
        Span::styled(format!("   {:>6.1} s", sight.now.as_secs_f64()), DIM),
    ]))
}

fn members_panel(sight: &Sight) -> Paragraph<'_> {
    let member = |(at, condition): (usize, &Condition)| {
        let (mark, style) = match condition {
            Condition::Up => ("● up", GOOD),
            Condition::Starting => ("○ starting", WARN),
            Condition::Down => ("✖ down", BAD),
        };
        Line::from(vec![Span::raw(format!(" {}  ", member_name(at))), Span::styled(mark, style)])
    };
    let lines: Vec<Line<'_>> = sight.members.iter().enumerate().map(member).collect();
    Paragraph::new(lines).block(panel(" members "))
}

fn nodes_panel(sight: &Sight) -> Paragraph<'_> {
    let mut lines: Vec<Line<'_>> = sight
        .agents
        .iter()
        .map(|(name, agent)| {
            let pods = "■".repeat(agent.runs);
            let rest = format!(" {:>2} pods, lease renewed {} times", agent.runs, agent.renewals);
            Line::from(vec![Span::raw(format!(" {name} ")), Span::styled(pods, GOOD), Span::raw(rest)])
        })
        .collect();
    lines.push(Line::from(Span::styled(format!(" {} writes tried again", sight.failures), DIM)));
    Paragraph::new(lines).block(panel(" nodes "))
}

fn draw_caches(frame: &mut Frame<'_>, sight: &Sight, area: Rect) {
    let head = Row::new(["", "watches", "objects", "version", "resumed", "listed again"]).style(DIM);
    let widths = [24, 9, 9, 10, 9, 12].map(Constraint::Length);
    let rows = sight.caches.iter().map(cache_row);
    frame.render_widget(Table::new(rows, widths).header(head).block(panel(" informers ")), area);
}

fn cache_row(row: &CacheRow) -> Row<'static> {
    let style = if row.relists == 0 { Style::new() } else { BAD };
    Row::new([
        format!(" {}", row.name),
        row.on.map_or_else(|| "–".to_owned(), member_name),
        row.objects.to_string(),
        row.revision.to_string(),
        row.opened.saturating_sub(1).to_string(),
        row.relists.to_string(),
    ])
    .style(style)
}

fn log_panel(sight: &Sight, height: u16) -> Paragraph<'_> {
    let room = usize::from(height.saturating_sub(2));
    let first = sight.log.len().saturating_sub(room);
    let lines: Vec<Line<'_>> = sight.log[first..].iter().map(|line| Line::from(log_line(line))).collect();
    Paragraph::new(lines).block(panel(" what happened "))
}

pub fn log_line(line: &LogLine) -> String {
    format!("{:>7.1} s  {}", line.at.as_secs_f64(), line.text)
}

#[cfg(test)]
mod tests {
    use super::super::board::Board;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_screen_shows_members_nodes_informers_and_the_log() {
        let board = Board::new();
        board.member(1, Condition::Down);
        board.runs("node-1", 3);
        board.want(5);
        board.say("kill -9 of m2");
        let mut sight = board.look();
        let name = "scheduler/nodes".to_owned();
        sight.caches = vec![CacheRow { name, on: Some(2), objects: 2, revision: 41, opened: 2, relists: 0 }];
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).expect("a screen");
        terminal.draw(|frame| draw(frame, &sight)).expect("drawn");
        let shown = terminal.backend().to_string();
        for text in ["5 pods wanted", "✖ down", "■■■", "scheduler/nodes", "m3", "kill -9 of m2"] {
            assert!(shown.contains(text), "{text} is missing in\n{shown}");
        }
    }
}
