//! What a call costs that is counted and not recorded.

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// The most nanoseconds that are wanted for a call.
const MOST_NS: f64 = 1.0;
/// The most that two threads may take, in the time of one.
const MOST_OF_ONE: f64 = 1.1;

/// Measures.
///
/// # Errors
/// Nothing: a mode that fails is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let (processes, rounds) = if is_quick { (5, "5") } else { (15, "15") };
    let mut table = Table::new(
        "Counting calls",
        &["mode", "loop, ns", "empty hook, ns", "Fibonacci, ns", "target", "two threads", "target of it"],
    );
    table.note(format!(
        "EVERYCALL_COUNT=calls. Nanoseconds for each call more than in the uninstrumented program: empty functions in a loop, and Fibonacci \
         numbers; median (quartiles) of {processes} pairs of processes in turn, of {rounds} rounds each. \"empty hook\": the same loop whose \
         functions call a function that does nothing, which is what any hook takes. \"two threads\": a call's time in two threads at \
         once, in that of one."
    ));
    for mode in Mode::installed() {
        match of_mode(lab, mode, processes, rounds) {
            Ok(cells) => table.row(cells),
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    Ok(vec![table])
}

/// The medians of the program's columns.
fn columns(printed: &str) -> Result<[f64; 4], String> {
    let lines: Vec<Vec<f64>> = printed
        .lines()
        .map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let column = |index: usize| {
        Spread::of(lines.iter().filter_map(|line: &Vec<f64>| line.get(index).copied()).collect())
    };
    Ok([column(0)?.median, column(1)?.median, column(2)?.median, column(3)?.median])
}

fn of_mode(lab: &Lab, mode: Mode, processes: usize, rounds: &str) -> Result<Vec<Cell>, String> {
    let build = |through: Option<&str>, name: &str| {
        let name = format!("counted {} {name}", mode.label());
        let object = format!("{name}.o");
        let object = lab.compile(lab.compiler(mode.compiler, through), "counted.c", &[], &object)?;
        lab.link(lab.compiler(mode.compiler, through), &[&object], &["-lpthread"], &name)
    };
    let (plain, traced) = (build(None, "plain")?, build(Some(mode.name), "traced")?);
    let mut more: [Vec<f64>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    let mut threads = Vec::new();
    for _ in 0..processes {
        let plain = columns(&lab.successful(lab.command(&plain).arg(rounds))?)?;
        let counted =
            columns(&lab.successful(lab.command(&traced).env("EVERYCALL_COUNT", "calls").arg(rounds))?)?;
        more[0].push(counted[0] - plain[0]);
        more[1].push(plain[1] - plain[0]);
        more[2].push(counted[2] - plain[2]);
        threads.push(counted[3] / counted[0]);
    }
    let [in_loop, hooked, fibonacci] = more.map(Spread::of);
    let (fibonacci, threads) = (fibonacci?, Spread::of(threads)?);
    Ok(vec![
        Cell::text(mode.label()),
        Cell::Measured(in_loop?, 2),
        Cell::Measured(hooked?, 2),
        Cell::Measured(fibonacci, 2),
        Cell::Target(Target::Most(MOST_NS), fibonacci.median),
        Cell::Measured(threads, 2),
        Cell::Target(Target::Most(MOST_OF_ONE), threads.median),
    ])
}
