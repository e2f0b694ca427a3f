//! Messages of `report` about input that is cut, foreign, mixed or too much.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

fn report(place: &Place, options: &[&str], files: &[&Path]) -> Output {
    let mut command = place.command(everycall());
    command.arg("report").args(options).args(files).output().expect("everycall runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// A program whose functions have these names, each of which `main` calls 50 times.
fn program(place: &Place, name: &str, functions: &[&str]) -> PathBuf {
    let define = |name: &&str| format!("__attribute__((noinline)) void {name}(void) {{ sink++; }}\n");
    let call = |name: &&str| format!("{name}(); ");
    let (defined, called): (String, String) =
        (functions.iter().map(define).collect(), functions.iter().map(call).collect());
    let text = format!(
        "static volatile unsigned sink;\n{defined}int main(void) {{ for (int i = 0; i < 50; i++) {{ {called} }} return 0; }}\n"
    );
    place.write(&format!("{name}.c"), &text);
    place.build(Mode::GCC_NOPS, &["-O2", &format!("{name}.c")], name)
}

#[test]
fn files_without_a_common_function_are_told_as_such() {
    let place = Place::new("input-foreign");
    // `main` is another function in another source file.
    let one = place.record(&["-q"], &program(&place, "bakery", &["knead", "bake"]), &[]).file;
    let two = place.record(&["-q"], &program(&place, "garage", &["drive", "park"]), &[]).file;
    let output = report(&place, &["-f", "json", "--diff"], &[&one, &two]);
    assert!(said(&output).contains("no function in common"), "{output:?}");
    let told = json(&output);
    assert_eq!(told["common_functions"], 0);
    for row in told["rows"].as_array().expect("rows") {
        assert!((number(row, "old_calls") == 0) != (number(row, "new_calls") == 0), "{row}");
        assert_eq!((&row["is_found"], &row["own_change"]), (&Value::from(false), &Value::Null), "{row}");
    }
    let output = report(&place, &["--diff"], &[&one, &one]);
    assert!(!said(&output).contains("no function in common"), "{output:?}");
}

#[test]
fn machines_and_versions_that_differ_are_told() {
    let place = Place::new("input-mixed");
    let trace = place.record(&["-q"], &program(&place, "bakery", &["knead", "bake"]), &[]).file;
    let stored = place.file("here.ecp");
    successful(place.command(everycall()).args(["merge", "-q", "-o"]).arg(&stored).arg(&trace));
    let text = std::fs::read_to_string(&stored).expect("the file");
    let mut whole: Value = serde_json::from_str(&text).expect("JSON");
    // As another machine would have written it.
    let mut like = |name: &str, value: &str| {
        let about = &mut whole["runs"][0]["about"];
        let before = about[name].as_str().expect("a text").to_owned();
        about[name] = value.into();
        let path = place.file("there.ecp");
        std::fs::write(&path, whole.to_string()).expect("written");
        whole["runs"][0]["about"][name] = before.clone().into();
        (path, before)
    };
    for (name, value, sentence) in [
        ("cpu", "Another CPU", "from different machines ("),
        ("host", "elsewhere", "different machines of one kind"),
        ("everycall_version", "0.0.1", "different versions of everycall"),
    ] {
        let (there, before) = like(name, value);
        for output in [
            report(&place, &["--diff"], &[&stored, &there]),
            report(&place, &["--diff"], &[&trace, &there]),
            report(&place, &[], &[&trace, &there]),
        ] {
            let told = said(&output);
            assert!(output.status.success() && told.contains(sentence), "{name}: {output:?}");
            assert!(told.contains(value) && told.contains(&before), "{name}: {told}");
        }
    }
    let same = said(&report(&place, &["--diff"], &[&trace, &stored]));
    assert!(!same.contains("different"), "{same}");
}

#[test]
fn files_of_all_versions_are_read() {
    let place = Place::new("input-versions");
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/reading/timeline/tests/golden");
    let mut versions = 0;
    for file in std::fs::read_dir(golden).expect("the folder") {
        let file = file.expect("an entry").path();
        if file.extension().is_none_or(|extension| extension != "ect") {
            continue;
        }
        let told = json(&report(&place, &["-f", "json"], &[&file]));
        // Each call is a line of `replay`; what was only counted, or timed by sums, isn't there.
        let text = successful(place.command(everycall()).args(["replay", "-f", "json"]).arg(&file));
        let calls = text.lines().filter(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["dur_ns"].is_u64() && line["span"].is_null()
        });
        let summed = |row| number(row, "untimed") + number(row, "timed_in_octaves");
        let counted: u64 = told["rows"].as_array().expect("rows").iter().map(summed).sum();
        assert_eq!(number(&told, "calls"), calls.count() as u64 + counted, "{}", file.display());
        versions += 1;
    }
    assert!(versions >= 9);
}

#[test]
fn of_a_cut_file_the_rest_is_shown_and_the_cut_is_told() {
    let place = Place::new("input-cut");
    let trace = place.record(&["-q"], &program(&place, "bakery", &["knead", "bake"]), &[]).file;
    let bytes = std::fs::read(&trace).expect("the trace");
    let whole = number(&json(&report(&place, &["-f", "json"], &[&trace])), "calls");
    let cut = place.file("cut.ect");
    let mut shown = 0;
    for sixteenth in 0..16 {
        std::fs::write(&cut, &bytes[..bytes.len() * sixteenth / 16]).expect("written");
        let output = report(&place, &["-f", "json"], &[&cut]);
        let told = said(&output);
        assert!(told.contains("cut.ect"), "{sixteenth}: {output:?}");
        if output.status.success() {
            shown += 1;
            assert!(number(&json(&output), "calls") <= whole, "{sixteenth}");
        } else {
            assert_eq!(output.status.code(), Some(1), "{sixteenth}: {told}");
        }
        let output = report(&place, &["--diff"], &[&trace, &cut]);
        assert!(
            output.status.code().is_some_and(|code| code <= 1) && said(&output).contains("cut.ect"),
            "{output:?}"
        );
    }
    assert!(shown > 0);
}

#[test]
fn patterns_that_match_nothing_are_answered_with_near_names() {
    let place = Place::new("input-near");
    let trace = place.record(&["-q"], &program(&place, "bakery", &["knead_dough", "bake_bread"]), &[]).file;
    let refused = |options: &[&str]| {
        let output = report(&place, options, &[&trace]);
        assert_eq!(output.status.code(), Some(1), "{options:?}: {output:?}");
        said(&output)
    };
    for option in ["--callers", "--callees", "--slowest", "--explain"] {
        assert!(refused(&[option, "knead_dugh"]).contains("there is knead_dough"), "{option}");
        assert!(refused(&[option, "quite_another_name"]).contains("lists those that were"), "{option}");
    }
    assert!(refused(&["--fail-if", "calls(bake_bred) > 1"]).contains("there is bake_bread"));
    let output = report(&place, &["--fail-if", "calls(bake_bred) > +1", "--diff"], &[&trace, &trace]);
    assert!(output.status.code() == Some(1) && said(&output).contains("there is bake_bread"), "{output:?}");
    // A filter that lets no call through is named.
    let output = report(&place, &["--function", "^knead_dugh$"], &[&trace]);
    assert!(said(&output).contains("matches --function `^knead_dugh$`; there is knead_dough"), "{output:?}");
    let output = report(&place, &["--function", "knead", "--min-duration", "100s"], &[&trace]);
    assert!(said(&output).contains("matches the filter options"), "{output:?}");
    let output = report(&place, &["--by", "label:request"], &[&trace]);
    assert!(output.status.success() && said(&output).contains("is named `request`"), "{output:?}");
    // Filters aren't blamed where there are none: here are marks alone.
    place.write("marks.json", r#"[{"ph":"i","name":"a","pid":1,"tid":1,"ts":1}]"#);
    successful(place.command(everycall()).args(["import", "-q", "marks.json"]));
    for verb in ["report", "replay"] {
        let output = place.command(everycall()).args([verb, "marks.ect"]).output().unwrap();
        assert!(said(&output).contains("contains no calls"), "{verb}: {output:?}");
    }
}

/// Whoever knows the options of perf and uftrace finds those of `report`.
#[test]
fn options_of_other_tools_lead_to_ours() {
    let place = Place::new("input-habits");
    let trace = place.record(&["-q"], &program(&place, "bakery", &["knead", "bake"]), &[]).file;
    let table = |options: &[&str]| {
        let output = report(&place, options, &[&trace]);
        assert!(output.status.success(), "{options:?}: {output:?}");
        output.stdout
    };
    assert_eq!(table(&["-s", "call"]), table(&["--sort", "calls"]));
    assert_eq!(table(&["-s", "self"]), table(&["--sort", "own"]));
    for (theirs, ours) in [("dso", "module"), ("sym", "function"), ("tid", "thread"), ("pid", "process")] {
        assert_eq!(table(&["--by", theirs]), table(&["--by", ours]));
    }
    for (theirs, ours) in [("dso,sym", "--by dso"), ("total,self", "--sort total")] {
        let output = report(&place, &["--sort", theirs], &[&trace]);
        assert!(output.status.code() == Some(2) && said(&output).contains(ours), "{output:?}");
    }
}

/// Calls that were counted have no times and no callers: it is said, and no condition holds or
/// doesn't because of that.
#[test]
fn what_counts_do_not_tell_is_said() {
    let place = Place::new("input-counted");
    let program = program(&place, "bakery", &["knead", "bake"]);
    let counted = |output: &str, options: &[&str]| {
        let mut command = place.command(everycall());
        command.args(["count", "-o", output]).args(options).arg("--").arg(&program);
        successful(&mut command);
        place.file(output)
    };
    let (one, two) = (counted("one.ect", &[]), counted("two.ect", &["--only", "knead"]));
    let is_told = |options: &[&str], files: &[&Path]| {
        let output = report(&place, options, files);
        let said = said(&output);
        assert!(output.status.code() == Some(1) && said.contains("counted"), "{options:?}: {output:?}");
    };
    for option in ["--callers", "--callees", "--slowest", "--explain"] {
        is_told(&[option, "knead"], &[&one]);
    }
    for number in ["p99", "max", "own", "total", "avg"] {
        is_told(&["--fail-if", &format!("{number}(knead) > 1s")], &[&one]);
        is_told(&["--fail-if", &format!("{number}(knead) > +10%"), "--diff"], &[&one, &one]);
    }
    let calls = report(&place, &["--fail-if", "calls(knead) > 49"], &[&one]);
    assert_eq!(calls.status.code(), Some(3), "{calls:?}");
    // Of functions that have times and others that don't, the first ones decide.
    let timed = counted("timed.ect", &["--time"]);
    let all = report(&place, &["--fail-if", "max(*) > 100s"], &[&timed]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    // A comparison is about calls, and the largest change comes first.
    let output = report(&place, &["--diff"], &[&one, &two]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = lines.iter().position(|line| line.first() == Some(&"calls/run")).expect("a heading");
    assert_eq!(lines[heading + 1], ["0", "-50", "gone", "(50", "before)", "bake"], "{text}");
    assert!(!text.contains("own"), "{text}");
    let mut page = place.command(everycall());
    let page = page.args(["view", "--html", "one.html", "one.ect"]).output().expect("it starts");
    assert!(page.status.code() == Some(1) && said(&page).contains("counted"), "{page:?}");
    assert!(!place.file("one.html").exists());
}

/// Forty thousand functions: each has its own count, alone and beside the ring. Where address
/// space is limited, there are fewer counters: the calls of the others are counted together, none
/// is lost, and none is another's.
#[test]
fn each_of_forty_thousand_functions_is_counted() {
    const FUNCTIONS: u64 = 8_500;
    const LIBRARIES: u64 = 5;
    let place = Place::new("input-full");
    let mut text = "static volatile unsigned sink;\n".to_owned();
    for function in 0..FUNCTIONS {
        text += &format!("__attribute__((noinline)) void f{function}(void) {{ sink++; }}\n");
    }
    text += "static void (*const all[])(void) = {";
    (0..FUNCTIONS).for_each(|function| text += &format!("f{function}, "));
    // Up to seven times each, in turn.
    text += "};\nvoid run(unsigned more) {
        for (unsigned f = 0; f < sizeof all / sizeof *all; f++)
            for (unsigned i = 0; i <= (f + more) % 7; i++) all[f]();
    }\n";
    place.write("many.c", &text);
    place.write(
        "main.c",
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(int count, char **words) {
            for (int i = 0; i < atoi(words[1]); i++) {
                char name[32];
                snprintf(name, sizeof name, \"./many%d.so\", i);
                void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
                if (!library) return 1;
                ((void (*)(unsigned))dlsym(library, \"run\"))(i);
            }
            return 0;
        }\n",
    );
    let program = place.build(Mode::GCC_NOPS, &["-O1", "main.c", "-ldl"], "main");
    let library = place.build(Mode::GCC_NOPS, &["-O1", "-shared", "-fPIC", "many.c"], "many.so");
    for number in 0..LIBRARIES {
        std::fs::copy(&library, place.file(&format!("many{number}.so"))).expect("a copy");
    }
    let calls_of = |function: u64, library: u64| (function + library) % 7 + 1;
    // Functions by library and number, and how often each was called; the calls of all others.
    let counted = |told: &Value, key: &str| {
        let mut found = BTreeMap::new();
        let mut others = number(&told["not_in_the_numbers"], "counted_calls_of_unknown_functions");
        for row in told["rows"].as_array().expect("rows") {
            let (name, module) = (row["name"].as_str().expect("a name"), row["module"].as_str());
            let library = module.and_then(|module| module.strip_prefix("many")?.strip_suffix(".so"));
            match name.strip_prefix('f').zip(library) {
                Some((name, library)) => {
                    let of = |text: &str| text.parse::<u64>().expect("a number");
                    found.insert((of(library), of(name)), number(row, key));
                }
                None => others += number(row, key),
            }
        }
        (found, others)
    };
    let expected = |libraries| {
        let functions = (0..libraries).flat_map(|library| (0..FUNCTIONS).map(move |name| (library, name)));
        functions
            .map(|(library, name)| ((library, name), calls_of(name, library)))
            .collect::<BTreeMap<_, _>>()
    };
    let count = |shell: &str, libraries: u64| {
        let mut command = place.command("sh");
        let line = format!("{shell}exec \"$0\" count -f json -- \"$1\" {libraries}");
        let output = command.args(["-c", &line]).arg(everycall()).arg(&program).output().expect("it starts");
        (json(&output), said(&output))
    };
    let (told, _) = count("", LIBRARIES);
    // `main`, and `run` of each library.
    assert_eq!(counted(&told, "calls"), (expected(LIBRARIES), 1 + LIBRARIES));

    // Beside the ring, which is too small for all of them.
    let mut record = place.command(everycall());
    let record = record.args(["record", "-q", "--ring-size", "64K", "-o", "many.ect", "--"]);
    assert!(record.arg(&program).arg("2").status().expect("it starts").success());
    let mut report = place.command(everycall());
    let report = report.args(["report", "-f", "json", "many.ect"]).output().expect("it starts");
    assert_eq!(counted(&json(&report), "all_calls"), (expected(2), 3));

    let (told, said) = count("ulimit -v 8000000; ", 2);
    let (found, others) = counted(&told, "calls");
    let all: u64 = expected(2).values().sum();
    assert_eq!(found.values().sum::<u64>() + others, all + 3);
    assert!(found.len() < 2 * FUNCTIONS as usize && found.len() > 16_000, "{}", found.len());
    for ((library, function), calls) in found {
        assert_eq!(calls, calls_of(function, library), "{library} {function}");
    }
    assert!(said.contains("no counters left") && said.contains("functions"), "{said}");
}
