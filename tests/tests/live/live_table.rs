//! `everycall count PID --every` and `everycall tui` on a terminal. What they draw is read by a
//! terminal emulator of others, and checked against what the program does, and what `everycall
//! report` says.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use everycall_tests::{Mode, Place, Standing, everycall, successful, wait};
use rustix::fs::{Mode as Permissions, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// Ten calls of one function for each of the other, until its input ends.
const PROGRAM: &str = r#"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
static volatile int sink;
__attribute__((noinline)) void often_called(void) { sink++; }
__attribute__((noinline)) void now_and_then(void) { sink++; }
int main(void) {
    for (int round = 0;; round++) {
        for (int i = 0; i < 10; i++) often_called();
        now_and_then();
        if (round == 0) { puts("ready"); fflush(stdout); }
        struct pollfd in = { .fd = 0, .events = POLLIN };
        if (poll(&in, 1, 1) > 0) return 0;
    }
}
"#;

/// `everycall` on a terminal.
struct Terminal {
    child: Child,
    keys: File,
    /// The other end, whose modes are to stay.
    theirs: OwnedFd,
    before: Termios,
    emulator: Arc<Mutex<vt100::Parser>>,
    reader: JoinHandle<()>,
}

fn size(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    fn counting(place: &Place, pid: u32) -> Terminal {
        Terminal::of(place, &["count", "--every", "100ms", &pid.to_string()])
    }

    fn of(place: &Place, words: &[&str]) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a pseudo-terminal");
        tcsetwinsize(&ours, size(80, 24)).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Permissions::empty())
            .expect("its other end");
        let before = tcgetattr(&theirs).expect("its modes");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        // So that it is the terminal of a session, which is told when its size changes.
        let mut command = place.command("setsid");
        command.arg("--ctty").arg(everycall()).args(words);
        let child = command
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn();
        let emulator = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
        let mut output = File::from(ours.try_clone().expect("a descriptor"));
        let screen = Arc::clone(&emulator);
        let reader = std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut some) {
                screen.lock().expect("the emulator").process(&some[..count]);
            }
        });
        Terminal {
            child: child.expect("it starts"),
            keys: File::from(ours),
            theirs,
            before,
            emulator,
            reader,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("written");
    }

    fn lines(&self) -> Vec<String> {
        let emulator = self.emulator.lock().expect("the emulator");
        emulator.screen().contents().lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until the lines are like this.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        let mut last = Vec::new();
        let begin = std::time::Instant::now();
        while begin.elapsed() < wait::PATIENCE {
            last = self.lines();
            if is_so(&last) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{what}: not so: {last:#?}");
    }

    fn resize(&self, columns: u16, lines: u16) {
        {
            let mut emulator = self.emulator.lock().expect("the emulator");
            emulator.screen_mut().set_size(lines, columns);
            // Rows seen from now on were drawn since: in the old size, other rows are last.
            emulator.process(b"\x1b[2J");
        }
        tcsetwinsize(&self.keys, size(columns, lines)).expect("a size");
    }

    fn tell(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it is there");
    }

    /// It has ended, and the terminal is as before. Returns what stays on it.
    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("it ends");
        let after = tcgetattr(&self.theirs).expect("its modes");
        let modes = |of: &Termios| (of.local_modes, of.input_modes, of.output_modes, of.control_modes);
        assert_eq!(modes(&after), modes(&self.before));
        drop(self.theirs);
        drop(self.keys);
        self.reader.join().expect("all is read");
        let emulator = self.emulator.lock().expect("the emulator");
        let screen = emulator.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        (status, screen.contents())
    }
}

struct Counted {
    place: Place,
    program: PathBuf,
}

impl Counted {
    fn built(name: &str) -> Counted {
        let place = Place::new(name);
        place.write("steady.c", PROGRAM);
        let program = place.build(Mode::GCC_NOPS, &["-O2", "steady.c"], "steady");
        Counted { place, program }
    }

    fn standing(&self) -> Standing {
        Standing::start(self.place.command(&self.program).env("EVERYCALL_COUNT", "calls"))
    }
}

/// The numbers of a function: calls per second and all calls.
fn numbers(lines: &[String], function: &str) -> Option<(u64, u64)> {
    let row = lines.iter().find(|line| line.ends_with(function))?;
    let number = |text: &str| text.replace(',', "").parse().ok();
    let mut words = row.split_whitespace();
    Some((number(words.next()?)?, number(words.next()?)?))
}

fn shows(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

#[test]
fn it_shows_rates_sorts_and_filters_as_keys_say() {
    let counted = Counted::built("live-table");
    let standing = counted.standing();
    let mut terminal = Terminal::counting(&counted.place, standing.pid);
    terminal.until("rates", |lines| {
        let often = numbers(lines, "often_called");
        often.zip(numbers(lines, "now_and_then")).is_some_and(|(often, other)| {
            // A reading may be within a round.
            other.0 > 0 && often.0 > other.0 && often.1.abs_diff(10 * other.1) <= 10
        })
    });
    assert!(terminal.emulator.lock().expect("the emulator").screen().alternate_screen());
    let place = |lines: &[String], name: &str| lines.iter().position(|line| line.ends_with(name));
    terminal.until("sorted by rate", |lines| {
        place(lines, "often_called") == Some(3) && place(lines, "now_and_then") == Some(4)
    });
    let sorted_by = |lines: &[String], column: &str| lines.get(2).is_some_and(|line| line.contains(column));
    terminal.until("the column is marked", |lines| sorted_by(lines, "calls/s▼"));
    terminal.press("s");
    terminal.until("sorted by all calls", |lines| sorted_by(lines, "calls▼"));
    terminal.press("s");
    // As one types, each key counts; `q` is a letter there.
    terminal.press("/NOW_");
    terminal.until("filtered", |lines| shows(lines, "now_and_then") && !shows(lines, "often_called"));
    terminal.press("q");
    terminal.until("nothing is called so", |lines| {
        shows(lines, "/NOW_q") && !shows(lines, "now_and_then") && !shows(lines, "often_called")
    });
    terminal.press("\u{1b}");
    terminal.until("all again", |lines| shows(lines, "now_and_then") && shows(lines, "often_called"));
    // A small terminal has fewer rows and no longer lines.
    terminal.resize(40, 4);
    terminal.until("one row", |lines| {
        lines.len() == 4 && lines[3].ends_with("often_called") && !shows(lines, "now_and_then")
    });
    terminal.press("\u{1b}[B");
    terminal.until("scrolled", |lines| shows(lines, "now_and_then") && !shows(lines, "often_called"));
    terminal.resize(100, 30);
    terminal.until("both", |lines| shows(lines, "now_and_then") && shows(lines, "often_called"));
    terminal.press(" ");
    terminal.until("paused", |lines| shows(lines, "(paused)"));
    terminal.press("q");
    let (status, left) = terminal.end();
    assert!(status.success() && left.trim().is_empty(), "{status} {left}");
    let _ = standing.end();
}

#[test]
fn however_it_ends_the_terminal_is_as_before() {
    let counted = Counted::built("live-table-end");
    let standing = counted.standing();
    let pid = standing.pid;
    let begun = || {
        let terminal = Terminal::counting(&counted.place, pid);
        terminal.until("a table", |lines| shows(lines, "often_called"));
        terminal
    };
    let mut terminal = begun();
    terminal.press("\u{3}");
    assert!(terminal.end().0.success(), "ctrl-C");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let terminal = begun();
        terminal.tell(signal);
        assert!(terminal.end().0.success(), "{signal:?}");
    }
    // With the process: its counts stay on the terminal.
    let terminal = begun();
    let _ = standing.end();
    let (status, left) = terminal.end();
    assert!(status.success() && left.contains("has ended") && left.contains("often_called"), "{left}");
}

#[test]
fn without_a_terminal_there_are_lines() {
    let counted = Counted::built("live-table-lines");
    let standing = counted.standing();
    let mut command = counted.place.command(everycall());
    command.args(["count", "--every", "50ms", &standing.pid.to_string()]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut printed = child.stdout.take().expect("its output");
    let mut text = Vec::new();
    while text.windows(12).filter(|some| some == b"often_called").count() < 3 {
        let mut some = [0; 512];
        let count = printed.read(&mut some).expect("more");
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&some[..count]);
    }
    let _ = standing.end();
    assert!(child.wait().expect("it ends").success());
    assert!(!text.contains(&0x1b), "{}", String::from_utf8_lossy(&text));
}

/// A tree of calls, some of them in another thread, of which one takes longest.
const TRACED: &str = r#"
#include <pthread.h>
#include <time.h>
static volatile int sink;
__attribute__((noinline)) void leaf(void) { sink++; }
__attribute__((noinline)) void branch(int leaves) { for (int i = 0; i < leaves; i++) leaf(); }
__attribute__((noinline)) void sleeper(long ms) {
    struct timespec time = { 0, ms * 1000000 };
    nanosleep(&time, 0);
}
static void *worker(void *none) { branch(20); return none; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, worker, 0);
    for (int i = 1; i < 30; i++) branch(i);
    sleeper(1);
    sleeper(30);
    sleeper(2);
    pthread_join(thread, 0);
    return 0;
}
"#;

/// A trace of it.
fn traced(name: &str) -> Place {
    let place = Place::new(name);
    place.write("tree.c", TRACED);
    place.build(Mode::GCC_NOPS, &["-O2", "-g", "-pthread", "tree.c"], "tree");
    successful(place.command(everycall()).args(["record", "-q", "-o", "tree.ect", "--", "./tree"]));
    place
}

/// By function: calls, total and own time, as `report` has them.
fn reported(place: &Place) -> Vec<(String, u64, u64, u64)> {
    let out =
        place.command(everycall()).args(["report", "-f", "json", "tree.ect"]).output().expect("it runs");
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let rows = report["rows"].as_array().expect("rows");
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number");
    let row = |row: &serde_json::Value| {
        let name = row["name"].as_str().expect("a name").to_owned();
        (name, number(row, "calls"), number(row, "total_ns"), number(row, "own_ns"))
    };
    rows.iter().map(row).collect()
}

#[test]
fn tui_shows_the_numbers_of_report_and_leads_to_the_slowest_call() {
    let place = traced("tui");
    let reported = reported(&place);
    let mut terminal = Terminal::of(&place, &["tui", "tree.ect"]);
    terminal.until("two threads", |lines| {
        lines.len() > 3
            && lines[0].contains("1 timeline")
            && lines.iter().filter(|line| line.starts_with('▾')).count() == 2
    });
    terminal.press("3");
    let shown = |ns: u64| everycall_units::Duration { ns }.to_string().replace(' ', "");
    let is_row = |line: &String, (name, calls, total, own): &(String, u64, u64, u64)| {
        // Numbers have a space before their unit.
        let line = line.replace(' ', "");
        line.starts_with(&format!("{}{}{}", shown(*total), shown(*own), everycall_units::Count(*calls)))
            && line.ends_with(name)
    };
    terminal.until("all rows of the report", |lines| {
        reported.iter().all(|row| lines.iter().any(|line| is_row(line, row)))
    });
    // The tree has the same calls.
    terminal.press("2");
    terminal.until("a tree", |lines| {
        shows(lines, "▾ main") && lines.last().is_some_and(|line| line.contains("fold"))
    });
    // Below `main`, and in the last row, which is the other thread's.
    terminal.press("E\u{1b}[FE");
    let leaves = reported.iter().find(|row| row.0 == "leaf").expect("leaf").1;
    terminal.until("its calls by path", |lines| {
        let calls =
            |line: &&String| line.split_whitespace().rev().nth(1).and_then(|word| word.parse::<u64>().ok());
        lines.iter().filter(|line| line.ends_with(" leaf")).filter_map(|line| calls(&line)).sum::<u64>()
            == leaves
    });
    // The slowest call of a function, in the timeline.
    terminal.press("3fslee\r\r");
    terminal.until("three calls", |lines| {
        lines.iter().filter(|line| line.contains("ms") && line.contains("tree")).count() == 3
    });
    terminal.press("\r");
    let mut command = place.command(everycall());
    let slowest = successful(command.args(["report", "--slowest", "sleeper", "-f", "json", "tree.ect"]));
    let slowest: serde_json::Value = serde_json::from_str(&slowest).expect("JSON");
    let longest = shown(slowest["rows"][0]["dur_ns"].as_u64().expect("a duration"));
    terminal.until("the longest is selected", |lines| {
        let has_duration = |line: &String| line.replace(' ', "").contains(&format!("duration{longest}own"));
        lines.iter().any(|line| line.trim() == "sleeper")
            && lines.iter().any(has_duration)
            && lines.iter().any(|line| line.contains("tree.c:"))
    });
    terminal.resize(200, 50);
    terminal.until("a larger picture", |lines| lines.len() == 50 && lines[49].contains("q quit"));
    terminal.resize(30, 6);
    terminal.until("a smaller picture", |lines| lines.len() == 6);
    terminal.resize(80, 24);
    terminal.press("0/LEA\r");
    terminal.until("the first hit", |lines| shows(lines, &format!("LEA: 1 of {leaves}")));
    terminal.press("N");
    terminal.until("the last hit", |lines| shows(lines, &format!("LEA: {leaves} of {leaves}")));
    terminal.press("q");
    let (status, left) = terminal.end();
    assert!(status.success() && left.trim().is_empty(), "{status} {left}");
}

#[test]
fn tui_gives_the_terminal_back_however_it_ends() {
    let place = traced("tui-end");
    let begun = || {
        let terminal = Terminal::of(&place, &["tui", "tree.ect"]);
        terminal.until("a picture", |lines| shows(lines, "q quit"));
        terminal
    };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let terminal = begun();
        terminal.tell(signal);
        assert!(terminal.end().0.success(), "{signal:?}");
    }
    // Stopped and continued by a key, and by a signal.
    let mut terminal = begun();
    for by_key in [true, false] {
        if by_key {
            terminal.press("\u{1a}")
        } else {
            terminal.tell(Signal::TSTP)
        }
        let stat = format!("/proc/{}/stat", terminal.child.id());
        let state = || {
            let stat = std::fs::read_to_string(&stat).expect("it is there");
            stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next())
        };
        terminal.until("the terminal of before, and a process that is stopped", |_| {
            state() == Some('T')
                && !terminal.emulator.lock().expect("the emulator").screen().alternate_screen()
        });
        let modes = tcgetattr(&terminal.theirs).expect("its modes");
        assert_eq!(modes.local_modes, terminal.before.local_modes);
        terminal.tell(Signal::CONT);
        terminal.until("the picture", |lines| {
            shows(lines, "q quit")
                && terminal.emulator.lock().expect("the emulator").screen().alternate_screen()
        });
    }
    terminal.press("q");
    assert!(terminal.end().0.success());
}

#[test]
fn tui_without_a_terminal_says_what_to_use() {
    let place = traced("tui-none");
    let out =
        place.command(everycall()).args(["tui", "tree.ect"]).stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && out.stdout.is_empty());
    assert!(text.contains("everycall report tree.ect") && text.lines().count() == 1, "{text}");
}

#[test]
fn tui_ends_when_its_terminal_is_gone() {
    let place = traced("tui-gone");
    // In the middle of a key, the library that reads keys would never return.
    for typed in ["", "\x1b["] {
        ends_with_its_terminal(&place, typed);
    }
}

fn ends_with_its_terminal(place: &Place, typed: &str) {
    let ours =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pseudo-terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a pseudo-terminal");
    let name = ptsname(&ours, Vec::new()).expect("its name");
    let end = || {
        open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Permissions::empty())
            .expect("its other end")
    };
    // It isn't the terminal of a session, so no signal tells it.
    let mut command = place.command(everycall());
    command.args(["tui", "tree.ect"]).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut ours = File::from(ours);
    let mut text = Vec::new();
    while !text.windows(6).any(|some| some == b"q quit") {
        let mut some = [0; 4096];
        let count = ours.read(&mut some).expect("a picture");
        text.extend_from_slice(&some[..count]);
    }
    ours.write_all(typed.as_bytes()).expect("keys");
    drop(ours);
    assert!(!child.wait().expect("it ends").success());
}

/// The calls of each function.
fn calls(json: &str) -> std::collections::BTreeMap<String, u64> {
    let table: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let rows = table["rows"].as_array().expect("rows").iter();
    let of = |row: &serde_json::Value| {
        (row["name"].as_str().expect("a name").to_owned(), row["calls"].as_u64().expect("a number"))
    };
    rows.map(of).collect()
}

/// Counts begin from 0 again at an earlier reading, whether the process counts or records.
#[test]
fn what_came_since_an_earlier_reading_is_shown() {
    let Counted { place, program } = &Counted::built("since");
    for how in [Some("calls"), Some("time"), None] {
        let mut command = place.command(program);
        command.envs(how.map(|how| ("EVERYCALL_COUNT", how)));
        let standing = Standing::start(&mut command);
        let pid = standing.pid.to_string();
        let count = |more: &[&str]| {
            let mut command = place.command(everycall());
            calls(&successful(command.args(["count", &pid, "-f", "json"]).args(more)))
        };
        let before = count(&["-o", "before.ect"]);
        wait::until("more calls", || count(&[])["often_called"] > before["often_called"]);
        let since = count(&["-o", "now.ect", "--since", "before.ect"]);
        let now = calls(&successful(place.command(everycall()).args(["report", "-f", "json", "now.ect"])));
        for function in ["often_called", "now_and_then"] {
            assert_eq!(since[function], now[function] - before[function], "{how:?}: {function}");
        }
        // It was called once, before.
        assert!(!since.contains_key("main"), "{how:?}: {since:?}");
        let mut other = place.command(program);
        let other = Standing::start(other.env("EVERYCALL_COUNT", "calls"));
        let mut command = place.command(everycall());
        let refused = command.args(["count", &other.pid.to_string(), "--since", "before.ect"]).output();
        let said = String::from_utf8_lossy(&refused.expect("it starts").stderr).into_owned();
        assert!(said.contains(&format!("has counts of process {pid}")), "{said}");
        // A session of which only counts are wanted says how many there are.
        if how.is_none() {
            let mut command = place.command(everycall());
            let session = ["trace", "--counts", "--for", "1s", "-o", "session.ect", &pid, "often_called"];
            let said = command.args(session).output().expect("it starts").stderr;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("calls were counted") && said.contains("report session.ect"), "{said}");
            assert!(!said.contains("no traced function was called"), "{said}");
        }
        let _ = (other.end(), standing.end());
    }
}
