//! If standard error can't be written, everything else is unchanged: the traced program, the
//! outputs, the exit codes.

mod common;

use common::Workplace;

/// Kinds of unwritable standard error: a full disk, and a closed pipe.
const WAYS: [(&str, &str); 2] =
    [("full", "exec 2>/dev/full"), ("gone", "exec 3> >(exec true); wait $!; exec 2>&3")];

const HOST: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char** words) {
    dlopen("./no-plugin.so", RTLD_NOW);
    if (count > 2) sleep(60);
    return count > 1 ? atoi(words[1]) : 0;
}
"#;

/// Runs an everycall command with a standard error of each kind. Afterwards, either all of
/// `outputs` exist, or none.
fn ends(here: &Workplace, line: &str, code: i32, outputs: &[&str]) {
    for (kind, way) in WAYS {
        let outcome = here.shell(&format!("{way}; exec $EVERYCALL {line}"));
        assert_eq!(outcome.code, Some(code), "{line}, {kind}: {outcome:?}");
        for output in outputs {
            assert!(!here.read(output).is_empty(), "{line}, {kind}: {output} is empty");
            std::fs::remove_file(here.path(output)).unwrap();
        }
    }
}

#[test]
fn commands_work_with_standard_error_closed() {
    let here = Workplace::new();
    here.write("host.c", HOST);
    here.succeed("cc -- gcc -O1 -g host.c -o host");
    // Reports.
    ends(&here, "record -o e.ect -- ./host 7", 7, &["e.ect"]);
    ends(&here, "record --stream -o e.ect -- ./host 7", 7, &["e.ect"]);
    ends(&here, "resolve --trigger 'main > 20ms' -o set.ecs ./host", 0, &["set.ecs"]);
    here.succeed("record -q -o e.ect -- ./host");
    ends(&here, "export -o e.json e.ect", 0, &["e.json"]);
    ends(&here, "integrate files", 0, &["files/lib/pkgconfig/everycall-nops.pc"]);
    // Warnings before the program starts.
    ends(&here, "record --trigger 'plugin_wrk > 20ms' -o z.ect -- ./host 7", 7, &["z.ect"]);
    let odd_size = "exec env EVERYCALL_RING_SIZE=odd $EVERYCALL record -o z.ect -- ./host 7";
    let outcome = here.shell(&format!("exec 2>/dev/full; {odd_size}"));
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    // Failures.
    ends(&here, "info /nonexist", 1, &[]);
    ends(&here, "record -o n.ect -- ./nonexist", 127, &[]);
    ends(&here, "record -o n.ect -- ./host.c", 126, &[]);
    ends(&here, "record -o /dev/full -- ./host 7", 125, &[]);
    ends(&here, "export --no-such-option", 2, &[]);
    for words in ["--help", "cc --help"] {
        let outcome = here.shell(&format!("exec $EVERYCALL {words} >/dev/full 2>&1"));
        assert_eq!(outcome.code, Some(0), "{words}: {outcome:?}");
    }
    ends(&here, "cc", 2, &[]);
    ends(&here, "cc -- no-such-gcc", 127, &[]);
    ends(&here, "snapshot 4194304", 1, &[]);
    ends(&here, "ps", 0, &[]);
}

#[test]
fn the_living_and_the_dead_are_read_without_a_word() {
    let here = Workplace::new();
    here.write("host.c", HOST);
    here.succeed("cc -- gcc -O1 -g host.c -o host");
    let mut host = std::process::Command::new(here.path("host"))
        .args(["0", "sleep"])
        .current_dir(here.path(""))
        .env("EVERYCALL_CRASH", here.path(""))
        .spawn()
        .unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    let snapshot = format!("snapshot -q -o s.ect {}", host.id());
    while here.run(&snapshot).code != Some(0) {
        assert!(std::time::Instant::now() < deadline, "no snapshot of the program");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ends(&here, &format!("snapshot -o s.ect {}", host.id()), 0, &["s.ect"]);
    host.kill().unwrap();
    host.wait().unwrap();
    let crash = here.files().into_iter().find(|name| name.ends_with(".arena")).unwrap();
    ends(&here, &format!("core -o c.ect '{crash}'"), 0, &["c.ect"]);
}
