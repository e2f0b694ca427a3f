//! Code of one architecture is in the modules named `arch`, in files and folders that are named
//! like the architecture (`docs/design/architectures.md`).

use std::path::{Path, PathBuf};

use crate::rooms::{Room, rooms};

/// Crates that are of one architecture on purpose, and why.
const OF_ONE: [(&str, &str); 6] = [
    ("inject", "changes registers and code of a process"),
    ("intel-pt", "reads the traces of Intel's processors"),
    ("rewrite", "changes machine code"),
    ("synth", "makes code for traces of Intel's processors"),
    ("trace-plugin", "reads the registers of an emulated processor"),
    ("untouched", "makes trampolines of machine code"),
];

/// Lines that may name an architecture: the crate, what they contain, and why.
const LINES: [(&str, &str, &str); 6] = [
    ("cli", "/// x86-64 programs", "help on `rewrite`, which is of one architecture"),
    ("coredump", "machine != elf::EM_X86_64.0", "cores of both are read"),
    ("kit", "`x86_64/inlined.rs` of the hooks says", "names a file"),
    ("kit", "architecture: \"x86_64\",", "names the folder"),
    ("kit", "__asm__ volatile(\"\" :::", "only a barrier for the compiler"),
    ("kit", "__asm__(symbol)", "gives a function its name"),
];

/// Parts of words that belong to one architecture.
const PARTS: [&str; 12] = [
    "x86",
    "amd64",
    "asm!",
    "cpuid",
    "rdtsc",
    "endbr",
    "mfence",
    "lfence",
    "sfence",
    "mxcsr",
    "target_arch",
    "ia32",
];

/// Words that do: registers and opcodes, and assembly in C.
const WORDS: [&str; 32] = [
    "__asm__", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "eax", "ebx", "ecx", "edx",
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "eflags", "rflags", "fs_base", "xmm", "ymm", "zmm",
    "0xcc", "0xe8", "0xe9", "0xc3",
];

/// The first word of one architecture in a line.
fn word_in(line: &str) -> Option<&'static str> {
    let lower = line.to_ascii_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_word = |found: &str| WORDS.iter().find(|word| **word == found);
    PARTS.iter().find(|part| lower.contains(**part)).or_else(|| words.filter_map(is_word).next()).copied()
}

/// Whether a file or folder has an architecture's name, or chooses one.
fn is_of_an_architecture(path: &Path) -> bool {
    path.iter().any(|part| {
        let stem = Path::new(part).file_stem().unwrap_or_default();
        ["arch", "x86_64", "aarch64"].iter().any(|known| stem == *known)
    })
}

/// Adds the sources in a folder, in Rust and C.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|end| end == "rs" || end == "c" || end == "h") {
            found.push(entry);
        }
    }
}

/// The crate and path of each source that has to be free of architectures. Tests aren't among them.
fn free_sources() -> Vec<(String, PathBuf)> {
    let mut free = Vec::new();
    for Room { name, folder: room, .. } in rooms() {
        if OF_ONE.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let mut found = Vec::new();
        for folder in ["src", "wrappers", "preloaded"].map(|name| room.join(name)) {
            if folder.exists() {
                sources(&folder, &mut found);
            }
        }
        found.extend(Some(room.join("build.rs")).filter(|path| path.exists()));
        found.retain(|path| {
            let inside = path.strip_prefix(&room).unwrap();
            !is_of_an_architecture(inside) && !inside.starts_with("src/tests") && !path.ends_with("tests.rs")
        });
        free.extend(found.into_iter().map(|path| (name.clone(), path)));
    }
    free
}

/// A crate's root chooses the module `arch`.
fn chooses(path: &Path, line: &str) -> bool {
    path.ends_with("src/lib.rs") && (line.starts_with("#[cfg(") || line.starts_with("#[path = "))
}

#[test]
fn only_the_modules_of_an_architecture_name_it() {
    let sources = free_sources();
    assert!(sources.len() > 800, "{} sources", sources.len());
    let mut wrong = Vec::new();
    for (name, path) in sources {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in (1..).zip(code.lines()) {
            let is_known = LINES.iter().any(|(known, text, _)| *known == name && line.contains(text));
            if let Some(word) = word_in(line).filter(|_| !is_known && !chooses(&path, line)) {
                wrong.push(format!("{}:{number}: {word}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "move it into the crate's `arch`:\n{}", wrong.join("\n"));
}

#[test]
fn words_of_an_architecture_are_found() {
    for line in
        ["use iced_x86::Decoder;", "asm!(\"nop\")", "[0xe8, 0]", "(%rax)", "cfg!(target_arch)", "%r11"]
    {
        assert!(word_in(line).is_some(), "{line}");
    }
    for line in ["let trip = 0xe80;", "spread", "plasma", "parser::rest"] {
        assert_eq!(word_in(line), None);
    }
}

/// The crates that have a module `arch` are those of the document.
#[test]
fn the_contract_lists_every_crate() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/design/architectures.md");
    let text = std::fs::read_to_string(document).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut listed: Vec<&str> = rows.collect();
    listed.sort_unstable();
    let mut having = Vec::new();
    for room in rooms() {
        let root = std::fs::read_to_string(room.folder.join("src/lib.rs")).unwrap_or_default();
        if root.contains("mod arch;") || room.folder.join("x86_64").exists() {
            having.push(room.name);
        }
    }
    having.sort_unstable();
    assert_eq!(listed, having);
}
