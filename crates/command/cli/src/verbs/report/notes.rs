//! Messages on standard error about what the numbers lack.

use std::path::PathBuf;

use everycall_analysis::{Grouping, Notes, Order, Profile};
use everycall_format::dropped::{FUNCTIONS, FUNCTIONS_MAX, TIMED_FUNCTIONS_MAX};
use everycall_io::say;
use everycall_units::{Count, Several, Size};

/// Reports what the numbers leave out.
pub fn print(profile: &Profile, paths: &[PathBuf], sort: Order) {
    let notes = &profile.notes;
    let rows = profile.rows(Order::Calls);
    let sum = |of: fn(&everycall_analysis::Sums) -> u64| rows.iter().map(|row| of(row.sums)).sum::<u64>();
    let truncated = sum(|sums| sums.truncated);
    if truncated > 0 {
        say!(
            "everycall: {} truncated (entry or exit not recorded): counted, with the time as far as it was recorded, but not in avg, min, max \
             and percentiles",
            Several(truncated, "call is", "calls are")
        );
    }
    let late = sum(|sums| sums.ended_earlier);
    if late > 0 {
        say!(
            "everycall: {} unwound at a time that isn't known exactly: counted, with the longest time possible, but not in avg, min, max and percentiles",
            Several(late, "call was", "calls were")
        );
    }
    let at_most = sum(|sums| sums.at_most);
    if at_most > 0 {
        say!(
            "everycall: {} in a tail call into code that isn't traced, or isn't known: their time is the longest possible",
            Several(at_most, "call ends", "calls end")
        );
    } else if sum(|sums| sums.untraced_at_most_ns) > 0 {
        say!(
            "everycall: calls that end in a tail call into code that isn't traced took longer than shown, by at most the time in column \"tail <=\""
        );
    }
    if rows.iter().any(|row| row.sums.has_bounds()) {
        say!(
            "everycall: times with \u{b1} have bounds: not every event had a time of its own (record --clock). avg, min, max and percentiles are of \
             durations as they are shown"
        );
    }
    print_measures(profile, sort);
    print_notes(notes, paths);
}

/// Explains the numbers of counted calls in a table that is sorted by this number.
pub fn print_measures(profile: &Profile, sort: Order) {
    if !sort.is_memory() {
        print_octaves(profile);
    }
    if let Some(all) = profile.memory() {
        let blocks = |count| Several(count, "block", "blocks");
        let rest = match all.allocated.checked_sub(all.freed).zip(all.blocks.checked_sub(all.freed_blocks)) {
            Some((bytes, count)) => format!("; {} in {} stay", Size(bytes), blocks(count)),
            None => String::new(),
        };
        say!(
            "everycall: allocated: {} in {}; freed: {} in {}{rest}",
            Size(all.allocated),
            blocks(all.blocks),
            Size(all.freed),
            blocks(all.freed_blocks)
        );
    }
}

/// Reports that percentiles are approximate, and which calls have no times.
fn print_octaves(profile: &Profile) {
    if !profile.has_octaves() {
        return;
    }
    let rows = profile.rows(Order::Calls);
    let untimed = rows.iter().map(|row| row.sums.untimed).sum::<u64>();
    say!(
        "everycall: percentiles with ~ are those of powers of two: the calls' times were added up, not recorded"
    );
    if untimed > 0 {
        say!(
            "everycall: {} counted without time: they had not ended, or nobody saw their end",
            Several(untimed, "call is", "calls are")
        );
    }
    if matches!(profile.grouping(), Grouping::Module | Grouping::File) {
        say!(
            "everycall: total times of modules and files are not known when calls are counted; they show own times"
        );
    }
}

/// Reports what the traces lack.
pub fn print_notes(notes: &Notes, paths: &[PathBuf]) {
    let path = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    if notes.lost > 0 {
        say!("everycall: {} events are missing: calls among them are not counted", Count(notes.lost));
    }
    if notes.losses_uncounted > 0 {
        let places = Several(notes.losses_uncounted, "place", "places");
        say!("everycall: events are missing at {places}; their number is unknown");
    }
    if notes.beginning_overwritten > 0 {
        say!(
            "everycall: the beginning of {} was overwritten: only newer calls are counted; a larger --ring-size or --stream keeps more",
            Several(notes.beginning_overwritten, "thread", "threads")
        );
    }
    if notes.dropped_short > 0 {
        say!(
            "everycall: {} dropped while this was recorded and are not counted; `everycall info {path}` has \
            their functions",
            Several(notes.dropped_short, "short call was", "short calls were")
        );
    }
    if notes.counted_only > 0 {
        say!(
            "everycall: {} counted without times and paths; leave out the filter, --tree, or --by path or label, to see them",
            Several(notes.counted_only, "call was", "calls were")
        );
    }
    if notes.counted_others > 0 {
        say!(
            "everycall: {} counted whose functions aren't known: their code is in no module, or the process had no \
            counters left for them ({} functions have some, {} with --time, {} in crash files and where `ulimit -v` \
            leaves little address space)",
            Several(notes.counted_others, "call was", "calls were"),
            named(FUNCTIONS_MAX),
            named(TIMED_FUNCTIONS_MAX),
            named(FUNCTIONS)
        );
    }
    if notes.orphan_exits > 0 {
        say!(
            "everycall: {} (entry not recorded), not counted",
            Several(notes.orphan_exits, "orphan exit", "orphan exits")
        );
    }
    if notes.too_deep > 0 {
        say!(
            "everycall: {} beyond the depth limit, not counted",
            Several(notes.too_deep, "call is", "calls are")
        );
    }
    let processes = |count| Several(count, "process", "processes");
    if notes.memory_not_seen > 0 {
        say!(
            "everycall: what {} allocated was not seen: start the program by everycall count --memory, and build it without \
            AddressSanitizer and the like, whose allocators can't be seen",
            processes(notes.memory_not_seen)
        );
    }
    if notes.memory_own_allocator > 0 {
        say!(
            "everycall: {} with a malloc of the program's own, or of a library before all others: only what that takes from the next \
            allocator is counted; link the allocator as a shared library to count all",
            processes(notes.memory_own_allocator)
        );
    }
    if notes.memory_without_sizes > 0 {
        say!(
            "everycall: {} with an allocator that doesn't tell how large blocks are (malloc_usable_size): bytes allocated are those \
            asked for, and bytes freed are not known",
            processes(notes.memory_without_sizes)
        );
    }
    if notes.gaps > 0 {
        say!("everycall: recording was off {}", Several(notes.gaps, "time", "times"));
    }
}

/// Reports that there are more rows.
pub fn more_rows(count: usize) {
    say!("everycall: {} more; --limit 0 shows all", Several(count as u64, "row", "rows"));
}

/// How many functions have counters of their own where there are this many places: place 0 and that
/// of others are no function's.
fn named(places: u32) -> Count {
    Count(u64::from(places.saturating_sub(2)))
}
