//! The programs that are measured as wholes.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::lab::Lab;

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Name, and that of its source.
    pub name: &'static str,
    /// Its argument, and a shorter run's.
    arguments: [&'static str; 2],
}

impl Workload {
    /// Nothing but calls of an empty function.
    pub const LOOP: Workload = Workload { name: "loop", arguments: ["5000000", "500000"] };
    /// Nothing but calls, nested.
    pub const FIBONACCI: Workload = Workload { name: "fibonacci", arguments: ["34", "27"] };
    /// A real program.
    pub const SQLITE: Workload = Workload { name: "sqlite", arguments: ["60000", "10000"] };

    /// For a run of some tenths of a second, or for one that is short for slow tracers.
    pub fn argument(self, is_short: bool) -> &'static str {
        self.arguments[usize::from(is_short)]
    }

    /// Its objects, those of `region.c` without the compiler's options.
    ///
    /// # Errors
    /// The compiler's own, as a sentence.
    pub fn compile(
        self,
        lab: &Lab,
        compiler: impl Fn() -> Command,
        options: &[&str],
        name: &str,
    ) -> Result<Vec<PathBuf>, String> {
        let mut objects = vec![lab.compile(lab.compiler("gcc", None), "region.c", &[], "region.o")?];
        let mut compile = |source: &Path, more: &[&str], part: &str| {
            let options = [options, more].concat();
            objects.push(lab.compile(compiler(), source, &options, &format!("{name} {part}.o"))?);
            Ok::<(), String>(())
        };
        let source = format!("{}.c", self.name);
        if self.name != Workload::SQLITE.name {
            compile(source.as_ref(), &[], "program")?;
            return Ok(objects);
        }
        let sources = lab.sqlite_sources()?;
        let include = format!("-I{}", sources.display());
        compile(source.as_ref(), &[&include], "program")?;
        let options =
            ["-w", "-DSQLITE_THREADSAFE=2", "-DSQLITE_DEFAULT_MEMSTATUS=0", "-DSQLITE_OMIT_LOAD_EXTENSION"];
        compile(&sources.join("sqlite3.c"), &options, "library")?;
        Ok(objects)
    }
}
