//! Names every function of an ELF file, and says how long that took.
//!
//! `cargo run --release -p everycall-symbols --example symbolize -- FILE [--quiet]`

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use everycall_symbols::{ModuleIdentity, ModuleSymbols, SymbolOptions};
use object::Object;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("name an ELF file")?).canonicalize()?;
    let is_quiet = arguments.next().is_some();
    let data = std::fs::read(&path)?;
    let build_id = object::File::parse(&*data)?.build_id()?.unwrap_or_default();

    let begin = Instant::now();
    let mut symbols = ModuleSymbols::open(&ModuleIdentity::new(&path, build_id), &SymbolOptions::default());
    let ids: Vec<_> = symbols.functions().map(|entry| entry.id).collect();
    let opened = begin.elapsed();
    let mut with_line = 0;
    for id in &ids {
        let function = symbols.function(*id);
        with_line += usize::from(function.line.is_some());
        if is_quiet {
            continue;
        }
        let file = function.file.as_deref().map_or("?".into(), |file| file.display().to_string());
        let part = function.part.as_ref().map_or(String::new(), |part| format!(" [{part}]"));
        let line = function.line.map_or("?".to_owned(), |line| line.to_string());
        println!("{:#x}+{:#x} {}{part} {file}:{line}", function.start, function.size, function.name);
    }
    eprintln!(
        "{} functions, {with_line} with a line; opened in {:.3} s, all resolved after {:.3} s",
        ids.len(),
        opened.as_secs_f64(),
        begin.elapsed().as_secs_f64()
    );
    for warning in symbols.take_warnings() {
        eprintln!("{warning}");
    }
    Ok(())
}
