//! Clones and folded functions of real programs.

mod common;

use common::Workplace;
use serde_json::Value;

const PROGRAM: &str = r#"
struct B { virtual ~B(); int b = 1; };
struct C { virtual ~C(); int c = 2; };
struct D : B, C { D(int); ~D() override; };
#define N __attribute__((noinline))
volatile int sink;
B::~B() { sink++; }
C::~C() { sink++; }
N D::D(int x) { sink += x; }
D::~D() { sink++; }
template <class T> N T twice(T x) { sink++; return x * 2; }
N static int special(int a, int b) { sink += a; sink += b; sink += a; return a * b; }
N static int rare(int x) {
  if (__builtin_expect(x > 100, 0)) { sink += x; sink += special(x, 3); sink -= x; throw x; }
  return x + 1;
}
int main() {
  { D on_stack(3); }
  D* d = new D(5);
  delete d;
  C* c = new D(6);
  delete c;
  sink += twice(1) + twice(1u) + rare(4) + special(1, 7) + special(2, 7);
  try { sink += rare(101); } catch (int) {}
}
"#;

/// The calls of each function, as `info` tells, and as the events add up to.
#[test]
fn statistics_are_those_of_functions_in_the_source() {
    for command in [
        "cc --mode nops -- g++ -O0 -g",
        "cc --mode nops -- g++ -O2",
        "cc --mode fentry -- g++ -O2 -g -fno-inline",
        "cc --mode xray -- clang++-19 -O1 -g",
        "cc --mode xray -- clang++-22 -O2 -g -fno-inline",
        "cc --mode after-inlining -- clang++-19 -O2 -g -flto -fuse-ld=lld-19",
    ] {
        let here = Workplace::new();
        here.write("twins.cpp", PROGRAM);
        here.succeed(&format!("{command} twins.cpp -o twins"));
        here.succeed("record -q -o twins.ect -- ./twins");
        let info: Value = serde_json::from_str(&here.succeed("info --format json twins.ect").stdout).unwrap();
        let rows = info["most_calls"].as_array().unwrap();
        let mut names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"main"), "{command}: {names:?}");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{command}: a function is listed twice");

        let lines = here.succeed("replay --format json twins.ect").stdout;
        let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for row in rows {
            let of: Vec<&Value> = calls.iter().filter(|call| call["name"] == row["name"]).collect();
            assert_eq!(row["calls"], of.len(), "{command}: {row}");
            let symbols = row["symbols"].as_array().unwrap();
            assert!(!symbols.is_empty(), "{command}: {row}");
            // Each call says which clone it was.
            let mut own: Vec<&Value> =
                of.iter().map(|call| &call["symbol"]).filter(|s| !s.is_null()).collect();
            own.sort_by_key(|symbol| symbol.to_string());
            own.dedup();
            assert!(symbols.len() == 1 || own.len() == symbols.len(), "{command}: {row}: {own:?}");
        }
        assert!(
            names.iter().all(|name| !name.contains(".part") && !name.contains(".constprop")),
            "{names:?}"
        );
        if command.contains("-O0") {
            let row = rows.iter().find(|row| row["name"] == "D::~D()").unwrap();
            assert_eq!(row["symbols"], serde_json::json!(["_ZN1DD0Ev", "_ZN1DD1Ev"]), "{row}");
            // The deleting destructor calls the other one: that's no time twice.
            let sum: u64 = calls
                .iter()
                .filter(|call| call["name"] == "D::~D()" && call["symbol"] == "_ZN1DD1Ev")
                .map(|call| call["dur_ns"].as_u64().unwrap())
                .sum();
            let outer: u64 = calls
                .iter()
                .filter(|call| call["name"] == "D::~D()" && call["depth"] == 1)
                .map(|call| call["dur_ns"].as_u64().unwrap())
                .sum();
            assert!(row["total_ns"] == outer && outer >= sum, "{row} {outer} {sum}");
        }
    }
}

#[test]
fn folded_functions_tell_what_else_they_may_be() {
    let here = Workplace::new();
    here.write("twins.cpp", PROGRAM);
    let flags = "-O2 -g -ffunction-sections -fuse-ld=lld-19 -Wl,--icf=all";
    here.succeed(&format!("cc --mode xray -- clang++-19 {flags} twins.cpp -o twins"));
    here.succeed("record -q -o twins.ect -- ./twins");
    let lines = here.succeed("replay --format json twins.ect").stdout;
    let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let twice: Vec<&Value> = calls
        .iter()
        .filter(|call| call["name"].as_str().is_some_and(|name| name.contains("twice<")))
        .collect();
    assert_eq!(twice.len(), 2);
    assert!(twice.iter().all(|call| call["name"] == twice[0]["name"] && call["line"] == 11), "{twice:?}");
    let other = twice[0]["same_code_as"][0].as_str().unwrap();
    assert!(other.contains("twice<") && other != twice[0]["name"], "{twice:?}");
    here.succeed("export -f chrome -o twins.json twins.ect");
    let json: Value = serde_json::from_slice(&here.read("twins.json")).unwrap();
    let slices = json["traceEvents"].as_array().unwrap();
    assert_eq!(slices.iter().filter(|slice| slice["args"]["same_code_as"] == other).count(), 2);
}
