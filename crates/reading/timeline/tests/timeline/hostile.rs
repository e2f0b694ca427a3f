//! Truncated, damaged and forged input: no panic, no hang, bounded memory, and the remaining output
//! is true. One test, so that the process's memory is its own.

use std::time::{Duration, Instant};

use everycall_reader::{ArenaImage, Source, TraceFile, Warning};
use everycall_synth::{File, Process, Ring, Rng, Thread, arena_image, basic, marks, mutate};
use everycall_timeline::{Location, MarkKind, ThreadEvents, TimelineEvent, Trace};

/// Reads everything and returns the number of events. Checks what holds for any input.
fn read(source: impl Source) -> u64 {
    let trace = Trace::open(&source).unwrap();
    let same = |entry: Location, exit: Location| (entry.image_address & 3 != 0).then_some(entry == exit);
    let mut count = 0;
    for thread in trace.threads() {
        let check = |events: ThreadEvents<'_>| {
            let mut depth = 0;
            let mut now = 0;
            let mut count = 0;
            for event in events {
                assert!(event.at_ns() >= now);
                now = event.at_ns();
                count += 1;
                match event {
                    TimelineEvent::Unstamped(unstamped) => {
                        assert!((unstamped.from_ns..=unstamped.until_ns).contains(&now));
                    }
                    TimelineEvent::Begin(begin) => {
                        assert_eq!(begin.depth, depth);
                        depth += 1;
                    }
                    TimelineEvent::End(end) => {
                        depth -= 1;
                        assert_eq!(end.depth, depth);
                        assert!(end.start_ns <= end.end_ns);
                    }
                    TimelineEvent::Mark(mark) if matches!(mark.kind, MarkKind::Log | MarkKind::Output(_)) => {
                        let text = trace.log_lines().text(mark.name, |_| Some(b"%s %d %*.*f %p".to_vec()));
                        assert!(text.len() < 10_000);
                    }
                    _ => {}
                }
            }
            assert_eq!(depth, 0);
            count
        };
        count += check(trace.thread_events(thread.index));
        if thread.index == 0 {
            check(trace.thread_events_checked(0, Some(&same)));
        }
    }
    trace.warnings().iter().for_each(|warning| drop(warning.to_string()));
    if count % 16 == 0 {
        read_parts(&source);
    }
    count
}

/// Reads the parts of threads that can be read alone.
fn read_parts(source: impl Source) {
    let trace = Trace::open_unread(source).unwrap();
    for thread in 0..trace.threads().len() {
        for number in 0..trace.parts(thread) {
            let begin = trace.part_begin(thread, number);
            let Some(part) = trace.part(thread, None, number..number + 1) else { continue };
            assert!(begin.is_none_or(|begin| part.begins().contains(&begin)));
            if let Some(read) = part.events(0..part.begins().len()) {
                assert!(read.events.is_sorted_by_key(|event| event.at_ns()));
            }
        }
    }
}

/// The sample, with a thread that fills the file up to 64 KiB.
fn larger() -> Process {
    let mut process = basic();
    let mut ring = Ring::new(512, 16, 0xffff_f000);
    for call in 0..3240_u64 {
        ring.enter(0xffff_f100 + 10 * call, 0x1010);
        ring.exit(0xffff_f105 + 10 * call, 0x1020);
    }
    process.threads.push(Thread { tid: 200, name: "busy".into(), start_ticks: 0xffff_f000, ring });
    process
}

/// The most memory that the process has used so far, in bytes.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn cut_anywhere(bytes: &[u8]) {
    let whole = read(TraceFile::open(bytes).unwrap());
    let mut last = 0;
    for length in 0..bytes.len() {
        match TraceFile::open(&bytes[..length]) {
            Ok(file) => {
                assert!(file.recording().warnings.contains(&Warning::Cut { at: length as u64 }), "{length}");
                // Two neighbouring lengths differ only in the words at the end; check some of them.
                if length % 61 == 0 || length + 64 > bytes.len() || length < 3000 {
                    let count = read(file);
                    assert!(count <= whole);
                    last = count;
                }
            }
            Err(error) => assert!(length < 32, "{length}: {error}"),
        }
    }
    assert_eq!(last, whole, "only the end's chunk is missing");
}

fn damaged_anyhow(bytes: &[u8], open: impl Fn(&[u8]) -> bool, times: u64) {
    let mut rng = Rng::new(bytes.len() as u64);
    let mut opened = 0;
    for _ in 0..times {
        let mut damaged = bytes.to_vec();
        mutate(&mut damaged, &mut rng);
        let begun = Instant::now();
        opened += u64::from(open(&damaged));
        assert!(begun.elapsed() < Duration::from_secs(60), "it hangs");
    }
    assert!(opened > times / 3, "most damage leaves something to read: {opened} of {times}");
}

/// A file whose only thread has `words` over and over, 4 MiB of them; the ring has wrapped.
fn repeated(words: &[u64]) -> Vec<u8> {
    let mut file = File::default();
    let ring = Ring::new(8192, 1, 1 << 40);
    file.thread(1, 0, &Thread { tid: 1, name: String::new(), start_ticks: 0, ring });
    for chunk in 0..4 {
        let segment = |number: u64| {
            let high = 1 << 8;
            let mut segment =
                vec![0x7f01_0300, high << 32 | 0xff01_0100, 0xff01_0200, number << 32 | 0xff01_0300];
            segment.extend(words.iter().cycle().take(8188));
            segment
        };
        let segments: Vec<Vec<u64>> = (0..16).map(|place| segment(5 + 16 * chunk + place)).collect();
        let segments: Vec<&[u64]> = segments.iter().map(Vec::as_slice).collect();
        file.events(0, 5 + 16 * chunk, &segments);
    }
    file.end()
}

#[test]
fn hostile_input() {
    let larger = File::of(&larger());
    assert!((60 << 10..68 << 10).contains(&larger.len()), "{}", larger.len());
    cut_anywhere(&larger);
    let open_file = |bytes: &[u8]| TraceFile::open(bytes).map(read).is_ok();
    damaged_anyhow(&File::of(&basic()), open_file, 15_000);
    damaged_anyhow(&larger, open_file, 500);
    damaged_anyhow(&File::of(&marks().process), open_file, 5_000);
    damaged_anyhow(&File::of_unstamped(&basic(), 2), open_file, 5_000);
    let arena = arena_image(&basic());
    damaged_anyhow(&arena, |bytes| ArenaImage::open(bytes).map(read).is_ok(), 4_500);
    let (entry, exit) = (0x1_0000_1010, 0x1_8000_1010);
    for words in [
        &[entry][..],
        &[exit],
        &[0],
        &[exit, 0x1_7f03_0100, 0xff03_0100],
        &[0x1_7f11_0300, 0xffff_ffff_ff11_0100, 0xffff_ffff_ff11_0200, 0x7_ff11_0300],
        &[0x1_7f11_0400, 0x5_ff11_0100, 0x1010_ff11_0200, 0xff11_0300, 0xffff_ffff_ff11_0400],
        &[entry, exit],
        &[entry, entry, exit],
        &[0x1_7f02_0100, 0x7_ff02_0100, entry],
        &[0x7f02_0100],
        // Spans that never begin or never end; gaps within calls; a label and nothing else.
        &[0x1_7f0a_0283, 0xff0a_0100, 0xff0a_0200],
        &[0x1_7f0a_0284, 0xff0a_0100, 0xff0a_0200],
        &[entry, 0x2_7f0c_0401, 0x1_ff0c_0100, 0xff0c_0200, 0xff0c_0300, 0xff0c_0400],
        &[entry, 0x2_7f0c_0401, 0x1_ff0c_0100, 0xff0c_0200, 0xff0c_0300, 0x2_ff0c_0400],
        &[0x1_7f0a_0201, 0xff0a_0100, 0xff0a_0200],
    ] {
        let begun = Instant::now();
        let input = repeated(words);
        let count = read(TraceFile::open(&input[..]).unwrap());
        assert!(begun.elapsed() < Duration::from_secs(120), "{words:x?} takes {:?}", begun.elapsed());
        assert!(words[0] == 0 || words.len() == 1 || count > 1000, "{words:x?}: {count}");
    }
    let limit = (64 << 20) + 4 * larger.len() as u64;
    assert!(memory_peak() < limit, "{} bytes", memory_peak());
}
