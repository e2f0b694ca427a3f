//! Arguments and results that are recorded, against what the program writes down itself.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Output;

use everycall_arguments::syntax::Request;
use everycall_arguments::{CaptureOptions, FunctionPlace, Moment, compile};
use everycall_format::Wire;
use everycall_format::arena::counter;
use everycall_format::capture_set::{
    CaptureEntry, CaptureFunction, CaptureModule, CaptureSet, CaptureSetHeader, MAGIC, VERSION,
};
use everycall_format::event::{Word, kind, values};
use everycall_reader::{Source, ThreadKey, TraceFile};
use everycall_symbols::{ModuleDwarf, ModuleIdentity, SymbolOptions};
use everycall_tests::{Mode, Place, everycall, number_asked, successful};
use everycall_values::{decode, layout::Layout, text};
use object::{Object, ObjectSymbol};

/// The function and the moment of a capture, and its layout.
pub(crate) struct Captured {
    function: String,
    moment: Moment,
    layout: Layout,
}

/// Captures, by id.
pub(crate) type Captures = HashMap<u32, Captured>;

/// The capture set of all parameters and results of these functions, written without our writer.
pub(crate) fn set_of(program: &Path, requests: &[&str], first_site: u64) -> (Vec<u8>, Captures) {
    let data = std::fs::read(program).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let build_id = file.build_id().unwrap().unwrap().to_vec();
    let identity = ModuleIdentity::new(program, &build_id);
    let mut dwarf = ModuleDwarf::open(&identity, &SymbolOptions::bare()).unwrap();
    let (mut functions, mut entries, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let mut captures = Captures::new();
    for text in requests {
        let mut request = Request::parse(text).unwrap();
        let name = request.function.clone();
        let named = |symbol: &object::Symbol<'_, '_>| symbol.name() == Ok(&name);
        let symbol = file.symbols().find(named).unwrap_or_else(|| panic!("{text}"));
        let place = FunctionPlace {
            first_site,
            address: symbol.address(),
            linkage_name: &name,
            is_local: Some(false),
        };
        let mut number_of = |moment| {
            if moment == Moment::Exit && request.condition.is_some() {
                request.condition = None;
            }
            let id = captures.len() as u32 + 7;
            let options = CaptureOptions::default();
            let mut made = compile(&request, text, moment, Some(&mut dwarf), place, &options).unwrap();
            // Behind the magic number.
            made.program[4..8].copy_from_slice(&id.to_le_bytes());
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let program_offset = bytes.len() as u32;
            bytes.extend(&made.program);
            let layout_offset = bytes.len() as u32;
            bytes.extend(format!("layout {id}").repeat(300).as_bytes());
            entries.push(CaptureEntry {
                id,
                program_offset,
                program_length: made.program.len() as u32,
                layout_offset,
                layout_length: bytes.len() as u32 - layout_offset,
                ..CaptureEntry::default()
            });
            captures.insert(
                id,
                Captured {
                    function: request.function.clone(),
                    moment,
                    layout: Layout::of_bytes(&made.layout).unwrap(),
                },
            );
            entries.len() as u32
        };
        let (entry, exit) = (number_of(Moment::Entry), number_of(Moment::Exit));
        let (start, end) = (symbol.address(), symbol.address() + symbol.size());
        functions.push(CaptureFunction { start, end, entry, exit, reserved: 0 });
    }
    functions.sort_by_key(|function| function.start);
    let mut module = CaptureModule {
        build_id_length: build_id.len() as u32,
        functions: functions.len() as u32,
        ..CaptureModule::default()
    };
    module.build_id[..build_id.len()].copy_from_slice(&build_id);
    let mut payload = module.to_bytes().to_vec();
    payload.extend(functions.iter().flat_map(Wire::to_bytes));
    payload.extend(entries.iter().flat_map(Wire::to_bytes));
    payload.extend(&bytes);
    let mut header = CaptureSetHeader {
        magic: MAGIC,
        version: VERSION,
        header_size: CaptureSetHeader::SIZE as u32,
        file_length: (CaptureSetHeader::SIZE + payload.len()) as u64,
        modules: 1,
        functions: functions.len() as u32,
        captures: entries.len() as u32,
        bytes: bytes.len() as u32,
        payload_checksum: crc32fast::hash(&payload),
        ..CaptureSetHeader::default()
    };
    header.header_checksum = crc32fast::hash(&header.to_bytes()[..CaptureSetHeader::SIZE - 4]);
    let set = [header.to_bytes().to_vec(), payload].concat();
    assert!(CaptureSet::parse(&set, crc32fast::hash).is_ok());
    (set, captures)
}

/// A run with a capture set.
struct Run {
    output: Output,
    file: PathBuf,
}

impl Run {
    fn of(place: &Place, program: &Path, set: &[u8], options: &[&str], arguments: &[&str]) -> Run {
        let (path, file) = (place.file("set"), place.file("trace.ect"));
        std::fs::write(&path, set).unwrap();
        let _ = std::fs::remove_file(&file);
        let mut command = place.command(everycall());
        command.env("EVERYCALL_ARGS", path).args(["record", "--ring-size", "64M"]).args(options);
        let output = command.arg("-o").arg(&file).arg("--").arg(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Run { output, file }
    }

    /// The lines that the program wrote.
    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.output.stdout).lines().map(str::to_owned).collect()
    }

    /// Process by process, what was recorded, in the same form and in the order of the events; and
    /// the counters.
    fn recorded(&self, captures: &Captures) -> Vec<(Vec<String>, Vec<u64>)> {
        let bytes = std::fs::read(&self.file).unwrap();
        let file = TraceFile::open(&bytes[..]).unwrap();
        let facts = file.recording().snapshots.iter();
        let mut all: Vec<_> = facts.map(|facts| (Vec::new(), facts.counters.to_vec())).collect();
        each_segment(&file, |process, words| all[process].0.extend(lines_of(words, captures)));
        all
    }
}

/// Takes the words of each segment, with the number of its process.
fn each_segment(file: &TraceFile<'_>, mut take: impl FnMut(usize, &[u64])) {
    for (snapshot, facts) in file.recording().snapshots.iter().enumerate() {
        for thread in 0..facts.threads.len() {
            let mut cursor = file.segments(ThreadKey { snapshot, thread });
            let mut words = Vec::new();
            while let Some(segment) = cursor.next_segment(&mut words) {
                segment.unwrap();
                take(snapshot, &words);
            }
        }
    }
}

/// The values in a segment. Each has to lie directly before the word of its event.
fn lines_of(words: &[u64], captures: &Captures) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let Word::Record { ticks_low, kind: kind::VALUES, count, detail } = Word::decode(*word) else {
            continue;
        };
        let payload = |index: usize| match Word::decode(words[at + 1 + index]) {
            Word::Payload { payload, kind: kind::VALUES, index: number } => {
                assert_eq!(usize::from(number), index + 1);
                payload
            }
            other => panic!("{other:?} in values"),
        };
        let length = payload(1) as usize;
        assert_eq!(usize::from(count), 2 + length.div_ceil(4));
        let mut bytes: Vec<u8> =
            (2..usize::from(count)).flat_map(|index| payload(index).to_le_bytes()).collect();
        bytes.truncate(length);
        let captured = &captures[&payload(0)];
        let values = decode(&captured.layout, &bytes);
        match (captured.moment, detail, Word::decode(words[at + 1 + usize::from(count)])) {
            (Moment::Entry, values::ARGUMENTS, Word::Entry { ticks_low: ticks, .. }) => {
                assert_eq!(ticks, ticks_low);
                lines.push(format!("{} {}", captured.function, text::arguments(&values)));
            }
            (Moment::Exit, values::RESULT, Word::Exit { ticks_low: ticks, .. }) => {
                assert_eq!(ticks, ticks_low);
                lines.push(format!("-{} {}", captured.function, text::text(&values[0].1)));
            }
            other => panic!("{other:?} behind values of {}", captured.function),
        }
    }
    lines
}

/// Bytes of the site with which functions begin in mode `xray`.
const XRAY_SLED: u64 = 11;
const FUNCTIONS: [&str; 8] = ["two", "text", "floats", "many", "make", "wide", "handler_of", "tail"];

fn built(place: &Place, mode: Mode) -> PathBuf {
    place.build(mode, &["-O2", "-g", "values.c"], &mode.label())
}

/// Without those of functions that the program doesn't write down.
fn of_journal(lines: &[String]) -> Vec<&str> {
    let is_other = |line: &&str| {
        ["handler_of ", "-handler_of ", "-tail ", "handled "].iter().any(|start| line.starts_with(start))
    };
    lines.iter().map(String::as_str).filter(|line| !is_other(line)).collect()
}

/// The values of calls of `handler_of` and their results.
fn handled(lines: &[String]) -> Vec<(i64, i64)> {
    let number = |line: &str, start: &str| {
        let rest = line.strip_prefix(start)?;
        rest.split(',').next()?.parse::<i64>().ok()
    };
    let mut pairs = Vec::new();
    let mut open = Vec::new();
    for line in lines {
        if let Some(n) = number(line, "handler_of n=") {
            open.push(n);
        } else if let Some(result) = number(line, "-handler_of ") {
            pairs.push((open.pop().unwrap_or(-1), result));
        }
    }
    pairs
}

#[test]
fn values_are_those_that_the_program_writes_down() {
    let place = Place::new("values");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let program = built(&place, mode);
        let (set, captures) = set_of(&program, &FUNCTIONS, if mode.name == "xray" { XRAY_SLED } else { 0 });
        for (options, arguments) in [
            (&[][..], &["3"][..]),
            (&["--clock", "bounded"], &["3", "f"]),
            (&["--stream", "--stall"], &["300"]),
            // A timer interrupts whatever the program does.
            (&[], &["2000", "s"]),
        ] {
            let label = format!("{} {options:?} {arguments:?}", mode.label());
            let run = Run::of(&place, &program, &set, options, arguments);
            let lines = run.lines();
            let recorded = run.recorded(&captures);
            let has_child = arguments.get(1) == Some(&"f");
            assert_eq!(recorded.len(), 1 + usize::from(has_child), "{label}");
            let found: Vec<String> = recorded.iter().flat_map(|(lines, _)| lines.clone()).collect();
            let (expected, found_here) = (of_journal(&lines), of_journal(&found));
            let differs = expected.iter().zip(&found_here).position(|(a, b)| a != b);
            if let Some(at) = differs {
                panic!(
                    "{label}: the program wrote {:?}, and {:?} was recorded",
                    expected[at], found_here[at]
                );
            }
            assert_eq!(expected.len(), found_here.len(), "{label}");
            for (n, result) in handled(&found) {
                assert_eq!(result, n * 2, "{label}");
            }
            for (_, counters) in &recorded {
                let of = |number: usize| counters.get(number).copied().unwrap_or(0);
                assert_eq!(of(counter::CAPTURES_REFUSED), 0, "{label}");
                assert_eq!(of(counter::VALUES_LOST), 0, "{label}");
            }
        }
    }
}

/// Conditions on the arguments of `many` and `text`, made at random, with what they are for a line
/// of the journal. They share no code with ours: numbers are those of C, of 64 bits.
mod conditions {
    use std::collections::HashMap;

    pub(super) struct Random(pub(super) u64);

    impl Random {
        fn next(&mut self, below: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) % below
        }
    }

    /// The values of a line.
    pub(super) struct Values(HashMap<String, String>);

    impl Values {
        pub(super) fn of(line: &str) -> Values {
            let (_, values) = line.split_once(' ').unwrap();
            let pairs = values.split(", ").filter_map(|pair| pair.split_once('='));
            Values(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        }

        pub(super) fn number(&self, name: &str) -> i64 {
            self.0[name].parse().unwrap()
        }
    }

    type Number = Box<dyn Fn(&Values) -> i64>;
    type Truth = Box<dyn Fn(&Values) -> bool>;

    fn number(random: &mut Random, names: &[&'static str], depth: u32) -> (String, Number) {
        match random.next(if depth == 0 { 2 } else { 8 }) {
            0 => {
                let name = names[random.next(names.len() as u64) as usize];
                (name.to_owned(), Box::new(move |values| values.number(name)))
            }
            1 => {
                let bits = 1 + random.next(40);
                let value = random.next(1 << bits) as i64;
                (value.to_string(), Box::new(move |_| value))
            }
            2 => {
                let (text, of) = number(random, names, depth - 1);
                let divisor = 1 + random.next(50) as i64;
                (format!("(({text}) % {divisor})"), Box::new(move |values| of(values).wrapping_rem(divisor)))
            }
            3 => {
                let (text, of) = number(random, names, depth - 1);
                let shift = random.next(60) as u32;
                (format!("(({text}) >> {shift})"), Box::new(move |values| of(values) >> shift))
            }
            kind => {
                let (left, a) = number(random, names, depth - 1);
                let (right, b) = number(random, names, depth - 1);
                let (sign, of): (&str, fn(i64, i64) -> i64) = match kind {
                    4 => ("+", i64::wrapping_add),
                    5 => ("-", i64::wrapping_sub),
                    6 => ("*", i64::wrapping_mul),
                    _ => ("^", |a, b| a ^ b),
                };
                (format!("({left} {sign} {right})"), Box::new(move |values| of(a(values), b(values))))
            }
        }
    }

    fn truth(random: &mut Random, names: &[&'static str], depth: u32) -> (String, Truth) {
        match random.next(if depth == 0 { 2 } else { 5 }) {
            0 | 1 => {
                let (left, a) = number(random, names, 2);
                let (right, b) = number(random, names, 1);
                let (sign, of): (&str, fn(&i64, &i64) -> bool) = match random.next(6) {
                    0 => ("==", i64::eq),
                    1 => ("!=", i64::ne),
                    2 => ("<", i64::lt),
                    3 => ("<=", i64::le),
                    4 => (">", i64::gt),
                    _ => (">=", i64::ge),
                };
                (format!("{left} {sign} {right}"), Box::new(move |values| of(&a(values), &b(values))))
            }
            2 => {
                let (text, of) = truth(random, names, depth - 1);
                (format!("not ({text})"), Box::new(move |values| !of(values)))
            }
            kind => {
                let (left, a) = truth(random, names, depth - 1);
                let (right, b) = truth(random, names, depth - 1);
                match kind {
                    3 => (
                        format!("({left}) and ({right})"),
                        Box::new(move |values: &Values| a(values) && b(values)) as Truth,
                    ),
                    _ => (
                        format!("({left}) or ({right})"),
                        Box::new(move |values: &Values| a(values) || b(values)) as Truth,
                    ),
                }
            }
        }
    }

    /// A request for `many`, and which of its calls are kept.
    pub(super) fn of_many(random: &mut Random) -> (String, Truth) {
        let (text, of) = truth(random, &["a", "b", "c", "d", "e", "f", "g", "h"], 2);
        (format!("many if {text}"), of)
    }

    /// A request for `text`: what can't be read makes a condition false.
    pub(super) fn of_text(random: &mut Random) -> (String, Truth) {
        let (text, of) = truth(random, &["c"], 1);
        let (sign, start) = [
            ("starts with", "\"stack "),
            ("starts with", "\"a lit"),
            ("==", "\"a literal\""),
            ("contains", "eral"),
            ("contains", "heap"),
        ][random.next(5) as usize];
        let plain = start.trim_matches('"');
        let holds = move |values: &Values| {
            let s = &values.0["s"];
            if sign == "contains" { s.contains(start) } else { s.starts_with(start) }
        };
        match random.next(3) {
            0 => (format!("text if {text}"), of),
            1 => (
                format!("text if ({text}) and s {sign} \"{plain}\""),
                Box::new(move |values| of(values) && holds(values)),
            ),
            _ => (
                format!("text if s {sign} \"{plain}\" or {text}"),
                // The first bytes may decide that a text is another one, though not what it
                // contains.
                Box::new(move |values| {
                    let s = &values.0["s"];
                    let is_cut = s.ends_with('>') && sign == "contains";
                    s.starts_with('"') && !is_cut && (holds(values) || of(values))
                }),
            ),
        }
    }
}

/// How many events of each kind the words have: entries, exits, orphan exits and unwound calls.
fn counted(run: &Run) -> [usize; 4] {
    let bytes = std::fs::read(&run.file).unwrap();
    let mut counts = [0; 4];
    each_segment(&TraceFile::open(&bytes[..]).unwrap(), |_, words| {
        for word in words {
            match Word::decode(*word) {
                Word::Entry { .. } => counts[0] += 1,
                Word::Exit { .. } => counts[1] += 1,
                Word::Record { kind: kind::ORPHAN_EXIT, .. } => counts[2] += 1,
                Word::Record { kind: kind::UNWOUND, .. } => counts[3] += 1,
                _ => {}
            }
        }
    });
    counts
}

/// Calls are left out for which the condition is false: their entries and their exits, none more
/// and none less. `EVERYCALL_TEST_CONDITIONS` says how many conditions are tried in each mode.
#[test]
fn values_choose_the_calls_that_are_recorded() {
    let place = Place::new("values_choose");
    let tried = number_asked("EVERYCALL_TEST_CONDITIONS");
    let mut random = conditions::Random(0x9e37_79b9_7f4a_7c15);
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let program = built(&place, mode);
        let sled = if mode.name == "xray" { XRAY_SLED } else { 0 };
        let (set, _) = set_of(&program, &FUNCTIONS, sled);
        let [all, ..] = counted(&Run::of(&place, &program, &set, &[], &["40"]));
        for round in 0..tried.unwrap_or(5) {
            let (many, is_many) = conditions::of_many(&mut random);
            let (text, is_text) = conditions::of_text(&mut random);
            // `tail` ends in a tail call of `handler_of`.
            let is_none = round % 2 == 1;
            let tail = if is_none { "tail if n < 0" } else { "tail if n % 3 == 0" };
            let requests = [&many[..], &text, tail, "handler_of"];
            let label = format!("{} {requests:?}", mode.label());
            let (set, captures) = set_of(&program, &requests, sled);
            let is_interrupted = round % 5 == 4;
            let run =
                Run::of(&place, &program, &set, &[], if is_interrupted { &["600", "s"] } else { &["40"] });
            let lines = run.lines();
            let mut expected = Vec::new();
            let mut is_kept = false;
            let mut left_out = 0;
            for line in &lines {
                let name = line.split(' ').next().unwrap();
                let holds = match name {
                    "many" => is_many(&conditions::Values::of(line)),
                    "text" => is_text(&conditions::Values::of(line)),
                    "tail" => {
                        let n: i64 = line["tail n=".len()..].parse().unwrap();
                        left_out += usize::from(!(if is_none { n < 0 } else { n % 3 == 0 }));
                        continue;
                    }
                    "-many" | "-text" => {
                        expected.extend(is_kept.then_some(line));
                        continue;
                    }
                    _ => continue,
                };
                is_kept = holds;
                left_out += usize::from(!holds);
                expected.extend(holds.then_some(line));
            }
            let [(found, counters)] = &run.recorded(&captures)[..] else { panic!("{label}") };
            let is_asked = |line: &&String| {
                ["many ", "-many ", "text ", "-text "].iter().any(|start| line.starts_with(start))
            };
            let found: Vec<&String> = found.iter().filter(is_asked).collect();
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            if let Some(at) = differs {
                panic!("{label}: expected {:?}, and {:?} was recorded", expected[at], found[at]);
            }
            assert_eq!(expected.len(), found.len(), "{label}");
            assert_eq!(counters[counter::CALLS_LEFT_OUT], left_out as u64, "{label}");
            assert_eq!(counters[counter::CAPTURES_REFUSED], 0, "{label}");
            let [entries, exits, orphans, unwound] = counted(&run);
            assert_eq!([orphans, unwound], [0, 0], "{label}");
            assert_eq!(entries, exits, "{label}");
            if !is_interrupted {
                assert_eq!(entries + left_out, all, "{label}");
            }
        }
    }
}

/// The number that each call's capture has, by the lower half of its event's ticks. All captures
/// are of one integer of 64 bits.
fn numbers_by_ticks(file: &Path) -> HashMap<u32, i64> {
    let bytes = std::fs::read(file).unwrap();
    let mut numbers = HashMap::new();
    each_segment(&TraceFile::open(&bytes[..]).unwrap(), |_, words| {
        for (at, word) in words.iter().enumerate() {
            let Word::Record { ticks_low, kind: kind::VALUES, count, .. } = Word::decode(*word) else {
                continue;
            };
            let payload = words[at + 1..=at + usize::from(count)].iter().map(|word| {
                let Word::Payload { payload, .. } = Word::decode(*word) else { panic!("{word:x}") };
                payload
            });
            let bytes: Vec<u8> = payload.skip(2).flat_map(u32::to_le_bytes).collect();
            // A register has no status.
            numbers.insert(ticks_low, i64::from_le_bytes(bytes[..8].try_into().unwrap()));
        }
    });
    numbers
}

/// Triggers with conditions keep exactly the calls that meet them: of arguments, with a time and at
/// the entry, and of results.
#[test]
fn values_decide_which_calls_triggers_keep() {
    let place = Place::new("values_keep");
    let tried = number_asked("EVERYCALL_TEST_CONDITIONS");
    let mut random = conditions::Random(0x2545_f491_4f6c_dd1d);
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let program = built(&place, mode);
        for _ in 0..tried.unwrap_or(2) {
            let [(long, is_long), (entered, is_entered)] = [(); 2].map(|()| conditions::of_many(&mut random));
            let triggers = [
                long.replace("many if", "many > 1ns if"),
                entered.replace("many if", "many entered if"),
                "two returned < 0".to_owned(),
                "two returned != 0 if b > 0 and a % 2 == 0".to_owned(),
            ];
            let label = format!("{} {triggers:?}", mode.label());
            let file = place.file("trace.ect");
            let _ = std::fs::remove_file(&file);
            let mut command = place.command(everycall());
            command.args([
                "record",
                "--args",
                "many(a)",
                "--args",
                "two(b)",
                "--keep",
                "1000",
                "--keep-by",
                "first",
            ]);
            for trigger in &triggers {
                command.args(["--trigger", trigger]);
            }
            let output = command.arg("-o").arg(&file).arg("--").arg(&program).arg("30").output().unwrap();
            assert!(output.status.success(), "{label}: {output:?}");
            let mut expected: [Vec<i64>; 4] = Default::default();
            let (mut a, mut b) = (0, 0);
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                if line.starts_with("many ") {
                    let values = conditions::Values::of(line);
                    for (at, holds) in [(0, &is_long), (1, &is_entered)] {
                        expected[at].extend(holds(&values).then(|| values.number("a")));
                    }
                } else if line.starts_with("two ") {
                    let values = conditions::Values::of(line);
                    (a, b) = (values.number("a"), values.number("b"));
                } else if let Some(result) = line.strip_prefix("-two ") {
                    let result: i64 = result.parse().unwrap();
                    expected[2].extend((result < 0).then_some(b));
                    expected[3].extend((result != 0 && b > 0 && a % 2 == 0).then_some(b));
                }
            }
            let numbers = numbers_by_ticks(&file);
            let bytes = std::fs::read(&file).unwrap();
            let trace = TraceFile::open(&bytes).unwrap();
            let recording = trace.recording();
            for (at, (trigger, expected)) in recording.triggers.iter().zip(&expected).enumerate() {
                let kept = recording.kept.iter().filter(|call| call.trigger == at);
                let mut found: Vec<i64> = kept.map(|call| numbers[&(call.start_ticks as u32)]).collect();
                assert_eq!(trigger.fired, expected.len() as u64, "{label} {trigger:?}");
                assert_eq!(trigger.missed + found.len() as u64, trigger.fired, "{label} {trigger:?}");
                found.sort_unstable();
                found.iter().for_each(|one| assert!(expected.contains(one), "{label}: {one}"));
                found.dedup();
                assert_eq!(trigger.missed + found.len() as u64, trigger.fired, "{label} {trigger:?}");
            }
            assert_eq!(recording.triggers.len(), 4, "{label}");
        }
    }
    let program = built(&place, Mode::GCC_NOPS);
    for (trigger, expected) in [
        ("two > 1ms if nothing == 3", "there is no parameter `nothing`"),
        ("two returned < \"x\"", "a text isn't a number"),
        ("two > 1ms if a >", "a value is missing here"),
    ] {
        let mut command = place.command(everycall());
        command.args(["record", "--trigger", trigger, "-o", "none.ect", "--"]).arg(&program);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(expected), "{trigger}: {error}");
    }
}

const LIBRARY_C: &str = r#"
#include <sys/socket.h>
#define EXPORTED __attribute__((visibility("default"), noinline))
/* What C libraries have, and only they. */
__attribute__((visibility("hidden"))) void __libc_start_main(void) {}
EXPORTED int __libc_connect(int fd, const struct sockaddr *address, unsigned length) { __asm__ volatile(""); return -1; }
EXPORTED int __libc_open64(const char *path, int flags, ...) { __asm__ volatile(""); return 3; }
EXPORTED int __libc_chmod(const char *path, unsigned mode) { __asm__ volatile(""); return 0; }
EXPORTED double __libc_pow(double x, double y) { __asm__ volatile(""); return x + y; }
EXPORTED int __libc_pthread_mutex_trylock(void *mutex) { __asm__ volatile(""); return 16; }
__attribute__((noinline, used)) static int close(const char *text) { __asm__ volatile(""); return *text; }
EXPORTED int other(int n) { __asm__ volatile(""); return n + close("x"); }
"#;

const USES_LIBRARY_C: &str = r#"
#include <arpa/inet.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>
int __libc_connect(int, const void *, unsigned), __libc_open64(const char *, int, ...), __libc_chmod(const char *, unsigned);
int __libc_pthread_mutex_trylock(void *), other(int);
double __libc_pow(double, double);
int main(void) {
    struct sockaddr_in four = {AF_INET, htons(8080), {htonl(0x7f000001)}, {0}};
    struct sockaddr_in6 six = {AF_INET6, htons(443), 0, IN6ADDR_LOOPBACK_INIT, 0};
    struct sockaddr_un local = {AF_UNIX, "/run/app.sock"};
    struct sockaddr_un abstract = {AF_UNIX, "\0app"};
    __libc_connect(3, &four, sizeof four);
    __libc_connect(4, &six, sizeof six);
    __libc_connect(5, &local, sizeof local);
    __libc_connect(6, &abstract, offsetof(struct sockaddr_un, sun_path) + 4);
    __libc_connect(7, 0, 0);
    __libc_open64("/etc/hosts", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    __libc_open64("/etc/hosts", O_RDONLY);
    __libc_chmod("x", 0644);
    __libc_pow(2.5, 3);
    __libc_pthread_mutex_trylock((void *)(uintptr_t)32);
    return other(1) != 121;
}
"#;

/// Functions of a C library have the prototypes that go with their names, where nothing else says
/// which they have.
#[test]
fn values_of_a_c_library_have_its_prototypes() {
    let place = Place::new("values_library");
    place.write("like_libc.c", LIBRARY_C);
    place.write("uses_it.c", USES_LIBRARY_C);
    let mode = Mode::GCC_NOPS;
    place.build(mode, &["-O2", "-w", "-shared", "-fPIC", "like_libc.c"], "liblike.so");
    let flags = ["-O2", "-w", "uses_it.c", "-L.", "-llike", "-Wl,-rpath,$ORIGIN"];
    let program = place.build(mode, &flags, "uses_it");
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--args", "__libc_*", "--results", "__libc_*", "-o", "trace.ect", "--"]);
    successful(command.arg(&program));
    let shown = successful(place.command(everycall()).args(["replay", "trace.ect"]));
    for wanted in [
        r#"connect(fd=3, address="127.0.0.1:8080", length=16) = -1"#,
        r#"connect(fd=4, address="[::1]:443", length=28) = -1"#,
        r#"connect(fd=5, address="/run/app.sock", length=110) = -1"#,
        r#"connect(fd=6, address="@app", length=6) = -1"#,
        "connect(fd=7, address=null, length=0) = -1",
        r#"open64(path="/etc/hosts", flags=O_WRONLY | O_CREAT | O_CLOEXEC) = 3"#,
        r#"open64(path="/etc/hosts", flags=O_RDONLY) = 3"#,
        r#"chmod(path="x", mode=0644) = 0"#,
        "pow(x=2.5, y=3.0) = 5.5",
        "pthread_mutex_trylock(mutex=0x20) = EBUSY",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    // A name alone says nothing: here, none is the C library's.
    for function in ["close", "other"] {
        let mut command = place.command(everycall());
        command.args(["record", "--args", function, "-o", "none.ect", "--"]).arg(&program);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && error.contains("there is no debugging information"),
            "{error}"
        );
    }
}

const FAILING_C: &str = r#"
#include <errno.h>
#define EXPORTED __attribute__((visibility("default"), noinline))
/* What C libraries have, and only they. */
__attribute__((visibility("hidden"))) void __libc_start_main(void) {}
EXPORTED int __libc_close(int fd) { errno = fd / 2; return fd % 2 ? -1 : fd; }
EXPORTED void *__libc_fopen(const char *path, const char *mode) { errno = path[0]; return mode[0] == 'r' ? 0 : (void *)path; }
EXPORTED void *__libc_mmap(void *at, unsigned long length, int a, int b, int c, long d) { errno = length; return (void *)-1; }
EXPORTED int __libc_strcmp(const char *a, const char *b) { errno = EINVAL; return -1; }
"#;

/// Writes down what each call has to be shown as, by its own `errno`, which must be as it was.
const USES_FAILING_C: &str = r#"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
int __libc_close(int), __libc_strcmp(const char *, const char *);
void *__libc_fopen(const char *, const char *), *__libc_mmap(void *, unsigned long, int, int, int, long);
__attribute__((noinline)) long save(int n) { errno = n; __asm__ volatile("" ::: "memory"); return n % 3 ? n : -1; }
static const char *const NAMES[] = {"0", "EPERM", "ENOENT", "ESRCH", "EINTR", "EIO", "ENXIO", "E2BIG"};
enum { ROUNDS = 300, EACH = 4 };
static char lines[3][ROUNDS * EACH][80];
static void *calls(void *number) {
    char (*line)[80] = lines[(long)number];
    for (int i = 0; i < ROUNDS; i++) {
        int n = (i * 5 + (int)(long)number) % 8;
        const char *name = NAMES[n];
        int closed = __libc_close(2 * n + i % 2);
        if (errno != n) abort();
        sprintf(*line++, "close(fd=%d) = %d%s%s", 2 * n + i % 2, closed, closed < 0 && n ? " " : "", closed < 0 && n ? name : "");
        char path[2] = {(char)n, 0};
        void *file = __libc_fopen(path, i % 3 ? "r" : "w");
        if (errno != n) abort();
        if (file) sprintf(*line++, "fopen(mode=\"w\") = %p", file);
        else sprintf(*line++, "fopen(mode=\"r\") = null%s%s", n ? " " : "", n ? name : "");
        __libc_mmap(0, n, 0, 0, 0, 0);
        if (errno != n) abort();
        sprintf(*line++, "mmap(length=%d) = 0xffffffffffffffff%s%s", n, n ? " " : "", n ? name : "");
        long saved = save(n);
        if (errno != n) abort();
        if (saved < 0) sprintf(*line++, "save(n=%d) = -1 %s", n, name);
        else sprintf(*line++, "save(n=%d) = (returned=%ld, errno=%s)", n, saved, name);
    }
    return NULL;
}
int main(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, calls, (void *)i);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < ROUNDS * EACH; j++) puts(lines[i][j]);
    __libc_strcmp("a", "b");
    puts("strcmp(left=\"a\", right=\"b\") = -1");
    return 0;
}
"#;

/// Beside a result by which a function of the C library fails stands the thread's own error, as the
/// program writes it down. Other functions have it if it is asked for.
#[test]
fn errors_of_functions_that_fail() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let label = mode.label();
        let place = Place::new(&format!("values_errors_{label}"));
        place.write("failing.c", FAILING_C);
        place.write("fails.c", USES_FAILING_C);
        place.build(mode, &["-O2", "-w", "-shared", "-fPIC", "failing.c"], "libfailing.so");
        let flags = ["-O2", "-g", "-w", "-pthread", "fails.c", "-L.", "-lfailing", "-Wl,-rpath,$ORIGIN"];
        let program = place.build(mode, &flags, "fails");
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--ring-size", "16M", "-o", "trace.ect"]);
        for values in ["__libc_close", "__libc_fopen(mode)", "__libc_mmap(length)", "__libc_strcmp", "save"] {
            command.args(["--args", values]);
        }
        command.args(["--results", "__libc_*", "--results", "save(returned, errno)", "--"]);
        let written = successful(command.arg(&program));
        let mut expected: Vec<&str> = written.lines().collect();
        let shown = successful(place.command(everycall()).args(["replay", "trace.ect"]));
        let call = |line: &'_ str| -> Option<String> {
            let line = line.split_once(" ms ")?.1.trim_start();
            let is_meant = line.starts_with("__libc_") || line.starts_with("save(");
            let (call, _) = line.rsplit_once("  ").filter(|_| is_meant)?;
            Some(call.trim_end().trim_start_matches("__libc_").to_owned())
        };
        let mut found: Vec<String> = shown.lines().filter_map(call).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found.len(), expected.len(), "{label}: {shown}");
        assert!(found.iter().eq(&expected), "{label}: {found:?} {expected:?}");
        // Conditions, tables and SQL have it, too.
        let count = |text: &str| expected.iter().filter(|line| line.contains(text)).count();
        let chosen = successful(place.command(everycall()).args([
            "replay",
            "--where",
            "returned == -1 and errno == ENOENT",
            "trace.ect",
        ]));
        let chosen: Vec<String> = chosen.lines().filter_map(call).collect();
        let wanted = |line: &&&str| line.ends_with("= -1 ENOENT");
        assert_eq!(chosen.len(), expected.iter().filter(wanted).count(), "{label}");
        let query = "select count(*) from slices where arg(result, 'errno') = 'EINTR'";
        let sums =
            successful(place.command(everycall()).args(["sql", "--format", "csv", "trace.ect", query]));
        assert_eq!(sums.lines().nth(1), Some(&*count("EINTR").to_string()), "{label}");
        // Only calls that fail so are kept.
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--ring-size", "16M", "--results", "save(errno) if errno == E2BIG"]);
        successful(command.args(["-o", "some.ect", "--"]).arg(&program));
        let shown = successful(place.command(everycall()).args(["replay", "some.ect"]));
        let found = shown.lines().filter(|line| line.contains(" = E2BIG")).count();
        assert_eq!(found, expected.iter().filter(|line| line.starts_with("save(n=7)")).count(), "{label}");
        assert!(!shown.contains(" = EIO"), "{label}");
    }
}

const COUNTED_C: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define N __attribute__((noinline))
static volatile long sink;
static int made[16];
N void handle(const char *path, int n) { sink += n + (path != NULL); }
N void keyed(long key) { sink += key; }
static void *calls(void *number) {
    long own = (long)number;
    for (int i = 0; i < 5000; i++) {
        char path[16];
        int which = (i * 7 + own) % 10;
        sprintf(path, "/%d", which);
        __atomic_fetch_add(&made[which], 1, __ATOMIC_RELAXED);
        handle(path, i);
    }
    return NULL;
}
int main(int argc, char **argv) {
    if (argc > 1) {
        for (long i = 0; i < 100000; i++) { keyed(i); keyed(-1); }
        return 0;
    }
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, calls, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 10; i++) printf("\"/%d\",%d\n", i, made[i]);
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            for (int j = 0; j < 100; j++) handle("/child", j);
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {}
    char *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 5; i++) handle(none, i);
    for (int i = 0; i < 7; i++) handle(NULL, i);
    printf("\"/child\",300\n<unreadable>,5\nnull,7\n");
    return 0;
}
"#;

/// The calls by value that `count` has printed as CSV, in the order of the values.
fn calls_by_value(csv: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        // Texts are quoted, with the quotes in them doubled.
        let value = line.strip_prefix("\"").and_then(|rest| rest.split_once("\",")).map_or_else(
            || line.split_once(',').map(|(value, rest)| (value.to_owned(), rest)),
            |(value, rest)| Some((value.replace("\"\"", "\""), rest)),
        );
        let (value, rest) = value?;
        Some((value, rest.split(',').next()?.parse().ok()?))
    };
    let mut rows: Vec<_> = csv.lines().skip(1).filter_map(row).collect();
    rows.sort();
    rows
}

/// `count --by 'FUNCTION(ARGUMENT)'` has what the program counts itself, without events: in several
/// threads and children, with values that can't be read, and with more values than there is room
/// for.
#[test]
fn values_are_counted() {
    let place = Place::new("values_counted");
    place.write("counted.c", COUNTED_C);
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::GCC_FENTRY] {
        let label = mode.label();
        let program = place.build(mode, &["-O2", "-g", "counted.c", "-pthread"], &label);
        let count = |options: &[&str], arguments: &[&str]| {
            let mut command = place.command(everycall());
            command.args(["count", "-f", "csv", "-o", "counts.ect", "--force"]).args(options);
            successful(command.arg("--").arg(&program).args(arguments))
        };
        let printed = count(&["--by", "handle(path)"], &[]);
        let (own, table) = printed.split_once("value,").unwrap();
        let mut expected: Vec<(String, u64)> = own
            .lines()
            .filter_map(|line| line.rsplit_once(','))
            .map(|(value, calls)| (value.to_owned(), calls.parse().unwrap()))
            .collect();
        expected.sort();
        assert_eq!(expected.len(), 13, "{label}: {own}");
        assert_eq!(calls_by_value(table), expected, "{label}");
        // The file has them, and no events.
        let mut report = place.command(everycall());
        let kept = successful(report.args(["report", "-f", "csv", "--by", "handle(path)", "counts.ect"]));
        assert_eq!(calls_by_value(&kept), expected, "{label}");
        let trace = TraceFile::open(File::open(place.path().join("counts.ect")).unwrap()).unwrap();
        let mut events = 0;
        let is_event = |word: &&u64| matches!(Word::decode(**word), Word::Entry { .. } | Word::Exit { .. });
        each_segment(&trace, |_, words| events += words.iter().filter(is_event).count());
        assert_eq!(events, 0, "{label}");

        let table = count(&["--by", "handle(path) if n >= 4999"], &[]);
        let all: u64 = calls_by_value(table.split_once("value,").unwrap().1).iter().map(|row| row.1).sum();
        assert_eq!(all, 4, "{label}");
        let rows = calls_by_value(&count(&["--by", "keyed(key)"], &["many"]));
        let of = |value: &str| rows.iter().find(|row| row.0 == value).map_or(0, |row| row.1);
        assert_eq!(of("-1"), 100_000, "{label}");
        assert!(rows.len() > 3500 && of("(other values)") > 90_000, "{label}: {}", rows.len());
        assert_eq!(rows.iter().map(|row| row.1).sum::<u64>(), 200_000, "{label}");
    }
}

const THROWS_CPP: &str = r#"
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
struct Own : std::out_of_range { Own() : std::out_of_range("own \"text\"") {} };
struct Says : std::runtime_error {
    Says() : std::runtime_error("not this") {}
    const char *what() const noexcept override { return "this"; }
};
struct Plain : std::exception { const char *what() const noexcept override { return "plain"; } };
struct Other { int n; };
struct Two : Other, std::runtime_error { Two() : std::runtime_error("second base") {} };
__attribute__((noinline)) int fails(int n) {
    switch (n) {
    case 0: throw std::runtime_error("no such key: " + std::to_string(n));
    case 1: throw Own();
    case 2: throw std::system_error(2, std::generic_category(), "open");
    case 3: throw Says();
    case 4: throw Plain();
    case 5: throw Two();
    case 6: throw std::bad_alloc();
    case 7: throw std::logic_error(std::string(100, 'x'));
    case 8: throw 5;
    }
    return n;
}
int main() {
    int caught = 0;
    for (int n = 0; n < 10; n++) {
        try { fails(n); } catch (...) { caught++; }
    }
    return caught != 9;
}
"#;

/// Where values are recorded, throws have the text of exceptions that keep it at a known place.
/// The text that code of the program makes isn't guessed.
#[test]
fn values_of_exceptions_are_their_texts() {
    let place = Place::new("values_thrown");
    place.write("throws.cpp", THROWS_CPP);
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let label = mode.label();
        let program = place.build(mode, &["-O2", "-g", "throws.cpp"], &label);
        let thrown = |options: &[&str]| -> Vec<String> {
            let mut command = place.command(everycall());
            command.args(["record", "-q", "-o", "trace.ect"]).args(options).arg("--").arg(&program);
            successful(&mut command);
            let shown = successful(place.command(everycall()).args(["replay", "trace.ect"]));
            let text = |line: &str| line.split_once("throw ").map(|(_, thrown)| thrown.trim().to_owned());
            shown.lines().filter_map(text).collect()
        };
        let types = [
            "std::runtime_error",
            "Own",
            "std::system_error",
            "Says",
            "Plain",
            "Two",
            "std::bad_alloc",
            "std::logic_error",
            "int",
        ];
        assert_eq!(thrown(&[]), types, "{label}");
        let rest = "x".repeat(64 - "St11logic_error".len() - 1);
        let expected = [
            r#"std::runtime_error: "no such key: 0""#,
            r#"Own: "own \"text\"""#,
            r#"std::system_error: "open: No such file or directory""#,
            "Says",
            "Plain",
            "Two",
            "std::bad_alloc",
            &format!(r#"std::logic_error: "{rest}"..."#),
            "int",
        ];
        assert_eq!(thrown(&["--results", "fails"]), expected, "{label}");
    }
}
