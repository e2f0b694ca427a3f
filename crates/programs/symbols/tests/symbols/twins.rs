//! Several names for one function, and several functions for one name.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Workshop, functions, has_tool, open};
use everycall_symbols::{SymbolOptions, Thunk};

/// Two pairs of functions with the same code, in two files, and one with other code.
const FOLDED: [(&str, &str); 3] = [
    (
        "one.cpp",
        "extern int sink;\n\
         int first(int x) { sink += x; return sink * 3; }\n\
         int zweite(int x) { sink += x; return sink * 3; }\n\
         int alone(int x) { sink -= x; return sink * 5; }\n",
    ),
    (
        "two.cpp",
        "extern int sink;\n\
         \n\
         namespace ns { int third(int x) { sink += x; return sink * 3; } }\n\
         template <class T> T twice(T x) { sink += 7; return x * 2; }\n\
         template int twice<int>(int);\n\
         template unsigned twice<unsigned>(unsigned);\n",
    ),
    (
        "main.cpp",
        "int sink; int first(int); int zweite(int); int alone(int); namespace ns { int third(int); }\n\
         template <class T> T twice(T x);\n\
         int main() { return first(1) + zweite(2) + alone(3) + ns::third(4) + twice(1) + int(twice(1u)); }\n",
    ),
];

fn fold(command: &str) -> (Workshop, std::path::PathBuf) {
    let workshop = Workshop::new();
    for (name, text) in FOLDED {
        std::fs::write(workshop.path(name), text).unwrap();
    }
    let words: Vec<&str> = command.split_whitespace().collect();
    workshop.run(&[&words[..], &["one.cpp", "two.cpp", "main.cpp", "-o", "out"]].concat());
    let path = workshop.path("out");
    (workshop, path)
}

/// Name and line belong together, and the other names are listed.
#[test]
fn folded_functions_have_one_name_and_tell_the_others() {
    for (tool, command) in [
        ("ld.lld-19", "clang++-19 -O2 -g -ffunction-sections -fuse-ld=lld-19 -Wl,--icf=all"),
        ("ld.lld-19", "clang++-19 -O2 -g -flto=thin -ffunction-sections -fuse-ld=lld-19 -Wl,--icf=all"),
        ("ld.gold", "g++ -O2 -g -ffunction-sections -fuse-ld=gold -Wl,--icf=all"),
    ] {
        if !has_tool(tool) {
            continue;
        }
        let lines = BTreeMap::from([
            ("first(int)", 2),
            ("zweite(int)", 3),
            ("ns::third(int)", 3),
            ("int twice<int>(int)", 4),
            ("unsigned int twice<unsigned int>(unsigned int)", 4),
        ]);
        let (_workshop, path) = fold(command);
        let mut symbols = open(&path, &SymbolOptions::bare());
        let all = functions(&mut symbols);
        let find = |name: &str| all.iter().find(|function| function.name == name);
        let folded: Vec<_> = lines.keys().filter_map(|name| find(name)).collect();
        // gold leaves templates alone.
        let rows = if tool == "ld.gold" { 3 } else { 2 };
        assert_eq!(folded.len(), rows, "{command}: {folded:?}");
        for function in &folded {
            assert_eq!(function.line, Some(lines[&*function.name]), "{command}: {function:?}");
            let id = symbols.function_at(function.start);
            let (twins, more) = symbols.twins(id);
            let names: BTreeSet<String> =
                twins.iter().map(|name| everycall_symbols::demangle(name)).collect();
            assert_eq!(more, 0);
            assert!(!names.contains(&function.name), "{names:?}");
            let expected = if function.name.contains("twice") { 3 - rows } else { 2 };
            assert_eq!(twins.len(), expected, "{command}: {twins:?}");
            assert!(names.iter().all(|name| lines.contains_key(&**name)), "{command}: {names:?}");
        }
        let alone = find("alone(int)").unwrap();
        let id = symbols.function_at(alone.start);
        assert_eq!((symbols.twins(id), alone.line), ((Vec::new(), 0), Some(4)));
        // Each time the same.
        let again = functions(&mut open(&path, &SymbolOptions::bare()));
        assert_eq!(all, again);
    }
}

/// nm's names, and the source names.
#[test]
fn clones_are_the_same_function() {
    let workshop = Workshop::new();
    std::fs::write(
        workshop.path("a.cpp"),
        "struct B { virtual ~B(); virtual int f(int); int b; };\n\
         struct C { virtual ~C(); virtual int g(int); int c; };\n\
         struct D : B, C { D(int); ~D() override; int f(int) override; int g(int) override; };\n\
         int sink;\n\
         D::D(int x) { sink += x; }\n\
         D::~D() { sink++; }\n\
         int D::f(int x) { return sink += x; }\n\
         int D::g(int x) { return sink -= x; }\n\
         __attribute__((target_clones(\"avx2\", \"default\"))) int versions(int x) { return sink += x; }\n\
         int user(int x) { D d(x); return versions(x); }\n",
    )
    .unwrap();
    for compiler in ["g++", "clang++-19"] {
        workshop.run(&[compiler, "-O2", "-g", "-shared", "-fPIC", "a.cpp", "-o", "a.so"]);
        let mut symbols = open(&workshop.path("a.so"), &SymbolOptions::bare());
        let all = functions(&mut symbols);
        let of = |name: &str| all.iter().filter(|function| function.name == name).collect::<Vec<_>>();
        for (name, line, count) in [("D::~D()", 6, 2), ("D::D(int)", 5, 1)] {
            let clones = of(name);
            assert!(clones.len() >= count, "{compiler}: {clones:?}");
            assert!(clones.iter().all(|clone| clone.line == Some(line) && clone.may_have_clones()));
        }
        let versions = of("versions(int)");
        let own: Vec<_> = versions.iter().filter(|version| version.own_part().is_none()).collect();
        assert!(own.len() >= 2, "{compiler}: {versions:?}");
        let resolver = versions.iter().find(|version| version.own_part() == Some("resolver"));
        assert!(resolver.is_some(), "{compiler}: {versions:?}");
        // The function and its thunk, which are declared in one place.
        for (name, line, thunks) in [("D::g(int)", 8, 1), ("D::~D()", 6, 2)] {
            let of_it = of(name);
            assert!(of_it.iter().all(|function| function.line == Some(line)), "{compiler}: {of_it:?}");
            let found = of_it.iter().filter(|function| function.thunk() == Some(Thunk::This));
            assert_eq!(
                found.filter(|thunk| thunk.may_have_clones()).count(),
                thunks,
                "{compiler}: {of_it:?}"
            );
        }
        assert!(all.iter().all(|function| !function.name.contains('{')), "{compiler}");
    }
}

/// Functions of two files that the linker calls the same, each with a thunk.
#[test]
fn thunks_are_declared_with_the_function_of_their_file() {
    let workshop = Workshop::new();
    for (name, lines) in [("one", "\n"), ("two", "\n\n\n\n\n\n\n")] {
        let text = format!(
            "{lines}int sink_{name};\n\
             struct A {{ virtual int f(int x) {{ return x; }} }};\n\
             struct B {{ virtual int g(int x) {{ return x; }} virtual B* self() {{ return this; }} }};\n\
             namespace {{ struct C : A, B {{ int g(int x) override; C* self() override; }};\n\
             int C::g(int x) {{ return sink_{name} += x; }}\n\
             C* C::self() {{ sink_{name}++; return this; }} }}\n\
             B* {name}() {{ return new C; }}\n"
        );
        std::fs::write(workshop.path(&format!("{name}.cpp")), text).unwrap();
    }
    for compiler in ["g++", "clang++-19"] {
        workshop.run(&[compiler, "-O2", "-g", "-shared", "-fPIC", "one.cpp", "two.cpp", "-o", "a.so"]);
        let mut symbols = open(&workshop.path("a.so"), &SymbolOptions::bare());
        let all = functions(&mut symbols);
        let name = "(anonymous namespace)::C::";
        for (function, line, kind) in [("g(int)", 5, Thunk::This), ("self()", 6, Thunk::Result)] {
            for (file, first) in [("one.cpp", 1), ("two.cpp", 7)] {
                let of_it = |entry: &&everycall_symbols::Function| {
                    entry.name == format!("{name}{function}")
                        && entry.file.as_ref().is_some_and(|path| path.ends_with(file))
                };
                let of_it: Vec<_> = all.iter().filter(of_it).collect();
                assert!(of_it.iter().all(|entry| entry.line == Some(first + line)), "{compiler}: {of_it:#?}");
                let thunks = of_it.iter().filter(|entry| entry.thunk() == Some(kind)).count();
                assert_eq!((of_it.len(), thunks), (2, 1), "{compiler}: {of_it:#?}");
            }
        }
    }
}

/// The function that makes a coroutine and the one that runs it have one name each for every
/// compiler, optimised or not.
#[test]
fn parts_of_coroutines_are_distinguished() {
    let workshop = Workshop::new();
    std::fs::write(
        workshop.path("a.cpp"),
        "#include <coroutine>\n\
         struct G { struct promise_type {\n\
         G get_return_object() { return {}; }\n\
         std::suspend_always initial_suspend() noexcept { return {}; }\n\
         std::suspend_always final_suspend() noexcept { return {}; }\n\
         void return_void() {} void unhandled_exception() {} }; };\n\
         int sink;\n\
         namespace ns { template <class T> G gen(T x) { sink += x; co_await std::suspend_always(); sink -= x; } }\n\
         template G ns::gen<int>(int);\n\
         __attribute__((noinline)) static G local(long x) { sink += x; co_return; }\n\
         void user() { local(1); auto lambda = [](int x) -> G { sink += x; co_return; }; lambda(2); }\n",
    )
    .unwrap();
    for compiler in ["g++", "clang++-19", "clang++-22"].into_iter().filter(|name| has_tool(name)) {
        for level in ["-O0", "-O1"] {
            let flags = ["-std=c++20", "-fcoroutines", level, "-g", "-shared", "-fPIC"];
            let flags = if compiler == "g++" { &flags[..] } else { &[&flags[..1], &flags[2..]].concat() };
            workshop.run(&[&[compiler], flags, &["a.cpp", "-o", "a.so"]].concat());
            let mut symbols = open(&workshop.path("a.so"), &SymbolOptions::bare());
            let all = functions(&mut symbols);
            for want in ["G ns::gen<int>(int)", "local(long)"] {
                let parts: BTreeSet<String> = all
                    .iter()
                    .filter(|function| function.name == want)
                    .map(everycall_symbols::Function::shown_name)
                    .collect();
                for part in ["", " [resume]", " [destroy]"] {
                    assert!(parts.contains(&format!("{want}{part}")), "{compiler} {level}: {parts:?}");
                }
                let known = ["", " [resume]", " [destroy]", " [cleanup]", " [await_suspend]"];
                let known: BTreeSet<String> = known.iter().map(|part| format!("{want}{part}")).collect();
                assert!(parts.is_subset(&known), "{compiler} {level}: {parts:?}");
            }
            let of_lambda = |function: &everycall_symbols::Function| {
                function.name.contains("operator()(int) const") && function.own_part() == Some("resume")
            };
            assert!(all.iter().any(of_lambda), "{compiler} {level}");
        }
    }
}
