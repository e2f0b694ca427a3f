//! Variables that only the program is to find.
//!
//! # Safety
//!
//! The environment is changed while this process has one thread.
#![allow(unsafe_code)]

use std::ffi::OsStr;

/// Runs `run` while `variables` stand in this process's environment, which has one thread.
///
/// (`Command::env` would sort the program's environment, which is to differ by our variables alone.)
pub fn with_environment<T>(variables: &[(&str, &OsStr)], run: impl FnOnce() -> T) -> T {
    let before: Vec<_> = variables.iter().map(|(name, _)| (*name, std::env::var_os(name))).collect();
    for (name, value) in variables {
        // SAFETY: the caller is the only thread.
        unsafe { std::env::set_var(name, value) };
    }
    let result = run();
    for (name, value) in before {
        match value {
            // SAFETY: as above.
            Some(value) => unsafe { std::env::set_var(name, value) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(name) },
        }
    }
    result
}
