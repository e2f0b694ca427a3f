//! Objects of a workload, and the programs that are linked from them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use super::Workload;
use super::sources::{lock, matching, own_folder, target_folder, vendored};
use crate::place::{Mode, everycall, successful};

/// The linker's input beside a workload's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// Nothing: for objects without hooks, and for those with sites.
    Plain,
    /// Everycall's runtime, by the prefix.
    Traced,
    /// The oracle.
    Oracle,
}

/// One way to compile a workload.
#[derive(Clone, Debug)]
pub struct Build {
    /// The workload to build.
    pub workload: Workload,
    /// With which hooks; `None` by gcc alone.
    pub mode: Option<Mode>,
    /// Options for every compilation and link, such as `-O2`.
    pub flags: &'static [&'static str],
}

impl Build {
    /// The objects; compiled at the first call, and reused as long as neither the sources, the
    /// options nor the prefix change.
    ///
    /// # Panics
    /// Where the compiler fails or says anything.
    #[must_use]
    pub fn objects(&self) -> Vec<PathBuf> {
        let folder = self.folder();
        let lock = lock_of(&folder);
        let _guard = lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = folder.file_name().expect("a folder with a name").to_string_lossy();
        let _others = self::lock(&name);
        if !folder.exists() {
            let unfinished = folder.with_extension(format!("unfinished-{}", std::process::id()));
            let _ = fs::remove_dir_all(&unfinished);
            fs::create_dir_all(&unfinished).expect("a folder in the target folder");
            for source in self.sources() {
                self.compile(&source, &unfinished);
            }
            fs::rename(&unfinished, &folder).expect("a folder in the target folder");
        }
        let entries = fs::read_dir(&folder).expect("a folder in the target folder");
        let mut objects: Vec<PathBuf> =
            entries.map(|entry| entry.expect("a readable folder").path()).collect();
        objects.sort();
        objects
    }

    /// Links the objects into `output`.
    ///
    /// # Panics
    /// Where the linker fails or says anything.
    pub fn link(&self, linkage: Linkage, output: &Path) {
        let mut command = match linkage {
            Linkage::Traced => self.compiler(self.workload.is_cxx),
            Linkage::Plain | Linkage::Oracle => Command::new(self.plain_compiler(self.workload.is_cxx)),
        };
        command.args(self.flags).args(self.objects());
        if linkage == Linkage::Oracle {
            // The linker goes by these words in the order of `everycall cc`.
            command.arg("-Wl,-z,start-stop-gc");
            command.arg(format!("-Wl,--dynamic-list={}", oracle().join("everycall-exports.list").display()));
            command.arg(oracle().join("everycall-rt.o"));
        }
        command.args(["-pthread", "-lm", "-o"]).arg(output);
        silent(&mut command);
    }

    /// A name for files.
    #[must_use]
    pub fn label(&self) -> String {
        let mode = self.mode.map_or("plain".to_owned(), Mode::label);
        format!("{}-{mode}{}", self.workload.name, self.flags.concat())
    }

    fn plain_compiler(&self, is_cxx: bool) -> &'static str {
        match self.mode {
            Some(mode) if is_cxx => mode.cxx,
            Some(mode) => mode.cc,
            None if is_cxx => "g++",
            None => "gcc",
        }
    }

    fn compiler(&self, is_cxx: bool) -> Command {
        let compiler = self.plain_compiler(is_cxx);
        let Some(mode) = self.mode else { return Command::new(compiler) };
        let mut command = Command::new(everycall());
        command.args(["cc", "--mode", mode.name, "--", compiler]);
        command
    }

    fn sources(&self) -> Vec<PathBuf> {
        let Workload { name, is_cxx, sources, except, is_unity, .. } = self.workload;
        let own = own_folder().join("drivers").join(format!("{name}.{}", if is_cxx { "cc" } else { "c" }));
        let mut files: Vec<PathBuf> = sources.iter().flat_map(|pattern| matching(pattern, except)).collect();
        assert!(!files.is_empty(), "no sources of {name}");
        if is_unity {
            files = vec![unity(name, &files)];
        }
        files.insert(0, own);
        files
    }

    fn compile(&self, source: &Path, folder: &Path) {
        let stem = source.file_stem().and_then(|stem| stem.to_str()).expect("a source with a name");
        // Two folders of zstd may have files of one name.
        let mut object = folder.join(format!("{stem}.o"));
        for number in 2.. {
            if !object.exists() {
                break;
            }
            object = folder.join(format!("{stem}-{number}.o"));
        }
        let mut command = self.compiler(self.workload.is_cxx);
        command.args(self.flags).args(["-g", "-w", "-c"]).args(self.workload.options);
        for include in self.workload.includes {
            command.arg("-I").arg(vendored().join(include));
        }
        silent(command.arg(source).arg("-o").arg(object));
    }

    fn folder(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        prefix_hash().hash(&mut hasher);
        // Objects name their sources, also in a target folder that is a copy of another one's.
        target_folder().hash(&mut hasher);
        let Workload { name, sources, except, includes, options, .. } = self.workload;
        (name, sources, except, includes, options).hash(&mut hasher);
        for entry in fs::read_dir(own_folder().join("drivers")).expect("drivers") {
            let path = entry.expect("a readable folder").path();
            if path.file_stem().is_some_and(|stem| stem == name) {
                fs::read(path).expect("a driver").hash(&mut hasher);
            }
        }
        let name = format!("{}-{:016x}", self.label(), hasher.finish());
        target_folder().join("workloads/objects").join(name)
    }
}

/// One lock per folder of objects, so that tests side by side don't compile the same.
fn lock_of(folder: &Path) -> Arc<Mutex<()>> {
    static LOCKS: LazyLock<Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>> = LazyLock::new(Mutex::default);
    let mut locks = LOCKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Arc::clone(locks.entry(folder.to_owned()).or_default())
}

/// A source that includes `files`.
fn unity(name: &str, files: &[PathBuf]) -> PathBuf {
    let path = target_folder().join("workloads").join(format!("{name}-all.cc"));
    let text: String = files.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
    if !fs::read_to_string(&path).is_ok_and(|known| known == text) {
        // Others may read it at the same time.
        let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
        fs::write(&unfinished, text).expect("a file in the target folder");
        fs::rename(&unfinished, &path).expect("a file in the target folder");
    }
    path
}

/// Of what decides how objects turn out: the sources of the prefix.
fn prefix_hash() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/building/compiler/src")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("the prefix's sources") {
                let path = entry.expect("a readable folder").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files.sort();
        for file in files {
            fs::read(file).expect("a source of the prefix").hash(&mut hasher);
        }
        hasher.finish()
    })
}

/// The oracle as a kit.
fn oracle() -> &'static Path {
    static KIT: OnceLock<PathBuf> = OnceLock::new();
    KIT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle");
        let mut hasher = DefaultHasher::new();
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)
            .expect("the oracle")
            .map(|entry| entry.expect("a file of it").path())
            .collect();
        files.sort();
        for file in files {
            fs::read(file).expect("a file of the oracle").hash(&mut hasher);
        }
        // Built once: others may link it at the same time.
        let kit = target_folder().join(format!("workloads/oracle-{:016x}", hasher.finish()));
        let _others = lock("oracle");
        if !kit.exists() {
            let unfinished = kit.with_extension("unfinished");
            successful(Command::new(folder.join("build.sh")).arg(&unfinished));
            fs::rename(&unfinished, &kit).expect("a folder in the target folder");
        }
        kit
    })
}

/// Runs a compiler or linker, which has to succeed without a word.
fn silent(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let words: Vec<OsString> = command.get_args().map(OsString::from).collect();
    assert!(
        output.status.success() && said.is_empty(),
        "{:?} {words:?}: {}\n{}",
        command.get_program(),
        output.status,
        String::from_utf8_lossy(&said)
    );
}
