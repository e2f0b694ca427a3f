//! Puts the symbols of a trace's functions, and their sources, into its file, so that it needs no
//! other file any more.
//!
//! [`gather`] asks everything about the trace's functions that an output might ask, and notes the
//! answers; [`write`] adds them behind the recording; [`remove`] takes them out again. What was
//! recorded isn't touched: a file whose addition is cut is as good as before.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom};

use everycall_export::{Names, Source as _};
use everycall_reader::{EmbeddedSource, End, TraceFile};
use everycall_symbols::KeptSymbols;
use everycall_timeline::{Code, InstantKind, Location, MarkKind, TimelineEvent, Trace};
use everycall_tracefile::{ChunkWriter, SourceFile};

use crate::names::{NameOptions, NameWarning, SymbolNames};
use crate::source_notes::SourceNote;
use crate::stacks::StackNames;
use crate::view::TraceView;
use crate::{budget, dropped_calls, kept_calls};

/// Events after which it is looked whether the time is over.
const LOOK: u64 = 4096;

/// The symbols and sources of a trace.
#[derive(Debug, Default)]
pub struct Embedding {
    /// By index of the module.
    symbols: Vec<Module>,
    sources: Vec<EmbeddedSource>,
    /// Why not everything is there.
    pub warnings: Vec<NameWarning>,
    /// Sources that aren't there, or not as they were compiled.
    pub source_notes: Vec<SourceNote>,
}

#[derive(Debug)]
struct Module {
    path: Vec<u8>,
    build_id: Vec<u8>,
    functions: usize,
    body: Vec<u8>,
}

/// Numbers of what was added to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Modules with symbols.
    pub modules: u64,
    /// Their functions.
    pub functions: u64,
    /// Source files.
    pub sources: u64,
    /// Bytes by which the file grew.
    pub bytes: u64,
    /// Modules whose symbols are too large for a file.
    pub too_large: u64,
}

/// Why nothing was gathered.
#[derive(Debug)]
#[non_exhaustive]
pub enum GatherError {
    /// The time was over.
    Over,
    /// The trace can't be read.
    Trace(everycall_reader::Error),
}

/// Gathers the symbols of the functions in a trace, and with `has_sources` their source files.
/// `is_over` is asked now and then, and ends it.
///
/// # Errors
///
/// See [`GatherError`].
pub fn gather(
    file: &TraceFile<'static>,
    options: NameOptions,
    has_sources: bool,
    is_over: &dyn Fn() -> bool,
) -> Result<Embedding, GatherError> {
    let mut trace = Trace::open(file).map_err(GatherError::Trace)?;
    let names = SymbolNames::new(file, &trace, options).keeping();
    names.name_tasks(&mut trace);
    Gathering { trace: &trace, names: &names, asked: HashSet::new(), is_over }.ask()?;
    let mut embedding = Embedding::default();
    let mut sources: BTreeMap<Vec<u8>, Option<EmbeddedSource>> = BTreeMap::new();
    for (index, mut kept) in names.kept() {
        if is_over() {
            return Err(GatherError::Over);
        }
        add_sources(&names, index, &mut kept, has_sources.then_some(&mut sources));
        let Some(module) = trace.modules().get(index) else { continue };
        embedding.symbols.push(Module {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            functions: kept.functions(),
            body: kept.write(),
        });
    }
    if has_sources {
        for (module, path) in names.sources_of_frames() {
            let key = path.as_os_str().as_encoded_bytes().to_vec();
            sources.entry(key).or_insert_with(|| names.source_to_keep(module, &path));
        }
    }
    embedding.sources = sources.into_values().flatten().collect();
    embedding.warnings = names.warnings();
    embedding.source_notes = names.source_notes();
    Ok(embedding)
}

/// Adds what is known of a module's source files, and the files themselves, each once.
fn add_sources(
    names: &SymbolNames<'_>,
    module: usize,
    kept: &mut KeptSymbols,
    mut sources: Option<&mut BTreeMap<Vec<u8>, Option<EmbeddedSource>>>,
) {
    let files: Vec<_> = kept.source_files().map(std::path::Path::to_path_buf).collect();
    for path in files {
        kept.add_compiled(&path, names.compiled_source(module, &path));
        if let Some(sources) = &mut sources {
            let key = path.as_os_str().as_encoded_bytes().to_vec();
            sources.entry(key).or_insert_with(|| names.source_to_keep(module, &path));
        }
    }
}

/// Asks about everything in a trace that outputs ask about.
struct Gathering<'g> {
    trace: &'g Trace<'g>,
    names: &'g SymbolNames<'g>,
    asked: HashSet<Location>,
    is_over: &'g dyn Fn() -> bool,
}

impl Gathering<'_> {
    fn ask(&mut self) -> Result<(), GatherError> {
        let mut since = 0;
        for thread in self.trace.threads() {
            for event in self.trace.thread_events_checked(thread.index, Some(self.names)) {
                since += 1;
                if since == LOOK {
                    since = 0;
                    self.look()?;
                }
                self.event(&event)?;
            }
        }
        let (trace, names) = (self.trace, self.names);
        for counts in trace.counts().iter().chain(trace.all_calls()) {
            let located =
                counts.functions.iter().filter_map(|counted| Some((counted.offset?, counted.ticks)));
            for (offset, ticks) in located {
                self.function(trace.locate(counts.process, offset, ticks))?;
            }
        }
        for location in StackNames::new(trace, names).into_iter().flat_map(|stacks| stacks.locations()) {
            self.function(location)?;
        }
        // These ask by themselves. What they answer is of no use here.
        let view = TraceView::new(trace, names);
        if !view.threads().is_empty() {
            // Who waits for whom is looked up before the first event.
            let _ = view.events(0).next();
        }
        self.look()?;
        // So do pointers and call sites among values.
        for (number, turn) in trace.values().numbers().zip(1_u64..) {
            drop(view.values(number));
            if turn.is_multiple_of(LOOK) {
                self.look()?;
            }
        }
        drop(kept_calls(trace, names));
        drop(budget(trace, names));
        for function in dropped_calls(trace, names).into_iter().flat_map(|dropped| dropped.functions) {
            function.location.map_or(Ok(()), |location| self.function(location))?;
        }
        Ok(())
    }

    fn look(&self) -> Result<(), GatherError> {
        if (self.is_over)() { Err(GatherError::Over) } else { Ok(()) }
    }

    fn event(&mut self, event: &TimelineEvent) -> Result<(), GatherError> {
        match event {
            TimelineEvent::Begin(begin) => self.function(begin.location),
            TimelineEvent::Instant(instant) => match instant.kind {
                InstantKind::OrphanExit(location) | InstantKind::InferredOrphanExit(location) => {
                    self.function(location)
                }
            },
            TimelineEvent::Untraced(untraced) => {
                let _ = self.names.jump_target(untraced.exit);
                Ok(())
            }
            TimelineEvent::Mark(mark) if mark.kind == MarkKind::Log => {
                let _ = self.trace.log_lines().text(mark.name, |location| self.names.constant_text(location));
                Ok(())
            }
            TimelineEvent::End(_)
            | TimelineEvent::Unstamped(_)
            | TimelineEvent::Returned(_)
            | TimelineEvent::Loss(_)
            | TimelineEvent::Mark(_)
            | TimelineEvent::Gap(_) => Ok(()),
        }
    }

    /// Asks about the function at a location, once.
    fn function(&mut self, location: Location) -> Result<(), GatherError> {
        if !self.asked.insert(location) {
            return Ok(());
        }
        self.look()?;
        let names = self.names;
        names.name(location);
        names.group(location);
        names.symbol(location);
        names.leads_on(location);
        let _ = names.jump_target(location);
        names.is_bare_thunks(location);
        names.reports_exits_in_cleanups(location);
        names.details(everycall_export::Location {
            module: location.module,
            image_address: location.image_address,
        });
        Ok(())
    }
}

impl Embedding {
    /// Whether there is nothing to add.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty() && self.sources.is_empty()
    }
}

/// Adds an embedding to a trace, in place of one that is there. `end` is where the trace's
/// recording ends: see [`TraceFile::end`]. If it fails, the file is as it was without any.
///
/// # Errors
///
/// Those of the file.
pub fn write(file: &mut File, end: End, embedding: &Embedding) -> io::Result<Added> {
    let added = add(file, end, embedding);
    if added.is_err() {
        remove(file, end)?;
    }
    added
}

fn add(file: &mut File, end: End, embedding: &Embedding) -> io::Result<Added> {
    remove(file, end)?;
    file.seek(SeekFrom::Start(end.size))?;
    let mut out = ChunkWriter::behind(BufWriter::new(&mut *file), end.size, end.chunks);
    let mut added = Added::default();
    for module in &embedding.symbols {
        if out.symbols(&module.path, &module.build_id, &module.body)? {
            added.modules += 1;
            added.functions += module.functions as u64;
        } else {
            added.too_large += 1;
        }
    }
    out.sources(embedding.sources.iter().map(|source| SourceFile {
        path: &source.path,
        text: &source.text,
        md5: source.md5,
        is_lossy: source.is_lossy,
        is_newer: source.is_newer,
    }))?;
    added.sources = embedding.sources.len() as u64;
    let (size, _) = out.end()?;
    added.bytes = size.saturating_sub(end.size);
    Ok(added)
}

/// Takes out what was added behind the end of a trace's recording.
///
/// # Errors
///
/// Those of the file.
pub fn remove(file: &File, end: End) -> io::Result<()> {
    if file.metadata()?.len() > end.size { file.set_len(end.size) } else { Ok(()) }
}
