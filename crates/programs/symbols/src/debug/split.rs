//! Units with entries in `.dwo` files, or collected in a `.dwp` file.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Dwarf, Unit};

use super::file::{DebugFile, DebugFileKind, Slice};
use super::units::{UnitLayout, Units};
use super::walk::Walk;
use crate::budget::{Budget, DebugError};
use crate::file_bytes::FileBytes;
use crate::locate::path_from_bytes;
use crate::options::PathMap;

/// Where split units may be found.
pub(crate) struct SplitPlaces {
    /// Whether any file may be opened for them.
    pub may_open: bool,
    /// Files whose `.dwp` neighbour may contain the units.
    pub neighbours: Vec<PathBuf>,
    pub maps: Vec<PathMap>,
}

/// The split units of one module.
pub(super) struct SplitUnits {
    places: SplitPlaces,
    /// `None` until it is looked for.
    package: Option<Option<DebugFile>>,
    missing: Option<(PathBuf, usize)>,
}

/// A visitor of a unit's entries, in whichever file they are.
pub(super) trait UnitVisitor {
    /// Goes through them.
    fn visit<'a>(&mut self, walk: &mut Walk<'a>, unit: &Rc<Unit<Slice<'a>>>) -> Result<(), DebugError>;

    /// Afterwards, goes through the lines of the module's own unit.
    fn visit_lines<'a>(&mut self, walk: &mut Walk<'a>, unit: &Unit<Slice<'a>>) -> Result<(), DebugError> {
        let _ = (walk, unit);
        Ok(())
    }
}

/// For the skeleton of a split unit: the path of its `.dwo` file as recorded.
pub(super) fn name<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Option<PathBuf> {
    unit.dwo_id?;
    let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
    let directory = unit.comp_dir.map(|dir| path_from_bytes(dir.slice())).unwrap_or_default();
    Some(directory.join(path_from_bytes(name.slice())))
}

impl SplitUnits {
    pub(super) fn new(places: SplitPlaces) -> Self {
        Self { places, package: None, missing: None }
    }

    /// One of the files that couldn't be found since the last call, and how many there were.
    pub(super) fn take_missing(&mut self) -> Option<(PathBuf, usize)> {
        self.missing.take()
    }

    /// Walks the unit of `skeleton`. If it can't be found, notes that.
    pub(super) fn read(
        &mut self,
        parent: &Dwarf<Slice<'_>>,
        skeleton: &Unit<Slice<'_>>,
        name: &Path,
        budget: &Budget,
        visitor: &mut dyn UnitVisitor,
    ) -> Result<(), DebugError> {
        let Some(id) = skeleton.dwo_id else { return Ok(()) };
        let may_open = self.places.may_open;
        let neighbours = &self.places.neighbours;
        let package = self.package.get_or_insert_with(|| {
            neighbours.iter().filter(|_| may_open).find_map(|path| open_package(path))
        });
        let from_package = match package {
            Some(package) => package.package()?.find_cu(id, parent)?,
            None => None,
        };
        let opened;
        let split = match from_package {
            Some(split) => Some(split),
            None => {
                opened = open_split(&self.places, name);
                opened.as_ref().map(|opened| {
                    budget.grant(opened.size());
                    let mut split = opened.dwarf();
                    split.make_dwo(parent);
                    split
                })
            }
        };
        let is_found = match &split {
            Some(split) => read_split(split, parent, skeleton, id, budget, visitor)?,
            None => false,
        };
        if !is_found {
            self.missing.get_or_insert_with(|| (name.to_path_buf(), 0)).1 += 1;
        }
        Ok(())
    }
}

/// Goes through the unit `id`; whether there is one.
fn read_split<'a>(
    split: &'a Dwarf<Slice<'a>>,
    parent: &'a Dwarf<Slice<'a>>,
    skeleton: &'a Unit<Slice<'a>>,
    id: gimli::DwoId,
    budget: &'a Budget,
    visitor: &mut dyn UnitVisitor,
) -> Result<bool, DebugError> {
    let layout = UnitLayout::scan(split, budget)?;
    let units = Units::new(split, &layout, budget);
    for index in 0..layout.count() {
        let mut unit = units.parse(index)?;
        if unit.dwo_id != Some(id) {
            continue;
        }
        unit.copy_relocated_attributes(skeleton);
        let mut walk = Walk::new(&units, None);
        walk.skeleton = Some(skeleton);
        // File numbers refer to the split file's own line table if it has one (gcc), otherwise to
        // the skeleton's (clang).
        let own = split.debug_line.program(gimli::DebugLineOffset(0), 8, skeleton.comp_dir, skeleton.name);
        let of_skeleton = || Some((skeleton.line_program.clone()?, parent));
        walk.split_lines = own.ok().map(|program| (program, split)).or_else(of_skeleton);
        visitor.visit(&mut walk, &Rc::new(unit))?;
        return Ok(true);
    }
    Ok(false)
}

fn open_package(neighbour: &Path) -> Option<DebugFile> {
    let mut path = neighbour.to_path_buf().into_os_string();
    path.push(".dwp");
    open_debug_file(Path::new(&path), DebugFileKind::Package)
}

fn open_debug_file(path: &Path, kind: DebugFileKind) -> Option<DebugFile> {
    let (bytes, _) = FileBytes::open(path).ok()?;
    DebugFile::load(path, Arc::new(bytes), kind).ok()
}

fn open_split(places: &SplitPlaces, name: &Path) -> Option<DebugFile> {
    if !places.may_open {
        return None;
    }
    let mapped = PathMap::apply_all(&places.maps, name);
    let beside = places.neighbours.iter().filter_map(|path| Some(path.parent()?.join(name.file_name()?)));
    mapped
        .into_iter()
        .chain([name.to_path_buf()])
        .chain(beside)
        .filter(|path| path.is_absolute())
        .find_map(|path| open_debug_file(&path, DebugFileKind::Split).filter(DebugFile::has_units))
}
