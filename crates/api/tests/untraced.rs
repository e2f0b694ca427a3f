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
