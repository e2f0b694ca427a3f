//! Rust: what cargo and rustc run instead of rustc and the linker (docs/design/rust.md).
//!
//! ```text
//! cargo -> everycall-rustc (RUSTC_WRAPPER)
//!            rustc, first run: the names of the functions           functions
//!            rustc, real run: with hook calls in these functions    rustc; noise: LLVM's messages
//!                                                                   tokio: those of its tasks
//!              -> linkers/cc: the project's linker, with the runtime          link
//!                                               and the names of tasks        tasks_object
//!      -> build scripts -> compilers/gcc, compilers/g++ (CC, CXX)             compilers
//! ```

mod arguments;
mod compilers;
mod functions;
mod link;
mod noise;
mod rustc;
mod tasks_object;
mod tokio;

pub use compilers::{build_compiler_main, compilers, is_build_compiler_path};
pub use link::{START_VARIABLE, is_linker_path, linker_main};
pub use rustc::{CRATES_VARIABLE, INNER_VARIABLE, RustCrates, is_rustc_name, rustc_main};
