//! Interpreters of Python, and environments in which everycall is installed as pip does it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::place::{Place, everycall, found, successful};

/// A program in `tests/python`.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}

/// Debian's, which `cargo xtask test` installs.
pub const SYSTEM: &str = "/usr/bin/python3";
/// Later versions, in the folder of pyenv. Their way to record differs from 3.11's.
const LATER: [&str; 2] = ["3.12.1", "3.13.0"];

/// The interpreters that are there. Prints which aren't.
#[must_use]
pub fn interpreters() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from(SYSTEM)];
    let home = std::env::var_os("PYENV_ROOT").map_or_else(
        || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".pyenv"),
        PathBuf::from,
    );
    for version in LATER {
        let python = home.join("versions").join(version).join("bin/python3");
        if python.exists() {
            all.push(python);
        } else {
            println!("skipped: Python {version}, as there is no {}", python.display());
        }
    }
    all.extend(newest());
    all
}

/// Python 3.14: `EVERYCALL_PYTHON_3_14`, or in the search path. Prints what makes one if it isn't
/// there.
#[must_use]
pub fn newest() -> Option<PathBuf> {
    let python = std::env::var_os("EVERYCALL_PYTHON_3_14").map(PathBuf::from).or_else(|| found("python3.14"));
    if python.is_none() {
        println!(
            "skipped: Python 3.14, as there is none in the search path: sh tests/python3.14.sh FOLDER gets one"
        );
    }
    python
}

/// A compiler's options for Python's headers: Debian's are in two folders.
#[must_use]
pub fn header_folders(include: &str) -> [String; 2] {
    [format!("-I{include}"), format!("-I{}", Path::new(include).parent().expect("a folder").display())]
}

/// A virtual environment with everycall.
#[derive(Debug)]
pub struct Environment {
    /// `python`, `python3` and `everycall`.
    pub bin: PathBuf,
    /// Where packages are.
    pub packages: PathBuf,
    /// Such as 3.11.
    pub version: String,
}

impl Environment {
    /// Makes one in `folder`: by the package's own setup.py for Debian's Python, and by a compiler
    /// alone for others, which have no setuptools.
    ///
    /// # Panics
    /// Where it can't be made.
    #[must_use]
    pub fn new(interpreter: &Path, folder: &Path) -> Environment {
        let facts = successful(Command::new(interpreter).args([
            "-Ic",
            "import sys, sysconfig; print('3.%d' % sys.version_info[1], sysconfig.get_path('include'), \
             sysconfig.get_config_var('EXT_SUFFIX'), sys._base_executable)",
        ]));
        let [version, include, suffix, base] = facts.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{facts}")
        };
        let bin = folder.join("bin");
        let packages = folder.join(format!("lib/python{version}/site-packages"));
        fs::create_dir_all(&bin).expect("a folder");
        fs::create_dir_all(packages.join("everycall")).expect("a folder");
        let home = Path::new(base).parent().expect("a folder").display();
        fs::write(folder.join("pyvenv.cfg"), format!("home = {home}\n")).expect("a file");
        for (target, name) in
            [(Path::new(base), "python"), (Path::new(base), "python3"), (everycall(), "everycall")]
        {
            symlink(target, bin.join(name)).expect("a link");
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("python");
        if interpreter == Path::new(SYSTEM) {
            let mut setup = Command::new(interpreter);
            setup.args(["-W", "ignore", "setup.py", "-q", "build", "--build-base"]).arg(folder.join("build"));
            successful(
                setup
                    .arg("--build-lib")
                    .arg(&packages)
                    .env("CFLAGS", WARNINGS)
                    .env("EVERYCALL_BINARY", "")
                    .current_dir(&source),
            );
        } else {
            for name in [
                "everycall.pth",
                "everycall/__init__.py",
                "everycall/__main__.py",
                "everycall/_attach.py",
                "everycall/_attached.py",
                "everycall/_startup.py",
                "everycall/_texts.py",
                "everycall/_command.py",
                "everycall/_jupyter.py",
            ] {
                fs::copy(source.join(name), packages.join(name)).expect("a copy");
            }
            let mut compiler = Command::new("gcc");
            compiler.args(WARNINGS.split(' ')).args(["-O2", "-shared", "-fPIC"]);
            compiler.args(header_folders(include));
            compiler.arg(format!("-I{}", source.join("../crates/building/kit/include").display()));
            compiler.arg(source.join("everycall/_hook.c"));
            successful(compiler.arg("-o").arg(packages.join(format!("everycall/_hook{suffix}"))));
        }
        Environment { bin, packages, version: version.to_owned() }
    }

    /// The search path with this environment's programs first.
    #[must_use]
    pub fn search_path(&self) -> String {
        format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap_or_default())
    }
}

const WARNINGS: &str = "-Wall -Wextra -Werror -Wno-missing-field-initializers";

/// An interpreter with everycall.
#[derive(Debug)]
pub struct Python {
    /// Where programs run.
    pub place: Place,
    /// Where everycall is installed.
    pub environment: Environment,
}

impl Python {
    /// One with everycall installed.
    #[must_use]
    pub fn new(interpreter: &Path) -> Python {
        let place = Place::new("python");
        let environment = Environment::new(interpreter, &place.file("environment"));
        Python { place, environment }
    }

    /// All that are there.
    #[must_use]
    pub fn all() -> Vec<Python> {
        interpreters().iter().map(|interpreter| Python::new(interpreter)).collect()
    }

    /// Such as 3.11.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.environment.version
    }

    /// Installs a package of the package registry. Prints that it can't.
    ///
    /// # Panics
    /// Where pip can't be run.
    #[must_use]
    pub fn installs(&self, package: &str) -> bool {
        let mut pip = Command::new(SYSTEM);
        pip.args(["-m", "pip", "install", "-q", "--only-binary=:all:", "--python-version", self.version()]);
        let installed = pip.arg("--target").arg(&self.environment.packages).arg(package).output().unwrap();
        if !installed.status.success() {
            println!("skipped: Python {} gets no {package}: {installed:?}", self.version());
        }
        installed.status.success()
    }

    /// Whether calls are recorded by `sys.monitoring`.
    #[must_use]
    pub fn is_monitored(&self) -> bool {
        self.version() != "3.11"
    }

    /// The interpreter with these arguments; `python3` in the search path is the same one.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(self.environment.bin.join("python"));
        command.env("PATH", self.environment.search_path()).args(arguments);
        command
    }

    /// Runs it so.
    ///
    /// # Panics
    /// Where it can't be run.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// `python -m everycall` with these arguments; the trace is t.ect.
    ///
    /// # Panics
    /// Where there is no trace.
    #[must_use]
    pub fn recorded(&self, arguments: &[&str]) -> Output {
        let options = ["-m", "everycall", "-o", "t.ect"];
        let output = self.run(&[&options[..], arguments].concat());
        assert!(self.place.file("t.ect").exists(), "{output:?}");
        output
    }

    /// Runs `python -m everycall` with these arguments and reads the trace.
    #[must_use]
    pub fn record(&self, arguments: &[&str]) -> (Output, Calls) {
        (self.recorded(arguments), self.calls("t.ect"))
    }

    /// The lines of a trace.
    #[must_use]
    pub fn calls(&self, trace: &str) -> Calls {
        let mut export = self.place.command(everycall());
        export.args(["export", "-f", "csv", "-o", "-", trace]);
        Calls::read(&successful(&mut export))
    }
}

/// The lines of a CSV export.
#[derive(Debug)]
pub struct Calls {
    lines: Vec<BTreeMap<String, String>>,
}

impl Calls {
    /// Reads them.
    ///
    /// # Panics
    /// Where they have no header.
    #[must_use]
    pub fn read(text: &str) -> Calls {
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        let fields = |line: &str| {
            let mut fields = vec![String::new()];
            let mut is_quoted = false;
            for character in line.chars() {
                match character {
                    '"' => is_quoted = !is_quoted,
                    ',' if !is_quoted => fields.push(String::new()),
                    _ => fields.last_mut().unwrap().push(character),
                }
            }
            names.iter().map(|name| (*name).to_owned()).zip(fields).collect()
        };
        Calls { lines: lines.map(fields).collect() }
    }

    /// Those of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.lines.iter().filter(move |line| line["kind"] == kind)
    }

    /// Calls of the functions of a file, by line and name.
    #[must_use]
    pub fn counts(&self, file: &str) -> BTreeMap<(String, String), u64> {
        let mut counts = BTreeMap::new();
        for line in self.of_kind("call").filter(|line| line["file"] == file) {
            *counts.entry((line["line"].clone(), line["function"].clone())).or_default() += 1;
        }
        counts
    }

    /// Calls of a function.
    #[must_use]
    pub fn count(&self, function: &str) -> usize {
        self.of_kind("call").filter(|line| line["function"] == function).count()
    }

    /// Call trees of the functions in `file`, by thread or task: `fetch(read(leaf))`.
    ///
    /// # Panics
    /// Where a number isn't one.
    #[must_use]
    pub fn trees(&self, file: &str) -> BTreeMap<String, String> {
        let number = |line: &BTreeMap<String, String>, of: &str| line[of].parse::<u64>().unwrap();
        let mut calls: Vec<_> = self.of_kind("call").filter(|line| line["file"] == file).collect();
        calls.sort_by_key(|line| (number(line, "start_ns"), number(line, "depth")));
        let mut trees: BTreeMap<String, (String, Vec<u64>)> = BTreeMap::new();
        for line in calls {
            let (text, open) = trees.entry(line["thread"].clone()).or_default();
            let depth = number(line, "depth");
            let is_inner = open.last().is_some_and(|outer| *outer < depth);
            while open.last().is_some_and(|inner| *inner >= depth) {
                open.pop();
                if open.last().is_some_and(|outer| *outer >= depth) {
                    text.push(')');
                }
            }
            if is_inner {
                text.push('(');
            } else if !text.is_empty() {
                text.push(' ');
            }
            open.push(depth);
            text.push_str(&line["function"]);
            if line["remarks"].contains("unwound") {
                text.push('!');
            }
        }
        trees
            .into_iter()
            .map(|(name, (text, open))| (name, text + &")".repeat(open.len().saturating_sub(1))))
            .collect()
    }

    /// The calls in a file's functions as a tree: `f(g g(h))`; with `!` where one was left by an
    /// exception. All calls around them must be in that file, too.
    ///
    /// # Panics
    /// Where a number isn't one.
    #[must_use]
    pub fn tree(&self, file: &str, from: &str) -> String {
        let start = |line: &BTreeMap<String, String>| line["start_ns"].parse::<u64>().unwrap();
        let mut calls: Vec<_> = self.of_kind("call").filter(|line| line["file"] == file).collect();
        calls.sort_by_key(|line| (start(line), line["depth"].parse::<u32>().unwrap()));
        let mut text = String::new();
        let mut open: Vec<u32> = Vec::new();
        for line in calls.iter().skip_while(|line| line["function"] != from) {
            let depth: u32 = line["depth"].parse().unwrap();
            match open.last() {
                Some(outer) if depth > *outer => text.push('('),
                Some(_) => {
                    while open.len() > 1 && open.last().is_some_and(|inner| *inner > depth) {
                        open.pop();
                        text.push(')');
                    }
                    open.pop();
                    text.push(' ');
                }
                None => {}
            }
            open.push(depth);
            text += &line["function"];
            if line["remarks"].contains("unwound") {
                text.push('!');
            }
        }
        text + &")".repeat(open.len().saturating_sub(1))
    }
}

/// Reads the output of `calls.py count`: `LINE COUNT NAME`.
fn own_counts(printed: &str) -> BTreeMap<(String, String), u64> {
    let line = |line: &str| {
        let [line, count, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        ((line.to_owned(), name.to_owned()), count.parse().unwrap())
    };
    printed.lines().map(line).collect()
}

/// Compares the recorded calls of a whole run of `calls.py` with what the interpreter has counted
/// and `printed` itself.
///
/// # Panics
/// Where they differ.
pub fn assert_calls_are_counted(python: &Python, calls: &Calls, file: &str, printed: &str) {
    let mut traced = calls.counts(file);
    let mut counted = own_counts(printed);
    assert!(counted.len() > 50, "{counted:?}");
    // Calls while the interpreter doesn't count: the file itself, and those before and after.
    for (line, name, count) in
        [("1", "<module>", 1), ("13", "plain", 1), ("60", "Account", 1), ("134", "to_the_limit", 1)]
    {
        *counted.entry((line.to_owned(), name.to_owned())).or_default() += count;
    }
    let recursing = traced.remove(&("130".to_owned(), "recursing".to_owned())).unwrap();
    assert!((900..1000).contains(&recursing), "{recursing}");
    assert_eq!(traced, counted, "{}", python.version());
}
