//! Names as `c++filt` reads them, of the C++ libraries that this machine has.
//!
//! A sample of them unless `EVERYCALL_ALL_NAMES` is set. What may differ is listed in
//! docs/reference/symbols.md ("Spelling"); each such difference has its function here.

#![allow(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use everycall_demangle::{demangle, short_name};

/// Folders with libraries.
const FOLDERS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/gcc/x86_64-linux-gnu", "/usr/lib"];
/// Libraries that are always read, by the beginnings of their names.
const ALWAYS: [&str; 4] = ["libstdc++.so", "libc++.so", "libLLVM", "libclang-cpp"];
/// Symbols that are compared of a sample.
const SAMPLE: usize = 30_000;
/// Further libraries of a sample.
const LIBRARIES: usize = 8;

fn libraries() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    let lists = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    folders.extend(
        lists(Path::new("/usr/lib"))
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().contains("/llvm-"))
            .map(|path| path.join("lib")),
    );
    let gcc = lists(Path::new("/usr/lib/gcc/x86_64-linux-gnu")).map(|entry| entry.path());
    folders.extend(gcc.collect::<Vec<_>>());
    let files = folders.iter().flat_map(|folder| lists(folder).map(|entry| entry.path()));
    let files =
        files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")));
    let mut real: Vec<PathBuf> = files.filter_map(|path| path.canonicalize().ok()).collect();
    real.sort();
    real.dedup();
    real
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn symbols(library: &Path, into: &mut BTreeSet<String>) {
    let text = output("nm", &["-D", &library.to_string_lossy()]);
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    // Versions, and suffixes of parts: those are taken off before a name is read.
    let names = names.map(|name| name.split(['@', '.']).next().unwrap_or_default());
    into.extend(names.filter(|name| name.starts_with("_Z")).map(str::to_owned));
}

fn by_cxxfilt(names: &[String]) -> Vec<String> {
    let mut child =
        Command::new("c++filt").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("c++filt runs");
    let mut input = child.stdin.take().unwrap();
    let text = names.join("\n") + "\n";
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// `c++filt` prints a comma for an empty pack, and then omits the space before the next `>`.
fn without_empty_packs(name: &str) -> String {
    let mut name = name.replace(", , ", ", ").replace("(, ", "(").replace("<, ", "<");
    while name.contains(">>") {
        name = name.replace(">>", "> >");
    }
    name
}

/// A name without the parameters of the functions that it is local to.
fn without_outer_parameters(name: &str) -> String {
    let mut out = String::new();
    // Where each bracket that is open began, and whether it is round.
    let mut open: Vec<(usize, char)> = Vec::new();
    for (at, character) in name.char_indices() {
        match character {
            '(' | '<' => open.push((out.len(), character)),
            ')' | '>' => {
                let Some((begin, bracket)) = open.pop() else { continue };
                let rest = &name[at + 1..];
                if bracket == '(' && (rest.starts_with("::") || rest.starts_with(" const::")) {
                    out.truncate(begin);
                    continue;
                }
            }
            _ => {}
        }
        out.push(character);
    }
    out
}

/// Whether two results differ only in the ways listed.
fn is_same(symbol: &str, ours: &str, theirs: &str) -> bool {
    let (ours, theirs) = (without_empty_packs(ours), without_empty_packs(theirs));
    ours == theirs
        // `c++filt` mistakes parameters of the enclosing function for those of another template, or
        // drops the first one.
        || symbol.starts_with("_ZZ") && without_outer_parameters(&ours) == without_outer_parameters(&theirs)
}

#[test]
fn names_are_those_of_cxxfilt() {
    let all = std::env::var_os("EVERYCALL_ALL_NAMES").is_some();
    let libraries = libraries();
    let is_always = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ALWAYS.iter().any(|begin| name.starts_with(begin))
    };
    let (first, others): (Vec<PathBuf>, Vec<PathBuf>) =
        libraries.into_iter().partition(|path| is_always(path));
    let step = if all { 1 } else { others.len().div_ceil(LIBRARIES).max(1) };
    let mut names = BTreeSet::new();
    for library in first.iter().chain(others.iter().step_by(step)) {
        symbols(library, &mut names);
    }
    let step = if all { 1 } else { names.len().div_ceil(SAMPLE).max(1) };
    let names: Vec<String> = names.into_iter().step_by(step).collect();
    assert!(names.len() > 1_000, "libstdc++ alone has more than {} symbols", names.len());
    let theirs = by_cxxfilt(&names);
    assert_eq!(names.len(), theirs.len());
    let mut different = Vec::new();
    for (name, theirs) in names.iter().zip(&theirs).filter(|(name, theirs)| name != theirs) {
        let ours = demangle(name).unwrap_or_else(|| name.clone());
        if !is_same(name, &ours, theirs) {
            different.push(format!("{name}\n  c++filt {theirs}\n  we      {ours}"));
        }
        // Whatever is short has something of the function left.
        assert!(!short_name(&ours).is_empty());
    }
    let count = different.len();
    different.truncate(5);
    assert!(count == 0, "{count} of {} names differ:\n{}", names.len(), different.join("\n"));
}

/// Names that gcc and clang give entities attached to a named module: modules with parts and
/// partitions, classes and templates of theirs, in scopes, as parameters and again as
/// substitutions.
#[test]
fn names_in_modules_are_those_of_cxxfilt() {
    let folder = std::env::temp_dir().join(format!("everycall-module-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let body = "export namespace n { struct S { S(); ~S(); int f(S*) const; template <class T> T g(T*, S&); operator int(); };\n\
                int h(S, S*, int (*)(S)); template <class T> struct V { T t; void put(T const&, V<V<T>>*); }; }\n\
                export int twice(int x) { return 2 * x; }\nexport int both(n::S*, n::V<n::S>*) { return 0; }\n\
                n::S::S() {}\nn::S::~S() {}\nint n::S::f(S*) const { return 0; }\nn::S::operator int() { return 1; }\n\
                int n::h(S, S*, int (*)(S)) { return 0; }\n\
                template <class T> T n::S::g(T*, S&) { return T(); }\ntemplate <class T> void n::V<T>::put(T const&, V<V<T>>*) {}\n\
                template n::V<int> n::S::g(n::V<int>*, S&);\ntemplate struct n::V<n::S>;\nstatic int own(n::S*) { return 3; }\n\
                export int uses() { auto f = [](n::S* s) { return own(s); }; return f(nullptr); }\n";
    let mut names = BTreeSet::new();
    for (module, compiler) in [
        ("m", &["g++", "-fmodules-ts", "-x", "c++"][..]),
        ("m.sub.part", &["g++", "-fmodules-ts", "-x", "c++"]),
        ("m.sub:part", &["g++", "-fmodules-ts", "-x", "c++"]),
        ("m", &["clang++-19", "-x", "c++-module"]),
        ("m.sub:part", &["clang++-19", "-x", "c++-module"]),
    ] {
        let source = folder.join("m.cpp");
        std::fs::write(&source, format!("export module {module};\n{body}")).unwrap();
        let object = folder.join("m.o");
        let output = Command::new(compiler[0])
            .args(["-std=c++20", "-O0", "-c"])
            .args(&compiler[1..])
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{compiler:?} {}", String::from_utf8_lossy(&output.stderr));
        let text = output_of_nm(&object);
        names.extend(text.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let names: Vec<String> = names.into_iter().filter(|name| name.starts_with("_Z")).collect();
    assert!(names.iter().filter(|name| name.contains('W')).count() > 30, "{names:?}");
    for (name, theirs) in names.iter().zip(by_cxxfilt(&names)) {
        let ours = demangle(name).unwrap_or_else(|| name.clone());
        assert!(is_same(name, &ours, &theirs), "{name}\n  c++filt {theirs}\n  we      {ours}");
    }
    for (name, want) in [
        ("_ZGIW1m", "initializer for module m"),
        ("_ZGIW1mW3subWP4part", "initializer for module m.sub:part"),
        ("_ZN3NMSW3FOO3FooC1Ev", "NMS::Foo@FOO::Foo()"),
        ("_ZNW3Foo3BarB3abi3BazEv", "Bar@Foo[abi:abi]::Baz()"),
        ("_ZStW3foo3barv", "std::bar@foo()"),
    ] {
        assert_eq!(demangle(name).as_deref(), Some(want), "{name}");
    }
    assert_eq!(demangle("_ZGI"), None);
}

fn output_of_nm(object: &Path) -> String {
    output("nm", &[&object.to_string_lossy()])
}

/// Names that `c++filt` of binutils 2.40 can't read: constraints, and parameters in the names of
/// templates. The expected texts are those of newer versions.
#[test]
fn newer_names_are_read() {
    for (name, want) in [
        (
            "_ZSt9__fill_a1IhEN9__gnu_cxx11__enable_ifIXsr9__is_byteIT_EE7__valueEvE6__typeEPhS4_RKh",
            "__gnu_cxx::__enable_if<__is_byte<unsigned char>::__value, void>::__type std::__fill_a1<unsigned char>(unsigned char*, __gnu_cxx::__enable_if<__is_byte<unsigned char>::__value, void>::__type, unsigned char const&)",
        ),
        (
            "_ZN4llvm15callDefaultCtorINS_8CFIFixupETnNSt9enable_ifIXtlSt24is_default_constructibleIT_EEEbE4typeELb1EEEPNS_4PassEv",
            "llvm::Pass* llvm::callDefaultCtor<llvm::CFIFixup, true>()",
        ),
        ("_ZN1AcvT_IiEEv", "A::operator int<int>()"),
        ("_ZltI1AEbT_", "bool operator< <A>(A)"),
        ("_Z1fPDoFvvE", "f(void (*)() noexcept)"),
        ("_Z1fRA3_A2_KPi", "f(int* const (&) [3][2])"),
        ("_Z1fILi3ELj4ELb1ELc65ELm5EEvv", "void f<3, 4u, true, (char)65, 5ul>()"),
        ("_Z1fIJicEEDTcl1gspcvT__EEEv", "decltype (g((int)(), (char)())) f<int, char>()"),
        (
            "_ZZ1fIiEvT_ENKUlT_E_clIcEEDaS0_",
            "auto f<int>(int)::{lambda(auto:1)#1}::operator()<char>(char) const",
        ),
    ] {
        assert_eq!(demangle(name).as_deref(), Some(want), "{name}");
    }
}

/// Names from untrusted files: they end soon, in a text of bounded size or none.
#[test]
fn hostile_names_cost_little() {
    let started = std::time::Instant::now();
    let doubling = (0..60).map(|at| format!("S{}_", ["", "0", "1", "2", "3"][at % 5])).collect::<String>();
    let mut names = vec![
        format!("_Z1f{}", "P".repeat(8000)),
        format!("_Z{}", "N".repeat(8000)),
        format!("_Z1f{}i", "P".repeat(8000)),
        format!("_Z1fI{}", "I".repeat(8000)),
        format!("_Z1f{}", "DpT_".repeat(2000)),
        format!("_Z1fIJ{}EEvDpT_", "i".repeat(7000)),
        format!("_Z1fX{}", "cl".repeat(4000)),
        format!("_Z1f1AI{doubling}E"),
        "_ZN1AcvT_IS0_EEv".to_owned(),
        "_ZcvT_IT_Ev".to_owned(),
        "_Z1fIT_EvT_".to_owned(),
        "_Z99999999999999999999f".to_owned(),
        "_Z1fSzz_".to_owned(),
        "_Z1fSZZZZZZZZZZ_".to_owned(),
        "_Z3fö".to_owned(),
        "_Z2fö1ä".to_owned(),
        format!("_Z1f{}", "srN1AE".repeat(1300)),
        format!("_Z1f{}v", "M1AF".repeat(1900)),
    ];
    // Each argument has all before it twice.
    let mut growing = String::from("_Z1fI1A");
    for at in 0..40 {
        let reference = if at == 0 {
            "_".to_owned()
        } else {
            format!("{}_", char::from_digit((at - 1) % 36, 36).unwrap().to_ascii_uppercase())
        };
        growing.push_str(&format!("1BIS{reference}S{reference}E"));
    }
    names.push(growing + "EvT_");
    for name in names {
        for cut in [name.len(), name.len() / 2, name.len() / 3] {
            let Some(name) = name.get(..cut) else { continue };
            if let Some(text) = demangle(name) {
                assert!(!text.is_empty() && text.len() < 2 * everycall_demangle::TEXT_MAX, "{}", text.len());
                assert!(!short_name(&text).is_empty());
            }
        }
    }
    // Against work that doubles with each letter; no measure of speed.
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
}
