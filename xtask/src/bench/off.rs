//! Cost of sites while tracing is off.
//!
//! The difference is smaller than what the place of a function in memory does to its speed. So each
//! program is linked with its functions in several orders, the same orders with and without sites,
//! and the middle one counts. Single orders differ by up to 8 %: the middle one of 5 is anywhere
//! from 0.98 to 1.04, that of 15 is within 1 %.

use super::lab::{Lab, Mode};
use super::orders::{Orders, SECTIONS, middle, range};
use super::rounds::{Rounds, Run, words};
use super::table::{Cell, Table, Target};
use super::workload::Workload;

/// Measures.
///
/// # Errors
/// Only where nothing can be measured: what fails is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let (orders, pairs) = if is_quick { (5, 5) } else { (15, 15) };
    let mut table = Table::new(
        "Off: CPU time against the uninstrumented program",
        &["program", "mode", "net", "target", "off", "itself", "orders"],
    );
    table.note(format!(
        "EVERYCALL_START=off. Each is the median over {orders} orders of the functions of the median of {pairs} pairs; \
         \"itself\" is the uninstrumented program against itself, \"net\" is \"off\" less what \"itself\" is over 1; \
         \"orders\" are least and most of the orders' net."
    ));
    for workload in [Workload::FIBONACCI, Workload::SQLITE] {
        for mode in Mode::installed().filter(|mode| matches!(mode.name, "nops" | "xray")) {
            match of_mode(lab, workload, mode, orders, pairs) {
                Ok(cells) => table.row(cells),
                Err(why) => table.failure(&format!("{} {}", workload.name, mode.label()), &why),
            }
        }
    }
    Ok(vec![table])
}

fn of_mode(
    lab: &Lab,
    workload: Workload,
    mode: Mode,
    orders: u64,
    pairs: usize,
) -> Result<Vec<Cell>, String> {
    let compile = |through: Option<&str>, label: &str| {
        let name = format!("off {} {} {label}", workload.name, mode.label());
        workload.compile(lab, || lab.compiler(mode.compiler, through), &SECTIONS, &name)
    };
    let plain = compile(None, "plain")?;
    let sites = compile(Some(mode.name), "sites")?;
    let functions = Orders::of(lab, mode.compiler, &plain)?;
    let argument = workload.argument(false);
    let (mut off, mut itself, mut net) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=orders {
        let name = |label: &str| format!("off {} {label}", workload.name);
        let (plain, sites) = (
            functions.link(seed, None, &plain, &name("plain"))?,
            functions.link(seed, Some(mode.name), &sites, &name("sites"))?,
        );
        let (plain, sites, argument) = (plain.as_os_str(), sites.as_os_str(), argument.as_ref());
        let commands = [
            words([plain, argument]),
            words([plain, argument]),
            words(["EVERYCALL_START=off".as_ref(), sites, argument]),
        ];
        let rounds = Rounds::run(lab, pairs, true, &commands)?;
        let ratio = |which| {
            let ratio = |plain: &Run, other: &Run| other.region_or_cpu_ns() / plain.region_or_cpu_ns();
            Ok::<f64, String>(rounds.pairs(0, which, ratio)?.median)
        };
        itself.push(ratio(1)?);
        off.push(ratio(2)?);
        net.push(ratio(2)? - ratio(1)? + 1.0);
        eprintln!("bench: {} {} order {seed}: {:.3}", workload.name, mode.label(), net[net.len() - 1]);
    }
    let range = range(&net);
    let (off, itself) = (middle(off)?, middle(itself)?);
    let net = off - itself + 1.0;
    Ok(vec![
        Cell::text(workload.name),
        Cell::text(mode.label()),
        Cell::Number(net, 3),
        Cell::Target(Target::Most(1.02), net),
        Cell::Number(off, 3),
        Cell::Number(itself, 3),
        Cell::text(range),
    ])
}
