//! Where to search for binaries and their debugging information.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where [`ModuleSymbols::open`](crate::ModuleSymbols::open) looks.
#[derive(Clone, Debug)]
pub struct SymbolOptions {
    /// Maps of the paths that modules were recorded under; the longest matching prefix wins.
    pub binary_maps: Vec<PathMap>,
    /// Directories laid out like `/usr/lib/debug` (`.build-id/xx/yyyy.debug`, or the binary's own
    /// path below it), searched in this order. Defaults to `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// The cache of the debuginfod client, only ever read. Defaults to the place that the client
    /// uses.
    pub debuginfod_cache: Option<PathBuf>,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self {
            binary_maps: Vec::new(),
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            debuginfod_cache: default_debuginfod_cache(),
        }
    }
}

impl SymbolOptions {
    /// Options that look nowhere but at the module's own path.
    pub fn bare() -> Self {
        Self { binary_maps: Vec::new(), debug_dirs: Vec::new(), debuginfod_cache: None }
    }
}

fn default_debuginfod_cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("DEBUGINFOD_CACHE_PATH")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("debuginfod_client")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/debuginfod_client")))
}

/// One `OLD=NEW` rule: paths that are `OLD` or below it are looked up below `NEW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMap {
    old: OsString,
    new: OsString,
}

/// A text that isn't an `OLD=NEW` rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMapError {
    text: OsString,
}

impl fmt::Display for PathMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "path map '{}' is not of the form OLD=NEW with a non-empty OLD; write for example /build/app=/home/me/app",
            self.text.display()
        )
    }
}

impl std::error::Error for PathMapError {}

impl PathMap {
    /// A rule that replaces the leading directories `old` by `new`.
    pub fn new(old: impl Into<PathBuf>, new: impl Into<PathBuf>) -> Self {
        let mut old = old.into().into_os_string().into_vec();
        // `/` itself stays: it maps every absolute path.
        while old.len() > 1 && old.ends_with(b"/") {
            old.pop();
        }
        Self { old: OsString::from_vec(old), new: new.into().into_os_string() }
    }

    /// The new path of a path below the old directories.
    pub(crate) fn new_place(&self) -> &Path {
        Path::new(&self.new)
    }

    /// Parses `OLD=NEW`; the first `=` separates.
    ///
    /// # Errors
    ///
    /// If there is no `=` or nothing before it.
    pub fn parse(text: &OsStr) -> Result<Self, PathMapError> {
        let bytes = text.as_bytes();
        match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) if at > 0 => {
                Ok(Self::new(OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
            }
            _ => Err(PathMapError { text: text.to_os_string() }),
        }
    }

    /// The mapped path, where this rule matches whole components of `path`.
    fn apply(&self, path: &Path) -> Option<PathBuf> {
        let rest = path.strip_prefix(Path::new(&self.old)).ok()?;
        let new = Path::new(&self.new);
        Some(if rest.as_os_str().is_empty() { new.to_path_buf() } else { new.join(rest) })
    }

    /// The path under the longest matching rule; `None` if no rule matches.
    #[must_use]
    pub fn apply_all(maps: &[Self], path: &Path) -> Option<PathBuf> {
        // Of equally long rules the first wins, so the search runs backwards (max_by_key returns
        // the last).
        maps.iter()
            .rev()
            .filter_map(|map| Some((map.old.len(), map.apply(path)?)))
            .max_by_key(|(length, _)| *length)
            .map(|(_, mapped)| mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_rule_wins_and_components_stay_whole() {
        let maps = [PathMap::new("/build", "/a"), PathMap::new("/build/app/", "/b")];
        let map = |path: &str| PathMap::apply_all(&maps, Path::new(path));
        assert_eq!(map("/build/app/x.c"), Some(PathBuf::from("/b/x.c")));
        assert_eq!(map("/build/apple/x.c"), Some(PathBuf::from("/a/apple/x.c")));
        assert_eq!(map("/builder/x.c"), None);
        assert_eq!(map("/build/app"), Some(PathBuf::from("/b")));
        assert_eq!(
            PathMap::apply_all(&[PathMap::new("/", "/sysroot")], Path::new("/x")),
            Some("/sysroot/x".into())
        );
    }

    #[test]
    fn rules_are_parsed_at_the_first_equals_sign() {
        assert_eq!(PathMap::parse(OsStr::new("/a=/b=c")), Ok(PathMap::new("/a", "/b=c")));
        assert!(PathMap::parse(OsStr::new("=/b")).is_err());
        assert!(PathMap::parse(OsStr::new("/a")).unwrap_err().to_string().contains("OLD=NEW"));
    }
}
