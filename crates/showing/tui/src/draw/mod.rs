//! From the state to the cells of a screen. Nothing is changed here.

mod help;
mod parts;
mod tables;
mod timeline;
mod tree;

pub mod palette;

use ratatui::buffer::Buffer;
use ratatui::style::Style;

use crate::state::{App, Input, View};
use crate::text::{fit, padded, shown, width};
use palette::Palette;
use parts::put;

/// Draws everything.
pub fn draw(app: &App, palette: &Palette, out: &mut Buffer) {
    let layout = app.layout;
    title(app, palette, out);
    match app.view {
        View::Timeline => timeline::draw(app, palette, out),
        View::Tree => tree::draw(app, palette, out),
        View::Table => tables::draw(app, palette, out),
    }
    if let Some(first) = app.help {
        help::draw(first, palette, layout.body, out);
    }
    foot(app, palette, out);
}

fn title(app: &App, palette: &Palette, out: &mut Buffer) {
    let area = app.layout.title;
    out.set_style(area, palette.bar());
    let mut column = put(out, area, 0, 0, " ", palette.bar());
    for (view, name) in [(View::Timeline, "1 timeline"), (View::Tree, "2 tree"), (View::Table, "3 table")] {
        let style = if view == app.view { palette.chosen() } else { palette.bar() };
        column += put(out, area, column, 0, &format!(" {name} "), style);
    }
    let progress = if app.trace.is_opening {
        "counting events… ".to_owned()
    } else if app.trace.is_complete {
        String::new()
    } else {
        format!("reading {} % ", app.trace.percent)
    };
    let room = usize::from(area.width).saturating_sub(column + width(&progress) + 2);
    let name = fit(&shown(&app.path), room);
    column += put(out, area, column + 2, 0, &name, palette.bar()) + 2;
    let only = fit(&app.only, usize::from(area.width).saturating_sub(column + width(&progress) + 2));
    put(out, area, column + 2, 0, &only, palette.bar());
    let at = usize::from(area.width).saturating_sub(width(&progress));
    put(out, area, at, 0, &progress, palette.bar());
}

fn foot(app: &App, palette: &Palette, out: &mut Buffer) {
    let area = app.layout.foot;
    if let Some(prompt) = &app.prompt {
        let name = match prompt.input {
            Input::Search => "search (a part of a name, or /REGEX/): ",
            Input::Filter => "filter: ",
            Input::Time => "go to (such as 1.5ms): ",
        };
        let text = shown(&prompt.text);
        // The end of a long text is what is being typed.
        let room = usize::from(area.width).saturating_sub(width(name) + 1);
        let skipped = text.chars().count().saturating_sub(room);
        let text: String = text.chars().skip(skipped).collect();
        let column = put(out, area, 0, 0, &padded(name, width(name)), palette.strong());
        let column = column + put(out, area, column, 0, &text, Style::default());
        put(out, area, column, 0, " ", palette.cursor());
        return;
    }
    if let Some(message) = &app.message {
        put(out, area, 0, 0, &shown(message), palette.strong());
        return;
    }
    let keys = match app.view {
        _ if app.help.is_some() => "j k scroll  any other key closes the help",
        View::Timeline => "h l pan  + - zoom  j k scroll  HJKL select  Enter fill  / search  ? help  q quit",
        View::Tree => "h l fold, unfold  e hottest  z Z zoom, back  Enter slowest  / search  ? help  q",
        View::Table if app.table.instances.is_some() => {
            "Enter shows the call in the timeline  Esc back  ? help  q quit"
        }
        View::Table => "< > sort  R reverse  f filter  Enter slowest calls  / search  ? help  q quit",
    };
    put(out, area, 0, 0, keys, palette.quiet());
}
