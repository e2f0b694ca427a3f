//! Analyses and plans for files, and prints what each step took, and the functions that get no
//! hooks: `cargo run --release -p everycall-rewrite --example plan -- [-v] FILE...`

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use everycall_rewrite::{Analysis, HookLayout};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    let (options, files): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument == "-v");
    for path in files {
        let file = std::fs::read(&path)?;
        let begin = Instant::now();
        let analysis = Analysis::of(&file, None)?;
        let analysed = begin.elapsed();
        let mut plan = analysis.plan(HookLayout::default(), &|_, _| true)?;
        let planned = begin.elapsed();
        let region = *plan.reach().start() & !4095;
        let moved = (region..).step_by(1 << 20).find(|&region| plan.move_region(region).is_ok());
        let all = begin.elapsed();
        let coverage = analysis.coverage();
        writeln!(
            out,
            "{path}: {} of {}, analysis {analysed:.2?}, plan and check {:.2?}, move to {moved:?} {:.2?}, {} patches",
            coverage.hooked(),
            coverage.functions,
            planned - analysed,
            all - planned,
            plan.patches.len(),
        )?;
        if !options.is_empty() {
            for function in &plan.left_out {
                writeln!(out, "  {:#x} {} {}", function.start, function.refusal.name(), function.name)?;
            }
        }
    }
    Ok(())
}
