//! Cost of arguments, and of conditions on them.

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// Functions of the program, what is measured with each, and the most events that are wanted.
const KINDS: [(&str, &str, Option<f64>); 8] = [
    ("ints", "two integers", Some(1.6)),
    ("text", "text of 16 bytes, on the stack", Some(2.5)),
    ("heap", "text of 16 bytes, on the heap", Some(2.5)),
    ("literal", "text of 16 bytes, a literal", Some(2.5)),
    ("result", "an integer as result", Some(1.6)),
    ("kept", "two integers, condition true", None),
    ("left", "condition on an integer false", Some(1.4)),
    ("other", "condition on a text on the stack false", None),
];
const OPTIONS: [&str; 14] = [
    "--args",
    "ints",
    "--args",
    "text",
    "--args",
    "heap",
    "--args",
    "literal",
    "--results",
    "result",
    "--args",
    "kept if a >= 0",
    "--args",
    "left if a < 0",
];

/// Measures.
///
/// # Errors
/// The program can't be built or run.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { "15" } else { "101" };
    let mut table = Table::new("Arguments and results", &["what", "ns", "of an event", "target"]);
    table.note(
        "gcc, nops; one program under record, pinned; each function in turn in each round. \"of an event\": the entry (the return, \
         for the result) with its values over an entry without; of calls that are left out, entry and exit over those of a \
         recorded call. The least of all rounds.",
    );
    let program = lab.compile(lab.compiler("gcc", Some(Mode::NOPS.name)), "args.c", &["-g"], "args.o")?;
    let program = lab.link(lab.compiler("gcc", Some(Mode::NOPS.name)), &[&program], &[], "args")?;
    let mut record = lab.pinned(lab.everycall());
    record.args(["record", "--quiet"]).args(OPTIONS).args(["--args", "other if s starts with \"no\"", "-o"]);
    record.arg(lab.path("args.ect")).arg("--").arg(&program).arg(rounds);
    let printed = lab.successful(&mut record)?;
    let least = |kind: &str| {
        let of_kind = |line: &str| line.strip_prefix(kind)?.strip_prefix(' ')?.trim().parse::<f64>().ok();
        let all: Vec<f64> = printed.lines().filter_map(of_kind).collect();
        Spread::of(vec![all.into_iter().fold(f64::INFINITY, f64::min)])
    };
    let loop_ns = least("empty")?.median;
    let event = (least("plain")?.median - loop_ns) / 2.0;
    table.row(vec![
        Cell::text("without values"),
        Cell::text(format!("{event:.1}")),
        Cell::text("1.00"),
        Cell::Empty,
    ]);
    for (kind, what, most) in KINDS {
        let both = least(kind)?.median - loop_ns;
        let (ns, ratio) = match kind {
            "left" | "other" => (both / 2.0, both / 2.0 / event),
            _ => (both - event, (both - event) / event),
        };
        let target = most.map_or(Cell::Empty, |most| Cell::Target(Target::Most(most), ratio));
        table.row(vec![
            Cell::text(what),
            Cell::text(format!("{ns:.1}")),
            Cell::text(format!("{ratio:.2}")),
            target,
        ]);
    }
    Ok(vec![table])
}
