//! The chunk of names of machine code that just-in-time compilers made.

use std::io::{self, Write};

use everycall_format::Wire;
use everycall_format::ect::{CodeName, CodeNamesRecord, chunk};
use everycall_format::frame::RECORD_ALIGN;
use everycall_jit::Code;

use crate::chunk_writer::ChunkWriter;

/// Writes the chunk of a process's code. `lost` is how many names there were beside these.
///
/// # Errors
///
/// The output's.
pub fn write_code_names<W: Write>(file: &mut ChunkWriter<W>, codes: &[Code], lost: u64) -> io::Result<()> {
    let mut records = Vec::new();
    for code in codes {
        let size =
            (CodeName::SIZE + code.name.len() + code.file.len()).next_multiple_of(RECORD_ALIGN as usize);
        let name = CodeName {
            size: size as u32,
            line: code.line,
            start: code.start,
            length: code.size,
            loaded: code.loaded,
            replaced: code.replaced,
            name_length: code.name.len() as u32,
            file_length: code.file.len() as u32,
            reserved: 0,
        };
        let end = records.len() + size;
        records.extend(name.to_bytes());
        records.extend(&code.name);
        records.extend(&code.file);
        records.resize(end, 0);
    }
    let record = CodeNamesRecord {
        record_size: CodeNamesRecord::SIZE as u32,
        length: records.len() as u64,
        lost,
        ..CodeNamesRecord::default()
    };
    file.chunk(chunk::CODE_NAMES, &[&record.to_bytes(), &records])
}
