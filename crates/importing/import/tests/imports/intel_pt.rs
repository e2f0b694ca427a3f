//! perf's own files with traces of Intel PT: of programs made at random, whose calls are known.

use std::io::Cursor;
use std::path::Path;

use everycall_import::{Format, ImportOptions, import, import_bytes};
use everycall_synth::{PerfData, PerfWhose, PtCall, PtEncoder, PtProgram, PtRun, Rng, mutate};

use super::{Shown, imported};

/// perf's own file of a program made at random, whose file is in `folder`: two threads on one CPU
/// and a forked process on another. Returns the calls of each thread as well.
fn perf_data(folder: &Path, change: impl Fn(&mut PerfData)) -> (Vec<u8>, Vec<(u32, Vec<PtCall>)>) {
    perf_data_of(folder, 5000, 0, change)
}

/// So many instructions of each thread; packets are lost at one of `overflows`.
fn perf_data_of(
    folder: &Path,
    steps: u64,
    overflows: u64,
    change: impl Fn(&mut PerfData),
) -> (Vec<u8>, Vec<(u32, Vec<PtCall>)>) {
    let base = 0x5555_5555_1000;
    let mut rng = Rng::new(11);
    let program = PtProgram::new(&mut rng, base, 30);
    let path = folder.join("program");
    std::fs::write(&path, program.elf(&[7; 20])).unwrap();
    let mut data = PerfData::default();
    change(&mut data);
    data.info(1);
    let whose = |pid, tid, tsc, cpu| PerfWhose { pid, tid, ns: PerfData::ns(tsc), cpu };
    let first = whose(10, 10, 10, 0);
    data.name(first, "program", true);
    data.map(
        first,
        (base, (program.code.len() as u64).next_multiple_of(4096), 0x1000),
        path.to_str().unwrap(),
        Some(&[7; 20]),
    );
    data.fork(first, 10, 11);
    data.fork(first, 20, 20);
    let mut threads = Vec::new();
    let mut tsc = 1_000_000;
    for (cpu, runs) in [(0, &[(10, 10), (10, 11)][..]), (1, &[(20, 20)])] {
        let mut encoder = PtEncoder::default();
        for (pid, tid) in runs {
            data.switch(whose(*pid, *tid, tsc, cpu), false);
            tsc += 1000;
            let how = PtRun { steps, psb_period: 2048, signals: 900, interrupts: 80, overflows };
            threads.push((*tid, program.run(&mut rng, how, &mut tsc, &mut encoder)));
            tsc += 1000;
            data.switch(whose(*pid, *tid, tsc, cpu), true);
        }
        let (one, other) = encoder.bytes.split_at(encoder.bytes.len() / 16 * 8);
        data.part(cpu, Some(cpu), u32::MAX, 0, one);
        data.part(cpu, Some(cpu), u32::MAX, one.len() as u64, other);
    }
    (data.file(), threads)
}

/// A trace of several pieces comes out the same, however many threads decode it, and whatever is
/// damaged.
#[test]
fn any_number_of_threads_decodes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, _) = perf_data_of(folder.path(), 60_000, 5000, |_| {});
    let trace = |bytes: &[u8], threads| {
        let mut trace = Vec::new();
        let options = ImportOptions { threads, ..ImportOptions::default() };
        let done = import_bytes(Cursor::new(bytes), Format::PerfData, &options, &mut trace, "test");
        (done.map_err(|error| error.to_string()).map(|summary| summary.warnings), trace)
    };
    for seed in 0..4 {
        let mut bytes = bytes.clone();
        if seed > 0 {
            let mut end = bytes.split_off(bytes.len() / 2);
            mutate(&mut end, &mut Rng::new(seed));
            bytes.extend(end);
        }
        let one = trace(&bytes, 1);
        for threads in [2, 5] {
            assert!(trace(&bytes, threads) == one, "seed {seed}, {threads} threads: {:?}", one.0);
        }
    }
}

#[test]
fn intel_pt_of_several_threads_cpus_and_processes() {
    let folder = tempfile::tempdir().unwrap();
    // A CPU's trace is decoded in several pieces.
    let (bytes, threads) = perf_data_of(folder.path(), 60_000, 0, |_| {});
    assert!(bytes.len() > 100_000, "{}", bytes.len());
    let shown = imported(Format::PerfData, &bytes).unwrap();
    assert_eq!(shown.processes, [(10, "program".to_owned()), (20, "program".to_owned())]);
    assert_eq!((shown.losses.as_slice(), shown.orphans), (&[][..], 0), "{:?}", shown.notes);
    let base = 0x5555_5555_1000;
    let functions = PtProgram::new(&mut Rng::new(11), base, 30).functions;
    for (tid, made) in threads {
        let entries = made.iter().filter_map(|call| match call {
            PtCall::Entry(address) => functions.iter().position(|start| start == address),
            _ => None,
        });
        let entries: Vec<String> = entries.map(|number| format!("function_{number}")).collect();
        let found: Vec<&str> =
            shown.calls.iter().filter(|call| call.tid == tid).map(|call| &*call.name).collect();
        assert!(entries.len() > 300);
        assert_eq!(found, entries, "thread {tid}");
    }
    // Nanoseconds are half of the ticks, and the three ran one after the other.
    let last = shown.calls.iter().map(|call| call.start_ns).max().unwrap();
    assert!(last > 10_000, "{last}");
}

#[test]
fn perf_data_that_cant_be_decoded_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, _) = perf_data(folder.path(), |_| {});
    let refused = |bytes: &[u8]| imported(Format::PerfData, bytes).unwrap_err().to_string();
    let changed = |at: usize, to: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    assert!(refused(&changed(0, b"2ELIFREP")).contains("big-endian"));
    // The first record is that of the trace's kind.
    assert!(refused(&changed(408, &[0x50])).contains("without a trace of Intel PT"));
    assert!(refused(&changed(408 + 8, &[3])).contains("ARM's CoreSight"));
    std::fs::remove_file(folder.path().join("program")).unwrap();
    let text = refused(&bytes);
    assert!(text.contains("no call that could be decoded") && text.contains("can't be read"), "{text}");
    let other = PtProgram::new(&mut Rng::new(1), 0x1000, 5);
    std::fs::write(folder.path().join("program"), other.elf(&[8; 20])).unwrap();
    assert!(refused(&bytes).contains("another build than the one that ran (build id 0808"));
    std::fs::remove_file(folder.path().join("program")).unwrap();
    let (bytes, _) = perf_data(folder.path(), |data| {
        // Lost by the kernel.
        data.aux(PerfWhose { cpu: 0, ..PerfWhose::default() }, 0, 1000, true);
    });
    let shown = imported(Format::PerfData, &bytes).unwrap();
    assert_eq!(shown.losses.len(), 1, "{:?} {:?}", shown.notes, shown.warnings);
    assert!(
        shown.notes.iter().any(|note| note.contains("perf lost a part of the trace")),
        "{:?}",
        shown.notes
    );
    // Offsets and places at the end of all numbers.
    let extreme = |from: u64, to: u64| {
        let mut bytes = bytes.clone();
        let found = |window: &[u8]| window == from.to_le_bytes();
        let places: Vec<usize> =
            bytes.windows(8).enumerate().filter(|(_, w)| found(w)).map(|(at, _)| at).collect();
        for at in places {
            bytes[at..at + 8].copy_from_slice(&to.to_le_bytes());
        }
        bytes
    };
    for (from, to) in [(0x1000, u64::MAX), (0x1000, u64::MAX - 0x100), (84, u64::MAX), (0, u64::MAX)] {
        let _: Result<_, _> = imported(Format::PerfData, &extreme(from, to));
    }
    for cut in (0..bytes.len()).step_by(bytes.len() / 60) {
        let _: Result<_, _> = imported(Format::PerfData, &bytes[..cut]);
    }
    for seed in 0..60 {
        let mut bytes = bytes.clone();
        mutate(&mut bytes, &mut Rng::new(seed));
        let _: Result<_, _> = imported(Format::PerfData, &bytes);
    }
}

/// A jitdump file: its clock is the CPU's counter or another one, which says `opened` where perf
/// recorded that the file was mapped.
fn jitdump(is_ticks: bool, opened: u64, loads: &[(u64, u64, &[u8], String)]) -> Vec<u8> {
    let mut bytes = [0x4a69_5444_u32, 1, 40, 62, 0, 10].map(u32::to_le_bytes).concat();
    bytes.extend([opened, u64::from(is_ticks)].map(u64::to_le_bytes).concat());
    for (time, start, code, name) in loads {
        let size = 16 + 40 + name.len() + 1 + code.len();
        bytes.extend([0, size as u32].map(u32::to_le_bytes).concat());
        bytes.extend(time.to_le_bytes());
        bytes.extend([10_u32, 10].map(u32::to_le_bytes).concat());
        bytes.extend([*start, *start, code.len() as u64, 0].map(u64::to_le_bytes).concat());
        bytes.extend(name.bytes());
        bytes.push(0);
        bytes.extend(*code);
    }
    bytes
}

/// Each function of a program: its first address, code and number.
fn functions(program: &PtProgram) -> impl Iterator<Item = (u64, &[u8], usize)> {
    let end = program.base + program.code.len() as u64;
    let ends = program.functions.iter().skip(1).copied().chain([end]);
    program.functions.iter().zip(ends).enumerate().map(|(number, (start, end))| {
        let code = &program.code[(start - program.base) as usize..(end - program.base) as usize];
        (*start, code, number)
    })
}

/// Names of a program's functions in the order in which they were entered.
fn entered(program: &PtProgram, made: &[PtCall], name: &str) -> Vec<String> {
    let number = |call: &PtCall| match call {
        PtCall::Entry(address) => program.functions.iter().position(|start| start == address),
        _ => None,
    };
    made.iter().filter_map(number).map(|number| format!("{name}_{number}")).collect()
}

fn imported_file(path: &Path) -> Shown {
    let mut trace = Vec::new();
    import(path, Format::PerfData, &ImportOptions::default(), &mut trace, "test").unwrap();
    Shown::of(&trace)
}

const BASE: u64 = 0x5555_5555_1000;

/// A program's file runs; then code that a compiler generated at the same addresses does.
#[test]
fn generated_code_is_followed_and_named() {
    for is_ticks in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(5);
        let (first, second) = (PtProgram::new(&mut rng, BASE, 20), PtProgram::new(&mut rng, BASE, 20));
        let path = folder.path().join("program");
        std::fs::write(&path, first.elf(&[7; 20])).unwrap();
        let dump = folder.path().join("jit-10.dump");
        let whose = |tsc| PerfWhose { pid: 10, tid: 10, ns: PerfData::ns(tsc), cpu: 0 };
        let mut data = PerfData::default();
        data.info(1);
        data.name(whose(10), "program", true);
        let size = (first.code.len() as u64).next_multiple_of(4096);
        data.map(whose(10), (BASE, size, 0x1000), path.to_str().unwrap(), Some(&[7; 20]));
        data.map(whose(20_000), (0x7000_0000, 4096, 0), "/nowhere/else/jit-10.dump", None);
        data.map(whose(30_000), (0x7100_0000, 4096, 0), "//anon", None);
        data.switch(whose(100_000), false);
        let mut encoder = PtEncoder::default();
        let how = PtRun { steps: 3000, psb_period: 2048, signals: 0, interrupts: 80, overflows: 0 };
        let mut tsc = 100_000;
        let calls = first.run(&mut rng, how, &mut tsc, &mut encoder);
        let mut expected = entered(&first, &calls, "function");
        tsc += 1000;
        // Nanoseconds of a clock that was at 77 when perf's was at 20,000 ticks, which are half as
        // many nanoseconds.
        let time = if is_ticks { tsc } else { 77 + (tsc - 20_000) / 2 };
        let loads: Vec<_> = functions(&second)
            .map(|(start, code, number)| (time, start, code, format!("jit_{number}")))
            .collect();
        std::fs::write(&dump, jitdump(is_ticks, 77, &loads)).unwrap();
        tsc += 1000;
        let calls = second.run(&mut rng, how, &mut tsc, &mut encoder);
        expected.extend(entered(&second, &calls, "jit"));
        data.part(0, Some(0), u32::MAX, 0, &encoder.bytes);
        let file = folder.path().join("perf.data");
        std::fs::write(&file, data.file()).unwrap();
        if is_ticks && std::env::var_os("EVERYCALL_BLESS").is_some() {
            // The fuzzer's seed.
            let dump = std::fs::read(&dump).unwrap();
            let seed = [&(dump.len() as u32).to_le_bytes()[..], &dump, &data.file()].concat();
            let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/import_perf_data");
            std::fs::write(corpus.join("generated"), seed).unwrap();
        }
        let shown = imported_file(&file);
        let found: Vec<&str> = shown.calls.iter().map(|call| &*call.name).collect();
        assert_eq!(found, expected, "{:?}", shown.notes);
        assert_eq!((shown.losses.as_slice(), shown.orphans), (&[][..], 0), "{:?}", shown.notes);
        // Whatever is wrong with the dump ends in gaps or missing code.
        for seed in 0..20 {
            let mut bytes = jitdump(is_ticks, 77, &loads);
            mutate(&mut bytes, &mut Rng::new(seed));
            std::fs::write(&dump, bytes).unwrap();
            imported_file(&file);
        }
    }
}

/// Of some functions, only perf's map knows that they are there.
#[test]
fn generated_code_without_bytes_has_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(9);
    let program = PtProgram::new(&mut rng, BASE, 30);
    let path = folder.path().join("program");
    std::fs::write(&path, program.elf(&[7; 20])).unwrap();
    let known = program.functions[12];
    let end = (BASE + program.code.len() as u64).next_multiple_of(4096);
    let line =
        |(start, code, number): (u64, &[u8], usize)| format!("{start:x} {:x} jit_{number}\n", code.len());
    let text: String = functions(&program).take(12).map(line).collect();
    let map = folder.path().join("perf-10.map");
    std::fs::write(&map, text).unwrap();
    let whose = |tsc| PerfWhose { pid: 10, tid: 10, ns: PerfData::ns(tsc), cpu: 0 };
    let mut data = PerfData::default();
    data.info(1);
    data.name(whose(10), "program", true);
    data.map(whose(10), (known, end - known, 0x1000 + known - BASE), path.to_str().unwrap(), Some(&[7; 20]));
    data.switch(whose(1000), false);
    let mut encoder = PtEncoder::default();
    let how = PtRun { steps: 5000, psb_period: 2048, signals: 0, interrupts: 80, overflows: 0 };
    program.run(&mut rng, how, &mut 1000, &mut encoder);
    data.part(0, Some(0), u32::MAX, 0, &encoder.bytes);
    let file = folder.path().join("perf.data");
    std::fs::write(&file, data.file()).unwrap();
    let shown = imported_file(&file);
    let count = |name: &str| shown.calls.iter().filter(|call| call.name.starts_with(name)).count();
    assert!(count("jit_") > 20 && count("function_") > 50, "{:?}", shown.counts());
    assert_eq!(count("jit_") + count("function_"), shown.calls.len(), "{:?}", shown.counts());
    assert!(!shown.notes.iter().any(|note| note.contains("don't agree")), "{:?}", shown.notes);
    assert!(shown.notes.iter().any(|note| note.contains("perf-10.map names generated code")));
    // A map that another process with this number wrote later.
    std::fs::remove_file(&map).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &map).unwrap();
    let shown = imported_file(&file);
    assert!(shown.notes.iter().any(|note| note.contains("it is a symbolic link")), "{:?}", shown.notes);
}

/// The records of perf's file as a pipe has them: with descriptions of events before, and without
/// tables.
fn as_pipe(file: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (attrs, data) = (word(24), word(40));
    let mut pipe = b"PERFILE2".to_vec();
    pipe.extend(16_u64.to_le_bytes());
    for number in 0..2 {
        // HEADER_ATTR, with an id behind it.
        pipe.extend([64, (8 + 128 + 8) << 16].map(u32::to_le_bytes).concat());
        pipe.extend(&file[attrs + 144 * number..][..128]);
        pipe.extend([number as u64 + 1].map(u64::to_le_bytes).concat());
    }
    // HEADER_FEATURE: the command line.
    pipe.extend([80, (16 + 4 + 4 + 8) << 16].map(u32::to_le_bytes).concat());
    pipe.extend(11_u64.to_le_bytes());
    pipe.extend([1_u32, 8].map(u32::to_le_bytes).concat());
    pipe.extend(b"./app\0\0\0");
    pipe.extend(&file[data..data + word(48)]);
    pipe
}

/// perf's file with all records compressed but those of the trace.
fn compressed(file: &[u8], is_newer: bool) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (data, end) = (word(40), word(40) + word(48));
    let (mut plain, mut kept, mut at) = (Vec::new(), Vec::new(), data);
    while at < end {
        let kind = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let mut size = usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
        if kind == 71 {
            size += word(at + 8);
        }
        if kind >= 64 { &mut kept } else { &mut plain }.extend(&file[at..at + size]);
        at += size;
    }
    let packed = zstd::bulk::compress(&plain, 3).unwrap();
    let mut records = Vec::new();
    for part in packed.chunks(100) {
        let size = if is_newer { 16 + part.len().next_multiple_of(8) } else { 8 + part.len() };
        records.extend([if is_newer { 83 } else { 81 }, (size as u32) << 16].map(u32::to_le_bytes).concat());
        if is_newer {
            records.extend((part.len() as u64).to_le_bytes());
        }
        records.extend(part);
        let padding = if is_newer { part.len().next_multiple_of(8) - part.len() } else { 0 };
        records.resize(records.len() + padding, 0);
    }
    records.extend(kept);
    let mut whole = file[..data].to_vec();
    whole[48..56].copy_from_slice(&(records.len() as u64).to_le_bytes());
    whole.extend(records);
    whole.extend(&file[end..]);
    whole
}

#[test]
fn compressed_records_and_those_of_a_pipe_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, _) = perf_data(folder.path(), |_| {});
    let plain = imported(Format::PerfData, &bytes).unwrap();
    for other in [as_pipe(&bytes), compressed(&bytes, false), compressed(&bytes, true)] {
        let shown = imported(Format::PerfData, &other).unwrap();
        assert_eq!(shown.tree(), plain.tree(), "{:?}", shown.notes);
        assert_eq!(shown.notes, plain.notes);
        for cut in (0..other.len()).step_by(other.len() / 20) {
            let _: Result<_, _> = imported(Format::PerfData, &other[..cut]);
        }
        for seed in 0..20 {
            let mut bytes = other.clone();
            mutate(&mut bytes, &mut Rng::new(seed));
            let _: Result<_, _> = imported(Format::PerfData, &bytes);
        }
    }
}

/// Calls begin within their bounds, which are about as narrow as the CPU's stamps.
#[test]
fn times_of_calls_lie_within_their_bounds() {
    for (cycles, tsc_period, mean) in [(false, 200, 150), (false, 0, u64::MAX), (true, 1000, 60)] {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = Rng::new(21);
        let program = PtProgram::new(&mut rng, BASE, 20);
        let path = folder.path().join("program");
        std::fs::write(&path, program.elf(&[7; 20])).unwrap();
        let whose = PerfWhose { pid: 10, tid: 10, ns: PerfData::ns(10), cpu: 0 };
        let mut data = PerfData::default();
        data.info(1);
        data.name(whose, "program", true);
        let size = (program.code.len() as u64).next_multiple_of(4096);
        data.map(whose, (BASE, size, 0x1000), path.to_str().unwrap(), Some(&[7; 20]));
        data.switch(PerfWhose { ns: PerfData::ns(1000), ..whose }, false);
        let mut encoder = PtEncoder::default();
        (encoder.cycles, encoder.tsc_period) = (cycles, tsc_period);
        let how = PtRun { steps: 4000, psb_period: 2048, signals: 0, interrupts: 0, overflows: 0 };
        let mut tsc = 100_000;
        let calls = program.run(&mut rng, how, &mut tsc, &mut encoder);
        data.switch(PerfWhose { ns: PerfData::ns(tsc) + 1, ..whose }, true);
        data.part(0, Some(0), u32::MAX, 0, &encoder.bytes);
        let shown = imported(Format::PerfData, &data.file()).unwrap();
        let is_entry = |(call, _): &(&PtCall, &u64)| matches!(call, PtCall::Entry(_));
        // Two ticks are a nanosecond.
        let made: Vec<u64> =
            calls.iter().zip(&encoder.times).filter(is_entry).map(|(_, at)| at / 2).collect();
        assert!(
            made.len() > 100 && shown.begins.len() >= made.len(),
            "{} {}",
            made.len(),
            shown.begins.len()
        );
        let origin = made[0] - shown.begins[0].0;
        let (mut exact, mut width) = (0, 0);
        for (made, (from, until)) in made.iter().zip(&shown.begins) {
            let made = made - origin;
            // Both ends are rounded. Without cycles, nothing says when a branch was gathered that a
            // packet tells of behind a stamp: here these are nanoseconds.
            let slack = if cycles { 1 } else { 20 };
            assert!(
                (from.saturating_sub(slack)..=until + slack).contains(&made),
                "{made} in {from}..{until}"
            );
            width += until - from;
            exact += usize::from(from == until);
        }
        assert!(width / made.len() as u64 <= mean, "{width} ns of {} calls", made.len());
        assert!(cycles || exact < made.len() / 10, "{exact} of {} are exact", made.len());
    }
}
