//! Names as `nm -C` gives them, declarations as gdb gives them, calls to other modules as objdump
//! names them.

use crate::common;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::common::{Workshop, functions, has_tool, open};
use everycall_symbols::{NameSource, SymbolOptions};

/// Function symbols by address, as nm names them without `[clone ...]`.
fn names_by_address(workshop: &Workshop, file: &str) -> BTreeMap<u64, BTreeSet<String>> {
    let mut names: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for line in workshop.run(&["nm", "-C", "--defined-only", file]).lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if !matches!(kind, "t" | "T" | "w" | "W" | "i" | "u") {
            continue;
        }
        let name = name.split(" [clone").next().unwrap();
        names.entry(u64::from_str_radix(address, 16).unwrap()).or_default().insert(name.to_owned());
    }
    names
}

/// Spacing that the demanglers disagree on.
fn without_spaces(name: &str) -> String {
    name.replace(' ', "")
}

/// The name up to the parenthesis that its last one closes.
fn before_parameters(name: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in name.bytes().enumerate().rev() {
        depth += i32::from(byte == b')') - i32::from(byte == b'(');
        if byte == b'(' && depth == 0 {
            return &name[..at];
        }
    }
    name
}

/// Thunks are called what the function is that they lead to.
fn without_thunk(name: &str) -> &str {
    ["non-virtual thunk to ", "virtual thunk to ", "covariant return thunk to "]
        .iter()
        .find_map(|kind| name.strip_prefix(kind))
        .unwrap_or(name)
}

fn check_names(compiler: &str, flags: &[&str], program: &str) {
    let workshop = Workshop::new();
    let path = workshop.compile(compiler, flags, program, "out");
    let mut names = names_by_address(&workshop, "out");
    for set in names.values_mut() {
        *set = set.iter().map(|name| without_thunk(name).to_owned()).collect();
    }
    let mut symbols = open(&path, &SymbolOptions::bare());
    let (mut compared, mut close) = (0, 0);
    for function in functions(&mut symbols).iter().filter(|function| function.source == NameSource::Symbol) {
        let aliases = names.get(&function.start).unwrap_or_else(|| panic!("nm has nothing at {function:?}"));
        // nm shows no part for C names: it has the suffix in the name.
        let bare = |name: &String| without_spaces(everycall_symbols::split_part(name).0);
        let ours = without_spaces(&function.name);
        if !aliases.iter().any(|alias| bare(alias) == ours) {
            // The demangler drops the first parameter of constructors that are templates, and puts
            // a result type before functions of classes inside of templates.
            let is_close = aliases
                .iter()
                .any(|alias| before_parameters(&ours).ends_with(before_parameters(&bare(alias))));
            assert!(is_close, "{compiler} {flags:?}: {} is none of {aliases:?}", function.name);
            close += 1;
        }
        compared += 1;
    }
    assert!(
        compared > 10 && close * 20 < compared,
        "{compiler} {flags:?}: {close} of {compared} names are only close"
    );
    let missing = names.keys().filter(|&&address| {
        let id = symbols.function_at(address);
        symbols.function(id).start != address
    });
    let missing: Vec<_> = missing.map(|address| (address, &names[address])).collect();
    // Data symbols of kind W, and labels inside of functions, are no functions.
    let code = |set: &BTreeSet<String>| set.iter().any(|name| name.contains('('));
    assert!(missing.iter().all(|(_, set)| !code(set)), "{compiler} {flags:?}: not found {missing:?}");
}

#[test]
fn names_agree_with_nm() {
    for flags in [&["-O0", "-g"][..], &["-O2"], &["-O3", "-no-pie"], &["-O2", "-shared", "-fPIC"]] {
        check_names("g++", flags, "shapes.cpp");
    }
    check_names("clang++-19", &["-O2"], "shapes.cpp");
    check_names("rustc", &["-Cdebuginfo=0", "-Csymbol-mangling-version=v0"], "names.rs");
    check_names("rustc", &["-Copt-level=2", "-Cdebuginfo=2", "-Csymbol-mangling-version=v0"], "names.rs");
}

/// Legacy names carry a hash that nm shows and we don't.
#[test]
fn rust_names_and_lines() {
    for mangling in ["-Csymbol-mangling-version=v0", ""] {
        let flags: Vec<&str> = ["-Cdebuginfo=2", "-Clink-arg=-Wl,--build-id", mangling]
            .into_iter()
            .filter(|f| !f.is_empty())
            .collect();
        let workshop = Workshop::new();
        let path = workshop.compile("rustc", &flags, "names.rs", "out");
        let mut symbols = open(&path, &SymbolOptions::bare());
        let functions = functions(&mut symbols);
        for (name, line) in common::marked_lines("names.rs") {
            // Legacy names know no generic arguments.
            let legacy = name.replace("<u8>", "<T>");
            let found = functions.iter().find(|f| f.name == name || f.name == legacy);
            let found = found.unwrap_or_else(|| panic!("{flags:?}: no {name}"));
            assert_eq!(found.line, Some(line), "{found:?}");
            assert!(found.file.as_ref().unwrap().ends_with("names.rs"));
        }
        assert!(functions.iter().any(|function| function.name.contains("main::{closure#0}")
            || function.name.contains("main::{{closure}}")));
        assert!(functions.iter().all(|function| !function.name.contains("::h0")));
    }
}

/// gdb lists functions by file with the line of their declaration.
#[test]
fn declarations_agree_with_gdb() {
    let workshop = Workshop::new();
    let path = workshop.compile("g++", &["-O2", "-g"], "shapes.cpp", "out");
    let listing = workshop.run(&["gdb", "-batch", "-nx", "-ex", "info functions -n", "out"]);
    let mut declared: HashMap<String, BTreeSet<u32>> = HashMap::new();
    let mut file = String::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix("File ") {
            file = name.trim_end_matches(':').to_owned();
        } else if let Some((number, _)) = line.split_once(":\t")
            && let Ok(number) = number.parse()
        {
            declared.entry(file.rsplit('/').next().unwrap().to_owned()).or_default().insert(number);
        }
    }
    let mut compared = 0;
    for function in functions(&mut open(&path, &SymbolOptions::bare())) {
        let (Some(file), Some(line)) = (&function.file, function.line) else { continue };
        let file = file.file_name().unwrap().to_string_lossy().into_owned();
        let lines = declared.get(&file).unwrap_or_else(|| panic!("gdb has no {file}"));
        assert!(lines.contains(&line), "{} in {file}:{line}; gdb has {lines:?}", function.name);
        compared += 1;
    }
    assert!(compared >= 10, "{compared} declarations compared");
}

#[test]
fn stubs_are_named_as_objdump_names_them() {
    for flags in [
        &["-O2"][..],
        &["-O2", "-fcf-protection", "-Wl,-z,ibtplt"],
        &["-O2", "-no-pie", "-Wl,-z,now"],
        &["-O2", "-fuse-ld=lld-19"],
    ] {
        if flags.iter().any(|flag| flag.contains("lld")) && !has_tool("ld.lld-19") {
            continue;
        }
        let compiler = if flags.iter().any(|flag| flag.contains("lld")) { "clang++-19" } else { "g++" };
        let workshop = Workshop::new();
        let path = workshop.compile(compiler, flags, "shapes.cpp", "out");
        let mut symbols = open(&path, &SymbolOptions::bare());
        let listing = workshop.run(&["objdump", "-d", "--no-show-raw-insn", "out"]);
        let mut compared = 0;
        for line in listing.lines().filter(|line| line.contains("@plt>:")) {
            let (address, name) = line.split_once(" <").unwrap();
            let name = name.trim_end_matches("@plt>:");
            let id = symbols.function_at(u64::from_str_radix(address, 16).unwrap());
            let function = symbols.function(id);
            assert_eq!(function.source, NameSource::Plt, "{flags:?} {line}");
            assert_eq!(function.linkage_name.as_deref(), Some(name), "{flags:?}");
            assert!(function.name.ends_with("@plt"));
            compared += 1;
        }
        assert!(compared >= 5, "{compiler} {flags:?}: {compared} stubs compared");
    }
}

/// The part that throws is at another address and belongs to its function, also if two functions
/// have the same name.
#[test]
fn cold_parts_know_their_whole() {
    let workshop = Workshop::new();
    let source = |name: &str| {
        format!(
            "#include <stdexcept>\n\
             __attribute__((noinline)) static int twin(int x) {{ if (x > 77) throw std::runtime_error(\"x\"); return x + 2; }}\n\
             int {name}(int x) {{ return twin(x) * 3; }}\n"
        )
    };
    std::fs::write(workshop.path("one.cpp"), source("one")).unwrap();
    std::fs::write(workshop.path("two.cpp"), source("two")).unwrap();
    std::fs::write(
        workshop.path("main.cpp"),
        "int one(int); int two(int); int main(int n, char**) { return one(n) + two(n); }",
    )
    .unwrap();
    workshop.run(&["g++", "-O2", "-g", "one.cpp", "two.cpp", "main.cpp", "-o", "out"]);
    let mut symbols = open(&workshop.path("out"), &SymbolOptions::bare());
    let functions = functions(&mut symbols);
    let cold: Vec<_> =
        functions.iter().filter(|f| f.name == "twin(int)" && f.part.as_deref() == Some("cold")).collect();
    assert_eq!(cold.len(), 2);
    let mut wholes = BTreeSet::new();
    for part in cold {
        let whole = symbols.function(part.whole.expect("the same entry in DWARF")).clone();
        assert_eq!((whole.part.as_deref(), &*whole.name), (None, "twin(int)"));
        assert_eq!(whole.file, part.file);
        wholes.insert(whole.start);
    }
    assert_eq!(wholes.len(), 2);
}

/// Of several names for one address: global before weak before local, then the shortest; the
/// resolver of an indirect function, as that is what runs there.
#[test]
fn aliases() {
    let workshop = Workshop::new();
    std::fs::write(
        workshop.path("a.c"),
        "int a_longer_global(void) { return 1; }\n\
         extern int short_weak(void) __attribute__((weak, alias(\"a_longer_global\")));\n\
         extern int a_global(void) __attribute__((alias(\"a_longer_global\")));\n\
         static int loc(void) __attribute__((alias(\"a_longer_global\"), used));\n\
         static int chosen(void) { return 2; }\n\
         static void *resolve(void) { return chosen; }\n\
         int indirect(void) __attribute__((ifunc(\"resolve\")));\n",
    )
    .unwrap();
    workshop.run(&["gcc", "-O1", "-shared", "-fPIC", "a.c", "-o", "a.so"]);
    let functions = functions(&mut open(&workshop.path("a.so"), &SymbolOptions::bare()));
    let names: Vec<&str> = functions.iter().map(|function| &*function.name).collect();
    assert!(names.contains(&"a_global") && names.contains(&"resolve"), "{names:?}");
    for hidden in ["a_longer_global", "short_weak", "loc", "indirect"] {
        assert!(!names.contains(&hidden), "{hidden} in {names:?}");
    }
}
