//! Programs that run already are attached to, recorded, and left as they were: with Python 3.14,
//! where there is one.

use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::python::{Python, SYSTEM, assert_calls_are_counted, newest, script};
use everycall_tests::{everycall, successful};

/// A program that runs until it is dropped.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Returns when it has printed its first line.
    fn new(command: &mut Command) -> (Running, String) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut running = Running { child, lines };
        let first = running.line();
        (running, first)
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that calls `f` all the time.
const BUSY: &str =
    "import time\ndef f(): pass\nprint('begins', flush=True)\nwhile True: time.sleep(0.002), f()";

/// `python -m everycall` with these words.
fn run(python: &Python, words: &[&str]) -> Output {
    python.run(&[&["-m", "everycall"], words].concat())
}

/// The errors that it prints; its status has to be this one.
fn said(python: &Python, words: &[&str], status: i32) -> String {
    let output = run(python, words);
    assert_eq!(output.status.code(), Some(status), "{words:?} {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn wait_for(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn calls_are_those_that_the_interpreter_counts_and_nothing_stays() {
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    let file = script("calls.py").display().to_string();
    let counted = String::from_utf8(python.run(&[&file, "count"]).stdout).unwrap();
    let (mut running, before) = Running::new(&mut python.command(&[script("attached.py").to_str().unwrap()]));
    let pid = running.pid();
    let told = said(&python, &["attach", &pid, "--stay", "--ring-size", "4M"], 0);
    assert!(told.contains("records from now on"), "{told}");
    let again = said(&python, &["attach", &pid], 1);
    assert!(again.contains("attached to already, with --stay") && again.lines().count() == 1, "{again}");
    python.place.write("run", "");
    wait_for(&python.place.file("ran"));
    successful(python.place.command(everycall()).args(["snapshot", "-q", &pid, "-o", "t.ect"]));
    assert_eq!(said(&python, &["detach", &pid], 0), "");
    assert!(said(&python, &["detach", &pid], 1).contains("isn't attached to"));
    let calls = python.calls("t.ect");
    assert_calls_are_counted(&python, &calls, &file, &counted);
    assert!(calls.count("wait_for") == 1 && calls.of_kind("lost").count() == 0);
    let info = successful(python.place.command(everycall()).args(["info", "-f", "json", "t.ect"]));
    assert!(info.contains("\"ring_size\": 4194304"), "{info}");
    // Nothing is recorded any more, and a second time all is.
    let events = || {
        let ps = successful(python.place.command(everycall()).arg("ps"));
        let line = ps.lines().find(|line| line.trim_start().starts_with(&format!("{pid} "))).unwrap();
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    let (now, later) = (events(), {
        std::thread::sleep(Duration::from_millis(50));
        events()
    });
    assert_eq!(now, later);
    assert_eq!(said(&python, &["attach", &pid, "-q", "--for", "2s", "--c-functions", "-o", "u.ect"], 0), "");
    let calls = python.calls("u.ect");
    assert!(calls.count("time.sleep") > 5 && calls.count("posix.stat") > 5, "{calls:?}");
    python.place.write("end", "");
    assert_eq!(running.line(), before);
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn functions_and_slow_calls_are_chosen() {
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    let slow = script("slow.py").display().to_string();
    let (running, _) = Running::new(&mut python.command(&[&slow, "loop"]));
    let pid = running.pid();
    let names = |trace: &str| {
        let calls = python.calls(trace);
        let mut names: Vec<String> = calls.of_kind("call").map(|call| call["function"].clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    let only = ["attach", &pid, "--only", "slow.*", "--not", "quick", "--for", "2s", "-o", "o.ect"];
    let told = said(&python, &only, 0);
    assert!(told.contains("o.ect"), "{told}");
    let recorded = names("o.ect");
    assert!(
        recorded.contains(&"handle".to_owned()) && !recorded.contains(&"quick".to_owned()),
        "{recorded:?}"
    );
    let trigger = ["attach", &pid, "--trigger", "slow.handle > 20ms", "--limit", "2", "--keep-every", "0s"];
    let told = said(&python, &[&trigger[..], &["-o", "k.ect"]].concat(), 0);
    assert!(told.contains("2 calls of python"), "{told}");
    let info = successful(python.place.command(everycall()).args(["info", "k.ect"]));
    assert!(info.contains("2 kept calls") && info.contains("  handle"), "{info}");
    let streamed = ["attach", &pid, "-q", "--stream", "--for", "2s", "--events", "gc", "-o", "s.ect"];
    assert_eq!(said(&python, &streamed, 0), "");
    assert!(names("s.ect").contains(&"quick".to_owned()));
}

#[test]
fn it_ends_however_whoever_attached_ends() {
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    let (running, _) = Running::new(&mut python.command(&["-c", BUSY]));
    let pid = running.pid();
    let attach = |output: &str| {
        let words = ["-m", "everycall", "attach", &pid, "-q", "--stream", "-o", output];
        let child = python.command(&words).spawn().unwrap();
        // It exists when the session does.
        wait_for(&python.place.file(output));
        std::thread::sleep(Duration::from_millis(200));
        child
    };
    let signal = |child: &Child, name: &str| {
        successful(Command::new("kill").args([name, &child.id().to_string()]));
    };
    let mut interrupted = attach("interrupted.ect");
    let refused = said(&python, &["attach", &pid], 1);
    assert!(refused.contains(&format!("already, by process {}", interrupted.id())), "{refused}");
    signal(&interrupted, "-INT");
    assert_eq!(interrupted.wait().unwrap().code(), Some(0));
    assert!(python.calls("interrupted.ect").count("f") > 5);
    assert!(said(&python, &["detach", &pid], 1).contains("isn't attached to"));
    // Whoever is killed leaves the hook there, and the next one takes it over.
    let mut killed = attach("killed.ect");
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    let _ = run(&python, &["attach", &pid, "-q", "--for", "1s", "-o", "t.ect"]);
    assert!(python.calls("t.ect").count("f") > 5);
    let mut last = attach("last.ect");
    drop(running);
    assert_eq!(last.wait().unwrap().code(), Some(0));
    assert!(python.calls("last.ect").count("f") > 5);
    assert!(said(&python, &["detach", &pid], 1).contains("there is no process"));
}

/// An event loop that waits for what never comes, and a call that lasts.
#[test]
fn programs_that_wait_are_attached_to() {
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    let idle = "import asyncio\nasync def wait():\n print('waits', flush=True)\n await asyncio.Event().wait()\n\
                asyncio.run(wait())";
    let (running, _) = Running::new(&mut python.command(&["-c", idle]));
    let told = said(&python, &["attach", &running.pid(), "-q", "--for", "100ms", "-o", "t.ect"], 0);
    assert_eq!(told, "");
    let blocked = "import time\ndef f(): pass\nprint('waits', flush=True)\ntime.sleep(4)\nprint('goes on')\n\
                   while True: time.sleep(0.002), f()";
    let (mut running, _) = Running::new(&mut python.command(&["-c", blocked]));
    let attach = ["-m", "everycall", "attach", &running.pid(), "-q", "--for", "100ms", "-o", "t.ect"];
    let mut child = python.command(&attach).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("recording begins when that returns"));
    successful(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(running.line(), "goes on");
    assert!(said(&python, &["detach", &running.pid()], 1).contains("isn't attached to"));
}

#[test]
fn what_cant_be_done_is_said() {
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    let refused = |pid: &str, wanted: &str| {
        let told = said(&python, &["attach", pid, "--for", "100ms", "-o", "no.ect"], 1);
        assert!(told.contains(wanted) && told.lines().count() == 1, "{told}");
    };
    let (disabled, _) = Running::new(&mut python.command(&["-X", "disable-remote-debug", "-c", BUSY]));
    refused(&disabled.pid(), "was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug");
    let (older, _) = Running::new(Command::new(SYSTEM).args(["-c", BUSY]));
    refused(&older.pid(), "runs Python 3.11, which can't be attached to");
    let (none, _) = Running::new(Command::new("sh").args(["-c", "echo begins; exec sleep 100"]));
    refused(&none.pid(), "doesn't run Python");
    refused("4194303", "there is no process 4194303");
    let own = ["-X", "disable-remote-debug", "-m", "everycall", "attach", &older.pid()];
    let output = python.run(&own);
    assert!(String::from_utf8_lossy(&output.stderr).contains("so it can't attach"), "{output:?}");
    for words in [
        &["attach"][..],
        &["attach", "x"],
        &["attach", "1", "2"],
        &["attach", "1", "--stay", "--for", "1s"],
        &["attach", "1", "--ring-size", "100K"],
    ] {
        let _ = said(&python, words, 2);
    }
    // Its record is the parent.
    let words = ["-m", "everycall", "-q", "-o", "t.ect", "-c", BUSY];
    let (recorded, _) = Running::new(&mut python.command(&words));
    let record = recorded.pid();
    let children = std::fs::read_to_string(format!("/proc/{record}/task/{record}/children")).unwrap();
    refused(children.trim(), "it is recorded already");
    successful(Command::new("kill").arg(children.trim()));
    let (other, _) = Running::new(&mut python.command(&["-c", BUSY]));
    let is_root = successful(Command::new("id").arg("-u")).trim() == "0";
    if !is_root {
        println!("skipped: another user's program, as this isn't root");
        return;
    }
    // Root may attach to others' programs, which can't change what it has made.
    let as_nobody = |words: &[&str]| {
        let mut command = python.place.command("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&interpreter).args(words);
        command
    };
    let (nobodys, _) = Running::new(&mut as_nobody(&["-c", BUSY]));
    let words = ["attach", &nobodys.pid(), "-q", "--for", "1s", "-o", "n.ect"];
    assert_eq!(said(&python, &words, 0), "");
    assert!(python.calls("n.ect").count("f") > 5);
    let mut nobody = as_nobody(&["-m", "everycall", "attach", &other.pid()]);
    nobody.env("PYTHONPATH", &python.environment.packages).env("PATH", python.environment.search_path());
    let output = nobody.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("no permission to change process") && told.lines().count() == 1, "{told}");
}

/// The hook is there some time before the session that records, and switches go on meanwhile.
#[test]
fn calls_that_greenlets_had_open_leave_no_exits() {
    const PROGRAM: &str = "import greenlet, time\n\
        def leaf(): pass\n\
        def nap(): main.switch()\n\
        def works():\n    while True: leaf(), nap()\n\
        main = greenlet.getcurrent()\n\
        each = [greenlet.greenlet(works) for _ in range(3)]\n\
        print('begins', flush=True)\n\
        while True:\n    time.sleep(0.005), [one.switch() for one in each]";
    let Some(interpreter) = newest() else { return };
    let python = Python::new(&interpreter);
    if !python.installs("greenlet") {
        return;
    }
    let (running, _) = Running::new(&mut python.command(&["-c", PROGRAM]));
    said(&python, &["attach", &running.pid(), "--for", "1s", "-o", "t.ect"], 0);
    let info = successful(python.place.command(everycall()).args(["info", "-f", "json", "t.ect"]));
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    let threads = info["threads"].as_array().expect("threads").iter();
    let orphans: u64 = threads.map(|thread| thread["orphan_exits"].as_u64().expect("a number")).sum();
    let calls = python.calls("t.ect");
    assert!(calls.count("leaf") > 10, "{info}");
    assert_eq!((orphans, calls.of_kind("orphan exit").count()), (0, 0), "{info}");
}
