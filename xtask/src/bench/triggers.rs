//! Cost of a trigger for the events of a program that never meets its condition.

use super::cost;
use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// Runs of each kind, one after the other.
const ROUNDS: usize = 9;
const PAIRS: &str = "31";
/// The most that a trigger may add to an event.
const EXTRA_MOST: f64 = 0.10;

/// Measures.
///
/// # Errors
/// A program can't be built. A mode that fails later is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let meter = cost::meter(lab)?;
    let mut table =
        Table::new("A trigger that isn't met", &["mode", "without, of rdtsc", "with it", "extra", "target"]);
    table.note(
        "The loop of \"Cost per event\" under `record`, without a trigger and with one that names the function and that no call meets, in turns. \
         \"extra\": what an event costs more, of what it costs without; median (quartiles).",
    );
    for mode in [Mode::NOPS, Mode::XRAY, Mode { compiler: "gcc", name: "finstrument" }] {
        match of_mode(lab, mode, &meter, if is_quick { 3 } else { ROUNDS }) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    Ok(vec![table])
}

fn of_mode(lab: &Lab, mode: Mode, meter: &std::path::Path, rounds: usize) -> Result<Vec<Cell>, String> {
    let program = cost::build(lab, mode, meter)?;
    let event = |options: &[&str]| {
        let mut command = lab.pinned(lab.everycall());
        command.args(["record", "--quiet"]).args(options).arg("-o").arg(lab.path("triggers.ect"));
        command.arg("--").arg(&program).args(["warm", PAIRS]);
        Ok::<f64, String>(cost::of_clock_reads_in(&lab.successful(&mut command)?)?.median)
    };
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        pairs.push((event(&[])?, event(&["--trigger", "traced_empty > 1s"])?));
    }
    let of = |figure: fn(&(f64, f64)) -> f64| Spread::of(pairs.iter().map(figure).collect());
    let extra = of(|(without, with)| with / without - 1.0)?;
    Ok(vec![
        Cell::text(mode.label()),
        Cell::Measured(of(|(without, _)| *without)?, 3),
        Cell::Measured(of(|(_, with)| *with)?, 3),
        Cell::Measured(extra, 3),
        Cell::Target(Target::Most(EXTRA_MOST), extra.median),
    ])
}
