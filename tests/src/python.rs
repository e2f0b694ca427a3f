//! Interpreters of Python, and environments in which everycall is installed as pip does it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{everycall, successful};

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
    all
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
            successful(setup.arg("--build-lib").arg(&packages).env("CFLAGS", WARNINGS).current_dir(&source));
        } else {
            for name in
                ["everycall.pth", "everycall/__init__.py", "everycall/__main__.py", "everycall/_startup.py"]
            {
                fs::copy(source.join(name), packages.join(name)).expect("a copy");
            }
            let mut compiler = Command::new("gcc");
            compiler.args(WARNINGS.split(' ')).args(["-O2", "-shared", "-fPIC"]).arg(format!("-I{include}"));
            compiler.arg(format!("-I{}", source.join("../crates/kit/include").display()));
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
