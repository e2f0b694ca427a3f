//! Cores that are whole, packed, split, truncated or hostile: the result must be what the arena
//! contains.

use std::fs::File;
use std::io::{Cursor, Seek, Write};
use std::mem::offset_of;

use everycall_coredump::{Core, CoreError, Snapshot, unpack};
use everycall_format::arena::ArenaHeader;
use everycall_reader::{ArenaImage, OpenCall, Source, ThreadKey, TraceFile};
use everycall_synth::{Core as SynthCore, Process, Rng, arena_image, basic, mutate};

const BASE: u64 = 0x7f00_1234_0000;

/// Everything that a reader sees of one thread.
#[derive(Debug, PartialEq)]
struct Seen {
    tid: u32,
    name: Vec<u8>,
    segments: Vec<(u64, Vec<u64>)>,
    open_calls: Vec<OpenCall>,
}

fn seen(source: &dyn Source) -> Vec<Seen> {
    let [snapshot] = &source.recording().snapshots[..] else { panic!("one snapshot") };
    let mut all = Vec::new();
    for (thread, known) in snapshot.threads.iter().enumerate() {
        let key = ThreadKey { snapshot: 0, thread };
        let mut cursor = source.segments(key);
        let mut segments = Vec::new();
        let mut words = Vec::new();
        while let Some(segment) = cursor.next_segment(&mut words) {
            segments.extend(segment.ok().map(|number| (number, words.clone())));
        }
        let open_calls = source.open_calls(key);
        all.push(Seen { tid: known.tid, name: known.name.clone(), segments, open_calls });
    }
    all
}

fn core_of(process: &Process) -> SynthCore {
    let mut core = SynthCore {
        pid: process.pid,
        name: "app".to_owned(),
        arguments: "./app --fast 7".to_owned(),
        signal: 11,
        is_kernels: true,
        threads: 3,
        files: vec![(0x40_0000, "/opt/app".to_owned())],
        memory: vec![(0x40_0000, vec![0x90; 5000])],
    };
    core.add_in_pieces(BASE, &arena_image(process));
    core.memory.push((0x7fff_0000_0000, vec![0xcc; 9000]));
    core
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn trace_of(core: &Core<'_>) -> Vec<u8> {
    let image = core.arena().unwrap();
    let snapshot = Snapshot::read(&image, core.process()).unwrap();
    let mut trace = Vec::new();
    snapshot.write(&mut trace, "test").unwrap();
    trace
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn sentence(bytes: &[u8], pid: Option<u32>) -> String {
    let error = Core::open(file(bytes), pid).unwrap_err();
    assert!(std::error::Error::source(&error).is_none() || !error.to_string().is_empty());
    error.to_string()
}

#[test]
fn cores_hold_what_the_arena_holds_however_they_are_packed() {
    let process = basic();
    let arena = arena_image(&process);
    let expected = seen(&ArenaImage::open(&arena).unwrap());
    assert!(expected.iter().any(|thread| thread.segments.len() > 1 && !thread.open_calls.is_empty()));
    let bytes = core_of(&process).file();
    for bytes in [bytes.clone(), zstd(&bytes), lz4(&bytes), arena.clone(), zstd(&arena), lz4(&arena)] {
        let core = Core::open(file(&bytes), None).unwrap();
        assert_eq!(core.cut().unwrap(), 0);
        assert_eq!(seen(&core.arena().unwrap()), expected);
        let trace = trace_of(&core);
        let trace = TraceFile::open(trace).unwrap();
        assert_eq!(seen(&trace), expected);
        let original = ArenaImage::open(&arena).unwrap();
        assert_eq!(trace.recording().modules, original.recording().modules);
        assert_eq!(trace.recording().clock, original.recording().clock);
        assert_eq!(trace.recording().snapshots[0].counters, original.recording().snapshots[0].counters);
    }
}

#[test]
fn a_core_names_its_process() {
    let process = basic();
    let bytes = core_of(&process).file();
    let core = Core::open(file(&bytes), None).unwrap();
    let facts = core.process().unwrap();
    assert_eq!((facts.pid, facts.signal, facts.has_ended), (Some(process.pid), Some(11), true));
    assert_eq!((&*facts.name, &*facts.arguments), (&b"app"[..], &b"./app --fast 7"[..]));
    assert_eq!((facts.threads, &facts.files[..]), (3, &[(b"/opt/app".to_vec(), 0x40_0000)][..]));
    let trace = TraceFile::open(trace_of(&core)).unwrap();
    let end = trace.recording().process_end.unwrap();
    assert_eq!((end.how, end.code, end.core_dumped), (2, 11, true));
    assert_eq!(trace.recording().meta.arguments, [&b"./app"[..], b"--fast", b"7"]);
    assert_eq!(trace.recording().processes[0].pid, process.pid);

    // As written by a debugger: the process continued.
    let core = SynthCore { is_kernels: false, ..core_of(&process) }.file();
    let trace = TraceFile::open(trace_of(&Core::open(file(&core), None).unwrap())).unwrap();
    assert_eq!(trace.recording().process_end, None);

    // An arena alone knows its program.
    let trace = TraceFile::open(trace_of(&Core::open(file(&arena_image(&process)), None).unwrap())).unwrap();
    assert_eq!(trace.recording().meta.arguments, [process.modules[0].path.as_bytes()]);
}

#[test]
fn the_program_can_be_elsewhere() {
    let process = basic();
    let bytes = core_of(&process).file();
    let core = Core::open(file(&bytes), None).unwrap();
    let image = core.arena().unwrap();
    let mut snapshot = Snapshot::read(&image, core.process()).unwrap();
    snapshot.set_executable(b"/srv/copy/app");
    let mut trace = Vec::new();
    snapshot.write(&mut trace, "test").unwrap();
    let trace = TraceFile::open(trace).unwrap();
    let paths: Vec<_> = trace.recording().modules.iter().map(|module| module.path_lossy()).collect();
    assert_eq!(paths[0], "/srv/copy/app");
    assert_eq!(paths[1], process.modules[1].path);
}

#[test]
fn forked_children_have_their_parents_memory_too() {
    let mut own = basic();
    own.pid = 900;
    own.threads.truncate(1);
    let parent = basic();
    let mut core = core_of(&parent);
    core.pid = 900;
    assert_eq!(
        sentence(&core.file(), None),
        format!(
            "app (process 900) wrote no calls here: what is here is memory of process {pid}, as forked children inherit \
             their parent's. --pid {pid} shows that one",
            pid = parent.pid
        )
    );
    let by_pid = Core::open(file(&core.file()), Some(parent.pid)).unwrap();
    assert_eq!(by_pid.arena().unwrap().header().target_pid, parent.pid);

    core.add_in_pieces(0x7fff_8000_0000, &arena_image(&own));
    for packed in [core.file(), zstd(&core.file())] {
        let both = Core::open(file(&packed), None).unwrap();
        assert_eq!(both.arena().unwrap().header().target_pid, 900);
        assert_eq!(seen(&both.arena().unwrap()).len(), 1);
    }
    assert!(sentence(&core.file(), Some(5)).contains("process 5 wrote no calls"), "another pid");
    assert!(
        sentence(&arena_image(&parent), Some(5)).contains("process 5 wrote no calls"),
        "an image of another"
    );
    assert!(Core::open(file(&arena_image(&parent)), Some(parent.pid)).is_ok());
    // The core doesn't say which process it is from.
    core.pid = 0;
    assert!(sentence(&core.file(), None).contains("--pid"));
}

#[test]
fn what_is_no_core_is_named() {
    let program = std::fs::read("/proc/self/exe").unwrap();
    let cases: [(&[u8], &str); 11] = [
        (b"", "an empty file"),
        (b"hello\n", "text"),
        (&[0; 100], "zeros"),
        (&[0xee; 100], "unknown kind"),
        (&program, "a program or a library"),
        (&zstd(b"hello"), "something else, packed"),
        (b"\xfd7zXZ\0\0", "`xz -d`"),
        (&[0x1f, 0x8b, 8, 0], "`gzip -d`"),
        (b"everycall trace\n....", "everycall info"),
        (b"\x7fELF\x01\x01\x01", "truncated at byte 7, within its headers"),
        (&[&b"\x7fELF\x01\x01\x01"[..], &[0; 60]].concat(), "32-bit"),
    ];
    for (bytes, words) in cases {
        let said = sentence(bytes, None);
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_core_without_our_memory_says_why() {
    let process = basic();
    let mut core = core_of(&process);
    core.memory.retain(|(address, _)| !(BASE..0x7fff_0000_0000).contains(address));
    let said = sentence(&core.file(), None);
    assert!(said.contains("built for tracing") && said.contains("app (process"), "{said}");
    core.files.push((BASE, "/memfd:everycall-arena (deleted)".to_owned()));
    let said = sentence(&core.file(), None);
    assert!(said.contains("lists everycall's memory") && said.contains("coredump_filter"), "{said}");
    let bytes = core.file();
    let said = sentence(&bytes[..bytes.len() - 100], None);
    assert!(said.contains("100 bytes are missing at its end"), "{said}");
}

/// A core truncated anywhere: either an error says so, or the rest is shown, with a count of what
/// is missing.
#[test]
fn cut_cores_lose_only_their_end() {
    let process = basic();
    let expected = seen(&ArenaImage::open(arena_image(&process)).unwrap());
    let bytes = core_of(&process).file();
    let mut shown = 0;
    for length in (0..bytes.len()).step_by(509).chain(0..300) {
        let cut = &bytes[..length];
        match Core::open(file(cut), None) {
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.contains("truncated") || length == 0 || said.contains("expected a core"),
                    "{length}: {said}"
                );
            }
            Ok(core) => {
                let there = seen(&core.arena().unwrap());
                for thread in &there {
                    let whole = expected.iter().find(|known| known.tid == thread.tid).unwrap();
                    for (number, words) in &thread.segments {
                        let (_, all) = whole.segments.iter().find(|(each, _)| each == number).unwrap();
                        // A missing word is read as an empty one: a lost event, which is counted.
                        let same = |(all, word): (&u64, &u64)| all == word || *word == 0;
                        assert!(words.len() <= all.len() && all.iter().zip(words).all(same), "{length}");
                    }
                }
                let is_whole = there == expected;
                assert!(
                    is_whole || core.cut().unwrap() > 0,
                    "{length}: something is missing, and nobody says so"
                );
                TraceFile::open(trace_of(&core)).unwrap();
                shown += 1;
            }
        }
    }
    assert!(shown > 10, "{shown}");
    for packed in [zstd(&bytes), lz4(&bytes)] {
        for length in (0..packed.len()).step_by(97) {
            if let Ok(core) = Core::open(file(&packed[..length]), None) {
                assert!(seen(&core.arena().unwrap()) == expected || core.cut().unwrap() > 0, "{length}");
            }
        }
    }
}

#[test]
fn of_a_packed_core_only_our_memory_is_kept() {
    use std::os::unix::fs::MetadataExt;
    let process = basic();
    let mut core = core_of(&process);
    core.memory.insert(1, (0x50_0000, vec![7; 32 << 20]));
    let bytes = core.file();
    let unpacked = unpack(&bytes[..], "zstd").unwrap();
    let data = unpacked.metadata().unwrap();
    assert_eq!(data.len(), bytes.len() as u64);
    assert!(data.blocks() * 512 < 2 << 20, "{} blocks", data.blocks());
    let core = Core::of_elf(unpacked, None).unwrap();
    assert_eq!(seen(&core.arena().unwrap()), seen(&ArenaImage::open(arena_image(&process)).unwrap()));
}

#[test]
fn damage_is_survived() {
    let mut process = basic();
    process.threads.truncate(2);
    let good = core_of(&process).file();
    let headers = 64 + 56 * 12;
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let mut bytes = good.clone();
        if seed % 2 == 0 {
            // Where it hurts most.
            let mut front = bytes[..headers].to_vec();
            mutate(&mut front, &mut rng);
            bytes.splice(..headers, front);
        } else {
            mutate(&mut bytes, &mut rng);
        }
        for core in [
            Core::of_elf(&bytes, None),
            unpack(Cursor::new(&bytes), "test").and_then(|file| Core::of_elf(file, None)),
        ]
        .into_iter()
        .flatten()
        {
            let (Ok(image), Ok(_)) = (core.arena(), core.cut()) else { continue };
            let Ok(snapshot) = Snapshot::read(&image, core.process()) else { continue };
            snapshot.write(std::io::sink(), "test").unwrap();
        }
    }
}

/// An arena of version 5 with a part for scheduling events, which starts behind all others: 3 of
/// process 77, of which the last is behind the moment until which they are known; one of a process
/// of others.
fn arena_with_states(process: &Process, spoil: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut arena = arena_image(process);
    let at = arena.len().next_multiple_of(4096);
    let size = at + 4096 + 32768 * 24;
    arena[16..24].copy_from_slice(&(size as u64).to_le_bytes());
    arena[552..560].copy_from_slice(&(at as u64).to_le_bytes());
    arena.resize(at, 0);
    let mut part = Vec::new();
    part.extend(b"everysts");
    part.extend([104_u32, 24, 1, 2, 5, 0].map(u32::to_le_bytes).concat());
    let (written, until, ticks, raw) = (4_u64, 7_000_u64, 9_000_u64, 7_000_u64);
    let magic = u64::from_le_bytes(*b"everysts");
    let sum = written + until + ticks + raw;
    part.extend(
        [4, written, until, ticks, raw, 0, 0, 0, sum.wrapping_add(magic)].map(u64::to_le_bytes).concat(),
    );
    part.extend(b"blind");
    part.resize(4096, 0);
    for (time, pid, kind) in
        [(6_000_u64, process.pid, 2_u8), (5_000, process.pid, 1), (6_500, 1, 1), (7_001, process.pid, 1)]
    {
        part.extend(time.to_le_bytes());
        part.extend([pid, process.pid, 0].map(u32::to_le_bytes).concat());
        part.extend([0, 0, kind, 1]);
    }
    part.resize(size - at, 0);
    spoil(&mut part);
    arena.extend(part);
    arena
}

fn core_with_states(arena: &[u8]) -> SynthCore {
    let mut core = SynthCore { memory: vec![], ..core_of(&basic()) };
    core.add_in_pieces(BASE, arena);
    core
}

/// A recorder has put them there: what it had read until then.
#[test]
fn scheduling_events_in_an_arena_are_in_its_trace() {
    let process = basic();
    let times = |arena: &[u8]| {
        let core = core_with_states(arena).file();
        let core = Core::of_elf(core, None).unwrap();
        let trace = TraceFile::open(trace_of(&core)).unwrap();
        let sched = trace.recording().sched.clone()?;
        let times: Vec<u64> = sched.events.iter().map(|event| event.time).collect();
        Some((times, sched.until, sched.overwritten, sched.text, trace.recording().clock.len()))
    };
    let whole = arena_with_states(&process, |_| {});
    assert_eq!(times(&whole), Some((vec![5_000, 6_000], Some(7_000), 0, b"blind".to_vec(), 1)));
    // A recorder that is just writing, one of another kind, and none.
    for at in [0, 8, 12, 20, 40, 48, 56, 96] {
        let spoilt = arena_with_states(&process, |part| part[at] ^= 0x40);
        assert_eq!(times(&spoilt), None, "{at}");
    }
    assert_eq!(times(&arena_with_states(&process, |part| part.fill(0))), None);
    // It was about to write 20 more, over the oldest ones: those behind them are left out, too.
    let begun =
        |count: u64| arena_with_states(&process, |part| part[32..40].copy_from_slice(&count.to_le_bytes()));
    assert_eq!(times(&begun(32_768)).unwrap().0, [5_000, 6_000]);
    assert_eq!(times(&begun(32_768 + 20)).unwrap().0, [0; 0]);
    assert_eq!(times(&begun(u64::MAX)).unwrap().2, 4);
}

#[test]
fn damaged_scheduling_events_are_survived() {
    let process = basic();
    for seed in 0..100 {
        let arena = arena_with_states(&process, |part| {
            let mut rng = Rng::new(seed);
            let mut front = part[..4096 + 96].to_vec();
            mutate(&mut front, &mut rng);
            front.resize(4096 + 96, 0);
            let word = |at: usize| u64::from_le_bytes(front[at..at + 8].try_into().unwrap());
            let sum = [40, 48, 56, 64].map(word).iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
            // So that its numbers are looked at.
            let check = sum.wrapping_add(u64::from_le_bytes(*b"everysts"));
            front[96..104].copy_from_slice(&check.to_le_bytes());
            front[..8].copy_from_slice(b"everysts");
            part[..4096 + 96].copy_from_slice(&front);
        });
        let Ok(core) = Core::of_elf(core_with_states(&arena).file(), None) else { continue };
        let trace = TraceFile::open(trace_of(&core)).unwrap();
        if let Some(sched) = &trace.recording().sched {
            assert!(sched.events.iter().all(|event| Some(event.time) <= sched.until), "{seed}");
            assert!(sched.events.len() <= 32_768, "{seed}");
        }
    }
}

/// Sizes larger than any memory are rejected before anything is allocated for them.
#[test]
fn tables_of_any_size_are_refused() {
    let mut arena = arena_image(&basic());
    let size_at = offset_of!(ArenaHeader, arena_size);
    arena[size_at..size_at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let good = core_of(&basic());
    let mut core = SynthCore { memory: vec![], ..good };
    core.memory.push((BASE, arena));
    // A size alone does no harm: the rest of it reads as zeros.
    assert!(Core::of_elf(core.file(), None).is_ok());
    let spoil = |at: usize, core: &mut SynthCore| core.memory[0].1[at..at + 4].fill(0x3f);
    spoil(offset_of!(ArenaHeader, module_capacity), &mut core);
    spoil(offset_of!(ArenaHeader, modules), &mut core);
    assert!(matches!(Core::of_elf(core.file(), None), Err(CoreError::Arena(_))));
}
