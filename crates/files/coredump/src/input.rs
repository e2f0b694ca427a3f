//! Recognizes a file's kind by its first bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use everycall_format::arena::ARENA_MAGIC;
use everycall_format::ect;

use crate::error::CoreError;
use crate::unpack::unpack;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const LZ4: &[u8] = &[0x04, 0x22, 0x4d, 0x18];
const XZ: &[u8] = b"\xfd7zXZ";
const GZIP: &[u8] = &[0x1f, 0x8b];
const BZIP2: &[u8] = b"BZh";

/// A file with our memory in it.
#[derive(Debug)]
pub(crate) enum Input {
    /// An ELF core, not packed.
    Core(File),
    /// An arena alone, as the command for gdb writes it.
    Arena(File),
}

impl Input {
    /// Looks at a file, and unpacks it where it is packed.
    pub fn open(mut file: File) -> Result<Input, CoreError> {
        match kind(&mut file)? {
            Kind::Zstd => {
                let unpacked = zstd::Decoder::new(file)
                    .map_err(|source| CoreError::Unpack { format: "zstd", source })?;
                Input::unpacked(unpack(unpacked, "zstd")?)
            }
            Kind::Lz4 => Input::unpacked(unpack(
                lz4_flex::frame::FrameDecoder::new(std::io::BufReader::new(file)),
                "lz4",
            )?),
            Kind::Elf => Ok(Input::Core(file)),
            Kind::Arena => Ok(Input::Arena(file)),
        }
    }

    fn unpacked(mut file: File) -> Result<Input, CoreError> {
        match kind(&mut file)? {
            Kind::Elf => Ok(Input::Core(file)),
            Kind::Arena => Ok(Input::Arena(file)),
            _ => Err(CoreError::NotACore("something packed twice")),
        }
    }
}

enum Kind {
    Elf,
    Arena,
    Zstd,
    Lz4,
}

/// Returns what a file is. Its position is at its beginning afterwards.
fn kind(file: &mut File) -> Result<Kind, CoreError> {
    let mut head = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    let packed = |format, command| Err(CoreError::Packed { format, command });
    match &head[..] {
        [] => Err(CoreError::NotACore("an empty file")),
        head if head.starts_with(&object::elf::ELFMAG) => Ok(Kind::Elf),
        // Before arenas: their magic is its beginning.
        head if head.starts_with(&ect::MAGIC) => {
            Err(CoreError::NotACore("a trace, which is shown by `everycall info`"))
        }
        head if head.starts_with(&ARENA_MAGIC.to_le_bytes()) => Ok(Kind::Arena),
        head if head.starts_with(ZSTD) => Ok(Kind::Zstd),
        head if head.starts_with(LZ4) => Ok(Kind::Lz4),
        head if head.starts_with(XZ) => packed("xz", "xz -d"),
        head if head.starts_with(GZIP) => packed("gzip", "gzip -d"),
        head if head.starts_with(BZIP2) => packed("bzip2", "bzip2 -d"),
        head if head.iter().all(|byte| *byte == 0) => Err(CoreError::NotACore("zeros")),
        head if head.is_ascii() => Err(CoreError::NotACore("text")),
        _ => Err(CoreError::NotACore("data of an unknown kind")),
    }
}
