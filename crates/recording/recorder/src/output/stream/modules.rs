//! The module table, written again if there are new modules.

use everycall_format::arena::{counter, module_state};
use everycall_tracefile::{Summary, module_table};

use crate::memory::arena::Arena;

/// The part of it that a file has.
#[derive(Debug, Default)]
pub struct WrittenModules {
    /// Number of modules, including those whose entries were reused; `None` for a new file.
    count: Option<u64>,
}

impl WrittenModules {
    /// A new file begins.
    pub fn begin_file(&mut self) {
        self.count = None;
    }

    /// The table, if it has new entries since the last call.
    pub fn next(&mut self, arena: &Arena) -> Option<Vec<u8>> {
        let count = arena.module_count();
        let reused = arena.header().counters[counter::MODULE_ENTRIES_REUSED];
        let all = reused.saturating_add(count.into());
        if self.count == Some(all) {
            return None;
        }
        let modules: Vec<_> = (0..count).map(|index| arena.module(index)).collect();
        let incomplete =
            modules.iter().filter(|module| module.state != module_state::COMPLETE).count() as u64;
        let seen = all - incomplete.min(all);
        if self.count.replace(seen) == Some(seen) {
            return None;
        }
        // Entries that share their paths were overwritten.
        let mut left = arena.layout().paths_size;
        let with_paths = modules.into_iter().map(|module| {
            let path = arena.module_path(&module).filter(|path| path.len() as u64 <= left);
            let path = path.unwrap_or_default();
            left -= path.len() as u64;
            (module, path)
        });
        // Problems with them are reported at the end.
        Some(module_table(with_paths, &mut Summary::default()))
    }
}
