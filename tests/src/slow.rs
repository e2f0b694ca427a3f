//! Programs that know which of their calls took long: `slow.c` and `slow_ways.cpp`.

use std::path::PathBuf;

use everycall_reader::KeptCall;

use crate::{Mode, Place};

/// Compiler arguments for `slow.c`.
pub const SLOW: [&str; 4] = ["-O2", "-fno-optimize-sibling-calls", "-pthread", "slow.c"];
/// Every call that met a trigger's condition must be kept.
pub const KEEP_ALL: [&str; 6] = ["--keep", "1000", "--keep-by", "first", "--keep-every", "0"];

/// A call, by the program's own clock, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct OwnCall {
    /// Right before it.
    pub begin: u64,
    /// The first thing in it.
    pub first: u64,
    /// The last thing in it.
    pub last: u64,
    /// Right behind it.
    pub end: u64,
}

impl OwnCall {
    /// From the program's line, behind what says whose call it is.
    ///
    /// # Panics
    /// Where there are other than four numbers.
    #[must_use]
    pub fn of(line: &str) -> OwnCall {
        let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect(line)).collect();
        let [begin, first, last, end] = numbers[..] else { panic!("{line}") };
        OwnCall { begin, first, last, end }
    }

    /// Whether a kept call may be this one: a tracer's times are within those of the program,
    /// except for ends of which the tracer says that they are earlier or later.
    #[must_use]
    pub fn is(&self, kept: &KeptCall) -> bool {
        let ends = match kept.tail {
            Some(tail) if tail.is_at_most => self.last..=u64::MAX,
            Some(tail) if tail.goes_on => self.begin..=self.end,
            _ => self.last..=self.end,
        };
        (self.begin..=self.first).contains(&kept.start_ticks) && ends.contains(&kept.end_ticks)
    }
}

/// Reads the output of `slow`: ticks in a second, and its slow calls by their threads' ids.
///
/// # Panics
/// Where it printed something else.
#[must_use]
pub fn own_calls(printed: &str) -> (u64, Vec<(u32, OwnCall)>) {
    let mut lines = printed.lines();
    let rate = lines.next().and_then(|line| line.strip_prefix("rate ")).expect("a rate");
    let calls = lines.filter(|line| *line != "end").map(|line| {
        let (tid, call) = line.split_once(' ').expect("a thread's id");
        (tid.parse().expect("a thread's id"), OwnCall::of(call))
    });
    (rate.parse().expect("a rate"), calls.collect())
}

/// `slow_ways.cpp` with a library that it loads: one slow call of each kind.
pub struct SlowWays {
    /// The program.
    pub program: PathBuf,
    /// The library, which the program is given.
    pub plugin: PathBuf,
    triggers: Vec<String>,
}

impl SlowWays {
    /// There is a slow call of each.
    pub const FUNCTIONS: [&str; 5] = ["over_epoch", "asleep", "thrown", "in_child", "plugged"];

    /// Builds both.
    #[must_use]
    pub fn build(place: &Place, mode: Mode) -> SlowWays {
        place.write(
            "plugin.cpp",
            "#include <cstdint>\n#include <unistd.h>\n#include <x86intrin.h>\nstruct Own { uint64_t begin, first, last, end; };\n\
             extern \"C\" void plugged(Own *own) { own->first = __rdtsc(); usleep(5000); own->last = __rdtsc(); }\n",
        );
        SlowWays {
            plugin: place.build(mode, &["-O1", "-shared", "-fPIC", "plugin.cpp"], "plugin.so"),
            program: place.build(mode, &["-O1", "slow_ways.cpp", "-ldl"], "slow_ways"),
            triggers: Self::FUNCTIONS.map(|name| format!("{name} > 2ms")).to_vec(),
        }
    }

    /// A trigger for each of them, in their order, that keeps all.
    #[must_use]
    pub fn options(&self) -> Vec<&str> {
        let mut options: Vec<&str> =
            self.triggers.iter().flat_map(|trigger| ["--trigger", trigger]).collect();
        options.extend(KEEP_ALL);
        options
    }

    /// The program's own record of its call of `name`.
    ///
    /// # Panics
    /// It printed nothing about it.
    #[must_use]
    pub fn own_call(printed: &str, name: &str) -> OwnCall {
        let line = printed.lines().find_map(|line| line.strip_prefix(name));
        OwnCall::of(line.unwrap_or_else(|| panic!("{name} wasn't called: {printed}")))
    }
}
