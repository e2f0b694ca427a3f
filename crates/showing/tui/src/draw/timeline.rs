//! The timeline: a ruler, lanes, and what is selected.

use everycall_units::Several;
use everycall_view::answers::{Slice, TimesOfStates};
use everycall_view::bits;
use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::palette::Palette;
use super::parts::{count, moment, put, tick, time};
use crate::data::{Mark, State, Track};
use crate::state::App;
use crate::state::timeline::{Line, Timeline};
use crate::text::{fit, shown, width};

/// Draws it.
pub fn draw(app: &App, palette: &Palette, out: &mut Buffer) {
    ruler(app, palette, out);
    let timeline = &app.timeline;
    for (row, line) in timeline.lines().into_iter().enumerate() {
        let (Line::Head(index) | Line::Calls(index, _)) = line;
        let Some(track) = timeline.tracks.get(index) else { continue };
        let is_first = row == 0 || matches!(line, Line::Head(_));
        if is_first {
            name(app, track, palette, row, out);
        }
        match line {
            Line::Head(_) => {
                states(app, track, palette, row, out);
                marks(app, track, palette, row, out);
            }
            Line::Calls(_, depth) => calls(app, track, depth, palette, row, out),
        }
    }
    if timeline.tracks.is_empty() {
        let text =
            if app.trace.is_opening { "The file's events are being counted." } else { "No thread is shown." };
        put(out, app.layout.lanes, 0, 0, text, palette.quiet());
    }
    details(app, palette, out);
}

fn ruler(app: &App, palette: &Palette, out: &mut Buffer) {
    let (area, timeline) = (app.layout.ruler, &app.timeline);
    let length = timeline.to.saturating_sub(timeline.from).max(1);
    let least = u128::from(length) * 16 / u128::from(area.width.max(1));
    // 1, 2 or 5 times a power of ten.
    let step = (0..20).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u128.pow(power)));
    let Some(step) = step.into_iter().find(|step| *step >= least.max(1)) else { return };
    let step = u64::try_from(step).unwrap_or(u64::MAX);
    let mut at = timeline.from.div_ceil(step).saturating_mul(step);
    while at <= timeline.to {
        let column = timeline.column(at);
        if let Ok(column) = usize::try_from(column) {
            put(out, area, column, 0, &format!("|{}", tick(at, step, timeline.to)), palette.quiet());
        }
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    let window = format!(" {} ", time(length));
    put(
        out,
        ratatui::layout::Rect { x: 0, width: app.layout.gutter.width, ..area },
        0,
        0,
        &window,
        palette.strong(),
    );
}

fn name(app: &App, track: &Track, palette: &Palette, row: usize, out: &mut Buffer) {
    let is_folded = app.timeline.folded.contains(&track.id);
    let fold = if is_folded { "▸" } else { "▾" };
    let area = app.layout.gutter;
    let number =
        if track.tid >= everycall_timeline::FIBERS_FROM { String::new() } else { format!(" {}", track.tid) };
    let room = usize::from(area.width).saturating_sub(2 + width(&number));
    let text = format!("{fold}{}{number}", fit(&shown(&track.name), room));
    put(out, area, 0, row, &text, palette.strong());
}

/// First and last column of a span that is seen.
fn columns(timeline: &Timeline, from: u64, to: u64) -> Option<(usize, usize)> {
    let last = timeline.columns.checked_sub(1)?;
    if to < timeline.from || from > timeline.to {
        return None;
    }
    let begin = timeline.column(from).max(0);
    // The column in which it ends is that of the next one, if it ends at its edge.
    let end = timeline.column(to.saturating_sub(1).max(from)).min(last as i64);
    let begin = usize::try_from(begin).ok().filter(|begin| *begin <= last)?;
    Some((begin, usize::try_from(end).unwrap_or(0).max(begin)))
}

/// As `running 2 ms, blocked 30 ms (futex 28 ms)`; `None` if nothing is known.
fn states_in_words(times: &TimesOfStates) -> Option<String> {
    let waits: Vec<_> = times.blocked_in.iter().map(|(call, ns)| format!("{call} {}", time(*ns))).collect();
    let waits = if waits.is_empty() { String::new() } else { format!(" ({})", waits.join(", ")) };
    let all = [
        ("running", times.running_ns, String::new()),
        ("runnable", times.runnable_ns, String::new()),
        ("blocked", times.blocked_ns, waits),
    ];
    let some = all.into_iter().filter(|(_, ns, _)| *ns > 0);
    let words: Vec<_> = some.map(|(state, ns, more)| format!("{state} {}{more}", time(ns))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn states(app: &App, track: &Track, palette: &Palette, row: usize, out: &mut Buffer) {
    for State { from, to, state, waits_in, .. } in app.timeline.states(track.id) {
        let Some((begin, end)) = columns(&app.timeline, *from, *to) else { continue };
        let text = match state {
            0 => "━",
            1 => "╍",
            2 => "·",
            _ => continue,
        };
        put(out, app.layout.lanes, begin, row, &text.repeat(end - begin + 1), palette.state(*state));
        // A name with a dot at either side.
        if let Some(call) = waits_in.as_ref().map(|call| shown(call)).filter(|call| width(call) < end - begin)
        {
            put(out, app.layout.lanes, begin + 1, row, &call, palette.state(*state));
        }
    }
}

/// The character that stands for a mark.
pub fn glyph(kind: &str) -> &'static str {
    match kind {
        "label" => "•",
        "instant" => "◆",
        "span" => "=",
        "log" | "output" => "¶",
        "throw" => "x",
        "catch" => "c",
        "loss" => "!",
        "module" => "+",
        _ => "░",
    }
}

fn marks(app: &App, track: &Track, palette: &Palette, row: usize, out: &mut Buffer) {
    let of_track = || app.timeline.marks().iter().filter(|mark| mark.track == track.id);
    // A loss that isn't a point is time of which all events were overwritten.
    let is_loss = |mark: &&Mark| mark.kind == "loss";
    let is_wide = |mark: &&Mark| match mark.kind {
        "span" | "off" => true,
        kind => kind == "loss" && mark.end() > mark.at,
    };
    // Points lie upon what is wide, and losses upon everything.
    let points = || of_track().filter(|mark| !is_wide(mark));
    let order = of_track()
        .filter(is_wide)
        .chain(points().filter(|mark| !is_loss(mark)))
        .chain(points().filter(is_loss));
    for mark in order {
        let to = if is_wide(&mark) { mark.end() } else { mark.at };
        let Some((begin, end)) = columns(&app.timeline, mark.at, to) else { continue };
        let style = match mark.kind {
            _ if app.timeline.mark.as_ref() == Some(mark) => palette.cursor(),
            "loss" | "throw" => palette.alarm(),
            "off" => palette.quiet(),
            _ => Style::default(),
        };
        let text = match is_loss(&mark) {
            true => format!("{}{}", glyph("loss"), glyph("off").repeat(end - begin)),
            false => glyph(mark.kind).repeat(end - begin + 1),
        };
        put(out, app.layout.lanes, begin, row, &text, style);
    }
}

fn calls(app: &App, track: &Track, depth: usize, palette: &Palette, row: usize, out: &mut Buffer) {
    let selected = app.timeline.selected.map(|selected| selected.place);
    let mut chosen = None;
    for slice in app.timeline.slices(track.id).iter().filter(|slice| slice.depth == depth) {
        let is_chosen = selected.is_some_and(|place| {
            place.track == track.id
                && place.depth == depth
                && slice.from <= place.from
                && slice.to >= place.to
        });
        if is_chosen {
            chosen = Some(slice);
        }
        bar(app, slice, false, palette, row, out);
    }
    // Its neighbours may be in the same column.
    if let Some(slice) = chosen {
        bar(app, slice, true, palette, row, out);
    }
}

fn bar(app: &App, slice: &Slice, is_chosen: bool, palette: &Palette, row: usize, out: &mut Buffer) {
    let Some((begin, end)) = columns(&app.timeline, slice.from, slice.to) else { return };
    let room = end - begin + 1;
    let name = slice.function.map_or("", |function| app.name(function));
    let mut style = palette.slice(name);
    if slice.function.is_some_and(|function| app.is_meant(function)) {
        style = palette.hit(style);
    }
    if is_chosen {
        style = palette.cursor();
    }
    let is = |bit: u8| slice.bits & bit != 0;
    let text = if slice.calls > 1 {
        "░".repeat(room)
    } else if room == 1 {
        if *palette == Palette::None { "|" } else { "▏" }.to_owned()
    } else {
        let first = if is(bits::CUT_START) {
            "«"
        } else if is(bits::CALLER_UNSURE) {
            "?"
        } else if *palette == Palette::None {
            "["
        } else {
            "▏"
        };
        let last = if is(bits::CUT_END) {
            "»"
        } else if is(bits::UNWOUND) {
            "x"
        } else if is(bits::AT_MOST) {
            "~"
        } else if *palette == Palette::None {
            "]"
        } else {
            ""
        };
        // A letter or two of a name say nothing.
        let inner = room - 1 - width(last);
        let name = if inner < 3 { String::new() } else { fit(&shown(name), inner) };
        let fill = if *palette == Palette::None && !is_chosen { "-" } else { " " };
        let fill = fill.repeat(inner.saturating_sub(width(&name)));
        format!("{first}{name}{fill}{last}")
    };
    put(out, app.layout.lanes, begin, row, &text, style);
}

fn details(app: &App, palette: &Palette, out: &mut Buffer) {
    let (area, timeline) = (app.layout.details, &app.timeline);
    out.set_style(ratatui::layout::Rect { height: area.height.min(1), ..area }, palette.bar());
    if let Some(mark) = &timeline.mark {
        let several =
            if mark.count > 1 { format!(", and {} more of its kind", mark.count - 1) } else { String::new() };
        put(out, area, 0, 0, &format!(" {}{several}", mark.kind), palette.bar());
        put(out, area, 1, 1, &shown(&mark.text), Style::default());
        put(out, area, 1, 2, &format!("at {}", moment(mark.at)), Style::default());
        return;
    }
    let Some(selected) = timeline.selected else {
        let text = match app.trace.notes.first() {
            Some(note) => format!(" {}", shown(note)),
            None => " nothing is selected: J selects, / searches".to_owned(),
        };
        put(out, area, 0, 0, &text, palette.bar());
        for (row, note) in app.trace.notes.iter().skip(1).enumerate() {
            put(out, area, 1, row + 1, &shown(note), Style::default());
        }
        return;
    };
    let place = selected.place;
    let name = selected.function.map_or("", |function| app.name(function));
    let times = format!("start {}", moment(place.from));
    let duration = time(place.to.saturating_sub(place.from));
    if selected.calls > 1 {
        put(
            out,
            area,
            0,
            0,
            &format!(" {} calls, most of them {}", count(selected.calls.into()), shown(name)),
            palette.bar(),
        );
        put(out, area, 1, 1, &format!("{times}  together {duration}"), Style::default());
        put(out, area, 1, 2, "Enter shows them one by one", palette.quiet());
        return;
    }
    put(out, area, 0, 0, &format!(" {}", shown(name)), palette.bar());
    let function = selected.function.and_then(|function| app.functions.get(function as usize));
    if let Some(function) = function {
        let line = function.line.map_or_else(String::new, |line| format!(":{line}"));
        let file = function.file.as_ref().map_or_else(String::new, |file| format!("  {file}{line}"));
        put(out, area, 1, 1, &shown(&format!("{}{file}", function.module)), palette.quiet());
    }
    let known = timeline.details.as_ref();
    let own = known.map_or_else(|| "…".to_owned(), |known| time(known.own_ns));
    let error = known.and_then(|known| known.error_ns);
    let error = error.map_or_else(String::new, |ns| format!(" \u{b1}{}", time(ns)));
    put(
        out,
        area,
        1,
        2,
        &format!("{times}  duration {duration}{error}  own {own}  depth {}", place.depth),
        Style::default(),
    );
    let Some(known) = known else { return };
    let caller = known.caller.map(|caller| format!("called by {}", app.name(caller)));
    let states = known.states.as_ref().and_then(states_in_words);
    let all = known.all_calls.map(|all| format!("{} of it in all", Several(all, "call", "calls")));
    let facts = known.flags.iter().map(|flag| (*flag).to_owned()).chain(states).chain(caller).chain(all);
    put(out, area, 1, 3, &shown(&facts.collect::<Vec<_>>().join("; ")), Style::default());
    put(out, area, 1, 4, &shown(&known.labels.join(", ")), Style::default());
}
