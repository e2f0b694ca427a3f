//! Files as they are, and their symbols.

use std::fs::Metadata;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use everycall_rewrite::{Analysis, RewriteError};
use everycall_symbols::{SymbolOptions, build_id_files};

/// Longer files can't be loaded with all of their code in reach.
const MAX_FILE: u64 = 4 << 30;

/// A program or library, and the symbols that were removed from it.
pub struct Binary {
    file: Vec<u8>,
    debug: Option<Vec<u8>>,
}

impl Binary {
    /// Reads both.
    ///
    /// # Errors
    /// The first one can't be read.
    pub fn read(path: &Path) -> io::Result<Binary> {
        Ok(Self::with_symbols(read(path)?))
    }

    /// `file`: the program or library.
    pub(crate) fn with_symbols(file: Vec<u8>) -> Binary {
        let debug = debug_file(&file).and_then(|(path, _)| read(&path).ok());
        Binary { file, debug }
    }

    /// Its functions, and what could be done to them.
    ///
    /// # Errors
    /// Those of [`Analysis::of`].
    pub fn analysis(&self) -> Result<Analysis<'_>, RewriteError> {
        Analysis::of(&self.file, self.debug.as_deref())
    }
}

pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = everycall_io::infile::open(path)?;
    let length = file.metadata()?.len().min(MAX_FILE);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The file with the symbols that were removed from this one.
pub(crate) fn debug_file(file: &[u8]) -> Option<(PathBuf, Metadata)> {
    let options = SymbolOptions::default();
    let with_facts = |path: PathBuf| path.metadata().ok().map(|facts| (path, facts));
    build_id_files(build_id(file)?, &options).find_map(with_facts)
}

pub(crate) fn build_id(file: &[u8]) -> Option<&[u8]> {
    use object::Object as _;
    let elf = object::read::elf::ElfFile64::<object::Endianness>::parse(file).ok()?;
    elf.build_id().ok().flatten()
}
