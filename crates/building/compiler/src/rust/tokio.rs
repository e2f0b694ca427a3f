//! The functions of tokio that its tasks pass through. Each gets the task's header as its first
//! argument, or returns it; its address is what identifies a task while it lives.
//!
//! LLVM lets them call `__fentry__` as their first instruction, where the argument is still in its
//! register. The kit's `wrappers/tokio.c` takes these calls; it distinguishes the functions by the
//! instructions before the call, which have no other purpose: LLVM's ones of 4 to 7 bytes that do
//! nothing, with addresses that no assembler pads with.
//!
//! Names of tasks: the linker name of a function for a task has a hash in place of the task's type,
//! and debugging information may lack functions. So the types that the first run shows are kept in
//! a file beside the crate's library, and the linker step puts them all into the program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// tokio's library, as the name of a crate and in file names.
pub(super) const CRATE: &str = "tokio";
/// Of the files with the names of a crate's tasks: a line for each function, with its linker name,
/// a tab and the name of its tasks.
pub(super) const EXTENSION: &str = "tokio";
/// The common part of the names of functions in tokio's module of tasks.
const MODULE: &str = "5tokio7runtime4task";

/// The role of a function in a task's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Makes it, and returns its memory, which begins with the header.
    New,
    Poll,
    /// Drops what is in its memory, before that is freed.
    Drop,
    Wake,
}

impl Role {
    /// That of a function with this linker name.
    pub fn of(name: &str) -> Option<Role> {
        if is_drop_of_cell(name) {
            return Some(Role::Drop);
        }
        // Both manglings write what lies in modules of tokio's like this; the newer one says before
        // it whether a function is generic or lies in the implementation of a type.
        let (before, within) = name.split_once(MODULE)?;
        let is_old = before == "_ZN";
        let is_function = is_old || before.starts_with("_RNvNtNtNtC") || before.starts_with("_RINvNtNtNtC");
        let is = |function: &str| {
            let rest = within.strip_prefix(function);
            rest.is_some_and(|rest| !is_old || rest.starts_with("17h"))
        };
        match () {
            () if is_function && is("3raw4poll") => Some(Role::Poll),
            () if is_function && is("5waker11wake_by_val") => Some(Role::Wake),
            () if is_function && is("5waker11wake_by_ref") => Some(Role::Wake),
            () if is_old && is("4core17Cell$LT$T$C$S$GT$3new") => Some(Role::New),
            () if before.starts_with("_RNvM") && is_new_cell(within) => Some(Role::New),
            () => None,
        }
    }

    /// Attributes by which `wrappers/tokio.c` knows it.
    fn signature(self) -> &'static [&'static str] {
        match self {
            Role::Poll => &["patchable-function-entry=4"],
            Role::Wake => &["patchable-function-prefix=1", "patchable-function-entry=5"],
            Role::New => &["patchable-function-entry=6"],
            Role::Drop => &["patchable-function-entry=7"],
        }
    }
}

/// Whether a function drops a task's memory. All ways in which tasks are freed lead there.
fn is_drop_of_cell(name: &str) -> bool {
    const OF_CELL: &str = "$LT$tokio..runtime..task..core..Cell$LT$";
    // The names that Rust has given it.
    const NAMES: [&str; 2] = ["drop_in_place", "drop_glue"];
    if let Some(rest) = name.strip_prefix("_ZN4core3ptr") {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let of = NAMES.iter().find_map(|name| rest.strip_prefix(name));
        return of.is_some_and(|of| of.starts_with(OF_CELL));
    }
    let of = name.strip_prefix("_RINvNtC").and_then(|rest| rest.split_once("_4core3ptr"));
    let rest = of.map_or("", |(_, rest)| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let of = NAMES.iter().find_map(|name| rest.strip_prefix(name));
    let of = of.and_then(|of| of.strip_prefix("INtNtNtNtC")?.split_once('_'));
    of.is_some_and(|(_, of)| of.starts_with(MODULE) && of[MODULE.len()..].starts_with("4core4Cell"))
}

/// Whether what follows the module is a function `new` of the type `Cell`.
fn is_new_cell(within: &str) -> bool {
    let of = within.strip_prefix("4coreINtB").and_then(|rest| rest.split_once('_'));
    of.is_some_and(|(_, rest)| rest.starts_with("4Cell") && rest.contains("E3new"))
}

/// The types of functions of tokio's in the part of a crate that rustc shows: what debugging
/// information calls them, by their linker names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(HashMap<String, String>);

impl Types {
    /// Looks at a line of LLVM's text.
    pub fn read(&mut self, line: &[u8]) {
        let Some(at) = memchr::memmem::find(line, b"!DISubprogram(name: \"") else { return };
        let Ok(line) = std::str::from_utf8(line.get(at..).unwrap_or_default()) else { return };
        let mut quoted = line.split('"').skip(1).step_by(2);
        let (Some(name), Some(linkage)) = (quoted.next(), quoted.next()) else { return };
        if Role::of(linkage).is_some() {
            self.0.insert(linkage.to_owned(), name.to_owned());
        }
    }

    /// Whether the tasks of a function get tracks: those of the program that don't have one already.
    fn are_tracks(&self, function: &str) -> bool {
        /// Of the crate for Rust programs, and the threads of the runtime, which are tasks.
        const OTHERS: [&str; 2] =
            ["everycall::tasks::Task<", "tokio::runtime::blocking::task::BlockingTask<tokio::runtime::"];
        self.0.get(function).is_none_or(|name| !OTHERS.iter().any(|other| name.contains(other)))
    }
}

/// Writes the lines of a list of attributes that make the functions of tokio's among `names` known
/// to the wrapper: all that [`can_be_told_apart`], and those that wake them.
///
/// # Errors
/// Those of the file system.
pub(super) fn write_list(names: &[String], types: &Types, out: &mut dyn Write) -> io::Result<()> {
    let are_tracks = can_be_told_apart(names);
    for name in names {
        let Some(role) = Role::of(name).filter(|_| types.are_tracks(name)) else { continue };
        if !are_tracks && role != Role::Wake {
            continue;
        }
        // Where it is inlined, there would be no call.
        for attribute in ["fentry-call=true", "noinline"].iter().chain(role.signature()) {
            writeln!(out, "{name},{attribute}")?;
        }
    }
    Ok(())
}

/// Whether a task can be distinguished from an earlier one in the same memory: if drops aren't
/// known, it can't.
pub(super) fn can_be_told_apart(names: &[String]) -> bool {
    let has = |role: Role| names.iter().any(|name| Role::of(name) == Some(role));
    has(Role::Drop) || !has(Role::Poll)
}

/// The text of the file with the names of the tasks of the functions of tokio's among `names`.
pub(super) fn names_of_tasks(names: &[String], types: &Types) -> String {
    let mut text = String::new();
    for name in names {
        let names_task = matches!(Role::of(name), Some(Role::Poll | Role::New));
        if let Some(of) = types.0.get(name).filter(|_| names_task && types.are_tracks(name)) {
            let _ = writeln!(text, "{name}\t{}", task_name(of));
        }
    }
    text
}

/// A task's name, from the name that debugging information gives a function of its type: that of an
/// `async fn` is the function's.
fn task_name(function: &str) -> String {
    /// Longer names do without the parameters of functions.
    const LONG: usize = 100;
    let arguments = function.split_once('<').map_or(function, |(_, rest)| rest);
    let of = &arguments[..argument_length(arguments)];
    let mut name = String::new();
    shown_type(of, true, &mut name);
    if name.len() > LONG {
        name.clear();
        shown_type(of, false, &mut name);
    }
    name
}

/// Length of the first of several types.
fn argument_length(types: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in types.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // The end of the list.
            '>' | ')' | ']' | '}' if depth == 0 => return at,
            // An arrow isn't an end.
            '>' if types[..at].ends_with('-') => {}
            '>' | ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    types.len()
}

/// Adds a type as people write it: without what blocking calls and allocators add to it, and
/// without the modules of Rust's own types.
fn shown_type(of: &str, has_parameters: bool, out: &mut String) {
    const BLOCKING: &str = "tokio::runtime::blocking::task::BlockingTask<";
    const ALLOCATOR: &str = ", alloc::alloc::Global";
    /// Of the types of an `async fn`, an `async` block and a closure, and of such a function or
    /// block in the path of an item within it.
    const MADE: [(&str, &str); 6] = [
        ("{async_fn_env#", ""),
        ("{async_block_env#", "{async block"),
        ("{closure_env#", "{closure"),
        ("{async_closure_env#", "{async closure"),
        ("{async_block#", "{async block"),
        ("{async_fn#", ""),
    ];
    let mut rest = of;
    while !rest.is_empty() {
        let is_begin = !out.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'));
        let made = MADE.iter().find_map(|(name, shown)| Some((rest.strip_prefix(name)?, *shown)));
        if let Some(inner) = rest.strip_prefix(BLOCKING) {
            let length = argument_length(inner);
            shown_type(&inner[..length], has_parameters, out);
            rest = inner.get(length + 1..).unwrap_or_default();
        } else if let Some(inner) = rest.strip_prefix('(').filter(|inner| inner.starts_with("dyn ")) {
            let length = argument_length(inner);
            shown_type(&inner[..length], has_parameters, out);
            rest = inner.get(length + 1..).unwrap_or_default();
        } else if let Some(behind) = rest.strip_prefix(ALLOCATOR) {
            rest = behind;
        } else if let Some((number, shown)) = made {
            let (number, behind) = number.split_once('}').unwrap_or((number, ""));
            match (shown, number) {
                ("", _) => out.truncate(out.len() - if out.ends_with("::") { 2 } else { 0 }),
                (_, "0") => out.extend([shown, "}"]),
                _ => out.extend([shown, "#", number, "}"]),
            }
            rest = behind;
            if !has_parameters {
                rest = without_parameters(rest);
            }
        } else if let Some(name) = Some(rest).filter(|_| is_begin).and_then(without_modules) {
            rest = name;
        } else {
            let length = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
}

/// The text behind the parameters at its begin, if there are any.
fn without_parameters(text: &str) -> &str {
    let Some(mut rest) = text.strip_prefix('<') else { return text };
    loop {
        rest = &rest[argument_length(rest)..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return rest.strip_prefix('>').unwrap_or(rest),
        }
    }
}

/// The name of one of Rust's own types; `None` if it is another one.
fn without_modules(path: &str) -> Option<&str> {
    if !["core::", "alloc::", "std::"].iter().any(|own| path.starts_with(own)) {
        return None;
    }
    let is_module = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let mut name = path;
    while let Some((_, rest)) = name.split_once("::").filter(|(module, _)| is_module(module)) {
        name = rest;
    }
    name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_both_manglings() {
        for (name, role) in [
            ("_ZN5tokio7runtime4task3raw4poll17h022f9af8d90a95c4E", Some(Role::Poll)),
            ("_ZN5tokio7runtime4task3raw7dealloc17h022f9af8d90a95c4E", None),
            (
                "_ZN4core3ptr180drop_in_place$LT$tokio..runtime..task..core..Cell$LT$server..handle$GT$$GT$17h0b65cbd25b95b274E",
                Some(Role::Drop),
            ),
            (
                "_ZN4core3ptr199drop_in_place$LT$alloc..boxed..Box$LT$tokio..runtime..task..core..Cell$LT$server..handle$GT$$GT$$GT$17h0b65cbd25b95b274E",
                None,
            ),
            (
                "_RINvNtCsgEm_4core3ptr13drop_in_placeINtNtNtNtCs1k5_5tokio7runtime4task4core4CellNCNvCsa_1a1b0EE",
                Some(Role::Drop),
            ),
            (
                "_RINvNtCsgEm_4core3ptr9drop_glueINtNtNtNtCs1k5_5tokio7runtime4task4core4CellNCNvCsa_1a1b0EE",
                Some(Role::Drop),
            ),
            (
                "_RINvNtCsgEm_4core3ptr13drop_in_placeINtNtCsb_5alloc5boxed3BoxINtNtNtNtCs1k5_5tokio7runtime4task4core4CellNC",
                None,
            ),
            ("_ZN5tokio7runtime4task4core17Cell$LT$T$C$S$GT$3new17h022f9af8d90a95c4E", Some(Role::New)),
            ("_ZN5tokio7runtime4task5waker11wake_by_val17h022f9af8d90a95c4E", Some(Role::Wake)),
            ("_ZN5tokio7runtime4task5waker11wake_by_ref17h022f9af8d90a95c4E", Some(Role::Wake)),
            ("_ZN5tokio7runtime4task5waker10drop_waker17h022f9af8d90a95c4E", None),
            ("_ZN5tokio7runtime4task3raw4poll28_$u7b$$u7b$closure17h022f9af8d90a95c4E", None),
            ("_ZN5tokio7runtime4task7harness20Harness4poll17h022f9af8d90a95c4E", None),
            ("_RINvNtNtNtCs4vXgJHrGVq4_5tokio7runtime4task3raw4pollNCNvCsa_1a1b0E", Some(Role::Poll)),
            ("_RNvYNvNtNtNtCs4vXgJHrGVq4_5tokio7runtime4task5waker11wake_by_ref", None),
            (
                "_RNvMs0_NtNtNtCs1k5_5tokio7runtime4task4coreINtB5_4CellNCNvCsa_1a1b0E3newB1G_",
                Some(Role::New),
            ),
            ("_RNvMs4_NtNtNtCs1k5_5tokio7runtime4task4coreINtB5_4CoreNCNvCsa_1a1b0E4pollB1G_", None),
            ("_RNCINvNtNtNtCs1k5_5tokio7runtime4task3raw4pollNCNvCsa_1a1b0E0", None),
            ("_RNvNtNtNtCs4vXgJHrGVq4_5tokio7runtime4task5waker11wake_by_ref", Some(Role::Wake)),
            ("main", None),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }

    #[test]
    fn tasks_are_called_as_people_write_their_types() {
        const S: &str =
            "alloc::sync::Arc<tokio::runtime::scheduler::current_thread::Handle, alloc::alloc::Global>";
        for (of, name) in [
            ("server::handle::{async_fn_env#0}", "server::handle"),
            (
                "server::generic::{async_fn_env#0}<alloc::vec::Vec<u8, alloc::alloc::Global>>",
                "server::generic<Vec<u8>>",
            ),
            ("server::{impl#3}::run::{async_fn_env#0}<A, B<C>>", "server::{impl#3}::run<A, B<C>>"),
            ("std::thread::sleep::{async_fn_env#0}", "std::thread::sleep"),
            ("server::run::{async_fn#0}::{closure_env#0}", "server::run::{closure}"),
            ("server::main::{async_block_env#0}", "server::main::{async block}"),
            (
                "server::main::{async_block#0}::{async_block_env#2}",
                "server::main::{async block}::{async block#2}",
            ),
            ("server::Wrapped<server::handle::{async_fn_env#0}>", "server::Wrapped<server::handle>"),
            (
                "tokio::runtime::blocking::task::BlockingTask<server::main::{closure_env#1}<X>>",
                "server::main::{closure#1}<X>",
            ),
            (
                "core::pin::Pin<alloc::boxed::Box<(dyn core::future::future::Future<Output=u32> + core::marker::Send), alloc::alloc::Global>>",
                "Pin<Box<dyn Future<Output=u32> + Send>>",
            ),
            ("app::Call<fn(u8, u8) -> u16>", "app::Call<fn(u8, u8) -> u16>"),
        ] {
            assert_eq!(task_name(&format!("poll<{of}, {S}>")), name);
        }
        let long = format!("a::{{async_fn_env#0}}<B, C<{}>>", "d".repeat(100));
        assert_eq!(task_name(&format!("poll<app::Wrapped<{long}>, {S}>")), "app::Wrapped<a>");
        // Cut in the middle.
        for of in ["poll", "poll<", "poll<a::{async_fn_env#", "poll<a::{async_fn_env#0}<b", "poll<a::B<c, "] {
            let _ = task_name(of);
        }
    }

    #[test]
    fn tasks_that_have_tracks_get_no_second_one() {
        let mut types = Types::default();
        let hash = |digit: &str| digit.repeat(16);
        for (digit, of) in [
            ("1", "app::serve::{async_fn_env#0}"),
            ("2", "everycall::tasks::Task<app::serve::{async_fn_env#0}>"),
            ("3", "app::Counted<everycall::tasks::Task<app::serve::{async_fn_env#0}>>"),
            ("4", "tokio::runtime::blocking::task::BlockingTask<tokio::runtime::scheduler::multi_thread::X>"),
            ("5", "tokio::runtime::blocking::task::BlockingTask<app::main::{closure_env#0}>"),
        ] {
            let line = format!(
                "!12 = distinct !DISubprogram(name: \"poll<{of}, S>\", linkageName: \
                 \"_ZN5tokio7runtime4task3raw4poll17h{}E\", scope: !1)\n",
                hash(digit)
            );
            types.read(line.as_bytes());
        }
        let names: Vec<_> = "1234506"
            .split("")
            .filter(|digit| !digit.is_empty())
            .map(|digit| format!("_ZN5tokio7runtime4task3raw4poll17h{}E", hash(digit)))
            .collect();
        let text = names_of_tasks(&names, &types);
        assert_eq!(text, format!("{}\tapp::serve\n{}\tapp::main::{{closure}}\n", names[0], names[4]));
        let written = |names: &[String]| {
            let mut out = Vec::new();
            write_list(names, &types, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        // Their drop isn't known.
        assert_eq!(written(&names), "");
        let drop =
            "_RINvNtCsgEm_4core3ptr9drop_glueINtNtNtNtCs1k5_5tokio7runtime4task4core4CellNCNvCsa_1a1b0EE";
        let text = written(&[&names[..], &[drop.to_owned()]].concat());
        let first = format!("{},fentry-call=true\n{},noinline\n", names[0], names[0]);
        assert!(text.starts_with(&first), "{text}");
        assert!(!text.contains(&names[1]) && text.contains(&names[4]) && text.contains(&names[5]), "{text}");
    }
}
