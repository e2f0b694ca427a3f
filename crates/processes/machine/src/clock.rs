//! Readings of all clocks at one moment, from which readers make nanoseconds out of ticks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use everycall_format::arch::Machine;
use everycall_format::arena::ClockReading;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::arch;

/// Tries per reading; the one with the closest bracket counts.
const TRIES: usize = 5;
/// When there are this many, every second one is dropped and they come half as often.
const READINGS_MAX: usize = 16_384;
/// Seconds between readings at first.
const INTERVAL_SECONDS: u64 = 1;
/// Nanoseconds before the second reading, without which the length of a tick is unknown. The file
/// of a recorder that is killed soon needs it, too.
const FIRST_INTERVAL_NS: u64 = 20_000_000;

/// Whether the programs that are recorded have the counter of an emulator.
static IS_EMULATED: AtomicBool = AtomicBool::new(false);
/// Emulators of one program (QEMU's user mode), for machines with a counter of their own.
const EMULATORS: [&str; 2] = ["qemu-aarch64", "qemu-aarch64-static"];
/// Such an emulator shows the real time as that counter, in steps of so many nanoseconds.
const EMULATED_STEP_NS: u64 = 16;

/// From now on, [`ticks`] are those of a program that is started by `starter`: those of an
/// emulator, if that is one, and otherwise those of this machine.
pub fn count_for(starter: &Path) {
    let is_one =
        starter.file_name().and_then(|name| name.to_str()).is_some_and(|name| EMULATORS.contains(&name));
    IS_EMULATED.store(is_one, Relaxed);
}

/// As [`count_for`], for a process of this machine, which is emulated if it isn't ours; or of one
/// that isn't known.
pub fn count_as(machine: Option<Machine>) {
    if let Some(machine) = machine {
        IS_EMULATED.store(machine != Machine::OWN, Relaxed);
    }
}

/// Whether the hooks of a process of this machine read the counter of [`ticks`].
#[must_use]
pub fn counts(machine: Option<Machine>) -> bool {
    machine.is_none_or(|machine| (machine != Machine::OWN) == IS_EMULATED.load(Relaxed))
}

/// The counter that hooks read.
#[must_use]
pub fn ticks() -> u64 {
    match IS_EMULATED.load(Relaxed) {
        true => nanoseconds(clock_gettime(ClockId::Realtime)) / EMULATED_STEP_NS,
        false => arch::ticks(),
    }
}

/// Reads all clocks.
#[must_use]
pub fn read() -> ClockReading {
    (0..TRIES).map(|_| read_once()).min_by_key(|reading| reading.bracket).unwrap_or_default()
}

fn read_once() -> ClockReading {
    let before = ticks();
    let monotonic_raw = clock_gettime(ClockId::MonotonicRaw);
    let monotonic = clock_gettime(ClockId::Monotonic);
    let realtime = clock_gettime(ClockId::Realtime);
    let bracket = ticks().saturating_sub(before);
    ClockReading {
        ticks: before + bracket / 2,
        monotonic_raw_ns: nanoseconds(monotonic_raw),
        monotonic_ns: nanoseconds(monotonic),
        realtime_ns: nanoseconds(realtime),
        bracket,
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Readings of a whole run, however long it is, in bounded memory.
#[derive(Debug)]
pub struct Readings {
    all: Vec<ClockReading>,
    interval_ns: u64,
    /// Of which counter they are.
    is_emulated: bool,
}

impl Readings {
    /// Begins with a reading of now.
    #[must_use]
    pub fn begin() -> Readings {
        let is_emulated = IS_EMULATED.load(Relaxed);
        Readings { all: vec![read()], interval_ns: INTERVAL_SECONDS * 1_000_000_000, is_emulated }
    }

    /// Takes a reading where the last one is old enough.
    pub fn poll(&mut self) {
        let now = nanoseconds(clock_gettime(ClockId::MonotonicRaw));
        if self.is_due(now) {
            self.take();
        }
    }

    /// Whether the last reading is old enough at `now`: as old as those before it are together.
    fn is_due(&self, now: u64) -> bool {
        let of = |reading: Option<&ClockReading>| reading.map_or(0, |reading| reading.monotonic_raw_ns);
        let (first, last) = (of(self.all.first()), of(self.all.last()));
        let interval = last.saturating_sub(first).clamp(FIRST_INTERVAL_NS, self.interval_ns);
        now.saturating_sub(last) >= interval
    }

    /// Takes a reading now, and returns its ticks.
    pub fn take(&mut self) -> u64 {
        if self.all.len() >= READINGS_MAX {
            let mut number = 0;
            self.all.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.interval_ns *= 2;
        }
        let is_emulated = IS_EMULATED.load(Relaxed);
        if is_emulated != self.is_emulated {
            // The first process has another counter than the program that was started.
            self.all.clear();
            self.is_emulated = is_emulated;
        }
        let reading = read();
        self.all.push(reading);
        reading.ticks
    }

    /// The readings, in order.
    #[must_use]
    pub fn all(&self) -> &[ClockReading] {
        &self.all
    }

    /// Nanoseconds that `ticks` take, by the first and the last reading.
    #[must_use]
    pub fn nanoseconds(&self, ticks: u64) -> u64 {
        let (Some(first), Some(last)) = (self.all.first(), self.all.last()) else { return 0 };
        let span = u128::from(last.ticks.saturating_sub(first.ticks)).max(1);
        let time = u128::from(last.monotonic_raw_ns.saturating_sub(first.monotonic_raw_ns));
        u64::try_from(u128::from(ticks) * time / span).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_begin_soon_and_become_rare() {
        let at = |monotonic_raw_ns| ClockReading { monotonic_raw_ns, ..ClockReading::default() };
        let due = |all: &[u64]| {
            let readings = Readings {
                all: all.iter().copied().map(at).collect(),
                interval_ns: 1_000_000_000,
                is_emulated: false,
            };
            let last = *all.last().unwrap();
            let after = |ns: &u64| readings.is_due(last + ns * 1_000_000);
            (0..=2_000).find(after).unwrap()
        };
        let ms = 1_000_000;
        assert_eq!(due(&[5 * ms]), 20);
        assert_eq!(due(&[5 * ms, 25 * ms]), 20);
        assert_eq!(due(&[5 * ms, 25 * ms, 45 * ms]), 40);
        assert_eq!(due(&[5 * ms, 5_000 * ms]), 1_000);
    }

    #[test]
    fn clocks_agree_over_a_pause() {
        let mut readings = Readings::begin();
        std::thread::sleep(std::time::Duration::from_millis(20));
        readings.take();
        let [first, last] = readings.all() else { panic!("two readings") };
        let raw = last.monotonic_raw_ns - first.monotonic_raw_ns;
        let monotonic = last.monotonic_ns - first.monotonic_ns;
        assert!(raw >= 20_000_000);
        assert!(raw.abs_diff(monotonic) < 1_000_000, "{raw} {monotonic}");
        assert!(readings.nanoseconds(last.ticks - first.ticks).abs_diff(raw) <= 1);
        assert!(first.bracket > 0 && first.realtime_ns > 1_600_000_000_000_000_000);
    }

    #[test]
    fn long_runs_keep_few_readings_and_the_first() {
        let mut readings = Readings::begin();
        let first = readings.all()[0];
        for _ in 0..READINGS_MAX * 3 {
            readings.take();
        }
        assert!(readings.all().len() <= READINGS_MAX);
        assert_eq!(readings.all()[0], first);
        assert!(readings.all().is_sorted_by_key(|reading| reading.monotonic_raw_ns));
        assert!(readings.interval_ns >= 4_000_000_000);
    }
}
