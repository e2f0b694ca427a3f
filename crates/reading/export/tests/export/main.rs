//! Exports and replays of synthetic traces.

mod common;
mod golden;
mod json;
mod parquet;
mod perfetto;
mod replay;
mod timeline;
