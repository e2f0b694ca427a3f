//! `everycall view`: serves a page that shows traces or a running program, or writes one that holds
//! everything.

mod live;
mod serving;

use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;

use everycall_io::outfile::{MODE_PRIVATE, MODE_SHARED};
use everycall_io::say;
use everycall_reader::Source as _;
use everycall_units::{Several, Size};
use everycall_view::{Input, Library};

use crate::arguments::ViewArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{BUFFER, Destination};
use crate::traces;

use self::serving::{announce, bind, cant_serve, fragment, names_of};

/// Runs the verb.
pub fn run(arguments: ViewArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    if arguments.live || live::process_of(&arguments).is_some() {
        return live::run(&arguments);
    }
    let names = names_of(&arguments);
    let mut inputs = Vec::new();
    for path in &arguments.traces {
        let mut file = traces::open(path)?;
        traces::select(&mut file, kept, path)?;
        inputs.push(Input { path: path.display().to_string(), file, names: names.clone() });
    }
    if let Some(path) = &arguments.html {
        return write(inputs, &arguments, path);
    }
    serve(inputs, &arguments)
}

/// Writes the page that holds everything.
fn write(inputs: Vec<Input>, arguments: &ViewArguments, path: &Path) -> Result<ExitCode, Failure> {
    let filter = arguments.filter.clone().filter().map_err(|error| Failure::new(exit_code::USAGE, error))?;
    let destination = Destination::new(Some(path), arguments.force, || path.to_owned());
    for trace in &arguments.traces {
        destination.is_not(trace)?;
    }
    let [input]: [Input; 1] = inputs
        .try_into()
        .map_err(|_| Failure::new(exit_code::USAGE, "--html writes a page of one trace; name one"))?;
    if let Some(path) = arguments.traces.first()
        && is_only_counted(&input, path)?
    {
        let why = "its calls were counted, not recorded, so there is nothing to draw; \
            `everycall report FILE` shows them";
        return Err(Failure::of(path, why));
    }
    // Source code may be confidential.
    let mode = if arguments.shared { MODE_SHARED } else { MODE_PRIVATE };
    let out = destination.open(mode)?;
    let shown = out.shown().to_owned();
    let failed = |error| Failure::writing(&shown, error);
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let written = everycall_view::write_page(input, &filter, &mut out).map_err(failed)?;
    out.into_inner().map_err(|error| failed(error.into_error()))?.finish()?;
    say!(
        "everycall: {} and {} in {} ({}); open it in a browser",
        Several(written.calls, "call", "calls"),
        Several(written.sources, "source file", "source files"),
        path.display(),
        Size(written.bytes)
    );
    Ok(ExitCode::SUCCESS)
}

/// Whether the calls of a trace were counted, and none recorded.
fn is_only_counted(input: &Input, path: &Path) -> Result<bool, Failure> {
    // Without counts, the trace needn't be gone through for that.
    if input.file.recording().counts.is_empty() {
        return Ok(false);
    }
    let trace = traces::trace(&input.file, path)?;
    Ok(trace.threads().iter().all(|thread| thread.events == 0))
}

fn serve(inputs: Vec<Input>, arguments: &ViewArguments) -> Result<ExitCode, Failure> {
    let opens_browser = !arguments.no_browser;
    let server = bind(arguments.port.unwrap_or(0))?;
    let library = Library::open(inputs).map_err(|error| cant_serve(&error))?;
    announce(&(server.url() + &fragment(arguments)), opens_browser)?;
    server.serve(library, opens_browser).map_err(|error| cant_serve(&error))?;
    Ok(ExitCode::SUCCESS)
}
