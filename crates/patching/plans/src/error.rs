//! Why a file has no plan.

use std::fmt;
use std::io;

use everycall_rewrite::RewriteError;

/// Why there is no plan for a file.
#[derive(Debug)]
pub enum PlanError {
    /// The file can't be read.
    Read(io::Error),
    /// It can't be planned for.
    Plan(RewriteError),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Plan(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<io::Error> for PlanError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<RewriteError> for PlanError {
    fn from(error: RewriteError) -> Self {
        Self::Plan(error)
    }
}
