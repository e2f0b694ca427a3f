//! `everycall embed`, and what `record` embeds at its end.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use everycall_analysis::NameOptions;
use everycall_analysis::embed::{self, Added, Embedding, GatherError};
use everycall_io::say;
use everycall_reader::{End, TraceFile};
use everycall_units::{Several, Size};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::arguments::{EmbedArguments, EmbedChoice};
use crate::exit_code;
use crate::failure::Failure;
use crate::source_notes;
use crate::traces;

/// The most that `record` spends without being asked to.
const DEFAULT_TIME: Duration = Duration::from_millis(50);
/// Likewise, as a part of what the recording took.
const DEFAULT_SHARE: u32 = 10;
/// At most so many events are read within a millisecond: traces with more aren't even begun.
const EVENTS_PER_MS: u128 = 100_000;

/// Runs the verb.
pub fn run(arguments: &EmbedArguments) -> Result<ExitCode, Failure> {
    let options = NameOptions {
        source_folders: arguments.source_folder.clone(),
        any_source: arguments.any_source,
        inlines: true,
        ..traces::name_options(&arguments.symbols)
    };
    for path in &arguments.traces {
        if arguments.remove {
            remove(path, arguments.quiet)?;
        } else {
            embed(path, options.clone(), !arguments.no_sources, arguments.quiet)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A trace that is opened for changing it, for this process alone.
struct Opened {
    file: File,
    trace: TraceFile<'static>,
    end: End,
}

impl Opened {
    fn open(path: &Path) -> Result<Opened, Failure> {
        let trace = traces::open(path)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(|error| Failure::of(path, format!("can't be written to: {error}")))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Failure::of(path, "is being changed by another everycall; wait until that has ended")
        })?;
        let end = trace.end().map_err(|why| {
            Failure::of(path, format!("can't take symbols: {why}; only complete traces can"))
        })?;
        // The file was opened by name twice and may have been replaced in between.
        let size = file.metadata().map_or(0, |facts| facts.len());
        if size != trace.size() {
            return Err(Failure::of(path, "is being written; wait until that has ended"));
        }
        Ok(Opened { file, trace, end })
    }
}

fn embed(path: &Path, options: NameOptions, has_sources: bool, is_quiet: bool) -> Result<(), Failure> {
    let mut opened = Opened::open(path)?;
    let gathered = embed::gather(&opened.trace, options, has_sources, &|| false);
    let embedding = gathered.map_err(|error| match error {
        GatherError::Trace(error) => Failure::of(path, error),
        _ => Failure::new(exit_code::FAILED, "the symbols weren't gathered"),
    })?;
    let added = embed::write(&mut opened.file, opened.end, &embedding)
        .and_then(|added| opened.file.sync_all().map(|()| added))
        .map_err(|error| Failure::writing(path, error))?;
    if embedding.is_empty() {
        return Err(Failure::of(path, "got no symbols: none of its functions has any"));
    }
    if !is_quiet {
        traces::say_warnings(&embedding.warnings);
        for note in &embedding.source_notes {
            say!("everycall: {}", source_notes::sentence(note));
        }
        say!("everycall: {}", sentence(path, &added));
    }
    Ok(())
}

/// Describes what was added to a trace.
fn sentence(path: &Path, added: &Added) -> String {
    let functions = Several(added.functions, "function", "functions");
    let modules = Several(added.modules, "module", "modules");
    let sources = Several(added.sources, "source file", "source files");
    let left_out = match added.too_large {
        0 => String::new(),
        count => format!("; the symbols of {} are too large", Several(count, "module", "modules")),
    };
    format!(
        "{} contains the symbols of {functions} of {modules}, and {sources} ({}){left_out}",
        path.display(),
        Size(added.bytes)
    )
}

fn remove(path: &Path, is_quiet: bool) -> Result<(), Failure> {
    let opened = Opened::open(path)?;
    embed::remove(&opened.file, opened.end).map_err(|error| Failure::writing(path, error))?;
    if !is_quiet {
        let bytes = Size(opened.trace.size() - opened.end.size);
        say!("everycall: {} contains no symbols and sources any more ({bytes} less)", path.display());
    }
    Ok(())
}

/// Embeds when `record` has written `output`, its trace of `events` events. `took` is the duration
/// of the recording.
pub fn at_end(choice: EmbedChoice, output: &Path, events: u64, took: Duration, is_quiet: bool) {
    let is_regular = || output.metadata().is_ok_and(|facts| facts.is_file());
    if choice.no_embed || !is_regular() {
        return;
    }
    if choice.embed {
        let options = NameOptions { inlines: true, ..NameOptions::default() };
        if let Err(failure) = embed(output, options, !choice.no_sources, is_quiet) {
            // The trace is there all the same.
            failure.report();
        }
        return;
    }
    let time = DEFAULT_TIME.min(took / DEFAULT_SHARE);
    if u128::from(events) > EVENTS_PER_MS * time.as_millis().max(1) {
        return;
    }
    // If it fails, the trace is as good as any other: `everycall embed` says why.
    let _ = within(time, output.to_path_buf());
}

/// Embeds symbols, unless that takes longer than `time`.
fn within(time: Duration, output: PathBuf) -> Option<Added> {
    let until = Instant::now() + time;
    let (sender, receiver) = mpsc::channel();
    // A unit of debugging information may take seconds. So it isn't waited for: this process ends
    // soon, and the thread with it.
    let thread = std::thread::Builder::new().name("embed".to_owned()).spawn(move || {
        let _ = sender.send(gather(&output, until));
    });
    thread.ok()?;
    let (mut file, end, embedding) = receiver.recv_timeout(time).ok()??;
    if embedding.is_empty() {
        return None;
    }
    embed::write(&mut file, end, &embedding).ok()
}

fn gather(output: &Path, until: Instant) -> Option<(File, End, Embedding)> {
    let opened = Opened::open(output).ok()?;
    let options = NameOptions { inlines: true, ..NameOptions::default() };
    let embedding = embed::gather(&opened.trace, options, false, &|| Instant::now() >= until).ok()?;
    Some((opened.file, opened.end, embedding))
}
