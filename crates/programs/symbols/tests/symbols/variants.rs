//! Functions must be found under one name, file and line, however a program was built and wherever
//! its debugging information is.

use crate::common;
use crate::common::{Workshop, build_id, check_marked, functions, has_tool, open};
use everycall_symbols::{NameSource, SymbolOptions, SymbolWarning};

const PROGRAM: &str = "shapes.cpp";

fn check_build(compiler: &str, flags: &[&str]) {
    let context = format!("{compiler} {}", flags.join(" "));
    let workshop = Workshop::new();
    let path = workshop.compile(compiler, flags, PROGRAM, "out");
    let mut symbols = open(&path, &SymbolOptions::bare());
    check_marked(&mut symbols, PROGRAM, &context);
    let warnings = symbols.warnings();
    assert!(warnings.is_empty(), "{context}: {warnings:?}");
}

#[test]
fn compilers_levels_and_links() {
    for compiler in ["g++", "clang++-19", "clang++-22"].into_iter().filter(|name| has_tool(name)) {
        for level in ["-O0", "-O2", "-O3"] {
            check_build(compiler, &[level, "-g", "-Wl,--build-id"]);
        }
        let id = "-Wl,--build-id";
        check_build(compiler, &["-O2", "-g", "-no-pie", id]);
        check_build(compiler, &["-O2", "-g", "-fPIC", "-shared", id]);
        check_build(compiler, &["-O1", "-gdwarf-4", id]);
        check_build(compiler, &["-O1", "-g", "-ffunction-sections", "-Wl,--gc-sections", id]);
    }
    check_build("g++", &["-O2", "-g1", "-Wl,--build-id"]);
    check_build("g++", &["-O2", "-g", "-static", "-Wl,--build-id"]);
    check_build("g++", &["-O0", "-g", "-flto", "-Wl,--build-id"]);
    check_build("g++", &["-O1", "-g", "-gdwarf64", "-Wl,--build-id"]);
    if has_tool("ld.lld-19") {
        check_build("clang++-19", &["-O2", "-g", "-fuse-ld=lld-19", "-Wl,--build-id"]);
        check_build("clang++-19", &["-O1", "-g", "-flto", "-fuse-ld=lld-19", "-Wl,--build-id"]);
        check_build("clang++-19", &["-O2", "-g", "-flto=thin", "-fuse-ld=lld-19", "-Wl,--build-id"]);
    }
}

/// Only line tables: the line is that of the first instruction, which may be a little below the
/// declaration.
#[test]
fn line_tables_alone_give_files_and_near_lines() {
    let workshop = Workshop::new();
    let flags = ["-O0", "-gline-tables-only", "-Wl,--build-id"];
    let path = workshop.compile("clang++-19", &flags, PROGRAM, "out");
    let mut symbols = open(&path, &SymbolOptions::bare());
    let functions = functions(&mut symbols);
    for (name, line) in common::marked_lines(PROGRAM) {
        let function = functions.iter().find(|function| function.name == name).unwrap();
        assert!(function.file.as_ref().unwrap().ends_with(PROGRAM));
        let found = function.line.unwrap();
        assert!((line..line + 3).contains(&found), "{name}: line {found}, declared in {line}");
    }
}

#[test]
fn assembly_has_lines() {
    let workshop = Workshop::new();
    std::fs::write(
        workshop.path("a.s"),
        ".text\n.globl first\n.type first,@function\nfirst:\n nop\n ret\n.size first,.-first\nunsized:\n ret\n.L1: ret\n",
    )
    .unwrap();
    workshop.run(&["gcc", "-g", "-shared", "-nostdlib", "-Wl,--build-id", "a.s", "-o", "a.so"]);
    let mut symbols = open(&workshop.path("a.so"), &SymbolOptions::bare());
    let functions = functions(&mut symbols);
    let found: Vec<_> = functions.iter().map(|f| (&*f.name, f.size, f.line)).collect();
    assert_eq!(found, [("first", 2, Some(5)), ("unsized", 2, Some(9))]);
}

#[test]
fn compressed_sections() {
    check_build("g++", &["-O2", "-g", "-gz=zlib", "-Wl,--build-id"]);
    let workshop = Workshop::new();
    workshop.compile("g++", &["-O2", "-g", "-Wl,--build-id"], PROGRAM, "out");
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let flag = format!("--compress-debug-sections={kind}");
        workshop.run(&["objcopy", &flag, "out", kind]);
        let headers = workshop.run(&["readelf", "-SW", kind]);
        let is_gnu = headers.contains(".zdebug_info");
        let is_compressed = headers.lines().any(|line| line.contains(".debug_info") && line.contains(" C "));
        assert!(is_gnu || is_compressed, "{kind} did not compress");
        check_marked(&mut open(&workshop.path(kind), &SymbolOptions::bare()), PROGRAM, kind);
    }
}

/// Splits `out` into `stripped` and a debug file.
fn strip_into(workshop: &Workshop, debug: &str, flags: &[&str]) {
    workshop.compile("g++", &[&["-O2", "-g"], flags].concat(), PROGRAM, "out");
    workshop.run(&["objcopy", "--only-keep-debug", "out", debug]);
    workshop.run(&["strip", "-o", "stripped", "out"]);
}

#[test]
fn debug_link_in_every_place() {
    for (place, flags) in
        [("", "-Wl,--build-id"), (".debug", "-Wl,--build-id=none"), ("global", "-Wl,--build-id")]
    {
        let workshop = Workshop::new();
        strip_into(&workshop, "out.debug", &[flags]);
        workshop.run(&["objcopy", "--add-gnu-debuglink=out.debug", "stripped"]);
        let mut options = SymbolOptions::bare();
        let dir = match place {
            "global" => {
                options.debug_dirs.push(workshop.path("global"));
                workshop.path("global").join(workshop.path("").strip_prefix("/").unwrap())
            }
            place => workshop.path(place),
        };
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::rename(workshop.path("out.debug"), dir.join("out.debug")).unwrap();
        let mut symbols = open(&workshop.path("stripped"), &options);
        check_marked(&mut symbols, PROGRAM, place);

        // A file that isn't the one that was split off is refused.
        let mut data = std::fs::read(dir.join("out.debug")).unwrap();
        *data.last_mut().unwrap() ^= 1;
        std::fs::write(dir.join("out.debug"), data).unwrap();
        let mut symbols = open(&workshop.path("stripped"), &options);
        let refused = |w: &SymbolWarning| matches!(w, SymbolWarning::DebugFileRefused { reason, .. } if reason.contains("checksum"));
        assert!(symbols.warnings().iter().any(refused), "{place}: {:?}", symbols.warnings());
        assert!(functions(&mut symbols).iter().all(|function| function.line.is_none()));
    }
}

#[test]
fn build_id_stores() {
    let workshop = Workshop::new();
    strip_into(&workshop, "out.debug", &["-Wl,--build-id"]);
    let id: String = build_id(&workshop.path("stripped")).iter().map(|byte| format!("{byte:02x}")).collect();
    let below = |path: String| {
        let path = workshop.path(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(workshop.path("out.debug"), path).unwrap();
    };
    below(format!("store/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    below(format!("cache/{id}/debuginfo"));
    let store = SymbolOptions { debug_dirs: vec![workshop.path("store")], ..SymbolOptions::bare() };
    let cache = SymbolOptions { debuginfod_cache: Some(workshop.path("cache")), ..SymbolOptions::bare() };
    for options in [&store, &cache] {
        check_marked(&mut open(&workshop.path("stripped"), options), PROGRAM, "by build id");
    }
    // The store alone is enough: the binary was deleted.
    let id = build_id(&workshop.path("stripped"));
    std::fs::remove_file(workshop.path("stripped")).unwrap();
    let path = workshop.path("stripped");
    let identity = everycall_symbols::ModuleIdentity::new(&path, &id);
    let mut symbols = everycall_symbols::ModuleSymbols::open(&identity, &store);
    check_marked(&mut symbols, PROGRAM, "without the binary");
}

#[test]
fn shared_debug_files() {
    if !has_tool("dwz") {
        eprintln!("dwz is not installed: .gnu_debugaltlink was not tried");
        return;
    }
    let workshop = Workshop::new();
    workshop.compile("g++", &["-O2", "-g", "-gdwarf-4", "-Wl,--build-id"], PROGRAM, "one");
    workshop.compile("g++", &["-O1", "-g", "-gdwarf-4", "-Wl,--build-id"], PROGRAM, "two");
    workshop.run(&["dwz", "-m", "shared.debug", "one", "two"]);
    assert!(workshop.run(&["readelf", "-SW", "one"]).contains(".gnu_debugaltlink"));
    check_marked(&mut open(&workshop.path("one"), &SymbolOptions::bare()), PROGRAM, "dwz");
}

#[test]
fn split_dwarf_and_packages() {
    for (compiler, dwp) in [("g++", "dwp"), ("clang++-19", "llvm-dwp-19"), ("clang++-22", "llvm-dwp-22")] {
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            if !has_tool(compiler) {
                continue;
            }
            let context = format!("{compiler} {version}");
            let workshop = Workshop::new();
            std::fs::copy(common::program_path(PROGRAM), workshop.path(PROGRAM)).unwrap();
            workshop.run(&[compiler, "-O2", version, "-gsplit-dwarf", "-c", PROGRAM, "-o", "shapes.o"]);
            workshop.run(&[compiler, "-Wl,--build-id", "shapes.o", "-o", "out"]);
            let path = workshop.path("out");
            check_marked(&mut open(&path, &SymbolOptions::bare()), PROGRAM, &context);

            if has_tool(dwp) && !(dwp == "dwp" && version == "-gdwarf-5") {
                workshop.run(&[dwp, "-e", "out", "-o", "out.dwp"]);
                std::fs::rename(workshop.path("shapes.dwo"), workshop.path("moved.dwo")).unwrap();
                check_marked(&mut open(&path, &SymbolOptions::bare()), PROGRAM, &format!("{context} {dwp}"));
                std::fs::remove_file(workshop.path("out.dwp")).unwrap();
            } else {
                std::fs::remove_file(workshop.path("shapes.dwo")).unwrap();
            }
            let mut symbols = open(&path, &SymbolOptions::bare());
            let functions = functions(&mut symbols);
            assert!(functions.iter().any(|function| function.name == "plain_c"), "{context}: names stay");
            let missing = |w: &SymbolWarning| matches!(w, SymbolWarning::MissingSplitUnits { count: 1, .. });
            assert!(symbols.warnings().iter().any(missing), "{context}: {:?}", symbols.warnings());
        }
    }
}

#[test]
fn minimal_symbols_inside_a_stripped_file() {
    if !has_tool("xz") {
        eprintln!("xz is not installed: .gnu_debugdata was not tried");
        return;
    }
    let workshop = Workshop::new();
    strip_into(&workshop, "mini", &["-Wl,--build-id"]);
    workshop.run(&["strip", "-g", "mini"]);
    workshop.run(&["xz", "mini"]);
    workshop.run(&["objcopy", "--add-section", ".gnu_debugdata=mini.xz", "stripped"]);
    let functions = functions(&mut open(&workshop.path("stripped"), &SymbolOptions::bare()));
    assert!(functions.iter().any(|function| function.name == "same_name(int)"));
}

/// Unwind entries separate functions if there are no symbols.
#[test]
fn stripped_functions_are_named_by_their_start() {
    let workshop = Workshop::new();
    strip_into(&workshop, "out.debug", &["-Wl,--build-id"]);
    let mut full = open(&workshop.path("out"), &SymbolOptions::bare());
    let mut stripped = open(&workshop.path("stripped"), &SymbolOptions::bare());
    let mut checked = 0;
    for function in functions(&mut full) {
        let is_ours = function.file.as_ref().is_some_and(|file| file.ends_with(PROGRAM));
        if !is_ours || function.size < 2 {
            continue;
        }
        let (first, last) =
            (stripped.function_at(function.start), stripped.function_at(function.start + function.size - 1));
        assert_eq!(first, last, "{}", function.name);
        let found = stripped.function(first);
        assert_eq!(found.name, format!("stripped+{:#x}", function.start));
        assert_eq!((found.source, found.start), (NameSource::Address, function.start));
        checked += 1;
    }
    assert!(checked > 5);
    let no_info = |w: &SymbolWarning| matches!(w, SymbolWarning::NoDebugInfo { .. });
    assert!(stripped.take_warnings().iter().any(no_info));
}

/// Symbols stripped, DWARF present: names come from DWARF.
#[test]
fn names_from_dwarf() {
    let workshop = Workshop::new();
    workshop.compile("g++", &["-O2", "-g", "-Wl,--build-id"], PROGRAM, "out");
    let headers = workshop.run(&["readelf", "-SW", "out"]);
    let debug = headers.split_whitespace().filter(|word| word.starts_with(".debug_"));
    let keep: Vec<String> = debug.map(|name| format!("--keep-section={name}")).collect();
    let keep: Vec<&str> = keep.iter().map(String::as_str).collect();
    workshop.run(&[&["strip", "--strip-all", "-o", "bare"], &*keep, &["out"]].concat());
    let functions = functions(&mut open(&workshop.path("bare"), &SymbolOptions::bare()));
    let found = functions.iter().find(|f| f.name == "shapes::Square::area(int)").expect("a name from DWARF");
    assert_eq!(found.source, NameSource::Dwarf);
}
