//! Facts that `record` reads from a file before it starts it.

use crate::common;
use std::path::Path;

use crate::common::{Workshop, has_tool};
use everycall_symbols::{LinkKind, NoteReport, SiteError, SiteReport, site_report};

fn report(workshop: &Workshop, compiler: &str, flags: &[&str]) -> SiteReport {
    std::fs::write(
        workshop.path("a.c"),
        "int f(int x) { return x * 2; }\nint main(int n, char **v) { return f(n); }\n",
    )
    .unwrap();
    workshop.run(&[&[compiler, "a.c", "-o", "out"], flags].concat());
    site_report(&workshop.path("out")).unwrap()
}

#[test]
fn link_kinds() {
    let workshop = Workshop::new();
    for (flags, link, has_interpreter) in [
        (&["-pie", "-fPIE"][..], LinkKind::DynamicPie, true),
        (&["-no-pie"], LinkKind::Dynamic, true),
        (&["-static"], LinkKind::Static, false),
        (&["-static-pie", "-fPIE"], LinkKind::StaticPie, false),
        (&["-shared", "-fPIC"], LinkKind::Shared, false),
        (&["-c"], LinkKind::Other, false),
    ] {
        let report = report(&workshop, "gcc", flags);
        assert_eq!(report.link, link, "{flags:?}");
        assert_eq!(report.interpreter.is_some(), has_interpreter, "{flags:?}");
        assert!(report.is_supported() && !report.is_traceable() && report.note.is_none(), "{flags:?}");
    }
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    if libc.exists() {
        assert_eq!(site_report(libc).unwrap().link, LinkKind::Shared, "has an interpreter, and is a library");
    }
}

#[test]
fn hooks_sleds_and_sites() {
    let workshop = Workshop::new();
    let plain = report(&workshop, "gcc", &["-finstrument-functions", "-shared", "-fPIC"]);
    assert!(plain.hooks_undefined && !plain.hooks_defined && plain.is_traceable());
    let hooks = "void __cyg_profile_func_enter(void *f, void *c) {} void __cyg_profile_func_exit(void *f, void *c) {}";
    std::fs::write(workshop.path("hooks.c"), hooks).unwrap();
    let own = report(
        &workshop,
        "gcc",
        &["-finstrument-functions-exclude-file-list=hooks", "-finstrument-functions", "hooks.c"],
    );
    assert!(own.hooks_defined && !own.hooks_undefined);
    if has_tool("clang-19") {
        let xray = report(
            &workshop,
            "clang-19",
            &["-fxray-instrument", "-fxray-instruction-threshold=1", "-fno-xray-link-deps"],
        );
        assert_eq!(xray.xray_sled_count, 4, "entry and exit of f and main");
    }
    std::fs::write(
        workshop.path("s.s"),
        ".text\n.globl g\n.type g,@function\ng: .byte 0x0f,0x1f,0x44,0,0\n ret\n.size g,.-g\n\
         .section everycall_sites,\"a\"\n.long g - ., g - ., 0\n.long g + 5 - ., g - ., 1\n\
         .section .note.everycall,\"a\",@note\n.long 10, 4, 1\n.asciz \"everycall\"\n.balign 4\n.long 1\n\
         .section .note.GNU-stack,\"\",@progbits\n",
    )
    .unwrap();
    let sites = report(&workshop, "gcc", &["s.s"]);
    assert_eq!(sites.site_count, 2);
    assert_eq!(sites.note, Some(NoteReport { is_runtime: true, abi: 1 }));
    assert!(sites.is_traceable());
}

/// Site lists know function starts, even where neither symbols nor unwind entries are left.
#[test]
fn sites_name_functions_of_bare_files() {
    let workshop = Workshop::new();
    std::fs::write(
        workshop.path("s.s"),
        ".text\nf: nop\n nop\n ret\ng: nop\n ret\n\
         .section everycall_sites,\"a\"\n.long f + 1 - ., f - ., 0\n.long g - ., g - ., 0\n.long f + 2 - ., f - ., 1\n",
    )
    .unwrap();
    workshop.run(&["gcc", "-shared", "-nostdlib", "-s", "-Wl,--build-id", "s.s", "-o", "s.so"]);
    let mut symbols = common::open(&workshop.path("s.so"), &everycall_symbols::SymbolOptions::bare());
    let functions = common::functions(&mut symbols);
    let sizes: Vec<u64> = functions.iter().map(|function| function.size).collect();
    assert_eq!(sizes, [3, 2]);
    assert_eq!(functions[0].name, format!("s.so+{:#x}", functions[0].start));
}

#[test]
fn files_that_are_no_programs() {
    let workshop = Workshop::new();
    std::fs::write(workshop.path("script"), "#!/bin/sh\nexec app\n").unwrap();
    std::fs::write(workshop.path("cut"), b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0").unwrap();
    std::fs::write(
        workshop.path("small"),
        [&b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0"[..], &[0; 32]].concat(),
    )
    .unwrap();
    let error = |name: &str| site_report(&workshop.path(name)).unwrap_err();
    assert!(matches!(error("script"), SiteError::NotElf(_)));
    assert!(matches!(error("missing"), SiteError::Unreadable(..)));
    assert!(matches!(error("cut"), SiteError::Damaged(..)));
    assert!(error("script").to_string().contains("script is not an ELF file"));
    let small = site_report(&workshop.path("small")).unwrap();
    assert!(!small.is_64_bit && small.machine == 3 && !small.is_traceable());
}
