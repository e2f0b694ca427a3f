//! `everycall sql`: queries over traces.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use everycall_analysis::{SymbolNames, TraceView};
use everycall_export::Filter;
use everycall_io::outfile::MODE_SHARED;
use everycall_io::say;
use everycall_io::terminal::{self, Escapes};
use everycall_query::{Database, Format, Limits, OpenTrace, Output, Parquet, QueryError, Table};

use crate::arguments::{ResultFormat, SqlArguments};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{BUFFER, Destination, print, terminal_width};
use crate::traces;

/// Longest query, in bytes.
const QUERY_MAX: u64 = 1 << 20;

/// Runs the verb.
pub fn run(arguments: &SqlArguments) -> Result<ExitCode, Failure> {
    if arguments.schema {
        print(&everycall_query::schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (query, paths) = match arguments.words.split_last() {
        Some((query, paths)) if !paths.is_empty() => (query, paths),
        _ => {
            return Err(usage(
                "a trace and a query are needed, such as `everycall sql app.ect 'select * from functions'`; `everycall sql --schema` lists \
                 the tables",
            ));
        }
    };
    let query = read_query(query)?;
    let filter = arguments.filter.clone().filter().map_err(usage)?;
    // The tables of a database live as long as the process: so do the traces.
    let filter: &'static Filter = Box::leak(Box::new(filter));
    let mut opened = Vec::new();
    for path in paths {
        opened.push(open(Path::new(path), filter, arguments)?);
    }
    let names: Vec<_> = opened.iter().map(|trace| trace.view.names()).collect();
    let mut database = Database::open(opened).map_err(|error| failed(&error))?;
    write(&mut database, &query, arguments)?;
    names.into_iter().for_each(traces::warn_of_names);
    if let Some(scans) = database.many_scans() {
        say!(
            "everycall: the query read the trace {scans} times; docs/reference/sql.md says how such a query is made fast"
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn usage(reason: impl std::fmt::Display) -> Failure {
    Failure::new(exit_code::USAGE, reason)
}

/// The text of the query that a word names.
fn read_query(word: &OsStr) -> Result<String, Failure> {
    let invalid = |_| usage("the query isn't UTF-8");
    let text = word.to_owned().into_string().map_err(invalid)?;
    let mut bytes = Vec::new();
    let read = if text == "-" {
        io::stdin().lock().take(QUERY_MAX + 1).read_to_end(&mut bytes).map_err(|error| {
            Failure::new(exit_code::FAILED, format!("can't read the query from standard input: {error}"))
        })?
    } else if let Some(path) = text.strip_prefix('@') {
        let read = everycall_io::infile::open(Path::new(path))
            .and_then(|file| file.take(QUERY_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|error| Failure::of(Path::new(path), format!("the query can't be read: {error}")))?
    } else if Path::new(&text).is_file() {
        return Err(usage(format!(
            "{text} is a file, and the query is missing; write it behind the traces, such as 'select * from functions'"
        )));
    } else {
        return Ok(text);
    };
    if read as u64 > QUERY_MAX {
        return Err(usage("the query is longer than 1 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| usage("the query isn't UTF-8"))
}

/// Opens a trace for the rest of the process's life.
fn open(path: &Path, filter: &'static Filter, arguments: &SqlArguments) -> Result<OpenTrace, Failure> {
    let mut file = traces::open(path)?;
    traces::select(&mut file, arguments.filter.kept, path)?;
    let file = Box::leak(Box::new(file));
    let trace = Box::leak(Box::new(traces::trace(file, path)?));
    let names = SymbolNames::new(file, trace, traces::name_options(&arguments.symbols));
    names.name_tasks(trace);
    traces::check_filter(trace, path, filter)?;
    traces::warn(trace, path);
    let names = Box::leak(Box::new(names));
    let view = Box::leak(Box::new(TraceView::new(trace, names)));
    let name = String::leak(path.display().to_string());
    Ok(OpenTrace { name, view, filter })
}

fn write(database: &mut Database, query: &str, arguments: &SqlArguments) -> Result<(), Failure> {
    let limits = Limits {
        time: arguments.timeout.map(Duration::from_nanos),
        temporary: arguments.temp_size.unwrap_or(Limits::default().temporary),
    };
    match &arguments.output {
        None => {
            let stdout = io::stdout();
            // Escapes are written for one of unknown width, too.
            let width = stdout.is_terminal().then(|| terminal_width().unwrap_or(80));
            let escapes = match arguments.format {
                ResultFormat::Json => Escapes::Json,
                _ => Escapes::Text,
            };
            let mut out = BufWriter::with_capacity(BUFFER, terminal::stdout(escapes));
            if arguments.format == ResultFormat::Parquet && width.is_some() {
                return Err(usage("Parquet isn't for terminals; name a file with -o"));
            }
            let ran = database.query(query, limits, &mut *output(arguments.format, &mut out, width));
            // Rows found before an error are shown.
            let flushed = out.flush().map_err(Failure::writing_to_stdout);
            ran.map_err(|error| match error {
                QueryError::Output(error) => Failure::writing_to_stdout(error),
                error => failed(&error),
            })?;
            flushed
        }
        Some(path) => {
            let destination = Destination::new(Some(path), arguments.force, PathBuf::new);
            for input in arguments.words.iter().rev().skip(1) {
                destination.is_not(Path::new(input))?;
            }
            let out = destination.open(MODE_SHARED)?;
            let out = if arguments.format == ResultFormat::Json { out.as_json() } else { out };
            let shown = out.shown().to_owned();
            let mut out = BufWriter::with_capacity(BUFFER, out);
            let ran = database.query(query, limits, &mut *output(arguments.format, &mut out, None));
            ran.map_err(|error| match error {
                QueryError::Output(error) => Failure::writing(&shown, error),
                error => failed(&error),
            })?;
            let written = out.into_inner().map_err(|error| Failure::writing(&shown, error.into_error()))?;
            written.finish()?;
            Ok(())
        }
    }
}

/// The writer of a result to `out`, which is a terminal with `width` columns, or none.
fn output<'o>(format: ResultFormat, out: &'o mut dyn Write, width: Option<usize>) -> Box<dyn Output + 'o> {
    let format = match format {
        ResultFormat::Text => Format::Text,
        ResultFormat::Csv => Format::Csv,
        ResultFormat::Json => Format::Json,
        ResultFormat::Parquet => return Box::new(Parquet::new(out)),
    };
    Box::new(Table::new(out, format, width))
}

/// The exit code says whether the query is wrong.
fn failed(error: &QueryError) -> Failure {
    let code = if matches!(error, QueryError::Query(_)) { exit_code::USAGE } else { exit_code::FAILED };
    Failure::new(code, error)
}
