//! Messages for people, on standard error.
//!
//! A closed terminal, a pipe without a reader or a full disk must not make a command do less, or
//! end in another way: text that can't be written is left out. (`eprintln!` panics in this case, so
//! no part of the command may use it.)
//!
//! Messages contain names of files, functions and threads. These may contain any bytes, including
//! control sequences of terminals, so such bytes are escaped. A line break in a name can't begin a
//! line that looks like a message.

use std::fmt;
use std::io::{self, Write};

use crate::terminal;

/// Writes a line to standard error, as far as it can be written.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::messages::write_line(&mut ::std::io::stderr().lock(), ::std::format_args!($($words)*))
    };
}

/// Writes text that has its line ends to standard error, as far as it can be written.
pub fn say_text(text: &str) {
    write(&mut io::stderr().lock(), format_args!("{text}"));
}

/// Writes a message and a line end to `out`; lines of it behind the first are indented.
pub fn write_line(out: &mut dyn Write, text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let mut lines = text.split('\n');
    let mut indented = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        indented.push_str(if line.starts_with("  ") || line.is_empty() { "\n" } else { "\n  " });
        indented.push_str(line);
    }
    indented.push('\n');
    write(out, format_args!("{indented}"));
}

/// Writes `text` to `out`, escaped, in one piece if `out` accepts it: standard error has no buffer,
/// and others may write there, too.
pub fn write(out: &mut dyn Write, text: fmt::Arguments<'_>) {
    // There is nowhere left to report an error.
    let _ = out.write_all(terminal::lines(&text.to_string()).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails after so many bytes; the number of calls is counted.
    struct Full(usize, u32);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn what_cannot_be_written_is_left_out() {
        for room in 0..8 {
            write(&mut Full(room, 0), format_args!("{} words", 12));
        }
    }

    #[test]
    fn what_terminals_take_for_commands_is_escaped() {
        let mut out = Vec::new();
        let name = "a\u{1b}]0;title\u{7}\rb\u{9b}2Jc\neverycall: all is well\u{202e}\tä";
        write_line(&mut out, format_args!("everycall: {name}: no file\n  hint"));
        let shown = String::from_utf8(out).unwrap();
        assert_eq!(
            shown,
            "everycall: a\\u{1b}]0;title\\u{7}\\rb\\u{9b}2Jc\n  everycall: all is well\\u{202e}\tä: no file\n  hint\n"
        );
    }

    #[test]
    fn a_message_is_one_piece() {
        let mut out = Full(1 << 10, 0);
        write(&mut out, format_args!("{} and {}\n", 1, 2));
        assert_eq!((out.0, out.1), ((1 << 10) - 8, 1));
    }
}
