//! Linker names to source names.

use std::fmt::{self, Write};
use std::panic::catch_unwind;

/// Longer linker names are shown as they are.
const MANGLED_SIZE_MAX: usize = 8 << 10;

/// Words that compilers append to the name of a function that they split off or specialised.
const PART_WORDS: [&str; 12] = [
    "cold",
    "part",
    "isra",
    "constprop",
    "llvm",
    "lto_priv",
    "localalias",
    "__uniq",
    "resolver",
    "specialized",
    "warm",
    "clone",
];

/// Beginnings of the words with which compilers name versions of a function for processors.
const VERSION_WORDS: [&str; 12] =
    ["default", "arch_", "avx", "sse", "ssse", "popcnt", "bmi", "fma", "xop", "aes", "pclmul", "ifunc"];

/// Splits `f.part.0.cold` into `f` and `part.0.cold`, and removes the number by which link-time
/// optimisation and gcc's nested functions distinguish local functions of the same name: `f.2847`.
/// A C name that only contains a dot stays whole.
pub fn split_part(linkage_name: &str) -> (&str, Option<&str>) {
    // The first byte may be a dot of the name itself.
    let Some(dot) = linkage_name.bytes().skip(1).position(|byte| byte == b'.').map(|at| at + 1) else {
        return (linkage_name, None);
    };
    if let Some(coroutine) = split_gcc_coroutine(linkage_name) {
        return coroutine;
    }
    if linkage_name.starts_with("_Z") || linkage_name.starts_with("_R") {
        // Mangled names contain no dot, except Rust's legacy ones, which end in `E`:
        // `_ZN4core..$E.llvm.1`.
        let Some(end) = mangled_end(linkage_name) else { return (linkage_name, None) };
        return (&linkage_name[..end], Some(&linkage_name[end + 1..]));
    }
    let mut at = dot;
    loop {
        let rest = &linkage_name[at + 1..];
        if is_number(rest) || rest.split('.').enumerate().all(|(index, word)| is_part_word(word, index)) {
            return (&linkage_name[..at], Some(rest));
        }
        match linkage_name[at + 1..].find('.') {
            Some(next) => at += 1 + next,
            None => return (linkage_name, None),
        }
    }
}

/// Splits gcc's names of a coroutine's body, `_Z3genPZ3geniE13_Z3geni.Frame.actor`, into the
/// coroutine's own name, which the frame's type carries, and `actor` or `destroy`. (clang's are
/// plain: `_Z3geni.resume`.)
fn split_gcc_coroutine(linkage_name: &str) -> Option<(&str, Option<&str>)> {
    const FRAME: &str = ".Frame";
    let dot = linkage_name.find(".Frame.")?;
    let (frame_type, part) = (&linkage_name[..dot], &linkage_name[dot + FRAME.len() + 1..]);
    // The type's name follows its length in decimal.
    let start = frame_type.rmatch_indices("_Z").map(|(at, _)| at).find(|&at| {
        let length = dot - at + FRAME.len();
        at > 0 && frame_type[..at].ends_with(&length.to_string())
    })?;
    Some((&frame_type[start..], Some(part)))
}

/// The name of a part that is a function of its own beside the one that it is split from, the same
/// for every compiler. Of a coroutine, whose plain name is the function that makes it: `resume`
/// (gcc's `actor`), `destroy`, `cleanup` (destroys a coroutine that is in its caller's frame) and
/// `await_suspend` (clang's wrappers of that call). `resolver` chooses among the versions of a
/// function.
pub(crate) fn own_part(part: &str) -> Option<&'static str> {
    let first = part.split('.').next()?;
    match first {
        "actor" => Some("resume"),
        _ if first.starts_with("__await_suspend_wrapper_") => Some("await_suspend"),
        _ => ["resume", "destroy", "cleanup", "resolver"].into_iter().find(|&word| word == first),
    }
}

/// The name shown for a linker name: the source name, and which part of it this is: `gen(int)
/// [resume]`.
pub fn shown_name(linkage_name: &str) -> String {
    let (whole, part) = split_part(linkage_name);
    with_own_part(demangle(whole), part.and_then(own_part))
}

/// `name`, and what part of it this is.
pub(crate) fn with_own_part(name: String, own_part: Option<&str>) -> String {
    match own_part {
        Some(part) => format!("{name} [{part}]"),
        None => name,
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Words and numbers; a number only after a word.
fn is_part_word(word: &str, index: usize) -> bool {
    PART_WORDS.contains(&word)
        || (index == 0 && VERSION_WORDS.iter().any(|version| word.starts_with(version)))
        || (index > 0 && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The dot where a mangled name's suffix begins.
fn mangled_end(name: &str) -> Option<usize> {
    let is_suffix = |at: usize| {
        let word = name[at + 1..].split('.').next().unwrap_or_default();
        !word.is_empty() && (PART_WORDS.contains(&word) || word.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let first = dots.clone().next()?;
    // Legacy Rust names write `::` and closures with dots inside (`..`, `$u7b$`), and end in
    // `17h<hash>E`.
    if name[..first].ends_with('E') || !name.contains("17h") {
        return Some(first);
    }
    dots.find(|&at| name[..at].ends_with('E') && is_suffix(at))
}

/// The source name of a linker name without part suffix: C++ (Itanium) and Rust (legacy and v0),
/// with parameters, and for Rust without the hash. A thunk has the name of the function that it
/// leads to, because it is another entry to that function. Other names, and those that no demangler
/// understands, are unchanged.
pub fn demangle(linkage_name: &str) -> String {
    if linkage_name.len() > MANGLED_SIZE_MAX || !linkage_name.starts_with('_') {
        return linkage_name.to_owned();
    }
    let target = thunk_target(linkage_name);
    demangle_whole(target.as_deref().unwrap_or(linkage_name), linkage_name)
}

/// Whether a demangled name is that of a function with this plain name, in whichever scope and with
/// whichever parameters.
pub(crate) fn is_named(demangled: &str, plain: &str) -> bool {
    !plain.is_empty()
        && demangled.match_indices(plain).any(|(at, _)| {
            let (before, behind) = (&demangled[..at], &demangled[at + plain.len()..]);
            let begins = before.is_empty() || before.ends_with([':', ' ']);
            let is_whole = behind.is_empty() || behind.starts_with(['(', '<', '[']);
            // Not the scope of another one, as of a lambda.
            begins && is_whole && !without_brackets(behind).contains("::")
        })
}

/// A text without its bracketed parts.
fn without_brackets(text: &str) -> String {
    let mut depth = 0_i32;
    let mut outside = String::new();
    for letter in text.chars() {
        depth += i32::from(matches!(letter, '(' | '<' | '[' | '{'));
        if depth <= 0 {
            outside.push(letter);
        }
        depth -= i32::from(matches!(letter, ')' | '>' | ']' | '}'));
    }
    outside
}

/// The pointers that a thunk adjusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thunk {
    /// It moves the pointer to the object.
    This,
    /// It moves the returned pointer, too.
    Result,
}

/// Splits a thunk's linker name, with or without a part's suffix, into the kind of thunk and the
/// name of the function that it leads to, without `_Z`.
fn split_thunk(linkage_name: &str) -> Option<(Thunk, &str)> {
    let rest = split_part(linkage_name).0.strip_prefix("_ZT")?;
    let (kind, target) = match rest.as_bytes().first()? {
        b'h' | b'v' => (Thunk::This, without_offset(rest)?),
        b'c' => (Thunk::Result, without_offset(without_offset(&rest[1..])?)?),
        _ => return None,
    };
    (!target.is_empty()).then_some((kind, target))
}

/// The linker's name of the function that the thunk of this name leads to; `None` for other
/// functions.
pub(crate) fn thunk_target(linkage_name: &str) -> Option<String> {
    Some(format!("_Z{}", split_thunk(linkage_name)?.1))
}

/// The kind of thunk that a linker name stands for, if any.
pub(crate) fn thunk(linkage_name: &str) -> Option<Thunk> {
    Some(split_thunk(linkage_name)?.0)
}

/// The text after `h NUMBER _` or `v NUMBER _ NUMBER _`: a thunk's pointer adjustment.
fn without_offset(text: &str) -> Option<&str> {
    let number = |text: &'_ str| -> Option<usize> {
        let digits = text.strip_prefix('n').unwrap_or(text);
        let end = digits.find(|c: char| !c.is_ascii_digit()).filter(|&end| end > 0)?;
        digits[end..].starts_with('_').then_some(text.len() - digits.len() + end + 1)
    };
    let first = &text[1..];
    match text.as_bytes().first()? {
        b'h' => Some(&first[number(first)?..]),
        b'v' => {
            let second = &first[number(first)?..];
            Some(&second[number(second)?..])
        }
        _ => None,
    }
}

/// `linkage_name` in the language of its source, or `otherwise`.
fn demangle_whole(linkage_name: &str, otherwise: &str) -> String {
    let name = if is_rust(linkage_name) { demangle_rust(linkage_name) } else { None };
    let name = name.or_else(|| everycall_demangle::demangle(linkage_name));
    name.unwrap_or_else(|| otherwise.to_owned())
}

/// Whether a name is of one of Rust's schemes; the older one is C++'s, with a hash at the end.
fn is_rust(linkage_name: &str) -> bool {
    const HASH: usize = 16;
    if linkage_name.starts_with("_R") || linkage_name.starts_with("__R") {
        return true;
    }
    let hash = linkage_name.strip_suffix('E').and_then(|rest| {
        let (before, hash) = rest.split_at_checked(rest.len().checked_sub(HASH)?)?;
        before.ends_with("17h").then_some(hash)
    });
    hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Without the hash. `None` if it isn't Rust's, or would be longer than any name may be.
fn demangle_rust(linkage_name: &str) -> Option<String> {
    let demangled = catch_unwind(|| {
        let name = rustc_demangle::try_demangle(linkage_name).ok()?;
        let mut text = Bounded(String::new());
        write!(text, "{name:#}").ok()?;
        Some(text.0)
    });
    demangled.ok().flatten().filter(|name| !name.is_empty())
}

/// A text that takes no more than a name may have.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > everycall_demangle::TEXT_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Whether a linker name is that of a C++ constructor or destructor: these have several under one
/// name in the source.
pub(crate) fn is_structor(linkage_name: &str) -> bool {
    let is_kind = |word: &[u8]| matches!(word, [b'C', b'1'..=b'5', b'E' | b'I'] | [b'D', b'0'..=b'5', b'E']);
    linkage_name.starts_with("_ZN") && linkage_name.as_bytes().windows(3).any(is_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names() {
        for (demangled, plain) in [
            ("f", "f"),
            ("f(int)", "f"),
            ("a::C<b::D>::f(std::vector<int>) const", "f"),
            ("void f<2>()", "f"),
            ("a::C::~C()", "~C"),
            ("f()::{lambda()#1}::operator()() const", "operator()"),
            ("f()::Within::g(int)", "g"),
            ("f[abi:cxx11](a::b)", "f"),
        ] {
            assert!(is_named(demangled, plain), "{demangled} {plain}");
        }
        for (demangled, plain) in [
            ("f()::{lambda()#1}::operator()() const", "f"),
            ("f()::Within::g(int)", "f"),
            ("f(int)::Within::g(f)", "Within"),
            ("off(int)", "f"),
            ("f(g)", "g"),
            ("f", ""),
        ] {
            assert!(!is_named(demangled, plain), "{demangled} {plain}");
        }
    }

    #[test]
    fn parts_are_split_off() {
        for (name, want) in [
            ("f", ("f", None)),
            ("f.cold", ("f", Some("cold"))),
            ("f.cold.3", ("f", Some("cold.3"))),
            ("f.constprop.0.isra.0.cold", ("f", Some("constprop.0.isra.0.cold"))),
            ("f.lto_priv.12", ("f", Some("lto_priv.12"))),
            ("f.llvm.1234567890", ("f", Some("llvm.1234567890"))),
            ("nested.0", ("nested", Some("0"))),
            ("nested.0.part.1", ("nested.0", Some("part.1"))),
            ("local.2847", ("local", Some("2847"))),
            ("f.avx2", ("f", Some("avx2"))),
            ("f.arch_haswell.0", ("f", Some("arch_haswell.0"))),
            ("f.default.1", ("f", Some("default.1"))),
            ("f.resolver", ("f", Some("resolver"))),
            ("a.b", ("a.b", None)),
            ("a.1b", ("a.1b", None)),
            (".hidden", (".hidden", None)),
            ("_Z1fv.part.0", ("_Z1fv", Some("part.0"))),
            ("_Z1fv.avx2.0", ("_Z1fv", Some("avx2.0"))),
            ("_Z3genPZ3geniE13_Z3geni.Frame.actor", ("_Z3geni", Some("actor"))),
            ("_Z3genPZ3geniE13_Z3geni.Frame.destroy.cold", ("_Z3geni", Some("destroy.cold"))),
            ("_Z1fv.Frame.actor", ("_Z1fv", Some("Frame.actor"))),
            (
                "_ZN4core3fmt17h0123456789abcdefE.llvm.77",
                ("_ZN4core3fmt17h0123456789abcdefE", Some("llvm.77")),
            ),
            (
                "_ZN42_$LT$a..b..C$u20$as$u20$d..E$GT$3fmt17h0123456789abcdefE",
                ("_ZN42_$LT$a..b..C$u20$as$u20$d..E$GT$3fmt17h0123456789abcdefE", None),
            ),
            ("", ("", None)),
            (".", (".", None)),
            ("a.", ("a.", None)),
        ] {
            assert_eq!(split_part(name), want, "{name}");
        }
    }

    #[test]
    fn parts_that_are_functions_are_called_the_same_for_every_compiler() {
        for (name, want) in [
            ("_Z3genPZ3geniE13_Z3geni.Frame.actor", "gen(int) [resume]"),
            ("_Z3genPZ3geniE13_Z3geni.Frame.actor.cold", "gen(int) [resume]"),
            ("_Z3genPZ3geniE13_Z3geni.Frame.destroy.lto_priv.0", "gen(int) [destroy]"),
            ("_Z3geni.resume", "gen(int) [resume]"),
            ("_Z3geni.resume.llvm.77", "gen(int) [resume]"),
            ("_Z3geni.destroy", "gen(int) [destroy]"),
            ("_Z3geni.cleanup", "gen(int) [cleanup]"),
            ("_Z3geni.__await_suspend_wrapper__await2", "gen(int) [await_suspend]"),
            ("_Z3geni.noalloc", "gen(int)"),
            ("_Z3geni.cold", "gen(int)"),
            ("_Z3geni", "gen(int)"),
            ("f.resolver", "f [resolver]"),
            ("f.resume", "f.resume"),
        ] {
            assert_eq!(shown_name(name), want, "{name}");
        }
    }

    #[test]
    fn structors_are_known_by_their_names() {
        for name in ["_ZN1AC1Ev", "_ZN2ns1AIiED0Ev", "_ZN1AC2ERKS_", "_ZN1AC1IiEET_"] {
            assert!(is_structor(name), "{name}");
        }
        for name in ["_ZN1A1fEv", "main", "_Z2C1Ev", "_ZN3foo3barIiEEvT_"] {
            assert!(!is_structor(name), "{name}");
        }
    }

    #[test]
    fn names_of_three_schemes_are_demangled() {
        for (name, want) in [
            ("_ZN3foo3barIiEEvT_", "void foo::bar<int>(int)"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("main", "main"),
            ("_start", "_start"),
            ("_Zbroken", "_Zbroken"),
            ("_ZThn16_N1D1gEi", "D::g(int)"),
            ("_ZTv0_n24_N1DD1Ev", "D::~D()"),
            ("_ZTcv0_n32_v0_n24_N1D4selfEv", "D::self()"),
            ("_ZTchn32_h32_N1D4selfEv", "D::self()"),
            ("_ZThn16_", "_ZThn16_"),
            ("_ZTh", "_ZTh"),
            ("_ZTv0_n_N1DD1Ev", "_ZTv0_n_N1DD1Ev"),
        ] {
            assert_eq!(demangle(name), want, "{name}");
        }
    }
}
