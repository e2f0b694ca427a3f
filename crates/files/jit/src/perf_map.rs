//! `perf-PID.map`: a line `START SIZE NAME` for each function, numbers hexadecimal. It has no
//! times: the last line of an address counts.

use std::io::{self, BufRead, Read};

use crate::table::{Code, Table};

/// Bytes of a file that are read.
pub const BYTES_MAX: u64 = 256 << 20;
/// Bytes of a line that are looked at.
const LINE_MAX: u64 = 4096;

/// Adds the lines of a map. Lines that can't be read are counted as lost.
///
/// # Errors
///
/// The input's. What was read before is in the table.
pub fn read(input: impl BufRead, table: &mut Table) -> io::Result<()> {
    let mut input = input.take(BYTES_MAX);
    let mut line = Vec::new();
    let mut is_rest = false;
    loop {
        line.clear();
        if input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let is_end = line.last() == Some(&b'\n');
        if !std::mem::replace(&mut is_rest, !is_end) {
            let text = line.trim_ascii();
            match parse(text) {
                Some(code) => table.load(code),
                None => table.lost += u64::from(!text.is_empty()),
            }
        }
    }
    if input.limit() == 0 && !input.get_mut().fill_buf()?.is_empty() {
        table.lost += 1;
    }
    Ok(())
}

fn parse(line: &[u8]) -> Option<Code> {
    let (start, rest) = word(line)?;
    let (size, name) = word(rest)?;
    Some(Code { start: number(start)?, size: number(size)?, name: name.to_vec(), ..Code::default() })
}

/// The first word, and what follows it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(u8::is_ascii_whitespace)?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // `from_str_radix` accepts a sign.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &[u8]) -> (Vec<(u64, u64, String)>, u64) {
        let mut table = Table::default();
        read(text, &mut table).unwrap();
        let (codes, lost) = table.finish();
        let shown = |code: Code| (code.start, code.size, String::from_utf8_lossy(&code.name).into_owned());
        (codes.into_iter().map(shown).collect(), lost)
    }

    #[test]
    fn lines_are_read_as_perf_reads_them() {
        let text = b"7f0000001000 20 fib\n0x7f0000002000 0x10 JS:*add /a b.js:1:2\r\n11 1 Account.withdraw";
        let expected = [
            (0x7f00_0000_1000, 0x20, "fib".into()),
            (0x7f00_0000_2000, 0x10, "JS:*add /a b.js:1:2".into()),
            (0x11, 1, "Account.withdraw".into()),
        ];
        assert_eq!(read_all(text), (expected.into(), 0));
    }

    #[test]
    fn other_lines_are_counted() {
        let bad = b"\n \nhello\n10 20\n+10 20 x\n10 -1 x\nfffffffffffffffff 1 x\n\xff\xfe\n10 20 \n40 1 y\n";
        assert_eq!(read_all(bad), (vec![(0x40, 1, "y".into())], 7));
    }

    #[test]
    fn a_long_line_is_one_name() {
        let mut text = b"10 1 ".to_vec();
        text.resize(3 * LINE_MAX as usize, b'a');
        text.extend(b" 30 1 b\n20 1 c\n");
        let (codes, lost) = read_all(&text);
        assert_eq!((codes.len(), codes[0].2.len(), lost), (2, 1024, 0));
        assert_eq!(codes[1], (0x20, 1, "c".into()));
    }
}
