//! Compiles the C file in the mode whose hook tokio's functions call, too, if the test says how.

use std::process::Command;

fn run(command: &mut Command) {
    assert!(command.status().expect("the program runs").success(), "{command:?}");
}

fn main() {
    println!("cargo::rerun-if-changed=src/in_c.c");
    println!("cargo::rerun-if-env-changed=APP_PREFIX");
    let out = std::env::var("OUT_DIR").unwrap();
    let prefix = std::env::var("APP_PREFIX").unwrap_or_default();
    let words: Vec<&str> = prefix.split(' ').filter(|word| !word.is_empty()).chain(["gcc"]).collect();
    let object = format!("{out}/in_c.o");
    run(Command::new(words[0]).args(&words[1..]).args(["-O1", "-c", "src/in_c.c", "-o", &object]));
    run(Command::new("ar").args(["rcs", &format!("{out}/libin_c.a"), &object]));
    println!("cargo::rustc-link-search={out}");
    println!("cargo::rustc-link-lib=static=in_c");
}
