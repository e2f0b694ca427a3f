//! Rewrites gcc's assembler text: every hook call becomes a site.
//!
//! ```text
//!         in                                out
//! f:                                f:.Leverycall_f0:
//! 1:      call *__fentry__@GOT...   <site>
//!         ...                       ...
//!         call __return__
//!         ret                       <site> ret          (a jump here makes it a tail exit)
//! ```
//!
//! A site (`arch::text::site`) is switched by one store, while threads run it. Its record
//! (12 bytes, see `everycall_format`'s `Site`) goes into a section that the linker keeps exactly as long as the code:
//! link-ordered behind it, and in its COMDAT group if it is in one. All offsets are relative to their own place and
//! between local symbols, so that nothing is left to relocate at run time, in shared objects either.
//!
//! Lines stay where they are, so that the assembler's diagnostics name the right ones. Text between `#APP` and `#NO_APP` (inline
//! assembler) is passed on unread, but for changes of section.

use std::io::{self, BufRead, Write};

use everycall_format::site::site_kind;

use crate::arch::{text, trace_insn};

use super::frames::Frames;
use super::lines::{self, Lines};
use super::sections::Sections;

/// Largest distance between a push and its hook call.
const PENDING_BYTES_MAX: usize = 4096;

/// Whether the text has hook calls.
pub(super) fn has_hook_calls(text: &[u8]) -> bool {
    [&b"\t__fentry__"[..], b"*__fentry__", b"\t__return__", b"*__return__"]
        .iter()
        .any(|name| memchr::memmem::find(text, name).is_some())
}

/// Whether a line calls the exit hook.
pub(super) fn is_exit_call(line: &[u8]) -> bool {
    hook_call(line.strip_prefix(b"1:").unwrap_or(line).trim_ascii()) == Some(Hook::Exit)
}

/// Rewrites a whole text.
///
/// # Errors
///
/// Those of reading and writing.
pub fn rewrite(text: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<()> {
    lines::feed(text, Rewriter::new(out, Form::Sites))
}

/// Rewrites a whole text: hook calls become TRACE instructions.
///
/// # Errors
///
/// Those of reading and writing.
pub(super) fn rewrite_to_traces(text: &mut dyn BufRead, out: &mut dyn Write) -> io::Result<()> {
    lines::feed(text, Rewriter::new(out, Form::Traces))
}

/// The instructions that replace hook calls.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// NOPs of a length that hooks fit into, and a list of them.
    Sites,
    /// TRACE instructions, which nothing has to find.
    Traces,
}

struct Rewriter<'a> {
    out: &'a mut dyn Write,
    form: Form,
    sites: u32,
    in_app: bool,
    sections: Sections,
    /// The name of the last `.type NAME, @function`, until its label.
    declared: Vec<u8>,
    function: Function,
    functions: u32,
    /// Lines between an instruction that saves a nested function's frame and its hook call.
    pending: Pending,
    /// The instruction that restores it comes next, and goes.
    drop_pop: bool,
    /// The label of a call of the exit hook, whose site waits for the instruction that determines
    /// its kind.
    open_exit: Option<&'static [u8]>,
    frames: Frames,
}

/// The function whose code comes now.
#[derive(Default)]
struct Function {
    name: Vec<u8>,
    number: u32,
    has_entry: bool,
}

/// An instruction that saves a nested function's frame, and what may stand before the hook call.
#[derive(Default)]
struct Pending {
    push: Vec<u8>,
    behind: Vec<u8>,
}

impl Pending {
    fn is_pending(&self) -> bool {
        !self.push.is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    Entry,
    Exit,
}

impl Lines for Rewriter<'_> {
    fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    fn finish(mut self) -> io::Result<()> {
        self.release_pending()?;
        if self.open_exit.is_some() {
            self.close_exit(site_kind::EXIT)?;
            self.pass(b"\n")?;
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        let ends = self.frames.before(line, !self.in_app);
        self.pass(ends)?;
        let drop_pop = std::mem::take(&mut self.drop_pop);
        match line.first() {
            Some(b'#') => self.comment(line),
            _ if self.in_app => {
                self.directive(line.trim_ascii())?;
                self.pass(line)
            }
            Some(b'\t') if line.get(1) == Some(&b'.') => {
                self.drop_pop = drop_pop;
                self.directive(line.trim_ascii())?;
                self.postpone_or_pass(line)
            }
            Some(b'.') if self.pending.is_pending() => self.postpone_or_pass(line),
            Some(b'\t' | b'1' | b' ') => self.instruction(line, drop_pop),
            _ => self.label(line),
        }
    }
}

impl<'a> Rewriter<'a> {
    fn new(out: &'a mut dyn Write, form: Form) -> Rewriter<'a> {
        Rewriter {
            out,
            form,
            sites: 0,
            in_app: false,
            sections: Sections::new(),
            declared: Vec::new(),
            function: Function::default(),
            functions: 0,
            pending: Pending::default(),
            drop_pop: false,
            open_exit: None,
            frames: Frames::default(),
        }
    }

    fn comment(&mut self, line: &[u8]) -> io::Result<()> {
        match line.trim_ascii_end() {
            b"#APP" => {
                self.release_pending()?;
                if self.open_exit.is_some() {
                    self.close_exit(site_kind::EXIT)?;
                    self.pass(b";")?;
                }
                self.in_app = true;
            }
            b"#NO_APP" => self.in_app = false,
            _ => {}
        }
        self.pass(line)
    }

    /// Handles section changes and function declarations; everything else is copied.
    fn directive(&mut self, directive: &[u8]) -> io::Result<()> {
        let end = directive.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(directive.len());
        let (word, operands) = (&directive[..end], directive[end..].trim_ascii());
        match word {
            b".type" if !self.in_app => {
                if let Some(name) = operands.strip_suffix(b"@function") {
                    let name = name.trim_ascii_end().strip_suffix(b",").unwrap_or(name);
                    self.declared = name.trim_ascii().to_vec();
                }
                Ok(())
            }
            word if Sections::concern(word) => {
                self.close_exit_on_own_line()?;
                self.sections.change(word, directive, operands);
                Ok(())
            }
            b".size" | b".cfi_endproc" => self.close_exit_on_own_line(),
            _ => Ok(()),
        }
    }

    fn label(&mut self, line: &[u8]) -> io::Result<()> {
        self.release_pending()?;
        let name = line.trim_ascii_end().strip_suffix(b":");
        if !self.declared.is_empty() && name == Some(&self.declared) {
            self.close_exit_on_own_line()?;
            let name = std::mem::take(&mut self.declared);
            if !is_cold_part(&name, &self.function.name) {
                self.function = Function { name, number: self.functions, has_entry: false };
                self.functions += 1;
                self.pass(line.trim_ascii_end())?;
                return writeln!(self.out, ".Leverycall_f{}:", self.function.number);
            }
        }
        self.pass(line)
    }

    fn instruction(&mut self, line: &[u8], drop_pop: bool) -> io::Result<()> {
        let (label, instruction): (&'static [u8], _) = match line.strip_prefix(b"1:") {
            Some(rest) => (&b"1:"[..], rest.trim_ascii()),
            None => (&b""[..], line.trim_ascii()),
        };
        match hook_call(instruction) {
            Some(Hook::Entry) if self.function.number < self.functions => return self.entry_site(label),
            Some(Hook::Exit) if self.function.has_entry => {
                self.release_pending()?;
                self.close_exit_on_own_line()?;
                self.open_exit = Some(label);
                return self.pass(b"\n");
            }
            // The exit of a thunk, whose entry gcc leaves out: an exit alone would be misleading.
            Some(Hook::Exit) => return self.pass(b"\n"),
            Some(Hook::Entry) | None => {}
        }
        if drop_pop && text::restores_chain(instruction) {
            return self.pass(b"\n");
        }
        if self.pending.is_pending() && text::may_precede_hook(instruction) {
            return self.postpone_or_pass(line);
        }
        if !self.pending.is_pending() && self.open_exit.is_none() && text::saves_chain(instruction) {
            self.pending.push.extend_from_slice(line);
            return Ok(());
        }
        self.release_pending()?;
        if self.open_exit.is_some() && !instruction.is_empty() {
            self.close_exit(text::kind_of_exit(instruction))?;
            self.frames.is_left();
        }
        self.pass(line)
    }

    fn entry_site(&mut self, label: &[u8]) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_pending() {
            self.drop_pop = true;
            self.pass(b"\n")?;
        }
        self.pass(&pending.behind)?;
        self.close_exit_on_own_line()?;
        let site = self.site(label, site_kind::ENTRY)?;
        self.function.has_entry = true;
        self.record(site, site_kind::ENTRY)?;
        self.pass(b"\n")
    }

    /// Writes pending lines, because no hook call followed.
    fn release_pending(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.pass(&pending.push)?;
        self.pass(&pending.behind)
    }

    /// Writes the line, or adds it to the pending push.
    fn postpone_or_pass(&mut self, line: &[u8]) -> io::Result<()> {
        if !self.pending.is_pending() {
            return self.pass(line);
        }
        self.pending.behind.extend_from_slice(line);
        if self.pending.behind.len() > PENDING_BYTES_MAX { self.release_pending() } else { Ok(()) }
    }

    /// Writes a site.
    fn site(&mut self, label: &[u8], kind: u32) -> io::Result<u32> {
        let site = self.sites;
        self.sites += 1;
        if self.form == Form::Traces {
            self.pass(b"\t")?;
            self.pass(label)?;
            let instruction = match kind {
                site_kind::ENTRY => trace_insn::ENTER,
                site_kind::TAIL_EXIT => trace_insn::LEAVE_BY_JUMP,
                _ => trace_insn::LEAVE,
            };
            self.pass(instruction.as_bytes())?;
            self.pass(b";")?;
            return Ok(site);
        }
        let (place, bytes) = text::site(kind);
        self.pass(place.as_bytes())?;
        self.pass(label)?;
        write!(self.out, ".Leverycall_s{site}:.byte {bytes};")?;
        Ok(site)
    }

    fn close_exit(&mut self, kind: u32) -> io::Result<()> {
        match self.open_exit.take() {
            Some(label) => {
                let frame = self.frames.at_exit();
                self.pass(frame.as_bytes())?;
                let site = self.site(label, kind)?;
                self.record(site, kind)
            }
            None => Ok(()),
        }
    }

    /// Before a line that isn't an instruction: the record must be written while its section is current.
    fn close_exit_on_own_line(&mut self) -> io::Result<()> {
        if self.open_exit.is_some() {
            self.close_exit(site_kind::EXIT)?;
            self.pass(b";")?;
        }
        Ok(())
    }

    fn record(&mut self, site: u32, kind: u32) -> io::Result<()> {
        if self.form == Form::Traces {
            return Ok(());
        }
        self.sections.record(self.out, site, self.function.number, kind)
    }
}

/// `f.cold`, or `f.cold.1`, holds the rarely executed parts of `f`.
pub(super) fn is_cold_part(name: &[u8], function: &[u8]) -> bool {
    !function.is_empty() && name.strip_prefix(function).is_some_and(|rest| rest.starts_with(b".cold"))
}

/// Recognises `call __return__` and its other forms.
pub(super) fn hook_call(instruction: &[u8]) -> Option<Hook> {
    match text::called(instruction)? {
        b"__fentry__" => Some(Hook::Entry),
        b"__return__" => Some(Hook::Exit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let mut out = Vec::new();
        rewrite(&mut text.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const ENTRY_LINE: &str = "1:\tcall\t*__fentry__@GOTPCREL(%rip)\n";

    fn function(body: &str) -> String {
        format!("\t.type\tf, @function\nf:\n{ENTRY_LINE}{body}")
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = function("\tpushq\t%r10\n\tcall\t__return__\n\tret\n\t.size\tf, .-f\n");
        assert_eq!(rewritten(&text).lines().count(), text.lines().count());
    }

    #[test]
    fn exits_by_return_and_by_jump() {
        let out = rewritten(&function(
            "\tcall\t__return__\n\t.loc 1 2 3\n\trep ret\n.L2:\n\tcall\t__return__\n\tnotrack jmp\t*%rax\n\tcall\t__return__\n\tjmp\t__x86_return_thunk\n\tcall\t__return__\n\tret\n\tcall\t__return__\n\tret\t$8\n",
        ));
        let kinds: Vec<_> = out.match_indices(".popsection").map(|(at, _)| &out[at - 2..at - 1]).collect();
        assert_eq!(kinds, ["0", "1", "2", "1", "3", "1"]);
        assert_eq!(out.matches(":.byte 195,").count(), 1, "a ret of its own before a plain ret only");
        assert_eq!(out.matches(".p2align 3,0x2e,4;").count(), 5, "which may lie anywhere");
        assert!(out.contains(".popsection\trep ret\n"));
    }

    #[test]
    fn nested_functions_lose_the_push_of_their_chain() {
        let text = "\t.type\tg, @function\ng:\n\tpushq\t%r10\n\tendbr64\n1:\tcall\t__fentry__\n\tpopq\t%r10\n\tpushq\t%r10\n\tpopq\t%r10\n";
        let out = rewritten(text);
        assert_eq!(out.matches("pushq\t%r10").count(), 1, "{out}");
        assert_eq!(out.matches("popq\t%r10").count(), 1, "{out}");
        assert!(out.contains("\tendbr64\n"));
        assert_eq!(out.lines().count(), text.lines().count());
    }

    #[test]
    fn patchable_nops_may_stand_between_push_and_hook_call() {
        let between = "\t.section\t__patchable_function_entries,\"awo\",@progbits,f\n\t.quad\t.LPFE2\n\t.text\n.LPFE2:\n\tnop\n";
        let out = rewritten(&format!(
            "\t.type\tg, @function\ng:\n\tpushq\t%r10\n{between}1:\tcall\t__fentry__\n\tpopq\t%r10\n\tret\n"
        ));
        assert!(out.contains(between) && !out.contains("%r10"), "{out}");
        let body = format!("\tpushq\t%r10\n{between}\tmovl\t$1, %eax\n\tpopq\t%r10\n");
        assert!(rewritten(&function(&body)).ends_with(&body));
    }

    #[test]
    fn hook_calls_become_trace_instructions() {
        let text = function("\tcall\t__return__\n\tret\n\tcall\t__return__\n\tjmp\tg\n\t.size\tf, .-f\n");
        let mut out = Vec::new();
        rewrite_to_traces(&mut text.as_bytes(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let bytes: Vec<_> = out.matches(".byte 15,25,").count().to_string().into_bytes();
        assert_eq!(bytes, b"3", "{out}");
        let places = [".byte 15,25,192", ".byte 15,25,200;\tret", ".byte 15,25,208;\tjmp"];
        assert!(places.iter().all(|place| out.contains(place)), "{out}");
        assert!(!out.contains("__") && !out.contains("everycall_sites"), "{out}");
        assert_eq!(out.lines().count(), text.lines().count());
    }

    #[test]
    fn exits_without_entry_go() {
        let out = rewritten("\t.type\tthunk, @function\nthunk:\n\tcall\t__return__\n\tret\n");
        assert!(!out.contains("everycall_sites") && !out.contains("__return__"), "{out}");
    }

    #[test]
    fn cold_parts_belong_to_their_function() {
        let out = rewritten(&function(
            "\tret\n\t.section\t.text.unlikely\n\t.type\tf.cold, @function\nf.cold:\n\tcall\t__return__\n\tret\n",
        ));
        assert_eq!(out.matches(".long .Leverycall_f0-.").count(), 2, "{out}");
        assert_eq!(out.matches(",.Leverycall_s1;").count(), 1, "another section has its own anchor: {out}");
    }

    #[test]
    fn comdat_groups_are_shared() {
        let head = "\t.section\t.text._Zf,\"axG\",@progbits,_Zf,comdat\n";
        let out = rewritten(&format!("{head}{}", function("\tcall\t__return__\n\tret\n")));
        assert_eq!(
            out.matches("everycall_sites,\"aoG\",@progbits,.Leverycall_s0,_Zf,comdat;").count(),
            2,
            "{out}"
        );
    }

    #[test]
    fn inline_assembler_is_unread() {
        let body = "#APP\n\tcall\t__return__\n\tpushq\t%r10\n#NO_APP\n\tpushq\t%r10\n#APP\n";
        let out = rewritten(&function(body));
        assert!(out.ends_with(body), "{out}");
    }

    #[test]
    fn other_calls_stay() {
        for line in [
            "\tcall\t__return__x\n",
            "\tcallq\t__fentry\n",
            "\tcall\tmy__return__\n",
            "\tcall\n",
            "\tcall\t*%rax\n",
        ] {
            assert!(rewritten(&function(line)).ends_with(line));
        }
    }

    #[test]
    fn an_exit_at_the_very_end_has_its_record() {
        let out = rewritten(&function("\tcall\t__return__\n"));
        assert_eq!(out.matches(".popsection").count(), 2);
        let out = rewritten(&function("\tcall\t__return__\n\t.section\t.data\n"));
        assert!(out.contains(".popsection;\t.section\t.data\n"), "{out}");
    }

    /// Pieces of gcc's text in any order: no panic, no lost line, no incomplete record.
    #[test]
    fn jumbled_text_stays_whole() {
        let pieces = [
            "\t.type\tf, @function\n",
            "f:\n",
            ENTRY_LINE,
            "\tcall\t__return__\n",
            "\tret\n",
            "\tjmp\tg@PLT\n",
            "#APP\n",
            "#NO_APP\n",
            "\tpushq\t%r10\n",
            "\tpopq\t%r10\n",
            "\tendbr64\n",
            "\t.text\n",
            "\t.previous\n",
            "\t.popsection\n",
            ".L1:\n",
            "\t.pushsection .x,\"aG\"\n",
            "\t.section\t.y,\"axG\",@progbits,y,comdat\n",
            "\t.size\tf, .-f\n",
            "\n",
        ];
        for text in lines::jumbled(&pieces) {
            let out = rewritten(&text);
            let sections = |word: &str| out.matches(word).count() - text.matches(word).count();
            assert_eq!(sections(".pushsection"), sections(".popsection"), "{text}{out}");
            assert_eq!(sections(".pushsection"), out.matches(":.byte 1").count(), "{text}{out}");
            let added = out.lines().count() - text.lines().count();
            assert!(added <= 1, "only an exit at the very end needs a line of its own: {text}{out}");
        }
    }

    #[test]
    fn long_lines_and_odd_bytes_pass() {
        let long = format!("\t.ascii \"{}\"\n", "x".repeat(200_000));
        assert_eq!(rewritten(&long), long);
        let mut out = Vec::new();
        rewrite(&mut &b"\xff\xfe\0\n\r\n1:\n:\n\t\n"[..], &mut out).unwrap();
        assert_eq!(out, b"\xff\xfe\0\n\r\n1:\n:\n\t\n");
    }
}
