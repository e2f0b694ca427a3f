//! clang's XRay sleds become TRACE instructions. The tables of sleds go. The number of lines
//! doesn't change.
//!
//! ```text
//! .Lxray_sled_0:                      .Lxray_sled_0:
//!     .ascii "\353\t"                     TRACE enter, or leave by jump where there was one
//!     NOPs
//! .Lxray_sled_1:                      .Lxray_sled_1:
//!     retq                                TRACE leave; retq
//!     NOPs
//! ```

use std::io::{self, Write};

use crate::arch::{self, trace_insn};

use super::lines::Lines;

/// How clang's labels of entry and exit sleds begin.
const SLED: &[u8] = b".Lxray_sled_";
/// Sections of tables, as directives name them.
const TABLES: [&[u8]; 2] = [b"xray_instr_map", b"xray_fn_idx"];

/// Whether the text has sleds.
pub(super) fn are_in(text: &[u8]) -> bool {
    memchr::memmem::find(text, SLED).is_some()
}

/// The line of a sled that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Nothing,
    /// A jump over the sled, or a return.
    First,
    /// NOPs.
    Rest,
}

/// Copies a text with other sleds.
pub(super) struct Sleds<'a> {
    out: &'a mut dyn Write,
    in_app: bool,
    in_table: bool,
    /// The function's first sled is its entry's.
    has_entry: bool,
    expected: Expected,
    /// An alignment that may belong to a sled, which needs none any more.
    alignment: Option<Vec<u8>>,
}

impl<'a> Sleds<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Sleds<'a> {
        let expected = Expected::Nothing;
        Sleds { out, in_app: false, in_table: false, has_entry: false, expected, alignment: None }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.alignment.take().unwrap_or_default())
    }

    /// A line of a sled.
    fn sled(&mut self, expected: Expected, line: &[u8]) -> io::Result<()> {
        let text = line.trim_ascii();
        if expected == Expected::Rest && arch::text::is_nop(text) {
            return self.out.write_all(b"\n");
        }
        if expected == Expected::First && arch::text::is_return(text) {
            self.expected = Expected::Rest;
            write!(self.out, "\t{};", trace_insn::LEAVE)?;
        } else if expected == Expected::First && text.starts_with(b".ascii") {
            self.expected = Expected::Rest;
            let is_entry = !std::mem::replace(&mut self.has_entry, true);
            let instruction = if is_entry { trace_insn::ENTER } else { trace_insn::LEAVE_BY_JUMP };
            return writeln!(self.out, "\t{instruction}");
        }
        self.out.write_all(line)
    }
}

impl Lines for Sleds<'_> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let text = line.trim_ascii();
        match text {
            b"#APP" => self.in_app = true,
            b"#NO_APP" => self.in_app = false,
            _ => {}
        }
        if self.in_app {
            self.flush()?;
            return self.out.write_all(line);
        }
        let word = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        match word {
            b".section" => self.in_table = TABLES.iter().any(|name| names_section(text, name)),
            b".text" | b".data" | b".bss" | b".pushsection" | b".popsection" | b".previous" => {
                self.in_table = false;
            }
            b".type" => self.has_entry = memchr::memmem::find(text, b".cold").is_some(),
            _ => {}
        }
        if self.in_table {
            self.flush()?;
            return self.out.write_all(b"\n");
        }
        if text.starts_with(SLED) && text.ends_with(b":") {
            if self.alignment.take().is_some() {
                self.out.write_all(b"\n")?;
            }
            self.expected = Expected::First;
            return self.out.write_all(line);
        }
        self.flush()?;
        let expected = std::mem::replace(&mut self.expected, Expected::Nothing);
        if expected != Expected::Nothing {
            return self.sled(expected, line);
        }
        if word == b".p2align" {
            self.alignment = Some(line.to_vec());
            return Ok(());
        }
        self.out.write_all(line)
    }

    fn pass(&mut self, part: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.out.write_all(part)
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()
    }
}

fn names_section(directive: &[u8], name: &[u8]) -> bool {
    let operand = directive.strip_prefix(b".section").unwrap_or_default().trim_ascii_start();
    operand.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b','))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::lines;

    #[test]
    fn sleds_become_trace_instructions() {
        let text = "\t.type\tf,@function\nf:\n\t.p2align\t1, 0x90\n.Lxray_sled_0:\n\t.ascii\t\"\\353\\t\"\n\tnopw\t512(%rax,%rax)\n\
            \ttestl\t%edi, %edi\n\t.p2align\t4\n.L1:\n.Lxray_sled_1:\n\tretq\n\tnopw\t%cs:512(%rax,%rax)\n.Lxray_sled_2:\n\
            \t.ascii\t\"\\353\\t\"\n\tnopw\t512(%rax,%rax)\n\tjmp\tg\n\t.section\txray_instr_map,\"ao\",@progbits,f\n\t.quad\t1\n\
            \t.section\txray_fn_idx,\"ao\",@progbits,f\n\t.quad\t2\n\t.text\n\tnop\n";
        let mut out = Vec::new();
        lines::feed(&mut text.as_bytes(), Sleds::new(&mut out)).unwrap();
        let out = String::from_utf8(out).unwrap();
        let shown: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
        let expected = [
            "\t.type\tf,@function",
            "f:",
            ".Lxray_sled_0:",
            "\t.byte 15,25,192",
            "\ttestl\t%edi, %edi",
            "\t.p2align\t4",
            ".L1:",
            ".Lxray_sled_1:",
            "\t.byte 15,25,200;\tretq",
            ".Lxray_sled_2:",
            "\t.byte 15,25,208",
            "\tjmp\tg",
            "\t.text",
            "\tnop",
        ];
        assert_eq!(shown, expected);
        assert_eq!(out.lines().count(), text.lines().count());
    }
}
