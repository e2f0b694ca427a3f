//! The program that is changed, a patch made by hand, a debugger and a killer.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use everycall_inject::{Access, InjectError, Move, Outcome, Patch, PatchSet, Process, mappings};

/// For whatever should happen soon, on a machine that is busy.
pub const WAIT: Duration = Duration::from_secs(60);

pub fn program(is_static: bool) -> PathBuf {
    if is_static {
        compiled("subject.c", "static", &["-static"])
    } else {
        compiled("subject.c", "dynamic", &[])
    }
}

/// The contents of a library that can be loaded.
pub fn library() -> Vec<u8> {
    fs::read(compiled("library.c", "library", &["-shared", "-fPIC"])).expect("a library")
}

/// Compiles a program once for each change of its source.
fn compiled(source: &str, kind: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let changed = fs::metadata(&source).expect("a source").mtime();
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inject-{kind}-{changed}"));
    static COMPILING: Mutex<()> = Mutex::new(());
    let _one = COMPILING.lock();
    if !output.exists() {
        // Other test processes may do so, too. The first one's file stays: it may be running.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let new = folder.path().join("new");
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-pthread", "-w"]).arg(&source).arg("-o").arg(&new);
        compile.args(options);
        assert!(compile.status().expect("cc").success());
        if let Err(error) = fs::hard_link(new, &output) {
            assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        }
    }
    output
}

/// A program that runs.
pub struct Subject {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The address of the function that is patched.
    pub window: u64,
}

impl Subject {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_program(&program(false), arguments)
    }

    pub fn start_program(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program");
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("an address");
        let window = u64::from_str_radix(line.trim(), 16).expect("an address");
        Self { child, output, window }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn map(&self, process: &mut Process) -> Result<Patching, InjectError> {
        Patching::map(self.pid(), self.window, process)
    }

    /// A field of what the kernel says about it.
    pub fn status(&self, field: &str) -> String {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("");
        line.trim_start_matches(':').trim().to_owned()
    }

    pub fn has_ended(&self) -> bool {
        self.status("State").starts_with(['Z', 'X'])
    }

    /// The first thread sleeps in the kernel.
    pub fn wait_until_blocked(&self) {
        self.wait_for_state("SZ");
    }

    /// The first thread is in one of these states.
    pub fn wait_for_state(&self, states: &str) {
        let end = Instant::now() + WAIT;
        while !self.status("State").starts_with(|state| states.contains(state)) {
            assert!(Instant::now() < end, "{}", self.status("State"));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A signal doesn't wait any more, and the first thread sleeps.
    pub fn wait_until_handled(&self, signal: i32) {
        let end = Instant::now() + WAIT;
        let bit = 1u64 << (signal - 1);
        let is_pending = |field| u64::from_str_radix(&self.status(field), 16).is_ok_and(|set| set & bit != 0);
        while is_pending("SigPnd") || is_pending("ShdPnd") {
            assert!(Instant::now() < end, "{}", self.status("State"));
            std::thread::sleep(Duration::from_millis(1));
        }
        self.wait_until_blocked();
    }

    pub fn line(&self) {
        let mut input = self.child.stdin.as_ref().expect("its input");
        input.write_all(b"\n").expect("a line");
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: it is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Ends it, and looks at what it says.
    pub fn ends_right(mut self) {
        drop(self.child.stdin.take());
        let end = Instant::now() + WAIT;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a status") {
                break status;
            }
            if Instant::now() > end {
                let state = self.status("State");
                let _ = self.child.kill();
                panic!("it hangs in state {state}");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("its output");
        assert!(
            status.success() && text.ends_with("right\n"),
            "{status}, signal {:?}: {text}",
            status.signal()
        );
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // After a test that failed.
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Loads the library, and calls its function.
pub fn load(process: &mut Process, timeout: Duration) -> Result<(), InjectError> {
    let start = process
        .with_calm_thread(timeout, |thread| thread.load_library(&library(), "/lib/loaded.so".as_ref()))?;
    let answer = process.symbol(start, "loaded_answer").expect("its function");
    assert_eq!(process.with_thread(WAIT, |thread| thread.call_function(answer, [0; 6]))?, 42);
    Ok(())
}

/// A jump at the window to code that counts, does what the window did, and jumps back.
pub struct Patching {
    pub set: PatchSet,
    pub counter: u64,
    code: u64,
}

/// `push %rbx; mov %rdi, %rbx; inc %rbx`
const OLD: [u8; 7] = [0x53, 0x48, 0x89, 0xfb, 0x48, 0xff, 0xc3];

fn relative(from: u64, to: u64) -> [u8; 4] {
    i32::try_from(to.wrapping_sub(from).cast_signed()).expect("in reach").to_le_bytes()
}

impl Patching {
    pub fn map(pid: i32, window: u64, process: &mut Process) -> Result<Self, InjectError> {
        let module =
            mappings(pid)?.into_iter().find(|part| part.range.contains(&window)).expect("its module").range;
        let (counter, code) = process.with_thread(WAIT, |thread| {
            let counter = thread.map_near(module.clone(), &[0; 8], Access::Write)?;
            Ok((counter, thread.map_near(module, &[0xcc; 64], Access::Execute)?))
        })?;
        // lock incq counter(%rip)
        let mut bytes = vec![0xf0, 0x48, 0xff, 0x05];
        bytes.extend(relative(code + 8, counter));
        bytes.extend(OLD);
        bytes.push(0xe9);
        bytes.extend(relative(code + 20, window + 7));
        process.write(code, &bytes)?;
        let mut new = vec![0xe9];
        new.extend(relative(window + 5, code));
        new.extend([0xcc; 2]);
        let patch = Patch { at: window, old: OLD.to_vec(), new };
        let moves = [1, 4].map(|offset| Move { from: window + offset, to: code + 8 + offset });
        Ok(Self { set: PatchSet { patches: vec![patch], moves: moves.to_vec() }, counter, code })
    }

    pub fn count(&self, process: &Process) -> u64 {
        let bytes = process.read(self.counter, 8).expect("the counter");
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    /// As soon as nobody is in its code.
    pub fn unmap(&self, process: &mut Process) -> Result<(), InjectError> {
        while process.with_all_stopped(WAIT, |stopped| stopped.is_used(self.code..self.code + 4096))? {}
        process.with_thread(WAIT, |thread| {
            thread.unmap(self.code, 4096)?;
            thread.unmap(self.counter, 4096)
        })
    }
}

pub fn patched(process: &mut Process, patch: &Patching) -> Result<Outcome, InjectError> {
    process.with_all_stopped(WAIT, |stopped| Ok(stopped.apply(std::slice::from_ref(&patch.set))?[0]))
}

pub fn unpatched(process: &mut Process, patch: &Patching) -> Result<Outcome, InjectError> {
    process.with_all_stopped(WAIT, |stopped| Ok(stopped.undo(std::slice::from_ref(&patch.set))?[0]))
}

/// A function of the program by its place in the program's list.
pub fn function(process: &Process, window: u64, index: u64) -> u64 {
    let number = |at: u64, size: usize| {
        let mut bytes = process.read(at, size).expect("the program's memory");
        bytes.resize(8, 0);
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    };
    let distance = number(window - 4, 4) as u32;
    number(window.wrapping_add_signed(i64::from(distance.cast_signed())) + 8 * index, 8)
}

/// In the order of the program's list.
pub mod functions {
    pub const CALL_ME: u64 = 0;
    pub const FAIL: u64 = 1;
    pub const WAIT_FOR_RELEASE: u64 = 2;
    pub const END_THE_PROGRAM: u64 = 3;
    pub const PLAIN: u64 = 4;
    /// A variable: the release.
    pub const RELEASED: u64 = 5;
}

pub fn number_at(memory: &File, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, address).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn base(pid: i32, program: &Path) -> u64 {
    let program = program.canonicalize().expect("a path");
    let parts = mappings(pid).expect("mappings");
    parts.iter().find(|part| Path::new(&part.name) == program).expect("its file").range.start
}

/// Where a program that has just been started has its function, as another run says.
pub fn window_of(pid: i32, is_static: bool) -> u64 {
    let program = program(is_static);
    let other = Subject::start_program(&program, &["busy"]);
    let window = other.window - base(other.pid(), &program) + base(pid, &program);
    other.ends_right();
    window
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").expect("this process").uid() == 0
}

/// A 32-bit program that does nothing, if this machine can make and run one.
pub fn small_program() -> Option<Child> {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("inject-small-{}", std::process::id()));
    let source = "void _start(void) { for (;;) __asm__ volatile(\"int $0x80\" :: \"a\"(29)); }";
    let mut compile = Command::new("cc")
        .args(["-m32", "-nostdlib", "-static", "-O1", "-w", "-x", "c", "-", "-o"])
        .arg(&output)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    compile.stdin.take()?.write_all(source.as_bytes()).ok()?;
    let is_made = compile.wait().ok()?.success();
    let child = is_made.then(|| Command::new(&output).spawn().ok()).flatten();
    let _ = fs::remove_file(&output);
    child
}

/// This test program again, as another process.
pub fn helper_command(helper: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "helper", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("HELPER", helper).env("ARGUMENT", argument);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// Another tracer than ours.
pub struct Debugger {
    pid: i32,
}

fn ptrace(request: libc::c_uint, pid: i32, data: usize) {
    // SAFETY: callers pass a number, or memory as large as the request needs.
    let result = unsafe { libc::ptrace(request, pid, 0usize, data) };
    let error = std::io::Error::last_os_error();
    // A process that was killed isn't there any more.
    assert!(result != -1 || error.raw_os_error() == Some(libc::ESRCH), "request {request:#x}: {error}");
}

fn wait(pid: i32) -> (i32, i32) {
    let mut status = 0;
    // SAFETY: the kernel writes one number.
    let pid = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    (pid, status)
}

fn registers(pid: i32) -> libc::user_regs_struct {
    // SAFETY: it consists of integers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    ptrace(libc::PTRACE_GETREGS, pid, (&raw mut registers) as usize);
    registers
}

impl Debugger {
    pub fn attach(pid: i32) -> Self {
        ptrace(libc::PTRACE_SEIZE, pid, 0);
        ptrace(libc::PTRACE_INTERRUPT, pid, 0);
        assert_eq!(wait(pid).0, pid);
        Self { pid }
    }

    /// Steps to an address, and leaves the process with a signal there.
    pub fn park_at(self, address: u64, signal: i32) {
        for _ in 0..1_000_000 {
            // The first stop isn't one at which a signal can be given.
            ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0);
            assert_eq!(wait(self.pid).0, self.pid);
            if registers(self.pid).rip == address {
                return self.detach(signal);
            }
        }
        panic!("{address:#x} isn't reached");
    }

    pub fn detach(self, signal: i32) {
        ptrace(libc::PTRACE_DETACH, self.pid, signal as usize);
    }

    /// Kills a helper before its n-th request to trace or write; true if it has ended before by
    /// itself.
    // `wait` below is for all of its threads.
    #[allow(clippy::zombie_processes)]
    pub fn kill_at(command: &mut Command, step: usize) -> bool {
        let mut child = command.spawn().expect("a helper");
        let pid = child.id() as i32;
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACESYSGOOD;
        let mut known = Vec::new();
        // It waits for its line meanwhile.
        loop {
            let tids: Vec<i32> = fs::read_dir(format!("/proc/{pid}/task"))
                .expect("its threads")
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .filter(|tid| !known.contains(tid))
                .collect();
            if tids.is_empty() {
                break;
            }
            for tid in tids {
                // SAFETY: no memory is passed. Threads of traced ones are traced already.
                unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0usize, options as usize) };
                ptrace(libc::PTRACE_INTERRUPT, tid, 0);
                known.push(tid);
            }
        }
        child.stdin.take().expect("its input").write_all(b"\n").expect("a line");
        let (mut count, mut is_killed) = (0, false);
        loop {
            let (tid, status) = wait(-1);
            assert!(tid > 0, "the helper is lost");
            if !libc::WIFSTOPPED(status) {
                if tid == pid {
                    assert!(is_killed || status == 0, "the helper failed: {status:#x}");
                    return !is_killed;
                }
                continue;
            }
            let (signal, event) = ((status >> 8) & 0xff, status >> 16);
            if signal == libc::SIGTRAP | 0x80 && !is_killed {
                let now = registers(tid);
                let is_begin = now.rax.cast_signed() == -i64::from(libc::ENOSYS);
                if is_begin && matches!(now.orig_rax.cast_signed(), libc::SYS_ptrace | libc::SYS_pwrite64) {
                    count += 1;
                    if count == step {
                        is_killed = true;
                        child.kill().expect("a kill");
                        continue;
                    }
                }
            }
            let is_signal = event == 0 && signal != libc::SIGTRAP | 0x80;
            ptrace(libc::PTRACE_SYSCALL, tid, if is_signal { signal as usize } else { 0 });
        }
    }
}
