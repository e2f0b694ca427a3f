//! Folded stacks: a line for each call path, with the nanoseconds spent on it and not on longer
//! ones. Flame graphs are drawn from it.
//!
//! ```text
//! main;main;parse(char const*);skip 1234
//! ```
//!
//! The first frame is the thread's name, or the program's if the thread has none. `;` in names is
//! replaced by `:`, as nothing that reads the format knows an escape.

use std::io;

use crate::driver::Export;
use crate::frames::in_a_line;
use crate::json::put_number;
use crate::paths::Paths;
use crate::portions::Portions;

/// Writes a line for each path.
pub(crate) fn write<S>(paths: &Paths, export: &Export<'_, S>, portions: &mut Portions<'_>) -> io::Result<()> {
    for path in paths.iter().filter(|path| path.own_ns > 0) {
        for (level, name) in paths.names(path, &export.functions).enumerate() {
            if level > 0 {
                portions.put(b";");
            }
            portions.put(in_a_line(name, Some(';')).as_bytes());
        }
        portions.put(b" ");
        put_number(&mut portions.bytes, path.own_ns);
        portions.put(b"\n");
        portions.spill()?;
    }
    Ok(())
}
