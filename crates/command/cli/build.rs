//! Links the command at a fixed address.
//!
//! A build runs it thousands of times in front of compilers, and gcc runs it again as the assembler
//! step. Otherwise, the dynamic linker would take most of its start: it writes 15,000 addresses
//! into 75 pages, 0.2 ms each time.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "gnu");
    let is_static = env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|feature| feature == "crt-static"));
    if is_gnu && !is_static {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
