//! `everycall functions --untouched`: how many functions of files could get hooks.

use std::path::Path;
use std::process::ExitCode;

use everycall_io::say;
use everycall_io::terminal::Escapes;
use everycall_plans::Binary;
use everycall_rewrite::{Coverage, FileKind, HookLayout, LeftOut, Refusal, Tactic};
use everycall_units::{Count, Several};
use serde_json::{Map, Value, json};

use crate::arguments::TextFormat;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::{clean, lines, print, print_as};

/// Runs the verb for these files. A file that can't be analysed doesn't keep others from it.
pub fn run<'a>(files: impl Iterator<Item = &'a Path>, format: TextFormat) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    let mut objects = Vec::new();
    let mut all = Coverage::default();
    let mut count = 0;
    for path in files {
        let found = match Found::of(path) {
            Ok(found) => found,
            Err(failure) => {
                failure.report();
                code = ExitCode::from(exit_code::FAILED);
                continue;
            }
        };
        match format {
            TextFormat::Text => print(&text(&path.display().to_string(), &found.coverage))?,
            TextFormat::Json => objects.push(found.object(path)),
        }
        all.add(&found.coverage);
        count += 1;
    }
    match format {
        TextFormat::Text if count > 1 => print(&text("all files", &all))?,
        TextFormat::Text => {}
        TextFormat::Json => print_as(Escapes::Json, &format!("{:#}\n", json!({ "files": objects })))?,
    }
    if count > 0 && matches!(format, TextFormat::Text) {
        say!(
            "everycall: `everycall record --untouched -- PROGRAM` records programs as they are, `everycall count --untouched -- PROGRAM` counts their calls; see docs/reference/untouched.md"
        );
    }
    Ok(code)
}

/// Findings about a file.
struct Found {
    coverage: Coverage,
    kind: FileKind,
    build_id: String,
    patches: usize,
    trampolines: usize,
    without: Vec<LeftOut>,
}

impl Found {
    fn of(path: &Path) -> Result<Found, Failure> {
        let binary = Binary::read(path).map_err(|error| Failure::of(path, error))?;
        let analysis = binary.analysis().map_err(|error| Failure::of(path, error))?;
        // A function that the plan has is one that the checker accepts.
        let plan = analysis.plan(HookLayout::default(), &|_, _| true);
        let plan = plan.map_err(|error| Failure::of(path, error))?;
        Ok(Found {
            coverage: analysis.coverage(),
            kind: analysis.kind(),
            build_id: hexadecimal(analysis.build_id()),
            patches: plan.patches.len(),
            trampolines: plan.code.len(),
            without: plan.left_out,
        })
    }

    fn object(&self, path: &Path) -> Value {
        let coverage = &self.coverage;
        let tactics = Tactic::ALL.iter().map(|tactic| {
            (tactic.name().to_owned(), coverage.by_tactic.get(tactic).copied().unwrap_or_default().into())
        });
        let left_out = Refusal::ALL.iter().map(|refusal| {
            (refusal.name().to_owned(), coverage.left_out.get(refusal).copied().unwrap_or_default().into())
        });
        json!({
            "path": path.to_string_lossy(),
            "build_id": self.build_id,
            "kind": match self.kind {
                FileKind::Pie => "pie",
                FileKind::Library => "library",
                FileKind::Fixed => "fixed",
            },
            "functions": coverage.functions,
            "hooked": coverage.hooked(),
            "exits": coverage.exits,
            "tactics": tactics.collect::<Map<_, _>>(),
            "left_out": left_out.collect::<Map<_, _>>(),
            "parts_without_function": coverage.lost_parts,
            "patches": self.patches,
            "trampoline_bytes": self.trampolines,
            "without_hooks": self.without.iter().map(of_left_out).collect::<Vec<_>>(),
        })
    }
}

fn of_left_out(function: &LeftOut) -> Value {
    json!({
        "address": function.start,
        "linkage_name": function.name,
        "why": function.refusal.name(),
    })
}

fn text(of: &str, coverage: &Coverage) -> String {
    let hooked = coverage.hooked();
    let mut text = format!(
        "{}: {} of {} could get hooks ({}), at {}\n",
        clean(of),
        Count(hooked),
        Several(coverage.functions, "function", "functions"),
        share(hooked, coverage.functions),
        Several(coverage.exits, "exit", "exits"),
    );
    let row = |count: &u64, what: String| [String::new(), Count(*count).to_string(), what];
    let mut rows: Vec<[String; 3]> =
        coverage.by_tactic.iter().map(|(tactic, count)| row(count, tactic.to_string())).collect();
    rows.extend(coverage.left_out.iter().map(|(refusal, count)| row(count, format!("can't: {refusal}"))));
    text.push_str(&lines(&rows, &[0, 2]));
    text
}

/// Rounded down: 100 % are all of them.
fn share(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0);
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
