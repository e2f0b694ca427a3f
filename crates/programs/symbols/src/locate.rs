//! Finding a module's file and the files with its debugging information.
//!
//! Nothing is taken on trust: a module must have the recorded build id, a debug file the same build
//! id or the checksum that the link names. What is found and refused becomes a warning.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::num::NonZeroUsize;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::{Object, ObjectSection};

use crate::elf;
use crate::file_bytes::FileBytes;
use crate::identity::ModuleIdentity;
use crate::options::{PathMap, SymbolOptions};
use crate::sites::has_moved_sites;
use crate::warning::SymbolWarning;

/// Memory for unpacking, in bytes; `xz` uses 8 MiB by default.
const XZ_DICTIONARY_SIZE_MAX: usize = 16 << 20;
const XZ_BUFFER_SIZE: NonZeroUsize = NonZeroUsize::new(16 << 10).unwrap();

/// A file and its contents.
#[derive(Clone)]
pub(crate) struct LocatedFile {
    pub path: PathBuf,
    pub bytes: Arc<FileBytes>,
}

/// The files that were found for a module.
#[derive(Default)]
pub(crate) struct Located {
    /// The module itself.
    pub module: Option<LocatedFile>,
    /// A separate file with its symbols and debugging information.
    pub debug: Option<LocatedFile>,
    /// Symbols stored inside the module in compressed form.
    pub minimal: Option<LocatedFile>,
    /// The file that several debug files share, as `dwz` makes it.
    pub shared: Option<LocatedFile>,
    /// Whether further files may be opened.
    pub may_open: bool,
    pub warnings: Vec<SymbolWarning>,
}

/// Finds the files of a module.
pub(crate) fn locate(identity: &ModuleIdentity<'_>, options: &SymbolOptions) -> Located {
    let mut located = Located { may_open: identity.image.is_none(), ..Located::default() };
    match &identity.image {
        Some(image) => take_image(identity, image, &mut located),
        None => {
            take_module(identity, options, &mut located);
            take_debug_file(identity, options, &mut located);
            take_shared(options, &mut located);
        }
    }
    take_minimal(&mut located);
    located
}

fn take_image(identity: &ModuleIdentity<'_>, image: &Arc<[u8]>, located: &mut Located) {
    let path = identity.path.to_path_buf();
    match elf::parse(image) {
        Err(reason) => located.warnings.push(SymbolWarning::NotUnderstood { path, reason }),
        Ok(parsed) => {
            // An image came with the trace; only a recorded build id can speak against it.
            let checked = match identity.build_id {
                [] => Ok(None),
                _ => identity.check(&path, elf::build_id(&parsed), None),
            };
            match checked {
                Err(warning) => located.warnings.push(warning),
                Ok(_) => {
                    if has_moved_sites(&parsed) {
                        located.warnings.push(SymbolWarning::MovedSites { path: path.clone() });
                    }
                    let bytes = Arc::new(FileBytes::Shared(image.clone()));
                    located.module = Some(LocatedFile { path, bytes });
                }
            }
        }
    }
}

fn take_module(identity: &ModuleIdentity<'_>, options: &SymbolOptions, located: &mut Located) {
    let recorded = without_deleted_mark(identity.path);
    let mapped = PathMap::apply_all(&options.binary_maps, recorded).filter(|path| path.exists());
    let path = mapped.unwrap_or_else(|| recorded.to_path_buf());
    match open_module(identity, &path) {
        Ok((file, warning)) => {
            if elf::parse(&file.bytes).is_ok_and(|parsed| has_moved_sites(&parsed)) {
                located.warnings.push(SymbolWarning::MovedSites { path: file.path.clone() });
            }
            located.module = Some(file);
            located.warnings.extend(warning);
        }
        Err(warning) => {
            // The cache stores executables by build id, so one found there is the right one.
            let cached = cache_file(identity.build_id, options, "executable");
            match cached.and_then(|path| open_module(identity, &path).ok()) {
                Some((file, _)) => located.module = Some(file),
                None => located.warnings.push(warning),
            }
        }
    }
}

fn open_module(
    identity: &ModuleIdentity<'_>,
    path: &Path,
) -> Result<(LocatedFile, Option<SymbolWarning>), SymbolWarning> {
    if !path.is_absolute() {
        return Err(SymbolWarning::Unreadable {
            path: path.to_path_buf(),
            reason: "it is not the absolute path of a file".to_owned(),
        });
    }
    let (bytes, metadata): (FileBytes, Metadata) = FileBytes::open(path)
        .map_err(|error| SymbolWarning::Unreadable { path: path.to_path_buf(), reason: error.to_string() })?;
    let parsed = elf::parse(&bytes)
        .map_err(|reason| SymbolWarning::NotUnderstood { path: path.to_path_buf(), reason })?;
    let doubt = identity.check(path, elf::build_id(&parsed), Some(&metadata))?;
    Ok((LocatedFile { path: path.to_path_buf(), bytes: Arc::new(bytes) }, doubt))
}

/// The kernel's listing of mappings marks files that were deleted.
fn without_deleted_mark(path: &Path) -> &Path {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(bytes) => Path::new(OsStr::from_bytes(bytes)),
        None => path,
    }
}

fn take_debug_file(identity: &ModuleIdentity<'_>, options: &SymbolOptions, located: &mut Located) {
    let module = located.module.clone();
    let parsed = module.as_ref().and_then(|module| elf::parse(&module.bytes).ok());
    if parsed.as_ref().is_some_and(has_debug_info) {
        return;
    }
    let by_id = build_id_files(identity.build_id, options)
        .chain(cache_file(identity.build_id, options, "debuginfo"))
        .find_map(|path| open_debug_file(&path, identity.build_id, None, &mut located.warnings));
    if by_id.is_some() {
        located.debug = by_id;
        return;
    }
    let (Some(module), Some(parsed)) = (&module, &parsed) else { return };
    let Ok(Some((name, checksum))) = parsed.gnu_debuglink() else { return };
    // Only a name: a link that leads elsewhere is not what tools write.
    let Some(name) = Path::new(OsStr::from_bytes(name)).file_name() else { return };
    located.debug = debug_link_files(&module.path, without_deleted_mark(identity.path), name, options)
        .into_iter()
        .filter(|path| *path != module.path)
        .find_map(|path| open_debug_file(&path, identity.build_id, Some(checksum), &mut located.warnings));
}

fn has_debug_info(elf: &elf::Elf<'_>) -> bool {
    elf.section_by_name(".debug_info").is_some_and(|section| section.size() > 0)
}

/// Where packages of distributions put the symbols of the file with this build id:
/// `.build-id/xx/yyyy.debug` in each of the debug directories. The files needn't exist.
pub fn build_id_files<'a>(
    build_id: &[u8],
    options: &'a SymbolOptions,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    let below = (build_id.len() > 1).then(|| {
        let hex = crate::BuildIdText(build_id.to_vec()).to_string();
        format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..])
    });
    below.into_iter().flat_map(|below| options.debug_dirs.iter().map(move |dir| dir.join(&below)))
}

fn cache_file(build_id: &[u8], options: &SymbolOptions, name: &str) -> Option<PathBuf> {
    let dir = options.debuginfod_cache.as_ref().filter(|_| !build_id.is_empty())?;
    Some(dir.join(crate::BuildIdText(build_id.to_vec()).to_string()).join(name))
}

fn debug_link_files(module: &Path, recorded: &Path, name: &OsStr, options: &SymbolOptions) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some(dir) = module.parent() {
        files.push(dir.join(name));
        files.push(dir.join(".debug").join(name));
    }
    for path in [recorded, module] {
        let Some(below) = path.parent().and_then(|dir| dir.strip_prefix("/").ok()) else { continue };
        files.extend(options.debug_dirs.iter().map(|dir| dir.join(below).join(name)));
    }
    files
}

/// Opens a file with debugging information: with the module's build id, or without one if the
/// checksum in the link matches. A missing file is not an error.
fn open_debug_file(
    path: &Path,
    build_id: &[u8],
    checksum: Option<u32>,
    warnings: &mut Vec<SymbolWarning>,
) -> Option<LocatedFile> {
    let (bytes, _) = FileBytes::open(path).ok()?;
    let judged = elf::parse(&bytes).and_then(|parsed| {
        let found = elf::build_id(&parsed);
        if found != build_id && !(found.is_empty() && checksum.is_some()) {
            return Err(format!(
                "build id {} was expected, {} was found; install the debug package of the traced version",
                crate::BuildIdText(build_id.to_vec()),
                crate::BuildIdText(found.to_vec())
            ));
        }
        match checksum.map(|expected| (expected, crc32fast::hash(&bytes))) {
            Some((expected, found)) if expected != found => Err(format!(
                "checksum {expected:08x} was expected, {found:08x} was found; put the file back that was split off the binary"
            )),
            _ => Ok(()),
        }
    });
    match judged {
        Ok(()) => Some(LocatedFile { path: path.to_path_buf(), bytes: Arc::new(bytes) }),
        Err(reason) => {
            warnings.push(SymbolWarning::DebugFileRefused { path: path.to_path_buf(), reason });
            None
        }
    }
}

/// Follows `.gnu_debugaltlink`.
fn take_shared(options: &SymbolOptions, located: &mut Located) {
    let Some(file) = located.debug.clone().or_else(|| located.module.clone()) else { return };
    let Ok(parsed) = elf::parse(&file.bytes) else { return };
    let Ok(Some((name, build_id))) = parsed.gnu_debugaltlink() else { return };
    let named = file.path.parent().map(|dir| dir.join(OsStr::from_bytes(name)));
    located.shared = named
        .into_iter()
        .chain(build_id_files(build_id, options))
        .chain(cache_file(build_id, options, "debuginfo"))
        .find_map(|path| open_debug_file(&path, build_id, None, &mut located.warnings));
}

/// Unpacks `.gnu_debugdata`, the symbols that some distributions leave in stripped files.
fn take_minimal(located: &mut Located) {
    let Some(module) = &located.module else { return };
    let Ok(parsed) = elf::parse(&module.bytes) else { return };
    let Some(data) = parsed.section_by_name(".gnu_debugdata").and_then(|section| section.data().ok()) else {
        return;
    };
    let size_max = crate::budget::MEMORY_BASE_BYTES / 4 + 2 * module.bytes.len() as u64;
    let path = module.path.clone();
    match unpack_xz(data, size_max) {
        Ok(bytes) => located.minimal = Some(LocatedFile { path, bytes: Arc::new(FileBytes::Read(bytes)) }),
        Err(reason) => located.warnings.push(SymbolWarning::DamagedDebugInfo {
            path,
            reason: format!("section .gnu_debugdata: {reason}"),
        }),
    }
}

fn unpack_xz(data: &[u8], size_max: u64) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let decoder = xz4rust::XzDecoder::in_heap_with_alloc_dict_size(0, XZ_DICTIONARY_SIZE_MAX);
    // The reader takes ownership of its input, which is small.
    let input = std::io::Cursor::new(data.to_vec());
    let reader = xz4rust::XzReader::new_with_buffer_size_and_decoder(input, XZ_BUFFER_SIZE, decoder);
    reader.take(size_max + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > size_max {
        return Err(format!("it unpacks to more than {size_max} bytes"));
    }
    Ok(bytes)
}

/// The path made of raw bytes out of a file.
pub(crate) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()))
}
