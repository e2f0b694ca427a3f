//! Module and address to function, file and line.
//!
//! ```text
//! ModuleIdentity --open--> ModuleSymbols --function_at(address)--> FunctionId --function--> Function
//!   path, build id           table of functions, eager:               name, part, start, size,
//!   or the image itself      symbols, unwind entries, PLT              file, line of declaration
//!                            DWARF, unit by unit, when asked
//! ```
//!
//! [`ModuleSymbols::open`] always gives a usable result: if a file is missing, stripped, damaged or
//! not the one that was traced, functions are named `module+0xoffset` and a [`SymbolWarning`] says
//! why. [`site_report`] returns the facts that `record` needs about an ELF file, [`SourceFinder`]
//! reads source text.
//!
//! This crate knows nothing of traces, threads or time. Every input is treated as hostile: work and
//! memory are bounded by the input's size (see [`MEMORY_BASE_BYTES`]), and a panic in a library
//! that reads it becomes a warning.
//!
//! Not here: traces, threads, time.
//!
//! Checked by: compilers' and binutils' own tools, fuzzing.

// Every public item says what it is, in which unit, and when it fails.
#![deny(missing_docs, clippy::missing_errors_doc)]
// Messages go through `everycall_io::messages`: these macros panic if the output is closed.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// Invalid input leads to an error, never to a panic.
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used))]

mod address_ranges;
mod arch;
mod budget;
mod build_id;
mod constants;
mod debug;
mod elf;
mod exits;
mod file_bytes;
mod frames;
mod function;
mod identity;
mod instruction;
mod kept;
mod locate;
mod module;
mod module_dwarf;
mod name;
mod options;
mod plt;
mod sites;
mod source;
mod table;
mod task_names;
mod variables;
mod warning;

pub use budget::MEMORY_BASE_BYTES;
pub use build_id::BuildIdText;
pub use debug::UnitReader;
pub use everycall_demangle::short_name;
pub use function::{Function, FunctionEntry, FunctionId, InlinedCall, Leave, NameSource};
pub use identity::ModuleIdentity;
pub use kept::{KeptSymbols, NamedFunction, Symbols};
pub use locate::build_id_files;
pub use module::ModuleSymbols;
pub use module_dwarf::{DwarfSlice, ModuleDwarf};
pub use name::{Thunk, demangle, shown_name, split_part};
pub use options::{PathMap, PathMapError, SymbolOptions};
pub use sites::{LinkKind, NoteReport, SiteError, SiteReport, site_report, site_report_of_image};
pub use source::{CompiledSource, SourceFinder, SourceRefusal, SourceText};
pub use warning::SymbolWarning;
