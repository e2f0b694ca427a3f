//! Text of others on a terminal.
//!
//! Names of functions, threads and files, labels, and what a program printed may contain anything:
//! sequences that move the cursor, write to the clipboard or turn the direction of text. [`line`]
//! and [`lines`] show them as escapes, and every verb's text goes through one of them. What verbs
//! write to standard output also goes through [`stdout`], which lets nothing but colours steer a
//! terminal: formats for programs (CSV, JSON) contain names as they are.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Stdout, Write};

/// Whether a character could make a terminal do something, or change how others are shown: control
/// characters (C0, DEL, C1), marks of direction, joiners, separators of lines, tags, and others
/// without a shape.
#[must_use]
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text on one line, with escapes in the place of characters that [`steers`] finds.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

/// A text that may have several lines: line breaks and tabs stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |character| steers(character) && !matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown.into()
}

/// How characters that steer are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escapes {
    /// As `\u{9b}`.
    Text,
    /// As `\u009b`, which is valid in JSON's strings: nothing of the kind is outside of them.
    Json,
}

/// Standard output. If it is a terminal, characters that [`steers`] finds become escapes, except
/// line breaks, tabs and colours (`ESC [ numbers m`), and bytes that aren't UTF-8 become
/// replacement characters. Anything else gets the bytes as they are.
#[must_use]
pub fn stdout(escapes: Escapes) -> Filter<Stdout> {
    let stdout = io::stdout();
    let is_terminal = stdout.is_terminal();
    Filter::new(stdout, is_terminal.then_some(escapes))
}

/// An output with escapes, as [`stdout`] returns it.
#[derive(Debug)]
pub struct Filter<W: Write> {
    out: W,
    escapes: Option<Escapes>,
    /// Bytes that may be the beginning of a character or a colour.
    begun: Vec<u8>,
}

/// The longest colour that is recognized, in bytes.
const COLOUR_MAX: usize = 16;

impl<W: Write> Filter<W> {
    /// Without `escapes`, everything passes.
    pub fn new(out: W, escapes: Option<Escapes>) -> Filter<W> {
        Filter { out, escapes, begun: Vec::new() }
    }

    /// Chooses other escapes, if any are written.
    pub fn set_escapes(&mut self, escapes: Escapes) {
        self.escapes = self.escapes.and(Some(escapes));
    }

    /// Writes `bytes`, but for what may go on in bytes to come, unless they are the last ones.
    /// Returns how many were written.
    fn pass(&mut self, bytes: &[u8], escapes: Escapes, is_last: bool) -> io::Result<usize> {
        let mut shown = String::with_capacity(bytes.len() + 16);
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if escapes == Escapes::Text && rest[0] == 0x1b {
                match colour(rest) {
                    Colour::Whole(length) => {
                        shown.push_str(str::from_utf8(&rest[..length]).unwrap_or_default());
                        at += length;
                        continue;
                    }
                    Colour::Cut if !is_last => break,
                    Colour::Cut | Colour::None => {}
                }
            }
            let (character, length) = match first(rest) {
                Ok(character) => (character, character.len_utf8()),
                Err(None) if !is_last => break,
                Err(length) => (char::REPLACEMENT_CHARACTER, length.unwrap_or(rest.len())),
            };
            at += length;
            match character {
                '\n' | '\t' => shown.push(character),
                c if !steers(c) => shown.push(c),
                c if escapes == Escapes::Text => shown.extend(c.escape_default()),
                c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                    // Writing to a string doesn't fail.
                    let _ = write!(shown, "\\u{unit:04x}");
                }),
            }
        }
        self.out.write_all(shown.as_bytes())?;
        Ok(at)
    }
}

/// The first character; otherwise the length of invalid bytes, or `None` if more are needed.
fn first(bytes: &[u8]) -> Result<char, Option<usize>> {
    let beginning = &bytes[..bytes.len().min(4)];
    let valid = match str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return Err(error.error_len()),
    };
    valid.chars().next().ok_or(None)
}

enum Colour {
    Whole(usize),
    Cut,
    None,
}

/// Whether bytes that begin with an escape begin with a colour.
fn colour(bytes: &[u8]) -> Colour {
    for (at, byte) in bytes.iter().enumerate().skip(1).take(COLOUR_MAX) {
        match byte {
            b'[' if at == 1 => {}
            b'0'..=b'9' | b';' if at > 1 => {}
            b'm' if at > 1 => return Colour::Whole(at + 1),
            _ => return Colour::None,
        }
    }
    if bytes.len() <= COLOUR_MAX { Colour::Cut } else { Colour::None }
}

impl<W: Write> Write for Filter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(escapes) = self.escapes else { return self.out.write(bytes) };
        if self.begun.is_empty() {
            let passed = self.pass(bytes, escapes, false)?;
            self.begun.extend_from_slice(&bytes[passed..]);
        } else {
            let mut whole = std::mem::take(&mut self.begun);
            whole.extend_from_slice(bytes);
            let passed = self.pass(&whole, escapes, false)?;
            whole.drain(..passed);
            self.begun = whole;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(escapes) = self.escapes {
            let begun = std::mem::take(&mut self.begun);
            self.pass(&begun, escapes, true)?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(pieces: &[&[u8]], escapes: Escapes) -> String {
        let mut filter = Filter::new(Vec::new(), Some(escapes));
        pieces.iter().for_each(|piece| filter.write_all(piece).unwrap());
        filter.flush().unwrap();
        String::from_utf8(filter.out).unwrap()
    }

    #[test]
    fn text_of_others_steers_no_terminal() {
        let text = "a\x1b[31m\u{9b}2J\u{202e}\n\t\u{200b}größe<T>\u{e0041}";
        assert_eq!(line(text), "a\\u{1b}[31m\\u{9b}2J\\u{202e}\\n\\t\\u{200b}größe<T>\\u{e0041}");
        assert_eq!(lines("a\n\tb\r"), "a\n\tb\\r");
        assert!(matches!(line("größe"), Cow::Borrowed(_)));
    }

    #[test]
    fn only_colours_pass() {
        let text = "\x1b[1;31mred\x1b[0m \x1b]0;t\x07\x1b[2J\u{9b}m\u{202e}x\x1b[";
        let wanted = "\x1b[1;31mred\x1b[0m \\u{1b}]0;t\\u{7}\\u{1b}[2J\\u{9b}m\\u{202e}x\\u{1b}[";
        assert_eq!(filtered(&[text.as_bytes()], Escapes::Text), wanted);
        // However it is cut.
        for at in 0..text.len() {
            let (one, other) = text.as_bytes().split_at(at);
            assert_eq!(filtered(&[one, other], Escapes::Text), wanted, "{at}");
        }
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(filtered(&single, Escapes::Text), wanted);
        assert_eq!(filtered(&[b"\x9b2J\xffa\xe2\x80"], Escapes::Text), "\u{fffd}2J\u{fffd}a\u{fffd}");
    }

    #[test]
    fn json_stays_json() {
        let text = "{\"a\":\"\u{9b}2J\u{202e}\u{e0041}\x1b[1m\"}\n";
        assert_eq!(
            filtered(&[text.as_bytes()], Escapes::Json),
            "{\"a\":\"\\u009b2J\\u202e\\udb40\\udc41\\u001b[1m\"}\n"
        );
    }

    #[test]
    fn files_get_the_bytes() {
        let mut filter = Filter::new(Vec::new(), None);
        filter.write_all(b"\x1b[2J\xff").unwrap();
        filter.flush().unwrap();
        assert_eq!(filter.out, b"\x1b[2J\xff");
    }
}
