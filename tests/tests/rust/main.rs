//! Programs in Rust.

mod rust;
mod rust_real;
mod rust_tasks;
mod rust_tokio;
