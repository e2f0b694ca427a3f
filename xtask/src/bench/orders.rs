//! One program, linked with its functions in several orders.
//!
//! The effect of a change on a program's speed may be smaller than that of a function's place in
//! memory, so the middle one of several orders counts. Both programs that are compared have the
//! same orders.

use std::fs;
use std::path::{Path, PathBuf};

use super::lab::Lab;
use super::machine;
use super::stats::Spread;

/// Every function in a section of its own.
pub const SECTIONS: [&str; 1] = ["-ffunction-sections"];

/// Orders of a program's functions, by seed.
pub struct Orders<'a> {
    lab: &'a Lab,
    compiler: &'a str,
    objects: &'a [PathBuf],
    functions: Vec<String>,
}

impl<'a> Orders<'a> {
    /// Of the functions in `objects`, compiled with [`SECTIONS`].
    ///
    /// # Errors
    /// `nm` can't read them; as a sentence.
    pub fn of(lab: &'a Lab, compiler: &'a str, objects: &'a [PathBuf]) -> Result<Orders<'a>, String> {
        Ok(Orders { lab, compiler, objects, functions: functions(lab, objects)? })
    }

    /// Links `objects`, which have the same functions, compiled through `mode`.
    ///
    /// # Errors
    /// The linker's own; as a sentence.
    pub fn link(
        &self,
        seed: u64,
        mode: Option<&str>,
        objects: &[PathBuf],
        name: &str,
    ) -> Result<PathBuf, String> {
        let ordered = shuffled(&self.functions, seed);
        let options = order_options(self.lab, self.compiler, self.objects, &ordered)?;
        let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).chain(["-lm", "-lpthread"]).collect();
        self.lab.link(self.lab.compiler(self.compiler, mode), &objects, &options, name)
    }
}

/// Least and most of some orders' figures.
pub fn range(figures: &[f64]) -> String {
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:.3}..{most:.3}")
}

/// The middle one.
///
/// # Errors
/// There is none.
pub fn middle(figures: Vec<f64>) -> Result<f64, String> {
    Spread::of(figures).map(|spread| spread.median)
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
