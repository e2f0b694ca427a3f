//! Times: from timing packets to ticks of the time-stamp counter.

/// Rates of the CPU's clocks, from the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// MTC packets come at every `1 << mtc_shift`th tick of the crystal clock.
    pub mtc_shift: u8,
    /// Ticks of the time-stamp counter in one of the crystal clock: numerator and denominator; 0 if
    /// they aren't known.
    pub crystal: (u32, u32),
    /// The ratio of the time-stamp counter's to the bus's frequency; 0 if it isn't known.
    pub tsc_ratio: u8,
}

/// When something happened, as far as packets say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Ticks of the time-stamp counter: not later than what happened, but for [`Time::is_exact`].
    pub ticks: u64,
    /// A packet says this time of just this. Otherwise it happened before the next time that is
    /// later.
    pub is_exact: bool,
}

/// The time at a place in the packets. It never goes back, unless a TSC packet says so.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    rates: Rates,
    /// The latest time that is known, and whether there was one.
    now: u64,
    has_time: bool,
    /// The time at the tick of the crystal clock that counting began with.
    crystal_start: Option<u64>,
    /// Ticks of the crystal clock since.
    crystal_ticks: u64,
    last_mtc: u8,
    /// The time at the last TSC or MTC packet, core cycles since.
    anchor: u64,
    cycles: u64,
    /// The ratio of the core's to the bus's frequency.
    core_ratio: u8,
    /// Times that went back.
    jumps: u64,
    /// Whether the last packet was a CYC packet that told the time.
    is_fresh: bool,
}

impl Clock {
    /// A clock without a time yet.
    #[must_use]
    pub fn new(rates: Rates) -> Clock {
        Clock { rates, ..Clock::default() }
    }

    /// The time, in ticks; 0 before the first timing packet.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The time of the packet that follows. It is exact if a CYC packet came just before it.
    #[inline]
    #[must_use]
    pub fn here(&self) -> Time {
        Time { ticks: self.now, is_exact: self.is_fresh }
    }

    /// Whether a packet has told the time.
    #[must_use]
    pub fn has_time(&self) -> bool {
        self.has_time
    }

    /// How often a TSC packet went back.
    #[must_use]
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    fn reach(&mut self, time: u64) {
        self.now = self.now.max(time);
    }

    /// A TSC packet.
    pub fn tsc(&mut self, tsc: u64) {
        // By arithmetic of other packets, the time may be a little ahead: it waits then.
        if self.has_time && tsc < self.anchor {
            self.jumps += 1;
        }
        self.anchor = tsc;
        self.cycles = 0;
        self.has_time = true;
        self.crystal_start = None;
        self.reach(tsc);
    }

    /// A TMA packet, which follows a TSC packet.
    pub fn tma(&mut self, ctc: u16, fast: u16) {
        let (numerator, denominator) = self.rates.crystal;
        if denominator == 0 || !self.has_time {
            return;
        }
        // Counting begins at the last tick at which there could have been an MTC packet.
        let behind = u64::from(ctc) & ((1_u64 << self.rates.mtc_shift.min(16)) - 1);
        let ticks = u64::from(fast) + behind * u64::from(numerator) / u64::from(denominator);
        self.crystal_start = Some(self.anchor.saturating_sub(ticks));
        self.crystal_ticks = 0;
        self.last_mtc = (u64::from(ctc) >> self.rates.mtc_shift.min(16)) as u8;
    }

    /// An MTC packet.
    pub fn mtc(&mut self, mtc: u8) {
        let Some(start) = self.crystal_start else { return };
        let (numerator, denominator) = self.rates.crystal;
        let delta = u64::from(mtc.wrapping_sub(self.last_mtc));
        self.last_mtc = mtc;
        self.crystal_ticks = self.crystal_ticks.saturating_add(delta << self.rates.mtc_shift.min(16));
        let ticks = u128::from(self.crystal_ticks) * u128::from(numerator) / u128::from(denominator.max(1));
        self.anchor = start.saturating_add(ticks as u64);
        self.cycles = 0;
        self.reach(self.anchor);
    }

    /// A CYC packet.
    #[inline]
    pub fn cyc(&mut self, cycles: u64) {
        self.cycles = self.cycles.saturating_add(cycles);
        if self.core_ratio == 0 || self.rates.tsc_ratio == 0 || !self.has_time {
            return;
        }
        let ticks = self.cycles.saturating_mul(self.rates.tsc_ratio.into()) / u64::from(self.core_ratio);
        self.reach(self.anchor.saturating_add(ticks));
        self.is_fresh = true;
    }

    /// Another packet than a CYC packet.
    #[inline]
    pub fn other(&mut self) {
        self.is_fresh = false;
    }

    /// A CBR packet.
    pub fn cbr(&mut self, ratio: u8) {
        if ratio != self.core_ratio {
            // Cycles so far took the time that they took.
            self.anchor = self.now;
            self.cycles = 0;
            self.core_ratio = ratio;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_tsc_packets_come_from_the_crystal_and_from_cycles() {
        let mut clock = Clock::new(Rates { mtc_shift: 3, crystal: (84, 1), tsc_ratio: 20 });
        clock.mtc(5);
        clock.cyc(5);
        assert!(!clock.has_time());
        clock.cbr(40);
        clock.tsc(1_000_000);
        // 3 ticks of the crystal behind a multiple of 8, and 20 of the counter.
        clock.tma(8 * 300 + 3, 20);
        assert_eq!(clock.now(), 1_000_000);
        assert!(!clock.here().is_exact);
        clock.cyc(100);
        assert_eq!(clock.here(), Time { ticks: 1_000_050, is_exact: true });
        clock.other();
        assert!(!clock.here().is_exact);
        clock.mtc((301 % 256) as u8);
        assert_eq!(clock.now(), 1_000_000 - 20 - 3 * 84 + 8 * 84);
        // 255 packets later, and 2 more.
        clock.mtc((556 % 256) as u8);
        clock.mtc((558 % 256) as u8);
        assert_eq!(clock.now(), 1_000_000 - 20 - 3 * 84 + 258 * 8 * 84);
        let before = clock.now();
        clock.tsc(10);
        assert_eq!((clock.now(), clock.jumps()), (before, 1));
    }
}
