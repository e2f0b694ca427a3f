//! Cost of a call that is counted, or counted and timed, and not recorded.

use super::lab::{Lab, Mode};
use super::stats::Spread;
use super::table::{Cell, Table, Target};

/// The most nanoseconds that are wanted for a call.
const MOST_NS: f64 = 1.0;
/// The most that two threads may take, in the time of one.
const MOST_OF_ONE: f64 = 1.1;

/// The most that a timed call may take, in the time of two clock reads.
const MOST_OF_CLOCK: f64 = 1.05;

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
    let mut times = Table::new(
        "Timing calls",
        &[
            "mode",
            "loop, ns",
            "Fibonacci, ns",
            "two clock reads, ns",
            "loop / reads",
            "Fibonacci / reads",
            "target",
        ],
    );
    times.note(
        "EVERYCALL_COUNT=time, in the same way. The times are compared with those of two clock reads in a row, which a call needs; the target \
         is for the loop."
    );
    for mode in Mode::installed() {
        match of_mode(lab, mode, processes, rounds) {
            Ok((counted, timed)) => {
                table.row(counted);
                times.row(timed);
            }
            Err(why) => table.failure(&mode.label(), &why),
        }
    }
    Ok(vec![table, times])
}

/// The medians of the program's columns.
fn columns(printed: &str) -> Result<[f64; 5], String> {
    let lines: Vec<Vec<f64>> = printed
        .lines()
        .map(|line| line.split(' ').filter_map(|number| number.parse().ok()).collect())
        .collect();
    let column = |index: usize| {
        Spread::of(lines.iter().filter_map(|line: &Vec<f64>| line.get(index).copied()).collect())
    };
    Ok([column(0)?.median, column(1)?.median, column(2)?.median, column(3)?.median, column(4)?.median])
}

/// The rows of both tables.
fn of_mode(lab: &Lab, mode: Mode, processes: usize, rounds: &str) -> Result<(Vec<Cell>, Vec<Cell>), String> {
    let build = |through: Option<&str>, name: &str| {
        let name = format!("counted {} {name}", mode.label());
        let object = format!("{name}.o");
        let object = lab.compile(lab.compiler(mode.compiler, through), "counted.c", &[], &object)?;
        lab.link(lab.compiler(mode.compiler, through), &[&object], &["-lpthread"], &name)
    };
    let (plain, traced) = (build(None, "plain")?, build(Some(mode.name), "traced")?);
    let mut more: [Vec<f64>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    let mut threads = Vec::new();
    let mut timed: [Vec<f64>; 5] = Default::default();
    for _ in 0..processes {
        let plain = columns(&lab.successful(lab.command(&plain).arg(rounds))?)?;
        let counting = |what: &str| {
            columns(&lab.successful(lab.command(&traced).env("EVERYCALL_COUNT", what).arg(rounds))?)
        };
        let (counted, times) = (counting("calls")?, counting("time")?);
        let (in_loop, fibonacci) = (times[0] - plain[0], times[2] - plain[2]);
        let of_clock = [in_loop, fibonacci].map(|ns| ns / plain[4]);
        let row = [in_loop, fibonacci, plain[4], of_clock[0], of_clock[1]];
        timed.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        more[0].push(counted[0] - plain[0]);
        more[1].push(plain[1] - plain[0]);
        more[2].push(counted[2] - plain[2]);
        threads.push(counted[3] / counted[0]);
    }
    let [in_loop, hooked, fibonacci] = more.map(Spread::of);
    let (fibonacci, threads) = (fibonacci?, Spread::of(threads)?);
    let timed = timed.map(Spread::of);
    let [in_timed, timed_fibonacci, reads, of_reads, fibonacci_of_reads] = timed;
    let of_reads = of_reads?;
    let median = of_reads.median;
    let timed = vec![
        Cell::text(mode.label()),
        Cell::Measured(in_timed?, 1),
        Cell::Measured(timed_fibonacci?, 1),
        Cell::Measured(reads?, 1),
        Cell::Measured(of_reads, 2),
        Cell::Measured(fibonacci_of_reads?, 2),
        Cell::Target(Target::Most(MOST_OF_CLOCK), median),
    ];
    let counted = vec![
        Cell::text(mode.label()),
        Cell::Measured(in_loop?, 2),
        Cell::Measured(hooked?, 2),
        Cell::Measured(fibonacci, 2),
        Cell::Target(Target::Most(MOST_NS), fibonacci.median),
        Cell::Measured(threads, 2),
        Cell::Target(Target::Most(MOST_OF_ONE), threads.median),
    ];
    Ok((counted, timed))
}
