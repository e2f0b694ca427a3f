//! The functions of a file: from its symbols, those of its debug file, and its unwind information.

use object::{Object as _, ObjectSymbol as _, SymbolKind};

use crate::image::{Elf, Image};
use crate::unwind::Unwind;

/// A function, or a part of one that the compiler put elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Empty if no symbol names it.
    pub(crate) name: &'a str,
    pub(crate) has_unwind: bool,
    pub(crate) has_landing_pads: bool,
    pub(crate) is_signal: bool,
}

/// Sorted by their starts, of which there is one of each.
pub(crate) struct Functions<'a> {
    pub(crate) all: Vec<Function<'a>>,
}

impl<'a> Functions<'a> {
    /// `debug`: the file with the symbols that were removed from this one.
    pub(crate) fn find<'f>(
        image: &Image<'_>,
        elf: &'f Elf<'a>,
        debug: Option<&'f Elf<'a>>,
        unwind: &Unwind,
    ) -> Self {
        let mut all: Vec<Function<'a>> = Vec::new();
        for symbol in elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .chain(debug.into_iter().flat_map(|debug| debug.symbols()))
        {
            let start = symbol.address();
            if symbol.kind() != SymbolKind::Text || symbol.size() == 0 || symbol.is_undefined() {
                continue;
            }
            let Some(section) = image.section_of(start).filter(|section| section.is_code) else { continue };
            let end = start.saturating_add(symbol.size()).min(section.end());
            let name = symbol.name().unwrap_or_default();
            all.push(Function {
                start,
                end,
                name,
                has_unwind: false,
                has_landing_pads: false,
                is_signal: false,
            });
        }
        // Of several symbols for the same code, the first with a name.
        all.sort_by_key(|function| function.start);
        all.dedup_by(|next, function| {
            let is_alias = next.start == function.start;
            if is_alias {
                function.end = function.end.max(next.end);
                if function.name.is_empty() {
                    function.name = next.name;
                }
            }
            is_alias
        });
        let by_symbols = all.len();
        for frame in &unwind.frames {
            let named = &mut all[..by_symbols];
            let index = named.partition_point(|function| function.start <= frame.start);
            let before = index.checked_sub(1).and_then(|index| named.get_mut(index));
            match before {
                Some(function) if function.start == frame.start => {
                    function.has_unwind = true;
                    function.has_landing_pads |= frame.lsda.is_some();
                    function.is_signal |= frame.is_signal;
                }
                // A part of a function in assembler that has several entries.
                Some(function) if function.end > frame.start => {}
                _ => {
                    let end = image
                        .section_of(frame.start)
                        .map_or(frame.end, |section| section.end().min(frame.end));
                    all.push(Function {
                        start: frame.start,
                        end,
                        name: "",
                        has_unwind: true,
                        has_landing_pads: frame.lsda.is_some(),
                        is_signal: frame.is_signal,
                    });
                }
            }
        }
        all.sort_by_key(|function| function.start);
        all.dedup_by_key(|function| function.start);
        // The PLT, `.init` and `.fini` aren't functions of the program.
        all.retain(|function| {
            let section = image.section_of(function.start).map_or("", |section| section.name);
            !section.contains("plt")
                && section != ".init"
                && section != ".fini"
                && function.end > function.start
        });
        Self { all }
    }

    /// The index of the function that contains `at`.
    pub(crate) fn owner(&self, at: u64) -> Option<usize> {
        let index = self.all.partition_point(|function| function.start <= at).checked_sub(1)?;
        self.all.get(index).filter(|function| at < function.end).map(|_| index)
    }
}
