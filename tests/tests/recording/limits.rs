//! Every verb where the system has no more threads, processes or memory to give: it does without,
//! or ends with a sentence and an exit code; it never panics and never aborts, and the program that
//! is recorded runs as ever.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use everycall_format::Wire;
use everycall_format::ect::{CHUNK_ALIGN, ChunkHeader, FileHeader, ModuleImage, chunk, encoding};
use everycall_tests::{Mode, Place, Standing, TraceView, everycall, successful};
use everycall_tracefile::ChunkWriter;

/// Makes each thread that a process named `everycall` starts fail, as a limit of processes does.
const NO_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    return strcmp(program_invocation_short_name, "everycall") ? next(thread, attributes, run, argument) : EAGAIN;
}
"#;

/// The program and files that limits are tried on.
struct Scene {
    place: Place,
    program: PathBuf,
    trace: PathBuf,
    crash: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let place = Place::new(name);
        let program = place.build(Mode::GCC_NOPS, &["-O1", "stream.c", "-pthread"], "stream");
        let trace = place.record(&["-q"], &program, &["2", "20000"]).file;
        let crashes = place.file("crashes");
        fs::DirBuilder::new().mode(0o700).create(&crashes).unwrap();
        let mut command = place.command(&program);
        let status = command.args(["2", "1000", "die"]).env("EVERYCALL_CRASH", &crashes).status().unwrap();
        assert_eq!(status.signal(), Some(9));
        let crash = fs::read_dir(&crashes).unwrap().next().unwrap().unwrap().path();
        Scene { place, program, trace, crash }
    }

    /// Each verb with its words.
    fn verbs(&self) -> Vec<Vec<String>> {
        let (program, trace, crash) = (self.program.display(), self.trace.display(), self.crash.display());
        let all = [
            format!("record -o a.ect -- {program} 2 2000"),
            format!("record --stream -o a.ect -- {program} 2 2000"),
            format!("record --stream --stall --stream-memory 1M -o a.ect -- {program} 2 2000"),
            format!("record --trigger leaf>1ns -o a.ect -- {program} 2 2000"),
            format!("record --trigger leaf>p99 -o a.ect -- {program} 2 2000"),
            format!("resolve --trigger leaf>1ms -o a.ecs {program}"),
            "ps".to_owned(),
            "ps -f json crashes".to_owned(),
            format!("core -o b.ect {crash}"),
            "gdb-script".to_owned(),
            format!("info {trace}"),
            format!("info -f json {trace}"),
            format!("info {crash}"),
            format!("replay --depth 1 {trace}"),
            format!("export -f chrome -o c.json {trace}"),
            format!("export -f perfetto -o c.pftrace {trace}"),
            "integrate build-files".to_owned(),
            "--help".to_owned(),
        ];
        all.iter().map(|words| words.split(' ').map(str::to_owned).collect()).collect()
    }

    /// Runs a verb, with these words before it.
    fn run(&self, before: &[&str], words: &[String]) -> Output {
        let mut all = before.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        all.push(everycall().display().to_string());
        let mut command = self.place.command(&all[0]);
        command.args(&all[1..]).args(words).output().unwrap()
    }
}

/// A message of everycall's is printed unless it succeeded.
fn ends_well(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{what}: {}\n{said}", output.status);
    // If there is too little memory to start at all, the dynamic linker reports it.
    if output.status.code() == Some(127) && said.contains("error while loading shared libraries") {
        return;
    }
    match output.status.code() {
        Some(0) => {}
        Some(1 | 2 | 125) => assert!(said.contains("everycall: "), "{what}: {}\n{said}", output.status),
        _ => panic!("{what}: {}\n{said}", output.status),
    }
}

#[test]
fn without_threads() {
    let scene = Scene::new("no-threads");
    let source = scene.place.write("no_threads.c", NO_THREADS);
    let library = scene.place.file("no_threads.so");
    successful(Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source));
    let preload = format!("LD_PRELOAD={}", library.display());
    for words in scene.verbs() {
        let output = scene.run(&["env", &preload], &words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {}\n{said}", output.status);
        assert!(!said.contains("panicked"), "{words:?}: {said}");
        if words[0] == "record" {
            // Main and two threads, each with 2000 times two calls.
            let trace = TraceView::open(&scene.place.file("a.ect"));
            let calls = (trace.calls("pair"), trace.calls("leaf"));
            if words[1] == "--trigger" {
                // A kept call's snapshot contains them again.
                let is_kept = said.contains(" kept, ") || words[2] != "leaf>1ns";
                assert!(calls.0 >= 4000 && is_kept, "{calls:?} {said}");
            } else {
                assert_eq!(calls, (4000, 4000), "{words:?}\n{said}");
            }
        }
    }
}

/// The kernel's own limit, which root hasn't got.
#[test]
fn with_one_process_too_few() {
    let scene = Scene::new("no-processes");
    fs::set_permissions(scene.place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Where the tests are built others may not look.
    let binary = scene.place.file("everycall");
    fs::copy(everycall(), &binary).unwrap();
    let another = ["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"];
    let may_change = Command::new(another[0]).args(&another[1..]).arg("true").status();
    if !may_change.is_ok_and(|status| status.success()) {
        eprintln!("not run: only root becomes another user");
        return;
    }
    for limit in 1..6 {
        for options in [&[][..], &["--stream"], &["--trigger", "leaf > 1ns"]] {
            let trace = scene.place.file("limited.ect");
            let _ = fs::remove_file(&trace);
            let mut command = scene.place.command(another[0]);
            command.args(&another[1..]).args(["prlimit", &format!("--nproc={limit}")]).arg(&binary);
            command.arg("record").args(options).arg("-o").arg(&trace).arg("--").arg(&scene.program);
            let output = command.args(["1", "1000"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("panicked"), "{limit} {options:?}: {}\n{said}", output.status);
            match output.status.code() {
                Some(0) => assert!(trace.exists()),
                Some(125) => assert!(said.contains("ulimit -u"), "{said}"),
                // The program itself needs a thread.
                code => assert!(limit < 4 && trace.exists(), "{limit} {options:?}: {code:?}\n{said}"),
            }
        }
    }
}

#[test]
fn with_little_memory() {
    let scene = Scene::new("little-memory");
    for megabytes in [8, 12, 16, 20, 24, 32, 48, 64, 96, 160, 300, 600] {
        let limit = format!("--as={}", megabytes << 20);
        // If not even its own code fits, the kernel or the dynamic linker reports it, or nothing
        // does.
        if !scene.run(&["prlimit", &limit], &["--version".to_owned()]).status.success() {
            assert!(megabytes < 64, "everycall alone takes more than {megabytes} MB");
            continue;
        }
        for words in scene.verbs() {
            let output = scene.run(&["prlimit", &limit], &words);
            ends_well(&output, &format!("{megabytes} MB, {words:?}"));
        }
    }
}

/// A zstd frame of so many zeros: 4 bytes for each 128 KiB.
fn zeros(count: u64) -> Vec<u8> {
    const BLOCK: u64 = 128 << 10;
    // No checksum, no size; a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    for at in (0..count).step_by(BLOCK as usize) {
        let size = BLOCK.min(count - at) as u32;
        let is_last = at + BLOCK >= count;
        let header = size << 3 | 1 << 1 | u32::from(is_last);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// The trace, with a file for its first module that unpacks to `length` zeros.
fn with_image(trace: &Path, length: u64) -> Vec<u8> {
    let bytes = fs::read(trace).unwrap();
    let mut file = ChunkWriter::begin(Vec::new()).unwrap();
    let mut at = FileHeader::SIZE;
    loop {
        let header = ChunkHeader::read(&bytes[at..]).unwrap();
        if header.kind == chunk::END {
            break;
        }
        let payload = at + ChunkHeader::SIZE;
        let size = header.length as usize;
        file.set_process(header.process);
        file.chunk(header.kind, &[&bytes[payload..payload + size]]).unwrap();
        at = payload + size.next_multiple_of(CHUNK_ALIGN as usize);
    }
    let record = ModuleImage { module: 0, encoding: encoding::ZSTD, length };
    file.chunk(chunk::MODULE_IMAGE, &[&record.to_bytes(), &zeros(length)]).unwrap();
    file.end().unwrap().1
}

/// Modules' files in a trace unpack to at most the size that programs' files may have, not to the
/// size that the trace claims.
#[test]
fn a_trace_that_unpacks_to_far_more() {
    let place = Place::new("unpacks");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "stream.c", "-pthread"], "stream");
    let trace = place.record(&["-q"], &program, &["1", "100"]).file;
    for (length, is_refused) in [(1 << 20, false), (1 << 30, true), (1 << 40, true)] {
        // Unwritten bytes read as zeros: nothing is read beyond the limit.
        let bytes = with_image(&trace, length.min(2 << 30));
        assert!(bytes.len() < 300_000);
        let file = place.file("large.ect");
        fs::write(&file, bytes).unwrap();
        for verb in [&["info"][..], &["replay"], &["export", "-f", "chrome", "-o", "large.json"]] {
            let mut command = place.command("prlimit");
            command.arg(format!("--as={}", 400 << 20)).arg(everycall()).args(verb).arg(&file);
            let output = command.output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(output.status.success(), "{verb:?} {length}: {}\n{said}", output.status);
            assert_eq!(said.contains("unpack to far more"), is_refused, "{verb:?} {length}: {said}");
        }
    }
}

/// The command has the limit; the program hasn't.
#[test]
fn a_snapshot_with_little_memory() {
    let place = Place::new("little-memory-live");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "standing.c", "-pthread"], "standing");
    let standing = Standing::alone(&program, &["1", "0", "0", "10"]);
    for megabytes in [16, 24, 48, 96, 300, 1000, 20_000] {
        let limited = || {
            let mut command = place.command("prlimit");
            command.arg(format!("--as={}", megabytes << 20_u64)).arg(everycall());
            command
        };
        // Not even its own code fits.
        if megabytes < 48 && !limited().arg("--version").output().unwrap().status.success() {
            continue;
        }
        let output = limited().args(["snapshot", "-o", "a.ect", &standing.pid.to_string()]).output().unwrap();
        ends_well(&output, &format!("{megabytes} MB"));
    }
}
