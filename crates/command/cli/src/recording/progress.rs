//! The progress lines of `record --stream` and `export`. Only on a terminal, because the program's
//! own output must not be mixed with them in a file.

use std::io::{IsTerminal, Write, stderr};
use std::time::Instant;

use everycall_tracefile::Progress;
use everycall_units::{Count, Size};

/// The callback that prints the progress line; `None` if standard error isn't a terminal.
pub fn line(quiet: bool) -> Option<Box<dyn FnMut(Progress)>> {
    if quiet || !stderr().is_terminal() {
        return None;
    }
    let mut last = (Instant::now(), 0);
    Some(Box::new(move |now: Progress| {
        let time = last.0.elapsed().as_secs_f64();
        let rate = now.events.saturating_sub(last.1) as f64 / time.max(1e-3);
        last = (Instant::now(), now.events);
        let _ = write!(stderr(), "\r{}\x1b[K", text(now, rate));
    }))
}

/// Prints how far an export is: so many events of about `all`.
pub fn export(events: u64, all: u64) {
    let percent = (events.saturating_mul(100) / all.max(1)).min(100);
    let _ = write!(stderr(), "\reverycall: {} events, {percent} %\x1b[K", Count(events));
}

/// Removes the line.
pub fn clear(quiet: bool) {
    if !quiet && stderr().is_terminal() {
        let _ = write!(stderr(), "\r\x1b[K");
    }
}

fn text(now: Progress, rate: f64) -> String {
    let lost = if now.lost > 0 { format!(", {} lost", Count(now.lost)) } else { String::new() };
    format!("everycall: {} events, {}, {:.1} million/s{lost}", Count(now.events), Size(now.bytes), rate / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_losses_where_there_are_some() {
        let mut now = Progress { events: 1_500_000, bytes: 3 << 20, lost: 0 };
        assert_eq!(text(now, 2.54e6), "everycall: 1,500,000 events, 3 MiB, 2.5 million/s");
        now.lost = 12;
        assert_eq!(text(now, 0.0), "everycall: 1,500,000 events, 3 MiB, 0.0 million/s, 12 lost");
    }
}
