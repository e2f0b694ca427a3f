//! Traces of stripped programs and libraries.

use crate::common::Workplace;
use serde_json::Value;

/// gcc moves handlers, and the way to a cold function, into separate parts, which return by
/// themselves.
const LIBRARY: &str = r#"
#define N __attribute__((noinline))
#define KEEP __asm__ volatile("" ::: "memory")
extern "C" {
N void probe(int x) { __asm__ volatile("" :: "r"(x) : "memory"); }
N void thrower(int n) { probe(n); if (n & 1) throw n; probe(n); KEEP; }
N void catcher(int n) {
  try { thrower(n); } catch (int) { probe(9); KEEP; return; }
  probe(8); KEEP;
}
}
N __attribute__((cold)) static void rare(int n) { probe(n); KEEP; }
N static void hidden_catcher(int n) {
  try { thrower(n); } catch (int) { catcher(n); KEEP; return; }
  probe(7); KEEP;
}
N static void mostly(int n) {
  if (n % 3) { rare(n); KEEP; return; }
  probe(n); KEEP;
}
extern "C" N void outer(int n) {
  for (int i = 0; i < n; i++) { catcher(i); hidden_catcher(i); mostly(i); }
  KEEP;
}
"#;
const MAIN: &str = "extern \"C\" void outer(int); int main() { outer(20); outer(1); }";

/// Depth, name and remarks of each call, in their order.
fn calls(here: &Workplace) -> Vec<(u64, String, String)> {
    here.succeed("record -q -o trace.ect -- ./program");
    let info: Value = serde_json::from_str(&here.succeed("info -f json trace.ect").stdout).unwrap();
    assert_eq!(info["orphan_exits"], 0);
    let lines = here.succeed("replay -f json trace.ect").stdout;
    let call = |line: &str| {
        let call: Value = serde_json::from_str(line).unwrap();
        Some((call["depth"].as_u64()?, call["name"].as_str()?.to_owned(), call["remarks"].to_string()))
    };
    lines.lines().filter_map(call).collect()
}

/// The calls of [`calls`] without names.
fn shapes(calls: &[(u64, String, String)]) -> Vec<(u64, &str)> {
    calls.iter().map(|(depth, _, remarks)| (*depth, &**remarks)).collect()
}

#[test]
fn stripped_programs_nest_as_others_do() {
    for mode in ["nops", "fentry"] {
        let here = Workplace::new();
        here.write("library.cpp", LIBRARY);
        here.write("main.cpp", MAIN);
        let build = |flags: &str| {
            here.succeed(&format!("cc --mode {mode} -- g++ -O2 {flags} main.cpp library.cpp -o program"));
        };
        build("");
        let expected = calls(&here);
        assert!(expected.iter().any(|(depth, ..)| *depth == 4), "{mode}: {expected:?}");
        let parts = here.shell("nm program | grep -c 'catcher.*cold$\\|mostly.*cold$'").stdout;
        assert_eq!(parts.trim(), "3", "{mode}: gcc splits other functions");
        for flags in ["-s", "-Wl,-x", "-Wl,-x -g0", "-s -static", "-s -O3", "-s -fno-pie -no-pie"] {
            build(flags);
            let stripped = calls(&here);
            assert_eq!(shapes(&stripped), shapes(&expected), "{mode} {flags}");
            if flags == "-Wl,-x" {
                let names = |calls: &[(u64, String, String)]| -> Vec<String> {
                    calls.iter().map(|(_, name, _)| name.split('(').next().unwrap().to_owned()).collect()
                };
                assert_eq!(names(&stripped), names(&expected), "{mode} {flags}");
            }
        }
    }
}

#[test]
fn stripped_libraries_nest_as_others_do() {
    for mode in ["nops", "fentry"] {
        let here = Workplace::new();
        here.write("library.cpp", LIBRARY);
        here.write("main.cpp", MAIN);
        here.succeed(&format!("cc --mode {mode} -- g++ -O2 -shared -fPIC library.cpp -o libparts.so"));
        here.succeed(&format!("cc --mode {mode} -- g++ -O2 main.cpp -L. -lparts -Wl,-rpath,. -o program"));
        let expected = calls(&here);
        assert_eq!(here.shell("strip --strip-unneeded libparts.so").code, Some(0));
        let stripped = calls(&here);
        assert_eq!(shapes(&stripped), shapes(&expected), "{mode}");
        let mut unnamed = 0;
        for ((_, name, _), (_, true_name, _)) in stripped.iter().zip(&expected) {
            let is_exported = !true_name.contains('(');
            assert_eq!(is_exported, name == true_name, "{mode}: {name} for {true_name}");
            unnamed += usize::from(name.starts_with("libparts.so+0x"));
        }
        assert!(unnamed > 0, "{mode}: {stripped:?}");
    }
}

/// Functions of a program that was built without the prefix: with its symbols, with those of a
/// debug file only, and with none.
#[test]
fn functions_of_programs_as_they_are_are_counted() {
    let here = Workplace::new();
    here.write("library.cpp", LIBRARY);
    let build = "g++ -O2 -shared -fPIC -fno-inline library.cpp -o full.so && strip -o bare.so full.so";
    assert_eq!(here.shell(build).code, Some(0));
    let counts = |name: &str| -> Value {
        let outcome = here.succeed(&format!("functions --untouched {name} --format json"));
        let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
        let file = value["files"][0].clone();
        assert_eq!(file["path"], name);
        let sum =
            |of: &Value| of.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>();
        assert_eq!(sum(&file["tactics"]), file["hooked"].as_u64().unwrap());
        assert_eq!(
            sum(&file["tactics"]) + sum(&file["left_out"]),
            file["functions"].as_u64().unwrap(),
            "{file}"
        );
        file
    };
    let (full, bare) = (counts("full.so"), counts("bare.so"));
    // Unwind information has all of them.
    assert_eq!(full["functions"], bare["functions"]);
    assert!(full["hooked"].as_u64().unwrap() >= 3, "{full}");
    let text = here.shell("$EVERYCALL functions --untouched full.so nowhere bare.so library.cpp");
    assert_eq!(text.code, Some(1));
    for part in ["full.so: ", "bare.so: ", "all files: ", " could get hooks ("] {
        assert!(text.stdout.contains(part), "{text:?}");
    }
    for part in ["nowhere: No such file", "library.cpp: not an ELF file", "record --untouched"] {
        assert!(text.stderr.contains(part), "{text:?}");
    }
}
