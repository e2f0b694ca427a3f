//! Exits that stay as the compiler made them: gcc's calls of `__return__` and clang's XRay sleds.
//! Only unwind information is added, see [`super::frames`]. The number of lines doesn't change.

use std::io::{self, Write};

use super::frames::Frames;
use super::lines::Lines;
use super::rewriter;

/// How clang's labels of entry and exit sleds begin.
const SLED: &[u8] = b".Lxray_sled_";

/// Whether the text has such exits.
pub(super) fn are_in(text: &[u8]) -> bool {
    memchr::memmem::find(text, SLED).is_some() || rewriter::has_hook_calls(text)
}

/// Copies a text and adds the unwind information that exits need.
pub(super) struct Exits<'a> {
    out: &'a mut dyn Write,
    frames: Frames,
    in_app: bool,
    /// An alignment that may belong to the sled behind it: threads run its NOPs, after the epilogue
    /// has restored the registers.
    alignment: Option<Vec<u8>>,
}

impl<'a> Exits<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Exits<'a> {
        Exits { out, frames: Frames::default(), in_app: false, alignment: None }
    }

    /// Writes the alignment before a line that isn't a sled's label.
    fn flush(&mut self) -> io::Result<()> {
        let Some(line) = self.alignment.take() else { return Ok(()) };
        self.out.write_all(self.frames.before(&line, true))?;
        self.out.write_all(&line)
    }
}

impl Lines for Exits<'_> {
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        match line.trim_ascii_end() {
            b"#APP" => self.in_app = true,
            b"#NO_APP" => self.in_app = false,
            text if !self.in_app && is_exit(text) => {
                self.out.write_all(self.frames.at_exit().as_bytes())?;
                self.out.write_all(&self.alignment.take().unwrap_or_default())?;
                return self.out.write_all(line);
            }
            _ => {}
        }
        self.flush()?;
        if !self.in_app && line.trim_ascii_start().starts_with(b".p2align") {
            self.alignment = Some(line.to_vec());
            return Ok(());
        }
        self.out.write_all(self.frames.before(line, !self.in_app))?;
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

/// An entry's sled counts as an exit, too: no register is saved there yet, so nothing is added.
fn is_exit(line: &[u8]) -> bool {
    line.starts_with(SLED) || rewriter::is_exit_call(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::lines;

    fn passed(text: &str) -> String {
        let mut out = Vec::new();
        lines::feed(&mut text.as_bytes(), Exits::new(&mut out)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn sleds_and_calls_of_the_exit_hook() {
        let head = "\t.cfi_startproc\n.Lxray_sled_0:\n\t.ascii \"\\353\\t\"\n\tnopw 0(%rax)\n\t.cfi_offset %rbx, -16\n\tpopq\t%rbx\n";
        let out = passed(&format!("{head}.Lxray_sled_1:\n\tretq\n\tnopw 1(%rax)\n.Lfunc_end0:\n"));
        assert_eq!(
            out,
            format!(
                "{head}.cfi_remember_state;.cfi_restore 3;.Lxray_sled_1:\n\tretq\n\tnopw 1(%rax)\n.cfi_restore_state;.Lfunc_end0:\n"
            )
        );
        for call in
            ["\tcall\t__return__\n", "1:\tcall\t*__return__@GOTPCREL(%rip)\n", "\tcall __return__@PLT\n"]
        {
            let out = passed(&format!("\t.cfi_offset 6, -16\n{call}\tjmp\tf\n"));
            assert_eq!(
                out,
                format!("\t.cfi_offset 6, -16\n.cfi_remember_state;.cfi_restore 6;{call}\tjmp\tf\n")
            );
        }
    }

    #[test]
    fn registers_are_restored_in_front_of_a_sleds_alignment() {
        let head = "\t.cfi_startproc\n\t.p2align\t4\n\t.cfi_offset %rbp, -16\n\tpopq\t%rbp\n";
        let out = passed(&format!(
            "{head}\t.p2align\t1, 0x90\n.Lxray_sled_1:\n\tretq\n.Lfunc_end0:\n\t.p2align\t4\n"
        ));
        assert_eq!(
            out,
            format!(
                "{head}.cfi_remember_state;.cfi_restore 6;\t.p2align\t1, 0x90\n.Lxray_sled_1:\n\tretq\n\
                 .cfi_restore_state;.Lfunc_end0:\n\t.p2align\t4\n"
            )
        );
        // Another label: an event's sled has no epilogue before it.
        let text = format!("{head}\t.p2align\t1, 0x90\n.Lxray_event_sled_0:\n\tnop\n");
        assert_eq!(passed(&text), text);
    }

    #[test]
    fn inline_assembler_is_passed_on() {
        let text = "\t.cfi_offset 6, -16\n#APP\n\tcall\t__return__\n.Lxray_sled_7:\n#NO_APP\n\tret\n";
        assert_eq!(passed(text), text);
    }
}
