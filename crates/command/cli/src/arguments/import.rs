//! `import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use everycall_import::Format;

use super::common::Force;

/// `import`.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Trace file to write [default: the source's name and .ect, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub force: Force,
    /// Format of the source [default: by its content]
    #[arg(short, long, value_enum)]
    pub format: Option<ImportFormat>,
    /// The program that wrote an XRay log: the log has numbers of functions, the program's file
    /// says which they are [default: the program of the log's name, beside it or in the current
    /// folder]
    #[arg(long, value_name = "PROGRAM")]
    pub binary: Option<PathBuf>,
    /// Print no report at the end
    #[arg(short, long)]
    pub quiet: bool,
    /// The file or folder to import
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
}

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// Chrome's trace event format, as JSON, also compressed by gzip
    Chrome,
    /// The file of an emulated device with the TRACE instruction
    Device,
    /// A raw file of funtrace
    Funtrace,
    /// Text of `perf script` of an Intel PT trace
    Perf,
    /// perf's own file with an Intel PT trace
    PerfData,
    /// A folder of uftrace
    Uftrace,
    /// A basic log of XRay
    XrayBasic,
    /// A log of XRay's flight data recorder
    XrayFdr,
}

impl ImportFormat {
    /// As the library has it.
    pub fn format(self) -> Format {
        match self {
            ImportFormat::Chrome => Format::Chrome,
            ImportFormat::Device => Format::Device,
            ImportFormat::Funtrace => Format::Funtrace,
            ImportFormat::Perf => Format::Perf,
            ImportFormat::PerfData => Format::PerfData,
            ImportFormat::Uftrace => Format::Uftrace,
            ImportFormat::XrayBasic => Format::XrayBasic,
            ImportFormat::XrayFdr => Format::XrayFdr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_formats_have_their_names() {
        for known in ImportFormat::value_variants() {
            let name = known.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(name.as_deref(), Some(known.format().name()));
        }
    }
}
