//! Cost of arguments, and of conditions on them.

use std::collections::BTreeMap;
use std::process::Command;

use super::lab::{Lab, Mode};
use super::machine;
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

/// Options by which uftrace records the same functions.
const UFTRACE: [&str; 10] = [
    "-A",
    "ints@arg1/i32,arg2/i32",
    "-A",
    "text@arg1/s",
    "-A",
    "heap@arg1/s",
    "-A",
    "literal@arg1/s",
    "-R",
    "result@retval/i32",
];

/// Measures.
///
/// # Errors
/// The program can't be built or run.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    const COLUMNS: [&str; 6] =
        ["what", "ns", "of an event", "uftrace, ns", "of an event of uftrace", "target"];
    let rounds = if is_quick { "15" } else { "101" };
    let mut table = Table::new("Arguments and results", &COLUMNS);
    table.note(
        "gcc, nops; one program under record, pinned; each function in turn in each round. \"of an event\": the entry (the return, \
         for the result) with its values over an entry without; of calls that are left out, entry and exit over those of a \
         recorded call. The least of all rounds. uftrace reads memory without a guard.",
    );
    let program = lab.compile(lab.compiler("gcc", Some(Mode::NOPS.name)), "args.c", &["-g"], "args.o")?;
    let program = lab.link(lab.compiler("gcc", Some(Mode::NOPS.name)), &[&program], &[], "args")?;
    let mut record = lab.pinned(lab.everycall());
    record.args(["record", "--quiet"]).args(OPTIONS).args(["--args", "other if s starts with \"no\"", "-o"]);
    record.arg(lab.path("args.ect")).arg("--").arg(&program).arg(rounds);
    let ours = Costs::of(lab, &mut record)?;
    let theirs = if machine::version("uftrace").is_some() {
        let options = ["-pg", "-mfentry", "-fno-pie"];
        let program = lab.compile(lab.compiler("gcc", None), "args.c", &options, "args uftrace.o")?;
        let options = ["-pg", "-no-pie"];
        let program = lab.link(lab.compiler("gcc", None), &[&program], &options, "args uftrace")?;
        let mut record = lab.pinned("uftrace");
        record.args(["record", "--no-libcall", "-d"]).arg(lab.path("args uftrace data")).args(UFTRACE);
        Some(Costs::of(lab, record.arg(&program).arg(rounds))?)
    } else {
        None
    };
    let shown = |costs: Option<&Costs>, ns: &dyn Fn(&Costs) -> Option<f64>| match costs {
        None => [Cell::Empty, Cell::Empty],
        Some(costs) => match ns(costs) {
            None => [Cell::Empty, Cell::Empty],
            Some(ns) => [Cell::text(format!("{ns:.1}")), Cell::text(format!("{:.2}", ns / costs.event))],
        },
    };
    let mut row = |what: &str, most: Option<f64>, ns: &dyn Fn(&Costs) -> Option<f64>, has_peer: bool| {
        let ratio = ns(&ours).unwrap_or(f64::NAN) / ours.event;
        let mut cells = vec![Cell::text(what)];
        cells.extend(shown(Some(&ours), ns));
        cells.extend(shown(theirs.as_ref().filter(|_| has_peer), ns));
        cells.push(most.map_or(Cell::Empty, |most| Cell::Target(Target::Most(most), ratio)));
        table.row(cells);
    };
    row("without values", None, &|costs| Some(costs.event), true);
    for (kind, what, most) in KINDS {
        let is_pair = matches!(kind, "left" | "other");
        let ns = |costs: &Costs| {
            let both = costs.pair(kind)?;
            Some(if is_pair { both / 2.0 } else { both - costs.event })
        };
        row(what, most, &ns, UFTRACE.iter().any(|option| option.starts_with(&format!("{kind}@"))));
    }
    Ok(vec![table])
}

/// The times that the program printed.
struct Costs {
    /// The least nanoseconds of a call of each function.
    least: BTreeMap<String, f64>,
    /// Those of an event without values.
    event: f64,
}

impl Costs {
    fn of(lab: &Lab, command: &mut Command) -> Result<Costs, String> {
        let printed = lab.successful(command)?;
        let mut least = BTreeMap::new();
        for line in printed.lines() {
            let Some((kind, ns)) = line.split_once(' ') else { continue };
            let Ok(ns) = ns.trim().parse::<f64>() else { continue };
            let so_far = least.entry(kind.to_owned()).or_insert(ns);
            *so_far = ns.min(*so_far);
        }
        let mut costs = Costs { least, event: 0.0 };
        costs.event = costs.pair("plain").ok_or("the program has printed no times")? / 2.0;
        Ok(costs)
    }

    /// An entry and an exit.
    fn pair(&self, kind: &str) -> Option<f64> {
        Some(self.least.get(kind)? - self.least.get("empty")?)
    }
}
