//! C++ linker names (Itanium C++ ABI) as people write them, in the spelling of GNU `c++filt`.
//!
//! Names come from untrusted files. Parsing makes little more than one node for each byte. Because
//! nodes are shared (substitutions), a short name may stand for an endless text: depth, steps and
//! the text's size are bounded, and a name beyond any bound is `None`. No `unsafe`, no panics, no
//! state between names.
//!
//! The [ABI](https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling) explains the grammar's
//! words; the functions of the parser are named after its productions.
//!
//! Not here: files, other languages.
//!
//! Checked by: `c++filt`, hostile names, fuzzing.

#![forbid(unsafe_code)]

mod expressions;
mod node;
mod operators;
mod parser;
mod print;
mod print_expressions;
mod short;
mod templates;
mod types;

pub use print::TEXT_MAX;
pub use short::short_name;

/// Runs the example of the crate's front page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct FrontPage;

/// The function or object that a linker name stands for: `void f<int>(int)` for `_Z1fIiEvT_`.
/// `None` if it is not such a name.
#[must_use]
pub fn demangle(linkage_name: &str) -> Option<String> {
    let rest = linkage_name.strip_prefix("_Z").or_else(|| linkage_name.strip_prefix("__Z"))?;
    // Compilers don't agree on whether scopes in expressions may be substituted later: a name that
    // can't be read one way is read the other way.
    let mut parser = None;
    for are_scopes_plain in [false, true] {
        let mut attempt = parser::Parser::new(rest);
        attempt.are_scopes_plain = are_scopes_plain;
        let root = attempt.encoding(true).filter(|_| attempt.is_at_end());
        if let Some(root) = root {
            parser = Some((attempt, root));
            break;
        }
        if !rest.contains("srN") {
            return None;
        }
    }
    let (parser, root) = parser?;
    print::text(&parser.nodes, &parser.lists, root)
}

/// The type that a mangled type stands for: `std::vector<int, std::allocator<int> >` for
/// `St6vectorIiSaIiEE`.
#[must_use]
pub fn demangle_type(mangled: &str) -> Option<String> {
    let mut parser = parser::Parser::new(mangled);
    let root = parser.ty()?;
    if !parser.is_at_end() {
        return None;
    }
    print::text(&parser.nodes, &parser.lists, root)
}
