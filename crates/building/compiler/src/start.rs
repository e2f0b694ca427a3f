//! Whether tracing is on when a program starts, as its build chooses.

use std::str::FromStr;

/// Whether a program traces from its start, as linked into it. `record` and variables of the
/// environment take precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The program records from its start.
    #[default]
    On,
    /// It records nothing until it is switched on.
    Off,
}

impl FromStr for Start {
    type Err = String;

    fn from_str(word: &str) -> Result<Start, String> {
        match word {
            "on" => Ok(Start::On),
            "off" => Ok(Start::Off),
            _ => {
                Err(format!("`{word}` is neither on nor off: whether tracing is on when the program starts"))
            }
        }
    }
}
