//! Reports and exports of traces.

mod agents;
mod arguments;
mod exports;
mod frames;
mod frames_named_by_files;
mod report_callgrind;
mod report_input;
mod reports;
mod throws;
mod trees;
mod unsure;
