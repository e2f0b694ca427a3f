//! The runtime's table has the layout that C sources declare: `everycall.h` and those of the kit.

use std::fmt::Write;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use everycall_hooks::{RuntimeTable, XrayObject};

/// The names of these fields in C, and where they are.
macro_rules! places {
    ($type:ty: $($name:ident)*) => { [$((stringify!($name), offset_of!($type, $name))),*] };
}

/// Compiles a source that states where a structure of C has these fields.
fn check(include: &str, structure: &str, places: &[(&str, usize)]) {
    let mut source = format!("#include <stddef.h>\n#include \"{include}\"\n");
    for (name, at) in places {
        let _ = writeln!(source, "_Static_assert(offsetof({structure}, {name}) == {at}, \"{name}\");");
    }
    let kit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../building/kit");
    let folders = ["include", "wrappers", "x86_64"].map(|name| format!("-I{kit}/{name}"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-fsyntax-only", "-DEVERYCALL_NAME=x", "-xc", "-"]).args(folders);
    let mut compiler = compiler.stdin(Stdio::piped()).spawn().unwrap();
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success(), "{include} declares another layout:\n{source}");
}

#[test]
fn the_header_declares_the_table() {
    let places = places! { RuntimeTable: abi size mark ticks_per_second record_thread record_process
    ring_size snapshot snapshot_write snapshot_free fiber min_duration off quick_mark log functions
    select memory memory_wanted frame_enter frame_leave frame address_space adopt };
    check("everycall.h", "struct everycall_runtime_", &places);
}

#[test]
fn wrappers_declare_the_table() {
    let places = places! { RuntimeTable: abi size unwinding fiber lock_memory landing min_duration xray off
    quick_mark address_space adopt thrown };
    check("runtime.h", "struct everycall_runtime", &places);
}

#[test]
fn the_xray_interface_declares_its_object() {
    let places = places! { XrayObject: active module functions number };
    check("xray.c", "struct object", &places);
}
