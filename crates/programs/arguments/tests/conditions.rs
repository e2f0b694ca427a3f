//! Random conditions on arguments by number, against a model of the test's own.

use std::collections::HashMap;

use everycall_arguments::syntax::Request;
use everycall_arguments::{CaptureOptions, FunctionPlace, Moment, compile};
use everycall_capture::{Machine, Outcome, Program};
use everycall_format::capture::OUTPUT_MAX;
use everycall_values::layout::Layout;
use everycall_values::{decode, text};

const PLACE: FunctionPlace<'_> =
    FunctionPlace { address: 0, first_site: 0, linkage_name: "f", is_local: None };
const TEXT_AT: u64 = 0x5000;

/// Registers by their numbers, and a text.
struct Fake {
    registers: HashMap<u32, u64>,
    text: Vec<u8>,
}

impl Machine for Fake {
    fn register(&self, number: u32) -> Option<u64> {
        self.registers.get(&number).copied()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let Some(start) = address.checked_sub(TEXT_AT) else { return 0 };
        let rest = self.text.get(start as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    }
}

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 7) % end
    }

    fn special(&mut self) -> u64 {
        [0, 1, 2, 3, 4096, u64::MAX, i64::MIN as u64, i64::MAX as u64, u64::from(u32::MAX), 5]
            [self.below(10) as usize]
    }
}

/// The values of one call.
struct Call {
    a: i32,
    b: u64,
    c: i64,
    x: f64,
    y: f32,
    s: &'static str,
}

/// An integer of the model, and whether it is a 64-bit one without a sign.
#[derive(Clone, Copy)]
struct Integer(i128, bool);

/// An integer expression and its value; `None` if it has none.
fn integer(numbers: &mut Numbers, call: &Call, depth: u32) -> (String, Option<Integer>) {
    match numbers.below(if depth == 0 { 4 } else { 7 }) {
        0 => ("arg1:i32".to_owned(), Some(Integer(i128::from(call.a), false))),
        1 => ("arg2:u64".to_owned(), Some(Integer(i128::from(call.b), true))),
        2 => ("arg3:i64".to_owned(), Some(Integer(i128::from(call.c), false))),
        3 => {
            let value = numbers.below(9) as i128 - 3;
            (value.to_string(), Some(Integer(value, false)))
        }
        _ => {
            let (left, a) = integer(numbers, call, depth - 1);
            let (right, b) = integer(numbers, call, depth - 1);
            let operator = ["+", "-", "*", "/", "%", "&", "|"][numbers.below(7) as usize];
            let value = match (a, b) {
                (Some(a), Some(b)) => calculated(operator, a, b),
                _ => None,
            };
            (format!("({left} {operator} {right})"), value)
        }
    }
}

fn calculated(operator: &str, Integer(a, wide): Integer, Integer(b, also): Integer) -> Option<Integer> {
    // Both as they are in 64 bits.
    let wide = wide || also;
    let of = |value: i128| if wide { i128::from(value as u64) } else { i128::from(value as i64) };
    let (a, b) = (of(a), of(b));
    let result = match operator {
        "+" => a + b,
        "-" => a - b,
        "*" => a.wrapping_mul(b),
        "&" => a & b,
        "|" => a | b,
        _ if b == 0 || (a == i128::from(i64::MIN) && b == -1) => return None,
        "/" => a / b,
        _ => a % b,
    };
    Some(Integer(of(result), wide))
}

/// A condition and whether it is true; `None` if it can't be evaluated.
fn condition(numbers: &mut Numbers, call: &Call, depth: u32) -> (String, Option<bool>) {
    if depth > 0 && numbers.below(2) == 0 {
        let (left, a) = condition(numbers, call, depth - 1);
        let (right, b) = condition(numbers, call, depth - 1);
        return match numbers.below(3) {
            // The second one is evaluated only if it matters.
            0 => (format!("({left} and {right})"), a.and_then(|a| if a { b } else { Some(false) })),
            1 => (format!("({left} or {right})"), a.and_then(|a| if a { Some(true) } else { b })),
            _ => (format!("not ({left})"), a.map(|a| !a)),
        };
    }
    let compared = |operator: &str, order: Option<std::cmp::Ordering>| match operator {
        "==" => order == Some(std::cmp::Ordering::Equal),
        "!=" => order != Some(std::cmp::Ordering::Equal),
        "<" => order.is_some_and(std::cmp::Ordering::is_lt),
        "<=" => order.is_some_and(std::cmp::Ordering::is_le),
        ">" => order.is_some_and(std::cmp::Ordering::is_gt),
        _ => order.is_some_and(std::cmp::Ordering::is_ge),
    };
    let operator = ["==", "!=", "<", "<=", ">", ">="][numbers.below(6) as usize];
    match numbers.below(6) {
        0 => {
            let bound = numbers.below(9) as f64 / 4.0 - 1.0;
            (format!("fparg1:f64 {operator} {bound:?}"), Some(compared(operator, call.x.partial_cmp(&bound))))
        }
        1 => {
            let text = format!("fparg2:f32 {operator} fparg1:f64");
            (text, Some(compared(operator, f64::from(call.y).partial_cmp(&call.x))))
        }
        2 => {
            let word = ["", "GET", "POST", "GET /index", "/", "index"][numbers.below(6) as usize];
            match numbers.below(4) {
                0 => (format!("arg4:str == \"{word}\""), Some(call.s == word)),
                1 => (format!("arg4:str != \"{word}\""), Some(call.s != word)),
                2 => (format!("arg4:str contains \"{word}\""), Some(call.s.contains(word))),
                _ => (format!("arg4:str starts with \"{word}\""), Some(call.s.starts_with(word))),
            }
        }
        3 => ("arg5:ptr == null".to_owned(), Some(true)),
        4 => ("arg5:str == \"x\"".to_owned(), None),
        _ => {
            let (left, a) = integer(numbers, call, 2);
            let (right, b) = integer(numbers, call, 1);
            let value = a.zip(b).map(|(a, b)| compared(operator, Some(a.0.cmp(&b.0))));
            (format!("{left} {operator} {right}"), value)
        }
    }
}

#[test]
fn conditions_keep_the_calls_that_a_model_keeps() {
    let count = if std::env::var_os("EVERYCALL_FULL").is_some() { 100_000 } else { 3_000 };
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    let (mut kept, mut large) = (0, 0);
    for _ in 0..count {
        let call = Call {
            a: numbers.special() as i32,
            b: numbers.special(),
            c: numbers.special() as i64,
            x: [0.0, -0.0, 0.25, -1.0, 1e300, f64::NAN, f64::INFINITY][numbers.below(7) as usize],
            y: [0.0, 0.25, -1.0, 1e-45, f32::NAN][numbers.below(5) as usize],
            s: ["", "GET", "GET /index", "POST /"][numbers.below(4) as usize],
        };
        let (written, expected) = condition(&mut numbers, &call, 2);
        let all = format!("f() if {written}");
        let request = Request::parse(&all).unwrap_or_else(|error| panic!("{error}"));
        let options = CaptureOptions::default();
        let compiled = match compile(&request, &all, Moment::Entry, None, PLACE, &options) {
            Ok(compiled) => compiled,
            // It says so, and that is rare.
            Err(error) if error.message == "the condition is too large" => {
                large += 1;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let mut text = call.s.as_bytes().to_vec();
        text.push(0);
        let registers = [
            // Upper halves of smaller arguments hold anything.
            (5, u64::from(call.a as u32) | 0xdead_0000_0000),
            (4, call.b),
            (1, call.c as u64),
            (2, TEXT_AT),
            (8, 0),
            (17, call.x.to_bits()),
            (18, u64::from(call.y.to_bits()) | 0xbeef_0000_0000),
        ];
        let machine = Fake { registers: registers.into_iter().collect(), text };
        let program = Program::check(&compiled.program).unwrap();
        let is_kept = program.run(&machine, &mut [0; OUTPUT_MAX]) != Outcome::Rejected;
        assert_eq!(is_kept, expected.unwrap_or(false), "{written}");
        kept += usize::from(is_kept);
    }
    assert!(kept > count / 5 && kept < count * 4 / 5 && large < count / 20, "{kept} {large} of {count}");
}

#[test]
fn arguments_by_number_need_no_debugging_information() {
    let all = "f(arg1:int, arg2:str, fparg1:f64, arg3:hex, arg1:int * 2) if arg1:int < 0";
    let request = Request::parse(all).unwrap();
    let options = CaptureOptions::default();
    let compiled = compile(&request, all, Moment::Entry, None, PLACE, &options).unwrap();
    let registers = [(5, -3_i32 as u32 as u64), (4, TEXT_AT), (1, 0xabc), (17, 1.5_f64.to_bits())];
    let machine = Fake { registers: registers.into_iter().collect(), text: b"hello\0".to_vec() };
    let program = Program::check(&compiled.program).unwrap();
    let mut output = [0; OUTPUT_MAX];
    let Outcome::Captured(length) = program.run(&machine, &mut output) else { panic!("it is kept") };
    assert_eq!(
        text::arguments(&decode(&Layout::of_bytes(&compiled.layout).unwrap(), &output[..length])),
        "arg1=-3, arg2=\"hello\", fparg1=1.5, arg3=0x0000000000000abc, arg1:int * 2=-6"
    );
    // A capture that was cut or damaged says so from there on.
    for end in 0..length {
        let values = decode(&Layout::of_bytes(&compiled.layout).unwrap(), &output[..end]);
        assert_eq!(values.len(), 5);
        assert!(text::arguments(&values).ends_with("<damaged>"), "{end}");
    }
}

/// At the fourth argument: a pointer to a text, a number, the text's length; then the text.
#[test]
fn memory_behind_pointers_needs_no_debugging_information() {
    let words = [TEXT_AT + 32, 7 << 32 | 5, 3, TEXT_AT];
    let mut text: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    text.extend(b"hello\0");
    let machine = Fake { registers: [(2, TEXT_AT), (8, 0), (9, 4)].into_iter().collect(), text };
    let run = |all: &str| {
        let request = Request::parse(all).unwrap();
        let options = CaptureOptions::default();
        let compiled = compile(&request, all, Moment::Entry, None, PLACE, &options).unwrap();
        let program = Program::check(&compiled.program).unwrap();
        let mut output = [0; OUTPUT_MAX];
        let Outcome::Captured(length) = program.run(&machine, &mut output) else { return None };
        Some(text::arguments(&decode(&Layout::of_bytes(&compiled.layout).unwrap(), &output[..length])))
    };
    for (written, shown) in [
        ("*(arg4:ptr + 8):int", "*(arg4:ptr + 8)=5"),
        ("n = *(arg4:ptr + 12):u32", "n=7"),
        ("*(arg4:ptr):str", "*(arg4:ptr)=\"hello\""),
        ("key = arg4:ptr[3][0]:str", "key=\"hello\""),
        ("arg4:ptr[0]:str[arg4:ptr[2]:u64]", "arg4:ptr[0]=\"hel\""),
        ("arg4:str[arg6:u64 - 4]", "arg4=\"\""),
        ("a = arg5:ptr[1]:str, b = arg6:int", "a=<unreadable>, b=4"),
        ("token = arg4:ptr[0]:str, x = password:str", "token=<hidden>, x=<hidden>"),
    ] {
        assert_eq!(run(&format!("f({written})")).as_deref(), Some(shown));
    }
    for (condition, is_kept) in [
        ("*(arg4:ptr + 8):int == 5 and arg4:ptr[0]:str starts with \"he\"", true),
        ("arg4:ptr[2]:u64 > 3", false),
        ("arg5:ptr[2]:u64 <= 3", false),
        ("arg4:ptr[arg6:u64 / 2]:u64 == 3", true),
    ] {
        assert_eq!(run(&format!("f() if {condition}")).is_some(), is_kept, "{condition}");
    }
}

#[test]
fn errors_say_what_to_write() {
    let said = |all: &str| {
        let request = Request::parse(all).unwrap();
        let options = CaptureOptions::default();
        compile(&request, all, Moment::Entry, None, PLACE, &options).unwrap_err().to_string()
    };
    for (all, part) in [
        ("f(path)", "write the argument's number and type"),
        ("f", "compile with -g"),
        ("f(arg1:f64)", "write fparg1:f64"),
        ("f(fparg1:int)", "write arg1:int"),
        ("f(arg1:string)", "types: i8 to i64"),
        ("f(returned)", "has returned nothing yet"),
        ("f() if fparg1:f64 + 1 > 2", "not calculated with"),
        ("f() if fparg1:f64 > arg1:int", "compare each with a number"),
        ("f() if arg1:int == \"a\"", "isn't a text"),
        ("f(*arg1:int)", "isn't a pointer"),
        ("f(arg1:int[2])", "as in arg1:ptr[2]"),
        ("f(1:str)", "values in memory and registers"),
        ("f(arg1:str[fparg1:f64])", "a length is an integer"),
        ("f() if fparg1:f64", "as in x > 0.5"),
    ] {
        assert!(said(all).contains(part), "{all}: {}", said(all));
    }
}
