//! Which files may be read and written.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The permissions that the user gives.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder with traces; new ones are written there, too.
    pub folder: PathBuf,
    /// Further folders whose source files may be shown.
    pub sources: Vec<PathBuf>,
    /// Programs that may be started to record them.
    pub programs: Vec<PathBuf>,
    /// Whether running programs may be recorded.
    pub attach: bool,
    /// How long one tool may take.
    pub timeout: Duration,
    /// Most bytes of an answer's data.
    pub answer_max: usize,
    /// The command that tools run.
    pub command: PathBuf,
}

/// [`Options`] with paths that were looked up.
#[derive(Clone, Debug)]
pub struct Allowed {
    pub(crate) options: Options,
}

impl Allowed {
    /// Looks up the paths.
    ///
    /// # Errors
    ///
    /// A sentence about one that isn't there.
    pub fn new(options: Options) -> Result<Allowed, String> {
        let folder = |path: &Path| {
            let found = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
            if found.is_dir() { Ok(found) } else { Err(format!("{} is not a folder", path.display())) }
        };
        let program = |path: &PathBuf| {
            let found = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
            if found.is_file() { Ok(found) } else { Err(format!("{} is not a program", path.display())) }
        };
        Ok(Allowed {
            options: Options {
                folder: folder(&options.folder)?,
                sources: options.sources.iter().map(|path| folder(path)).collect::<Result<_, _>>()?,
                programs: options.programs.iter().map(program).collect::<Result<_, _>>()?,
                ..options
            },
        })
    }

    /// A trace in the folder, by its name there.
    pub(crate) fn trace(&self, name: &str) -> Result<PathBuf, String> {
        let folder = &self.options.folder;
        let found = folder.join(name).canonicalize();
        // One sentence for both: whether other files exist is nobody's business.
        let refused = || format!("there is no trace `{name}` in the allowed folder; list_traces lists them");
        let found = found.ok().filter(|found| found.starts_with(folder) && found.is_file());
        found.ok_or_else(refused)
    }

    /// The name of a file in the folder.
    pub(crate) fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.options.folder).unwrap_or(path).display().to_string()
    }

    /// Where a new trace with this name is written.
    pub(crate) fn new_trace(&self, name: &str) -> Result<PathBuf, String> {
        let is_plain = name.len() <= 200
            && name.ends_with(".ect")
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
            && !name.starts_with(['.', '-']);
        if !is_plain {
            return Err(format!(
                "`{name}` is no name for a trace; write one such as run-1.ect, without a folder"
            ));
        }
        let path = self.options.folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(format!("{name} exists; choose another name"));
        }
        Ok(path)
    }

    /// A program that may be started: by its path, or by the name of its file.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, String> {
        let programs = &self.options.programs;
        let is_it = |program: &&PathBuf| {
            program.file_name().is_some_and(|file| file.to_str() == Some(name))
                || self.options.folder.join(name).canonicalize().is_ok_and(|path| path == **program)
        };
        let names = || {
            let all: Vec<String> = programs.iter().map(|path| path.display().to_string()).collect();
            match all.is_empty() {
                true => {
                    "no program may be recorded; the user allows one with --allow-record PROGRAM".to_owned()
                }
                false => format!("`{name}` may not be recorded; allowed are {}", all.join(", ")),
            }
        };
        programs.iter().find(is_it).cloned().ok_or_else(names)
    }

    /// A source file that may be shown: the one with this path, or with the longest end of it, in
    /// an allowed folder.
    pub(crate) fn source(&self, recorded: &Path) -> Option<PathBuf> {
        const ENDINGS: [&str; 15] =
            ["c", "cc", "cpp", "cxx", "c++", "h", "hh", "hpp", "hxx", "inl", "ipp", "rs", "py", "pyx", "S"];
        let is_source =
            recorded.extension().and_then(|end| end.to_str()).is_some_and(|end| ENDINGS.contains(&end));
        if !is_source {
            return None;
        }
        let parts: Vec<Component<'_>> =
            recorded.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let roots = || std::iter::once(&self.options.folder).chain(&self.options.sources);
        let may_be_shown = |path: &Path, root: &Path| {
            let below = path.strip_prefix(root).ok()?;
            let is_hidden =
                |part: Component<'_>| part.as_os_str().to_str().is_none_or(|name| name.starts_with('.'));
            (!below.components().any(is_hidden) && path.is_file()).then(|| path.to_owned())
        };
        if let Ok(found) = recorded.canonicalize()
            && let Some(found) = roots().find_map(|root| may_be_shown(&found, root))
        {
            return Some(found);
        }
        (0..parts.len()).find_map(|skipped| {
            let end: PathBuf = parts.get(skipped..)?.iter().collect();
            roots().find_map(|root| may_be_shown(&root.join(&end).canonicalize().ok()?, root))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_folder() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("traces");
        std::fs::create_dir_all(folder.join("src/.git")).unwrap();
        std::fs::write(place.path().join("other.ect"), "").unwrap();
        std::fs::write(folder.join("a.ect"), "").unwrap();
        std::fs::write(folder.join("src/a.c"), "").unwrap();
        std::fs::write(folder.join("src/.git/b.c"), "").unwrap();
        std::fs::write(folder.join("key.txt"), "").unwrap();
        std::os::unix::fs::symlink(place.path().join("other.ect"), folder.join("link.ect")).unwrap();
        let allowed = Allowed::new(Options {
            folder: folder.clone(),
            sources: Vec::new(),
            programs: Vec::new(),
            attach: false,
            timeout: Duration::from_secs(1),
            answer_max: 1000,
            command: PathBuf::new(),
        })
        .unwrap();
        assert_eq!(allowed.name(&allowed.trace("a.ect").unwrap()), "a.ect");
        for name in ["../other.ect", "link.ect", "/etc/passwd", "src", "none.ect", ""] {
            assert!(allowed.trace(name).unwrap_err().contains("in the allowed folder"), "{name}");
        }
        assert!(allowed.new_trace("b.ect").is_ok());
        for name in ["a.ect", "../b.ect", "sub/b.ect", "-o.ect", ".ect", "b.txt", "/tmp/b.ect"] {
            assert!(allowed.new_trace(name).is_err(), "{name}");
        }
        assert!(allowed.program("sh").unwrap_err().contains("--allow-record"));
        let source = |path: &str| allowed.source(Path::new(path)).map(|path| allowed.name(&path));
        assert_eq!(source("/build/src/a.c").as_deref(), Some("src/a.c"));
        for path in ["/etc/passwd", "/x/key.txt", "/x/src/.git/b.c", "../../other.c", "a.c"] {
            assert_eq!(source(path), None, "{path}");
        }
    }
}
