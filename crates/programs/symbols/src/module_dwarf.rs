//! The DWARF of a module, for those who read more of it than names and lines.

use crate::debug::{DebugInfo, Slice, SplitPlaces, UnitReader};
use crate::identity::ModuleIdentity;
use crate::locate::{LocatedFile, locate};
use crate::options::SymbolOptions;
use crate::warning::SymbolWarning;

/// Bytes of a section of DWARF.
pub type DwarfSlice<'a> = Slice<'a>;

/// The DWARF of a module: in its own file, in the debug file that its build id leads to, or split
/// into `.dwo` and `.dwp` files.
pub struct ModuleDwarf {
    info: DebugInfo,
}

impl ModuleDwarf {
    /// Finds and loads it.
    ///
    /// # Errors
    ///
    /// Why there is none, as far as that is known.
    pub fn open(identity: &ModuleIdentity<'_>, options: &SymbolOptions) -> Result<Self, Vec<SymbolWarning>> {
        let located = locate(identity, options);
        let mut warnings = located.warnings;
        let neighbours: Vec<_> =
            [&located.module, &located.debug].into_iter().flatten().map(|file| file.path.clone()).collect();
        let places =
            SplitPlaces { may_open: located.may_open, neighbours, maps: options.binary_maps.clone() };
        let Some(file) = located.debug.or(located.module) else { return Err(warnings) };
        match Self::load(&file, located.shared.as_ref(), places) {
            Ok(Some(dwarf)) => return Ok(dwarf),
            Ok(None) => warnings.push(SymbolWarning::NoDebugInfo { path: identity.path.to_path_buf() }),
            Err(warning) => warnings.push(warning),
        }
        Err(warnings)
    }

    fn load(
        file: &LocatedFile,
        shared: Option<&LocatedFile>,
        places: SplitPlaces,
    ) -> Result<Option<Self>, SymbolWarning> {
        let info = DebugInfo::load_with_locations(file, shared, places)?;
        Ok(info.map(|info| Self { info }))
    }

    /// Calls `read` with the unit that contains an image address, and the sections that the unit's
    /// entries are in. `Ok(false)` if no unit does, or if its `.dwo` file can't be found.
    ///
    /// # Errors
    ///
    /// A sentence, if the unit is damaged, or `read` or a library has panicked.
    pub fn read_unit_at(&mut self, address: u64, read: UnitReader<'_>) -> Result<bool, String> {
        self.info.read_unit_at(address, read)
    }
}
