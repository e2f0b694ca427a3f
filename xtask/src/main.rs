//! Developer tasks: `cargo xtask TASK`.
//!
//! | task | what it does |
//! |---|---|
//! | `demo` | builds everycall and a small C++ program, records it, and shows the result |
//! | `test` | formatting, lints, all tests, models of the lock-free parts |

mod demo;
mod packages;
mod step;
mod test;

use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("demo") => packages::ensure(&packages::DEMO).and_then(|()| demo::run()),
        Some("test") => test::run(),
        _ => {
            eprintln!("usage: cargo xtask demo|test");
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
