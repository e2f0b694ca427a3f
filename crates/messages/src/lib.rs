//! Messages for people, on standard error.
//!
//! A terminal that is gone, a pipe without a reader or a full disk is no reason to do less, or to end in another way: what can't be
//! written is left out. (`eprintln!` panics there, which is why nothing that the command is made of may use it.)

#![deny(clippy::print_stderr, clippy::print_stdout)]
// What comes from outside ends in an error, never in a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

use std::fmt;
use std::io::{self, Write};

/// Writes a line to standard error, as far as it can be written.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::write(&mut ::std::io::stderr().lock(), ::std::format_args!("{}\n", ::std::format_args!($($words)*)))
    };
}

/// Writes text that has its line ends to standard error, as far as it can be written.
pub fn say_text(text: &str) {
    write(&mut io::stderr().lock(), format_args!("{text}"));
}

/// Writes `text` to `out`, in one piece where that takes it: standard error has no buffer, and others may write there, too.
pub fn write(out: &mut dyn Write, text: fmt::Arguments<'_>) {
    // Nobody is left to tell.
    let _ = out.write_all(text.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails after so many bytes; how often it was asked is counted.
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
    fn a_message_is_one_piece() {
        let mut out = Full(1 << 10, 0);
        write(&mut out, format_args!("{} and {}\n", 1, 2));
        assert_eq!((out.0, out.1), ((1 << 10) - 8, 1));
    }
}
