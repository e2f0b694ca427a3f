//! A program that waits or works while a test observes it from outside.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

use everycall_format::Wire;
use everycall_format::arena::{ArenaHeader, PINNERS, PINNERS_OFFSET, PinnerEntry, SegmentEntry, pinned_by};

use crate::place::{Place, everycall};
use crate::wait;

/// A program that runs until this is dropped: it says `ready`, and ends when its standard input
/// does.
#[derive(Debug)]
pub struct Standing {
    child: Child,
    /// The traced process, which isn't the child itself under `record`.
    pub pid: u32,
}

impl Drop for Standing {
    fn drop(&mut self) {
        // It ends by itself at the end of its input, and its recorder with it. Not all programs
        // notice that at once: after a failure they are ended.
        drop(self.child.stdin.take());
        if std::thread::panicking() {
            if wait::children(self.child.id()).contains(&self.pid) {
                let _ = Command::new("kill").args(["-KILL", &self.pid.to_string()]).status();
            }
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Standing {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// Where it can't be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Standing {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{command:?}");
        let pid = child.id();
        Standing { child, pid }
    }

    /// The program, with its arguments.
    ///
    /// # Panics
    /// As [`Standing::start`].
    #[must_use]
    pub fn alone(program: &Path, arguments: &[&str]) -> Standing {
        Standing::start(Command::new(program).args(arguments))
    }

    /// The program under `record`, whose file is `recorded.ect`.
    ///
    /// # Panics
    /// As [`Standing::start`].
    #[must_use]
    pub fn recorded(place: &Place, program: &Path, arguments: &[&str]) -> Standing {
        let mut command = place.command(everycall());
        command.args(["record", "-q", "-o", "recorded.ect", "--"]).arg(program).args(arguments);
        Standing::start(&mut command).find_traced()
    }

    /// Where a recorder was started: its program.
    ///
    /// # Panics
    /// Where it has none.
    #[must_use]
    pub fn find_traced(mut self) -> Standing {
        self.pid = wait::children(self.pid).into_iter().next().unwrap();
        self
    }

    /// Lets it continue, and waits until it is ready again.
    ///
    /// # Panics
    /// Where it isn't.
    pub fn go_on(&mut self) {
        self.tell("\n");
    }

    /// Lets it continue with a line of input, and waits until it is ready again.
    ///
    /// # Panics
    /// Where it isn't ready again.
    pub fn tell(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    /// Ends it. Returns how it ended, and its output.
    ///
    /// # Panics
    /// Where what it printed is no text.
    #[must_use]
    pub fn end(mut self) -> (ExitStatus, String) {
        drop(self.child.stdin.take());
        let mut printed = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap(), printed)
    }

    /// The process that was started: the recorder, where there is one.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.child.id()
    }

    /// Takes a snapshot, which must succeed. Returns its file and the command's messages.
    ///
    /// # Panics
    /// Where it doesn't.
    #[must_use]
    pub fn snapshot(&self, place: &Place, options: &[&str]) -> (PathBuf, String) {
        let file = place.file("live.ect");
        let _ = std::fs::remove_file(&file);
        let output = self.ask(place, &[options, &["-o", "live.ect"]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        (file, said)
    }

    /// Asks for a snapshot.
    ///
    /// # Panics
    /// Where the command can't be run.
    #[must_use]
    pub fn ask(&self, place: &Place, options: &[&str]) -> Output {
        let mut command = place.command(everycall());
        command.arg("snapshot").args(options).arg(self.pid.to_string()).output().unwrap()
    }

    /// Its memory, and where its arena begins.
    ///
    /// # Panics
    /// Where it can't be read.
    #[must_use]
    pub fn memory(&self) -> (File, u64) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap();
        let line = maps
            .lines()
            .find(|line| line.contains("SYSV00000000") || line.contains("memfd:everycall-arena"))
            .unwrap();
        let base = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
        let memory =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", self.pid)).unwrap();
        (memory, base)
    }

    /// The head of its arena.
    ///
    /// # Panics
    /// As [`Standing::memory`].
    #[must_use]
    pub fn header(&self) -> ArenaHeader {
        let (memory, base) = self.memory();
        read(&memory, base)
    }

    /// Segments that somebody has pinned besides their threads, and pinners in the table.
    ///
    /// # Panics
    /// As [`Standing::memory`].
    #[must_use]
    pub fn pinned(&self) -> (usize, usize) {
        let (memory, base) = self.memory();
        let header: ArenaHeader = read(&memory, base);
        let entries = (0..header.segments_taken)
            .map(|index| read::<SegmentEntry>(&memory, base + header.segment_entry_at(index)));
        let others = !(pinned_by::OWNER | pinned_by::CLEARING);
        let pinned = entries.filter(|entry| entry.pins & others != 0).count();
        let at = |index: u32| base + PINNERS_OFFSET + u64::from(index) * PinnerEntry::SIZE as u64;
        let pinners = (0..PINNERS).filter(|index| read::<PinnerEntry>(&memory, at(*index)).pid != 0).count();
        (pinned, pinners)
    }
}

/// `everycall trigger`, which waits for calls.
#[derive(Debug)]
pub struct Waiting {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Waiting {
    /// Starts it, and waits until the functions are armed.
    ///
    /// # Panics
    /// Where it ends.
    #[must_use]
    pub fn start(place: &Place, pid: u32, words: &[&str]) -> Waiting {
        let mut command = place.command(everycall());
        command.arg("trigger").arg(pid.to_string()).args(words);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut lines = String::new();
        while !lines.contains("keeping calls") {
            let count = said.read_line(&mut lines).unwrap();
            assert_ne!(count, 0, "{words:?} ended: {lines}");
        }
        Waiting { child, said }
    }

    /// Ends it at once.
    ///
    /// # Panics
    /// Where it can't be waited for.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits for its end: what it said.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn end(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }

    /// Interrupts it, and waits for its end: what it said.
    ///
    /// # Panics
    /// As [`Waiting::end`].
    pub fn interrupt(self) -> String {
        self.signal("INT");
        self.end()
    }
}

fn read<T: Wire>(memory: &File, at: u64) -> T {
    let mut bytes = vec![0; T::SIZE];
    memory.read_exact_at(&mut bytes, at).unwrap();
    T::read(&bytes).unwrap()
}
