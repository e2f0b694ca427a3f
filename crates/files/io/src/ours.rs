//! Recognizes the files that everycall wrote, so that an output never replaces another one.
//!
//! Most formats have a mark in their content: a magic number, a name of their creator, or a
//! beginning that nobody else writes. Lines of text (folded stacks, tables of queries) have no
//! place for one. So each output also carries an extended attribute with its size and the time of
//! its last change, where the file system has such attributes: it counts only while both are the
//! same.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, XattrFlags, fgetxattr, fsetxattr};

/// How many bytes at a file's beginning and end are looked at.
const LOOKED_AT: usize = 4096;
/// The attribute.
const ATTRIBUTE: &str = "user.everycall";

/// Texts at the beginnings of formats: the first one is the file's first bytes, the others follow
/// somewhere in the first [`LOOKED_AT`] ones.
const BEGINNINGS: &[&[&[u8]]] = &[
    &[b"everycall trace\n"],
    // Sets of functions and triggers.
    &[b"\x8fecset\r\n"],
    // Stored profiles.
    &[b"{\"everycall_profile\":"],
    // Lists of functions to leave out.
    &[b"# everycall "],
    // Chrome's JSON.
    &[b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"],
    &[b"{\"$schema\":\"https://www.speedscope.app/", b"\"exporter\":\"everycall\""],
    &[b"kind,pid,tid,thread,depth,"],
    &[b"{\"pid\":", b",\"tid\":", b",\"thread\":"],
    &[b"# callgrind format\n", b"\ncreator: everycall"],
    &[b"digraph calls {\n", b"edge [fontname=\"sans-serif\", fontsize=9, color=\"#555555\"];"],
    &[b"---\ntitle: \"", b"\n---\nflowchart TD\n"],
    &[b"<!doctype html>\n", b"<title>everycall"],
    // A gzip file whose header has a comment.
    &[b"\x1f\x8b\x08\x10", b"everycall\0"],
];

/// Formats that name their creator at the end: their first bytes, and a text near the last one.
const ENDS: &[(&[u8], &[u8])] = &[
    (b"PAR1", b"everycall "),
    (b"{\"threads\":[", b"\"importedFrom\":\"everycall\""),
    (b"<?xml version=\"1.0\" standalone=\"no\"?><!DOCTYPE svg", b"<!--everycall-->"),
];

/// The first packet of Perfetto's format: a clock snapshot of sequence 1, behind two bytes with its
/// length.
const PERFETTO: &[u8] = b"\x50\x01\x32\x14\x0a\x04\x08\x06\x10\x00";

/// Whether a name leads to a file that everycall wrote, or that is empty. A file that can't be read
/// isn't recognized.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    is_ours_by(path, OFlags::empty())
}

/// As [`is_ours`], for a name that isn't a link.
#[must_use]
pub fn is_own_file(path: &Path) -> bool {
    is_ours_by(path, OFlags::NOFOLLOW)
}

fn is_ours_by(path: &Path, flags: OFlags) -> bool {
    // A FIFO that has come there meanwhile isn't waited for.
    let flags = (OFlags::NONBLOCK | flags).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    file.and_then(|file| is_recognized(&file)).unwrap_or(false)
}

fn is_recognized(file: &File) -> io::Result<bool> {
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Ok(false);
    }
    if facts.len() == 0 {
        return Ok(true);
    }
    let mut mark = [0; 64];
    if let Ok(length) = fgetxattr(file, ATTRIBUTE, &mut mark)
        && mark.get(..length) == Some(state_of(file)?.as_bytes())
    {
        return Ok(true);
    }
    let (head, tail) = (part(file, 0)?, part(file, facts.len().saturating_sub(LOOKED_AT as u64))?);
    let begins = |texts: &&[&[u8]]| {
        texts.split_first().is_some_and(|(first, rest)| {
            head.starts_with(first) && rest.iter().all(|text| contains(&head, text))
        })
    };
    Ok(BEGINNINGS.iter().any(begins)
        || ENDS.iter().any(|(first, last)| head.starts_with(first) && contains(&tail, last))
        || head.starts_with(b"\x0a") && head.get(2..).is_some_and(|rest| rest.starts_with(PERFETTO)))
}

/// Marks a file that is complete, if its file system has extended attributes.
pub(crate) fn mark(file: &File) {
    if let Ok(state) = state_of(file) {
        let _ = fsetxattr(file, ATTRIBUTE, state.as_bytes(), XattrFlags::empty());
    }
}

/// Size and time of the last change, which another content wouldn't share.
fn state_of(file: &File) -> io::Result<String> {
    let facts = file.metadata()?;
    Ok(format!("{} {}.{}", facts.len(), facts.mtime(), facts.mtime_nsec()))
}

fn part(file: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; LOOKED_AT];
    let mut filled = 0;
    while filled < LOOKED_AT {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|part| part == text)
}
