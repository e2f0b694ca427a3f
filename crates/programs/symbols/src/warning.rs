//! Reasons why a module's symbols are incomplete, as sentences for people.

use std::fmt;
use std::path::PathBuf;

use crate::build_id::BuildIdText;

/// Why functions of a module have fewer names, files or lines than they might, and what to do about
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolWarning {
    /// The module's file can't be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason, as the system words it.
        reason: String,
    },
    /// The file is not the kind of ELF file that is understood.
    NotUnderstood {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file at the module's path has another build id: it was rebuilt or replaced.
    OtherBuildId {
        /// The file.
        path: PathBuf,
        /// The recorded build id.
        expected: BuildIdText,
        /// The file's build id.
        found: BuildIdText,
    },
    /// The file has no build id, and another size or modification time than recorded.
    ChangedFile {
        /// The file.
        path: PathBuf,
    },
    /// Build id, size and time don't show whether the file is the one that was traced; it was used.
    Unverified {
        /// The file.
        path: PathBuf,
    },
    /// BOLT rewrote the file after its link: it moves code, and doesn't know of lists of sites.
    MovedSites {
        /// The file.
        path: PathBuf,
    },
    /// A file with debugging information was found and refused.
    DebugFileRefused {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The module has no debugging information: names come without file and line.
    NoDebugInfo {
        /// The module.
        path: PathBuf,
    },
    /// Part of the debugging information couldn't be read.
    DamagedDebugInfo {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The `.dwo` files of split DWARF are missing; counted rather than listed.
    MissingSplitUnits {
        /// The module.
        path: PathBuf,
        /// One of the files.
        example: PathBuf,
        /// How many there are.
        count: usize,
    },
}

impl SymbolWarning {
    /// Whether a [`PathMap`](crate::PathMap) to the right file is the remedy that its sentence
    /// gives.
    #[must_use]
    pub fn is_mended_by_path_map(&self) -> bool {
        match self {
            Self::Unreadable { .. }
            | Self::NotUnderstood { .. }
            | Self::OtherBuildId { .. }
            | Self::ChangedFile { .. }
            | Self::MissingSplitUnits { .. } => true,
            Self::Unverified { .. }
            | Self::MovedSites { .. }
            | Self::DebugFileRefused { .. }
            | Self::NoDebugInfo { .. }
            | Self::DamagedDebugInfo { .. } => false,
        }
    }
}

impl fmt::Display for SymbolWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => write!(
                f,
                "{} can't be read ({reason}), so its functions are named by module and offset; put the traced file \
                 back or map its path",
                path.display()
            ),
            Self::NotUnderstood { path, reason } => write!(
                f,
                "{} was expected to be a 64-bit little-endian ELF file, but {reason}, so its functions are named by \
                 module and offset; map its path to the traced file",
                path.display()
            ),
            Self::OtherBuildId { path, expected, found } => write!(
                f,
                "{} is not the file that was traced: build id {expected} was expected, {found} was found. Its functions \
                 are named by module and offset; map its path to a copy of the traced file",
                path.display()
            ),
            Self::ChangedFile { path } => write!(
                f,
                "{} has another size or modification time than when it was traced, and no build id to tell whether it is \
                 the same. Its functions are named by module and offset; map its path to a copy of the traced file, and link with \
                 -Wl,--build-id",
                path.display()
            ),
            Self::Unverified { path } => write!(
                f,
                "{} has no build id, so nothing shows that it is the file that was traced; names are right only if it \
                 wasn't rebuilt since. Link with -Wl,--build-id to be sure",
                path.display()
            ),
            Self::MovedSites { path } => write!(
                f,
                "{} was rewritten after its link, by BOLT: calls in code that it moved are missing; record the file as it \
                 was linked, or build it in a mode whose calls BOLT keeps: everycall cc --mode fentry (gcc) or after-inlining (clang)",
                path.display()
            ),
            Self::DebugFileRefused { path, reason } => {
                write!(f, "{} was not used for debugging information: {reason}", path.display())
            }
            Self::NoDebugInfo { path } => write!(
                f,
                "{} has no debugging information, so its functions have neither file nor line (and no name where it is stripped); \
                 compile with -g, or install its debug package",
                path.display()
            ),
            Self::DamagedDebugInfo { path, reason } => write!(
                f,
                "the debugging information of {} could not be read in full ({reason}), so some functions have neither file nor \
                 line; rebuild it",
                path.display()
            ),
            Self::MissingSplitUnits { path, example, count } => write!(
                f,
                "{count} file(s) with split debugging information of {} can't be used, {} among them, so some functions have \
                 neither file nor line; put them back, map their path, or make a .dwp file with dwp",
                path.display(),
                example.display()
            ),
        }
    }
}

impl std::error::Error for SymbolWarning {}
