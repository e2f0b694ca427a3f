//! In a program without the runtime, nothing happens.

use std::time::Duration;

use everycall::{Error, SlowScope, Slowest, Snapshot};

#[test]
fn nothing_happens_without_the_runtime() {
    static SLOWEST: Slowest = Slowest::new(Duration::ZERO);
    assert!(!everycall::is_there());
    assert_eq!((everycall::now(), everycall::ticks_per_second()), (0, 1_000_000_000));
    let _span = everycall::span("span");
    everycall::label("label", 1);
    everycall::counter_f64("counter", 0.5);
    let path = std::env::temp_dir().join(format!("everycall-api-{}.ect", std::process::id()));
    drop(SlowScope::slowest(&path, &SLOWEST));
    drop(SlowScope::longer(&path, Duration::ZERO));
    assert!(!path.exists() && SLOWEST.duration() == Duration::ZERO);
    assert_eq!(Snapshot::take().err(), Some(Error::NOT_TRACED));
    assert_eq!(everycall::disable(), Err(Error::NOT_TRACED));
    assert!(Error::NOT_TRACED.to_string().contains("cargo everycall"));
}

#[test]
fn layers_do_nothing() {
    use tracing_subscriber::prelude::*;
    let subscriber = tracing_subscriber::registry().with(everycall::tracing::Layer);
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("work", id = 7);
        span.in_scope(|| tracing::warn!(left = 3, "slow"));
    });
    let logger = everycall::log::Logger::new(log::LevelFilter::Info).with(Counted(seen.clone()));
    log::set_boxed_logger(Box::new(logger)).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    log::info!("ready");
    log::debug!("not the line's level, but the next logger's");
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 2);
}

struct Counted(std::sync::Arc<std::sync::atomic::AtomicU32>);

impl log::Log for Counted {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, _: &log::Record<'_>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn flush(&self) {}
}
