//! Inlined calls of real programs in every output.

use crate::common::Workplace;
use serde_json::{Value, json};

const HEADER: &str = "\
static inline int half(int x) { sink += x; return x / 2; }
static inline int quarter(int x) { return half(half(x)); }
";
const PROGRAM: &str = r#"
volatile int sink;
#include "header.h"
__attribute__((noinline)) int user(int x) {
  sink++;
  int y = quarter(x + 3);
  return y + 1;
}
__attribute__((noinline)) int plain(int x) { sink -= x; return x; }
int main(void) {
  for (int i = 0; i < 3; i++) sink += user(i);
  return plain(0);
}
"#;

#[test]
fn inlined_calls_are_shown_without_times() {
    for (mode, compiler) in [
        ("nops", "gcc"),
        ("fentry", "gcc"),
        ("xray", "clang-19"),
        ("xray", "clang-22"),
        ("nops", "gcc -flto"),
    ] {
        let here = Workplace::new();
        here.write("header.h", HEADER);
        here.write("app.c", PROGRAM);
        here.succeed(&format!("cc --mode {mode} -- {compiler} -O2 -g app.c -o app"));
        here.succeed("record -q -o app.ect -- ./app");

        let tree = here.succeed("replay --inlines app.ect").stdout;
        let lines: Vec<&str> = tree.lines().map(str::trim).collect();
        let wanted = [
            "- quarter  inlined at app.c:6, not timed",
            "- half  inlined at header.h:2, not timed",
            "- half  inlined at header.h:2, not timed",
        ];
        let at = lines.iter().position(|line| *line == wanted[0]).unwrap_or_else(|| panic!("{tree}"));
        assert!(lines[at - 1].contains("user  "), "{compiler} {mode}: {tree}");
        assert_eq!(lines[at..at + 3], wanted, "{compiler} {mode}: {tree}");
        assert_eq!(lines.iter().filter(|line| **line == wanted[0]).count(), 3, "below each call");
        // They are not calls.
        assert_eq!(lines.iter().filter(|line| line.contains(" ms  ") && line.contains("quarter")).count(), 0);
        let indent = |name: &str| {
            let line = tree.lines().find(|line| line.contains(name)).unwrap();
            line.len() - line.trim_start().len()
        };
        assert_eq!(indent("- half"), indent("- quarter") + 2);
        let plain = here.succeed("replay app.ect").stdout;
        assert!(!plain.contains("inlined") && plain.contains("user  "), "{plain}");

        let calls = here.succeed("replay --inlines --format json app.ect").stdout;
        let user = calls.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let user = user.into_iter().find(|call| call["name"] == "user").unwrap();
        assert_eq!(
            user["inlined_not_timed"],
            json!([
                {"level": 0, "name": "quarter", "at": "app.c:6"},
                {"level": 1, "name": "half", "at": "header.h:2"},
                {"level": 1, "name": "half", "at": "header.h:2"},
            ])
        );

        here.succeed("export -f vizviewer -o app.json app.ect");
        let json: Value = serde_json::from_slice(&here.read("app.json")).unwrap();
        let slices = json["traceEvents"].as_array().unwrap();
        let slices = slices.iter().filter(|slice| slice["name"] == "user (app.c:4)").collect::<Vec<_>>();
        let text = "quarter at app.c:6 { half at header.h:2; half at header.h:2 }";
        assert_eq!(slices.len(), 3);
        assert!(slices.iter().all(|slice| slice["args"]["inlined_not_timed"] == text), "{slices:?}");
        here.succeed("export -f vizviewer --no-inlines -o app.json app.ect");
        assert!(!String::from_utf8(here.read("app.json")).unwrap().contains("inlined"));

        here.succeed("export -f perfetto -o app.pftrace app.ect");
        let packets = String::from_utf8_lossy(&here.read("app.pftrace")).into_owned();
        assert_eq!(packets.matches(text).count(), 1, "written once");
    }
}

/// In JSON, each slice would repeat the inlined calls: large traces leave them out, and say so.
#[test]
fn large_files_leave_them_out_unless_asked() {
    let here = Workplace::new();
    here.write("header.h", HEADER);
    here.write(
        "app.c",
        PROGRAM.replace("return plain(0);", "for (int i = 0; i < 1000001; i++) sink += plain(i); return 0;"),
    );
    here.succeed("cc -- gcc -O2 -g app.c -o app");
    here.succeed("record -q --ring-size 32M -o app.ect -- ./app");
    let part = "--function ^user$ -o app.json app.ect";
    let shown = |options: &str| {
        let outcome = here.succeed(&format!("export {options} {part}"));
        let file = String::from_utf8_lossy(&here.read("app.json")).into_owned();
        (file.contains("quarter at app.c:6"), outcome.stderr.contains("--inlines includes them"))
    };
    assert_eq!(shown("-f chrome"), (false, true));
    assert_eq!(shown("-f chrome --inlines"), (true, false));
    assert_eq!(shown("-f chrome --no-inlines"), (false, false));
    assert_eq!(shown("-f perfetto"), (true, false));
}

/// Without debugging information there is nothing to tell, and nothing is invented.
#[test]
fn no_inlined_calls_without_debugging_information() {
    let here = Workplace::new();
    here.write("header.h", HEADER);
    here.write("app.c", PROGRAM);
    here.succeed("cc -- gcc -O2 -g0 app.c -o app");
    here.succeed("record -q -o app.ect -- ./app");
    let tree = here.succeed("replay --inlines app.ect").stdout;
    assert!(tree.contains("user  ") && !tree.contains("inlined"), "{tree}");
}
