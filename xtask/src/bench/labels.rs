//! Cost of labels, instants, spans, counters and log lines.

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// Kinds that the program measures, what they are called here and the most nanoseconds that are
/// wanted.
const KINDS: [(&str, &str, Option<f64>); 12] = [
    ("clock", "clock read (rdtsc)", None),
    ("label", "label, name of 7 bytes", Some(20.0)),
    ("instant", "instant, name of 4 bytes", Some(12.0)),
    ("counter", "counter, name of 5 bytes", Some(12.0)),
    ("span", "begin and end of a span", None),
    ("long", "label, name of 32 bytes", None),
    ("made", "label, name of 7 bytes, no literal", None),
    ("log", "log line with two integers", Some(25.0)),
    ("log-mixed", "log line with a pointer, a double and two integers", None),
    ("log-text", "log line with an integer and a text of 8 bytes", None),
    ("out", "label, thread left out", None),
    ("log-out", "log line, thread left out", None),
];

/// Measures.
///
/// # Errors
/// The program can't be built or run.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { "100" } else { "1000" };
    let mut table = Table::new("Labels", &["what", "state", "ns", "of a clock read", "target"]);
    table.note(
        "One program, pinned; each kind in turn in each round; the clock read that each contains is included. Median (quartiles) of rounds.",
    );
    let option = format!("-I{}", super::lab::program("../../crates/building/kit/include").display());
    let traced =
        lab.compile(lab.compiler("gcc", Some(Mode::NOPS.name)), "labels.c", &[&option], "labels.o")?;
    let traced = lab.link(lab.compiler("gcc", Some(Mode::NOPS.name)), &[&traced], &[], "labels")?;
    let plain = lab.compile(lab.compiler("gcc", None), "labels.c", &[&option], "labels plain.o")?;
    let plain = lab.link(lab.compiler("gcc", None), &[&plain], &[], "labels plain")?;
    let mut record = lab.pinned(lab.everycall());
    record.args(["record", "--quiet", "-o"]).arg(lab.path("labels.ect")).arg("--").arg(&traced).arg(rounds);
    let mut off = lab.pinned(&traced);
    off.env("EVERYCALL_START", "off").arg(rounds);
    let mut without = lab.pinned(&plain);
    without.arg(rounds);
    for (state, command) in
        [("on", &mut record), ("EVERYCALL_START=off", &mut off), ("without runtime", &mut without)]
    {
        let printed = lab.successful(command)?;
        let mut clock = None;
        for (kind, what, most) in KINDS {
            let of_kind = |line: &str| line.strip_prefix(kind)?.strip_prefix(' ')?.trim().parse::<f64>().ok();
            let spread = Spread::of(printed.lines().filter_map(of_kind).collect())?;
            let ratio = spread.median / *clock.get_or_insert(spread.median);
            let target = match most {
                Some(most) if state == "on" => Cell::Target(Target::Most(most), spread.median),
                _ => Cell::Empty,
            };
            table.row(vec![
                Cell::text(what),
                Cell::text(state),
                Cell::Measured(spread, 1),
                Cell::text(format!("{ratio:.2}")),
                target,
            ]);
        }
    }
    Ok(vec![table])
}
