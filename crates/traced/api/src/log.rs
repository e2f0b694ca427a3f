//! Records of the crate `log` on the timeline.
//!
//! ```
//! everycall::log::init(log::LevelFilter::Info).expect("no other logger");
//! log::info!("ready");
//! ```

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

use crate::runtime;

/// Puts each record on the timeline as a line, in programs that `cargo everycall` has built, and
/// gives it to another logger, which decides for itself what it wants.
pub struct Logger {
    level: LevelFilter,
    next: Option<Box<dyn Log>>,
}

impl std::fmt::Debug for Logger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logger").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Logger {
    /// For records up to a level.
    #[must_use]
    pub fn new(level: LevelFilter) -> Logger {
        Logger { level, next: None }
    }

    /// The logger that gets the records, too, such as `env_logger`'s.
    #[must_use]
    pub fn with(self, next: impl Log + 'static) -> Logger {
        Logger { next: Some(Box::new(next)), ..self }
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        (metadata.level() <= self.level && runtime::is_on())
            || self.next.as_ref().is_some_and(|next| next.enabled(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() <= self.level {
            crate::line(format_args!("{} {}: {}", record.level(), record.target(), record.args()));
        }
        if let Some(next) = &self.next {
            next.log(record);
        }
    }

    fn flush(&self) {
        if let Some(next) = &self.next {
            next.flush();
        }
    }
}

/// Makes a [`Logger`] the program's logger.
///
/// # Errors
/// There is one already.
pub fn init(level: LevelFilter) -> Result<(), SetLoggerError> {
    log::set_boxed_logger(Box::new(Logger::new(level)))?;
    log::set_max_level(level);
    Ok(())
}
