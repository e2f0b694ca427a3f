//! The thread that traces.

use crate::error::{InjectError, failed};

/// Runs `work` on a thread of its own, with which all tracing ends, on every path: when the thread
/// ends, the kernel lets go on whatever it traced. So it is if this process is killed.
///
/// # Errors
///
/// If there is no thread for it, or those of `work`.
pub fn on_tracer<T: Send>(work: impl FnOnce() -> Result<T, InjectError> + Send) -> Result<T, InjectError> {
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new()
            .name("tracer".to_owned())
            .spawn_scoped(scope, work)
            .map_err(failed("starting a thread"))?;
        tracer.join().unwrap_or_else(|_| {
            Err(InjectError::Refused("the tracing thread ended by a defect of its own".to_owned()))
        })
    })
}
