//! Unwind information at exits, for registers that the function has restored already.
//!
//! Compilers describe a callee-saved register by the stack slot that it was saved in, and don't take that back when
//! an epilogue pops it: only a `ret` follows, which leaves the slot alone. A call of the exit hook overwrites that
//! slot with its return address. An unwinder that walks through the hook then reads a wrong register, and from a
//! wrong frame pointer a wrong stack. So each exit says that the register has its value again:
//!
//! ```text
//!         (restores register 3)                 (restores register 3)
//!         .cfi_def_cfa_offset 8                 .cfi_def_cfa_offset 8
//!         call __return__                       .cfi_remember_state;.cfi_restore 3;call __return__
//!         ret                                   ret
//! .L5:                                          .cfi_restore_state;.L5:
//! ```
//!
//! Behind the exit, the state before it is restored, as the compiler's next directives are changes
//! to that. Nothing is added where a function saves no registers, or has no unwind information.

use crate::arch::text::{CALLEE_SAVED, is_nop};

/// `DW_CFA_expression` and `DW_CFA_val_expression`, with which gcc describes frames that it aligns.
const EXPRESSIONS: [u8; 2] = [0x10, 0x16];

/// Directives that give a register, their first operand, a place.
const SAVING: [&[u8]; 4] = [b".cfi_offset", b".cfi_rel_offset", b".cfi_register", b".cfi_val_offset"];

/// Directives that continue in another section.
const SECTIONS: [&[u8]; 8] =
    [b".section", b".text", b".data", b".bss", b".pushsection", b".popsection", b".previous", b".subsection"];

/// Registers as bits, by their place in [`CALLEE_SAVED`].
type Registers = u8;

/// Follows the unwind information of a text, line by line.
#[derive(Default)]
pub(super) struct Frames {
    saved: Registers,
    remembered: Vec<Registers>,
    place: Place,
}

/// The position relative to an exit whose registers are described as restored.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Outside,
    /// The instruction that leaves the function follows.
    Before,
    Behind,
}

impl Frames {
    /// The text to insert before a line, which is written next.
    pub(super) fn before(&mut self, line: &[u8], is_read: bool) -> &'static [u8] {
        let text = line.trim_ascii();
        let is_directive = text.starts_with(b".") && !ends_a_label(text);
        let ends = match text.first() {
            None | Some(b'#') => false,
            _ if is_directive && leaves_section(text) => self.place == Place::Behind,
            _ if is_directive => text.starts_with(b".cfi_") && !text.starts_with(b".cfi_endproc"),
            // Inline assembler may contain any number of statements.
            _ if !is_read => true,
            _ if ends_a_label(text) => self.place == Place::Behind,
            _ if is_nop(text) => false,
            _ => {
                let is_behind = self.place == Place::Behind;
                if self.place == Place::Before {
                    self.place = Place::Behind;
                }
                is_behind
            }
        };
        let is_inside = self.place != Place::Outside;
        if ends {
            self.place = Place::Outside;
        }
        if memchr::memmem::find(text, b".cfi_").is_some() {
            text.split(|byte| *byte == b';').for_each(|statement| self.directive(statement.trim_ascii()));
        }
        if ends && is_inside { b".cfi_restore_state;" } else { b"" }
    }

    /// The text to insert before an exit's site.
    pub(super) fn at_exit(&mut self) -> String {
        if self.saved == 0 || self.place != Place::Outside {
            return String::new();
        }
        self.place = Place::Before;
        let registers = CALLEE_SAVED.iter().enumerate().filter(|(at, _)| self.saved & 1 << at != 0);
        let restores = registers.map(|(_, (number, _))| format!(".cfi_restore {number};"));
        std::iter::once(".cfi_remember_state;".to_owned()).chain(restores).collect()
    }

    /// The instruction that leaves the function was written on the site's own line.
    pub(super) fn is_left(&mut self) {
        if self.place == Place::Before {
            self.place = Place::Behind;
        }
    }

    fn directive(&mut self, directive: &[u8]) {
        let end = directive.iter().position(u8::is_ascii_whitespace).unwrap_or(directive.len());
        let (word, operands) = directive.split_at(end);
        match word {
            b".cfi_startproc" | b".cfi_endproc" => *self = Frames::default(),
            b".cfi_remember_state" => self.remembered.push(self.saved),
            b".cfi_restore_state" => self.saved = self.remembered.pop().unwrap_or_default(),
            b".cfi_restore" | b".cfi_same_value" => self.saved &= !register(operands),
            b".cfi_escape" => self.saved |= register_of_expression(operands),
            _ if SAVING.contains(&word) => self.saved |= register(operands),
            _ => {}
        }
    }
}

/// gcc puts tables between the parts of a function, across which its unwind information can't
/// continue.
fn leaves_section(directive: &[u8]) -> bool {
    let word = directive.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    SECTIONS.contains(&word)
}

fn ends_a_label(text: &[u8]) -> bool {
    let code = text.split(|byte| *byte == b'#').next().unwrap_or_default();
    code.trim_ascii_end().ends_with(b":")
}

/// The first operand as a register that functions have to restore.
fn register(operands: &[u8]) -> Registers {
    let first = operands.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    let is_it = |(number, name): &(u8, &str)| first == name.as_bytes() || number_of(first) == Some(*number);
    CALLEE_SAVED.iter().position(is_it).map_or(0, |at| 1 << at)
}

fn register_of_expression(operands: &[u8]) -> Registers {
    let mut bytes = operands.splitn(3, |byte| *byte == b',').map(<[u8]>::trim_ascii);
    match bytes.next().and_then(number_of) {
        Some(operation) if EXPRESSIONS.contains(&operation) => bytes.next().map_or(0, |number| {
            let number = number_of(number).map(|number| number.to_string()).unwrap_or_default();
            register(number.as_bytes())
        }),
        _ => 0,
    }
}

fn number_of(text: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines with the inserted text; `EXIT` stands for an exit's site.
    fn followed(text: &str) -> String {
        let mut frames = Frames::default();
        let mut out = String::new();
        for line in text.lines() {
            if line == "EXIT" {
                out += &frames.at_exit();
            } else {
                out += std::str::from_utf8(frames.before(line.as_bytes(), true)).unwrap();
            }
            out += line;
            out.push('\n');
        }
        out
    }

    #[test]
    fn registers_that_were_saved_are_restored_until_the_exit_is_over() {
        let out = followed(
            "\t.cfi_startproc\n\t.cfi_offset 13, -16\n\t.cfi_offset %rbx, -24\n\t.cfi_offset 33, -32\nEXIT\n\
             # a comment\n\t.loc 1 2\n\tret\n\tnopw 0(%rax)\n.L5:\n\t.cfi_restore 13\nEXIT\n\tjmp f\n\tud2\n\t.cfi_endproc\nEXIT\n",
        );
        let expected = "\t.cfi_startproc\n\t.cfi_offset 13, -16\n\t.cfi_offset %rbx, -24\n\t.cfi_offset 33, -32\n\
             .cfi_remember_state;.cfi_restore 3;.cfi_restore 13;EXIT\n\
             # a comment\n\t.loc 1 2\n\tret\n\tnopw 0(%rax)\n.cfi_restore_state;.L5:\n\t.cfi_restore 13\n\
             .cfi_remember_state;.cfi_restore 3;EXIT\n\tjmp f\n.cfi_restore_state;\tud2\n\t.cfi_endproc\nEXIT\n";
        assert_eq!(out, expected);
    }

    #[test]
    fn tables_between_a_functions_parts_are_no_code() {
        let out = followed(
            "\t.cfi_offset 3, -16\nEXIT\n\tret\n\t.section\t.gcc_except_table\n.LLSDA1:\n\t.text\n\t.cfi_endproc\n",
        );
        assert!(
            out.ends_with(
                "\tret\n.cfi_restore_state;\t.section\t.gcc_except_table\n.LLSDA1:\n\t.text\n\t.cfi_endproc\n"
            ),
            "{out}"
        );
    }

    #[test]
    fn labels_and_nops_may_stand_between_a_site_and_what_leaves() {
        let body = "\t.cfi_offset %rbp, -16\nEXIT\n\t.ascii \"\\353\\t\"\n\tnopw 512(%rax)\n.Ltmp3: # x\n\tjmp g # TAILCALL\n";
        let out = followed(&format!("{body}.Lend:\n"));
        assert!(out.ends_with("# TAILCALL\n.cfi_restore_state;.Lend:\n"), "{out}");
        assert_eq!(out.matches(".cfi_restore_state").count(), 1, "{out}");
    }

    #[test]
    fn states_and_expressions_are_followed() {
        let mut frames = Frames::default();
        for line in [
            ".cfi_remember_state",
            ".cfi_escape 0x10,0x6,0x2,0x76,0",
            ".cfi_escape 0xf,0x3,0x76,0x78,0x6",
            ".cfi_escape 0x16,12,0x2,0x76,0",
        ] {
            assert!(frames.before(line.as_bytes(), true).is_empty());
        }
        assert_eq!(frames.at_exit(), ".cfi_remember_state;.cfi_restore 6;.cfi_restore 12;");
        assert_eq!(frames.before(b"\t.cfi_restore_state", true), b".cfi_restore_state;");
        assert_eq!(frames.at_exit(), "");
    }

    #[test]
    fn inline_assembler_is_read_for_its_directives() {
        let mut frames = Frames::default();
        frames.before(b"\tpushq %rbx; .cfi_adjust_cfa_offset 8; .cfi_rel_offset %rbx, 0", false);
        assert_eq!(frames.at_exit(), ".cfi_remember_state;.cfi_restore 3;");
        assert_eq!(frames.before(b"\tnop; ret", false), b".cfi_restore_state;");
    }
}
