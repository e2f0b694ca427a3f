//! Signals to `record` after its program has ended: there is no process left to pass them on to, so
//! they end it, whatever it waits for.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::{Mode, Place, TraceView, everycall, successful, wait};

const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void leaf(unsigned x)
{
    for (x = x * 2654435761u >> 22; x; x--)
        __asm__ volatile("");
}
/* Says who has come so far. */
static void tell(const char *name)
{
    FILE *file = fopen("unfinished", "w");
    fprintf(file, "%d", (int)getpid());
    fclose(file);
    rename("unfinished", name);
}
int main(int count, char **words)
{
    for (int i = 0; i < 300000; i++)
        leaf(i);
    if (count > 1 && fork() == 0) {
        leaf(1);
        close(1);
        tell("child");
        sleep(60);
        return 0;
    }
    if (count > 1)
        while (access("child", F_OK))
            usleep(1000);
    (void)words;
    tell("program");
    return 0;
}
"#;

/// How long `record` may run on after a signal: not a measure of its speed, but the end of a test
/// in which it ignores the signal.
const LONGEST: Duration = Duration::from_secs(60);

/// Waits until the program has ended and its recorder has noticed.
fn until_over(place: &Place) {
    let said = place.file("program");
    wait::until("the program comes to its end", || said.exists());
    let process = format!("/proc/{}", fs::read_to_string(&said).unwrap());
    wait::until("the recorder notices the program's end", || !Path::new(&process).exists());
    for name in ["program", "child"] {
        let _ = fs::remove_file(place.file(name));
    }
}

/// `everycall`, which ends by these signals even if the tests were started without them (`nohup`).
fn recorder(place: &Place) -> Command {
    let mut command = place.command("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(everycall());
    command
}

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

/// The reader of the trace has stopped reading.
#[test]
fn writing_that_gets_no_further() {
    let place = Place::new("no-further");
    place.write("calls.c", SOURCE);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    let fifo = place.file("trace.fifo");
    successful(Command::new("mkfifo").arg(&fifo));
    // Calls of uneven length don't pack well: the ring's events are more than fit into a pipe.
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&fifo).unwrap();
        let mut command = recorder(&place);
        command.args(["record", "-q", "--ring-size", "16M", "-o"]).arg(&fifo).arg("--").arg(&program);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        until_over(&place);
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

/// The signal of a closed terminal often comes twice: the second signal must not cost the trace.
#[test]
fn the_same_signal_again_while_the_trace_is_written() {
    let place = Place::new("again");
    place.write("calls.c", &SOURCE.replace("tell(\"program\");", "tell(\"program\"); for (;;) pause();"));
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    let fifo = place.file("trace.fifo");
    successful(Command::new("mkfifo").arg(&fifo));
    for (signal, number) in [("HUP", 1), ("TERM", 15)] {
        let mut reader = OpenOptions::new().read(true).custom_flags(0o4000).open(&fifo).unwrap();
        let mut command = recorder(&place);
        command.args(["record", "-q", "--ring-size", "16M", "-o"]).arg(&fifo).arg("--").arg(&program);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let said = place.file("program");
        wait::until("the program has made its calls", || said.exists());
        fs::remove_file(&said).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let lives = || !std::fs::read_to_string(&children).unwrap_or_default().trim().is_empty();
        assert!(lives());
        send(signal, &child);
        while lives() {
            std::thread::sleep(Duration::from_millis(1));
        }
        send(signal, &child);
        // Nonblocking: there may be no data for a while.
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

/// With `--wait`, a signal ends the wait, and the trace is written.
#[test]
fn waiting_for_others_that_go_on() {
    let place = Place::new("go-on");
    place.write("calls.c", SOURCE);
    let program = place.build(Mode::GCC_NOPS, &["-O1", "calls.c"], "calls");
    for options in [&[][..], &["--stream"]] {
        let trace = place.file("trace.ect");
        let mut command = recorder(&place);
        command
            .args(["record", "-q", "--ring-size", "16M", "--wait"])
            .args(options)
            .arg("-o")
            .arg(&trace)
            .arg("--")
            .arg(&program);
        let mut child = command.arg("child").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        until_over(&place);
        assert!(child.try_wait().unwrap().is_none(), "it waits for the child");
        send("TERM", &child);
        assert!(ends(&mut child).success());
        assert_eq!(TraceView::open(&trace).calls("leaf"), 300_001, "{options:?}");
    }
}
