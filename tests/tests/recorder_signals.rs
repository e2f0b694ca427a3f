//! Signals to `record` once its program has ended: nothing is left that they could be passed on to, so they end it, whatever it waits for.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::{Mode, Place, TraceView, everycall, successful};

const SOURCE: &str = "
#include <unistd.h>
__attribute__((noinline)) void leaf(unsigned x)
{
    for (x = x * 2654435761u >> 22; x; x--)
        __asm__ volatile(\"\");
}
int main(int count, char **words)
{
    for (int i = 0; i < 300000; i++)
        leaf(i);
    if (count > 1 && fork() == 0) {
        leaf(1);
        close(1);
        sleep(60);
    }
    (void)words;
    return 0;
}
";

/// Long enough for a program that makes some calls; its recorder still writes, or waits.
const SOON: Duration = Duration::from_millis(1500);
const LONGEST: Duration = Duration::from_secs(10);

fn ends(child: &mut Child) -> ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begin.elapsed() > LONGEST {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it is deaf");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn send(signal: &str, child: &Child) {
    successful(Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]));
}

/// Whoever reads the trace has stopped reading.
#[test]
fn writing_that_gets_no_further() {
    let place = Place::new("no-further");
    place.write("calls.c", SOURCE);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    let fifo = place.file("trace.fifo");
    successful(Command::new("mkfifo").arg(&fifo));
    // Calls of uneven length don't pack well: what the ring holds is more than a pipe does.
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&fifo).unwrap();
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--ring-size", "16M", "-o"]).arg(&fifo).arg("--").arg(&program);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(SOON);
        if child.try_wait().unwrap().is_some() {
            panic!("the trace fits into the pipe");
        }
        // Those of the first second after the program's end don't count.
        let status = loop {
            send(signal, &child);
            std::thread::sleep(Duration::from_millis(500));
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
        };
        let number = match signal {
            "TERM" => 15,
            "HUP" => 1,
            "INT" => 2,
            _ => 3,
        };
        assert_eq!(status.signal(), Some(number), "{status}");
        drop(reader);
    }
}

/// What hangs up a terminal often comes twice: the second signal must not cost the trace.
#[test]
fn the_same_signal_again_while_the_trace_is_written() {
    let place = Place::new("again");
    place.write("calls.c", &SOURCE.replace("return 0;", "for (;;) pause();"));
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    let fifo = place.file("trace.fifo");
    successful(Command::new("mkfifo").arg(&fifo));
    for (signal, number) in [("HUP", 1), ("TERM", 15)] {
        let mut reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&fifo).unwrap();
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--ring-size", "16M", "-o"]).arg(&fifo).arg("--").arg(&program);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(SOON);
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let lives = || !std::fs::read_to_string(&children).unwrap_or_default().trim().is_empty();
        assert!(lives());
        send(signal, &child);
        while lives() {
            std::thread::sleep(Duration::from_millis(1));
        }
        send(signal, &child);
        // Nonblocking: there may be nothing for a while.
        let mut bytes = Vec::new();
        let status = loop {
            match reader.read_to_end(&mut bytes) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                _ => {}
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = reader.read_to_end(&mut bytes);
        assert_eq!(status.signal(), Some(number), "{status}");
        let trace = place.file("trace.ect");
        std::fs::write(&trace, &bytes).unwrap();
        assert_eq!(TraceView::open(&trace).calls("leaf"), 300_000, "{signal}");
    }
}

/// With `--wait`, the trace is written when nobody wants to wait any longer.
#[test]
fn waiting_for_others_that_go_on() {
    let place = Place::new("go-on");
    place.write("calls.c", SOURCE);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    for options in [&[][..], &["--stream"]] {
        let trace = place.file("trace.ect");
        let mut command = place.command(everycall());
        command
            .args(["record", "-q", "--ring-size", "16M", "--wait"])
            .args(options)
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .arg(&program);
        let mut child = command.arg("child").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(SOON);
        assert!(child.try_wait().unwrap().is_none(), "it waits for the child");
        send("TERM", &child);
        assert!(ends(&mut child).success());
        assert_eq!(TraceView::open(&trace).calls("leaf"), 300_001, "{options:?}");
    }
}
