//! Which files of a process get hooks.

use std::ops::Range;
use std::path::{Path, PathBuf};

use everycall_inject::Mapping;
use everycall_patterns::path_matches;
use everycall_symbols::site_report;

/// Where a file's first page is mapped.
pub fn first_page(maps: &[Mapping], path: &Path) -> Option<u64> {
    maps.iter().find(|mapping| Path::new(&mapping.name) == path).map(|mapping| mapping.range.start)
}

/// From a file's first page to its last one.
pub(crate) fn range_of(maps: &[Mapping], path: &Path) -> Option<Range<u64>> {
    let mut own = maps.iter().filter(|mapping| Path::new(&mapping.name) == path).map(|part| &part.range);
    let first = own.next()?;
    Some(first.start..own.next_back().unwrap_or(first).end)
}

/// Prefixes that many programs share: libraries there aren't a program's own.
const SHARED: [&str; 3] = ["/", "/usr", "/usr/local"];

/// Where a program has libraries of its own: in its folder, and for `PREFIX/bin/PROGRAM` in
/// `PREFIX/lib`.
fn own_folders(program: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = program.parent().map(Path::to_owned).into_iter().collect();
    let bin = program.parent().filter(|folder| folder.ends_with("bin"));
    let prefix = bin
        .and_then(Path::parent)
        .filter(|prefix| !SHARED.iter().any(|shared| **prefix == *Path::new(shared)));
    folders.extend(prefix.map(|prefix| prefix.join("lib")));
    folders
}

/// Libraries that get hooks: those that match one of `modules`, or, if there are none, those in the
/// program's own folders.
pub fn libraries(maps: &[Mapping], program: &Path, modules: &[String]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let own = own_folders(program);
    for mapping in maps.iter().filter(|mapping| mapping.is_executable) {
        let path = Path::new(&mapping.name);
        let is_wanted = match modules {
            [] => path.parent().is_some_and(|folder| own.iter().any(|own| own == folder)),
            globs => globs.iter().any(|glob| path_matches(glob, path)),
        };
        if is_wanted && path.is_absolute() && path != program && !found.iter().any(|known| known == path) {
            found.push(path.to_owned());
        }
    }
    found
}

/// Whether libraries beside a program may get hooks, too.
pub fn may_have_libraries(program: &Path) -> bool {
    let folders = own_folders(program);
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    files.map(|file| file.file_name()).any(|name| name.to_string_lossy().contains(".so"))
}

/// Whether a file was built with everycall, so that it has hooks of its own.
pub fn has_own_hooks(path: &Path) -> bool {
    // The C library defines plain hooks, too.
    site_report(path).is_ok_and(|report| {
        let has_sites = report.site_count + report.xray_sled_count > 0;
        has_sites || report.hooks_undefined || report.note.is_some()
    })
}
