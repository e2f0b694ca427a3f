//! Names of tasks that only their code names: a section of the module's file has a line for each
//! function that is of one task's type ([`everycall_format::tasks`]).

use std::collections::HashMap;

use everycall_format::tasks::SECTION;
use object::LittleEndian;
use object::read::elf::SectionHeader;

use crate::elf::Elf;

/// More functions are left out: each takes memory.
const FUNCTIONS_MAX: usize = 1 << 20;

/// By the functions' linker names.
#[derive(Default)]
pub(crate) struct TaskNames(HashMap<Box<str>, Box<str>>);

impl TaskNames {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let sections = elf.elf_section_table();
        let section = sections.section_by_name(LittleEndian, SECTION.as_bytes());
        let text = section.and_then(|(_, section)| section.data(LittleEndian, elf.data()).ok());
        Self::read(text.unwrap_or_default())
    }

    fn read(text: &[u8]) -> Self {
        let lines = text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        let named = lines.filter_map(|line| line.split_once('\t')).take(FUNCTIONS_MAX);
        Self(named.map(|(function, name)| (function.into(), name.into())).collect())
    }

    /// The name of tasks of a function's type.
    pub(crate) fn get(&self, linkage_name: &str) -> Option<&str> {
        self.0.get(linkage_name).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_function() {
        let names =
            TaskNames::read(b"_ZN1aE\tapp::serve\n_ZN1bE\n\xff\tx\n\0\0_ZN1cE\tapp::main::{async block}\n");
        assert_eq!(names.get("_ZN1aE"), Some("app::serve"));
        assert_eq!((names.get("_ZN1bE"), names.get("_ZN1cE")), (None, None));
        assert_eq!(names.get("\0\0_ZN1cE"), Some("app::main::{async block}"));
    }
}
