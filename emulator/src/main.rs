//! Runs every window of programs in an emulator, as it is and with its trampoline, from the same
//! random registers and memory, and compares registers, flags, vector registers, writes and the
//! next instruction: `cargo run --manifest-path emulator/Cargo.toml -- [--rounds N] FILE...`
//!
//! Hooks are a single `ret`, so that flags must be equal, too. An instruction that the emulator
//! doesn't know, or that faults, isn't compared; these are counted.

mod machine;

use std::collections::HashSet;
use std::process::ExitCode;

use everycall_rewrite::{Analysis, HookLayout, Patch, PatchKind, Plan};

use machine::{End, Machine, Random, Stop};

const RDTSC: [u8; 2] = [0x0f, 0x31];
/// Instructions of one run: more are a loop.
const STEPS: usize = 400;

fn main() -> ExitCode {
    let mut rounds = 3;
    let mut is_right = true;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--rounds" {
            rounds = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(rounds);
            continue;
        }
        match file(&argument).and_then(|(file, plan)| compare(&file, &plan, rounds)) {
            Ok(counts) => {
                println!("{argument}: {counts}");
                is_right &= counts.different == 0;
            }
            Err(why) => {
                println!("{argument}: {why}");
                is_right = false;
            }
        }
    }
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Counts {
    windows: u64,
    equal: u64,
    different: u64,
    unknown: u64,
    loops: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { windows, equal, different, unknown, loops } = self;
        write!(
            f,
            "{windows} windows; runs: {equal} equal, {different} different, {unknown} that the emulator can't run, {loops} too long"
        )
    }
}

/// Addresses of a plan, as they are while it runs.
struct Places<'a> {
    plan: &'a Plan,
    base: u64,
    /// Copies of functions, from their entries on.
    copied: Vec<(u64, u64)>,
    /// Returns that stay where they are and have a copy.
    returns: HashSet<u64>,
}

impl<'a> Places<'a> {
    fn new(plan: &'a Plan, base: u64) -> Self {
        let mut starts: Vec<u64> = plan.functions.iter().map(|function| function.start).collect();
        starts.extend(plan.left_out.iter().map(|function| function.start));
        starts.sort_unstable();
        let end_of = |at: u64| starts.get(starts.partition_point(|start| *start <= at)).copied();
        let copies = plan.patches.iter().filter(|patch| patch.kind == PatchKind::Copy);
        let copied = copies.map(|patch| (patch.at, end_of(patch.at).unwrap_or(u64::MAX))).collect();
        let mut places = Self { plan, base, copied, returns: HashSet::new() };
        let returns = plan.moves.iter().map(|one| one.from);
        places.returns =
            returns.filter(|&at| places.patch(at).is_none() && places.copy(at).is_none()).collect();
        places
    }

    /// The patch that contains an address of the file.
    fn patch(&self, at: u64) -> Option<&'a Patch> {
        let patches = &self.plan.patches;
        let patch = patches.get(patches.partition_point(|patch| patch.at <= at).checked_sub(1)?)?;
        (at < patch.at + patch.new.len() as u64).then_some(patch)
    }

    fn copy(&self, at: u64) -> Option<(u64, u64)> {
        let index = self.copied.partition_point(|(start, _)| *start <= at).checked_sub(1)?;
        self.copied.get(index).copied().filter(|&(_, end)| at < end)
    }

    /// Whether the original goes on at `rip` as a part of a patch's code.
    fn is_original(&self, patch: &Patch, rip: u64) -> bool {
        let at = rip.wrapping_sub(self.base);
        let start = self.plan.functions[patch.function as usize].start;
        let is_moved = || self.plan.moves.binary_search_by_key(&at, |one| one.from).is_ok();
        match patch.kind {
            PatchKind::Copy => {
                at == patch.at
                    || at == start
                    || is_moved() && self.copy(at).is_some_and(|(first, _)| first == patch.at)
            }
            PatchKind::Displacement => self.returns.contains(&at),
            PatchKind::Call => at >= start && at < patch.at + patch.new.len() as u64,
            PatchKind::Window | PatchKind::Slot => {
                at >= patch.at && at < patch.at + patch.new.len() as u64 || self.returns.contains(&at)
            }
        }
    }

    /// Whether the changed program goes on at `rip` as a part of a patch's code.
    fn is_changed(&self, patch: &Patch, rip: u64) -> bool {
        let at = rip.wrapping_sub(self.base);
        let place = at.wrapping_sub(self.plan.region as u64);
        let is_own = match patch.kind {
            PatchKind::Displacement => false,
            // Its call, and what is before it, stay.
            PatchKind::Call => self.is_original(patch, rip),
            PatchKind::Window | PatchKind::Copy | PatchKind::Slot => at == patch.at,
        };
        let is_between = || match self.patch(at) {
            Some(other) if other.kind == PatchKind::Slot => at == other.at,
            Some(other) => at > other.at && other.kind == PatchKind::Window,
            None => false,
        };
        place < self.plan.region_size()
            || is_own
            || is_between()
            || self.plan.islands.iter().any(|island| island.at as u64 == at)
    }
}

/// A file's bytes, and the plan for it.
fn file(path: &str) -> Result<(Vec<u8>, Plan), String> {
    let file = std::fs::read(path).map_err(|error| error.to_string())?;
    let analysis = Analysis::of(&file, None).map_err(|error| error.to_string())?;
    let plan = analysis.plan(HookLayout::default(), &|_, _| true).map_err(|error| error.to_string())?;
    Ok((file, plan))
}

fn compare(file: &[u8], plan: &Plan, rounds: u32) -> Result<Counts, String> {
    let base = plan.base(0x10_0000_0000);
    let mut original = Machine::new(file, plan, base)?;
    let mut changed = Machine::new(file, plan, base)?;
    changed.apply(plan, base)?;
    let places = Places::new(plan, base);
    let mut counts = Counts::default();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // Its result differs from run to run.
    let reads_clock = |patch: &&Patch| patch.old.windows(RDTSC.len()).any(|bytes| bytes == RDTSC);
    let patches = plan.patches.iter().filter(|patch| patch.kind != PatchKind::Slot);
    for patch in patches.filter(|patch| !reads_clock(patch)) {
        counts.windows += 1;
        let start = base.wrapping_add(start_of(plan, patch, &file_bytes(&original, base, patch)));
        for _ in 0..rounds {
            let seed = random.next();
            let one = original.run(start, seed, STEPS, &|rip| places.is_original(patch, rip));
            let other = changed.run(start, seed, STEPS, &|rip| places.is_changed(patch, rip));
            match (one, other) {
                (Ok(one), Ok(other)) if one == other => counts.equal += 1,
                (Err(Stop::Loop), _) | (_, Err(Stop::Loop)) => counts.loops += 1,
                (Err(Stop::Fault), Err(Stop::Fault)) => counts.unknown += 1,
                (one, other) => {
                    counts.different += 1;
                    if counts.different <= 20 {
                        report(plan, patch, base, &one, &other);
                    }
                }
            }
        }
    }
    Ok(counts)
}

/// The bytes before a patch.
fn file_bytes(machine: &Machine, base: u64, patch: &Patch) -> [u8; 2] {
    machine.bytes(base.wrapping_add(patch.at).wrapping_sub(2))
}

/// The instruction that a patch begins with, or whose displacement it is; for a first call, the
/// function's first one.
fn start_of(plan: &Plan, patch: &Patch, before: &[u8; 2]) -> u64 {
    match (patch.kind, before) {
        (PatchKind::Call, _) => plan.functions[patch.function as usize].start,
        (PatchKind::Displacement, [0x0f, 0x80..=0x8f]) => patch.at - 2,
        (PatchKind::Displacement, _) => patch.at - 1,
        _ => patch.at,
    }
}

fn report(plan: &Plan, patch: &Patch, base: u64, one: &Result<End, Stop>, other: &Result<End, Stop>) {
    let name = &plan.functions[patch.function as usize].name;
    println!("{name} {patch:x?}, base {base:x}");
    match (one, other) {
        (Ok(one), Ok(other)) => one.differences(other).iter().for_each(|line| println!("  {line}")),
        (one, other) => println!("  {:?} {:?}", one.as_ref().err(), other.as_ref().err()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::{compare, file};

    fn built(options: &[&str], sources: &[&str]) -> (Vec<u8>, everycall_rewrite::Plan) {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/patching/rewrite/tests/programs");
        let name = format!("everycall-emulator-{}-{}", std::process::id(), options.concat());
        let output = std::env::temp_dir().join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(options).args(sources.iter().map(|source| programs.join(source)));
        assert!(gcc.arg("-o").arg(&output).status().unwrap().success());
        let found = file(output.to_str().unwrap()).unwrap();
        std::fs::remove_file(output).unwrap();
        found
    }

    #[test]
    fn windows_do_what_their_trampolines_do() {
        for (options, sources) in [
            (&["-O1"][..], &["tactics.c", "tactics.s"][..]),
            (&["-O2"], &["calls.c"]),
            (&["-O0", "-no-pie", "-fcf-protection=full"], &["calls.c"]),
            (&["-Os"], &["calls.c"]),
        ] {
            let (file, plan) = built(options, sources);
            let counts = compare(&file, &plan, 20).unwrap();
            assert!(counts.different == 0 && counts.equal > 10 * counts.windows, "{options:?}: {counts}");
        }
    }

    /// Otherwise nothing would be compared.
    #[test]
    fn changed_trampolines_are_noticed() {
        let (file, mut plan) = built(&["-O2", "-g"], &["calls.c"]);
        assert_eq!(compare(&file, &plan, 1).unwrap().different, 0);
        plan.code.iter_mut().step_by(17).for_each(|byte| *byte ^= 1);
        let counts = compare(&file, &plan, 1).unwrap();
        assert!(counts.different * 12 > counts.windows, "{counts}");
    }
}
