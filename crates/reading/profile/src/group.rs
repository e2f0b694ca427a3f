//! The criteria by which calls are grouped.

use crate::functions::{FunctionNumber, Functions};
use crate::value_of::ValueOf;

/// The criterion by which calls are grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// The function that was called.
    #[default]
    Function,
    /// The linker's name of the function: copies and parts of a function are apart.
    Symbol,
    /// The thread or fiber.
    Thread,
    /// The process: one execution of a program in it.
    Process,
    /// The program or library of the function.
    Module,
    /// The source file of the function.
    File,
    /// The value of this label at the innermost enclosing call that has it.
    Label(String),
    /// A recorded argument, or the result, of calls of some functions; other calls are left out.
    Value(ValueOf),
    /// The functions of all enclosing calls and of the call itself.
    Path,
}

impl Grouping {
    /// Whether each group is a function, so that recursion is known.
    #[must_use]
    pub fn is_by_function(&self) -> bool {
        matches!(self, Grouping::Function | Grouping::Symbol)
    }
}

/// The property that the calls of a group share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Their function.
    Function(FunctionNumber),
    /// Their thread.
    Thread {
        /// Number of the trace, from 0 in the order in which they were added.
        trace: usize,
        /// The kernel's number of the process.
        pid: u32,
        /// The kernel's number of the thread; of fibers see [`everycall_calls::FIBERS_FROM`].
        tid: u32,
        /// Its name.
        name: String,
    },
    /// Their process.
    Process {
        /// Number of the trace, as above.
        trace: usize,
        /// The kernel's number.
        pid: u32,
        /// The program's name.
        name: String,
    },
    /// Module of their functions.
    Module(String),
    /// Source file of their functions, where it is known.
    File(Option<String>),
    /// Value of a label.
    Label {
        /// Whether an enclosing call has the label.
        is_set: bool,
        /// Its value, if it was given one.
        value: Option<u64>,
    },
    /// Text of a recorded value.
    Value(String),
    /// The path, outermost function first. Empty: paths beyond [`crate::PATHS_MAX`].
    Path(Vec<FunctionNumber>),
}

impl Key {
    /// The displayed name.
    #[must_use]
    pub fn shown(&self, functions: &Functions) -> String {
        let name = |number: FunctionNumber| {
            functions.get(number).map_or_else(String::new, |function| function.name.clone())
        };
        match self {
            Key::Function(number) => name(*number),
            Key::Thread { pid, tid, name, .. } if pid == tid => format!("{name} {tid}"),
            Key::Thread { pid, tid, name, .. } => format!("{name} {tid} of {pid}"),
            Key::Process { pid, name, .. } => format!("{name} {pid}"),
            Key::Module(module) => module.clone(),
            Key::File(file) => file.clone().unwrap_or_else(|| "(source file not known)".to_owned()),
            Key::Label { is_set: false, .. } => "(without the label)".to_owned(),
            Key::Label { value: None, .. } => "(without a value)".to_owned(),
            Key::Label { value: Some(value), .. } => value.to_string(),
            Key::Value(text) => text.clone(),
            Key::Path(path) if path.is_empty() => "(further paths)".to_owned(),
            Key::Path(path) => path.iter().map(|number| name(*number)).collect::<Vec<_>>().join(" > "),
        }
    }
}
