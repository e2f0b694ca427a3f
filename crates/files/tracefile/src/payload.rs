//! Payloads of single chunks.

use std::io::{self, Read, Write};

use everycall_format::Wire as _;
use everycall_format::arena::{ModuleEntry, module_state};
use everycall_format::ect::{MetaField, ModuleImage, encoding};

use crate::chunk_writer::array;
use crate::summary::Summary;

/// A META payload of texts, each with its key ([`everycall_format::ect::meta`]).
pub fn texts<'a>(fields: impl IntoIterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut payload = Vec::new();
    for (key, text) in fields {
        payload.extend(MetaField { key, length: text.len() as u32 }.to_bytes());
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
            paths.extend(&path);
            summary.modules += 1;
            summary.module_paths.insert(path);
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

/// The two parts of a MODULE_IMAGE payload of a file of `length` bytes, which is read in pieces.
///
/// # Errors
///
/// It can't be read, or takes more than `most` bytes packed, or there is no memory for it.
pub fn module_image_of(module: u32, file: impl Read, length: u64, most: usize) -> io::Result<[Vec<u8>; 2]> {
    let mut encoder = zstd::stream::write::Encoder::new(Bounded { bytes: Vec::new(), most }, IMAGE_LEVEL)?;
    encoder.set_pledged_src_size(Some(length))?;
    encoder.include_contentsize(true)?;
    let mut from = file.take(length);
    let mut piece = vec![0; 1 << 20];
    let mut read = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                encoder.write_all(piece.get(..count).unwrap_or_default())?;
                read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let record = ModuleImage { module, encoding: encoding::ZSTD, length: read };
    Ok([record.to_bytes().to_vec(), encoder.finish()?.bytes])
}

/// Memory up to a size.
struct Bounded {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too large"));
        }
        self.bytes.try_reserve(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

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
    Ok([record.to_bytes().to_vec(), packed])
}
