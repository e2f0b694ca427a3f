//! Costs of a program beside its calls: start and end, threads, memory, size, compiling.

use std::fs;
use std::path::{Path, PathBuf};

use super::cost::loops;
use super::lab::{Lab, Mode};
use super::rounds::{Rounds, Words, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// Memory of the ring and the open-call stack that a few events use: a page of each.
const USED_KIB: f64 = 8.0;

/// Measures.
///
/// # Errors
/// The failure, as a sentence.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let modes: Vec<Mode> = Mode::installed().filter(|mode| [Mode::NOPS, Mode::XRAY].contains(mode)).collect();
    let mut table =
        Table::new("Start, threads, size", &["what", "mode", "more than untraced", "untraced", "target"]);
    table.note("Medians (quartiles) of pairs; wall time unless said.");
    table.note("Memory: resident memory of 1,000 living threads that made 8 events each; the rest of a thread is as large untraced.");
    table.note("Size: of code and data that the runtime adds to a linked program.");
    for mode in modes {
        for part in [start_and_end, threads, memory, size] {
            match part(lab, mode, is_quick) {
                Ok(rows) => rows.into_iter().for_each(|row| table.row(row)),
                Err(why) => table.failure(&mode.label(), &why),
            }
        }
    }
    Ok(vec![table, compiling(lab, is_quick)])
}

fn row(what: &str, mode: Mode, more: Spread, untraced: Spread, target: Option<Target>) -> Vec<Cell> {
    vec![
        Cell::text(what),
        Cell::text(mode.label()),
        Cell::Measured(more, 2),
        Cell::Measured(untraced, 2),
        target.map_or(Cell::Empty, |target| Cell::Target(target, more.median)),
    ]
}

fn trivial(lab: &Lab, mode: Mode) -> Result<[PathBuf; 2], String> {
    let build = |through: Option<&str>, name: &str| {
        let name = format!("trivial {} {name}", mode.label());
        let object =
            lab.compile(lab.compiler(mode.compiler, through), "trivial.c", &[], &format!("{name}.o"))?;
        lab.link(lab.compiler(mode.compiler, through), &[&object], &[], &name)
    };
    Ok([build(None, "plain")?, build(Some(mode.name), "traced")?])
}

fn start_and_end(lab: &Lab, mode: Mode, is_quick: bool) -> Result<Vec<Vec<Cell>>, String> {
    let [plain, traced] = trivial(lab, mode)?;
    let record = [lab.everycall(), "record".as_ref(), "--quiet".as_ref(), "-o".as_ref()].map(Path::to_owned);
    let mut recorded: Words = words(&record);
    recorded.extend(words([lab.path("trivial.ect").as_os_str(), "--".as_ref(), traced.as_os_str()]));
    let off = words(["EVERYCALL_START=off".as_ref(), traced.as_os_str()]);
    let rounds = Rounds::run(
        lab,
        if is_quick { 31 } else { 101 },
        false,
        &[words([&plain]), words([&traced]), off, recorded],
    )?;
    let ms = 1e-6;
    let untraced = rounds.figure(0, |run| run.wall_ns)?.scaled(ms);
    let more = |which| {
        rounds.pairs(0, which, |plain, other| other.wall_ns - plain.wall_ns).map(|more| more.scaled(ms))
    };
    let cpu = rounds.pairs(0, 1, |plain, traced| traced.cpu_ns - plain.cpu_ns)?.scaled(ms);
    let target = Some(Target::Most(1.0));
    Ok(vec![
        row("start and end, ms", mode, more(1)?, untraced, target),
        row("the same, CPU time", mode, cpu, rounds.figure(0, |run| run.cpu_ns)?.scaled(ms), None),
        row("the same, off", mode, more(2)?, untraced, target),
        row("the same, with `everycall record`", mode, more(3)?, untraced, None),
    ])
}

fn threads_program(lab: &Lab, mode: Mode) -> Result<PathBuf, String> {
    let driver = lab.compile(lab.compiler("gcc", None), "threads.c", &["-pthread"], "threads.o")?;
    let [plain, traced] = loops(lab, mode)?;
    let linker = lab.compiler(mode.compiler, Some(mode.name));
    lab.link(linker, &[&driver, &plain, &traced], &["-pthread"], &format!("threads {}", mode.label()))
}

fn threads(lab: &Lab, mode: Mode, is_quick: bool) -> Result<Vec<Vec<Cell>>, String> {
    let program = threads_program(lab, mode)?;
    let pairs = if is_quick { "11" } else { "31" };
    let text = lab.successful(lab.pinned(program).args(["create", pairs]))?;
    let lines: Vec<Vec<f64>> =
        text.lines().map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect()).collect();
    let of = |figure: &dyn Fn(&[f64]) -> Option<f64>| {
        Ok::<_, String>(Spread::of(lines.iter().filter_map(|line| figure(line)).collect())?.scaled(1e-3))
    };
    let times = |column: usize| {
        let untraced = of(&|line| line.get(column).copied())?;
        Ok::<_, String>((of(&|line| Some(line.get(column + 1)? - line.get(column)?))?, untraced))
    };
    let ((wall_more, wall), (cpu_more, cpu)) = (times(0)?, times(2)?);
    Ok(vec![
        row("thread: create, one call, join; us", mode, wall_more, wall, Some(Target::Most(10.0))),
        row("the same, CPU time", mode, cpu_more, cpu, None),
    ])
}

fn memory(lab: &Lab, mode: Mode, _is_quick: bool) -> Result<Vec<Vec<Cell>>, String> {
    let program = threads_program(lab, mode)?;
    let kib = |which: &str| {
        let once = |_| {
            let text = lab.successful(lab.command(&program).args(["memory", which]))?;
            text.trim().parse().map_err(|_| format!("`threads memory` printed `{}`", text.trim()))
        };
        Spread::of((0..3).map(once).collect::<Result<_, String>>()?)
    };
    let (untraced, traced) = (kib("plain")?, kib("traced")?);
    let more = |used: f64| Spread {
        median: traced.median - untraced.median - used,
        low: traced.low - untraced.high - used,
        high: traced.high - untraced.low - used,
        ..traced
    };
    let besides = "the same, less what is used of ring and open-call stack";
    Ok(vec![
        row("memory of a thread, KiB", mode, more(0.0), untraced, None),
        row(besides, mode, more(USED_KIB), untraced, Some(Target::Most(16.0))),
    ])
}

fn size(lab: &Lab, mode: Mode, _is_quick: bool) -> Result<Vec<Vec<Cell>>, String> {
    let [plain, traced] = trivial(lab, mode)?;
    let total_kib = |program: &Path| {
        let text = lab.successful(lab.command("size").arg(program))?;
        let line = text.lines().nth(1).unwrap_or_default();
        let total: Option<f64> = line.split_whitespace().nth(3).and_then(|word| word.parse().ok());
        total.map(|bytes| bytes / 1024.0).ok_or(format!("`size` printed `{line}`"))
    };
    let (untraced, traced) = (total_kib(&plain)?, total_kib(&traced)?);
    let more = traced - untraced;
    Ok(vec![vec![
        Cell::text("size, KiB"),
        Cell::text(mode.label()),
        Cell::Number(more, 1),
        Cell::Number(untraced, 1),
        Cell::Target(Target::Most(300.0), more),
    ]])
}

/// Time that the prefix adds to a compiler call.
fn compiling(lab: &Lab, is_quick: bool) -> Table {
    let mut table = Table::new(
        "`everycall cc`, ms per call",
        &[
            "mode",
            "more to compile",
            "target",
            "more CPU",
            "compiler alone",
            "more to link",
            "target of it",
            "more CPU of it",
            "linker alone",
        ],
    );
    table.note("A source of one line, -g1 -O2; wall time unless said; medians (quartiles) of pairs.");
    for mode in Mode::installed() {
        match of_prefix(lab, mode, if is_quick { 15 } else { 51 }) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    table
}

fn of_prefix(lab: &Lab, mode: Mode, pairs: usize) -> Result<Vec<Cell>, String> {
    let source = lab.path("one-line.c");
    fs::write(&source, "int main(void) { return 0; }\n")
        .map_err(|error| format!("can't write {}: {error}", source.display()))?;
    let mut cells = vec![Cell::text(mode.label())];
    let object = lab.path("one-line.o");
    let compile = ["-g1", "-O2", "-c"].map(Into::into);
    let link = [object.as_os_str().to_owned()];
    lab.successful(lab.compiler(mode.compiler, None).args(["-c", "-o"]).arg(&object).arg(&source))?;
    let steps = [
        ([&compile[..], &[source.as_os_str().to_owned()]].concat(), "one-line-out.o"),
        (link.to_vec(), "one-line-out"),
    ];
    for (arguments, output) in steps {
        let output = ["-o".into(), lab.path(output).into_os_string()];
        let alone = [&words([mode.compiler])[..], &arguments, &output].concat();
        let prefix = words(["cc", "--mode", mode.name, "--", mode.compiler]);
        let ours = [&[lab.everycall().as_os_str().to_owned()][..], &prefix, &arguments, &output].concat();
        let rounds = Rounds::run(lab, pairs, false, &[alone, ours])?;
        let more = rounds.pairs(0, 1, |alone, ours| ours.wall_ns - alone.wall_ns)?.scaled(1e-6);
        let more_cpu = rounds.pairs(0, 1, |alone, ours| ours.cpu_ns - alone.cpu_ns)?.scaled(1e-6);
        cells.extend([
            Cell::Measured(more, 1),
            Cell::Target(Target::Most(5.0), more.median),
            Cell::Measured(more_cpu, 1),
            Cell::Measured(rounds.figure(0, |run| run.wall_ns)?.scaled(1e-6), 1),
        ]);
    }
    Ok(cells)
}
