//! The files under outputs' names if no program is started, if another file existed before, and in
//! series.

use crate::common::{Workplace, is_failure};

const LOOP: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) int leaf(int x) { asm volatile(""); return x + 1; }
__attribute__((noinline)) int other(int x) { asm volatile(""); return x + 2; }
int main(int count, char** words) {
    int calls = count > 1 ? atoi(words[1]) : 10;
    unsigned random = 1;
    for (int i = 0; i < calls; ++i) {
        random = random * 1664525 + 1013904223;
        leaf(i);
        if (random >> 31) other(i);
    }
    return 0;
}
"#;

/// A file that looks like an older trace.
const OLD: &[u8] = b"everycall trace\nold";

fn build(here: &Workplace) {
    here.write("loop.c", LOOP);
    here.succeed("cc -- gcc -O1 -g loop.c -o loop");
}

#[test]
fn an_older_trace_stays_if_the_program_cant_be_started() {
    let here = Workplace::new();
    build(&here);
    here.write("noise", [0, 1, 2, 3]);
    assert_eq!(here.shell("chmod +x noise").code, Some(0));
    for is_first in [true, false] {
        let before = here.files();
        for rotated in ["", "--keep-files 1"] {
            let record = format!("record --stream {rotated} -o o.ect --");
            for (program, code) in [("./nowhere", 127), ("./noise", 126), ("./loop.c", 126)] {
                here.fail(&format!("{record} {program}"), code, &[program]);
            }
            let limited = here.shell(&format!("ulimit -f 64; exec $EVERYCALL {record} ./loop"));
            is_failure("ulimit -f", &limited, 125, &["RLIMIT_FSIZE"]);
        }
        assert_eq!(here.files(), before);
        if is_first {
            here.write("o.ect", OLD);
            here.write("o.0001.ect", OLD);
        }
    }
    assert_eq!((here.read("o.ect"), here.read("o.0001.ect")), (OLD.to_vec(), OLD.to_vec()));
    here.succeed("record -q --stream -o o.ect -- ./loop");
    assert!(here.succeed("replay o.ect").stdout.contains("leaf"));
}

#[test]
fn a_stream_can_be_read_while_the_program_runs() {
    let here = Workplace::new();
    here.write("wait.c", "#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1) != 0; }\n");
    here.succeed("cc -- gcc -O1 -g wait.c -o wait");
    here.write("o.ect", OLD);
    let mut record = here
        .command()
        .args(["record", "-q", "--stream", "-o", "o.ect", "--", "./wait"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while here.run("info o.ect").code != Some(0) {
        assert!(std::time::Instant::now() < deadline, "no trace while the program runs");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // A recorder is not traced itself; the message names the traced processes.
    let asked = here.run(&format!("snapshot {}", record.id()));
    is_failure(
        "snapshot of record",
        &asked,
        1,
        &["this is `everycall record` itself", "everycall snapshot "],
    );
    let program = asked.stderr.trim_end().rsplit(' ').next().unwrap();
    assert!(
        here.run(&format!("snapshot -o s.ect --last 1s {program}"))
            .stderr
            .contains("next: everycall view s.ect")
    );
    drop(record.stdin.take());
    assert_eq!(record.wait().unwrap().code(), Some(0));
    assert!(here.succeed("replay o.ect").stdout.contains("main"));
}

#[test]
fn rotation_that_makes_no_sense_is_refused() {
    let here = Workplace::new();
    build(&here);
    for (option, words) in [
        ("--file-age 0s", "100ms"),
        ("--file-age 1ms", "100ms"),
        ("--file-age soon", "such as"),
        ("--file-size 1", "64K"),
        ("--file-size 63K", "64K"),
        ("--stream-memory 1K", "64K"),
    ] {
        here.fail(&format!("record --stream {option} -o o.ect -- ./loop"), 2, &[words]);
    }
    here.succeed(
        "record -q --stream --file-age 100ms --file-size 64K --stream-memory 64K -o o.ect -- ./loop",
    );
    // On a busy machine the program runs for longer than a file's age.
    assert_eq!(here.files()[..3], ["loop", "loop.c", "o.0001.ect"]);
}

/// Files exceed the requested size only slightly, and files of earlier runs belong to the same
/// series.
#[test]
fn files_have_their_size_and_follow_those_of_earlier_runs() {
    let here = Workplace::new();
    build(&here);
    let rotated = |options: &str, calls: u32| {
        here.succeed(&format!(
            "record -q --stream --stall --file-size 100K {options} -o o.ect -- ./loop {calls}"
        ));
        here.files().into_iter().filter(|name| name.starts_with("o.")).collect::<Vec<_>>()
    };
    let all = rotated("", 2_000_000);
    assert!(all.len() > 5, "{all:?}");
    for file in &all {
        let size = here.read(file).len();
        assert!(size < 200 << 10, "{file}: {size} bytes");
    }
    // Each file says which part of the run it contains.
    let covers = |file: &str| {
        let page = here.succeed(&format!("info {file}")).stdout;
        page.lines().find(|line| line.starts_with("covers")).unwrap().to_owned()
    };
    assert!(
        !covers("o.0001.ect").contains("from") && covers("o.0003.ect").contains(", from "),
        "{}",
        covers("o.0003.ect")
    );
    let first = here.read("o.0001.ect");
    here.write("o.0003.ect.old", "another");
    here.write("o.77.ect", "another");
    // No file is overwritten: the next number follows.
    let more = rotated("", 10);
    assert_eq!(more.len(), all.len() + 3);
    assert_eq!(here.read("o.0001.ect"), first);
    let next = format!("o.{:04}.ect", all.len() + 1);
    assert!(here.succeed(&format!("info {next}")).stdout.contains(" of 3 functions"));
    // Gaps in the numbers are harmless.
    std::fs::remove_file(here.path("o.0002.ect")).unwrap();
    let kept = rotated("--keep-files 3", 10);
    let wanted: Vec<String> = (all.len()..all.len() + 3).map(|number| format!("o.{number:04}.ect")).collect();
    assert_eq!(kept, [&["o.0003.ect.old".to_owned()][..], &wanted, &["o.77.ect".to_owned()]].concat());
    assert_eq!(rotated("--keep-files 1", 1_000_000).len(), 3);
}

#[test]
fn default_names_follow_no_link() {
    let here = Workplace::new();
    build(&here);
    here.succeed("record -q -o t.ect -- ./loop");
    here.write("victim", "precious");
    for (name, line, code) in [
        ("loop.ect", "record -- ./loop", 125),
        ("loop.ect", "record --stream -- ./loop", 125),
        ("t.json", "export t.ect", 1),
        ("loop.ecs", "resolve --trigger leaf>1s ./loop", 1),
        ("t.ect.ect", "core t.ect", 1),
    ] {
        std::os::unix::fs::symlink("victim", here.path(name)).unwrap();
        if !line.starts_with("core") {
            here.fail(line, code, &[name, "symbolic link", "-o"]);
        } else {
            // The input isn't a core, which is reported first.
            here.fail(line, code, &[]);
        }
        assert_eq!(here.read("victim"), b"precious");
        std::fs::remove_file(here.path(name)).unwrap();
    }
    // A link of the same user is followed if the user named it.
    std::os::unix::fs::symlink("target.ect", here.path("mine.ect")).unwrap();
    here.succeed("record -q -o mine.ect -- ./loop");
    here.succeed("record -q --stream -o mine.ect -- ./loop");
    assert!(std::fs::symlink_metadata(here.path("mine.ect")).unwrap().is_symlink());
    assert!(here.succeed("replay target.ect").stdout.contains("leaf"));
}

#[test]
fn what_is_read_is_not_overwritten() {
    let here = Workplace::new();
    build(&here);
    here.succeed("record -q -o t.ect -- ./loop");
    std::os::unix::fs::symlink("t.ect", here.path("link.ect")).unwrap();
    std::fs::hard_link(here.path("t.ect"), here.path("twin.ect")).unwrap();
    std::fs::copy(here.path("t.ect"), here.path("t.json")).unwrap();
    let (trace, program) = (here.read("t.ect"), here.read("loop"));
    for (line, code) in [
        ("export -o t.ect t.ect", 2),
        ("export -o ./link.ect t.ect", 2),
        ("export -o t.ect twin.ect", 2),
        ("export t.json", 2),
        ("core -o t.ect t.ect", 2),
        ("resolve --trigger leaf>1s -o loop ./loop", 2),
    ] {
        here.fail(line, code, &["would be overwritten", "-o"]);
        assert!(here.read("t.ect") == trace && here.read("loop") == program, "{line}");
    }
}

/// Each output of each verb replaces an older one of its format, and no file of the user's.
#[test]
fn only_files_of_everycall_are_replaced() {
    let here = Workplace::new();
    build(&here);
    here.succeed("record -q -o t.ect -- ./loop");
    let formats = [
        "vizviewer",
        "chrome",
        "perfetto",
        "csv",
        "jsonl",
        "parquet",
        "speedscope",
        "firefox",
        "folded",
        "flamegraph",
        "pprof",
        "callgrind",
        "dot",
        "mermaid",
    ];
    let mut lines: Vec<String> = formats.map(|format| format!("export -f {format} -o out t.ect")).into();
    let help = here.succeed("export --help").stdout;
    assert!(formats.iter().all(|format| help.contains(&format!("- {format}:"))), "{help}");
    assert_eq!(
        help.lines().filter(|line| line.trim().starts_with("- ")).count(),
        formats.len() + 3,
        "{help}"
    );
    lines.extend(
        [
            "record -q -o out -- ./loop",
            "record -q --stream -o out -- ./loop",
            "count -o out -- ./loop",
            "merge -q -o out t.ect",
            "view --html out t.ect",
            "cull --budget 0.001% -o out t.ect",
            "resolve -q --trigger leaf>1s -o out ./loop",
            "resolve -q --only leaf -o out ./loop",
            "sql -f parquet -o out t.ect select/**/1/**/as/**/x",
            "import -q -o out source.json",
        ]
        .map(String::from),
    );
    here.succeed("export -f chrome -o source.json t.ect");
    for line in &lines {
        let _ = std::fs::remove_file(here.path("out"));
        for other in ["print('mine')\n", "PAR1 but not everycall's PAR1", "{\"traceEvents\":[]}", "a;b 7\n"] {
            here.write("out", other);
            let outcome = here.run(line);
            assert!(
                outcome.code != Some(0) && outcome.stderr.contains("--force"),
                "{line} over {other}: {outcome:?}"
            );
            assert_eq!(here.read("out"), other.as_bytes(), "{line}");
        }
        // The user may want it so.
        let (verb, rest) = line.split_once(' ').unwrap();
        here.succeed(&format!("{verb} --force {rest}"));
        assert!(!here.path("out.old").exists(), "{line}");
        let first = here.read("out");
        here.succeed(line);
        // A copy has no attribute: the content tells, if the format has a place for that.
        here.write("out", &first);
        if !line.contains("folded") {
            here.succeed(line);
        } else {
            assert!(here.run(line).stderr.contains("--force"));
        }
        if ["record", "count"].contains(&verb) {
            assert_eq!(here.read("out.old"), first, "{line}");
            std::fs::remove_file(here.path("out.old")).unwrap();
        }
        assert!(!here.path("out.old").exists(), "{line}");
    }
}

/// A file of the user's stays where it is, also when it would be moved out of the way.
#[test]
fn the_last_recording_stays_and_names_may_be_unique() {
    let here = Workplace::new();
    build(&here);
    here.write("loop.ect", "");
    here.write("loop.ect.old", "mine");
    here.succeed("record -q -- ./loop");
    let first = here.read("loop.ect");
    here.succeed("record -q -- ./loop");
    assert_eq!(here.read("loop.ect.old"), b"mine");
    let aside = here.files().into_iter().find(|name| name.starts_with("loop.ect.old-")).unwrap();
    assert_eq!(here.read(&aside), first);

    let before = here.files();
    here.succeed("record -q -o %p-%t-%%-%x.ect -- ./loop");
    here.succeed("record -q -o %p-%t-%%-%x.ect -- ./loop");
    let new: Vec<String> = here.files().into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(new.len(), 2, "{new:?}");
    for name in new {
        let (stamp, rest) = name.split_once("-%-%x.ect").unwrap();
        let parts: Vec<&str> = stamp.split('-').collect();
        assert_eq!((parts.len(), rest), (3, ""), "{name}");
        assert!(parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())), "{name}");
    }
    // Numbers of a series are no reason to remove a file of the user's.
    here.write("o.0001.ect", "mine");
    here.succeed("record -q --stream --keep-files 1 -o o.ect -- ./loop");
    assert_eq!(here.read("o.0001.ect"), b"mine");
}
