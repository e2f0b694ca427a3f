//! Sites for machines on which gcc only marks entries, by a NOP, and calls no hook at exits.
//!
//! ```text
//!         in                                out
//! f:                                f:.Leverycall_f0:
//! .LPFE1:                           .LPFE1:
//!         nop
//!         .cfi_startproc                    .cfi_startproc
//!         cbz w0, .L2                       <site> cbz w0, .L2
//!         ret                               b .Leverycall_x0
//! .L2:                              .L2:
//!         b g                               b .Leverycall_x1
//!         .cfi_endproc                      .cfi_endproc
//!                                   .Leverycall_x0: <site> ret
//!                                   .Leverycall_x1: <site> b g
//! ```
//!
//! An entry's site lies before the first instruction, where unwind information and line numbers
//! describe it. Sites of exits lie behind the function's code, because longer code could put the
//! targets of its own branches out of reach: the shortest branches reach 32 KiB, and gcc has counted.
//! There, unwind information begins anew, with the state of a function's first instruction.
//!
//! Lines stay where they are. Text between `#APP` and `#NO_APP` (inline assembler) is passed on
//! unread, but for changes of section.

use std::collections::HashSet;
use std::io::{self, Write};

use everycall_format::site::site_kind;

use crate::arch::marked::{self, Exit, MARK, MARKS_SECTION, SITE, VARIANT};

use super::lines::Lines;
use super::rewriter::is_cold_part;
use super::sections::Sections;

/// Whether the text has marks.
pub(super) fn are_in(text: &[u8]) -> bool {
    memchr::memmem::find(text, MARK).is_some()
}

/// Copies a text and makes its sites.
pub(super) struct Marks<'a> {
    out: &'a mut dyn Write,
    sites: u32,
    in_app: bool,
    sections: Sections,
    /// The name of the last `.type NAME, %function`, until its label.
    declared: Vec<u8>,
    /// Functions with another calling convention.
    variants: HashSet<Vec<u8>>,
    name: Vec<u8>,
    /// Number of the function whose code comes now, plus 1; 0 before the first one.
    functions: u32,
    mark: Mark,
    has_entry: bool,
    /// Exits of the current part whose sites are due, each with the number of its label.
    exits: Vec<(Exit, u32)>,
    labels: u32,
}

/// How far a function's entry is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    None,
    /// The label came, and its NOP is next.
    Label,
    /// The site is due before the next instruction.
    Due,
}

impl<'a> Marks<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Marks<'a> {
        Marks {
            out,
            sites: 0,
            in_app: false,
            sections: Sections::new(),
            declared: Vec::new(),
            variants: HashSet::new(),
            name: Vec::new(),
            functions: 0,
            mark: Mark::None,
            has_entry: false,
            exits: Vec::new(),
            labels: 0,
        }
    }

    /// Writes a site, with what stands between its label and its record.
    fn site(&mut self, kind: u32, behind: &str) -> io::Result<()> {
        let site = self.sites;
        self.sites += 1;
        write!(self.out, ".Leverycall_s{site}:{SITE}{behind}")?;
        self.sections.record(self.out, site, self.functions.saturating_sub(1), kind)
    }

    fn write_entry(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.mark) != Mark::Due {
            return Ok(());
        }
        self.has_entry = true;
        self.out.write_all(b"\t")?;
        self.site(site_kind::ENTRY, "")?;
        self.out.write_all(b";")
    }

    /// Writes the sites of exits, at the end of a part of a function; `has_frames`: it has unwind
    /// information, which ended here.
    fn write_exits(&mut self, has_frames: bool) -> io::Result<()> {
        let mut frame = None;
        for (exit, label) in std::mem::take(&mut self.exits) {
            if has_frames && frame != Some(exit.frame) {
                let end = if frame.is_some() { ".cfi_endproc;" } else { "" };
                write!(self.out, "{end}.cfi_startproc;{}", exit.frame)?;
                frame = Some(exit.frame);
            }
            write!(self.out, ".p2align 2;.Leverycall_x{label}:{}", exit.before)?;
            self.site(exit.kind, &format!("{};", exit.instruction))?;
            self.out.write_all(b";")?;
        }
        if frame.is_some() { self.out.write_all(b".cfi_endproc;") } else { Ok(()) }
    }

    /// Before a line that isn't an instruction.
    fn write_due(&mut self) -> io::Result<()> {
        self.write_entry()?;
        self.write_exits(false)
    }

    fn directive(&mut self, line: &[u8]) -> io::Result<()> {
        let directive = line.trim_ascii();
        let end = directive.iter().position(u8::is_ascii_whitespace).unwrap_or(directive.len());
        let (word, operands) = (&directive[..end], directive[end..].trim_ascii());
        match word {
            b".type" if !self.in_app => {
                let operands = operands.strip_suffix(b"function").and_then(|rest| rest.strip_suffix(b"%"));
                if let Some(name) = operands {
                    let name = name.trim_ascii_end().strip_suffix(b",").unwrap_or(name);
                    self.declared = name.trim_ascii().to_vec();
                }
            }
            _ if word == VARIANT => _ = self.variants.insert(operands.to_vec()),
            // The list of marks: its relocations would have to be resolved at each start.
            b".8byte" | b".xword" if !self.in_app && self.sections.is_in(MARKS_SECTION) => {
                return self.out.write_all(b"\n");
            }
            b".cfi_endproc" if !self.in_app && !self.exits.is_empty() => {
                self.write_entry()?;
                self.out.write_all(b"\t.cfi_endproc;")?;
                self.write_exits(true)?;
                return self.out.write_all(b"\n");
            }
            b".size" if !self.in_app => self.write_due()?,
            // Tables may lie within a function's code.
            _ if Sections::concern(word) => self.sections.change(word, directive, operands),
            _ => {}
        }
        self.out.write_all(line)
    }

    fn label(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(name) = line.trim_ascii_end().strip_suffix(b":") else {
            return self.out.write_all(line);
        };
        if !self.declared.is_empty() && name == self.declared {
            self.write_due()?;
            let name = std::mem::take(&mut self.declared);
            if !is_cold_part(&name, &self.name) {
                (self.name, self.mark, self.has_entry) = (name, Mark::None, false);
                self.out.write_all(line.trim_ascii_end())?;
                writeln!(self.out, ".Leverycall_f{}:", self.functions)?;
                self.functions += 1;
                return Ok(());
            }
        } else if name.starts_with(MARK) && self.functions > 0 && !self.has_entry {
            if !self.variants.contains(&self.name) {
                self.mark = Mark::Label;
            }
        } else if !marked::is_for_tables(name) {
            self.write_entry()?;
        }
        self.out.write_all(line)
    }

    fn instruction(&mut self, line: &[u8]) -> io::Result<()> {
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"//") {
            return self.out.write_all(line);
        }
        if self.mark == Mark::Label && text == b"nop" {
            self.mark = Mark::Due;
            return self.out.write_all(b"\n");
        }
        self.write_entry()?;
        let Some(exit) = marked::exit(text).filter(|_| self.has_entry) else {
            return self.out.write_all(line);
        };
        let known = self.exits.iter().find(|(known, _)| *known == exit).map(|(_, label)| *label);
        let label = known.unwrap_or(self.labels);
        if known.is_none() {
            self.exits.push((exit, label));
            self.labels += 1;
        }
        writeln!(self.out, "\tb\t.Leverycall_x{label}")
    }
}

impl Lines for Marks<'_> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        match line.first() {
            Some(b'#') => {
                match line.trim_ascii_end() {
                    b"#APP" => {
                        if self.mark == Mark::Due {
                            self.write_entry()?;
                            self.out.write_all(b"\n")?;
                        }
                        self.in_app = true;
                    }
                    b"#NO_APP" => self.in_app = false,
                    _ => {}
                }
                self.out.write_all(line)
            }
            Some(b'\t' | b' ') if line.trim_ascii_start().starts_with(b".") => self.directive(line),
            _ if self.in_app => self.out.write_all(line),
            Some(b'\t' | b' ') => self.instruction(line),
            _ => self.label(line),
        }
    }

    fn pass(&mut self, part: &[u8]) -> io::Result<()> {
        self.out.write_all(part)
    }

    fn finish(mut self) -> io::Result<()> {
        if self.mark == Mark::Due || !self.exits.is_empty() {
            self.write_due()?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::lines;

    fn rewritten(text: &str) -> String {
        let mut out = Vec::new();
        lines::feed(&mut text.as_bytes(), Marks::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    const HEAD: &str = "\t.type\tf, %function\nf:\n\thint\t34 // bti c\n\t.section\t__patchable_function_entries,\"awo\",@progbits,f\n\
        \t.align\t3\n\t.8byte\t.LPFE1\n\t.text\n.LPFE1:\n\tnop\t\n.LFB0:\n\t.cfi_startproc\n";

    fn sites(text: &str) -> Vec<&str> {
        text.match_indices(";.popsection").map(|(at, _)| &text[at - 1..at]).collect()
    }

    #[test]
    fn entries_are_before_the_first_instruction_and_exits_behind_the_last() {
        let body = "\tcbz\tw0, .L2\n\tret\t\t// 5  *do_return\n.L2:\n\tb\tg\t// 6  *sibcall_insn/1\n\tret\n\t.cfi_endproc\n.LFE0:\n\t.size\tf, .-f\n";
        let text = format!("{HEAD}{body}");
        let out = rewritten(&text);
        assert_eq!(out.lines().count(), text.lines().count());
        assert_eq!(sites(&out), ["0", "1", "2"], "{out}");
        assert!(out.contains("\t.Leverycall_s0:mov x9,x30;nop;\t.pushsection"), "{out}");
        assert!(out.contains(".popsection;\tcbz\tw0, .L2\n\tb\t.Leverycall_x0\n.L2:\n\tb\t.Leverycall_x1\n\tb\t.Leverycall_x0\n"), "{out}");
        assert!(
            out.contains(
                ".cfi_endproc;.cfi_startproc;.p2align 2;.Leverycall_x0:.Leverycall_s1:mov x9,x30;nop;ret;"
            ),
            "{out}"
        );
        assert!(out.contains("mov x9,x30;nop;b g;"), "{out}");
        assert!(!out.contains(".8byte") && !out.contains("\tnop\t\n"), "{out}");
    }

    #[test]
    fn a_loop_at_the_beginning_does_not_enter_again() {
        let out = rewritten(&format!(
            "{HEAD}\t.loc 1 2 3\n.LVL1:\n.L3:\n\tsub\tw0, w0, 1\n\tcbnz\tw0, .L3\n\tretaa\n\t.cfi_endproc\n"
        ));
        let place = out.find("mov x9").unwrap();
        assert!(
            out.find(".LVL1:").unwrap() < place && place < out.find("\n.L3:").unwrap_or(usize::MAX),
            "{out}"
        );
        assert!(out.contains(".popsection;.L3:\n"), "{out}");
        assert!(out.contains(".cfi_startproc;.cfi_negate_ra_state;.p2align 2;"), "{out}");
    }

    #[test]
    fn functions_without_marks_stay() {
        let text = "\t.type\tf, %function\nf:\n\tret\n\t.size\tf, .-f\n";
        assert_eq!(rewritten(text), text.replace("f:\n", "f:.Leverycall_f0:\n"));
        let out = rewritten(&format!("\t.variant_pcs\tf\n{HEAD}\tret\n"));
        assert!(sites(&out).is_empty() && out.contains("\tret\n"), "{out}");
    }

    #[test]
    fn parts_have_their_own_exits_and_inline_assembler_is_unread() {
        let cold = "\t.cfi_endproc\n\t.section\t.text.unlikely\n\t.cfi_startproc\n\t.type\tf.cold, %function\nf.cold:\n\tret\n\t.cfi_endproc\n";
        let out = rewritten(&format!("{HEAD}#APP\n\tret\n\tnop\n#NO_APP\n\tret\n{cold}"));
        assert_eq!(sites(&out), ["0", "1", "1"], "{out}");
        assert!(out.contains("#APP\n\tret\n\tnop\n#NO_APP\n"), "{out}");
        assert_eq!(out.matches(".long .Leverycall_f0-.").count(), 3, "{out}");
        // Without unwind information, or an end.
        let out = rewritten(&format!("{HEAD}\tb\tg\n\t.size\tf, .-f\n{HEAD}\tret\n"));
        assert_eq!(sites(&out), ["0", "2", "0", "1"], "{out}");
        assert!(!out.contains(".cfi_endproc"), "{out}");
    }

    /// Pieces of gcc's text in any order: no panic, no lost record.
    #[test]
    fn jumbled_text_stays_whole() {
        let pieces = [
            "\t.type\tf, %function\n",
            "f:\n",
            ".LPFE1:\n",
            "\tnop\n",
            "\tret\n",
            "\tb\tg\n",
            "#APP\n",
            "#NO_APP\n",
            "\t.text\n",
            "\t.previous\n",
            "\t.popsection\n",
            "\t.cfi_startproc\n",
            "\t.cfi_endproc\n",
            ".L1:\n",
            "\t.pushsection .x,\"aG\"\n",
            "\t.size\tf, .-f\n",
            "\n",
            ":\n",
            "\t\n",
            "\tmov\tx0, x1\n",
        ];
        for text in lines::jumbled(&pieces) {
            let out = rewritten(&text);
            let added = |word: &str| out.matches(word).count() - text.matches(word).count();
            assert_eq!(added(".pushsection"), added(".popsection"), "{text}{out}");
            assert_eq!(added(".pushsection"), out.matches("mov x9,x30;nop;").count(), "{text}{out}");
            for label in 0..out.matches(".Leverycall_x").count() {
                let uses = out.contains(&format!("\tb\t.Leverycall_x{label}\n"));
                assert_eq!(uses, out.contains(&format!(".Leverycall_x{label}:")), "{text}{out}");
            }
        }
    }
}
