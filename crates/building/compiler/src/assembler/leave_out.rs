//! Removes the hook calls and sleds of functions that a list leaves out, before the other steps see
//! the text.
//!
//! A compiler's text contains what patterns need: a function's name, instructions, jumps, and
//! source file. Whether a function stays is known at its end. The whole text is therefore read
//! first, and candidate lines are recorded. Removed lines become empty, so that the assembler's
//! diagnostics have the right line numbers.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use everycall_patterns::{Code, Compiled, Selection};

use crate::arch::{self, text::Instruction};

use super::rewriter::{self, Hook};

/// How clang's labels of entry and exit sleds begin, and the sections that list them.
const SLED: &[u8] = b".Lxray_sled_";
const SLED_SECTIONS: [&[u8]; 2] = [b"xray_instr_map", b"xray_fn_idx"];

/// The selection in a file that the compiler prefix wrote.
pub(super) fn selection(path: &Path) -> io::Result<Selection> {
    let name = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = everycall_io::infile::read_text(path, 64 << 20).map_err(|error| name(&error))?;
    Selection::from_text(&text).ok_or_else(|| name(&"not a list of functions"))
}

/// The text without the hook calls and sleds of functions that aren't selected.
pub(super) fn apply(text: Vec<u8>, selection: &Selection) -> Vec<u8> {
    let mut reader = Reader::default();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        reader.line(line, at..at + line.len());
        at += line.len();
    }
    let is_kept: Vec<bool> =
        reader.functions.iter().map(|function| reader.keeps(function, selection)).collect();
    let mut out = Vec::with_capacity(text.len());
    let mut copied = 0;
    for (line, function) in reader.removable {
        if !is_kept.get(function).copied().unwrap_or(true) {
            out.extend_from_slice(&text[copied..line.start]);
            out.push(b'\n');
            copied = line.end;
        }
    }
    out.extend_from_slice(&text[copied..]);
    out
}

#[derive(Default)]
struct Function {
    name: Vec<u8>,
    code: Code,
    /// The number of its first line's source file.
    file: Option<u32>,
}

#[derive(Default)]
struct Reader {
    functions: Vec<Function>,
    /// Lines to remove if the function with this index is left out, in order.
    removable: Vec<(Range<usize>, usize)>,
    /// Names declared as functions, until their labels.
    declared: Vec<Vec<u8>>,
    files: HashMap<u32, PathBuf>,
    main_file: Option<PathBuf>,
    /// Local labels of the current function, and the part of it that they are in.
    labels: HashMap<Vec<u8>, u32>,
    part: u32,
    in_app: bool,
    is_in_sled_section: bool,
    /// Whether the current lines belong to a sled.
    in_sled: bool,
    /// An instruction that belongs to the next hook call, if one comes.
    push: Option<Range<usize>>,
    drop_pop: bool,
    /// The last line, if it aligns.
    alignment: Option<Range<usize>>,
}

impl Reader {
    fn keeps(&self, function: &Function, selection: &Selection) -> bool {
        let file = match function.file {
            Some(number) => self.files.get(&number),
            None => self.main_file.as_ref(),
        };
        let file = file.map(|path| absolute(path).to_string_lossy().into_owned());
        let name = String::from_utf8_lossy(&function.name);
        selection.keeps(&mut Compiled::new(name.trim_matches('"'), function.code, file))
    }

    fn remove(&mut self, line: Range<usize>) {
        if let Some(function) = self.functions.len().checked_sub(1) {
            self.removable.push((line, function));
        }
    }

    fn line(&mut self, line: &[u8], at: Range<usize>) {
        match line.trim_ascii_end() {
            b"#APP" => self.in_app = true,
            b"#NO_APP" => self.in_app = false,
            _ => {}
        }
        let alignment = self.alignment.take();
        let text = without_comment(line).trim_ascii();
        if text.is_empty() {
            self.alignment = alignment;
            return;
        }
        if text.starts_with(SLED) && text.ends_with(b":") && !self.in_app {
            if let Some(alignment) = alignment {
                self.remove(alignment);
            }
            self.in_sled = true;
            return self.remove(at);
        }
        if self.is_in_sled_section && !is_section_change(text) {
            return self.remove(at);
        }
        if text.starts_with(b".") && !text.ends_with(b":") {
            return self.directive(text, at);
        }
        for statement in text.split(|byte| *byte == b';') {
            self.statement(statement.trim_ascii(), &at);
        }
    }

    fn directive(&mut self, text: &[u8], at: Range<usize>) {
        let end = text.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(text.len());
        let (word, operands) = (&text[..end], text[end..].trim_ascii());
        match word {
            b".p2align" if !self.in_app => self.alignment = Some(at),
            // The jump over an entry's sled.
            b".ascii" | b".byte" if self.in_sled => self.remove(at),
            b".type" if !self.in_app => {
                if let Some(name) = operands.strip_suffix(b"@function") {
                    let name = name.trim_ascii_end();
                    self.declared.push(name.strip_suffix(b",").unwrap_or(name).trim_ascii().to_vec());
                }
            }
            b".file" if !self.in_app => self.file(operands),
            b".loc" if !self.in_app => {
                let number = operands.split(u8::is_ascii_whitespace).next().and_then(number);
                if let Some(function) = self.functions.last_mut() {
                    function.file = function.file.or(number);
                }
            }
            _ if is_section_change(text) => {
                let is_list = SLED_SECTIONS.iter().any(|name| operands.starts_with(name));
                self.is_in_sled_section = is_list && word == b".section";
                if self.is_in_sled_section {
                    self.remove(at);
                }
            }
            _ => {}
        }
    }

    /// `.file "main.c"`, `.file 1 "a.c"` or `.file 1 "folder" "a.c" md5 ...`.
    fn file(&mut self, operands: &[u8]) {
        let text = String::from_utf8_lossy(operands);
        let mut quoted = text.split('"').skip(1).step_by(2);
        let Some(first) = quoted.next() else { return };
        let path = quoted.next().map_or_else(|| PathBuf::from(first), |name| Path::new(first).join(name));
        match operands.split(u8::is_ascii_whitespace).next().and_then(number) {
            Some(number) => {
                self.files.insert(number, path);
            }
            None => self.main_file = Some(path),
        }
    }

    fn label(&mut self, name: &[u8]) {
        let Some(declared) = self.declared.iter().position(|declared| declared == name) else {
            self.labels.insert(name.to_vec(), self.part);
            return;
        };
        self.declared.swap_remove(declared);
        self.part += 1;
        let current = self.functions.last().map(|function| &function.name[..]).unwrap_or_default();
        if !rewriter::is_cold_part(name, current) {
            self.functions.push(Function { name: name.to_vec(), ..Function::default() });
            self.labels.clear();
        }
        self.labels.insert(name.to_vec(), self.part);
    }

    fn statement(&mut self, mut text: &[u8], at: &Range<usize>) {
        // Labels stand before the instruction.
        while let Some(end) = label_end(text) {
            self.label(&text[..end]);
            text = text[end + 1..].trim_ascii();
        }
        if text.is_empty() || text.starts_with(b".") {
            return;
        }
        if self.in_sled && !arch::text::is_return(text) {
            self.in_sled = false;
            if arch::text::is_nop(text) {
                return self.remove(at.clone());
            }
        }
        let hook = if self.in_app { None } else { rewriter::hook_call(text) };
        let push = self.push.take();
        if let Some(hook) = hook {
            if let (Hook::Entry, Some(push)) = (hook, push) {
                self.remove(push);
                self.count(-1);
                self.drop_pop = true;
            }
            return self.remove(at.clone());
        }
        if std::mem::take(&mut self.drop_pop) && arch::text::restores_chain(text) {
            return self.remove(at.clone());
        }
        if !self.in_app && arch::text::saves_chain(text) {
            self.push = Some(at.clone());
        } else if arch::text::may_precede_hook(text) {
            self.push = push;
        }
        self.instruction(text);
    }

    fn count(&mut self, more: i32) {
        if let Some(function) = self.functions.last_mut() {
            function.code.instructions = function.code.instructions.saturating_add_signed(more);
        }
    }

    fn instruction(&mut self, text: &[u8]) {
        let Some(instruction) = arch::text::instruction(text) else { return };
        self.count(1);
        let Instruction::Jump(Some(target)) = instruction else { return };
        let is_numeric =
            target.strip_suffix(b"b").is_some_and(|digits| digits.iter().all(u8::is_ascii_digit));
        let is_backward = self.labels.get(target) == Some(&self.part) || is_numeric && target.len() > 1;
        if let Some(function) = self.functions.last_mut() {
            function.code.has_loop |= is_backward;
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::env::current_dir().map_or_else(|_| path.to_owned(), |folder| folder.join(path))
}

fn number(word: &[u8]) -> Option<u32> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn is_section_change(text: &[u8]) -> bool {
    let end = text.iter().position(|byte| byte.is_ascii_whitespace()).unwrap_or(text.len());
    let words: [&[u8]; 7] =
        [b".text", b".data", b".bss", b".section", b".pushsection", b".popsection", b".previous"];
    words.contains(&&text[..end])
}

/// The text before a `#` that isn't within quotes.
fn without_comment(line: &[u8]) -> &[u8] {
    let mut is_quoted = false;
    let end = line.iter().position(|byte| {
        is_quoted ^= *byte == b'"';
        *byte == b'#' && !is_quoted
    });
    &line[..end.unwrap_or(line.len())]
}

/// Position of the colon of a label at the beginning of the text.
fn label_end(text: &[u8]) -> Option<usize> {
    if text.first() == Some(&b'"') {
        let end = 1 + text[1..].iter().position(|byte| *byte == b'"')?;
        return (text.get(end + 1) == Some(&b':')).then_some(end + 1);
    }
    let end = text
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || b"_.$@".contains(byte) || *byte >= 0x80))?;
    (end > 0 && text[end] == b':').then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(text: &str, not: &str) -> String {
        let selection = Selection::of_options(&[], &[not.to_owned()]).unwrap();
        String::from_utf8(apply(text.as_bytes().to_vec(), &selection)).unwrap()
    }

    const GCC: &str = "\t.file\t\"a.c\"\n\t.type\tf, @function\nf:\n1:\tcall\t*__fentry__@GOTPCREL(%rip)\n\
        \t.file 1 \"lib/a.h\"\n\t.loc 1 2 3\n.L2:\n\tdecl\t%eax\n\tjne\t.L2\n\tcall\t__return__\n\tret\n\t.size\tf, .-f\n\
        \t.type\tg, @function\ng:\n\tpushq\t%r10\n1:\tcall\t__fentry__\n\tpopq\t%r10\n\tjmp\t.L3\n\
        .L3:\n\tcall\t__return__\n\trep ret\n\t.section\t.text.unlikely\n\t.type\tg.cold, @function\n\
        g.cold:\n\tcall\t__return__\n\tjmp\t.L3\n";

    #[test]
    fn gccs_hook_calls_go() {
        for (not, f, g) in [
            ("f", 0, 3),
            ("g", 2, 0),
            ("has:loop", 0, 3),
            ("size:=3", 0, 0),
            ("size:<3", 2, 3),
            ("file:lib/*.h", 0, 3),
            ("file:a.c", 2, 0),
            ("nothing", 2, 3),
        ] {
            let text = left_out(GCC, not);
            assert_eq!(text.lines().count(), GCC.lines().count(), "{not}");
            let (first, second) = text.split_once("g:\n").unwrap();
            let calls = |text: &str| text.matches("__fentry__").count() + text.matches("__return__").count();
            assert_eq!((calls(first), calls(second)), (f, g), "{not}: {text}");
            assert_eq!(text.contains("%r10"), g > 0, "{not}");
            assert!(text.contains("rep ret"));
        }
        assert_eq!(left_out(GCC, "nothing"), GCC);
    }

    const CLANG: &str = "\t.type\tf,@function\nf:            # @f\n.Lfunc_begin0:\n\t.p2align\t1, 0x90\n.Lxray_sled_0:\n\
        \t.ascii\t\"\\353\\t\"\n\tnopw\t512(%rax,%rax)\n\tincl\t%eax\n\t.p2align\t1, 0x90\n.Lxray_sled_1:\n\tretq\n\
        \tnopw\t%cs:512(%rax,%rax)\n\t.size\tf, .Lfunc_end0-f\n\t.section\txray_instr_map,\"ao\",@progbits,f\n\
        .Lxray_sleds_start0:\n.Ltmp2:\n\t.quad\t.Lxray_sled_0-.Ltmp2\n\t.section\txray_fn_idx,\"ao\",@progbits,f\n\
        \t.p2align\t4, 0x90\n\t.quad\t2\n\t.text\n";

    #[test]
    fn clangs_sleds_go() {
        let words = |text: &str| {
            text.lines()
                .filter(|line| !line.is_empty())
                .map(|line| line.trim().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(&left_out(CLANG, "f")),
            [
                ".type\tf,@function",
                "f:            # @f",
                ".Lfunc_begin0:",
                "incl\t%eax",
                "retq",
                ".size\tf, .Lfunc_end0-f",
                ".text"
            ]
        );
        assert_eq!(left_out(CLANG, "size:<2"), CLANG);
        assert_eq!(left_out(CLANG, "size:=2"), left_out(CLANG, "f"));
    }
}
