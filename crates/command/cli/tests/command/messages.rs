//! If standard error can't be written, everything else is unchanged: the traced program, the
//! outputs, the exit codes.

use crate::common::Workplace;

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

/// Every string that a trace carries, hostile: C0, C1, marks of direction, characters without a
/// shape, invalid UTF-8, and a line that looks like a message.
const HOSTILE: &str = r#"
#define _GNU_SOURCE
#include <everycall.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/prctl.h>
#define EVIL "\033]52;c;ZWNobw==\007\033]0;pwn\007\033[2J\r\nmessage\b\177" \
    "\342\200\256abc\342\201\246\342\200\250\342\200\213\357\273\277\330\234" \
    "\302\2332J\302\23552;c;AA\302\234\363\240\201\201" "\2332J\377"
static const char evil[] = EVIL;
__attribute__((noinline)) void leaf(int i) { everycall_label(evil, i); everycall_instant(evil); everycall_counter(evil, i); }
__attribute__((noinline)) void mid(int i) {
    everycall_span_begin(evil);
    everycall_log("fmt " EVIL " %s %d", evil, i);
    leaf(i);
    everycall_span_end(evil);
}
static void* th(void* p) {
    prctl(PR_SET_NAME, "\033[2J\342\200\256\302\233");
    for (int i = 0; i < 20; i++) mid(i);
    everycall_name_fiber(evil);
    return p;
}
int main(int count, char** words) {
    everycall_name_object(&evil, evil);
    pthread_t t;
    pthread_create(&t, 0, th, 0);
    pthread_join(t, 0);
    prctl(PR_SET_NAME, "\033[2J\342\200\256\302\233");
    for (int i = 0; i < 20; i++) {
        mid(i);
        printf("out %s %d\n", evil, i);
        fflush(stdout);
        fprintf(stderr, "err %s\n", evil);
    }
    everycall_frame_name(7, evil, evil, 3);
    everycall_frame_enter(7);
    mid(3);
    everycall_frame_leave(7);
    everycall_task_begin(5, evil);
    mid(4);
    everycall_task_end(5, 0);
    if (count > 2) {
        char c;
        while (read(0, &c, 1) > 0) mid(5);
    }
    return 0;
}
"#;

/// Characters that make a terminal do something or change how others are shown.
fn steers(character: char) -> bool {
    let code = character as u32;
    code < 0x20 && code != 9 && code != 10
        || (0x7f..0xa0).contains(&code)
        || [0xad, 0x61c, 0x180e, 0xfeff].contains(&code)
        || (0x200b..=0x200f).contains(&code)
        || (0x2028..=0x202e).contains(&code)
        || (0x2060..=0x206f).contains(&code)
        || (0xe0000..=0xe007f).contains(&code)
}

/// The bytes that everycall writes to a terminal of 200 columns.
fn on_a_terminal(here: &Workplace, words: &[&str]) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let mut modes = rustix::termios::tcgetattr(&slave).unwrap();
    modes.make_raw();
    rustix::termios::tcsetattr(&slave, rustix::termios::OptionalActions::Now, &modes).unwrap();
    let size = rustix::termios::Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&slave, size).unwrap();
    let mut command = here.command();
    command.args(words).env("TERM", "xterm-256color").stdin(std::process::Stdio::null());
    command.stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = command.spawn().unwrap();
    // It has the only other ends now.
    drop(command);
    let mut shown = Vec::new();
    let mut piece = [0; 65536];
    let mut master = std::fs::File::from(master);
    // The terminal's end is an error.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Every output of every verb that may reach a terminal, of one hostile trace.
#[test]
fn no_text_of_a_trace_steers_a_terminal() {
    use std::os::unix::ffi::OsStrExt;
    let here = Workplace::new();
    here.write("hostile.c", HOSTILE);
    here.succeed("cc -- gcc -O1 -g -w -pthread hostile.c -o plain");
    // The module's and the process's name, and an argument.
    let name = std::ffi::OsStr::from_bytes(b"ev\x1b[2J\xe2\x80\xae\xc2\x9b\xffil");
    std::fs::rename(here.path("plain"), here.path(name)).unwrap();
    let argument = "\u{1b}]0;a\u{7}\u{202e}\u{9b}";
    std::os::unix::fs::symlink(name, here.path("plain")).unwrap();
    let recorded = here
        .command()
        .args(["record", "-q", "--with-output", "--states=schedstat", "--counters", "-o", "h.ect", "--"])
        .arg(here.path(name))
        .arg(argument)
        .output()
        .unwrap();
    assert_eq!(recorded.status.code(), Some(0), "{recorded:?}");
    let program = here.path(name).into_os_string();
    let mut child = here.command();
    child.args(["record", "-q", "-o", "live.ect", "--"]).arg(&program).args([argument, "wait"]);
    child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = loop {
        let listed = here.succeed("ps --format json").stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let ours = listed["processes"].as_array().unwrap().iter().find(|process| {
            process.to_string().contains(&format!("\"recorder\":{}", child.id()))
                || process["recorder_pid"] == child.id()
        });
        if let Some(process) = ours {
            break process["pid"].to_string();
        }
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let mut lines: Vec<Vec<&str>> = Vec::new();
    let texts = [
        "info h.ect",
        "info -f json h.ect",
        "replay h.ect",
        "replay --color never --inlines h.ect",
        "replay --color always h.ect",
        "replay -f json h.ect",
        "report h.ect",
        "report -f csv h.ect",
        "report -f json h.ect",
        "report --by thread h.ect",
        "report --by process h.ect",
        "report --by module h.ect",
        "report --by file h.ect",
        "report --by path h.ect",
        "report --tree h.ect",
        "report --slowest mid h.ect",
        "report --explain mid h.ect",
        "report --callers leaf h.ect",
        "report --callees main h.ect",
        "report --never h.ect",
        "report --never -f csv h.ect",
        "report --diff h.ect --against h.ect",
        "report --diff h.ect --against h.ect -f csv",
        "report --diff h.ect --against h.ect -f json",
        "cull --budget 0.001% h.ect",
        "resolve --trigger mid>1s -o set ./plain",
        "functions ./plain",
        "functions -f json ./plain",
        "merge -o m h.ect",
        "embed h.ect",
        "ps",
        "ps -f json",
        "export -f perfetto -o - h.ect",
        "import -o i.ect h.json",
        "info i.ect",
        "replay i.ect",
    ];
    lines.extend(texts.iter().map(|line| line.split(' ').collect()));
    here.succeed("export -f chrome -o h.json h.ect");
    let formats = [
        "vizviewer",
        "chrome",
        "csv",
        "jsonl",
        "speedscope",
        "firefox",
        "folded",
        "flamegraph",
        "callgrind",
        "dot",
        "mermaid",
    ];
    lines.extend(formats.map(|format| vec!["export", "-f", format, "-o", "-", "h.ect"]));
    for format in ["text", "csv", "json"] {
        for query in ["select * from slices", "select * from threads", "select * from marks"] {
            lines.push(vec!["sql", "-f", format, "h.ect", query]);
        }
    }
    let live =
        ["functions", "sessions", "snapshot -o s.ect", "trace --for 50ms -o t.ect", "follow --for 300ms"];
    for line in live {
        lines.push(line.split(' ').chain([pid.as_str()]).collect());
    }
    let silently = "./plain >/dev/null 2>&1";
    lines.push(vec!["count", "--launcher", "--", "sh", "-c", silently]);
    lines.push(vec!["record", "--launcher", "-o", "r.ect", "--", "sh", "-c", silently]);
    lines.push(vec!["follow", "--with-output", "*", "--", "./plain", argument]);
    let mut shown_in_all = 0;
    for words in &lines {
        let shown = on_a_terminal(&here, words);
        let mut rest = shown.as_str();
        let mut plain = String::new();
        while let Some(at) = rest.find("\u{1b}[") {
            plain.push_str(&rest[..at]);
            let behind = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
            // A colour, or the end of a line that shows progress.
            match behind.strip_prefix('m').or_else(|| behind.strip_prefix('K')) {
                Some(behind) => rest = behind,
                None => panic!("{words:?}: {:?}", &rest[at..rest.len().min(at + 80)]),
            }
        }
        plain.push_str(rest);
        let plain = plain.replace("\reverycall: ", "");
        if let Some(at) = plain.find(steers) {
            let from = plain[..at].char_indices().rev().nth(60).map_or(0, |(from, _)| from);
            panic!("{words:?}: {:?}", plain[from..].chars().take(120).collect::<String>());
        }
        shown_in_all += usize::from(plain.contains("u{1b}") || plain.contains("u001b"));
    }
    // Otherwise nothing hostile came that far.
    assert!(shown_in_all > 30, "{shown_in_all} of {}", lines.len());
    drop(child.stdin.take());
    child.wait().unwrap();
}
