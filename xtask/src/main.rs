//! Developer tasks: `cargo xtask TASK`.
//!
//! | task | what it does |
//! |---|---|
//! | `demo` | builds everycall and a small C++ program, records it, and shows the result |
//! | `bench` | what everycall costs, and how fast it decodes, beside other tracers |
//! | `test` | formatting, lints, all tests, models of the lock-free parts |

mod bench;
mod demo;
mod packages;
mod step;
mod test;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let task = words.next();
    let done = match task.as_deref() {
        Some("bench") => packages::ensure(&packages::BENCH).and_then(|()| bench::run(words)),
        Some("demo") => packages::ensure(&packages::DEMO).and_then(|()| demo::run()),
        Some("test") => test::run(),
        _ => {
            eprintln!("usage: cargo xtask bench|demo|test");
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
