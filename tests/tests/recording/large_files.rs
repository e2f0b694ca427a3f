//! Files of more than 4 GiB. In the compact form, a test can't record that much: so the chunks of a
//! stream are written again, by the one writer of trace files, with chunks of an unknown kind
//! between them, whose zeros take no room on the disk.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use everycall_format::Wire;
use everycall_format::ect::{CHUNK_ALIGN, ChunkHeader, FileHeader, chunk};
use everycall_tests::{Mode, Place, everycall, successful};
use everycall_tracefile::ChunkWriter;

/// An unused kind: readers skip it.
const UNKNOWN: u32 = 0x7fff_0001;
/// Bytes of each such chunk, and of all: beyond what 32 bits count.
const HOLE: usize = 256 << 20;
const BEYOND: u64 = (4 << 30) + (512 << 20);

/// A file in which zeros are holes.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() < HOLE {
            return self.0.write(bytes);
        }
        self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The chunks of a file: kind, process, payload.
fn chunks(file: &[u8]) -> Vec<(u32, u32, &[u8])> {
    let mut all = Vec::new();
    let mut rest = &file[FileHeader::SIZE.next_multiple_of(CHUNK_ALIGN as usize)..];
    while let Some(header) = ChunkHeader::read(rest) {
        let end = ChunkHeader::SIZE + header.length as usize;
        all.push((header.kind, header.process, &rest[ChunkHeader::SIZE..end]));
        rest = rest.get(end.next_multiple_of(CHUNK_ALIGN as usize)..).unwrap_or_default();
    }
    all
}

/// Writes the chunks again, with the holes before half of those with events.
fn with_holes(chunks: &[(u32, u32, &[u8])], writer: &mut ChunkWriter<Sparse>, zeros: &[u8]) {
    let events = chunks.iter().filter(|(kind, ..)| *kind == chunk::EVENTS).count();
    assert!(events > 8, "{events} chunks of events");
    let mut seen = 0;
    for (kind, process, payload) in chunks.iter().filter(|(kind, ..)| *kind != chunk::END) {
        seen += usize::from(*kind == chunk::EVENTS);
        if *kind == chunk::EVENTS && seen == events / 2 {
            let begin = writer.position();
            while writer.position() < begin + BEYOND {
                writer.chunk(UNKNOWN, &[zeros]).unwrap();
            }
        }
        writer.set_process(*process);
        writer.chunk(*kind, &[payload]).unwrap();
    }
}

#[test]
fn beyond_what_32_bits_count() {
    let place = Place::new("large-files");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "stream.c", "-lpthread"], "stream");
    let (small, large, next) = (place.file("small.ect"), place.file("large.ect"), place.file("next.ect"));
    let mut command = place.command(everycall());
    command.args(["record", "-q", "--stream", "--stall", "--ring-size", "64K", "-o"]).arg(&small).arg("--");
    successful(command.arg(&program).args(["2", "100000"]));
    let bytes = std::fs::read(&small).unwrap();
    let chunks = chunks(&bytes);

    // And again, in a file that the same writer continues.
    let zeros = vec![0; HOLE];
    let mut writer = ChunkWriter::begin(Sparse(File::create(&large).unwrap())).unwrap();
    with_holes(&chunks, &mut writer, &zeros);
    let go_on = |output: &mut Sparse| {
        output.0 = File::create(&next)?;
        Ok(())
    };
    let first = writer.go_on(go_on).unwrap();
    with_holes(&chunks, &mut writer, &zeros);
    let (second, _) = writer.end().unwrap();
    for (file, size) in [(&large, first), (&next, second)] {
        assert!(size > BEYOND);
        assert_eq!(std::fs::metadata(file).unwrap().len(), size);
    }

    let shown = |words: &[&str], file: &Path| {
        let text = successful(place.command(everycall()).args(words).arg(file));
        let (text, warnings) = text.split_once("\n1 warning\n").unwrap_or((&text, ""));
        assert!(warnings.is_empty() || warnings.contains("doesn't know, were skipped"), "{warnings}");
        // A part that a reader doesn't know may be of any kind: such a file isn't called complete.
        let other = |line: &&str| !line.starts_with("file ") && !line.starts_with("complete ");
        text.lines().filter(other).map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    for file in [&large, &next] {
        for words in [&["info"][..], &["replay"], &["replay", "--last", "20ms"]] {
            let text = shown(words, &small);
            assert!(text.contains("leaf") || words.len() > 1, "{words:?}: {text}");
            assert_eq!(shown(words, file), text, "{words:?}");
        }
        let exported = |file: &Path, options: &[&str]| {
            let output = place.file("exported.json");
            let mut command = place.command(everycall());
            command.args(["export", "-f", "chrome", "-o"]).arg(&output).args(options).arg(file);
            successful(&mut command);
            std::fs::read(output).unwrap()
        };
        for options in [&["--last", "20ms"][..], &[]] {
            let whole = exported(&small, options);
            assert!(whole.len() > 100_000 || !options.is_empty(), "{}", whole.len());
            assert!(exported(file, options) == whole, "{options:?}");
        }
    }
    // Truncated beyond 32 bits: the part before is read.
    let cut = first - (bytes.len() as u64 / 4);
    File::options().write(true).open(&large).unwrap().set_len(cut).unwrap();
    let output = place.command(everycall()).arg("info").arg(&large).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("leaf") && !said.contains("panicked"), "{said}");
}
