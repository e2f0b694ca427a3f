//! A function, as symbols and debugging information describe it.

use std::path::Path;
use std::sync::Arc;

use crate::name::{Thunk, own_part, thunk, with_own_part};

/// A function of one module; dense from zero, so it can index a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// The id as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The source of a function's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// An ELF symbol.
    Symbol,
    /// DWARF, if there is no symbol.
    Dwarf,
    /// A stub of the procedure linkage table, named after its target.
    Plt,
    /// Nothing: the name is `module+0xoffset`.
    Address,
}

/// A function, fully resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The demangled name, without the suffix of a part; `module+0xoffset` where no name is known.
    pub name: String,
    /// The name that the linker knows, with the suffix of a part.
    pub linkage_name: Option<String>,
    /// Suffix of a part that the compiler split off or specialised, such as `cold`, `part.0`,
    /// `isra.0`, `constprop.0.cold`.
    pub part: Option<String>,
    /// For a `.cold` part: its function, if that is certain.
    pub whole: Option<FunctionId>,
    /// The source of the name.
    pub source: NameSource,
    /// First image address.
    pub start: u64,
    /// Length in bytes; zero where unknown.
    pub size: u64,
    /// The file in which the function is declared, as the compiler recorded it.
    pub file: Option<Arc<Path>>,
    /// The line of the declaration, from 1.
    pub line: Option<u32>,
}

impl Function {
    /// Which part this is, if it is a function of its own under the same name: of a coroutine
    /// `resume`, `destroy`, `cleanup` or `await_suspend`, beside the function that makes the
    /// coroutine; `resolver`, which chooses among the versions of a function.
    #[must_use]
    pub fn own_part(&self) -> Option<&'static str> {
        self.part.as_deref().and_then(own_part)
    }

    /// The name, and what part of it this is: `gen(int) [resume]`.
    #[must_use]
    pub fn shown_name(&self) -> String {
        with_own_part(self.name.clone(), self.own_part())
    }

    /// Whether it is a part that the compiler has split off a function, which continues in it:
    /// gcc's `f.part.0`, and what it made of that.
    #[must_use]
    pub fn is_split_part(&self) -> bool {
        self.part.as_deref().is_some_and(|part| part.split('.').any(|word| word == "part"))
    }

    /// Whether there may be other functions under this one's name that are the same in the source:
    /// parts, specialised copies and versions of it, thunks, and what compilers make of
    /// constructors and destructors.
    #[must_use]
    pub fn may_have_clones(&self) -> bool {
        self.part.is_some()
            || self.thunk().is_some()
            || self.linkage_name.as_deref().is_some_and(crate::name::is_structor)
    }

    /// The kind of thunk, if it is one: another entry point of the function with its name.
    #[must_use]
    pub fn thunk(&self) -> Option<Thunk> {
        thunk(self.linkage_name.as_deref()?)
    }
}

/// A call that the compiler inlined: it is replaced by the function's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlinedCall {
    /// Inlined calls around it.
    pub level: u32,
    /// The demangled name of the function that would have been called.
    pub name: String,
    /// The file with the call, as the compiler recorded it.
    pub file: Option<Arc<Path>>,
    /// The line of the call, from 1.
    pub line: Option<u32>,
}

/// How a function is left at one of its exits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leave {
    /// It returns.
    Return,
    /// It jumps into a function of its module.
    Jump(FunctionId),
    /// It jumps into the function of this linker name, which may be another module's.
    JumpByName(String),
    /// It jumps to a place that its code doesn't show: a virtual function, or through a pointer.
    JumpAnywhere,
}

/// A row of a module's function table: the facts known without reading DWARF.
#[derive(Clone, Copy, Debug)]
pub struct FunctionEntry<'a> {
    /// The function's id.
    pub id: FunctionId,
    /// First image address.
    pub start: u64,
    /// Length in bytes; zero where unknown.
    pub size: u64,
    /// The linker's name as stored, with the suffix of a part; empty if there is no symbol.
    pub linkage_name: &'a [u8],
    /// Whether this is a stub of the procedure linkage table.
    pub is_plt: bool,
}

/// The crates that are linked into traced programs, as they stand in linkage names.
const RUNTIME_CRATES: [&[u8]; 5] = [
    b"17everycall_runtime",
    b"14everycall_ring",
    b"16everycall_format",
    b"15everycall_hooks",
    b"15everycall_patch",
];

impl FunctionEntry<'_> {
    /// Whether a program's calls of it may be recorded: it has a name, and is neither a stub nor one
    /// of the runtime that is linked into traced programs.
    #[must_use]
    pub fn is_programs(&self) -> bool {
        let is_runtimes = |name: &[u8]| {
            name.starts_with(b"_")
                && RUNTIME_CRATES.iter().any(|part| memchr::memmem::find(name, part).is_some())
        };
        !self.is_plt && !self.linkage_name.is_empty() && !is_runtimes(self.linkage_name)
    }
}
