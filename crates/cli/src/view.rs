//! `everycall view`: serves a page that shows traces, or writes one that holds everything.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use everycall_analysis::NameOptions;
use everycall_io::say;
use everycall_view::{Input, Library, Server};

use crate::arguments::ViewArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::print;
use crate::traces;

/// Runs the verb.
pub fn run(arguments: ViewArguments) -> Result<ExitCode, Failure> {
    let kept = arguments.filter.kept;
    let names = NameOptions {
        source_folders: arguments.source_folder.clone(),
        any_source: arguments.any_source,
        ..traces::name_options(&arguments.symbols)
    };
    let mut inputs = Vec::new();
    for path in &arguments.traces {
        let mut file = traces::open(path)?;
        traces::select(&mut file, kept, path)?;
        inputs.push(Input { path: path.display().to_string(), file, names: names.clone() });
    }
    serve(inputs, arguments.port.unwrap_or(0), !arguments.no_browser)
}

fn serve(inputs: Vec<Input>, port: u16, opens_browser: bool) -> Result<ExitCode, Failure> {
    let failed = |error| Failure::new(exit_code::FAILED, format!("can't serve the page: {error}"));
    let server = Server::bind(port).map_err(|error| {
        let advice = if port == 0 { "" } else { "; leave --port out to take a free one" };
        Failure::new(
            exit_code::FAILED,
            format!("can't listen on port {port} of this machine: {error}{advice}"),
        )
    })?;
    let library = Library::open(inputs).map_err(failed)?;
    let url = server.url();
    print(&format!("{url}\n"))?;
    let is_open = opens_browser && open(&url);
    if opens_browser && !is_open {
        say!(
            "everycall: no browser could be started (BROWSER, xdg-open); open the address above. Ctrl-C ends"
        );
    }
    server.serve(library, opens_browser).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the address in the user's browser; false if none can be started.
fn open(url: &str) -> bool {
    let chosen = std::env::var_os("BROWSER").unwrap_or_default();
    let chosen = chosen.to_str().unwrap_or_default().split(':').filter(|name| !name.is_empty());
    let mut programs: Vec<OsString> = chosen.map(OsString::from).collect();
    programs.push("xdg-open".into());
    programs.iter().any(|program| starts(Path::new(program), url))
}

fn starts(program: &Path, url: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}
