//! Developer tasks: `cargo xtask TASK`.
//!
//! | task | what it does |
//! |---|---|
//! | `demo` | builds everycall and a small C++ program, records it, and shows the result |

mod demo;
mod step;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("demo") => demo::run(),
        _ => {
            eprintln!("usage: cargo xtask demo");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}
