//! Clones and folded functions of real programs.

use crate::common::Workplace;
use crate::pages::has_the_numbers_of_report;
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

/// The calls of each function as `info` counts them, and as the events add up.
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
            // A thunk that continues in its function is one call with it.
            let led_to = of.iter().filter(|call| call["tail_call_of"] == row["name"]).count();
            assert_eq!(row["calls"], of.len() - led_to, "{command}: {row}");
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
            // The deleting destructor calls the other one: its time isn't counted twice.
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

const THUNKS: &str = r#"
struct A { virtual ~A() {} virtual int f(int x) { return x + 1; } };
struct B { virtual ~B() {} virtual int g(int x) { return x + 2; } virtual B* self() { return this; } };
#define N __attribute__((noinline))
volatile int sink;
struct C : A, B { ~C() override; int g(int x) override; C* self() override; };
C::~C() { sink += 1; }
SIZE int C::g(int x) { sink += x; return x; }
SIZE C* C::self() { sink += 2; return this; }
N void through(B* b) { sink += b->g(1); sink += b->self() == b; delete b; }
N void straight(C* c) { sink += c->g(1); sink += c->self() == c; delete c; }
int main() { for (int i = 0; i < 5; i++) { through(new C); straight(new C); } }
"#;

/// Both kinds of thunks: with a copy of the function's body, and continuing in the function.
#[test]
fn thunks_are_calls_of_the_function_that_they_lead_to() {
    for (command, size) in [
        ("cc --mode xray -- clang++-22 -O2 -g", ""),
        ("cc --mode xray -- clang++-22 -O2 -g", "N"),
        ("cc --mode xray -- clang++-19 -O2", "N"),
        ("cc --mode xray -- clang++-19 -O0 -g", ""),
        ("cc --mode nops -- g++ -O2 -g", "N"),
        ("cc --mode nops -- g++ -O2 -fno-devirtualize-speculatively", ""),
        ("cc --mode fentry -- g++ -O2 -g", "N"),
        ("cc --mode finstrument -- clang++-22 -O2 -g", "N"),
        ("cc --mode after-inlining -- clang++-19 -O2 -g", "N"),
    ] {
        let here = Workplace::new();
        here.write("thunks.cpp", THUNKS);
        here.succeed(&format!("{command} -DSIZE={size} thunks.cpp -o thunks"));
        here.succeed("record -q -o thunks.ect -- ./thunks");
        let info: Value =
            serde_json::from_str(&here.succeed("info --format json thunks.ect").stdout).unwrap();
        let rows = info["most_calls"].as_array().unwrap();
        let rows_of = |name| rows.iter().filter(|row| row["name"] == name).collect::<Vec<_>>();
        for name in ["C::g(int)", "C::self()"] {
            let [row] = rows_of(name)[..] else { panic!("{command} {size}: {name}: {rows:#?}") };
            assert_eq!(row["calls"], 10, "{command} {size}: {row}");
        }
        assert_eq!(rows_of("C::~C()").len(), 1, "{command} {size}: {rows:#?}");

        // Slices have the function's name; those of thunks say so.
        let lines = here.succeed("replay --format json --function ^C:: thunks.ect").stdout;
        let calls: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let calls_of = |name: &str| calls.iter().filter(|call| call["name"] == name).collect::<Vec<_>>();
        for (name, thunk) in [("C::g(int)", "_ZThn8_N1C1gEi"), ("C::self()", "_ZTch")] {
            let row = rows_of(name)[0];
            let is_thunk = |symbol: &Value| symbol.as_str().is_some_and(|symbol| symbol.starts_with(thunk));
            let has_thunk = row["symbols"].as_array().unwrap().iter().any(is_thunk);
            let of_thunk = calls_of(name).iter().filter(|call| is_thunk(&call["symbol"])).count();
            assert_eq!(of_thunk, if has_thunk { 5 } else { 0 }, "{command} {size}: {row}");
            assert!(calls_of(name).iter().all(|call| call["line"] == row["line"]), "{command} {size}");
        }
        assert!(!lines.contains("thunk to"), "{command} {size}");
        has_the_numbers_of_report(&here, "thunks.ect", "");
        if command.contains("xray") {
            assert!(calls_of("C::g(int)").iter().any(|call| call["symbol"] == "_ZThn8_N1C1gEi"), "{command}");
            here.succeed("export -f chrome -o thunks.json thunks.ect");
            let json: Value = serde_json::from_slice(&here.read("thunks.json")).unwrap();
            let slices = json["traceEvents"].as_array().unwrap();
            let of_thunk = |slice: &&Value| slice["args"]["symbol"] == "_ZThn8_N1C1gEi";
            let of_thunk: Vec<_> = slices.iter().filter(of_thunk).collect();
            assert_eq!(of_thunk.len(), 5, "{command}");
            let is_named =
                |slice: &&Value| slice["name"].as_str().is_some_and(|name| name.starts_with("C::g(int)"));
            assert!(of_thunk.iter().all(is_named), "{command}: {of_thunk:?}");
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
