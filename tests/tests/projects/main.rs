//! Real programs, from their sources to the exported trace.

mod answers;
mod workloads;
