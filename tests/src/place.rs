//! A temporary folder, the binary under test, and the programs that are built and run with it.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::built;
use crate::trace::TraceView;

/// A compiler and a mode of instrumentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// As `everycall cc --mode` takes it.
    pub name: &'static str,
    /// Compiler for C.
    pub cc: &'static str,
    /// Compiler for C++.
    pub cxx: &'static str,
}

impl Mode {
    /// gcc with patchable sites.
    pub const GCC_NOPS: Mode = Mode { name: "nops", cc: "gcc", cxx: "g++" };
    /// gcc with plain calls.
    pub const GCC_FENTRY: Mode = Mode { name: "fentry", cc: "gcc", cxx: "g++" };
    /// gcc with `__cyg_profile` calls.
    pub const GCC_FINSTRUMENT: Mode = Mode { name: "finstrument", cc: "gcc", cxx: "g++" };
    /// clang 14, Debian 12's own, with XRay sleds.
    pub const CLANG14_XRAY: Mode = Mode { name: "xray", cc: "clang-14", cxx: "clang++-14" };
    /// clang 16 with XRay sleds.
    pub const CLANG16_XRAY: Mode = Mode { name: "xray", cc: "clang-16", cxx: "clang++-16" };
    /// clang 19 with XRay sleds.
    pub const CLANG19_XRAY: Mode = Mode { name: "xray", cc: "clang-19", cxx: "clang++-19" };
    /// clang 22 with XRay sleds.
    pub const CLANG22_XRAY: Mode = Mode { name: "xray", cc: "clang-22", cxx: "clang++-22" };
    /// clang 19 with `__cyg_profile` calls.
    pub const CLANG19_FINSTRUMENT: Mode = Mode { name: "finstrument", cc: "clang-19", cxx: "clang++-19" };
    /// clang 19 with `__cyg_profile` calls after inlining.
    pub const CLANG19_AFTER_INLINING: Mode =
        Mode { name: "after-inlining", cc: "clang-19", cxx: "clang++-19" };

    /// Built by gcc without the prefix; hooks are written when it starts.
    pub const GCC_UNTOUCHED: Mode = Mode { name: "untouched", cc: "gcc", cxx: "g++" };
    /// Built by clang 19 without the prefix; hooks are written when it starts.
    pub const CLANG19_UNTOUCHED: Mode = Mode { name: "untouched", cc: "clang-19", cxx: "clang++-19" };

    /// Every mode of gcc 12 and clang 19, and XRay of clang 22.
    pub const ALL: [Mode; 7] = [
        Mode::GCC_NOPS,
        Mode::GCC_FENTRY,
        Mode::GCC_FINSTRUMENT,
        Mode::CLANG19_XRAY,
        Mode::CLANG22_XRAY,
        Mode::CLANG19_FINSTRUMENT,
        Mode::CLANG19_AFTER_INLINING,
    ];

    /// gcc for 64-bit Arm, with patchable sites.
    pub const ARM_NOPS: Mode =
        Mode { name: "nops", cc: "aarch64-linux-gnu-gcc", cxx: "aarch64-linux-gnu-g++" };
    /// gcc for 64-bit Arm, with `__cyg_profile` calls.
    pub const ARM_FINSTRUMENT: Mode =
        Mode { name: "finstrument", cc: "aarch64-linux-gnu-gcc", cxx: "aarch64-linux-gnu-g++" };

    /// The modes that tests of all modes take: [`Mode::ALL`], or those of another machine if
    /// `EVERYCALL_TARGET` names one.
    #[must_use]
    pub fn all() -> Vec<Mode> {
        match target() {
            Some(_) => vec![Mode::ARM_NOPS, Mode::ARM_FINSTRUMENT],
            None => Mode::ALL.to_vec(),
        }
    }

    /// The mode of the machine that `EVERYCALL_TARGET` names, for tests that take one of gcc's.
    fn for_target(self) -> Mode {
        match (target(), self) {
            (Some(_), Mode::GCC_NOPS) => Mode::ARM_NOPS,
            (Some(_), Mode::GCC_FINSTRUMENT) => Mode::ARM_FINSTRUMENT,
            _ => self,
        }
    }

    /// Modes for a test that has the number `number`: all of them with `EVERYCALL_FULL`. Otherwise
    /// those with much in common take turns: gcc's two kinds of plain calls, clang's two versions
    /// with XRay sleds, its two modes with `__cyg_profile` calls. All seven are tried where numbers
    /// go from 0 to 1.
    pub fn in_turn(number: usize) -> impl Iterator<Item = Mode> {
        let left_out = match number % 2 {
            0 => [Mode::GCC_FENTRY, Mode::CLANG22_XRAY, Mode::CLANG19_FINSTRUMENT],
            _ => [Mode::GCC_FINSTRUMENT, Mode::CLANG19_XRAY, Mode::CLANG19_AFTER_INLINING],
        };
        Mode::all().into_iter().filter(move |mode| crate::is_full() || !left_out.contains(mode))
    }

    /// A name for files. It doesn't say for which machine.
    #[must_use]
    pub fn label(self) -> String {
        format!("{}-{}", self.cc.rsplit("-gnu-").next().unwrap_or(self.cc), self.name)
    }

    /// Makes `command` build a program of `arguments`: sources are in `folder` or in
    /// `tests/programs`.
    pub(crate) fn compiler<'command>(
        self,
        command: &'command mut Command,
        folder: &Path,
        arguments: &[&str],
        output: &Path,
    ) -> &'command mut Command {
        let is_cxx = arguments.iter().any(|argument| argument.ends_with(".cpp") || argument.ends_with(".cc"));
        if self.is_untouched() {
            // The prefix's own.
            command
                .arg("-I")
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/building/kit/include"));
        } else {
            command.args(["cc", "--mode", self.name, "--", if is_cxx { self.cxx } else { self.cc }]);
        }
        for argument in arguments {
            let bundled = programs().join(argument);
            if !argument.starts_with('-') && !folder.join(argument).exists() && bundled.exists() {
                command.arg(bundled);
            } else {
                command.arg(argument);
            }
        }
        command.arg("-o").arg(output)
    }

    /// Whether programs are built without the prefix.
    #[must_use]
    pub fn is_untouched(self) -> bool {
        self.name == "untouched"
    }

    /// The compiler's command for these sources.
    fn command(self, arguments: &[&str]) -> PathBuf {
        let is_cxx = arguments.iter().any(|argument| argument.ends_with(".cpp") || argument.ends_with(".cc"));
        match (self.is_untouched(), is_cxx) {
            (true, true) => self.cxx.into(),
            (true, false) => self.cc.into(),
            (false, _) => everycall().to_owned(),
        }
    }

    /// Whether hooks are given functions, not addresses within them.
    #[must_use]
    pub fn is_body(self) -> bool {
        matches!(self.name, "finstrument" | "after-inlining")
    }
}

/// The binary under test, built once, in the profile of the tests.
///
/// # Panics
/// Where it doesn't build.
pub fn everycall() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("EVERYCALL_TEST_BINARY") {
            return path.into();
        }
        let test = std::env::current_exe().expect("the test's own path");
        let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "everycall"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(profile.parent().expect("the target folder"));
        assert!(cargo.status().expect("cargo runs").success(), "{cargo:?}");
        profile.join("everycall")
    })
}

/// The folder of the traced programs.
#[must_use]
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// A program's path, if it is in the search path.
#[must_use]
pub fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The machine that programs are built for, if it isn't this one: `aarch64`, in the variable
/// `EVERYCALL_TARGET`.
fn target() -> Option<&'static str> {
    static TARGET: OnceLock<Option<String>> = OnceLock::new();
    let named = TARGET.get_or_init(|| {
        let named = std::env::var("EVERYCALL_TARGET").ok()?;
        assert_eq!(named, "aarch64", "EVERYCALL_TARGET");
        Some(named)
    });
    named.as_deref()
}

/// The beginning of a command that runs this program: an emulator, if it is of another machine.
fn emulator_of(program: &Path) -> &'static [&'static str] {
    let mut head = [0; 20];
    let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut head));
    // The machine's number in headers of ELF files.
    match read.is_ok() && head.starts_with(b"\x7fELF") && head[18..] == [183, 0] {
        true => &["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"],
        false => &[],
    }
}

/// A temporary folder; removed at the end unless the test fails.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

impl Place {
    /// A new folder whose name begins with `name`.
    ///
    /// # Panics
    /// Where it can't be made.
    #[must_use]
    pub fn new(name: &str) -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("everycall-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Place { path }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file's path in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file.
    ///
    /// # Panics
    /// Where it can't be written.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).expect("a file in the temporary folder");
        path
    }

    /// A command that runs in the folder; a program of another machine by an emulator.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let emulator = emulator_of(Path::new(program.as_ref()));
        let mut command = match emulator {
            [] => Command::new(program),
            [emulator, options @ ..] => {
                let mut command = Command::new(emulator);
                command.args(options).arg(program);
                command
            }
        };
        command.current_dir(&self.path);
        command
    }

    /// Compiles and links through the prefix; sources that end with `.c` are compiled by the C
    /// compiler if there are no others. Relative sources are in the folder or in `tests/programs`.
    ///
    /// # Panics
    /// Where the build fails.
    pub fn build(&self, mode: Mode, arguments: &[&str], output: &str) -> PathBuf {
        let mode = mode.for_target();
        let output = self.file(output);
        let has_own_sources = arguments.iter().any(|argument| self.file(argument).exists());
        let is_own = has_own_sources || mode.is_untouched();
        if is_own || built::shared(mode, arguments, &output).is_none() {
            let mut command = self.command(mode.command(arguments));
            successful(mode.compiler(&mut command, self.path(), arguments, &output));
        }
        output
    }

    /// Records a program: `options` go to `everycall record`, `arguments` to the program. It may
    /// end in any way.
    ///
    /// # Panics
    /// Where `record` doesn't leave a trace.
    #[must_use]
    pub fn record(&self, options: &[&str], program: &Path, arguments: &[&str]) -> Recording {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let file = self.file(&format!("trace-{}.ect", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut command = self.command(everycall());
        command.arg("record").args(options).arg("-o").arg(&file).arg("--");
        command.args(emulator_of(program)).arg(program).args(arguments);
        let output = command.output().expect("everycall runs");
        assert!(file.exists(), "no trace from {command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Recording { output, file }
    }
}

/// A recorded run.
#[derive(Debug)]
pub struct Recording {
    /// The output of `everycall record`, and its exit status.
    pub output: Output,
    /// The trace.
    pub file: PathBuf,
}

impl Recording {
    /// The trace, decoded.
    ///
    /// # Panics
    /// Where it can't be.
    #[must_use]
    pub fn trace(&self) -> TraceView {
        TraceView::open(&self.file)
    }

    /// The decoded trace without its call trees.
    #[must_use]
    pub fn tallies(&self) -> TraceView {
        TraceView::tallies_only(&self.file)
    }

    /// The program's standard output as text.
    #[must_use]
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }
}

/// Runs a command that must succeed, and returns its standard output.
///
/// # Panics
/// Where it fails.
pub fn successful(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
