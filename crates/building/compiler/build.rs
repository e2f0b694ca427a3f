//! Computes the crate's identity from its sources.
//!
//! The folder of the assembler step has it in its name. A compiler cache hashes the folder's path
//! as a part of the command line, so it never takes objects of one version for another's.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=src");
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let bytes = std::fs::read(&file).expect("a source file of this crate can be read");
        for byte in file.to_string_lossy().bytes().chain(bytes) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo:rustc-env=EVERYCALL_COMPILER_SOURCES={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the crate has a src folder").flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
