//! A real program of some size: this test itself, with the standard library and its dependencies.

use crate::common;
use std::time::Instant;

use everycall_symbols::{FunctionId, ModuleSymbols, SymbolOptions};

#[inline(never)]
#[rustfmt::skip]
fn here() -> u32 { std::hint::black_box(line!()) }

#[test]
fn every_function_of_this_test() {
    let path = std::env::current_exe().unwrap();
    let begin = Instant::now();
    let mut symbols = common::open(&path, &SymbolOptions::bare());
    let opened = begin.elapsed();
    let functions = common::functions(&mut symbols);
    let resolved = begin.elapsed();
    // Other crates are compiled without lines.
    let ours = || functions.iter().filter(|function| function.name.contains("everycall_symbols"));
    let with_line = ours().filter(|function| function.line.is_some()).count();
    println!(
        "{} functions, {} of ours, {with_line} of these with a line: opened in {opened:?}, resolved after {resolved:?}",
        functions.len(),
        ours().count()
    );
    assert!(functions.len() > 1000 && ours().count() > 100);
    assert!(with_line * 10 > ours().count() * 9, "{with_line} of {}", ours().count());

    let own = functions.iter().find(|function| function.name == "symbols::large::here").unwrap();
    assert!(own.file.as_ref().unwrap().ends_with("tests/symbols/large.rs"));
    assert_eq!(own.line, Some(here()));

    // A second question is answered from memory, and says the same.
    for (index, function) in functions.iter().enumerate() {
        assert_eq!(symbols.function(FunctionId(index as u32)), function);
        assert_eq!(symbols.function_at(function.start), FunctionId(index as u32));
    }
}

/// One thread may open a module that another one uses.
#[test]
fn modules_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<ModuleSymbols>();
}
