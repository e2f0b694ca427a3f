//! Files into profiles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use everycall_analysis::{NameOptions, Profile, SymbolNames, TraceView};
use everycall_export::{Filter, Source as _, end_ns};
use everycall_io::say;
use everycall_timeline::Trace;
use serde_json::{Value, json};

use super::notes;
use crate::arguments::{FilterArguments, ReportArguments, SymbolArguments, TableFormat};
use crate::exit_code;
use crate::failure::Failure;
use crate::traces;

/// How files are read.
pub struct Load {
    pub filter: Filter,
    kept: Option<usize>,
    names: NameOptions,
}

/// What is told of a file that was read.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub path: PathBuf,
    pub command: String,
    pub host: String,
    pub cpu: String,
    pub version: String,
    pub started_realtime_ns: Option<u64>,
    pub duration_ns: u64,
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
            warnings: trace.warnings().iter().map(ToString::to_string).collect(),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "file": self.path.to_string_lossy(),
            "command": self.command,
            "host": self.host,
            "cpu": self.cpu,
            "everycall_version": self.version,
            "started_realtime_ns": self.started_realtime_ns,
            "duration_ns": self.duration_ns,
            "warnings": self.warnings,
        })
    }
}

impl Load {
    /// What the options of `report` ask for.
    pub fn new(arguments: &ReportArguments) -> Result<Load, Failure> {
        let full_names = arguments.format != TableFormat::Text;
        Load::with(arguments.filter.clone(), &arguments.symbols, full_names)
    }

    /// What these options ask for.
    pub fn with(
        filter: FilterArguments,
        symbols: &SymbolArguments,
        full_names: bool,
    ) -> Result<Load, Failure> {
        let kept = filter.kept;
        let filter = filter.filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
        let options = traces::name_options(symbols);
        let names = NameOptions { full_names: options.full_names || full_names, ..options };
        Ok(Load { filter, kept, names })
    }

    /// Opens a trace, says what is damaged in it, and lets `with` look at it.
    pub fn view<T>(
        &self,
        path: &Path,
        with: impl FnOnce(&TraceView<'_>) -> T,
    ) -> Result<(T, Run), Failure> {
        let mut file = traces::open(path)?;
        traces::select(&mut file, self.kept, path)?;
        let trace = traces::trace(&file, path)?;
        let names = SymbolNames::new(&file, &trace, self.names.clone());
        let view = TraceView::new(&trace, &names);
        traces::warn(&trace, path);
        let result = with(&view);
        traces::warn_of_names(&names);
        Ok((result, Run::of(path, &trace)))
    }

    /// The same once more: what is to be said was said.
    pub fn quietly<T>(
        &self,
        path: &Path,
        with: impl FnOnce(&TraceView<'_>) -> T,
    ) -> Result<T, Failure> {
        let mut file = traces::open(path)?;
        traces::select(&mut file, self.kept, path)?;
        let trace = traces::trace(&file, path)?;
        let names = SymbolNames::new(&file, &trace, self.names.clone());
        Ok(with(&TraceView::new(&trace, &names)))
    }

    /// Adds the calls of all files.
    pub fn add_all(&self, paths: &[PathBuf], profile: &mut Profile) -> Result<Vec<Run>, Failure> {
        let mut runs = Vec::new();
        for path in paths {
            let ((), run) = self.view(path, |view| {
                let before = profile.calls;
                profile.add_trace(view, &self.filter);
                if profile.calls == before {
                    self.explain_emptiness(view, path);
                }
            })?;
            runs.push(run);
        }
        mixed(&runs);
        Ok(runs)
    }

    /// Says why no call of a file is shown.
    fn explain_emptiness(&self, view: &TraceView<'_>, path: &Path) {
        let path = path.display();
        if let Some(label) = &self.filter.label
            && !view.has_label(&label.name)
        {
            say!("everycall: no label in {path} is called {}; `everycall info {path}` lists them", label.name);
        } else if (0..view.threads().len()).any(|thread| view.timeline(thread).next().is_some()) {
            say!("everycall: no call in {path} passes the filter; leave out some of its options");
        } else {
            say!("everycall: {path} holds no calls; `everycall info {path}` says what was recorded");
        }
    }

    /// Says what is missing in the numbers.
    pub fn explain(&self, profile: &Profile, _runs: &[Run], paths: &[PathBuf]) {
        notes::print(profile, paths);
    }
}

/// Says in what the runs differ, so that their times can't be compared.
pub fn mixed(runs: &[Run]) {
    let all = |of: fn(&Run) -> &str| -> BTreeSet<&str> {
        runs.iter().map(of).filter(|text| !text.is_empty()).collect()
    };
    let list = |texts: &BTreeSet<&str>| texts.iter().copied().collect::<Vec<_>>().join(", ");
    let (cpus, hosts, versions) = (all(|run| &run.cpu), all(|run| &run.host), all(|run| &run.version));
    if cpus.len() > 1 {
        say!(
            "everycall: the files are from different machines ({}): compare counts, not times",
            list(&cpus)
        );
    } else if hosts.len() > 1 {
        say!("everycall: the files are from different machines of one kind ({})", list(&hosts));
    }
    if versions.len() > 1 {
        say!("everycall: the files were written by different versions of everycall ({})", list(&versions));
    }
}
