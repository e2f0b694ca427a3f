//! Trace files, whole, damaged and not at all.

use everycall_reader::event::{EventKind, Events};
use everycall_reader::{ArenaImage, Error, Found, Reason, Seekable, Source, ThreadKey, TraceFile, Warning};
use everycall_synth::{File, Ring, arena_image, basic};

fn warnings(bytes: &[u8]) -> Vec<Warning> {
    TraceFile::open(bytes).unwrap().recording().warnings.clone()
}

/// Where each chunk of a file begins, and its kind.
fn chunks(bytes: &[u8]) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    let mut at = 32;
    while at < bytes.len() {
        let number = |from: usize| u32::from_le_bytes(bytes[at + from..at + from + 4].try_into().unwrap());
        found.push((at, number(4)));
        at += 32 + (number(16) as usize).next_multiple_of(8);
    }
    found
}

/// All words of a thread, and the numbers of their segments.
fn words(source: &dyn Source, thread: usize) -> (Vec<u64>, Vec<u64>) {
    let mut cursor = source.segments(ThreadKey { snapshot: 0, thread });
    let (mut words, mut all, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(segment) = cursor.next_segment(&mut words) {
        if let Ok(number) = segment {
            numbers.push(number);
            all.append(&mut words);
        }
    }
    (all, numbers)
}

#[test]
fn a_whole_file_says_everything() {
    let process = basic();
    let bytes = File::of(&process);
    // From memory, and from anything that reads and seeks.
    let files = [
        TraceFile::open(&bytes[..]).unwrap(),
        TraceFile::open(Seekable::new(std::io::Cursor::new(bytes.clone()))).unwrap(),
    ];
    for file in files {
        let recording = file.recording();
        assert_eq!(recording.warnings, []);
        assert_eq!(recording.meta.arguments, [&b"./app"[..], b"--fast", b"a b"]);
        assert_eq!(recording.meta.cpu_count, Some(8));
        assert_eq!(recording.meta.invariant_counter, Some(true));
        assert_eq!(recording.clock.len(), 3);
        assert_eq!(recording.modules[1].path, b"/usr/lib/one.so");
        assert_eq!(recording.modules[1].build_id, b"/usr/lib/one.so/usr/");
        assert!(recording.modules[0].is_executable && !recording.modules[1].is_executable);
        let snapshot = &recording.snapshots[0];
        assert_eq!(
            (snapshot.reason, snapshot.pid, snapshot.ticks),
            (Reason::ProcessEnd, 100, Some(process.end_ticks))
        );
        for (index, thread) in process.threads.iter().enumerate() {
            assert_eq!(snapshot.threads[index].name, thread.name.as_bytes());
            let (all, numbers) = words(&file, index);
            assert_eq!(all, thread.ring.segments().flatten().copied().collect::<Vec<u64>>());
            assert_eq!(numbers.first(), Some(&thread.ring.first_segment()));
            let open = file.open_calls(ThreadKey { snapshot: 0, thread: index });
            assert_eq!(open.len(), thread.ring.open_calls().len());
        }
    }
}

#[test]
fn an_arena_holds_the_same_words() {
    let mut process = basic();
    process.threads.remove(1);
    let bytes = arena_image(&process);
    let image = ArenaImage::open(&bytes[..]).unwrap();
    assert_eq!(image.recording().warnings, []);
    assert_eq!(image.recording().modules.len(), 3);
    assert_eq!(image.recording().modules[2].path, b"/usr/lib/two.so");
    assert_eq!(image.recording().snapshots[0].threads.len(), 2, "the free slot is none");
    for (index, thread) in process.threads.iter().enumerate() {
        let (all, _) = words(&image, index);
        let written: Vec<u64> = thread.ring.segments().flatten().copied().collect();
        assert_eq!(all, written);
        let open = image.open_call_entries(ThreadKey { snapshot: 0, thread: index });
        let open: Vec<u64> = open.iter().map(|call| call.word).collect();
        assert_eq!(open, thread.ring.open_calls().iter().map(|call| call.word).collect::<Vec<u64>>());
    }
}

#[test]
fn a_segment_that_is_being_cleared_is_left_out() {
    let mut process = basic();
    process.threads.truncate(1);
    let mut ring = Ring::new(512, 4, 1000);
    while ring.first_segment() < 3 {
        ring.enter(2000, 0x1010);
    }
    process.threads[0].ring = ring;
    let mut bytes = arena_image(&process);
    // The smallest possible ring has 64 KiB; use that size.
    assert!(ArenaImage::open(&bytes[..]).is_err());
    let mut ring = Ring::new(512, 16, 1000);
    while ring.first_segment() < 3 {
        ring.enter(2000, 0x1010);
    }
    process.threads[0].ring = ring;
    bytes = arena_image(&process);
    let image = ArenaImage::open(&bytes[..]).unwrap();
    assert_eq!(words(&image, 0).1, (3..19).collect::<Vec<u64>>());
    // Segment 3 is the oldest and is placed behind the others; its first word is missing.
    let at = image.header().segment_at(15) as usize;
    let mut cleared = bytes.clone();
    cleared[at..at + 8].fill(0);
    let image = ArenaImage::open(&cleared[..]).unwrap();
    assert_eq!(words(&image, 0).1, (4..19).collect::<Vec<u64>>());
}

#[test]
fn other_files_are_named() {
    let cases: [(&[u8], Found); 11] = [
        (b"", Found::Empty),
        (b"everycall tr", Found::CutHeader(12)),
        (b"\x7fELF\x02\x01\x01", Found::Elf),
        (b"\x1f\x8b\x08", Found::Gzip),
        (b"\x28\xb5\x2f\xfd\0", Found::Zstd),
        (b"{\"traceEvents\": []}", Found::Json),
        (b" \n[1, 2]", Found::Json),
        (b"hello, world, this is not a trace at all\n", Found::Text),
        (&[0; 100], Found::Zeros),
        (&[1, 2, 3, 4, 200, 0], Found::Unknown),
        (b"everycal\x01\0\0\0", Found::Arena),
    ];
    for (bytes, wanted) in cases {
        match TraceFile::open(bytes) {
            Err(Error::NotATrace(found)) => assert_eq!(found, wanted, "{bytes:?}"),
            other => panic!("{bytes:?}: {other:?}"),
        }
    }
    let error = TraceFile::open(&b"\x7fELF"[..]).unwrap_err().to_string();
    assert!(error.contains("found an ELF file") && error.contains("everycall record"), "{error}");
}

#[test]
fn newer_files_are_refused_or_read() {
    let error = TraceFile::open(&File::new(3, 3).end()[..]).unwrap_err();
    assert!(matches!(error, Error::Newer { major: 3, minor: 3 }), "{error}");
    assert!(error.to_string().contains("format 3.3"));
    for (major, minor) in [(1, 0), (2, 9)] {
        let mut file = File::new(major, minor);
        file.chunk(900, b"from the future");
        assert_eq!(warnings(&file.end()), [Warning::UnknownChunks { kind: 900, count: 1 }]);
    }
}

#[test]
fn damage_costs_the_damaged_chunk() {
    let bytes = File::of(&basic());
    let all = words(&TraceFile::open(&bytes[..]).unwrap(), 0).0.len();
    assert!(all > 0);
    for (at, kind) in chunks(&bytes) {
        // In the payload: the checksum shows it.
        let mut damaged = bytes.clone();
        damaged[at + 33] ^= 0x10;
        let file = TraceFile::open(&damaged[..]).unwrap();
        let mut found = file.recording().warnings.clone();
        if kind == 7 {
            let threads = file.recording().snapshots[0].threads.len();
            for thread in 0..threads {
                let mut cursor = file.segments(ThreadKey { snapshot: 0, thread });
                let mut words = Vec::new();
                while let Some(segment) = cursor.next_segment(&mut words) {
                    found.extend(segment.err());
                }
            }
        }
        let wanted = Warning::ChunkDamaged { at: at as u64, kind };
        assert!(found.contains(&wanted), "{wanted:?} in {found:?}");

        // In the header: the next chunk is found nevertheless.
        let mut damaged = bytes.clone();
        damaged[at + 17] ^= 0x10;
        let found = warnings(&damaged);
        let skipped =
            |warning: &Warning| matches!(warning, Warning::Skipped { at: from, .. } if *from == at as u64);
        assert!(found.iter().any(skipped), "{found:?}");
    }
    let mut damaged = bytes.clone();
    damaged[30] ^= 1;
    assert_eq!(warnings(&damaged), [Warning::HeaderDamaged]);
}

#[test]
fn a_truncated_events_chunk_gives_its_complete_events() {
    let process = basic();
    let bytes = File::of(&process);
    let (at, _) = *chunks(&bytes).iter().find(|(_, kind)| *kind == 7).unwrap();
    // Header, record, and 10 words and a half.
    let cut = &bytes[..at + 32 + 32 + 84];
    let file = TraceFile::open(cut).unwrap();
    let written: Vec<u64> = process.threads[0].ring.segments().flatten().copied().collect();
    assert_eq!(words(&file, 0).0, written[..10]);
    assert!(file.recording().warnings.contains(&Warning::Cut { at: cut.len() as u64 }));
}

#[test]
fn module_files_come_back() {
    let content: Vec<u8> = (0..200_000_u32).flat_map(|value| (value / 7).to_le_bytes()).collect();
    let compressed = zstd::bulk::compress(&content[..], 1).unwrap();
    assert!(compressed.len() < content.len());
    for (encoding, stored) in [(0_u32, &content), (1, &compressed)] {
        let mut payload = 5_u32.to_le_bytes().to_vec();
        payload.extend(encoding.to_le_bytes());
        payload.extend((content.len() as u64).to_le_bytes());
        payload.extend(stored);
        let mut file = File::default();
        file.chunk(4, &payload);
        let mut table = [128_u32, 6].map(u32::to_le_bytes).concat();
        table.resize(8 + 6 * 128, 0);
        file.chunk(3, &table);
        let mut bytes = file.end();
        let mut out = Vec::new();
        let trace = TraceFile::open(&bytes[..]).unwrap();
        assert!(trace.has_module_image(5) && !trace.has_module_image(4));
        assert_eq!(trace.copy_module_image(5, &mut out).unwrap(), content.len() as u64);
        assert!(out == content);
        assert!(trace.copy_module_image(4, &mut out).is_err());
        let middle = 64 + payload.len() / 2;
        drop(trace);
        bytes[middle] ^= 1;
        let trace = TraceFile::open(&bytes[..]).unwrap();
        let error = trace.copy_module_image(5, &mut std::io::sink()).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn compressed_events_come_back() {
    let process = basic();
    let thread = &process.threads[0];
    let words_there: Vec<u64> = thread.ring.segments().flatten().copied().collect();
    let raw: Vec<u8> = words_there.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut payload = [0_u8; 32];
    payload[16..24].copy_from_slice(&(words_there.len() as u64).to_le_bytes());
    payload[24] = 1;
    let mut payload = payload.to_vec();
    payload.extend(zstd::bulk::compress(&raw[..], 1).unwrap());
    let mut file = File::default();
    file.thread(1, 0, thread);
    file.chunk(7, &payload);
    let bytes = file.end();
    let file = TraceFile::open(&bytes[..]).unwrap();
    assert_eq!(words(&file, 0).0, words_there);
}

/// The words of an events chunk, in one of the forms.
fn events(encoding: u32, count: usize, stored: &[u8]) -> Vec<u8> {
    let mut payload = vec![0_u8; 32];
    payload[16..24].copy_from_slice(&(count as u64).to_le_bytes());
    payload[24..28].copy_from_slice(&encoding.to_le_bytes());
    payload.extend(stored);
    payload
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).unwrap()
}

#[test]
fn words_in_compact_form_come_back() {
    let process = basic();
    for bytes in [File::of_compact(&process), File::of(&process)] {
        let file = TraceFile::open(&bytes[..]).unwrap();
        for (index, thread) in process.threads.iter().enumerate() {
            let there: Vec<u64> = thread.ring.segments().flatten().copied().collect();
            assert_eq!(words(&file, index).0, there);
        }
    }
    let thread = &process.threads[0];
    let there: Vec<u64> = thread.ring.segments().flatten().copied().collect();
    // As the recorder writes it, in either form; and bytes that synth has made.
    let mut compact = Vec::new();
    everycall_compact::encode(&there, &mut compact);
    let by_synth = everycall_synth::compact(&there);
    for (encoding, stored) in [(2, &compact), (2, &by_synth), (3, &packed(&compact)), (3, &packed(&by_synth))]
    {
        let mut file = File::default();
        file.thread(1, 0, thread);
        file.chunk(7, &events(encoding, there.len(), stored));
        let bytes = file.end();
        let file = TraceFile::open(&bytes[..]).unwrap();
        assert_eq!(words(&file, 0).0, there);
    }
}

#[test]
fn a_truncated_compact_chunk_gives_its_complete_events() {
    let process = basic();
    let bytes = File::of_compact(&process);
    let written: Vec<u64> = process.threads[0].ring.segments().flatten().copied().collect();
    let (at, _) = *chunks(&bytes).iter().find(|(_, kind)| *kind == 7).unwrap();
    let end = at + 32 + u32::from_le_bytes(bytes[at + 16..at + 20].try_into().unwrap()) as usize;
    let mut before = 0;
    for cut in at + 64..end {
        let file = TraceFile::open(&bytes[..cut]).unwrap();
        let there = words(&file, 0).0;
        assert!(there.len() >= before && written.starts_with(&there), "{cut}");
        before = there.len();
    }
    assert!(before > 0);
}

#[test]
fn damage_in_compact_form_costs_its_chunk() {
    let thread = &basic().threads[0];
    let there: Vec<u64> = thread.ring.segments().flatten().copied().collect();
    let good = everycall_synth::compact(&there);
    let huge: Vec<u8> = [0xef, 0xff, 0xff].repeat(100_000);
    let cases: [(u32, usize, Vec<u8>); 9] = [
        (2, there.len() + 1, good.clone()),
        (2, there.len() - 1, good.clone()),
        (2, usize::MAX, good.clone()),
        (2, 1 << 20, huge.clone()),
        (3, 131_072, packed(&huge)),
        (2, 10, vec![]),
        (2, 1, vec![0xf8, 0xff, 0xff]),
        (3, there.len(), good.clone()),
        (3, there.len(), packed(&good)[..20].to_vec()),
    ];
    for (number, (encoding, count, stored)) in cases.iter().enumerate() {
        let mut file = File::default();
        file.thread(1, 0, thread);
        file.chunk(7, &events(*encoding, *count, stored));
        file.chunk(7, &events(2, there.len(), &good));
        let bytes = file.end();
        let file = TraceFile::open(&bytes[..]).unwrap();
        let mut cursor = file.segments(ThreadKey { snapshot: 0, thread: 0 });
        let mut segment = Vec::new();
        let first = cursor.next_segment(&mut segment).unwrap();
        assert!(matches!(first, Err(Warning::ChunkMalformed { kind: 7, .. })), "{number}: {first:?}");
        assert_eq!(words(&file, 0).0, there, "{number}: the next chunk is whole");
    }
}

#[test]
fn claimed_sizes_allocate_no_memory() {
    // Arrays, texts and chunks that say they are huge.
    let huge = [0xff_u8; 8];
    for kind in [1, 2, 3, 6, 8] {
        let mut payload = if kind == 6 { vec![0; 128] } else { Vec::new() };
        payload.extend(huge);
        payload.extend([0; 64]);
        let mut file = File::default();
        file.chunk(kind, &payload);
        let bytes = file.end();
        let found = warnings(&bytes);
        assert!(
            found
                .iter()
                .any(|warning| matches!(warning, Warning::ChunkMalformed { kind: of, .. } if *of == kind)),
            "{kind}: {found:?}"
        );
    }
}

#[test]
fn records_decode_by_their_rules() {
    let mut ring = Ring::new(64, 4, 0x5_0000_0000);
    ring.enter(0x5_0000_0010, 0x1010);
    ring.enter(0x6_0000_0005, 0x1020);
    ring.exit(0x5_ffff_ff00, 0x1030);
    ring.raw(&[0, 0, 0x1234_5678_0000_0000], 0);
    ring.unwind(0x6_0000_0009, 1);
    ring.busy(0x6_0000_000a, 0x1_0000_0002);
    ring.enter_unknown(0x6_0000_000b, 0xffff_8888_7777_6666);
    ring.record(0x6_0000_000c, 77, 0, &[1, 2, 3, 4, 5, 6]);
    // A payload without its first word, and a record that lacks one word.
    ring.raw(&[0xff03_0100, 0x7f03_0100], 0);
    ring.exit(0x6_0000_000d, 0x1011);
    let segment = ring.segments().next().unwrap();
    let events: Vec<(u64, EventKind)> = Events::new(segment).map(|event| (event.ticks, event.kind)).collect();
    let wanted = [
        (0x5_0000_0000, EventKind::Segment { number: 0, open_calls: 0 }),
        (0x5_0000_0010, EventKind::Entry { offset: 0x1010 }),
        (0x6_0000_0005, EventKind::Entry { offset: 0x1020 }),
        (0x5_ffff_ff00, EventKind::Exit { offset: 0x1030 }),
        (0x5_ffff_ff00, EventKind::Hole { count: 3 }),
        (0x6_0000_0009, EventKind::Unwound { open_calls: 1, left: None, how: 0 }),
        (0x6_0000_000a, EventKind::Loss { count: 0x1_0000_0002, why: 2 }),
        (0x6_0000_000b, EventKind::UnknownEntry { address: 0xffff_8888_7777_6666 }),
        (0x6_0000_000c, EventKind::Other { kind: 77 }),
        (0x6_0000_000c, EventKind::Malformed),
        (0x6_0000_000c, EventKind::Malformed),
        (0x6_0000_000d, EventKind::Exit { offset: 0x1011 }),
    ];
    assert_eq!(events, wanted);
}

/// Two processes of the same program and another one: each has its modules, and one file is one
/// file.
#[test]
fn families_keep_their_modules_apart() {
    let mut parent = basic();
    parent.pid = 100;
    let mut child = basic();
    child.pid = 101;
    child.modules.truncate(1);
    let mut other = basic();
    other.pid = 102;
    other.modules[0].path = "/bin/other".to_owned();
    let member = |process: &everycall_synth::Process, number, parent, origin| everycall_synth::Member {
        number,
        parent,
        origin,
        process: process.clone(),
    };
    // The parent is written last: others end before it.
    let members = [member(&child, 7, 3, 2), member(&other, 9, 7, 3), member(&parent, 3, u32::MAX, 1)];
    let bytes = File::of_processes(&members);
    let file = TraceFile::open(&bytes[..]).unwrap();
    let recording = file.recording();
    assert_eq!(recording.warnings, []);
    let pids: Vec<u32> = recording.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [101, 102, 100]);
    let parents: Vec<_> = recording.processes.iter().map(|process| process.parent).collect();
    assert_eq!(parents, [Some(2), Some(0), None]);
    assert_eq!(recording.processes[0].origin, everycall_reader::Origin::Fork);
    assert_eq!(recording.processes[0].command, recording.processes[2].command);
    let modules = &recording.modules;
    assert_eq!(modules.len(), child.modules.len() + other.modules.len() + parent.modules.len());
    let of = |process: usize| recording.processes[process].modules.clone();
    assert_eq!(modules[of(2).start].same_file, of(0).start, "one file");
    assert_eq!(modules[of(1).start].same_file, of(1).start, "another file");
    for (index, process) in recording.processes.iter().enumerate() {
        assert!(modules[process.modules.clone()].iter().all(|module| module.process == index));
        let snapshot = &recording.snapshots[index];
        assert_eq!((snapshot.process, snapshot.pid), (index, process.pid));
        assert!(snapshot.threads.iter().all(|thread| thread.pid == process.pid));
    }
    // A process whose own chunk is missing still has its own modules.
    let (at, _) = *chunks(&bytes).iter().find(|(_, kind)| *kind == 10).unwrap();
    let mut damaged = bytes.clone();
    damaged[at + 33] ^= 1;
    let file = TraceFile::open(&damaged[..]).unwrap();
    let lost = &file.recording().processes[0];
    assert_eq!((lost.pid, lost.modules.len(), lost.parent), (101, 1, None));
}
