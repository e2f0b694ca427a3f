//! Loads files into profiles.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use everycall_analysis::stored::{self, StoredRun};
use everycall_analysis::{Grouping, NameOptions, Order, OwnSamples, Profile, SymbolNames, TraceView};
use everycall_export::{Filter, Source as _, end_ns};
use everycall_io::say;
use everycall_reader::Source as _;
use everycall_timeline::{Clock, Trace};
use everycall_units::Duration;
use regex::Regex;
use serde_json::{Value, json};

use super::notes;
use super::whole::WholeProcess;
use crate::arguments::{FilterArguments, ReportArguments, SymbolArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::traces;

/// How files are read.
#[derive(Clone)]
pub struct Load {
    pub filter: Filter,
    /// The part of the file that the filter describes, as it was named.
    part: Option<String>,
    kept: Option<usize>,
    names: NameOptions,
    /// Whether a filter leaves out calls.
    has_filter: bool,
    /// Whether the duration of calls includes their tail calls.
    follows_tails: bool,
    /// Whether the profile has what hooks cost.
    has_hooks: bool,
}

/// Facts about a file that was read.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub path: PathBuf,
    pub command: String,
    pub host: String,
    pub cpu: String,
    pub version: String,
    pub started_realtime_ns: Option<u64>,
    pub duration_ns: u64,
    /// The part of the file that was read, and how long it is if it is a range of time.
    pub part: Option<String>,
    pub part_ns: Option<u64>,
    /// Totals of its process.
    pub whole: WholeProcess,
    /// Conversions of its times; none of sums.
    pub clock: Option<Clock>,
    pub warnings: Vec<String>,
}

impl Run {
    fn of(path: &Path, trace: &Trace<'_>) -> Run {
        let meta = trace.meta();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let words: Vec<String> = meta.arguments.iter().map(|word| text(word)).collect();
        Run {
            path: path.to_owned(),
            command: words.join(" "),
            host: text(&meta.host),
            cpu: text(&meta.cpu),
            version: text(&meta.tool_version),
            started_realtime_ns: trace.clock().origin_realtime_ns(),
            duration_ns: end_ns(trace),
            part: None,
            part_ns: None,
            whole: WholeProcess::of(trace),
            clock: Some(trace.clock().clone()),
            warnings: trace.warnings().iter().map(ToString::to_string).collect(),
        }
    }

    /// The facts about a run in a file of `merge`.
    fn stored(path: &Path, run: &StoredRun) -> Run {
        let text = |name: &str| run.about.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |name: &str| run.about.get(name).and_then(Value::as_u64);
        Run {
            path: run
                .about
                .get("file")
                .and_then(Value::as_str)
                .map_or_else(|| path.to_owned(), PathBuf::from),
            command: text("command"),
            host: text("host"),
            cpu: text("cpu"),
            version: text("everycall_version"),
            started_realtime_ns: number("started_realtime_ns"),
            duration_ns: number("duration_ns").unwrap_or(0),
            part: None,
            part_ns: None,
            whole: WholeProcess::default(),
            clock: None,
            warnings: Vec::new(),
        }
    }

    /// In machine-readable form.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "file": self.path.to_string_lossy(),
            "command": self.command,
            "host": self.host,
            "cpu": self.cpu,
            "everycall_version": self.version,
            "started_realtime_ns": self.started_realtime_ns,
            "duration_ns": self.duration_ns,
            "warnings": self.warnings,
        });
        if let Some(part) = &self.part {
            object["part"] = json!(part);
        }
        object
    }
}

/// Whether a filter passes everything.
fn is_default(filter: &Filter) -> bool {
    let Filter {
        pids,
        tids,
        since_ns,
        until_ns,
        since_wall,
        until_wall,
        last_ns,
        min_duration_ns,
        function,
        label,
        values,
        depth,
        call,
    } = filter;
    pids.is_empty()
        && tids.is_empty()
        && since_ns.is_none()
        && until_ns.is_none()
        && since_wall.is_none()
        && until_wall.is_none()
        && last_ns.is_none()
        && *min_duration_ns == 0
        && function.is_none()
        && label.is_none()
        && values.is_none()
        && depth.is_none()
        && call.is_none()
}

impl Load {
    /// Evaluates the options of `report`.
    pub fn new(arguments: &ReportArguments) -> Result<Load, Failure> {
        let full_names = arguments.format != TableFormat::Text;
        let load = Load::with(arguments.filter.clone(), &arguments.symbols, full_names)?;
        Ok(Load { has_hooks: arguments.corrected, ..load.with_tails(arguments.tails) })
    }

    /// Evaluates these options.
    pub fn with(
        filter: FilterArguments,
        symbols: &SymbolArguments,
        full_names: bool,
    ) -> Result<Load, Failure> {
        let kept = filter.kept;
        let filter = filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
        let options = traces::name_options(symbols);
        let names = NameOptions { full_names: options.full_names || full_names, ..options };
        let has_filter = kept.is_some() || !is_default(&filter);
        Ok(Load { filter, part: None, kept, names, has_filter, follows_tails: false, has_hooks: false })
    }

    /// Opens a trace, reports its damage, and passes it to `with`.
    pub fn view<T>(&self, path: &Path, with: impl FnOnce(&TraceView<'_>) -> T) -> Result<(T, Run), Failure> {
        if stored_text(path).is_ok_and(|text| text.is_some()) {
            return Err(Failure::of(path, HOLDS_SUMS));
        }
        let mut file = traces::open(path)?;
        traces::select(&mut file, self.kept, path)?;
        let mut trace = traces::trace(&file, path)?;
        let names = SymbolNames::new(&file, &trace, self.names.clone());
        names.name_tasks(&mut trace);
        traces::check_filter(&trace, path, &self.filter)?;
        let view = TraceView::new(&trace, &names);
        traces::warn(&trace, path);
        let result = with(&view);
        traces::warn_of_names(&names);
        let mut run = Run::of(path, &trace);
        if self.part.is_some() {
            run.part.clone_from(&self.part);
            run.part_ns = range_length(&self.filter, self.filter.bounds(&view), run.duration_ns);
        }
        Ok((result, run))
    }

    /// Opens a trace again, without reporting.
    pub fn quietly<T>(&self, path: &Path, with: impl FnOnce(&TraceView<'_>) -> T) -> Result<T, Failure> {
        let mut file = traces::open(path)?;
        traces::select(&mut file, self.kept, path)?;
        let mut trace = traces::trace(&file, path)?;
        let names = SymbolNames::new(&file, &trace, self.names.clone());
        names.name_tasks(&mut trace);
        Ok(with(&TraceView::new(&trace, &names)))
    }

    /// For a part of a file: with the filter that describes it.
    pub fn of_part(&self, filter: Filter, part: &str) -> Load {
        Load { filter, part: Some(part.to_owned()), has_filter: true, ..self.clone() }
    }

    /// With `follows_tails`, the duration of calls includes their tail calls.
    pub fn with_tails(self, follows_tails: bool) -> Load {
        Load { follows_tails, ..self }
    }

    /// Whether the duration of calls includes their tail calls.
    pub fn follows_tails(&self) -> bool {
        self.follows_tails
    }

    /// Follows tail calls if the kept call that is reported was found by its tail call: the trigger
    /// counted its time.
    pub fn with_tail_of_kept(self, paths: &[PathBuf]) -> Load {
        let Some(number) = self.kept.filter(|_| !self.follows_tails) else { return self };
        let has_tail = |path: &PathBuf| {
            let file = traces::open(path).ok()?;
            file.recording().kept.get(number.checked_sub(1)?)?.tail
        };
        if !paths.iter().any(|path| has_tail(path).is_some()) {
            return self;
        }
        say!(
            "everycall: kept call {number} was found by its tail call, so durations include tail calls, as \
            with --tails"
        );
        self.with_tails(true)
    }

    /// An empty profile.
    pub fn profile(&self, by: Grouping) -> Profile {
        let profile = Profile::by(by);
        let profile = if self.has_hooks { profile.with_hook_times() } else { profile };
        if self.follows_tails { profile.with_tails() } else { profile }
    }

    /// The runs in files, each by function with its own times.
    pub fn runs(&self, paths: &[PathBuf]) -> Result<Vec<(Profile, Run)>, Failure> {
        let mut runs = Vec::new();
        for path in paths {
            if let Some(stored) = self.stored(path)? {
                let run = |run: StoredRun| {
                    let about = Run::stored(path, &run);
                    (run.profile, about)
                };
                runs.extend(stored.into_iter().map(run));
                continue;
            }
            let mut profile = self.profile(Grouping::Function).with_own_times();
            let ((), run) = self.view(path, |view| {
                profile.add_trace(view, &self.filter);
                if profile.calls == 0 {
                    self.explain_emptiness(view, path);
                }
            })?;
            runs.push((profile, run));
        }
        Ok(runs)
    }

    /// The runs in a file of `merge`; `None` if it is another file.
    fn stored(&self, path: &Path) -> Result<Option<Vec<StoredRun>>, Failure> {
        let Some(text) = stored_text(path).map_err(|error| Failure::of(path, error))? else {
            return Ok(None);
        };
        if self.has_filter {
            return Err(Failure::of(
                path,
                "contains sums of functions, so no calls can be left out; use the filter in `everycall merge`, \
                or name the traces",
            ));
        }
        stored::read(&text).map(Some).map_err(|error| Failure::of(path, error))
    }

    /// Adds the calls of all files.
    pub fn add_all(&self, paths: &[PathBuf], profile: &mut Profile) -> Result<Vec<Run>, Failure> {
        self.add_all_with(paths, profile, &mut OwnSamples::default())
    }

    /// Adds the calls of all files and, by function, the samples in their own times.
    pub fn add_all_with(
        &self,
        paths: &[PathBuf],
        profile: &mut Profile,
        own: &mut OwnSamples,
    ) -> Result<Vec<Run>, Failure> {
        let mut runs = Vec::new();
        for path in paths {
            if let Some(stored) = self.stored(path)? {
                if *profile.grouping() != Grouping::Function || self.has_hooks {
                    return Err(Failure::of(path, HOLDS_SUMS));
                }
                for run in stored {
                    profile.add(&run.profile);
                    runs.push(Run::stored(path, &run));
                }
                continue;
            }
            let (added, run) = self.view(path, |view| {
                let before = profile.calls;
                if let Grouping::Label(name) = profile.grouping()
                    && !view.has_label(name)
                {
                    traces::say_no_label(name, path);
                }
                if let Grouping::Value(_) = profile.grouping()
                    && !view.has_values()
                    && view.trace().value_counts().is_empty()
                {
                    say!(
                        "everycall: {} has no arguments and no results; `everycall record --args` records them",
                        path.display()
                    );
                }
                if !matches!(profile.grouping(), Grouping::Value(_)) {
                    traces::say_counted_by_value(view, path);
                }
                if self.has_hooks {
                    profile.add_trace_with_hooks(view, &self.filter)?;
                } else {
                    profile.add_trace(view, &self.filter);
                }
                if *profile.grouping() == Grouping::Function {
                    own.add_trace(view, &self.filter);
                }
                if profile.calls == before {
                    self.explain_emptiness(view, path);
                }
                Ok(())
            })?;
            added.map_err(|why| traces::not_corrected(path, why))?;
            runs.push(run);
        }
        mixed(&runs);
        Ok(runs)
    }

    /// Reports why no call of a file is shown.
    fn explain_emptiness(&self, view: &TraceView<'_>, path: &Path) {
        if let Some(label) = &self.filter.label
            && !view.has_label(&label.name)
        {
            return traces::say_no_label(&label.name, path);
        }
        let path = path.display();
        if let Some(near) = traces::near_functions(view, &self.filter) {
            say!(
                "everycall: no function that was called in {path} matches --function `{}`{near}",
                self.filter.function.as_ref().map_or("", Regex::as_str)
            );
        } else if let Some(part) = &self.part {
            let advice = match &self.filter.label {
                Some(label) => {
                    let kept = self.kept.map(|number| format!("--kept {number} ")).unwrap_or_default();
                    format!(
                        "`everycall report --by label:{} {kept}{path}` lists the label's values",
                        label.name
                    )
                }
                None => format!("the trace lasts {}", Duration { ns: end_ns(view.trace()) }),
            };
            say!("everycall: no call is in {path}@{part}; {advice}");
        } else if traces::has_only_counts(view) && !self.has_filter {
            // A note says that counts have no paths and labels.
        } else if traces::has_calls(view) || traces::has_only_counts(view) {
            say!("everycall: no call in {path} matches the filter options; remove some of them");
        } else {
            say!("everycall: {path} contains no calls; `everycall info {path}` shows what was recorded");
        }
    }

    /// Reports what the numbers lack.
    pub fn explain(&self, profile: &Profile, _runs: &[Run], paths: &[PathBuf], sort: Order) {
        notes::print(profile, paths, sort);
    }
}

/// Why a file of `merge` is not enough.
const HOLDS_SUMS: &str = "contains sums of functions, not calls; name the traces";

/// The bytes of a file that begins like a file of `merge`; `None` if it is another file.
fn stored_text(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let Ok(mut file) = everycall_analysis::open_for_reading(path) else { return Ok(None) };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut text = vec![0; stored::BEGIN.len()];
    if file.read_exact(&mut text).is_err() || text != stored::BEGIN {
        return Ok(None);
    }
    file.read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Warns if runs differ in ways that make their times incomparable.
pub fn mixed(runs: &[Run]) {
    let all = |of: fn(&Run) -> &str| -> BTreeSet<&str> {
        runs.iter().map(of).filter(|text| !text.is_empty()).collect()
    };
    let list = |texts: &BTreeSet<&str>| texts.iter().copied().collect::<Vec<_>>().join(", ");
    let (cpus, hosts, versions) = (all(|run| &run.cpu), all(|run| &run.host), all(|run| &run.version));
    if cpus.len() > 1 {
        say!("everycall: the files are from different machines ({}): compare counts, not times", list(&cpus));
    } else if hosts.len() > 1 {
        say!("everycall: the files are from different machines of one kind ({})", list(&hosts));
    }
    if versions.len() > 1 {
        say!("everycall: the files were written by different versions of everycall ({})", list(&versions));
    }
}

/// The time between the bounds of a filter within a trace that lasts so long.
fn range_length(filter: &Filter, bounds: (u64, u64), end_ns: u64) -> Option<u64> {
    let has_range = filter.since_ns.is_some()
        || filter.since_wall.is_some()
        || filter.until_ns.is_some()
        || filter.until_wall.is_some();
    has_range.then(|| bounds.1.min(end_ns).saturating_sub(bounds.0))
}
