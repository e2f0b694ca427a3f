//! Rules of a selection as users name them, and sentences for those that match nothing.

use everycall_control::Outcome;
use everycall_io::say;
use everycall_patterns::{FunctionTable, NamePattern, Rule, Selection};
use everycall_units::Several;

use crate::exit_code;
use crate::failure::Failure;

/// Adds patterns to a selection. Returns their rules' texts.
pub fn add(selection: &mut Selection, patterns: &[String], is_in: bool) -> Result<Vec<String>, Failure> {
    let before: Vec<String> = selection.rules().iter().map(ToString::to_string).collect();
    for pattern in patterns {
        selection.add(pattern, is_in).map_err(|error| Failure::new(exit_code::USAGE, error))?;
    }
    let all = selection.rules().iter().map(ToString::to_string);
    let sign = if is_in { '+' } else { '-' };
    let named: Vec<String> = patterns.iter().map(|pattern| format!("{sign} {}", pattern.trim())).collect();
    Ok(all.filter(|rule| !before.contains(rule) || named.contains(rule)).collect())
}

/// Fails if one of these rules matches no function.
pub fn all_match(
    selection: &Selection,
    added: &[String],
    outcome: &Outcome,
    tables: &[FunctionTable],
) -> Result<(), Failure> {
    match without_match(selection, added, outcome, tables).next() {
        Some(sentence) => Err(Failure::new(exit_code::FAILED, sentence)),
        None => Ok(()),
    }
}

/// A sentence for each of these rules that matches no function.
pub fn without_match(
    selection: &Selection,
    added: &[String],
    outcome: &Outcome,
    tables: &[FunctionTable],
) -> impl Iterator<Item = String> {
    let all = selection.rules().iter().zip(&outcome.matched);
    let none = all.filter(|(rule, matched)| matched.functions == 0 && added.contains(&rule.to_string()));
    none.map(|(rule, _)| nothing_matches(rule, tables))
}

fn nothing_matches(rule: &Rule, tables: &[FunctionTable]) -> String {
    let names: Vec<String> = tables.iter().flat_map(FunctionTable::plain_names).collect();
    nothing_like(&rule.pattern, &Selection::near(rule, &names), tables)
}

/// A sentence for a name that matches no function.
pub fn nothing_named(name: &NamePattern, tables: &[FunctionTable]) -> String {
    let names: Vec<String> = tables.iter().flat_map(FunctionTable::plain_names).collect();
    nothing_like(name, &name.near(names.iter().map(String::as_str)), tables)
}

fn nothing_like(pattern: &dyn std::fmt::Display, near: &[String], tables: &[FunctionTable]) -> String {
    let near = match near {
        [] => "; `everycall functions PID` or `everycall functions FILE` lists them".to_owned(),
        [one] => format!("; there is {one}"),
        [some @ .., last] => format!("; there are {} and {last}", some.join(", ")),
    };
    let files: Vec<String> = tables.iter().map(|table| table.path().display().to_string()).collect();
    if files.is_empty() {
        return format!("`{pattern}` matches nothing yet");
    }
    format!("no traced function in {} matches `{pattern}`{near}", files.join(", "))
}

/// Prints how many functions each of these rules matches.
pub fn print_matched(selection: &Selection, added: &[String], outcome: &Outcome) {
    for (rule, matched) in selection.rules().iter().zip(&outcome.matched) {
        if added.contains(&rule.to_string()) {
            // Frames by id, and hooks that are always called, have none.
            let sites = (matched.sites > 0).then_some(Several(matched.sites, "site", "sites"));
            say!(
                "everycall: `{}` matches {}{}",
                rule.pattern,
                Several(matched.functions, "function", "functions"),
                sites.map(|sites| format!(" with {sites}")).unwrap_or_default()
            );
        }
    }
}
