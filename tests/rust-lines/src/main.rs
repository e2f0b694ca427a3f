//! Says something through the crates `tracing` and `log`, and prints that it ends.

use tracing_subscriber::prelude::*;

#[inline(never)]
fn work(id: u64) {
    let span = tracing::info_span!("work", id, left = tracing::field::Empty);
    // As a task that is polled twice.
    for poll in 0..2 {
        let _entered = span.enter();
        tracing::warn!(poll, name = %"a name", "slow");
        span.record("left", 1 - poll);
    }
}

#[inline(never)]
fn logs() {
    log::info!("ready");
    log::debug!("not wanted");
    log::error!("{}", "long ".repeat(200));
    everycall::line(format_args!(""));
    everycall::line(format_args!("é is {}", 100 + 30));
}

fn main() {
    tracing_subscriber::registry().with(everycall::tracing::Layer).init();
    everycall::log::init(log::LevelFilter::Info).expect("no other logger");
    work(7);
    std::thread::spawn(|| work(8)).join().expect("it ends");
    logs();
    println!("ended");
}
