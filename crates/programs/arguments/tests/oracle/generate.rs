//! Programs made at random: each call is written down by its caller, before and after.

use std::fmt::Write as _;

/// Functions of one program.
const FUNCTIONS: usize = 24;

/// The name of a traced function within a linker name.
pub fn traced_name(linkage_name: &str) -> Option<String> {
    let rest = &linkage_name[linkage_name.find("traced_f")?..];
    let digits = rest["traced_f".len()..].find(|letter: char| !letter.is_ascii_digit());
    Some(rest[..digits.map_or(rest.len(), |end| end + "traced_f_".len())].to_owned())
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 11) as usize % end
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// An integer of so many bits, often a special one.
    fn integer(&mut self, bits: u32, is_signed: bool) -> i128 {
        let raw = match self.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (bits - 1),
            3 => self.next() % 100,
            _ => self.next(),
        };
        let up = 64 - bits;
        if is_signed { i128::from((raw << up) as i64 >> up) } else { i128::from(raw << up >> up) }
    }

    fn word(&mut self) -> String {
        let length = if self.chance(30) { self.below(4) } else { self.below(60) };
        (0..length).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    /// A number that a float of 32 bits has exactly.
    fn float(&mut self) -> f64 {
        (self.below(20_000) as f64 - 10_000.0) / 8.0
    }
}

const PREAMBLE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#ifndef __cplusplus
#include <stdbool.h>
#endif
volatile long sink;
__attribute__((noinline)) void escape(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
int target(int a) { return a + (int)sink; }
static void p_b(bool v) { printf(v ? "true" : "false"); }
static void p_c(char v) { printf("\"%c\"", v); }
static void p_i(long v) { printf("%ld", v); }
static void p_u(unsigned long v) { printf("%lu", v); }
static void p_f(double v) { printf("%.17g", v); }
static void p_s(const char *v) { if (v) printf("\"%s\"", v); else printf("null"); }
static void p_p(const void *v) { if (v) printf("\"%p\"", v); else printf("null"); }
static void p_w(__int128 v) {
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    char t[48]; int n = 48; t[--n] = 0;
    do { t[--n] = '0' + (char)(u % 10); u /= 10; } while (u);
    if (v < 0) t[--n] = '-';
    printf("%s", t + n);
}
enum Color { RED = 1, GREEN = 2, BLUE = -7 };
static void p_color(enum Color v) { printf(v == RED ? "\"RED\"" : v == GREEN ? "\"GREEN\"" : v == BLUE ? "\"BLUE\"" : "?"); }
enum Flags { FA = 1, FB = 2, FC = 4 };
static void p_flags(int v) {
    printf("\"%s%s%s\"", v & 1 ? "FA" : "", v & 2 ? (v & 1 ? " | FB" : "FB") : "", v & 4 ? (v & 3 ? " | FC" : "FC") : "");
}
struct S1 { int a; char b; };
static void p_s1(struct S1 v) { printf("{\"a\":%d,\"b\":\"%c\"}", v.a, v.b); }
struct S2 { double x; float y; };
static void p_s2(struct S2 v) { printf("{\"x\":%.17g,\"y\":%.17g}", v.x, v.y); }
struct S3 { long a; double b; };
static void p_s3(struct S3 v) { printf("{\"a\":%ld,\"b\":%.17g}", v.a, v.b); }
struct S4 { char c[5]; };
static void p_s4(struct S4 v) { printf("{\"c\":\"%.5s\"}", v.c); }
struct S5 { int v[10]; };
static void p_s5(struct S5 v) { printf("{\"v\":["); for (int i = 0; i < 10; i++) printf(i ? ",%d" : "%d", v.v[i]); printf("]}"); }
struct S6 { unsigned a : 3; int b : 7; unsigned long c : 40; };
static void p_s6(struct S6 v) { printf("{\"a\":%u,\"b\":%d,\"c\":%lu}", v.a, v.b, (unsigned long)v.c); }
struct S7 { float a, b, c; };
static void p_s7(struct S7 v) { printf("{\"a\":%.17g,\"b\":%.17g,\"c\":%.17g}", v.a, v.b, v.c); }
struct S8 { struct S1 s; short t; };
static void p_s8(struct S8 v) { printf("{\"s\":"); p_s1(v.s); printf(",\"t\":%d}", v.t); }
struct S9 { const char *name; int n; };
static void p_s9(struct S9 v) { printf("{\"name\":"); p_s(v.name); printf(",\"n\":%d}", v.n); }
struct SA { long double d; int i; };
static void p_sa(struct SA v) { printf("{\"d\":%.17g,\"i\":%d}", (double)v.d, v.i); }
struct SB { float f; int i; };
static void p_sb(struct SB v) { printf("{\"f\":%.17g,\"i\":%d}", v.f, v.i); }
struct __attribute__((packed)) SC { char c; long l; };
static void p_sc(struct SC v) { printf("{\"c\":\"%c\",\"l\":%ld}", v.c, v.l); }
"#;

const CPP_PREAMBLE: &str = r#"
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
static void p_str(const std::string &v) { p_s(v.c_str()); }
static void p_sv(std::string_view v) { printf("\"%.*s\"", (int)v.size(), v.data()); }
template <class T> static void p_vec(const std::vector<T> &v) { printf("["); const char *c = ""; for (auto i : v) { printf("%s%ld", c, (long)i); c = ","; } printf("]"); }
static void p_vs1(const std::vector<S1> &v) { printf("["); const char *c = ""; for (auto i : v) { printf("%s", c); p_s1(i); c = ","; } printf("]"); }
static void p_opt(const std::optional<int> &v) { if (v) printf("%d", *v); else printf("null"); }
static void p_ostr(const std::optional<std::string> &v) { if (v) p_str(*v); else printf("null"); }
enum class Mode : unsigned char { Read = 1, Write = 200 };
static void p_mode(Mode v) { printf(v == Mode::Read ? "\"Read\"" : "\"Write\""); }
struct Base { int a; };
struct Derived : Base { short b; };
static void p_derived(const Derived &v) { printf("{\"a\":%d,\"b\":%d}", v.a, v.b); }
struct Own { int a; Own(int x) : a(x) {} Own(const Own &o) : a(o.a) { escape(this); } ~Own() { escape(this); } };
static void p_own(const Own &v) { printf("{\"a\":%d}", v.a); }
struct Holds { std::string s; int n; };
static void p_holds(const Holds &v) { printf("{\"s\":"); p_str(v.s); printf(",\"n\":%d}", v.n); }
"#;

/// A type: how a parameter is declared, how a variable, its value, and what writes it.
struct Kind {
    parameter: &'static str,
    variable: &'static str,
    value: fn(&mut Numbers) -> String,
    print: &'static str,
    /// How a function uses a parameter without its address; empty if only by it.
    uses: &'static str,
    /// How it is passed on.
    pass: &'static str,
}

macro_rules! kinds {
    ($($parameter:literal $print:literal $value:expr;)*) => {
        vec![$(Kind { parameter: $parameter, variable: $parameter, value: $value, print: $print, uses: "", pass: "{}" }),*]
    };
}

fn c_kinds() -> Vec<Kind> {
    let mut kinds = kinds![
        "bool" "p_b" |n| n.below(2).to_string();
        "char" "p_c" |n| format!("'{}'", char::from(b'a' + n.below(26) as u8));
        "signed char" "p_i" |n| n.integer(8, true).to_string();
        "unsigned char" "p_u" |n| n.integer(8, false).to_string();
        "short" "p_i" |n| n.integer(16, true).to_string();
        "unsigned short" "p_u" |n| n.integer(16, false).to_string();
        "int" "p_i" |n| format!("(int){}u", n.integer(32, false));
        "unsigned" "p_u" |n| format!("{}u", n.integer(32, false));
        "long" "p_i" |n| format!("(long){}ul", n.integer(64, false));
        "unsigned long" "p_u" |n| format!("{}ul", n.integer(64, false));
        "float" "p_f" |n| format!("{:?}f", n.float());
        "double" "p_f" |n| format!("{:?}", n.float());
        "long double" "p_f" |n| format!("{:?}L", n.float());
        "__int128" "p_w" |n| format!("((__int128){}l * {}l)", n.integer(40, true), n.integer(63, false));
        "enum Color" "p_color" |n| ["RED", "GREEN", "BLUE"][n.below(3)].to_owned();
        "enum Flags" "p_flags" |n| format!("(enum Flags){}", 1 + n.below(7));
        "const char *" "p_s" |n| if n.chance(15) { "NULL".to_owned() } else { format!("\"{}\"", n.word()) };
        "void *" "p_p" |n| format!("(void *){}ul", n.integer(47, false));
    ];
    for kind in &mut kinds {
        kind.uses = "sink += (long){};";
    }
    kinds.extend(kinds![
        "struct S1" "p_s1" |n| format!("{{ (int){}u, 'q' }}", n.integer(32, false));
        "struct S2" "p_s2" |n| format!("{{ {:?}, {:?}f }}", n.float(), n.float());
        "struct S3" "p_s3" |n| format!("{{ {}, {:?} }}", n.integer(40, true), n.float());
        "struct S4" "p_s4" |n| ["{ \"abcd\" }", "{ \"\" }", "{ {'a', 'b', 'c', 'd', 'e'} }"][n.below(3)].to_owned();
        "struct S5" "p_s5" |n| format!("{{ {{1, {}, 3, 4, 5, 6, 7, 8, {}, 10}} }}", n.below(99), n.below(99));
        "struct S6" "p_s6" |n| format!("{{ {}, {}, {}ul }}", n.below(8), n.integer(7, true), n.integer(40, false));
        "struct S7" "p_s7" |n| format!("{{ {:?}f, {:?}f, {:?}f }}", n.float(), n.float(), n.float());
        "struct S8" "p_s8" |n| format!("{{ {{ {}, 'z' }}, {} }}", n.integer(31, true), n.integer(16, true));
        "struct S9" "p_s9" |n| format!("{{ \"{}\", {} }}", n.word(), n.integer(16, true));
        "struct SA" "p_sa" |n| format!("{{ {:?}L, {} }}", n.float(), n.integer(16, true));
        "struct SB" "p_sb" |n| format!("{{ {:?}f, {} }}", n.float(), n.integer(16, true));
        "struct SC" "p_sc" |n| format!("{{ 'p', {} }}", n.integer(40, true));
    ]);
    kinds
}

fn cpp_kinds() -> Vec<Kind> {
    let ints = |n: &mut Numbers| {
        let all: Vec<String> = (0..n.below(9)).map(|_| n.integer(16, true).to_string()).collect();
        format!("{{{}}}", all.join(", "))
    };
    let mut kinds = kinds![
        "std::string" "p_str" |n| format!("\"{}\"", n.word());
        "std::string_view" "p_sv" |n| format!("\"{}\"", n.word());
        "std::vector<int>" "p_vec" ints;
        "std::vector<struct S1>" "p_vs1" |n| format!("{{{{ {}, 'k' }}, {{ 7, 'l' }}}}", n.below(99));
        "std::optional<int>" "p_opt" |n| if n.chance(40) { "{}".to_owned() } else { n.below(1000).to_string() };
        "std::optional<std::string>" "p_ostr" |n| if n.chance(40) { "{}".to_owned() } else { format!("\"{}\"", n.word()) };
        "Mode" "p_mode" |n| ["Mode::Read", "Mode::Write"][n.below(2)].to_owned();
        "Derived" "p_derived" |n| format!("{{{{{}}}, {}}}", n.below(99), n.below(99));
        "Own" "p_own" |n| n.below(1000).to_string();
        "Holds" "p_holds" |n| format!("{{\"{}\", {}}}", n.word(), n.below(99));
    ];
    kinds.push(Kind {
        parameter: "std::unique_ptr<int>",
        variable: "std::unique_ptr<int>",
        value: |n| if n.chance(30) { "nullptr".to_owned() } else { "std::make_unique<int>(5)".to_owned() },
        print: "p_p(&*",
        uses: "",
        pass: "std::move({})",
    });
    kinds.push(Kind {
        parameter: "std::shared_ptr<int>",
        variable: "std::shared_ptr<int>",
        value: |_| "std::make_shared<int>(5)".to_owned(),
        print: "p_p(&*",
        uses: "",
        pass: "{}",
    });
    for (parameter, variable, print) in [
        ("const std::string &", "std::string", "p_str"),
        ("int &", "int", "p_i"),
        ("struct S3 &", "struct S3", "p_s3"),
        ("const std::vector<short> &", "std::vector<short>", "p_vec"),
    ] {
        kinds.push(Kind {
            parameter,
            variable,
            value: match variable {
                "std::string" => |n: &mut Numbers| format!("\"{}\"", n.word()),
                "int" => |n: &mut Numbers| n.integer(31, true).to_string(),
                "struct S3" => |n: &mut Numbers| format!("{{ {}, {:?} }}", n.integer(40, true), n.float()),
                _ => ints,
            },
            print,
            uses: "",
            pass: "{}",
        });
    }
    kinds
}

fn printed(kind: &Kind, expression: &str) -> String {
    if kind.print.contains('(') {
        format!("p_p({expression}.get());")
    } else {
        format!("{}({expression});", kind.print)
    }
}

/// A program in C or C++.
pub fn c(seed: u64, is_cpp: bool) -> String {
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut kinds = c_kinds();
    let mut text = PREAMBLE.to_owned();
    if is_cpp {
        text.push_str(CPP_PREAMBLE);
        kinds.extend(cpp_kinds());
    }
    let mut main = String::from("int main(void) {\n    setvbuf(stdout, NULL, _IOFBF, 1 << 20);\n");
    for index in 0..FUNCTIONS {
        let count = numbers.below(11);
        let parameters: Vec<usize> = (0..count).map(|_| numbers.below(kinds.len())).collect();
        let result = loop {
            let result = numbers.below(kinds.len() + 1);
            if kinds.get(result).is_none_or(|kind| kind.parameter == kind.variable) {
                break kinds.get(result);
            }
        };
        let is_static = numbers.chance(35);
        let result_type = result.map_or("void", |kind| kind.variable);
        let declared: Vec<String> = parameters
            .iter()
            .enumerate()
            .map(|(at, kind)| format!("{} a{at}", kinds[*kind].parameter))
            .collect();
        let declared = if declared.is_empty() { "void".to_owned() } else { declared.join(", ") };
        let linkage = if is_static { "static " } else { "" };
        writeln!(text, "{linkage}__attribute__((noinline)) {result_type} traced_f{index}_({declared}) {{")
            .unwrap();
        writeln!(text, "    sink = {index};").unwrap();
        for (at, kind) in parameters.iter().enumerate() {
            let uses = kinds[*kind].uses;
            // Of an object that is passed by its address, gcc's callers leave out what the function
            // doesn't read.
            let name = kinds[*kind].parameter;
            if is_cpp && uses.is_empty() && (!name.starts_with("struct") || name.ends_with('&')) {
                writeln!(text, "    escape(&a{at});").unwrap();
                continue;
            }
            match numbers.below(10) {
                0..4 => {}
                4..8 if !uses.is_empty() => {
                    writeln!(text, "    {}", uses.replace("{}", &format!("a{at}"))).unwrap()
                }
                4..8 => writeln!(text, "    sink += *(const unsigned char *)&a{at};").unwrap(),
                _ => writeln!(text, "    escape(&a{at});").unwrap(),
            }
        }
        if let Some(result) = result {
            writeln!(text, "    {} r = {};\n    return r;", result.variable, (result.value)(&mut numbers))
                .unwrap();
        }
        text.push_str("}\n");
        for _ in 0..3 {
            let is_laundered = numbers.chance(60);
            main.push_str("    {\n");
            let mut written = String::new();
            for (at, kind) in parameters.iter().enumerate() {
                let kind = &kinds[*kind];
                writeln!(main, "        {} b{at} = {};", kind.variable, (kind.value)(&mut numbers)).unwrap();
                if is_laundered {
                    writeln!(main, "        escape(&b{at});").unwrap();
                }
                let comma = if at > 0 { "," } else { "" };
                let print = printed(kind, &format!("b{at}"));
                writeln!(written, "        printf(\"{comma}\\\"a{at}\\\":\"); {print}").unwrap();
            }
            writeln!(main, "        printf(\"traced_f{index}_ {{\");\n{written}        printf(\"}}\\n\");")
                .unwrap();
            let passed: Vec<String> = parameters
                .iter()
                .enumerate()
                .map(|(at, kind)| kinds[*kind].pass.replace("{}", &format!("b{at}")))
                .collect();
            let call = format!("traced_f{index}_({})", passed.join(", "));
            match result {
                Some(kind) => {
                    let print = printed(kind, "r");
                    writeln!(main, "        {} r = {call};", kind.variable).unwrap();
                    writeln!(main, "        printf(\"-traced_f{index}_ {{\\\"returned\\\":\"); {print} printf(\"}}\\n\");").unwrap();
                }
                None => {
                    writeln!(main, "        {call};\n        printf(\"-traced_f{index}_ {{}}\\n\");").unwrap()
                }
            }
            main.push_str("    }\n");
        }
    }
    main.push_str("    fflush(stdout);\n    return 0;\n}\n");
    text + &main
}

const RUST_PREAMBLE: &str = r#"
#![allow(dead_code, unused, improper_ctypes_definitions)]
use std::hint::black_box;
use std::time::Duration;
use std::rc::Rc;
use std::sync::Arc;
static mut SINK: usize = 0;
trait Json { fn json(&self) -> String; }
macro_rules! plain { ($($t:ty),*) => { $(impl Json for $t { fn json(&self) -> String { self.to_string() } })* } }
plain!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, i128, bool);
impl Json for f32 { fn json(&self) -> String { format!("{self:?}") } }
impl Json for f64 { fn json(&self) -> String { format!("{self:?}") } }
impl Json for char { fn json(&self) -> String { format!("\"{self}\"") } }
impl Json for str { fn json(&self) -> String { format!("\"{self}\"") } }
impl Json for &str { fn json(&self) -> String { format!("\"{self}\"") } }
impl Json for String { fn json(&self) -> String { format!("\"{self}\"") } }
impl<T: Json> Json for [T] { fn json(&self) -> String { let all: Vec<String> = self.iter().map(Json::json).collect(); format!("[{}]", all.join(",")) } }
impl<T: Json> Json for &[T] { fn json(&self) -> String { (**self).json() } }
impl<T: Json, const N: usize> Json for [T; N] { fn json(&self) -> String { self[..].json() } }
impl<T: Json> Json for Vec<T> { fn json(&self) -> String { (**self).json() } }
impl Json for &i32 { fn json(&self) -> String { (**self).json() } }
impl Json for &P { fn json(&self) -> String { (**self).json() } }
impl<T: Json> Json for Option<T> { fn json(&self) -> String { match self { None => "\"None\"".to_owned(), Some(it) => format!("{{\"Some\":{{\"__0\":{}}}}}", it.json()) } } }
impl<T: Json, E: Json> Json for Result<T, E> { fn json(&self) -> String { match self { Err(it) => format!("{{\"Err\":{{\"__0\":{}}}}}", it.json()), Ok(it) => format!("{{\"Ok\":{{\"__0\":{}}}}}", it.json()) } } }
impl Json for Result<(), u16> { fn json(&self) -> String { match self { Ok(()) => "\"Ok\"".to_owned(), Err(it) => format!("{{\"Err\":{{\"__0\":{it}}}}}") } } }
impl Json for Duration { fn json(&self) -> String { format!("\"{self:?}\"") } }
impl Json for (i32, u8) { fn json(&self) -> String { format!("{{\"__0\":{},\"__1\":{}}}", self.0, self.1) } }
impl Json for (u64, f64) { fn json(&self) -> String { format!("{{\"__0\":{},\"__1\":{:?}}}", self.0, self.1) } }
#[derive(Clone, Copy)] struct N(u32);
impl Json for N { fn json(&self) -> String { format!("{{\"__0\":{}}}", self.0) } }
#[derive(Clone, Copy)] struct P { x: i64, y: i64, z: i32 }
impl Json for P { fn json(&self) -> String { format!("{{\"x\":{},\"y\":{},\"z\":{}}}", self.x, self.y, self.z) } }
#[derive(Clone, Copy)] struct Q { a: u16, b: u8, c: u32 }
impl Json for Q { fn json(&self) -> String { format!("{{\"a\":{},\"b\":{},\"c\":{}}}", self.a, self.b, self.c) } }
#[derive(Clone, Copy)] struct R { a: u32, b: u16, c: u32, d: u8 }
impl Json for R { fn json(&self) -> String { format!("{{\"a\":{},\"b\":{},\"c\":{},\"d\":{}}}", self.a, self.b, self.c, self.d) } }
#[derive(Clone, Copy)] struct S { x: i32, y: i32 }
impl Json for S { fn json(&self) -> String { format!("{{\"x\":{},\"y\":{}}}", self.x, self.y) } }
#[derive(Clone, Copy)] enum V { A(u32), B(i32), None }
impl Json for V { fn json(&self) -> String { match self { V::A(i) => format!("{{\"A\":{{\"__0\":{i}}}}}"), V::B(i) => format!("{{\"B\":{{\"__0\":{i}}}}}"), V::None => "\"None\"".to_owned() } } }
#[derive(Clone, Copy)] enum C { Red, Green = 7, Blue }
impl Json for C { fn json(&self) -> String { format!("\"{}\"", match self { C::Red => "Red", C::Green => "Green", C::Blue => "Blue" }) } }
#[derive(Clone)] enum E { A, B(i32), D { x: u8, s: String } }
impl Json for E { fn json(&self) -> String { match self { E::A => "\"A\"".to_owned(), E::B(i) => format!("{{\"B\":{{\"__0\":{i}}}}}"), E::D { x, s } => format!("{{\"D\":{{\"x\":{x},\"s\":{}}}}}", s.json()) } } }
impl Json for Box<i32> { fn json(&self) -> String { format!("\"{:p}\"", &**self) } }
"#;

/// A program in Rust.
pub fn rust(seed: u64) -> String {
    type Value = fn(&mut Numbers) -> String;
    let kinds: Vec<(&str, Value)> = vec![
        ("i8", |n| n.integer(8, true).to_string()),
        ("u8", |n| n.integer(8, false).to_string()),
        ("i16", |n| n.integer(16, true).to_string()),
        ("i32", |n| n.integer(32, true).to_string()),
        ("u32", |n| n.integer(32, false).to_string()),
        ("i64", |n| n.integer(64, true).to_string()),
        ("u64", |n| n.integer(64, false).to_string()),
        ("usize", |n| n.integer(64, false).to_string()),
        ("i128", |n| format!("{}_i128 * {}", n.integer(40, true), n.integer(63, false))),
        ("f32", |n| format!("{:?}", n.float())),
        ("f64", |n| format!("{:?}", n.float())),
        ("bool", |n| n.chance(50).to_string()),
        ("char", |n| format!("'{}'", ['a', 'é', '☃', 'Z'][n.below(4)])),
        ("&str", |n| format!("\"{}\"", n.word())),
        ("String", |n| format!("\"{}\".to_owned()", n.word())),
        ("&[i32]", |n| format!("&[{}, 2, 3][..{}]", n.below(99), n.below(4))),
        ("Vec<u16>", |n| format!("vec![{}; {}]", n.below(999), n.below(12))),
        ("Option<u32>", |n| if n.chance(40) { "None".to_owned() } else { format!("Some({})", n.below(99)) }),
        ("Option<&'static str>", |n| {
            if n.chance(40) { "None".to_owned() } else { format!("Some(\"{}\")", n.word()) }
        }),
        ("Option<String>", |n| {
            if n.chance(40) { "None".to_owned() } else { format!("Some(\"{}\".to_owned())", n.word()) }
        }),
        ("Result<i64, String>", |n| {
            if n.chance(40) {
                format!("Ok({})", n.below(99))
            } else {
                format!("Err(\"{}\".to_owned())", n.word())
            }
        }),
        ("Duration", |n| format!("Duration::new({}, {})", n.below(9), n.below(1_000_000_000))),
        ("(i32, u8)", |n| format!("({}, {})", n.integer(31, true), n.integer(8, false))),
        ("(u64, f64)", |n| format!("({}, {:?})", n.integer(40, false), n.float())),
        ("N", |n| format!("N({})", n.integer(32, false))),
        ("P", |n| {
            format!(
                "P {{ x: {}, y: {}, z: {} }}",
                n.integer(40, true),
                n.integer(40, true),
                n.integer(31, true)
            )
        }),
        ("&P", |n| format!("&P {{ x: {}, y: 2, z: 3 }}", n.integer(40, true))),
        ("&i32", |n| format!("&{}", n.integer(31, true))),
        ("Q", |n| format!("Q {{ a: {}, b: {}, c: {} }}", n.below(65536), n.below(256), n.integer(32, false))),
        ("C", |n| ["C::Red", "C::Green", "C::Blue"][n.below(3)].to_owned()),
        ("E", |n| {
            [
                "E::A".to_owned(),
                format!("E::B({})", n.below(99)),
                format!("E::D {{ x: {}, s: \"{}\".to_owned() }}", n.below(99), n.word()),
            ][n.below(3)]
            .clone()
        }),
        ("R", |n| {
            format!("R {{ a: {}, b: {}, c: 7, d: {} }}", n.integer(32, false), n.below(999), n.below(99))
        }),
        ("S", |n| format!("S {{ x: {}, y: {} }}", n.integer(31, true), n.integer(31, true))),
        ("V", |n| {
            let integer = n.integer(31, true);
            ["V::None".to_owned(), format!("V::A({})", n.below(99)), format!("V::B({integer})")][n.below(3)]
                .clone()
        }),
        ("Option<u64>", |n| {
            if n.chance(40) { "None".to_owned() } else { format!("Some({})", n.integer(64, false)) }
        }),
        ("Option<C>", |n| ["None", "Some(C::Red)", "Some(C::Green)"][n.below(3)].to_owned()),
        ("Result<u8, u8>", |n| format!("{}({})", ["Ok", "Err"][n.below(2)], n.below(256))),
        ("Option<Duration>", |n| {
            if n.chance(40) { "None".to_owned() } else { format!("Some(Duration::new({}, 5))", n.below(99)) }
        }),
        ("Result<(), u16>", |n| {
            if n.chance(50) { "Ok(())".to_owned() } else { format!("Err({})", n.below(65536)) }
        }),
        ("Option<f32>", |n| if n.chance(40) { "None".to_owned() } else { format!("Some({:?})", n.float()) }),
        ("[u16; 3]", |n| format!("[{}, 2, {}]", n.below(65536), n.below(99))),
        ("[u32; 3]", |n| format!("[{}, 2, {}]", n.integer(32, false), n.below(99))),
        ("Box<i32>", |n| format!("Box::new({})", n.below(99))),
    ];
    let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut text = RUST_PREAMBLE.to_owned();
    let mut main =
        String::from("fn main() {\n    use std::io::Write;\n    let mut out = std::io::stdout().lock();\n");
    for index in 0..FUNCTIONS {
        let count = numbers.below(7);
        let parameters: Vec<usize> = (0..count).map(|_| numbers.below(kinds.len())).collect();
        let result_index = Some(numbers.below(kinds.len())).filter(|at| !kinds[*at].0.starts_with('&'));
        let result = result_index.map(|at| &kinds[at]);
        let declared: Vec<String> =
            parameters.iter().enumerate().map(|(at, kind)| format!("a{at}: {}", kinds[*kind].0)).collect();
        // rustc warns of functions with the ABI of C and types that only Rust has.
        let is_of_c = |at: &usize| {
            let name = kinds[*at].0;
            let is_wide = ["&str", "&[i32]"].contains(&name) || name.starts_with('(');
            !is_wide
                && !["Option", "Result", "String", "Vec", "Duration"].iter().any(|own| name.starts_with(own))
        };
        let may_be_of_c = parameters.iter().all(is_of_c) && result_index.is_none_or(|at| is_of_c(&at));
        let kind = match numbers.below(3) {
            0 => "#[unsafe(no_mangle)] #[inline(never)] pub fn",
            1 if may_be_of_c => "#[inline(never)] pub extern \"C\" fn",
            _ => "#[inline(never)] fn",
        };
        let arrow = result.map_or(String::new(), |(name, _)| format!(" -> {name}"));
        writeln!(
            text,
            "{kind} traced_f{index}_({}){arrow} {{\n    unsafe {{ SINK = black_box({index}); }}",
            declared.join(", ")
        )
        .unwrap();
        for at in 0..count {
            if numbers.chance(60) {
                writeln!(text, "    black_box(&a{at});").unwrap();
            }
        }
        if let Some((_, value)) = result {
            writeln!(text, "    black_box({})", value(&mut numbers)).unwrap();
        }
        text.push_str("}\n");
        // The optimiser knows all arguments of a function that is called once.
        let calls = if numbers.chance(20) { 1 } else { 3 };
        for _ in 0..calls {
            let is_laundered = numbers.chance(60);
            main.push_str("    {\n");
            let mut fields = Vec::new();
            for (at, kind) in parameters.iter().enumerate() {
                let (name, value) = &kinds[*kind];
                let value = value(&mut numbers);
                let value = if is_laundered { format!("black_box({value})") } else { value };
                writeln!(main, "        let b{at}: {name} = {value};").unwrap();
                fields.push(format!("format!(\"\\\"a{at}\\\":{{}}\", b{at}.json())"));
            }
            writeln!(main, "        let all: Vec<String> = vec![{}];", fields.join(", ")).unwrap();
            writeln!(
                main,
                "        writeln!(out, \"traced_f{index}_ {{{{{{}}}}}}\", all.join(\",\")).unwrap();"
            )
            .unwrap();
            let passed: Vec<String> = (0..count).map(|at| format!("b{at}")).collect();
            writeln!(main, "        let r = traced_f{index}_({});", passed.join(", ")).unwrap();
            match result {
                Some(_) => writeln!(main, "        writeln!(out, \"-traced_f{index}_ {{{{\\\"returned\\\":{{}}}}}}\", r.json()).unwrap();").unwrap(),
                None => writeln!(main, "        writeln!(out, \"-traced_f{index}_ {{{{}}}}\").unwrap();").unwrap(),
            }
            main.push_str("    }\n");
        }
    }
    main.push_str("}\n");
    text + &main
}
