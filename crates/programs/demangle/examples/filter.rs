//! Linker names on standard input, one a line, as names on standard output; those that are none
//! stay.

use std::io::{self, BufRead, BufWriter, Write};

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        writeln!(out, "{}", everycall_demangle::demangle(&line).as_deref().unwrap_or(&line))?;
    }
    out.flush()
}
