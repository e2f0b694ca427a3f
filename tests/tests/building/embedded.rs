//! Traces that hold symbols and sources show the same when the program, its library and all sources
//! are gone, or others are in their place; and show nothing wrong when what they hold is damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use everycall_reader::TraceFile;
use everycall_tests::{Mode, Place, everycall, successful};

/// Everything that shows names.
const SHOWN: [&str; 14] = [
    "replay",
    "replay --inlines --full-names",
    "replay -f json --inlines",
    "report",
    "report --by path -f json",
    "report --by file",
    "export -f vizviewer -o -",
    "export -f chrome --inlines -o -",
    "export -f perfetto -o -",
    "export -f callgrind -o -",
    "export -f pprof -o -",
    "export -f csv -o -",
    "export -f speedscope -o -",
    "export -f folded -o -",
];

fn run(place: &Place, line: &str, trace: &Path) -> Output {
    place.command(everycall()).args(line.split(' ')).arg(trace).output().unwrap()
}

/// The output of every command.
fn shown(place: &Place, trace: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let one = |line: &&'static str| {
        let output = run(place, line, trace);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        (*line, output.stdout)
    };
    SHOWN.iter().map(one).collect()
}

fn assert_same(before: &[(&str, Vec<u8>)], after: &[(&str, Vec<u8>)], label: &str) {
    for ((line, before), (_, after)) in before.iter().zip(after) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(before), text(after), "{label}: {line}");
        assert!(before == after, "{label}: {line}");
    }
}

/// A program with its sources in a folder of their own.
fn build(place: &Place, mode: Mode) -> PathBuf {
    let sources = place.file("src");
    fs::create_dir_all(&sources).unwrap();
    fs::copy(everycall_tests::programs().join("embedded.cpp"), sources.join("embedded.cpp")).unwrap();
    place.build(mode, &["-O2", "-g", "-pthread", "src/embedded.cpp"], "app")
}

#[test]
fn the_same_is_shown_without_the_program_and_its_sources() {
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let place = Place::new("embedded");
        let program = build(&place, mode);
        let plain = place.record(&["--no-embed", "-q"], &program, &[]).file;
        let trace = place.file("trace.ect");
        fs::copy(&plain, &trace).unwrap();
        let before = shown(&place, &trace);
        let said = place.command(everycall()).arg("embed").arg(&trace).output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains("contains the symbols of") && said.contains("source file"), "{said}");
        // Something else is in the program's place, and the sources are gone.
        fs::write(&program, "something else").unwrap();
        fs::remove_dir_all(place.file("src")).unwrap();
        let after = shown(&place, &trace);
        assert_same(&before, &after, &mode.label());
        let (_, viewed) = after.iter().find(|(line, _)| line.contains("vizviewer")).unwrap();
        let has_source =
            String::from_utf8_lossy(viewed).contains("__attribute__((noinline)) int deep(int n)");
        assert!(has_source, "the source is in it");
        fs::remove_file(&program).unwrap();
        // Without what it holds, it is the file that it was.
        successful(place.command(everycall()).args(["embed", "--remove", "-q"]).arg(&trace));
        assert!(fs::read(&trace).unwrap() == fs::read(&plain).unwrap());
        let nameless = String::from_utf8(run(&place, "replay", &trace).stdout).unwrap();
        assert!(!nameless.contains("deep") && nameless.contains("app+0x"), "{nameless}");
    }
}

#[test]
fn record_embeds_and_leaves_out_what_it_is_told() {
    let place = Place::new("embedded-record");
    let program = build(&place, Mode::GCC_NOPS);
    let with = |options: &[&str]| {
        let file = place.record(options, &program, &[]).file;
        let trace = TraceFile::open(fs::File::open(&file).unwrap()).unwrap();
        assert!(everycall_reader::Source::recording(&trace).warnings.is_empty());
        (trace.has_symbols(0), trace.has_sources(), file)
    };
    let (symbols, sources, whole) = with(&["--embed"]);
    assert_eq!((symbols, sources), (true, true));
    let (symbols, sources, no_sources) = with(&["--embed", "--no-sources", "-q"]);
    assert_eq!((symbols, sources), (true, false));
    let (symbols, sources, _) = with(&["--no-embed"]);
    assert_eq!((symbols, sources), (false, false));
    let (symbols, _, streamed) = with(&["--stream", "--embed", "-q"]);
    assert!(symbols);
    fs::remove_file(&program).unwrap();
    for trace in [whole, no_sources, streamed] {
        let text = String::from_utf8(run(&place, "replay", &trace).stdout).unwrap();
        for name in ["app::Values::add(int)", "int app::twice<int>(int)", "deep(int)", "target 2 of tail"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        // Sources that aren't in the trace are taken from where they are, if they are the same.
        let viewed = run(&place, "export -o -", &trace).stdout;
        assert!(String::from_utf8_lossy(&viewed).contains("int deep(int n)"));
    }
}

/// Embedding follows the rules of `export` for sources.
#[test]
fn sources_from_elsewhere_are_left_out_unless_allowed() {
    let place = Place::new("embedded-secret");
    let elsewhere = Place::new("embedded-elsewhere");
    let secret = elsewhere.write("secret", "THE SECRET\n");
    let code = format!(
        "# 1 \"{}\"\nint leaf(int x) {{ return x + 1; }}\n# 1 \"main.c\"\nint leaf(int);\nint main(void) {{ return leaf(-1); }}\n",
        secret.display()
    );
    place.write("main.c", &code);
    let program = place.build(Mode::GCC_NOPS, &["-O0", "-g", "-gdwarf-4", "main.c"], "app");
    let trace = place.record(&["--embed", "-q"], &program, &[]).file;
    let holds = |trace: &Path| {
        let trace = TraceFile::open(fs::File::open(trace).unwrap()).unwrap();
        let (sources, warnings) = trace.sources(&mut u64::MAX.clone());
        assert!(warnings.is_empty());
        sources.iter().any(|source| source.text.contains("THE SECRET"))
    };
    assert!(!holds(&trace), "record");
    let output = run(&place, "embed", &trace);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--source-folder"), "{output:?}");
    assert!(!holds(&trace), "embed");
    let folder = elsewhere.path().display().to_string();
    successful(place.command(everycall()).args(["embed", "-q", "--source-folder", &folder]).arg(&trace));
    assert!(holds(&trace));
    successful(place.command(everycall()).args(["embed", "-q"]).arg(&trace));
    assert!(!holds(&trace), "it is replaced");
    successful(place.command(everycall()).args(["embed", "-q", "--any-source"]).arg(&trace));
    assert!(holds(&trace));
}

#[test]
fn damaged_symbols_are_missing_never_wrong() {
    let place = Place::new("embedded-damaged");
    let program = build(&place, Mode::GCC_NOPS);
    let trace = place.record(&["--embed", "-q"], &program, &[]).file;
    let whole = fs::read(&trace).unwrap();
    let text = |trace: &Path| String::from_utf8(run(&place, "replay", trace).stdout).unwrap();
    let right = text(&trace);
    fs::remove_file(&program).unwrap();
    // SYMBOLS is the first chunk behind the END.
    let chunk = |kind: u32| {
        let begins =
            |at: &usize| whole[*at..].starts_with(b"ECTc") && whole[at + 4..at + 8] == kind.to_le_bytes();
        (0..whole.len() - 32).step_by(8).find(begins).unwrap()
    };
    let (symbols, sources) = (chunk(23), chunk(24));
    let broken = place.file("broken.ect");
    for at in [symbols + 32 + 16, symbols + 200, sources - 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&broken, &bytes).unwrap();
        let output = run(&place, "replay", &broken);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && shown.contains("app+0x") && !shown.contains("deep"),
            "{at}: {shown}"
        );
        assert!(!output.stderr.is_empty(), "{at}");
    }
    // Symbols of another build are not used. (Both checksums are right.)
    let mut bytes = whole.clone();
    bytes[symbols + 32 + 16] ^= 0x55;
    let length = u64::from_le_bytes(bytes[symbols + 16..symbols + 24].try_into().unwrap()) as usize;
    let checksum = crc32fast::hash(&bytes[symbols + 32..symbols + 32 + length]);
    bytes[symbols + 24..symbols + 28].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[symbols..symbols + 28]);
    bytes[symbols + 28..symbols + 32].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&broken, &bytes).unwrap();
    assert!(text(&broken).contains("app+0x"));
    // Cut anywhere behind the recording, it is shown as it would be without symbols, or with them.
    fs::write(&broken, &whole[..symbols]).unwrap();
    let nameless = text(&broken);
    for end in [symbols + 8, symbols + 100, sources, sources + 4, whole.len() - 20, whole.len() - 1] {
        fs::write(&broken, &whole[..end]).unwrap();
        assert_eq!(text(&broken), if end < sources { &*nameless } else { &*right }, "{end}");
    }
    // It can be repaired; a recording that was cut itself can't take symbols.
    successful(place.command(everycall()).args(["embed", "-q", "--remove"]).arg(&broken));
    assert_eq!(fs::read(&broken).unwrap(), whole[..symbols]);
    fs::write(&broken, &whole[..symbols - 48]).unwrap();
    let refused = run(&place, "embed", &broken);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its end is missing"), "{refused:?}");
    assert_eq!(fs::read(&broken).unwrap(), whole[..symbols - 48]);
}
