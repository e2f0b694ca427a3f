//! Facts about functions whose symbols were removed.

use crate::common::{Workshop, open};
use everycall_symbols::{ModuleSymbols, SymbolOptions};

/// `f`, which is exported, and `g`, which is not: each begins with the call of a hook, and has a cold part with an exit. With `SITES`,
/// both are listed.
const PARTS: &str = r#"
	.macro site kind, function
	call hook
9:
	.ifdef SITES
	.pushsection everycall_sites,"a"
	.long 9b-5-.
	.long .Lstart_\function-.
	.long \kind
	.popsection
	.endif
	.endm
	.macro function name
	.text
	.p2align 4
	.type \name, @function
\name:
.Lstart_\name:
	.cfi_startproc
	site 0, \name
	nop
	site 1, \name
	ret
	.cfi_endproc
	.size \name, .-\name
	.section .text.unlikely
	.type \name\().cold, @function
\name\().cold:
	.cfi_startproc
	call other
	site 1, \name
	ret
	.cfi_endproc
	.size \name\().cold, .-\name\().cold
	.endm
	.globl f
	function f
	function g
	.text
hook:
	ret
other:
	ret
"#;

/// The module with its symbols, without them, and finally without unwind information.
fn build(workshop: &Workshop, flags: &[&str]) -> [ModuleSymbols; 3] {
    std::fs::write(workshop.path("parts.s"), PARTS).unwrap();
    let gcc = ["gcc", "-shared", "-nostdlib", "-Wl,--build-id", "parts.s", "-o", "parts.so"];
    workshop.run(&[&gcc, flags].concat());
    workshop.run(&["strip", "-o", "stripped.so", "parts.so"]);
    workshop.run(&["strip", "-R", ".eh_frame", "-o", "bare.so", "parts.so"]);
    ["parts.so", "stripped.so", "bare.so"].map(|name| open(&workshop.path(name), &SymbolOptions::bare()))
}

/// Where each function begins, and behind the exit in its cold part.
struct Addresses {
    f: u64,
    f_cold: u64,
    g: u64,
    g_cold: u64,
}

fn addresses(symbols: &ModuleSymbols) -> Addresses {
    let start = |name: &[u8]| {
        let mut entries = symbols.functions();
        entries.find(|entry| entry.linkage_name == name).map(|entry| entry.start).unwrap()
    };
    Addresses { f: start(b"f"), f_cold: start(b"f.cold") + 10, g: start(b"g"), g_cold: start(b"g.cold") + 10 }
}

#[test]
fn sites_tell_which_function_a_part_belongs_to() {
    let workshop = Workshop::new();
    let modules = build(&workshop, &["-Wa,--defsym,SITES=1"]);
    let Addresses { f, f_cold, g, g_cold } = addresses(&modules[0]);
    for mut symbols in modules {
        assert_eq!(symbols.is_same_function(f, f_cold), Some(true));
        assert_eq!(symbols.is_same_function(g, g_cold), Some(true));
        assert_eq!(symbols.is_same_function(f, g_cold), Some(false));
        assert_eq!(symbols.is_same_function(f, g + 11), Some(false));
        for (start, cold) in [(f, f_cold), (g, g_cold)] {
            let whole = symbols.function_at(start);
            let name = symbols.function(whole).name.clone();
            let part = symbols.function_at(cold);
            let part = symbols.function(part);
            assert_eq!((&part.name, part.part.as_deref()), (&name, Some("cold")));
            assert_eq!(part.whole, Some(whole));
        }
    }
}

/// A function begins with its hook; what doesn't may be a part of any.
#[test]
fn without_sites_a_part_may_belong_to_any_function() {
    let workshop = Workshop::new();
    let [mut whole, mut stripped, _] = build(&workshop, &[]);
    let Addresses { f, f_cold, g, g_cold } = addresses(&whole);
    assert_eq!(whole.is_same_function(f, f_cold), Some(true));
    assert_eq!(whole.is_same_function(f, g_cold), Some(false));
    for (entry, code, same) in [
        (f, f_cold, None),
        (g, g_cold, None),
        (f, g_cold, None),
        (f, g + 11, Some(false)),
        (g, f + 11, Some(false)),
        (f, f + 11, Some(true)),
        (g, g + 11, Some(true)),
    ] {
        assert_eq!(stripped.is_same_function(entry, code), same, "{entry:#x} {code:#x}");
    }
}
