//! Payloads of single chunks.

use std::io;

use everycall_format::arena::{ModuleEntry, module_state};
use everycall_format::ect::{MetaField, ModuleImage, encoding};

use crate::chunk_writer::{array, bytes_of};
use crate::summary::Summary;

/// A META payload of texts, each with its key ([`everycall_format::ect::meta`]).
pub fn texts<'a>(fields: impl IntoIterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut payload = Vec::new();
    for (key, text) in fields {
        payload.extend(bytes_of(&MetaField { key, length: text.len() as u32 }));
        payload.extend(text);
        payload.resize(payload.len().next_multiple_of(4), 0);
    }
    payload
}

/// A MODULES payload from an arena's table, each entry with its path. Incomplete entries keep their
/// index and are empty. Counts and warnings are added to `summary`.
pub fn module_table(
    modules: impl IntoIterator<Item = (ModuleEntry, Vec<u8>)>,
    summary: &mut Summary,
) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut paths = Vec::new();
    for (index, (mut module, path)) in modules.into_iter().enumerate() {
        let sane = module.build_id_length as usize <= module.build_id.len() && module.start <= module.end;
        if module.state == module_state::COMPLETE && sane {
            module.path_offset = paths.len() as u32;
            module.path_length = path.len() as u32;
            paths.extend(path);
            summary.modules += 1;
        } else {
            summary.warnings.push(format!(
                "entry {index} of the module table is not complete; its calls will be shown without names"
            ));
            module = ModuleEntry::default();
        }
        entries.push(module);
    }
    [array(&entries), paths].concat()
}

/// Module files are compressed fast rather than tightly: the user waits, and few files need it.
const IMAGE_LEVEL: i32 = 1;

/// The two parts of a MODULE_IMAGE payload: the file `bytes` of module number `module`.
///
/// # Errors
///
/// There is no memory for it.
pub fn module_image(module: u32, bytes: &[u8]) -> io::Result<[Vec<u8>; 2]> {
    let mut packed = Vec::new();
    // The largest possible size; allocated fallibly, because modules may be large.
    packed.try_reserve_exact(zstd::zstd_safe::compress_bound(bytes.len()))?;
    zstd::bulk::Compressor::new(IMAGE_LEVEL)?.compress_to_buffer(bytes, &mut packed)?;
    let record = ModuleImage { module, encoding: encoding::ZSTD, length: bytes.len() as u64 };
    Ok([bytes_of(&record), packed])
}
