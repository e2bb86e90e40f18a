//! The terminal: taken over at the start, given back at the end, however that comes.

use std::io;

use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures::StreamExt;
use ratatui::{DefaultTerminal, Frame};

pub struct Screen {
    terminal: DefaultTerminal,
    keys: EventStream,
}

impl Screen {
    /// A panic gives the terminal back too: ratatui sees to that.
    pub fn open() -> io::Result<Screen> {
        Ok(Screen { terminal: ratatui::try_init()?, keys: EventStream::new() })
    }

    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Waits for a key that means stop. Ctrl-C is a key while the terminal is ours.
    pub async fn stopped(&mut self) {
        loop {
            match self.keys.next().await {
                Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    let control = key.modifiers.contains(KeyModifiers::CONTROL);
                    match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return,
                        KeyCode::Char('c') if control => return,
                        _ => {}
                    }
                }
                Some(Ok(_)) => {}
                // No keyboard: signals still stop the demo.
                Some(Err(_)) | None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
