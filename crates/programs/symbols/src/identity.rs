//! Which file a module was, and whether the one found is still that.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::build_id::BuildIdText;
use crate::warning::SymbolWarning;

/// A module as it was recorded.
#[derive(Clone, Debug)]
pub struct ModuleIdentity<'a> {
    /// The path that the module was loaded from, or a name such as `linux-vdso.so.1`.
    pub path: &'a Path,
    /// The GNU build id of the loaded module; empty if it had none.
    pub build_id: &'a [u8],
    /// The ELF image stored in the trace. If it is given, no file is opened.
    pub image: Option<Arc<[u8]>>,
    /// The file's size in bytes when it was loaded, if known. Only used if there is no build id.
    pub file_size: Option<u64>,
    /// The file's modification time when it was loaded, in nanoseconds since 1970, if known. Only
    /// used if there is no build id.
    pub modified_ns: Option<i128>,
}

impl<'a> ModuleIdentity<'a> {
    /// The identity of a module of which only path and build id are known.
    pub fn new(path: &'a Path, build_id: &'a [u8]) -> Self {
        Self { path, build_id, image: None, file_size: None, modified_ns: None }
    }

    /// Judges a file that was found at `found_at` with build id `found`.
    /// `Err` refuses it; `Ok(Some(_))` takes it with a doubt.
    pub(crate) fn check(
        &self,
        found_at: &Path,
        found: &[u8],
        metadata: Option<&Metadata>,
    ) -> Result<Option<SymbolWarning>, SymbolWarning> {
        if self.build_id != found {
            return Err(SymbolWarning::OtherBuildId {
                path: found_at.to_path_buf(),
                expected: BuildIdText(self.build_id.to_vec()),
                found: BuildIdText(found.to_vec()),
            });
        }
        if !self.build_id.is_empty() {
            return Ok(None);
        }
        let Some(metadata) = metadata else { return Ok(None) };
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let same = |recorded: Option<i128>, now: i128| recorded.is_none_or(|recorded| recorded == now);
        if !same(self.file_size.map(i128::from), i128::from(metadata.len()))
            || !same(self.modified_ns, modified_ns)
        {
            return Err(SymbolWarning::ChangedFile { path: found_at.to_path_buf() });
        }
        if self.file_size.is_none() && self.modified_ns.is_none() {
            return Ok(Some(SymbolWarning::Unverified { path: found_at.to_path_buf() }));
        }
        Ok(None)
    }
}
