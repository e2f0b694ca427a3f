//! All that is shown. Keys and answers go in, requests come out.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use everycall_units::parse_time;

use super::pattern::Pattern;
use super::table::{Instances, TableView};
use super::timeline::Timeline;
use super::tree::TreeView;
use crate::data::{Answer, Function, Hit, Place, Position, Range, Request, Trace, Track};
use crate::layout::{Layout, table_columns};

/// The view on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    #[default]
    Timeline,
    Tree,
    Table,
}

/// The purpose of a line of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Search,
    Filter,
    Time,
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    pub input: Input,
    pub text: String,
}

/// A key's effect on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Go,
    Quit,
    Suspend,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct App {
    pub path: String,
    pub view: View,
    pub trace: Trace,
    pub functions: Vec<Function>,
    pub timeline: Timeline,
    pub tree: TreeView,
    pub table: TableView,
    pub prompt: Option<Prompt>,
    pub search: Option<Pattern>,
    /// Whether the help is shown, and its first line.
    pub help: Option<usize>,
    /// One sentence, until the next key.
    pub message: Option<String>,
    /// The part that tree and table count.
    pub range: Range,
    pub layout: Layout,
    /// The options' filters, in words.
    pub only: String,
    /// Processes and threads that are shown; empty for all.
    pids: Vec<u32>,
    tids: Vec<u32>,
    /// Number of the kept call to go to, until it has been read.
    kept: Option<usize>,
    /// The last hit of a search in the timeline.
    cursor: Option<(u64, u32, Option<usize>)>,
    requests: VecDeque<Request>,
    asked: Option<crate::data::Window>,
    asked_details: Option<(u32, u64, usize)>,
    /// Long requests that aren't answered yet.
    pub waits: Vec<Request>,
}

/// The options of the command.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub path: String,
    pub pids: Vec<u32>,
    pub tids: Vec<u32>,
    /// The pattern of `--function`.
    pub function: Option<String>,
    /// The filters, in words; empty for none.
    pub only: String,
    /// Number of the kept call to begin at.
    pub kept: Option<usize>,
}

impl App {
    pub fn new(choice: Choice) -> App {
        let search = choice.function.and_then(|regex| Pattern::new(&format!("/{regex}/")).ok());
        App {
            path: choice.path,
            view: View::default(),
            trace: Trace { is_opening: true, ..Trace::default() },
            functions: Vec::new(),
            timeline: Timeline::new(),
            tree: TreeView::default(),
            table: TableView::new(),
            prompt: None,
            search,
            help: None,
            message: None,
            range: None,
            layout: Layout::default(),
            only: choice.only,
            pids: choice.pids,
            tids: choice.tids,
            kept: choice.kept,
            cursor: None,
            requests: VecDeque::from([Request::Trace]),
            asked: None,
            asked_details: None,
            waits: Vec::new(),
        }
    }

    /// The screen has so many columns and lines.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.layout = Layout::of(columns, lines);
        let lanes = self.layout.lanes;
        self.timeline.resize(lanes.height.into(), lanes.width.into());
        self.tree.height = self.layout.rows();
        self.table.height = self.layout.rows();
        self.tree.settle();
        self.table.settle();
    }

    /// Takes the requests that are due.
    pub fn requests(&mut self) -> Vec<Request> {
        if !self.trace.is_opening {
            let wanted = self.timeline.wanted();
            if self.view == View::Timeline && self.asked.as_ref() != Some(&wanted) {
                self.asked = Some(wanted.clone());
                self.requests.push_back(Request::Window(wanted));
            }
            let selected = self.timeline.selected.filter(|selected| selected.calls == 1);
            let place = selected.map(|selected| selected.place);
            let place = place.map(|place| (place.track, place.from, place.depth));
            if place != self.asked_details {
                self.asked_details = place;
                self.timeline.details = None;
                let ask = |(track, at, depth)| Request::Details(Position { track, at, depth });
                self.requests.extend(place.map(ask));
            }
            if self.view == View::Table && !self.table.is_there {
                self.ask_once(Request::Table(self.range));
            }
            if self.view == View::Tree && !self.tree.is_there {
                self.ask_once(Request::Tree(self.range));
            }
        }
        self.requests.drain(..).collect()
    }

    fn ask_once(&mut self, request: Request) {
        if !self.waits.contains(&request) {
            self.waits.retain(|old| !old.is_replaced_by(&request));
            self.waits.push(request.clone());
            self.requests.push_back(request);
        }
    }

    /// More is to be known of the trace.
    pub fn look_again(&mut self) {
        if !self.trace.is_complete {
            self.requests.push_back(Request::Trace);
        }
    }

    /// The window that the options leave; `None` where they leave all of it.
    pub fn restrict(&mut self, window: (Option<u64>, Option<u64>)) {
        if window != (None, None) {
            self.timeline.end = self.timeline.end.max(1);
            let (from, to) = (window.0.unwrap_or(0), window.1.unwrap_or(u64::MAX).min(self.timeline.end));
            self.timeline.show_window(from, to);
        }
    }

    /// The functions with numbers from `first` on.
    pub fn learn(&mut self, first: usize, functions: Vec<Function>) {
        let known = self.functions.len().saturating_sub(first);
        self.functions.extend(functions.into_iter().skip(known));
    }

    /// An answer came.
    pub fn answer(&mut self, request: &Request, answer: Result<Answer, String>) {
        let is_waited_for = !request.is_long() || self.waits.contains(request);
        self.waits.retain(|waiting| waiting != request);
        let answer = match answer {
            Ok(answer) if is_waited_for => answer,
            Ok(_) => return,
            Err(error) => {
                self.message = Some(error);
                // Not asked again and again.
                match request {
                    Request::Table(_) => self.table.is_there = true,
                    Request::Tree(_) => self.tree.is_there = true,
                    _ => {}
                }
                return;
            }
        };
        match answer {
            Answer::Trace(trace) => {
                let (pids, tids) = (&self.pids, &self.tids);
                let is_shown = |track: &Track| {
                    (pids.is_empty() || pids.contains(&track.pid))
                        && (tids.is_empty() || tids.contains(&track.tid))
                };
                self.timeline.learn(&trace, is_shown);
                self.trace = trace;
                self.go_to_kept();
            }
            Answer::Window(window, contents) => self.timeline.shown = Some((window, contents)),
            Answer::Details(details) => {
                if let Some(selected) = &mut self.timeline.selected
                    && selected.place.track == details.place.track
                    && selected.place.depth == details.place.depth
                    && selected.place.from == details.place.from
                {
                    selected.place.to = details.place.to;
                    selected.function = details.function;
                    self.timeline.details = Some(details);
                }
            }
            Answer::Hit(hit) => self.show_hit(hit),
            Answer::Table(table) => self.table.show(table, &self.functions),
            Answer::Tree(tree) => self.tree.show(tree),
            Answer::Instances(rows) => {
                if let (Some(instances), Request::Instances { function, .. }) =
                    (&mut self.table.instances, request)
                    && instances.function == *function
                {
                    (instances.rows, instances.is_there) = (rows, true);
                }
            }
        }
    }

    /// Goes to the kept call that the options name, once it has been read.
    fn go_to_kept(&mut self) {
        let kept = self.trace.kept.iter().find(|kept| Some(kept.number) == self.kept);
        let Some(kept) = kept else { return };
        let (from, to) = (kept.from, kept.to);
        match kept.track.zip(kept.depth) {
            Some((track, depth)) => {
                let place = Place { track, depth, from, to: to.max(from) };
                self.timeline.select(place, None, true);
            }
            None if self.trace.is_complete => self.timeline.go_to(from),
            None => return,
        }
        self.kept = None;
    }

    fn show_hit(&mut self, hit: Option<Hit>) {
        let text = self.search.as_ref().map_or("", |pattern| pattern.text.as_str());
        let Some(hit) = hit else {
            self.message = Some(format!("nothing is called {text}"));
            return;
        };
        self.message = Some(format!("{text}: {} of {}", hit.index, hit.total));
        let place = hit.place;
        match hit.mark {
            None => {
                self.cursor = Some((place.from, place.track, Some(place.depth)));
                self.timeline.select(place, hit.function, false);
            }
            Some(_) => {
                self.cursor = Some((place.from, place.track, None));
                self.timeline.selected = None;
                self.timeline.go_to(place.from);
                self.timeline.reveal(place.track, None);
            }
        }
    }

    /// The name of a function.
    pub fn name(&self, function: u32) -> &str {
        self.functions.get(function as usize).map_or("…", |function| function.name.as_str())
    }

    /// Whether the search means a function.
    pub fn is_meant(&self, function: u32) -> bool {
        let of = self.functions.get(function as usize);
        self.search
            .as_ref()
            .zip(of)
            .is_some_and(|(pattern, of)| pattern.is_match(&of.name) || pattern.is_match(&of.full))
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        self.message = None;
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if has_control => return Flow::Quit,
            KeyCode::Char('z') if has_control => return Flow::Suspend,
            _ => {}
        }
        if self.prompt.is_some() {
            self.type_key(key, has_control);
            return Flow::Go;
        }
        if let Some(first) = self.help {
            match key.code {
                KeyCode::Down | KeyCode::Char('j') => self.help = Some(first + 1),
                KeyCode::Up | KeyCode::Char('k') => self.help = Some(first.saturating_sub(1)),
                KeyCode::PageDown | KeyCode::Char(' ') => self.help = Some(first + self.layout.rows()),
                KeyCode::PageUp => self.help = Some(first.saturating_sub(self.layout.rows())),
                _ => self.help = None,
            }
            return Flow::Go;
        }
        if has_control {
            return Flow::Go;
        }
        match key.code {
            KeyCode::Char('q') => return Flow::Quit,
            KeyCode::Char('?') | KeyCode::F(1) => self.help = Some(0),
            KeyCode::Char('1') => self.view = View::Timeline,
            KeyCode::Char('2') => self.view = View::Tree,
            KeyCode::Char('3') => self.view = View::Table,
            KeyCode::Tab => {
                self.view = match self.view {
                    View::Timeline => View::Tree,
                    View::Tree => View::Table,
                    View::Table => View::Timeline,
                };
            }
            KeyCode::BackTab => {
                self.view = match self.view {
                    View::Timeline => View::Table,
                    View::Tree => View::Timeline,
                    View::Table => View::Tree,
                };
            }
            KeyCode::Char('/') => self.begin(Input::Search),
            KeyCode::Char('n') => self.find(true),
            KeyCode::Char('N') => self.find(false),
            KeyCode::Char('r') if self.view != View::Timeline => self.toggle_range(),
            _ => match self.view {
                View::Timeline => self.timeline_key(key),
                View::Tree => self.tree_key(key),
                View::Table => self.table_key(key),
            },
        }
        Flow::Go
    }

    fn begin(&mut self, input: Input) {
        let text = if input == Input::Filter { self.table.filter.clone() } else { String::new() };
        self.prompt = Some(Prompt { input, text });
    }

    fn type_key(&mut self, key: KeyEvent, has_control: bool) {
        let Some(prompt) = &mut self.prompt else { return };
        match key.code {
            KeyCode::Char('u') if has_control => prompt.text.clear(),
            KeyCode::Char('w') if has_control => {
                let kept = prompt.text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                prompt.text.truncate(kept);
            }
            KeyCode::Char(_) if has_control => {}
            KeyCode::Char(character) => prompt.text.push(character),
            KeyCode::Backspace if prompt.text.is_empty() => self.prompt = None,
            KeyCode::Backspace => _ = prompt.text.pop(),
            KeyCode::Esc => {
                if prompt.input == Input::Filter {
                    prompt.text.clear();
                    self.filter();
                }
                self.prompt = None;
                return;
            }
            KeyCode::Enter => return self.entered(),
            _ => {}
        }
        self.filter();
    }

    /// Applies the filter that is being typed.
    fn filter(&mut self) {
        if let Some(Prompt { input: Input::Filter, text }) = &self.prompt {
            self.table.filter.clone_from(text);
            self.table.arrange(&self.functions);
        }
    }

    fn entered(&mut self) {
        let Some(Prompt { input, text }) = self.prompt.take() else { return };
        match input {
            Input::Filter => {
                if let Err(error) = Pattern::new(&text) {
                    self.message = Some(error);
                }
            }
            Input::Search if text.is_empty() => self.search = None,
            Input::Search => match Pattern::new(&text) {
                Ok(pattern) => {
                    self.search = Some(pattern);
                    self.cursor = None;
                    self.find(true);
                }
                Err(error) => self.message = Some(error),
            },
            Input::Time => match parse_time(text.trim()) {
                Ok(at) => self.timeline.go_to(at),
                Err(error) => self.message = Some(format!("{error}")),
            },
        }
    }

    /// Goes to the next hit of the search.
    fn find(&mut self, is_forward: bool) {
        let Some(pattern) = self.search.clone() else {
            self.message = Some("nothing is searched for; / begins".to_owned());
            return;
        };
        let is_meant = |function: u32| {
            let of = self.functions.get(function as usize);
            of.is_some_and(|of| pattern.is_match(&of.name) || pattern.is_match(&of.full))
        };
        let was_found = match self.view {
            View::Timeline => {
                let q = pattern.text.clone();
                let tracks = self.timeline.tracks.iter().map(|track| track.id).collect();
                self.requests.push_back(Request::Next { q, cursor: self.cursor, is_forward, tracks });
                return;
            }
            View::Tree => self.tree.find(is_meant, is_forward),
            View::Table => {
                self.table.instances = None;
                self.table.find(is_meant, is_forward)
            }
        };
        if !was_found {
            self.message = Some(format!("no function here is called {}", pattern.text));
        }
    }

    /// Counts what the timeline shows, or all again.
    fn toggle_range(&mut self) {
        let window = (self.timeline.from, self.timeline.to);
        self.range = if self.range.is_some() { None } else { Some(window) };
        (self.table.is_there, self.tree.is_there) = (false, false);
        if let Some(instances) = &mut self.table.instances {
            let function = instances.function;
            instances.is_there = false;
            self.ask_once(Request::Instances { function, range: self.range });
        }
    }

    /// Shows the slowest calls of a function.
    fn slowest_of(&mut self, function: Option<u32>) {
        let Some(function) = function else {
            self.message = Some("select a function first".to_owned());
            return;
        };
        self.view = View::Table;
        self.table.instances = Some(Instances { function, ..Instances::default() });
        self.ask_once(Request::Instances { function, range: self.range });
    }

    fn timeline_key(&mut self, key: KeyEvent) {
        let timeline = &mut self.timeline;
        let has_shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let page = timeline.height.max(2) as isize - 1;
        match key.code {
            KeyCode::Char('H') => timeline.step(false),
            KeyCode::Char('L') => timeline.step(true),
            KeyCode::Char('J') => timeline.inwards(),
            KeyCode::Char('K') => timeline.outwards(),
            KeyCode::Left if has_shift => timeline.step(false),
            KeyCode::Right if has_shift => timeline.step(true),
            KeyCode::Down if has_shift => timeline.inwards(),
            KeyCode::Up if has_shift => timeline.outwards(),
            KeyCode::Char('h' | 'a') | KeyCode::Left => timeline.pan(-2),
            KeyCode::Char('l' | 'd') | KeyCode::Right => timeline.pan(2),
            KeyCode::Char('<') => timeline.pan(-10),
            KeyCode::Char('>') => timeline.pan(10),
            KeyCode::Char('j') | KeyCode::Down => timeline.scroll(1),
            KeyCode::Char('k') | KeyCode::Up => timeline.scroll(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => timeline.scroll(page),
            KeyCode::PageUp => timeline.scroll(-page),
            KeyCode::Home => timeline.scroll(isize::MIN),
            KeyCode::End => timeline.scroll(isize::MAX),
            KeyCode::Char('+' | '=' | 'w') => timeline.zoom(1, 2),
            KeyCode::Char('-' | 's') => timeline.zoom(2, 1),
            KeyCode::Char('0') => timeline.fit(),
            KeyCode::Enter => timeline.zoom_to_selected(),
            KeyCode::Char('f') => timeline.fold(),
            KeyCode::Char('F') => timeline.fold_all(),
            KeyCode::Char('m') => timeline.step_mark(true),
            KeyCode::Char('M') => timeline.step_mark(false),
            KeyCode::Esc => {
                timeline.selected = None;
                timeline.mark = None;
            }
            KeyCode::Char('g') => self.begin(Input::Time),
            KeyCode::Char('x') => {
                let function = self.timeline.selected.and_then(|selected| selected.function);
                self.slowest_of(function);
            }
            _ => {}
        }
    }

    fn tree_key(&mut self, key: KeyEvent) {
        let tree = &mut self.tree;
        let page = tree.height.max(2) as isize - 1;
        match key.code {
            KeyCode::Char('j') | KeyCode::Down => tree.list.step(1),
            KeyCode::Char('k') | KeyCode::Up => tree.list.step(-1),
            KeyCode::PageDown => tree.list.step(page),
            KeyCode::PageUp => tree.list.step(-page),
            KeyCode::Home => tree.list.step(isize::MIN),
            KeyCode::End => tree.list.step(isize::MAX),
            KeyCode::Char('l') | KeyCode::Right => tree.open(),
            KeyCode::Char('h') | KeyCode::Left => tree.close(),
            KeyCode::Char(' ') => tree.toggle(),
            KeyCode::Char('e') => tree.hottest(),
            KeyCode::Char('E') => tree.unfold_all(),
            KeyCode::Char('C') => tree.fold_all(),
            KeyCode::Char('z') => tree.zoom(),
            KeyCode::Char('Z') | KeyCode::Backspace | KeyCode::Esc => tree.back(),
            KeyCode::Char('x') | KeyCode::Enter => {
                let function = tree.node().and_then(|node| tree.function(node));
                return self.slowest_of(function);
            }
            _ => {}
        }
        tree.settle();
    }

    fn table_key(&mut self, key: KeyEvent) {
        let page = self.table.height.max(2) as isize - 1;
        let rows = match key.code {
            KeyCode::Char('j') | KeyCode::Down => Some(1),
            KeyCode::Char('k') | KeyCode::Up => Some(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => Some(page),
            KeyCode::PageUp => Some(-page),
            KeyCode::Home => Some(isize::MIN),
            KeyCode::End => Some(isize::MAX),
            _ => None,
        };
        if let Some(rows) = rows {
            match &mut self.table.instances {
                Some(instances) => instances.list.step(rows),
                None => self.table.list.step(rows),
            }
            return self.table.settle();
        }
        if let Some(instances) = &self.table.instances {
            match key.code {
                KeyCode::Enter => {
                    let found = instances.rows.get(instances.list.cursor).copied();
                    let function = instances.function;
                    if let Some(instance) = found {
                        self.view = View::Timeline;
                        self.timeline.select(instance.place, Some(function), true);
                    }
                }
                KeyCode::Esc | KeyCode::Backspace | KeyCode::Char('h') | KeyCode::Left => {
                    self.table.instances = None;
                }
                _ => {}
            }
            return;
        }
        let columns =
            table_columns(self.layout.columns.into(), self.table.sort, self.table.table.has_more_calls);
        match key.code {
            KeyCode::Char('>' | 's' | 'l') | KeyCode::Right => {
                self.table.sort_by_next(&columns, true, &self.functions)
            }
            KeyCode::Char('<' | 'S' | 'h') | KeyCode::Left => {
                self.table.sort_by_next(&columns, false, &self.functions)
            }
            KeyCode::Char('R') => {
                self.table.is_reversed = !self.table.is_reversed;
                self.table.arrange(&self.functions);
            }
            KeyCode::Char('f') => self.begin(Input::Filter),
            KeyCode::Esc => {
                self.table.filter.clear();
                self.table.arrange(&self.functions);
            }
            KeyCode::Char('x') | KeyCode::Enter => {
                let function = self.table.row().map(|row| row.function);
                self.slowest_of(function);
            }
            _ => {}
        }
    }
}
