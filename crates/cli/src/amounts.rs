//! Amounts, as messages and pages show them.

use std::fmt;

use everycall_export::Count;

/// A number of bytes, with a unit chosen for its size.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub u64);

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1 << 10 {
            return write!(out, "{} bytes", self.0);
        }
        let mut scaled = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while scaled >= 1024.0 && unit + 1 < units.len() {
            scaled /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(scaled < 100.0 && scaled.fract() != 0.0);
        write!(out, "{scaled:.digits$} {}", units[unit])
    }
}

/// A size as options take it: `8M`.
#[derive(Clone, Copy, Debug)]
pub struct OptionSize(pub u64);

impl fmt::Display for OptionSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            size if size.is_multiple_of(1 << 30) => write!(out, "{}G", size >> 30),
            size if size.is_multiple_of(1 << 20) => write!(out, "{}M", size >> 20),
            size => write!(out, "{}K", size >> 10),
        }
    }
}

/// A number of things: `1 thread`, `12 threads`.
pub struct Several(pub u64, pub &'static str, pub &'static str);

impl fmt::Display for Several {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", Count(self.0), if self.0 == 1 { self.1 } else { self.2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let text = |size| Size(size).to_string();
        assert_eq!(
            [text(1), text(1 << 20), text(1_600_000), text(5 << 40)],
            ["1 bytes", "1 MiB", "1.5 MiB", "5 TiB"]
        );
        let option = |size| OptionSize(size).to_string();
        assert_eq!([option(64 << 10), option(8 << 20), option(1 << 30)], ["64K", "8M", "1G"]);
    }
}
