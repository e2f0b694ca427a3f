//! A compiler's assembler text: what comes out has the same lines but for those that are a site's, and text
//! without hook calls comes out as it went in.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let mut out = Vec::new();
    let result = everycall_compiler::rewrite(&mut &text[..], &mut out);
    if result.is_ok() && !contains(text, b"__fentry__") && !contains(text, b"__return__") {
        assert_eq!(strip_last_newline(&out), strip_last_newline(text));
    }
});

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn strip_last_newline(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}
