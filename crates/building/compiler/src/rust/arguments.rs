//! A call of rustc, parsed from its arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The request to rustc, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rustc {
    /// All arguments, those of argument files included.
    pub args: Vec<OsString>,
    /// Name of the crate; `None` for queries (`-vV`).
    pub crate_name: Option<String>,
    /// The crate types; a test harness has none.
    pub crate_types: Vec<String>,
    /// Whether it is a test harness.
    pub is_test: bool,
    /// The kinds of output, such as `metadata`, `link`; empty: what the crate type needs.
    pub emitted: Vec<String>,
    /// The target, if it is named.
    pub target: Option<String>,
    /// Features of the package.
    pub features: Vec<String>,
    /// The folder of the outputs, and the suffix of their names behind the crate's.
    pub out_dir: Option<OsString>,
    pub extra_filename: String,
    /// Files of crates it may use.
    pub externs: Vec<OsString>,
    /// Folders with the files of crates that those use.
    pub dependencies: Vec<OsString>,
    /// `-C opt-level`.
    pub opt_level: String,
    /// `-C debuginfo`, or `-g`.
    pub debug_info: Option<String>,
    /// The project's linker.
    pub linker: Option<OsString>,
    /// Whether only something is asked.
    pub is_query: bool,
}

/// Options whose value is the next argument, unless it is joined by `=`.
const TAKE_NEXT: [&str; 20] = [
    "--crate-name",
    "--crate-type",
    "--emit",
    "--print",
    "--target",
    "--edition",
    "--cfg",
    "--check-cfg",
    "--extern",
    "--out-dir",
    "--sysroot",
    "--cap-lints",
    "--codegen",
    "--error-format",
    "--json",
    "--color",
    "--diagnostic-width",
    "--remap-path-prefix",
    "--explain",
    "--env-set",
];

/// Short options whose value is the rest of the argument, or the next one.
const SHORT: [&str; 11] = ["-C", "-L", "-l", "-o", "-A", "-W", "-D", "-F", "-Z", "-O", "-g"];

/// One option with its value, and how many arguments it takes.
struct Word {
    option: String,
    value: OsString,
    length: usize,
}

impl Rustc {
    /// Reads the arguments that follow the compiler's name.
    pub fn read(args: &[OsString]) -> Rustc {
        let args = expand(args);
        let mut rustc = Rustc { opt_level: "0".to_owned(), ..Rustc::default() };
        let mut at = 0;
        while at < args.len() {
            let word = word_at(&args, at);
            rustc.take(&word);
            at += word.length;
        }
        Rustc { args, ..rustc }
    }

    fn take(&mut self, word: &Word) {
        let text = word.value.to_string_lossy().into_owned();
        let list = || text.split(',').map(|kind| kind.split('=').next().unwrap_or(kind).to_owned());
        match &word.option[..] {
            "--crate-name" => self.crate_name = Some(text),
            "--crate-type" => self.crate_types.extend(list()),
            "--emit" => self.emitted.extend(list()),
            "--target" => self.target = Some(text),
            "--cfg" => {
                let feature = text.strip_prefix("feature=\"").and_then(|rest| rest.strip_suffix('"'));
                self.features.extend(feature.map(str::to_owned));
            }
            "--out-dir" => self.out_dir = Some(word.value.clone()),
            "--extern" => self.externs.extend(after(&word.value, b'=')),
            "-L" if text.starts_with("dependency=") => self.dependencies.extend(after(&word.value, b'=')),
            "--test" => self.is_test = true,
            "--print" | "--version" | "-V" | "-vV" | "--help" | "-h" | "--explain" => self.is_query = true,
            "-O" => self.opt_level = "3".to_owned(),
            "-g" => self.debug_info = Some("2".to_owned()),
            "-C" => self.take_codegen(&text, &word.value),
            _ => {}
        }
    }

    fn take_codegen(&mut self, text: &str, value: &OsString) {
        let (name, text) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "opt-level" => self.opt_level = text.to_owned(),
            "extra-filename" => text.clone_into(&mut self.extra_filename),
            "debuginfo" => self.debug_info = Some(text.to_owned()),
            "linker" => {
                let bytes = value.as_bytes();
                self.linker = bytes.get("linker=".len()..).map(|path| OsString::from_vec(path.to_vec()));
            }
            _ => {}
        }
    }

    /// Whether code is made, as opposed to checks and documentation.
    pub fn makes_code(&self) -> bool {
        let makes = |kind: &String| matches!(&kind[..], "link" | "obj" | "asm" | "llvm-ir" | "llvm-bc");
        !self.is_query
            && self.crate_name.is_some()
            && (self.emitted.is_empty() || self.emitted.iter().any(makes))
    }

    /// Whether it is loaded by rustc itself, or run by cargo while it builds.
    pub fn is_part_of_the_build(&self) -> bool {
        let is_script = self.crate_name.as_deref().is_some_and(|name| name.starts_with("build_script_"));
        is_script || self.crate_types.iter().any(|kind| kind == "proc-macro")
    }

    /// Whether a linker makes an executable or a shared object of it.
    pub fn links(&self) -> bool {
        let is_linked = |kind: &String| matches!(&kind[..], "bin" | "cdylib" | "dylib");
        let makes_link = self.emitted.is_empty() || self.emitted.iter().any(|kind| kind == "link");
        makes_link && (self.is_test || self.crate_types.is_empty() || self.crate_types.iter().any(is_linked))
    }

    /// Whether the crate `name` is among those that it may use, themselves or through others.
    pub fn may_use(&self, name: &str) -> bool {
        let start = format!("lib{name}-");
        let is_it = |file: &OsStr| file.as_bytes().starts_with(start.as_bytes());
        let has = |folder: &OsString| {
            let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
            files.map(|file| file.file_name()).any(|name| is_it(&name))
        };
        self.externs.iter().any(|path| Path::new(path).file_name().is_some_and(is_it))
            || self.dependencies.iter().any(has)
    }

    /// The file with what is known of tokio's tasks in the crate, beside its library.
    pub fn tasks_file(&self) -> Option<PathBuf> {
        let (folder, name) = (self.out_dir.as_ref()?, self.crate_name.as_ref()?);
        Some(Path::new(folder).join(format!("lib{name}{}.{}", self.extra_filename, super::tokio::EXTENSION)))
    }

    /// The arguments of a run that only writes the functions' names into `folder`, as LLVM's text;
    /// `with_types`: also their types.
    pub fn first_run(&self, folder: &Path, with_types: bool) -> Vec<OsString> {
        let mut kept = Vec::with_capacity(self.args.len());
        let mut at = 0;
        while at < self.args.len() {
            let word = word_at(&self.args, at);
            let end = self.args.len().min(at + word.length);
            if !is_left_out(&word) {
                kept.extend_from_slice(&self.args[at..end]);
            }
            at += word.length;
        }
        let mut out: OsString = "--out-dir=".into();
        out.push(folder);
        kept.extend(["--emit=llvm-ir".into(), out, "--cap-lints=allow".into()]);
        let types = if with_types { "-Cdebuginfo=line-tables-only" } else { "-Cdebuginfo=0" };
        kept.extend(["-Cno-prepopulate-passes", types, "-Clto=off"].map(OsString::from));
        kept
    }
}

/// Whether the first run goes without an option: what is written, for whom, and how it is
/// optimised. None of them changes a name.
fn is_left_out(word: &Word) -> bool {
    const CODEGEN: [&str; 6] =
        ["incremental", "lto", "linker-plugin-lto", "debuginfo", "save-temps", "embed-bitcode"];
    match &word.option[..] {
        "--emit" | "--out-dir" | "-o" | "-g" | "--error-format" | "--json" | "--cap-lints" => true,
        "-C" => {
            let text = word.value.to_string_lossy();
            CODEGEN.contains(&text.split('=').next().unwrap_or_default())
        }
        _ => false,
    }
}

/// The text behind the first `mark`.
fn after(text: &OsStr, mark: u8) -> Option<OsString> {
    let (_, rest) = text.as_bytes().split_at_checked(memchr::memchr(mark, text.as_bytes())? + 1)?;
    Some(OsString::from_vec(rest.to_vec()))
}

fn word_at(args: &[OsString], at: usize) -> Word {
    let Some(arg) = args.get(at) else {
        return Word { option: String::new(), value: OsString::new(), length: 1 };
    };
    let bytes = arg.as_bytes();
    let text = arg.to_string_lossy();
    let next = || args.get(at + 1).cloned().unwrap_or_default();
    let split = bytes.iter().position(|byte| *byte == b'=');
    let found = if let Some(option) = TAKE_NEXT.iter().find(|option| **option == text) {
        Word { option: (*option).to_owned(), value: next(), length: 2 }
    } else if let Some(split) = split.filter(|_| text.starts_with("--")) {
        let option = String::from_utf8_lossy(&bytes[..split]).into_owned();
        Word { option, value: OsString::from_vec(bytes[split + 1..].to_vec()), length: 1 }
    } else if let Some(option) = SHORT.iter().find(|option| text.starts_with(**option)) {
        let rest = &bytes[option.len()..];
        match rest.is_empty() && !matches!(*option, "-O" | "-g") {
            true => Word { option: (*option).to_owned(), value: next(), length: 2 },
            false => {
                Word { option: (*option).to_owned(), value: OsString::from_vec(rest.to_vec()), length: 1 }
            }
        }
    } else {
        Word { option: text.into_owned(), value: OsString::new(), length: 1 }
    };
    match &found.option[..] {
        "--codegen" => Word { option: "-C".to_owned(), ..found },
        _ => found,
    }
}

/// The arguments with every readable `@FILE` replaced by its lines, as rustc does.
fn expand(args: &[OsString]) -> Vec<OsString> {
    let lines = |arg: &OsString| {
        let file = arg.as_bytes().strip_prefix(b"@")?;
        let text = std::fs::read_to_string(Path::new(&OsString::from_vec(file.to_vec()))).ok()?;
        Some(text.lines().map(OsString::from).collect::<Vec<_>>())
    };
    args.iter().flat_map(|arg| lines(arg).unwrap_or_else(|| vec![arg.clone()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Rustc {
        Rustc::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn calls_by_cargo() {
        let rustc = read(
            "--crate-name app --edition=2024 src/main.rs --error-format=json --json=artifacts --crate-type bin \
             --emit=dep-info,link -C opt-level=3 -C embed-bitcode=no -C debuginfo=1 --cfg feature=\"rt\" -C extra-filename=-0a --out-dir /t -Clinker=/usr/bin/mold \
             -L dependency=/t --extern a=/t/liba-1.rlib",
        );
        assert!(rustc.makes_code() && rustc.links() && !rustc.is_part_of_the_build());
        assert_eq!((&rustc.opt_level[..], rustc.debug_info.as_deref()), ("3", Some("1")));
        assert_eq!(rustc.linker, Some("/usr/bin/mold".into()));
        let first = rustc.first_run(Path::new("/s"), false);
        assert!(rustc.may_use("a") && !rustc.may_use("b"));
        assert_eq!(
            (&rustc.features[..], &rustc.dependencies[..]),
            (&["rt".to_owned()][..], &["/t".into()][..])
        );
        assert_eq!(rustc.tasks_file(), Some("/t/libapp-0a.tokio".into()));
        let first: Vec<_> = first.iter().map(|arg| arg.to_string_lossy()).collect();
        assert_eq!(
            first.join(" "),
            "--crate-name app --edition=2024 src/main.rs --crate-type bin -C opt-level=3 --cfg feature=\"rt\" -C extra-filename=-0a -Clinker=/usr/bin/mold -L \
             dependency=/t --extern a=/t/liba-1.rlib --emit=llvm-ir --out-dir=/s --cap-lints=allow -Cno-prepopulate-passes \
             -Cdebuginfo=0 -Clto=off"
        );
    }

    #[test]
    fn what_is_left_alone() {
        assert!(!read("-vV").makes_code());
        assert!(!read("--crate-name ___ --print=file-names --crate-type bin").makes_code());
        assert!(!read("--crate-name a --crate-type lib --emit=dep-info,metadata a.rs").makes_code());
        assert!(read("--crate-name m --crate-type proc-macro m.rs").is_part_of_the_build());
        assert!(read("--crate-name build_script_build --crate-type bin b.rs").is_part_of_the_build());
        assert!(!read("--crate-name a --crate-type lib --emit=metadata,link a.rs").links());
        assert!(read("--crate-name a --test --emit=link a.rs").links());
    }
}
