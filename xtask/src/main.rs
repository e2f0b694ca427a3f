//! Developer tasks: `cargo xtask TASK`.
//!
//! | task | what it does |
//! |---|---|
//! | `demo` | a small C++ program, recorded and shown by a new everycall, or `--with EVERYCALL` |
//! | `answers` | the numbers of pages without a server, as WebAssembly, into the kept build of the page |
//! | `pictures` | takes the pictures of the viewer that the documents show |
//! | `bench` | what everycall costs, and how fast it decodes, beside other tracers |
//! | `book` | the documents as a book, in `target/book` |
//! | `dist` | a static binary, a Debian package, a wheel; `--try` installs them in a clean root |
//! | `test` | formatting, lints, all tests, the model checker |
//! | `models` | the lock-free parts under the model checker, Miri and ThreadSanitizer (nightly) |
//! | `soak` | an hour of threads, signals, forks, loading, exceptions and snapshots: nothing grows, nothing fails |
//! | `kills` | a thousand times `kill -9`: what the program did last is there |
//! | `storms` | ten thousand snapshots while threads come and go, ten thousand forks during snapshots |
//! | `scribbles` | ten minutes of programs that write over the shared memory that they are recorded in: every command ends well |
//! | `untouched` | CPython's test suite with hooks in all of the interpreters as they are |

mod answers;
mod bench;
mod book;
mod campaigns;
mod demo;
mod dist;
mod packages;
mod pictures;
mod step;
mod test;
mod viewer;
#[cfg(test)]
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let task = words.next();
    let done = match task.as_deref() {
        Some("answers") => answers::run(),
        Some("bench") => packages::ensure(&packages::BENCH).and_then(|()| bench::run(words)),
        Some("book") => book::run(),
        Some("demo") => packages::ensure(&packages::DEMO).and_then(|()| demo::run(words)),
        Some("dist") => dist::run(words),
        Some("pictures") => packages::ensure(&packages::PICTURES).and_then(|()| pictures::run()),
        Some("test") => test::Options::parse(words).and_then(|options| test::run(&options)),
        Some("models") => test::models(),
        Some(name) if campaigns::names().any(|known| known == name) => campaigns::run(name, words),
        _ => {
            let campaigns: Vec<&str> = campaigns::names().collect();
            eprintln!(
                "usage: cargo xtask answers|bench|book|demo|dist|pictures|test|models|{}",
                campaigns.join("|")
            );
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
