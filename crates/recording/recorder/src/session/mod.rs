//! A recording from creating its memory to writing its file.

mod alone;
mod ended;
mod options;
mod running;
mod serving;
mod sharing;
mod start;

pub use alone::run_alone;
pub use ended::Ended;
pub use options::{Options, Recorder};
pub use running::{FirstArena, Running};
pub use start::{start, start_by, start_with};
