//! `everycall count PID --every` on a terminal. What it draws is read by a terminal emulator of others, and checked against what the
//! program does.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use everycall_tests::{Mode, Place, Standing, everycall, wait};
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

/// `everycall count` on a terminal.
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
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a pseudo-terminal");
        tcsetwinsize(&ours, size(80, 24)).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY, Permissions::empty()).expect("its other end");
        let before = tcgetattr(&theirs).expect("its modes");
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        // So that it is the terminal of a session, which is told when its size changes.
        let mut command = place.command("setsid");
        command.arg("--ctty").arg(everycall()).args(["count", "--every", "100ms", &pid.to_string()]);
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn();
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
        emulator.screen().contents().lines().map(str::to_owned).collect()
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
            // What is seen from now on was drawn since: in the old size, other rows are last.
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
