//! Uses a crate that is traced in the program, and compiles C as the crate `cc` does.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=TWICE={}", parts::twice(21));
    let folder = env::var("OUT_DIR").unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success(), "{command:?}");
    let compiler = env::var("CC").unwrap_or("cc".to_owned());
    run(Command::new(compiler).args(["-O2", "-c", "src/in_c.c", "-o"]).arg(format!("{folder}/in_c.o")));
    run(Command::new("ar").arg("crs").arg(format!("{folder}/libin_c.a")).arg(format!("{folder}/in_c.o")));
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=in_c");
}
