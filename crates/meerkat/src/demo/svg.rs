//! A screen as a picture: what is in a ratatui buffer, as SVG text.
//!
//! Every run of equal cells is one text element that is as wide as its cells, so that columns stand
//! under one another whatever font the reader has. Only text and rectangles: nothing is loaded and
//! nothing runs.

use std::collections::BTreeMap;
use std::fmt::Write;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::model::Model;
use super::view;

/// One cell, in the picture's units: as high as a full block of that font, so that bars have no stripes.
const CELL_WIDTH: f32 = 8.0;
const CELL_HEIGHT: u32 = 15;
const FONT_SIZE: u32 = 13;
const MARGIN: u32 = 10;

const BACKGROUND: &str = "#14181d";
const FOREGROUND: &str = "#d5dae0";

/// The screen of this model at its best size.
pub fn picture(model: &Model) -> String {
    // A buffer in memory has no terminal that could fail.
    let mut terminal = match Terminal::new(TestBackend::new(view::WIDTH, view::HEIGHT)) {
        Ok(terminal) => terminal,
        Err(never) => match never {},
    };
    match terminal.draw(|frame| view::draw(frame, model)) {
        Ok(_) => render(terminal.backend().buffer()),
        Err(never) => match never {},
    }
}

pub fn render(buffer: &Buffer) -> String {
    let area = buffer.area;
    let width = (f32::from(area.width) * CELL_WIDTH) as u32 + 2 * MARGIN;
    let height = u32::from(area.height) * CELL_HEIGHT + 2 * MARGIN;
    let mut classes = Classes::default();
    let mut body = String::new();
    for y in 0..area.height {
        for run in runs(buffer, y) {
            run.write(&mut body, y, &mut classes);
        }
    }
    let mut svg = String::new();
    push(
        &mut svg,
        format_args!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\""),
    );
    push(&mut svg, format_args!(" font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\""));
    push(&mut svg, format_args!(" font-size=\"{FONT_SIZE}\">\n<style>text{{white-space:pre}}"));
    push(&mut svg, format_args!("{}</style>\n", classes.sheet()));
    push(
        &mut svg,
        format_args!("<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"),
    );
    svg.push_str(&body);
    svg.push_str("</svg>\n");
    svg
}

/// Cells side by side that look alike.
struct Run {
    x: u16,
    cells: u16,
    text: String,
    look: Look,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Look {
    foreground: &'static str,
    background: Option<&'static str>,
    bold: bool,
}

impl Look {
    fn of(cell: &Cell) -> Look {
        let (front, back) = (color(cell.fg), color(cell.bg));
        let bold = cell.modifier.contains(Modifier::BOLD);
        if cell.modifier.contains(Modifier::REVERSED) {
            let (foreground, background) = (back.unwrap_or(BACKGROUND), front.unwrap_or(FOREGROUND));
            return Look { foreground, background: Some(background), bold };
        }
        Look { foreground: front.unwrap_or(FOREGROUND), background: back, bold }
    }
}

fn runs(buffer: &Buffer, y: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for x in 0..buffer.area.width {
        let cell = &buffer[(x, y)];
        let look = Look::of(cell);
        match runs.last_mut().filter(|run| run.look == look) {
            Some(run) => {
                run.cells += 1;
                run.text.push_str(cell.symbol());
            }
            None => runs.push(Run { x, cells: 1, text: cell.symbol().to_owned(), look }),
        }
    }
    runs
}

impl Run {
    fn write(&self, body: &mut String, y: u16, classes: &mut Classes) {
        let top = u32::from(y) * CELL_HEIGHT + MARGIN;
        if let Some(background) = self.look.background {
            let (x, width) = (left(self.x), f32::from(self.cells) * CELL_WIDTH);
            let height = CELL_HEIGHT;
            push(
                body,
                format_args!(
                    "<rect x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{background}\"/>\n"
                ),
            );
        }
        // Words apart: what lies between them needs no ink, and each word stands where it should.
        for (offset, word) in words(&self.text) {
            let x = left(self.x + offset);
            let width = word.chars().count() as f32 * CELL_WIDTH;
            let baseline = top + CELL_HEIGHT - 3;
            let class = classes.name(&self.look);
            push(
                body,
                format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{baseline}\" textLength=\"{width}\">"),
            );
            escape(body, word);
            body.push_str("</text>\n");
        }
    }
}

fn left(x: u16) -> f32 {
    f32::from(x) * CELL_WIDTH + MARGIN as f32
}

/// Stretches without two blanks in a row, each with its place in cells.
fn words(text: &str) -> Vec<(u16, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut offset = 0;
    while !rest.is_empty() {
        let blank = rest.len() - rest.trim_start_matches(' ').len();
        offset += blank as u16;
        rest = &rest[blank..];
        let end = rest.find("  ").unwrap_or(rest.trim_end_matches(' ').len());
        let (word, behind) = rest.split_at(end);
        if !word.is_empty() {
            found.push((offset, word));
        }
        offset += word.chars().count() as u16;
        rest = if behind.trim_start_matches(' ').is_empty() { "" } else { behind };
    }
    found
}

/// A short class for each look in use.
#[derive(Default)]
struct Classes {
    names: BTreeMap<(&'static str, bool), String>,
}

impl Classes {
    fn name(&mut self, look: &Look) -> String {
        let next = format!("c{}", self.names.len());
        self.names.entry((look.foreground, look.bold)).or_insert(next).clone()
    }

    fn sheet(&self) -> String {
        let rule = |((color, bold), name): (&(&'static str, bool), &String)| {
            let weight = if *bold { ";font-weight:bold" } else { "" };
            format!(".{name}{{fill:{color}{weight}}}")
        };
        self.names.iter().map(rule).collect()
    }
}

/// Nothing for the terminal's own colour.
fn color(color: Color) -> Option<&'static str> {
    match color {
        Color::Black => Some("#14181d"),
        Color::Red => Some("#f2777a"),
        Color::Green => Some("#7fd88f"),
        Color::Yellow => Some("#f5c76a"),
        Color::Blue => Some("#6cb6ff"),
        Color::Cyan => Some("#76d4d6"),
        Color::DarkGray => Some("#6b7480"),
        _ => None,
    }
}

fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            letter => out.push(letter),
        }
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // A string takes every text.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn a_run_of_equal_cells_is_one_text_where_it_belongs() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        buffer.set_string(1, 0, "a<b", Style::new().fg(Color::Green));
        buffer.set_string(6, 0, "up", Style::new().add_modifier(Modifier::BOLD));
        let svg = render(&buffer);
        assert!(svg.contains("x=\"18\" y=\"22\" textLength=\"24\">a&lt;b</text>"), "{svg}");
        assert!(svg.contains("x=\"58\" y=\"22\" textLength=\"16\">up</text>"), "{svg}");
        assert!(svg.contains("{fill:#7fd88f}") && svg.contains(";font-weight:bold}"), "{svg}");
    }

    #[test]
    fn reversed_cells_get_a_ground_of_their_own() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 4, 1));
        buffer.set_string(0, 0, "demo", Style::new().add_modifier(Modifier::REVERSED));
        let svg = render(&buffer);
        assert!(svg.contains(&format!("width=\"32\" height=\"15\" fill=\"{FOREGROUND}\"")), "{svg}");
        assert!(svg.contains(&format!("{{fill:{BACKGROUND}}}")), "{svg}");
    }

    #[test]
    fn words_keep_their_columns() {
        assert_eq!(words("  a b   c "), [(2, "a b"), (8, "c")]);
        assert_eq!(words("│ ●  x"), [(0, "│ ●"), (5, "x")]);
        assert_eq!(words("   "), []);
        assert_eq!(words("ab"), [(0, "ab")]);
    }

    #[test]
    fn a_whole_screen_stays_small_and_is_well_formed() {
        for model in [sample::in_the_middle_of_a_kill(), sample::done()] {
            let svg = picture(&model);
            assert!(svg.len() < 60_000, "{} bytes", svg.len());
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
        assert!(picture(&sample::done()).contains("PASS: 0 lost"));
    }
}
