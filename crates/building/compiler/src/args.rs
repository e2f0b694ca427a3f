//! An invocation of gcc or clang, parsed from its arguments.
//!
//! Only the arguments that affect the prefix are evaluated. Unknown arguments are left to the
//! compiler: none is removed, reordered or refused here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use everycall_format::arch::Machine;

use crate::arch;
use crate::response;

/// The request to the compiler driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// How far it goes.
    pub stage: Stage,
    /// Whether a source other than assembler is among the inputs.
    pub compiles: bool,
    /// Whether the user chose options for debug information, which are then kept.
    pub debug_chosen: bool,
    /// The linker named by `-fuse-ld=`, or the path of one (`--ld-path=`).
    pub linker: Option<String>,
    /// Whether libraries are linked statically.
    pub is_static: bool,
    /// Whether one of the compiler's own libraries is, which then may refer to what is wrapped.
    pub has_static_parts: bool,
    /// Whether all libraries are linked statically, including the C library.
    pub has_static_libc: bool,
    /// Whether the compiler's own libraries are left out or replaced.
    pub without_libraries: bool,
    /// Whether the libraries of another system root are used.
    pub other_root: bool,
    /// Whether the C++ library is LLVM's.
    pub is_libcxx: bool,
    /// Whether stacks are split: libgcc's code for that refers to C's personality routine.
    pub splits_stacks: bool,
    /// Whether the linker generates the code.
    pub optimises_at_link: bool,
    /// Whether exceptions are disabled.
    pub without_exceptions: bool,
    /// Whether the C++ library is among the libraries.
    pub names_cxx_library: bool,
    /// Whether Boost.Context is among the libraries.
    pub names_boost_context: bool,
    /// Whether XRay's handlers should be called for this shared object, too.
    pub shares_xray: bool,
    /// Whether the user requested XRay's instrumentation.
    pub asks_for_xray: bool,
    /// Whether the user gave any option of XRay's.
    pub has_xray_options: bool,
    /// Whether the source of a C++20 module's interface unit is among the inputs.
    pub has_interface_unit: bool,
    /// Whether clang's compiled form of such a unit is.
    pub has_compiled_module: bool,
    /// Whether one of the inputs is preprocessed.
    pub preprocesses: bool,
    /// Functions that the user wraps at the link.
    pub wrapped: Vec<String>,
    /// Files that are linked unchanged.
    pub linked: Vec<PathBuf>,
    /// Libraries that are linked.
    pub libraries: Vec<String>,
    /// Folders that are searched for them before the system's.
    pub library_folders: Vec<PathBuf>,
    /// Whether it only makes the compiled form of a module, which others import.
    pub precompiles: bool,
    /// Folders with other programs for the compiler to run: `-B`, as given.
    pub program_folders: Vec<OsString>,
    /// Whether code is optimised by a profile.
    pub uses_profile: bool,
    /// The machine that a clang compiles for, if an option names one.
    pub machine: Option<Machine>,
    /// Options that are incompatible with some modes.
    pub obstacles: Vec<Obstacle>,
}

/// How far an invocation goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Answers a query, preprocesses or checks: produces no object code.
    #[default]
    NoCode,
    /// Produces assembler text, objects or a precompiled header.
    Compile,
    /// Joins objects into an object.
    LinkRelocatable,
    /// Makes a shared object.
    LinkShared,
    /// Makes an executable.
    LinkExecutable,
}

/// An option that is incompatible with some mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Code for another machine.
    Target(String),
    /// Code or data anywhere in 64 bits, where hooks are out of reach.
    LargeModel,
    /// gcc mixes two assembler syntaxes when asked for hook calls.
    IntelSyntax,
    /// The option uses the hooks that the mode needs.
    ClaimsHooks(String),
}

/// Options whose value is the next argument; without them, values would look like inputs.
const TAKE_NEXT: &[&str] = &[
    "-o",
    "-x",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-u",
    "-T",
    "-e",
    "-z",
    "-A",
    "-B",
    "-b",
    "-V",
    "-G",
    "-F",
    "-MF",
    "-MT",
    "-MQ",
    "-MJ",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "-imultilib",
    "-imultiarch",
    "-cxx-isystem",
    "-include-pch",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-Xanalyzer",
    "-aux-info",
    "-dumpbase",
    "-dumpbase-ext",
    "-dumpdir",
    "-target",
    "-arch",
    "-mllvm",
    "-plugin",
    "-specs",
    "--specs",
    "--param",
    "-wrapper",
    "--sysroot",
    "-Tdata",
    "-Tbss",
    "-Ttext",
    "-Ttext-segment",
    "-Tldata",
    "-rpath",
    "-soname",
    "--include",
    "--imacros",
    "--output",
    "--language",
    "--define-macro",
    "--undefine-macro",
    "--include-directory",
    "--library-directory",
    "--assert",
    "--prefix",
    "--entry",
    "--for-assembler",
    "--for-linker",
    "--force-link",
    "--dumpbase",
    "--dumpdir",
    "--config",
    "-serialize-diagnostics",
    "--serialize-diagnostics",
    "-ivfsoverlay",
    "-fmodule-mapper",
    "-working-directory",
];

/// Options that query the compiler. Those ending in `=` or `-` are prefixes.
const QUERIES: &[&str] = &[
    "--version",
    "-dumpversion",
    "-dumpfullversion",
    "-dumpmachine",
    "-dumpspecs",
    "-print-",
    "--print-",
    "--help",
    "-help",
    "--target-help",
    "-cc1",
    "-cc1as",
    "-cc1gen-reproducer",
];

/// Options after which no object code is made.
const NO_CODE: &[&str] = &[
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "--preprocess",
    "--dependencies",
    "--user-dependencies",
    "--analyze",
    "--precompile",
    "-verify-pch",
    "-emit-interface-stubs",
];

/// Options by which the user uses gcc's entry and exit hooks for another purpose.
const CLAIM_HOOKS: &[&str] = &[
    "-pg",
    "-p",
    "-mno-fentry",
    "-mnop-mcount",
    "-mrecord-mcount",
    "-mrecord-return",
    "-mfentry-name=",
    "-mfentry-section=",
    "-minstrument-return=",
];

impl Invocation {
    /// Reads the arguments that follow the compiler's name.
    pub fn read(args: &[OsString]) -> Invocation {
        let mut scan = Scan::default();
        let args = response::expand(args);
        let mut rest = args.iter().map(|arg| String::from_utf8_lossy(arg.as_bytes()));
        while let Some(arg) = rest.next() {
            let next = if TAKE_NEXT.contains(&&*arg) { rest.next() } else { None };
            scan.take(&arg, next.as_deref());
        }
        scan.finish()
    }

    /// Whether it makes an executable or a shared object.
    pub fn links(&self) -> bool {
        matches!(self.stage, Stage::LinkShared | Stage::LinkExecutable)
    }
}

#[derive(Default)]
struct Scan {
    found: Invocation,
    language: Option<String>,
    no_code: bool,
    stops_before_link: bool,
    shared: bool,
    relocatable: bool,
    inputs: usize,
    headers: usize,
}

impl Scan {
    fn take(&mut self, arg: &str, next: Option<&str>) {
        self.xray_option(arg);
        self.found.has_static_parts |= arg.starts_with("-static-") || arg == "-fsplit-stack";
        match arg {
            "-" => self.input("-"),
            _ if !arg.starts_with('-') => self.input(arg),
            "-x" | "--language" => self.language = next.filter(|name| *name != "none").map(str::to_owned),
            "-c" | "-S" | "--compile" | "--assemble" => self.stops_before_link = true,
            "-shared" | "--shared" => self.shared = true,
            "-r" | "--relocatable" | "-flinker-output=rel" | "-flinker-output=nolto-rel" => {
                self.relocatable = true
            }
            "-Xlinker" | "--for-linker" => self.linker_args(next.unwrap_or_default().split('\0')),
            "-static" | "--static" | "-static-pie" => {
                self.found.is_static = true;
                self.found.has_static_libc = true;
            }
            "-static-libstdc++" | "-static-libgcc" => self.found.is_static = true,
            "-nostdlib" | "--no-standard-libraries" | "-nodefaultlibs" | "-nolibc" | "-nostdlib++" => {
                self.found.without_libraries = true
            }
            "-fsplit-stack" => self.found.splits_stacks = true,
            "-fno-split-stack" => self.found.splits_stacks = false,
            "-flto" => self.found.optimises_at_link = true,
            "-fno-lto" => self.found.optimises_at_link = false,
            "-fno-exceptions" => self.found.without_exceptions = true,
            "-fexceptions" => self.found.without_exceptions = false,
            "--sysroot" => self.found.other_root = true,
            "-l" => self.library(next.unwrap_or_default()),
            "-L" => self.found.library_folders.extend(next.map(PathBuf::from)),
            "-B" | "--prefix" => {
                let folder = next.unwrap_or_default();
                self.found.program_folders.push(format!("-B{folder}").into());
            }
            "-fprofile-use" | "-fbranch-probabilities" | "-fauto-profile" => self.found.uses_profile = true,
            "-fno-profile-use" => self.found.uses_profile = false,
            "-target" => self.target(next.unwrap_or_default()),
            _ if arch::is_other_machine_option(arg) => self.obstacle(Obstacle::Target(arg.to_owned())),
            "-mcmodel=large" => self.obstacle(Obstacle::LargeModel),
            "-masm=intel" => self.found.obstacles.push(Obstacle::IntelSyntax),
            "-masm=att" => self.found.obstacles.retain(|found| *found != Obstacle::IntelSyntax),
            _ => self.take_joined(arg),
        }
    }

    fn xray_option(&mut self, arg: &str) {
        match arg {
            "-fxray-shared" => self.found.shares_xray = true,
            "-fno-xray-shared" => self.found.shares_xray = false,
            "-fxray-instrument" => self.found.asks_for_xray = true,
            "-fno-xray-instrument" => self.found.asks_for_xray = false,
            _ => {}
        }
        self.found.has_xray_options |= arg.starts_with("-fxray-") || arg.starts_with("-fno-xray-");
    }

    fn take_joined(&mut self, arg: &str) {
        if is_one_of(arg, QUERIES) || NO_CODE.contains(&arg) {
            self.no_code = true;
            self.found.precompiles |= arg == "--precompile";
        } else if let Some(list) = arg.strip_prefix("-Wl,") {
            self.linker_args(list.split(','));
        } else if let Some(language) = arg.strip_prefix("-x").or(arg.strip_prefix("--language=")) {
            self.language = Some(language.to_owned()).filter(|name| name != "none");
        } else if let Some(linker) = arg.strip_prefix("-fuse-ld=").or(arg.strip_prefix("--ld-path=")) {
            let file = linker.rsplit_once('/').map_or(linker, |(_, file)| file);
            self.found.linker = Some(file.strip_prefix("ld.").unwrap_or(file).to_owned());
        } else if arg.starts_with("-flto=") {
            self.found.optimises_at_link = true;
        } else if let Some(target) = arg.strip_prefix("--target=") {
            self.target(target);
        } else if let Some(library) = arg.strip_prefix("-stdlib=") {
            self.found.is_libcxx = library == "libc++";
            self.found.other_root |= !matches!(library, "libc++" | "libstdc++" | "platform");
        } else if ["--sysroot=", "--gcc-toolchain=", "-specs=", "--specs="]
            .iter()
            .any(|option| arg.starts_with(option))
        {
            self.found.other_root = true;
        } else if let Some(name) = arg.strip_prefix("-l") {
            self.library(name);
        } else if let Some(folder) = arg.strip_prefix("-L") {
            self.found.library_folders.push(folder.into());
        } else if arg.starts_with("-B") {
            self.found.program_folders.push(arg.into());
        } else if arg.starts_with("-fprofile-use=") {
            self.found.uses_profile = true;
        } else if is_one_of(arg, CLAIM_HOOKS) && arg != "-minstrument-return=call" {
            self.obstacle(Obstacle::ClaimsHooks(arg.to_owned()));
        } else if arg.starts_with("-g") && !arg.starts_with("-gcc-toolchain") {
            // Includes options for its form: `-gsplit-dwarf` puts debug information into a file.
            self.found.debug_chosen = true;
        }
    }

    fn input(&mut self, name: &str) {
        self.inputs += 1;
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
        self.found.names_boost_context |= file.starts_with("libboost_context");
        let (code, header) = match self.language.as_deref() {
            Some("assembler" | "assembler-with-cpp") => (false, false),
            Some(language) => (true, language.ends_with("-header")),
            None => kind_of_extension(extension),
        };
        self.found.compiles |= code;
        let is_compiled = self.language.is_none() && extension == "pcm";
        self.found.has_compiled_module |= is_compiled;
        self.found.has_interface_unit |= match self.language.as_deref() {
            Some(language) => language.starts_with("c++-module"),
            None => INTERFACE_UNITS.contains(&extension) && !is_compiled,
        };
        self.found.preprocesses |= code
            && match self.language.as_deref() {
                Some(language) => !(language.ends_with("-output") || language == "ir"),
                None => !PREPROCESSED.contains(&extension),
            };
        self.headers += usize::from(header);
        if !code {
            self.found.linked.push(name.into());
        }
    }

    fn library(&mut self, name: &str) {
        self.inputs += 1;
        self.found.libraries.push(name.to_owned());
        self.found.names_cxx_library |= matches!(name, "stdc++" | "c++" | "c++abi" | "supc++");
        self.found.is_libcxx |= name == "c++";
        self.found.names_boost_context |= name.trim_start_matches(':').starts_with("boost_context");
    }

    fn linker_args<'a>(&mut self, args: impl Iterator<Item = &'a str>) {
        self.inputs += 1;
        // The linker expands response files itself.
        let args: Vec<OsString> = args.map(OsString::from).collect();
        let args: Vec<String> =
            response::expand(&args).iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut args = args.iter().map(String::as_str).peekable();
        while let Some(arg) = args.next() {
            if let Some(name) = arg.strip_prefix("--wrap").or(arg.strip_prefix("-wrap")) {
                // If the name is in the next -Xlinker, every name is possible.
                let name = name.strip_prefix('=').map(str::to_owned);
                let name = name.or_else(|| args.peek().map(|name| (*name).to_owned()));
                self.found.wrapped.push(name.unwrap_or_else(|| "*".to_owned()));
            }
            match arg {
                "-shared" | "--shared" | "-Bshareable" => self.shared = true,
                "-r" | "-i" | "-Ur" | "--relocatable" => self.relocatable = true,
                _ if !arg.starts_with('-') => self.found.linked.push(arg.into()),
                _ => {
                    let folder = arg.strip_prefix("-L").filter(|folder| !folder.is_empty());
                    self.found.library_folders.extend(folder.map(PathBuf::from));
                    let library = arg.strip_prefix("-l").filter(|library| !library.is_empty());
                    self.found.libraries.extend(library.map(str::to_owned));
                }
            }
        }
    }

    fn target(&mut self, triple: &str) {
        // The last one counts.
        self.found
            .obstacles
            .retain(|found| !matches!(found, Obstacle::Target(option) if option.starts_with("--target=")));
        self.found.machine = arch::machine_of(triple).filter(|_| triple.contains("linux"));
        if self.found.machine.is_none() {
            self.obstacle(Obstacle::Target(format!("--target={triple}")));
        }
    }

    fn obstacle(&mut self, obstacle: Obstacle) {
        if !self.found.obstacles.contains(&obstacle) {
            self.found.obstacles.push(obstacle);
        }
    }

    fn finish(self) -> Invocation {
        let stage = match () {
            () if self.no_code || self.inputs == 0 => Stage::NoCode,
            () if self.stops_before_link || self.headers == self.inputs => Stage::Compile,
            () if self.relocatable => Stage::LinkRelocatable,
            () if self.shared => Stage::LinkShared,
            () => Stage::LinkExecutable,
        };
        Invocation { stage, ..self.found }
    }
}

/// Extensions of C++20 modules' interface units: gcc's, clang's, preprocessed, and clang's compiled
/// form.
const INTERFACE_UNITS: [&str; 7] = ["cppm", "ccm", "cxxm", "c++m", "ixx", "iim", "pcm"];

/// Extensions of inputs that no preprocessor sees.
const PREPROCESSED: [&str; 9] = ["i", "ii", "mi", "mii", "fii", "iim", "pcm", "bc", "ll"];

/// Whether a file is compiled (assembler sources aren't), and whether it is a header.
fn kind_of_extension(extension: &str) -> (bool, bool) {
    match extension {
        "h" | "H" | "hh" | "hp" | "hpp" | "hxx" | "HPP" | "h++" | "tcc" => (true, true),
        "c" | "i" | "ii" | "C" | "cc" | "cp" | "cxx" | "cpp" | "CPP" | "c++" | "m" | "mi" | "mm" | "M"
        | "mii" | "ll" | "bc" | "d" | "f" | "F" | "for" | "FOR" | "ftn" | "FTN" | "fpp" | "FPP" | "fii"
        | "f90" | "F90" | "f95" | "F95" | "f03" | "F03" | "f08" | "F08" | "adb" | "ads" | "go" => {
            (true, false)
        }
        _ => (INTERFACE_UNITS.contains(&extension), false),
    }
}

/// Whether the list has the argument, or one that it begins with and that ends in `=` or `-`; a debug
/// detail may also be followed by `=`.
fn is_one_of(arg: &str, list: &[&str]) -> bool {
    list.iter().any(|entry| {
        arg.strip_prefix(entry)
            .is_some_and(|rest| rest.is_empty() || entry.ends_with(['=', '-']) || rest.starts_with('='))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Invocation {
        Invocation::read(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_word_on_link_time_optimisation_counts() {
        for (line, is_on) in
            [("-flto a.c", true), ("-flto=thin a.c", true), ("-flto -fno-lto a.c", false), ("a.c", false)]
        {
            assert_eq!(read(line).optimises_at_link, is_on, "{line}");
        }
    }

    #[test]
    fn stages() {
        for line in [
            "",
            "-v",
            "--version",
            "-dumpmachine",
            "-print-prog-name=as a.c",
            "-E a.c",
            "-MM a.c",
            "-fsyntax-only a.c",
            "-### --help=optimizers",
            "-cc1 a.c",
            "-o x",
            "-I a.c",
            "-include a.c",
        ] {
            assert_eq!(read(line).stage, Stage::NoCode, "{line}");
        }
        for line in ["-c a.c", "-S a.c -o x", "a.h", "-x c++-header a", "-c a.s", "-MD -c a.c", "-c -x c -"] {
            assert_eq!(read(line).stage, Stage::Compile, "{line}");
        }
        for line in ["a.c", "a.o -o x", "-lfoo", "-Wl,--version", "-x c -", "-static-pie a.o", "a.c a.h"] {
            assert_eq!(read(line).stage, Stage::LinkExecutable, "{line}");
        }
        for line in ["-shared a.o", "-fPIC -shared a.c", "a.o -Wl,-z,now,-shared", "a.o -Xlinker -shared"] {
            assert_eq!(read(line).stage, Stage::LinkShared, "{line}");
        }
        for line in ["-r a.o b.o", "-nostdlib -Wl,-r a.o", "-r -shared a.o"] {
            assert_eq!(read(line).stage, Stage::LinkRelocatable, "{line}");
        }
    }

    #[test]
    fn libraries_and_wraps() {
        assert!(read("a.o -static").is_static && read("-static-pie a.o").is_static && !read("a.o").is_static);
        assert!(read("a.o -nostdlib").without_libraries && !read("a.o -nostdinc").without_libraries);
        assert!(read("a.o -lstdc++").names_cxx_library && read("a.o -l c++").names_cxx_library);
        assert!(!read("a.o -lm").names_cxx_library);
        let libcxx = read("a.o -static -stdlib=libc++");
        assert!(libcxx.is_libcxx && !libcxx.other_root && read("a.o -stdlib=other").other_root);
        assert!(!read("a.o -stdlib=libc++ -stdlib=libstdc++").is_libcxx && !read("a.o").is_libcxx);
        assert!(read("a.o -lc++").is_libcxx && !read("a.o -lstdc++").is_libcxx);
        for named in ["-lboost_context-mt", "-l boost_context", "/opt/lib/libboost_context.so.1.83"] {
            assert!(read(&format!("a.o {named}")).names_boost_context, "{named}");
        }
        assert!(!read("a.o -lboost_system").names_boost_context);
        assert_eq!(read("a.o -Wl,--wrap=malloc,--wrap,longjmp").wrapped, ["malloc", "longjmp"]);
        let list = std::env::temp_dir().join(format!("everycall-linker-{}", std::process::id()));
        std::fs::write(&list, "--wrap=pthread_exit\n--wrap read -r").unwrap();
        let found = read(&format!("a.o -Wl,@{}", list.display()));
        std::fs::remove_file(&list).unwrap();
        assert_eq!(found.wrapped, ["pthread_exit", "read"]);
        assert_eq!(found.stage, Stage::LinkRelocatable);
        let found = read("a.o b.c -L dir -Lother -l one -ltwo -Wl,-Lthird,-lthree,c.a -Xlinker d.o -o x");
        assert_eq!(found.linked, ["a.o", "c.a", "d.o"].map(PathBuf::from));
        assert_eq!(found.libraries, ["one", "two", "three"]);
        assert_eq!(found.library_folders, ["dir", "other", "third"].map(PathBuf::from));
        assert!(read("a.o -fsplit-stack").splits_stacks && !read("a.o").splits_stacks);
        assert_eq!(read("a.o -Xlinker --wrap=f -Xlinker --wrap -Xlinker g").wrapped, ["f", "*"]);
    }

    #[test]
    fn sources_are_distinguished_from_objects() {
        for line in ["a.c", "a.o b.cpp", "-x c a.o", "-c -x c++ -", "-xc -", "x.ii"] {
            assert!(read(line).compiles && !read(line).has_interface_unit, "{line}");
        }
        for line in ["m.cppm", "m.ccm", "m.cxxm", "m.c++m", "m.ixx", "-x c++-module m.x a.c"] {
            let found = read(line);
            assert!(found.compiles && found.has_interface_unit && found.preprocesses, "{line}");
        }
        let compiled = read("-c m.pcm");
        assert!(compiled.compiles && compiled.has_compiled_module && !compiled.has_interface_unit);
        for line in ["m.pcm", "a.bc", "a.ii", "-x cpp-output a.c", "a.o"] {
            assert!(!read(line).preprocesses, "{line}");
        }
        assert!(read("--precompile m.cppm").precompiles && !read("-E m.cppm").precompiles);
        for line in
            ["a.o", "-c a.s", "-c a.S", "-x assembler-with-cpp a.c", "libx.a -lfoo", "-x c -x none a.o"]
        {
            assert!(!read(line).compiles, "{line}");
        }
    }

    #[test]
    fn debug_words_of_the_user() {
        for line in [
            "-g",
            "-g0",
            "-g3",
            "-ggdb3",
            "-gdwarf-4",
            "-gline-tables-only",
            "-gmlt",
            "-gz",
            "-gsplit-dwarf",
            "-gsplit-dwarf=single",
            "-grecord-gcc-switches",
        ] {
            assert!(read(line).debug_chosen, "{line}");
        }
        for line in ["-O2", "-gcc-toolchain=/x", "-o -g", ""] {
            assert!(!read(line).debug_chosen, "{line}");
        }
    }

    #[test]
    fn obstacles() {
        assert!(read("-c a.c -mcmodel=medium -masm=intel -masm=att").obstacles.is_empty());
        assert!(read("--target=x86_64-unknown-linux-gnu -minstrument-return=call").obstacles.is_empty());
        assert_eq!(read("-masm=intel").obstacles, [Obstacle::IntelSyntax]);
        assert_eq!(read("-m32 -m32").obstacles, [Obstacle::Target("-m32".into())]);
        assert_eq!(read("-target arm-linux-gnueabihf").obstacles.len(), 1);
        let arm = read("--target=riscv64-linux-gnu -target aarch64-linux-gnu");
        assert_eq!((arm.machine, arm.obstacles.len()), (Some(Machine::Aarch64), 0));
        assert_eq!(read("-pg -pipe -pthread -pie").obstacles, [Obstacle::ClaimsHooks("-pg".into())]);
        assert_eq!(read("-mfentry-name=x").obstacles.len(), 1);
    }
}
