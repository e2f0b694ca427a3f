//! Parts of `view` for files and for running programs: the server's address, and its way into a
//! browser.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use everycall_analysis::NameOptions;
use everycall_io::say;
use everycall_view::Server;

use crate::arguments::ViewArguments;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::print;
use crate::traces;

/// How functions are named, and where their sources lie.
pub fn names_of(arguments: &ViewArguments) -> NameOptions {
    NameOptions {
        source_folders: arguments.source_folder.clone(),
        any_source: arguments.any_source,
        ..traces::name_options(&arguments.symbols)
    }
}

/// Where the page goes first.
pub fn fragment(arguments: &ViewArguments) -> String {
    let encoded = |name: &String| -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        name.bytes().map(one).collect()
    };
    let kept = arguments.filter.kept.map(|number| format!("kept={number}"));
    let frame = arguments.frame.as_ref().map(|name| format!("frame={}", encoded(name)));
    kept.or(frame).map(|field| format!("#{field}")).unwrap_or_default()
}

pub fn cant_serve(error: &std::io::Error) -> Failure {
    Failure::new(exit_code::FAILED, format!("can't serve the page: {error}"))
}

pub fn bind(port: u16) -> Result<Server, Failure> {
    Server::bind(port).map_err(|error| {
        let advice = if port == 0 { "" } else { "; leave --port out to take a free one" };
        Failure::new(
            exit_code::FAILED,
            format!("can't listen on port {port} of this machine: {error}{advice}"),
        )
    })
}

/// Prints the page's address, and opens it if that is wanted.
pub fn announce(url: &str, opens_browser: bool) -> Result<(), Failure> {
    print(&format!("{url}\n"))?;
    if opens_browser && !open(url) {
        say!(
            "everycall: no browser could be started (BROWSER, xdg-open); open the address above. Ctrl-C ends"
        );
    }
    Ok(())
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
