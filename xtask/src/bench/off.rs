//! What sites cost while tracing is off.
//!
//! The difference is smaller than what the place of a function in memory does to its speed. So each
//! program is linked with its functions in several orders, the same orders with and without sites,
//! and the middle one counts. Single orders differ by up to 8 %: the middle one of 5 is anywhere
//! from 0.98 to 1.04, that of 15 is within 1 %.

use std::fs;
use std::path::{Path, PathBuf};

use super::lab::{Lab, Mode};
use super::machine;
use super::rounds::{Rounds, Run, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use super::workload::Workload;

/// Every function in a section of its own.
const SECTIONS: [&str; 1] = ["-ffunction-sections"];

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
    let functions = functions(lab, &plain)?;
    let argument = workload.argument(false);
    let (mut off, mut itself, mut net) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=orders {
        let ordered = shuffled(&functions, seed);
        let options = order_options(lab, mode.compiler, &plain, &ordered)?;
        let link = |through: Option<&str>, objects: &[PathBuf], label: &str| {
            let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
            let options: Vec<&str> = options.iter().map(String::as_str).chain(["-lm", "-lpthread"]).collect();
            let name = format!("off {} {label}", workload.name);
            lab.link(lab.compiler(mode.compiler, through), &objects, &options, &name)
        };
        let (plain, sites) = (link(None, &plain, "plain")?, link(Some(mode.name), &sites, "sites")?);
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
    let least = net.iter().copied().fold(f64::INFINITY, f64::min);
    let most = net.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (off, itself) = (Spread::of(off)?.median, Spread::of(itself)?.median);
    let net = off - itself + 1.0;
    Ok(vec![
        Cell::text(workload.name),
        Cell::text(mode.label()),
        Cell::Number(net, 3),
        Cell::Target(Target::Most(1.02), net),
        Cell::Number(off, 3),
        Cell::Number(itself, 3),
        Cell::text(format!("{least:.3}..{most:.3}")),
    ])
}

/// Names of the functions in objects.
fn functions(lab: &Lab, objects: &[PathBuf]) -> Result<Vec<String>, String> {
    let text = lab.successful(lab.command("nm").args(objects))?;
    let name = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "t" | "T", name] => Some(name.to_owned()),
        _ => None,
    };
    Ok(text.lines().filter_map(name).collect())
}

/// Another order for each seed.
fn shuffled(names: &[String], seed: u64) -> Vec<String> {
    let mut names = names.to_vec();
    let mut state = seed;
    for last in (1..names.len()).rev() {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        names.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
    names
}

/// Linker options that put the functions in this order: lld takes a list; GNU ld, before 2.43, only
/// a whole script, which is its own with the functions' sections before all others.
fn order_options(
    lab: &Lab,
    compiler: &str,
    objects: &[PathBuf],
    functions: &[String],
) -> Result<Vec<String>, String> {
    let written = |path: PathBuf, text: String| {
        fs::write(&path, text).map_err(|error| format!("can't write {}: {error}", path.display()))?;
        Ok::<_, String>(path.display().to_string())
    };
    let lld = compiler.strip_prefix("clang").map(|version| format!("ld.lld{version}"));
    if lld.is_some_and(|lld| machine::version(&lld).is_some()) {
        let list = written(lab.path("order.txt"), functions.join("\n"))?;
        let quiet = "-Wl,--no-warn-symbol-ordering".to_owned();
        return Ok(vec!["-fuse-ld=lld".to_owned(), format!("-Wl,--symbol-ordering-file={list}"), quiet]);
    }
    let mut linker = lab.compiler(compiler, None);
    let verbose = linker.arg("-Wl,--verbose").args(objects).args(["-lm", "-lpthread", "-o"]);
    let text = lab.successful(verbose.arg(lab.path("order.out")))?;
    let script = script_with(&text, functions)
        .ok_or("the linker's own script, which `-Wl,--verbose` prints, has no place for functions")?;
    Ok(vec![format!("-Wl,-T,{}", written(lab.path("order.ld"), script)?)])
}

/// The script in what `ld --verbose` prints, with the functions' sections first in `.text`.
fn script_with(verbose: &str, functions: &[String]) -> Option<String> {
    let rule = |line: &&str| line.len() > 20 && line.bytes().all(|byte| byte == b'=');
    let script: Vec<&str> =
        verbose.lines().skip_while(|line| !rule(line)).skip(1).take_while(|line| !rule(line)).collect();
    let place = script.iter().position(|line| line.trim_start().starts_with("*(.text.unlikely"))?;
    let (before, behind) = script.split_at(place);
    let sections =
        functions.iter().map(|name| format!("*(.text.{name} .text.startup.{name} .text.unlikely.{name})\n"));
    Some(format!("{}\n{}{}\n", before.join("\n"), sections.collect::<String>(), behind.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_permutations() {
        let names: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
        let (one, other) = (shuffled(&names, 1), shuffled(&names, 2));
        assert_ne!(one, other);
        assert_eq!(one, shuffled(&names, 1));
        let mut sorted = one.clone();
        sorted.sort();
        let mut all = names;
        all.sort();
        assert_eq!(sorted, all);
    }

    #[test]
    fn functions_come_first_in_the_script() {
        let rule = "=".repeat(50);
        let verbose =
            format!("GNU ld\n{rule}\n.text :\n{{\n  *(.text.unlikely .text.x)\n}}\n{rule}\nopened\n");
        let script = script_with(&verbose, &["f".to_owned()]).unwrap();
        assert_eq!(
            script,
            ".text :\n{\n*(.text.f .text.startup.f .text.unlikely.f)\n  *(.text.unlikely .text.x)\n}\n"
        );
        assert!(script_with("no script", &[]).is_none());
    }
}
