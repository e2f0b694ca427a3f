//! Records programs that behave and programs that don't.

use std::collections::HashMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

use everycall_format::Wire;
use everycall_format::arena::{ClockReading, ModuleEntry, OpenCall};
use everycall_format::ect::{
    ArrayHeader, ChunkHeader, EndRecord, EventsRecord, FileHeader, ModuleImage, NO_PROCESS, ProcessEnd,
    ProcessRecord, SnapshotRecord, ThreadRecord, chunk, encoding, end, image_end,
};
use everycall_format::event::Word;
use everycall_format::hub::origin;

const RING: u64 = 64 << 10;

const RECORDER: &str = env!("CARGO_BIN_EXE_everycall-test-recorder");
const PROGRAM: &str = env!("CARGO_BIN_EXE_everycall-test-program");

/// A trace file, its checksums verified.
struct Trace(HashMap<u32, Vec<Vec<u8>>>);

impl Trace {
    fn read(path: &Path) -> Trace {
        let bytes = std::fs::read(path).unwrap();
        let header = FileHeader::read(&bytes).unwrap();
        assert_eq!(header.checksum, crc32fast::hash(&bytes[..FileHeader::SIZE - 4]));
        let mut chunks: HashMap<u32, Vec<Vec<u8>>> = HashMap::new();
        let mut position = header.header_size as usize;
        let mut number = 0;
        while position < bytes.len() {
            let header = ChunkHeader::read(&bytes[position..]).unwrap();
            assert_eq!(header.header_checksum, crc32fast::hash(&bytes[position..][..ChunkHeader::SIZE - 4]));
            position += ChunkHeader::SIZE;
            let payload = &bytes[position..][..header.length as usize];
            assert_eq!(header.payload_checksum, crc32fast::hash(payload));
            assert_eq!(header.number, number);
            chunks.entry(header.kind).or_default().push(payload.to_vec());
            position = (position + payload.len()).next_multiple_of(8);
            number += 1;
        }
        let trace = Trace(chunks);
        let end = EndRecord::read(&trace.0[&chunk::END][0]).unwrap();
        assert_eq!((end.chunks + 1, end.file_length), (number, bytes.len() as u64));
        trace
    }

    fn all<T: Wire>(&self, kind: u32) -> Vec<T> {
        self.0.get(&kind).into_iter().flatten().map(|payload| T::read(payload).unwrap()).collect()
    }

    fn array<T: Wire>(&self, kind: u32) -> Vec<T> {
        array_in(&self.0[&kind][0])
    }

    /// The words of a thread, by segment number.
    fn words(&self, thread: u32) -> Vec<Word> {
        let payloads = self.0[&chunk::EVENTS].iter();
        payloads
            .filter(|payload| EventsRecord::read(payload).unwrap().thread == thread)
            .flat_map(|payload| event_words(payload))
            .map(Word::decode)
            .collect()
    }
}

/// The words of an events chunk.
fn event_words(payload: &[u8]) -> Vec<u64> {
    let (record, bytes) = payload.split_at(EventsRecord::SIZE);
    let record = EventsRecord::read(record).unwrap();
    let count = record.words as usize;
    let unpacked = match record.encoding {
        encoding::RAW => {
            return bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        }
        encoding::COMPACT => bytes.to_vec(),
        encoding::COMPACT_ZSTD => zstd::bulk::decompress(bytes, 2 << 20).unwrap(),
        other => panic!("encoding {other}"),
    };
    let mut words = Vec::new();
    everycall_compact::decode(&unpacked, count, &mut words).unwrap();
    words
}

fn array_in<T: Wire>(payload: &[u8]) -> Vec<T> {
    let header = ArrayHeader::read(payload).unwrap();
    assert_eq!(header.entry_size as usize, T::SIZE);
    let entries = payload[ArrayHeader::SIZE..].chunks_exact(T::SIZE);
    entries.take(header.count as usize).map(|entry| T::read(entry).unwrap()).collect()
}

fn recorder(output: &Path, program: &Path, commands: &str) -> Command {
    let mut command = Command::new(RECORDER);
    command.args([output, Path::new(&RING.to_string()), program]).args(commands.split_whitespace());
    command
}

fn record(commands: &str) -> (Output, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let output = recorder(&path, Path::new(PROGRAM), commands).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output, Trace::read(&path))
}

#[test]
fn a_short_run_is_recorded_whole() {
    let (output, trace) = record("claim thread main 100 thread worker 1 exit 7");
    assert_eq!(output.status.code(), Some(7));
    let ends: Vec<ProcessEnd> = trace.all(chunk::PROCESS_END);
    assert_eq!((ends[0].how, ends[0].code, ends[0].core_dumped), (end::EXITED, 7, 0));
    let threads: Vec<ThreadRecord> = trace.all(chunk::THREAD);
    assert_eq!(threads.len(), 2);
    assert_eq!(&threads[1].name[..7], b"worker\0");
    assert_eq!((threads[0].first_segment, threads[0].segments, threads[0].holes), (0, 1, 0));
    // Its segment record, its calls, the open one; nothing of what was never written.
    assert_eq!(trace.words(0).len(), 4 + 200 + 1);
    assert_eq!(trace.words(1).len(), 4 + 2 + 1);
    let open: Vec<OpenCall> = array_in(&trace.0[&chunk::THREAD][0][ThreadRecord::SIZE..]);
    assert_eq!(open.len(), 1);
    let clocks: Vec<ClockReading> = trace.array(chunk::CLOCK);
    assert!(clocks.len() >= 2 && clocks.is_sorted_by_key(|reading| reading.ticks));
}

#[test]
fn a_long_run_keeps_its_end() {
    let calls = 3 * RING / 8;
    let (_, trace) = record(&format!("claim thread main {calls}"));
    let thread: ThreadRecord = trace.all(chunk::THREAD)[0];
    assert_eq!(thread.segments, 16);
    assert!(thread.first_segment > 16);
    let words = trace.words(0);
    assert!(words.len() as u64 > 15 * RING / 8 / 16);
    let ticks = |word: &Word| match word {
        Word::Entry { ticks_low, .. } | Word::Exit { ticks_low, .. } => Some(*ticks_low),
        _ => None,
    };
    assert!(words.iter().filter_map(ticks).is_sorted(), "segments are in order");
    let entries: Vec<EventsRecord> = trace.all(chunk::EVENTS);
    assert_eq!(entries[0].first_segment, thread.first_segment);
}

#[test]
fn a_signal_is_passed_on_after_the_file_was_written() {
    for signal in [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM] {
        let (output, trace) = record(&format!("claim thread main 10 raise {signal}"));
        assert_eq!(output.status.signal(), Some(signal));
        assert!(!output.status.core_dumped(), "the core is the program's, not the recorder's");
        let ends: Vec<ProcessEnd> = trace.all(chunk::PROCESS_END);
        assert_eq!((ends[0].how, ends[0].code), (end::SIGNALED, signal.unsigned_abs()));
        assert_eq!(trace.words(0).len(), 4 + 20 + 1);
    }
}

#[test]
fn an_arena_full_of_noise_gives_a_well_formed_file() {
    let (output, trace) = record("claim thread main 10 scribble exit 3");
    assert_eq!(output.status.code(), Some(3));
    assert!(trace.0.contains_key(&chunk::SNAPSHOT));
}

#[test]
fn a_program_without_sites_gives_an_empty_recording() {
    let (output, trace) = record("exit 0");
    assert!(output.status.success());
    assert!(!trace.0.contains_key(&chunk::THREAD));
}

/// Deleted while the program runs: the file that was loaded goes into the trace.
#[test]
fn deleted_modules_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let [gone, stays] = ["gone.so", "stays.so"].map(|name| folder.path().join(name));
    for path in [&gone, &stays] {
        std::fs::copy(PROGRAM, path).unwrap();
    }
    let (gone, stays) = (gone.to_str().unwrap(), stays.to_str().unwrap());
    let (_, trace) = record(&format!("claim module {stays} module {gone} remove {gone}"));
    let modules: Vec<ModuleEntry> = trace.array(chunk::MODULES);
    assert_eq!(modules.len(), 2);
    let payloads = &trace.0[&chunk::MODULE_IMAGE];
    assert_eq!(payloads.len(), 1);
    let image = ModuleImage::read(&payloads[0]).unwrap();
    assert_eq!(image.module, 1);
    let bytes = zstd::decode_all(&payloads[0][ModuleImage::SIZE..]).unwrap();
    assert!(bytes == std::fs::read(stays).unwrap() && bytes.len() as u64 == image.length);
    let path_of = |module: &ModuleEntry| {
        let strings = &trace.0[&chunk::MODULES][0][ArrayHeader::SIZE + modules.len() * ModuleEntry::SIZE..];
        let path = &strings[module.path_offset as usize..][..module.path_length as usize];
        String::from_utf8(path.to_vec()).unwrap()
    };
    assert_eq!([path_of(&modules[0]), path_of(&modules[1])], [stays, gone]);
}

/// The program inherits descriptors, signals, environment and group as if `record` were not
/// between.
#[test]
fn the_program_inherits_what_the_recorder_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let show = "env | grep -v -e EVERYCALL_RECORDER -e ^_=; ls -l /proc/self/fd | sed 's/.* \\([0-9]* ->\\)/\\1/; /self/d; \
                /proc/d'; grep -e Sig[PBIC] -e Umask /proc/self/status; cat /proc/self/limits; cut -d' ' -f5-8 /proc/self/stat; pwd";
    // Two shells deep, as the outer one's dispositions reach the program. Shells see to SIGCHLD themselves, so grep tells
    // about that one.
    for setup in
        ["", "trap '' PIPE USR1; umask 027; ulimit -n 99; cd /;", "exec <&-;", "exec 7</dev/null 2>&-;"]
    {
        let run = |recorder: String| {
            let script = format!(
                "{setup} {recorder} sh -c \"$SHOW\"; exec env --ignore-signal=CHLD {recorder} grep Sig[PBIC] /proc/self/status"
            );
            let output = Command::new("sh")
                .args(["-c", &script])
                .env("SHOW", show)
                .env("PAIR", "a=b")
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stdout).replace(&path.display().to_string(), "")
        };
        let plain = run(String::new());
        let recorded = run(format!("{} {} {RING}", RECORDER, path.display()));
        assert!(plain.contains("SigIgn") && plain.contains("Max open files"));
        // Pipes have a number of their own in each run.
        let lines = |text: &str| {
            text.lines().map(|line| line.split("pipe:").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let (plain, recorded) = (lines(&plain), lines(&recorded));
        let differences: Vec<_> =
            recorded.iter().zip(&plain).filter(|(ours, theirs)| ours != theirs).collect();
        assert!(differences.is_empty() && plain.len() == recorded.len(), "{setup}: {differences:#?}");
    }
}

#[test]
fn the_terminals_signals_are_the_programs_matter() {
    // Who runs the tests may ignore them, as `nohup` does, and shells for what they run in the background.
    const DEFAULTS: &str = "--default-signal=HUP,INT,QUIT";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let ready = |command: &mut Command| {
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        until_said(&mut child, "ready\n");
        child
    };
    let start = |script: &str| {
        let mut command = Command::new("env");
        command.args([
            Path::new(DEFAULTS),
            Path::new(RECORDER),
            &path,
            Path::new(&RING.to_string()),
            Path::new("sh"),
            Path::new("-c"),
            Path::new(script),
        ]);
        ready(&mut command)
    };
    let send = |child: &std::process::Child, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    };
    // To the recorder alone: interrupts wait for the program, which goes on until its input ends.
    let mut child = start("echo ready; read none; exit 5");
    send(&child, rustix::process::Signal::INT);
    send(&child, rustix::process::Signal::QUIT);
    std::thread::sleep(std::time::Duration::from_millis(150));
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(5));
    // Requests to end are passed on, whatever the program makes of them.
    let child = start("trap 'echo asked; exit 6' TERM; echo ready; while :; do sleep 0.05; done");
    send(&child, rustix::process::Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(6), &b"asked\n"[..]));
    let child = start("echo ready; while :; do sleep 0.05; done");
    send(&child, rustix::process::Signal::HUP);
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(libc::SIGHUP));
    Trace::read(&path);
    // To the whole group, as Ctrl-C does it: the program ends by it, and then the recorder.
    let recorder = recorder(&path, Path::new(PROGRAM), "claim thread main 10 say ready sleep 60000");
    let mut command = Command::new("env");
    command.arg(DEFAULTS).arg(recorder.get_program()).args(recorder.get_args());
    let child = ready(command.process_group(0));
    rustix::process::kill_process_group(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(libc::SIGINT));
    assert_eq!(Trace::read(&path).words(0).len(), 4 + 20 + 1);
}

/// Reads what a program prints, and no more than that.
fn until_said(child: &mut std::process::Child, line: &str) {
    let mut said = vec![0; line.len()];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(String::from_utf8_lossy(&said), line);
}

/// Without its recorder the program goes on.
#[test]
fn programs_continue_after_their_recorder_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let proof = folder.path().join("proof");
    let script = format!("echo ready; read none; echo done > {}", proof.display());
    let mut command = Command::new(RECORDER);
    command.args([&path, Path::new(&RING.to_string()), Path::new("sh"), Path::new("-c"), Path::new(&script)]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
    let input = child.stdin.take();
    until_said(&mut child, "ready\n");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(input);
    let begin = std::time::Instant::now();
    while !proof.exists() {
        assert!(begin.elapsed().as_secs() < 60, "the program ends its work");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(!path.exists());
}

fn family(commands: &str, variable: &str) -> Trace {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let output = recorder(&path, Path::new(PROGRAM), commands).env(variable, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Trace::read(&path)
}

/// Each process has a record, with whom it comes from and how it ended.
#[test]
fn families_are_recorded() {
    let trace = family(
        "claim thread main 10 child claim,thread,forked,20 child exit,0 together \
         child claim,together,become,claim+thread+other+30+together",
        "NOTHING",
    );
    let mut processes: Vec<ProcessRecord> = trace.all(chunk::PROCESS);
    processes.sort_by_key(|process| process.start_ticks);
    let of = |pid: u32| processes.iter().filter(move |process| process.pid == pid);
    assert_eq!(processes.len(), 4, "{processes:#?}");
    let main = processes.iter().find(|process| process.parent == NO_PROCESS).unwrap();
    assert_eq!((main.origin, main.ending), (origin::START, image_end::ENDED));
    assert_eq!(processes.iter().filter(|process| process.parent_pid == main.pid).count(), 3);
    let twice: Vec<_> = processes.iter().filter(|process| of(process.pid).count() == 2).collect();
    assert_eq!(twice.len(), 2);
    assert_eq!(twice.iter().filter(|process| process.ending == image_end::EXEC).count(), 1, "{twice:#?}");
    assert_eq!(processes.iter().filter(|process| process.origin == origin::FORK).count(), 2);
    assert_eq!(processes.iter().filter(|process| process.origin == origin::EXEC).count(), 1);
    let commands = trace.0[&chunk::PROCESS].iter().map(|payload| &payload[ProcessRecord::SIZE..]);
    assert!(commands.clone().all(|command| command.starts_with(PROGRAM.as_bytes())));
    assert!(commands.clone().any(|command| command.ends_with(b"\0other\x0030\0together\0")));
    // One snapshot each, with the thread that it wrote.
    let threads: Vec<ThreadRecord> = trace.all(chunk::THREAD);
    let mut names: Vec<_> = threads.iter().map(|thread| &thread.name[..6]).collect();
    names.sort_unstable();
    assert_eq!(names, [b"forked", b"main\0\0", b"other\0"]);
    let snapshots: Vec<SnapshotRecord> = trace.all(chunk::SNAPSHOT);
    for thread in threads {
        let snapshot = snapshots.iter().find(|snapshot| snapshot.snapshot == thread.snapshot).unwrap();
        assert_eq!(snapshot.pid, thread.pid);
    }
}

/// Who lives longer than the program is looked at when it ends, or waited for.
#[test]
fn those_who_stay_behind() {
    for (variable, ending, threads) in
        [("NOTHING", image_end::RUNNING, 2), ("WAIT_FOR_ALL", image_end::ENDED, 3)]
    {
        let commands =
            "claim thread main 10 leave claim,thread,daemon,20,sleep,1500,thread,late,5 sleep 500 together";
        let trace = family(commands, variable);
        let processes: Vec<ProcessRecord> = trace.all(chunk::PROCESS);
        let daemon = processes.iter().find(|process| process.origin == origin::FORK).unwrap();
        assert_eq!(daemon.ending, ending, "{variable}");
        assert_eq!(trace.all::<ThreadRecord>(chunk::THREAD).len(), threads, "{variable}");
    }
}

/// Many short processes need few descriptors and little memory: the oldest are written early.
#[test]
fn hundreds_of_children() {
    const CHILDREN: usize = 300;
    let commands = format!("claim thread main 10 {}", "child claim,thread,short,3 ".repeat(CHILDREN));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let line = format!("ulimit -n 200; exec \"$@\" {commands}");
    let mut command = Command::new("sh");
    command.args(["-c", &line, "sh", RECORDER]).args([
        &path,
        Path::new(&RING.to_string()),
        Path::new(PROGRAM),
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let trace = Trace::read(&path);
    assert_eq!(trace.all::<ProcessRecord>(chunk::PROCESS).len(), CHILDREN + 1);
    assert_eq!(trace.all::<ThreadRecord>(chunk::THREAD).len(), CHILDREN + 1);
    assert!(trace.0[&chunk::CLOCK].len() > 1, "written early");
    let clocks: Vec<ClockReading> =
        trace.0[&chunk::CLOCK].iter().flat_map(|chunk| array_in::<ClockReading>(chunk)).collect();
    assert!(clocks.is_sorted_by(|one, next| one.ticks < next.ticks));
}

#[test]
fn without_following_one_process_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let mut command = recorder(&path, Path::new(PROGRAM), "claim thread main 10 spares");
    let output = command.env("NO_FOLLOW", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 arenas\n");
    let output =
        recorder(&path, Path::new(PROGRAM), "claim thread main 10 together spares").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "32 arenas\n");
}

#[test]
fn programs_that_cant_be_started_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let not_executable = folder.path().join("text");
    std::fs::write(&not_executable, "text").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        (Path::new("no-such-program-anywhere"), 127, "does not exist"),
        (Path::new("/no/such/program"), 127, "does not exist"),
        (&*script, 127, "interpreter"),
        (&*not_executable, 126, "chmod"),
        (folder.path(), 126, "is a folder"),
    ];
    for (program, code, words) in cases {
        let output = recorder(&path, program, "").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words) && text.contains(program.to_str().unwrap()), "{text}");
    }
}

/// Limits of the process make the arena smaller, not the recording impossible.
#[test]
fn limits_shrink_the_arena() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.ect");
    let limited = |limit: &str| {
        let line =
            format!("{limit}; exec {} {} {RING} {} claim thread main 10", RECORDER, path.display(), PROGRAM);
        Command::new("sh").args(["-c", &line]).env("SHOW_SUMMARY", "1").output().unwrap()
    };
    for (limit, fewer) in [("true", false), ("ulimit -v 4000000", true), ("ulimit -f 400000", true)] {
        let output = limited(limit);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{limit}: {text}");
        assert_eq!(!text.contains("thread_capacity: 4096"), fewer, "{limit}: {text}");
        assert_eq!(Trace::read(&path).words(0).len(), 4 + 20 + 1);
    }
    let output = limited("ulimit -f 16");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("RLIMIT_FSIZE") && text.contains("ulimit -f"), "{text}");
}
