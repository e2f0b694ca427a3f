//! One page for people.

use everycall_analysis::shares;
use everycall_export::NameLength;
use everycall_io::terminal::line;
use everycall_units::{Count, Several};

use crate::answer::{Chosen, Claim, Named, PartOfCall, Why};
use crate::claims::{calls, headline, labels, part_text, time, words};
use crate::commands::moment;

/// Rows of a table.
const ROWS: usize = 8;
/// Parts of one call.
const PARTS: usize = 4;
/// Calls that waited.
const WAITING: usize = 5;

/// How a page is written.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Columns of a line; `None` if lines may have any length.
    pub width: Option<usize>,
    /// How much of functions' names is shown.
    pub names: NameLength,
}

impl Style {
    fn name(&self, function: &Named, taken: usize) -> String {
        let room = self.width.map(|width| width.saturating_sub(taken).max(20));
        self.names.shown(&line(&function.name), room)
    }
}

/// Source file and line, behind a name.
fn source(function: &Named) -> String {
    match (&function.file, function.line) {
        (Some(file), Some(number)) => format!("  {}:{number}", line(file)),
        (Some(file), None) => format!("  {}", line(file)),
        _ => String::new(),
    }
}

/// A table. Columns are right-aligned, except for the last one.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        text.push_str("  ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            if column + 1 == N {
                text.push_str(cell);
            } else {
                let space = width.saturating_sub(cell.chars().count());
                text.extend(std::iter::repeat_n(' ', space));
                text.push_str(cell);
                text.push_str("  ");
            }
        }
        text.push('\n');
    }
    text
}

impl Why {
    /// As text.
    #[must_use]
    pub fn text(&self, style: &Style) -> String {
        let mut out = format!("{}\n", headline(self));
        out += &format!("  {}\n", self.place());
        if let Some((arguments, _)) = &self.call.arguments {
            out += &format!("  arguments: {}\n", line(arguments));
        }
        if let Some((result, _)) = &self.call.result {
            let result = result.strip_prefix("= ").unwrap_or(result);
            out += &format!("  result: {}\n", line(result));
        }
        if !self.call.labels.is_empty() {
            out += &format!("  labels: {}\n", labels(&self.call.labels).join(", "));
        }
        self.end(&mut out, "duration");
        self.steps_text(&mut out, style);
        self.waits_text(&mut out, style);
        self.samples_text(&mut out, style);
        self.functions_text(&mut out, style);
        for claim in self.claims.iter().filter(|claim| claim.kind == "value") {
            out += &format!("\nArgument\n  {}\n", claim.text);
            next(&mut out, claim);
        }
        out += "\nMissing in the trace\n";
        if self.missing.is_empty() {
            out += "  nothing that is known of\n";
        }
        for missing in &self.missing {
            out += &format!("  {}\n", line(&missing.sentence));
        }
        self.end(&mut out, "missing");
        out
    }

    /// Where the call is, and why it was chosen.
    fn place(&self) -> String {
        let (place, call) = (self.call.place, &self.call);
        let mut text =
            format!("at {} in thread {} {}", moment(place.start_ns), line(&call.thread), place.tid);
        if let Some(number) = call.kept {
            text += &format!(", kept call {number} of {}", Count(self.kept_calls as u64));
        }
        text += match self.chosen {
            Chosen::Asked => "",
            Chosen::SlowestKept => ", the slowest kept call",
            Chosen::SlowestOf => ", the slowest of its function",
            Chosen::FarthestAboveMedian => ", farthest above the median of its function",
            Chosen::Longest => ", the longest call",
        };
        text + &source(&call.function)
    }

    /// The doubts and commands of the claims of one kind.
    fn end(&self, out: &mut String, kind: &str) {
        for claim in self.claims.iter().filter(|claim| claim.kind == kind) {
            next(out, claim);
        }
    }

    fn steps_text(&self, out: &mut String, style: &Style) {
        out.push_str("\nWhere the time went\n");
        for (depth, step) in self.steps.iter().enumerate() {
            let indent = "  ".repeat(depth + 1);
            let mut head = time(step.duration_ns);
            if let Some(median) = &step.median {
                let (calls, p50) = (Several(step.timed_calls, "call", "calls"), time(median.p50_ns));
                head += &format!(", the median of {calls} is {p50}");
            }
            let name = style.name(&step.function, indent.len() + head.len() + 2);
            out.push_str(&format!("{indent}{name}: {head}{}\n", source(&step.function)));
            // Less than a hundredth of the largest part says nothing.
            let least = step.parts.first().map_or(0.0, |part| part.more_ns().abs() / 100.0);
            let shown = |part: &&PartOfCall| part.more_ns() != 0.0 && part.more_ns().abs() >= least;
            for part in step.parts.iter().filter(shown).take(PARTS) {
                out.push_str(&format!("{indent}  - {}\n", part_text(step, part)));
            }
        }
        let mut doubts: Vec<&String> = Vec::new();
        let mut commands: Vec<&String> = Vec::new();
        for claim in self.claims.iter().filter(|claim| claim.kind == "difference") {
            doubts.extend(claim.doubts.iter().filter(|doubt| !doubts.contains(doubt)).collect::<Vec<_>>());
            commands.extend(claim.next.iter().filter(|next| !commands.contains(next)).collect::<Vec<_>>());
        }
        // Of the calls between the first and the last, the lines above say enough.
        if commands.len() > 3 {
            commands.drain(1..commands.len() - 2);
        }
        let claim = Claim {
            kind: "difference",
            text: String::new(),
            doubts: doubts.into_iter().cloned().collect(),
            next: commands.into_iter().cloned().collect(),
        };
        next(out, &claim);
    }

    fn waits_text(&self, out: &mut String, style: &Style) {
        let waits = &self.waits;
        if waits.states.is_none() && waits.calls.is_empty() {
            return;
        }
        out.push_str("\nWaiting\n");
        if let Some(states) = waits.states {
            let [running, ready, blocked] = [states.running, states.runnable, states.blocked].map(time);
            out.push_str(&format!("  on a CPU {running}, ready without one {ready}, blocked {blocked}"));
            if let Some(median) = waits.median_states {
                let [running, ready, blocked] = [median.running, median.runnable, median.blocked].map(time);
                out.push_str(&format!("; in a median call {running}, {ready}, {blocked}"));
            }
            out.push('\n');
        }
        for (call, ns) in waits.blocked_in.iter().filter(|(_, ns)| *ns > 0).take(WAITING) {
            out.push_str(&format!("  blocked in {call} for {}\n", time(*ns)));
        }
        if let Some((tid, thread)) = &waits.woken_by {
            let thread = thread.as_deref().map(|name| format!(" {}", line(name))).unwrap_or_default();
            out.push_str(&format!("  the longest wait was ended by thread{thread} {tid}\n"));
        }
        for call in waits.calls.iter().take(WAITING) {
            let held = match call.holder.as_ref().and_then(|holder| holder.thread.as_deref()) {
                Some(thread) => format!(" ({})", line(thread)),
                None => String::new(),
            };
            out.push_str(&format!(
                "  {} in {} at {}: {}{held}\n",
                time(call.duration_ns),
                style.name(&call.function, 60),
                moment(call.start_ns),
                labels(&call.labels).join(", ")
            ));
        }
        let more = waits.calls.len().saturating_sub(WAITING) + waits.further_calls;
        if more > 0 {
            out.push_str(&format!("  {} with labels\n", Several(more as u64, "more call", "more calls")));
        }
        self.end(out, "waiting");
    }

    fn samples_text(&self, out: &mut String, style: &Style) {
        if self.samples.is_empty() {
            return;
        }
        out.push_str("\nWhat ran in own times, by samples\n");
        for sampled in self.samples.iter().take(ROWS) {
            let places: Vec<_> =
                sampled.places.iter().map(|(place, count)| (line(place).into_owned(), *count)).collect();
            if let Some(shares) = shares(&places) {
                out.push_str(&format!("  {}: {shares}\n", style.name(&sampled.function, shares.len() + 4)));
            }
        }
    }

    fn functions_text(&self, out: &mut String, style: &Style) {
        if self.functions.is_empty() {
            return;
        }
        let has_median = self.functions.iter().any(|row| row.median.is_some());
        out.push_str(match has_median {
            true => "\nFunctions in this call, and in the call nearest to the median\n",
            false => "\nFunctions in this call\n",
        });
        let rows = self.functions.iter().take(ROWS);
        if has_median {
            let mut lines = vec![["own", "there", "calls", "there", "function"].map(str::to_owned)];
            lines.extend(rows.map(|row| {
                let median = row.median.unwrap_or_default();
                let cause = match words(row.cause) {
                    "" => String::new(),
                    words => format!("  ({words})"),
                };
                [
                    time(row.call.own_ns),
                    time(median.own_ns),
                    Count(row.call.calls).to_string(),
                    Count(median.calls).to_string(),
                    format!(
                        "{}{cause}{}",
                        style.name(&row.function, 44 + cause.len()),
                        source(&row.function)
                    ),
                ]
            }));
            out.push_str(&table(&lines));
        } else {
            let mut lines = vec![["own", "calls", "function"].map(str::to_owned)];
            lines.extend(rows.map(|row| {
                let name = format!("{}{}", style.name(&row.function, 30), source(&row.function));
                [time(row.call.own_ns), calls(row.call.calls as f64), name]
            }));
            out.push_str(&table(&lines));
        }
        let more = self.functions.len().saturating_sub(ROWS) + self.further_functions;
        if more > 0 {
            out.push_str(&format!("  {}\n", Several(more as u64, "more function", "more functions")));
        }
        self.end(out, "function");
    }
}

/// Why a claim could be wrong, and what shows more.
fn next(out: &mut String, claim: &Claim) {
    for doubt in &claim.doubts {
        out.push_str(&format!("  could be wrong: {}\n", line(doubt)));
    }
    for command in &claim.next {
        out.push_str(&format!("  next: {}\n", line(command)));
    }
}
