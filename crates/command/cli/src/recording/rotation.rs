//! The series of files of `record --stream`: `app.0001.ect`, `app.0002.ect`, ...
//!
//! Files of earlier runs with this name belong to the series. The first new file gets the next
//! number, so that no file is overwritten, and `--keep-files` counts the older ones, too.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use everycall_io::ours;
use everycall_io::outfile::{Existing, MODE_PRIVATE, OutFile, folder_of};
use everycall_recorder::Rotation;

use crate::arguments::RecordArguments;

/// Default size of a file, in bytes.
const SIZE: u64 = 1 << 30;
/// Files with larger numbers don't belong to a series.
const NUMBER_MAX: u32 = 1_000_000_000;

/// Whether the options request several files.
pub fn is_wanted(arguments: &RecordArguments) -> bool {
    arguments.file_size.is_some() || arguments.file_age.is_some() || arguments.keep_files.is_some()
}

/// The path of file `number`, from 1, in the series of `output`.
fn name(output: &Path, number: u32) -> PathBuf {
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number:04}"));
    if let Some(ending) = output.extension() {
        name.push(".");
        name.push(ending);
    }
    output.with_file_name(name)
}

/// A series of files.
#[derive(Clone, Debug)]
pub struct Files {
    output: PathBuf,
    /// The number of the newest file.
    newest: Rc<Cell<u32>>,
    /// The number of files to keep.
    kept: Option<u32>,
    /// Numbers of existing older files, ascending.
    older: Vec<u32>,
}

impl Files {
    /// The series of `output`; its next file is the newest one.
    pub fn find(arguments: &RecordArguments, output: &Path) -> Files {
        let mut older: Vec<u32> = std::fs::read_dir(folder_of(output))
            .into_iter()
            .flatten()
            .filter_map(|entry| number_in(output, &entry.ok()?.file_name()))
            .collect();
        older.sort_unstable();
        let newest = Rc::new(Cell::new(older.last().map_or(1, |last| last + 1)));
        Files { output: output.to_owned(), newest, kept: arguments.keep_files, older }
    }

    /// The newest file.
    pub fn newest(&self) -> PathBuf {
        name(&self.output, self.newest.get())
    }

    /// Deletes files that exceed the number to keep.
    pub fn delete_older(&mut self) {
        let Some(gone) = self.kept.and_then(|kept| self.newest.get().checked_sub(kept)) else { return };
        let count = self.older.partition_point(|number| *number <= gone);
        for number in self.older.drain(..count) {
            let path = name(&self.output, number);
            // The file may have been moved away, or be somebody's own of this name.
            if ours::is_own_file(&path) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// How the trace continues after its first file, with buffers of `buffer` bytes.
    pub fn rotation(&self, arguments: &RecordArguments, buffer: usize) -> Rotation<BufWriter<OutFile>> {
        let mut files = self.clone();
        let next = move |file: &mut BufWriter<OutFile>| -> io::Result<()> {
            let number = files.newest.get();
            let mut new = OutFile::create_by_default(
                &name(&files.output, number + 1),
                MODE_PRIVATE,
                Existing::default(),
            )?;
            new.publish()?;
            *file = BufWriter::with_capacity(buffer, new);
            files.newest.set(number + 1);
            files.older.push(number);
            files.delete_older();
            Ok(())
        };
        let default = if arguments.file_age.is_some() { u64::MAX } else { SIZE };
        Rotation {
            size: arguments.file_size.unwrap_or(default),
            age: arguments.file_age.map_or(Duration::MAX, Duration::from_nanos),
            next: Box::new(next),
        }
    }
}

/// The number of `file` in the series of `output`.
fn number_in(output: &Path, file: &OsStr) -> Option<u32> {
    let file = file.as_encoded_bytes();
    let rest = file.strip_prefix(output.file_stem()?.as_encoded_bytes())?.strip_prefix(b".")?;
    let digits = match output.extension() {
        Some(ending) => rest.strip_suffix(ending.as_encoded_bytes())?.strip_suffix(b".")?,
        None => rest,
    };
    let number =
        std::str::from_utf8(digits).ok()?.parse().ok().filter(|number| (1..=NUMBER_MAX).contains(number))?;
    // Only in the form that we write: no sign, no extra zeros.
    (format!("{number:04}").as_bytes() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_before_the_ending() {
        let name = |output: &str, number| name(Path::new(output), number).display().to_string();
        assert_eq!(name("a/app.ect", 1), "a/app.0001.ect");
        assert_eq!(name("app", 12345), "app.12345");
    }

    #[test]
    fn file_names_of_a_series_are_recognized() {
        let number = |output: &str, file: &str| number_in(Path::new(output), OsStr::new(file));
        for count in [1, 42, 9999, 10_000, NUMBER_MAX] {
            let file = name(Path::new("a/app.ect"), count);
            assert_eq!(number_in(Path::new("a/app.ect"), file.file_name().unwrap()), Some(count));
        }
        assert_eq!(number("app", "app.0007"), Some(7));
        for other in [
            "app.ect",
            "app.1.ect",
            "app.+001.ect",
            "app.00001.ect",
            "app.0000.ect",
            "app.0001",
            "app.0001.ect.old",
        ] {
            assert_eq!(number("app.ect", other), None, "{other}");
        }
        assert_eq!(number("app.ect", "other.0001.ect"), None);
        assert_eq!(number("app.ect", "app.4294967295.ect"), None);
    }
}
