//! Events become calls, whatever is missing.

mod checkpoints;
mod golden;
mod hostile;
mod jumps;
mod losses;
mod marks;
mod text;
mod trees;
mod unsure;
