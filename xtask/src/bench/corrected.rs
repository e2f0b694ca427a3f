//! Corrected times against uninstrumented runs: what recorded programs took, less what their traces
//! say that hooks cost.

use std::path::Path;

use serde_json::Value;

use super::lab::{Lab, Mode};
use super::real::{PROGRAMS, Real};
use super::rounds::{Rounds, Run, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// How far corrected times may be from those of uninstrumented runs.
const FARTHEST: f64 = 0.05;

/// A corrected time, milliseconds.
struct Corrected {
    value: f64,
    /// The distance of its bounds.
    error: f64,
}

/// Measurements of one round, milliseconds.
struct Round {
    plain: f64,
    /// Of the recorded binary, without tracing.
    off: f64,
    traced: f64,
    /// By the prices alone, and by the CPU time without tracing.
    corrected: [Corrected; 2],
}

/// Measures.
///
/// # Errors
/// Nothing: what can't be measured is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { 5 } else { 15 };
    let mut table = Table::new(
        "Corrected times",
        &[
            "program",
            "by",
            "plain, ms",
            "off, ms",
            "traced, ms",
            "corrected, ms",
            "± ms",
            "of plain",
            "target",
            "of off",
            "off within the bars",
        ],
    );
    table.note(format!(
        "CPU time of the measured part: of the uninstrumented program, of the traced one with EVERYCALL_START=off, recorded, and recorded without what `report --corrected` says that hooks cost in so many \
         calls; pinned, {rounds} rounds in turn, medians (quartiles). \"Prices\" are those that the program measured at its start; \"untraced\" is with \
         --untraced and a run of the same binary without tracing. The last column counts rounds."
    ));
    for real in &PROGRAMS {
        match measured(lab, real, rounds) {
            Ok(rows) => rows.into_iter().for_each(|row| table.row(row)),
            Err(why) => table.failure(real.name, &why),
        }
    }
    Ok(vec![table])
}

fn measured(lab: &Lab, real: &Real, rounds: usize) -> Result<Vec<Vec<Cell>>, String> {
    real.check()?;
    let mode = Some(Mode::NOPS.name);
    let plain = real.run_of(&real.built(lab, "plain", None, &[], &[])?, None);
    let program = real.built(lab, "nops", mode, &[], &[])?;
    let file = lab.path(&format!("corrected {}.ect", real.name));
    let off_file = lab.path(&format!("corrected {} off.ect", real.name));
    let record = |start: &str, file: &Path| {
        let mut command =
            words([start.as_ref(), lab.everycall().as_os_str(), "record".as_ref(), "--quiet".as_ref()]);
        command.extend(words(["-o".as_ref(), file.as_os_str(), "--".as_ref()]));
        command.extend(real.run_of(&program, None));
        command
    };
    let commands = [plain, record("EVERYCALL_START=off", &off_file), record("EVERYCALL_START=on", &file)];
    let mut all = Vec::new();
    for _ in 0..rounds {
        let runs = Rounds::run(lab, 1, true, &commands)?;
        let ms = |which: usize| Ok::<f64, String>(runs.figure(which, Run::region_or_cpu_ns)?.median / 1e6);
        let traced = ms(2)?;
        let corrected =
            [corrected(lab, &file, traced, None)?, corrected(lab, &file, traced, Some(&off_file))?];
        all.push(Round { plain: ms(0)?, off: ms(1)?, traced, corrected });
    }
    rows(real.name, &all)
}

/// A row for each way to correct.
fn rows(name: &str, all: &[Round]) -> Result<Vec<Vec<Cell>>, String> {
    let spread = |of: &dyn Fn(&Round) -> f64| Spread::of(all.iter().map(of).collect());
    let plain = spread(&|round| round.plain)?;
    let off = spread(&|round| round.off)?;
    let traced = spread(&|round| round.traced)?;
    ["prices", "untraced"]
        .into_iter()
        .enumerate()
        .map(|(way, by)| {
            let ratio = spread(&|round| round.corrected[way].value / round.plain)?;
            let of_off = spread(&|round| round.corrected[way].value / round.off)?;
            let is_within = |round: &&Round| {
                let Corrected { value, error } = round.corrected[way];
                (value - off.median).abs() <= error
            };
            let within = all.iter().filter(is_within).count();
            // Prices alone can't be that exact: the bars say so.
            let target = if way == 0 {
                Cell::Empty
            } else {
                Cell::Target(Target::Most(FARTHEST), (ratio.median - 1.0).abs())
            };
            Ok(vec![
                Cell::text(name),
                Cell::text(by),
                Cell::Measured(plain, 1),
                Cell::Measured(off, 1),
                Cell::Measured(traced, 1),
                Cell::Measured(spread(&|round| round.corrected[way].value)?, 1),
                Cell::Number(spread(&|round| round.corrected[way].error)?.median, 1),
                Cell::Measured(ratio, 3),
                target,
                Cell::Measured(of_off, 3),
                Cell::text(format!("{within} of {}", all.len())),
            ])
        })
        .collect()
}

/// The part of `traced` milliseconds that remains without hooks, by the trace's prices, or by a run
/// without tracing.
fn corrected(lab: &Lab, file: &Path, traced: f64, untraced: Option<&Path>) -> Result<Corrected, String> {
    let mut command = lab.command(lab.everycall());
    command.args(["report", "--corrected", "--limit", "1", "-f", "json"]);
    untraced.iter().for_each(|file| _ = command.arg("--untraced").arg(file));
    let text = lab.successful(command.arg(file))?;
    let report: Value = serde_json::from_str(&text).map_err(|error| format!("that isn't JSON: {error}"))?;
    // The ring has the newest calls, and their hooks cost what those of the others did.
    let hooks = |end: &str| {
        report["all_hooks_ns"][end].as_f64().map(|ns| ns / 1e6).ok_or("it isn't known what all hooks cost")
    };
    let (low, value, high) = (hooks("low")?, hooks("value")?, hooks("high")?);
    Ok(Corrected { value: traced - value, error: (value - low).max(high - value) })
}
