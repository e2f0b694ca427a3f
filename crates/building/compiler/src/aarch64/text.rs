//! Instructions in text for the assembler, and the text of sites.
//!
//! gcc calls no hooks at exits here. So the assembler step finds them: returns, and branches to
//! other functions. A branch to an address in a register may also be a `switch`; gcc's option `-dp`
//! names the pattern of each instruction in a comment, and those of calls in place of a return
//! contain `sibcall`.

use everycall_format::site::site_kind;

/// The options by which gcc marks entries and names patterns. Hooks change registers that callees
/// may change by the ABI.
pub(crate) const OPTIONS: &str = "-fpatchable-function-entry=1 -fno-ipa-ra -dp";

/// How gcc's labels of marked entries begin; a NOP follows.
pub(crate) const MARK: &[u8] = b".LPFE";

/// The section in which gcc lists them.
pub(crate) const MARKS_SECTION: &[u8] = b"__patchable_function_entries";

/// Directives of functions with another calling convention: their arguments and results are in
/// registers that hooks don't keep.
pub(crate) const VARIANT: &[u8] = b".variant_pcs";

/// A site, between its label and what follows. `nop` is switched; the address behind its call is
/// that of a hook's return. The first instruction keeps the function's own return address, and is
/// there from the beginning: a thread may stand between the two when the second one changes.
pub(crate) const SITE: &str = "mov x9,x30;nop;";

/// How a function is left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Exit {
    /// The kind of its site.
    pub kind: u32,
    /// Instructions before the site.
    pub before: String,
    /// The instruction by which it leaves.
    pub instruction: String,
    /// Unwind information that differs from that of a function's first instruction.
    pub frame: &'static str,
}

/// The exit that a line is, with its comment; `None` if it is none.
pub(crate) fn exit(line: &[u8]) -> Option<Exit> {
    let line = std::str::from_utf8(line).ok()?;
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let mut words = code.split_ascii_whitespace();
    let (instruction, operand) = (words.next()?, words.next().unwrap_or_default());
    let plain = |kind, frame| Exit {
        kind,
        before: String::new(),
        instruction: code.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        frame,
    };
    match instruction {
        // Through another register, it is a jump.
        "ret" if operand.is_empty() || operand == "x30" => Some(plain(site_kind::EXIT, "")),
        "retaa" => Some(plain(site_kind::EXIT, ".cfi_negate_ra_state;")),
        "retab" => Some(plain(site_kind::EXIT, ".cfi_b_key_frame;.cfi_negate_ra_state;")),
        "b" if !operand.is_empty() && !is_local(operand) => Some(plain(site_kind::TAIL_EXIT, "")),
        "br" if comment.contains("sibcall") => {
            let mut exit = plain(site_kind::TAIL_EXIT, "");
            let number = operand.strip_prefix('x').and_then(|number| number.parse::<u8>().ok());
            // Hooks keep those of arguments, and the two that linkers' code may change.
            if number.is_some_and(|number| (9..16).contains(&number)) {
                exit.before = format!("mov x16,{operand};");
                exit.instruction = "br x16".to_owned();
            }
            Some(exit)
        }
        _ => None,
    }
}

/// Labels within a function: those of compilers, and numbers.
fn is_local(label: &str) -> bool {
    label.starts_with(".L") || label.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether a label stands for debugging information and tables only, so that code doesn't jump to
/// it.
pub(crate) fn is_for_tables(label: &[u8]) -> bool {
    [b".LFB", b".LVL", b".LBB", b".LBI", b".LCO", b".LHO", b".LFS", b".LPF", b".LEH"]
        .iter()
        .any(|known| label.starts_with(*known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_returns_and_branches_to_functions() {
        let found =
            |line: &str| exit(line.as_bytes()).map(|exit| (exit.kind, exit.before + &exit.instruction));
        let is = |kind, text: &str| Some((kind, text.to_owned()));
        assert_eq!(found("\tret\t\t// 53\t[c=0 l=4]  *do_return"), is(site_kind::EXIT, "ret"));
        assert_eq!(found("\tretaa"), is(site_kind::EXIT, "retaa"));
        assert_eq!(
            found("\tb\tg\t\t// 12\t[c=4 l=4]  *sibcall_value_insn/1"),
            is(site_kind::TAIL_EXIT, "b g")
        );
        assert_eq!(found("\tbr\tx16\t// 23  *sibcall_insn/0"), is(site_kind::TAIL_EXIT, "br x16"));
        assert_eq!(found("\tbr\tx9\t// 23  *sibcall_insn/0"), is(site_kind::TAIL_EXIT, "mov x16,x9;br x16"));
        assert_eq!(found("\tbr\tx2\t// 23  *sibcall_insn/0"), is(site_kind::TAIL_EXIT, "br x2"));
        for other in [
            "\tb\t.L5",
            "\tb.eq\t.L5",
            "\tbl\tf",
            "\tbr\tx0\t// 9 casesi_dispatch",
            "\tret\tx17",
            "\tblr\tx1",
        ] {
            assert_eq!(found(other), None, "{other}");
        }
        assert!(exit(b"\tretaa").unwrap().frame.contains("negate"));
    }
}
