//! A real program of some size: this test itself, with the standard library and its dependencies.

mod common;

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
    let with_line = functions.iter().filter(|function| function.line.is_some()).count();
    println!(
        "{} functions, {with_line} with a line: opened in {opened:?}, resolved after {resolved:?}",
        functions.len()
    );
    assert!(functions.len() > 1000);
    assert!(with_line * 10 > functions.len() * 9, "{with_line} of {}", functions.len());

    let own = functions.iter().find(|function| function.name == "large::here").unwrap();
    assert!(own.file.as_ref().unwrap().ends_with("tests/large.rs"));
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
