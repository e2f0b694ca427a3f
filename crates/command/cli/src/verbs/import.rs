//! `everycall import`: a trace of another tool as a trace file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use everycall_import::{Format, ImportError, ImportOptions, binary_of_log, detect, import};
use everycall_io::say;
use everycall_units::{Several, Size};

use crate::arguments::ImportArguments;
use crate::failure::Failure;
use crate::output::{Destination, Output};

/// Runs the verb.
pub fn run(arguments: &ImportArguments) -> Result<ExitCode, Failure> {
    let source = &arguments.source;
    let destination =
        Destination::new(arguments.output.as_deref(), arguments.force, || default_output(source));
    destination.is_not(source)?;
    everycall_recorder::outlive_size_limit();
    let failed = |error| failure(source, &error);
    let format = match arguments.format {
        Some(format) => format.format(),
        None => detect(source).map_err(failed)?,
    };
    let options = options(arguments, format);
    let mut refused = None;
    let written = Output::create(&destination)?.write(|file| {
        import(source, format, &options, file, env!("CARGO_PKG_VERSION")).map_err(|error| match error {
            ImportError::Unwritable(error) => error,
            other => {
                refused = Some(other);
                std::io::Error::other("")
            }
        })
    });
    if let Some(error) = refused {
        return Err(failed(error));
    }
    let summary = written?;
    if !arguments.quiet {
        say!(
            "everycall: {} of {} in {}, from {}, to {} ({})",
            Several(summary.events(), "entry or exit", "entries and exits"),
            Several(summary.threads.len() as u64, "thread", "threads"),
            Several(summary.processes.into(), "process", "processes"),
            format.description(),
            destination.path.display(),
            Size(summary.file_size)
        );
        if let Some(binary) = options.binary.as_ref().filter(|_| arguments.binary.is_none()) {
            say!(
                "everycall: functions are those of {}, found by the log's name; --binary names another program",
                binary.display()
            );
        }
        for note in &summary.warnings {
            say!("everycall: {note}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn options(arguments: &ImportArguments, format: Format) -> ImportOptions {
    let is_log = matches!(format, Format::XrayBasic | Format::XrayFdr);
    let found = || binary_of_log(&arguments.source).filter(|_| is_log).map(|found| found.0);
    ImportOptions {
        binary: arguments.binary.clone().or_else(found),
        name: arguments.source.to_string_lossy().into_owned(),
        ..ImportOptions::default()
    }
}

fn failure(source: &Path, error: &ImportError) -> Failure {
    let advice = match error {
        ImportError::Empty | ImportError::Unknown(None) => {
            let known: Vec<String> =
                Format::ALL.iter().map(|format| format!("{} ({format})", format.description())).collect();
            format!("; known are {}; -f names the format", known.join(", "))
        }
        ImportError::Unreadable(None, _) => "; name an existing file or folder".to_owned(),
        _ => String::new(),
    };
    Failure::of(source, format!("{error}{advice}"))
}

/// `trace.json.gz` becomes `trace.ect`, `xray-log.app.Xw6bA1` becomes `xray-log.app.Xw6bA1.ect`.
fn default_output(source: &Path) -> PathBuf {
    let mut name = PathBuf::from(source.file_name().unwrap_or(source.as_os_str()));
    for known in ["gz", "json", "raw", "txt", "data"] {
        if name.extension().is_some_and(|ending| ending == known) {
            name.set_extension("");
        }
    }
    let mut name = name.into_os_string();
    name.push(".ect");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_named_after_the_source() {
        let name = |source: &str| default_output(Path::new(source)).to_string_lossy().into_owned();
        assert_eq!(name("/tmp/trace.json.gz"), "trace.ect");
        assert_eq!(name("uftrace.data"), "uftrace.ect");
        assert_eq!(name("a/uftrace.data/"), "uftrace.ect");
        assert_eq!(name("xray-log.app.Xw6bA1"), "xray-log.app.Xw6bA1.ect");
    }
}
