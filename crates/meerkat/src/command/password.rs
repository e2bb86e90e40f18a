//! Passwords from people and from pipes: asked for without an echo, or read as one word.
//!
//! A prompt goes to stderr, so that what a command prints stays clean.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks once. At a terminal what is typed is not shown.
pub fn ask(prompt: &str, input: impl BufRead) -> Result<String, Failure> {
    eprint!("{prompt}");
    io::stderr().flush()?;
    let silence = io::stdin().is_terminal().then(Silence::begin).flatten();
    let line = read_line(input);
    drop(silence);
    // The end of the line was not shown either.
    eprintln!();
    line.map_err(|error| Failure::bad_arguments(format!("failed to ask password: {error}")))
}

/// Asks twice and wants the same answer.
pub fn ask_new(user: &str, mut input: impl BufRead) -> Result<String, Failure> {
    let first = ask(&format!("Password of {user}: "), &mut input)?;
    if first.is_empty() {
        return Err(Failure::bad_arguments("empty password"));
    }
    let second = ask(&format!("Type password of {user} again for confirmation: "), &mut input)?;
    if first == second { Ok(first) } else { Err(Failure::bad_arguments("given passwords are different")) }
}

/// The first word of the first line, as `--interactive=false` reads it.
pub fn read_word(input: impl BufRead) -> Result<String, Failure> {
    Ok(read_line(input)?.split_whitespace().next().unwrap_or_default().to_owned())
}

fn read_line(mut input: impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// While it lives the terminal shows nothing of what is typed.
struct Silence {
    before: libc::termios,
}

impl Silence {
    fn begin() -> Option<Silence> {
        // SAFETY: `tcgetattr` fills the struct that is handed in, which lives here, and says so with 0.
        let before = unsafe {
            let mut settings = std::mem::zeroed::<libc::termios>();
            (libc::tcgetattr(libc::STDIN_FILENO, &mut settings) == 0).then_some(settings)
        }?;
        let mut silent = before;
        silent.c_lflag &= !libc::ECHO;
        set(&silent);
        Some(Silence { before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        set(&self.before);
    }
}

fn set(settings: &libc::termios) {
    // SAFETY: only reads the struct; a failure leaves the terminal as it was.
    unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSAFLUSH, settings) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_password_is_typed_twice() {
        let typed = |text: &str| ask_new("u", text.as_bytes()).map_err(|failure| failure.message);
        assert_eq!(typed("a b\na b\n"), Ok("a b".to_owned()));
        assert_eq!(typed("a\nb\n"), Err("given passwords are different".to_owned()));
        assert_eq!(typed(""), Err("empty password".to_owned()));
    }

    #[test]
    fn a_piped_password_is_one_word() {
        assert_eq!(read_word(&b" one two\nthree"[..]), Ok("one".to_owned()));
        assert_eq!(read_word(&b""[..]), Ok(String::new()));
    }
}
