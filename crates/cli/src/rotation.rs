//! The files that `record --stream` goes through: `app.0001.ect`, `app.0002.ect`, ...

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

use everycall_outfile::{MODE_PRIVATE, OutFile};
use everycall_recorder::Rotation;

use crate::arguments::RecordArguments;

/// Bytes of a file unless something else is asked for.
const SIZE: u64 = 1 << 30;

/// Whether there is to be more than one file.
pub fn is_wanted(arguments: &RecordArguments) -> bool {
    arguments.file_size.is_some() || arguments.file_age.is_some() || arguments.keep_files.is_some()
}

/// The name of file `number`, from 1, of a trace that `output` names.
pub fn name(output: &Path, number: u32) -> PathBuf {
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number:04}"));
    if let Some(ending) = output.extension() {
        name.push(".");
        name.push(ending);
    }
    output.with_file_name(name)
}

/// How a trace goes on after its first file, with buffers of `buffer` bytes.
pub fn of(arguments: &RecordArguments, output: &Path, buffer: usize) -> Rotation<BufWriter<OutFile>> {
    let (output, kept) = (output.to_owned(), arguments.keep_files);
    let mut number = 1;
    let next = move |file: &mut BufWriter<OutFile>| -> io::Result<()> {
        number += 1;
        let new = OutFile::create_live(&name(&output, number), MODE_PRIVATE)?;
        *file = BufWriter::with_capacity(buffer, new);
        if let Some(old) = kept.and_then(|kept| number.checked_sub(kept)).filter(|old| *old > 0) {
            // Whoever moved it away has it.
            let _ = std::fs::remove_file(name(&output, old));
        }
        Ok(())
    };
    let default = if arguments.file_age.is_some() { u64::MAX } else { SIZE };
    Rotation {
        size: arguments.file_size.unwrap_or(default),
        age: arguments.file_age.map_or(Duration::MAX, Duration::from_nanos),
        next: Box::new(next),
    }
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
}
