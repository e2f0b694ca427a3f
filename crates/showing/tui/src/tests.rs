//! Keys in, screens out: kept screens in `src/tests`, and what each key does to the state.
//! `EVERYCALL_BLESS=1 cargo test -p everycall-tui` writes the screens: read them before you commit
//! them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use everycall_view::answers::{Slice, TimesOfStates, Tree, TreeNode};
use everycall_view::bits;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::data::{
    Answer, Contents, Details, Function, Kept, Mark, Place, Position, Request, Row, Slow, State, Table,
    Trace, Track, Window,
};
use crate::draw::draw;
use crate::draw::palette::Palette;
use crate::state::app::Choice;
use crate::state::{App, Flow, View};
use crate::text::width;

const NAMES: [&str; 6] = [
    "main",
    "parse(char const*)",
    "\u{1b}[31mred\u{202e}",
    "漢字の関数",
    "std::vector<std::basic_string<char>>::emplace_back(char const*)",
    "leaf",
];

fn slice(depth: usize, from: u64, to: u64, function: u32, calls: u32, bits: u8) -> Slice {
    Slice { depth, from, to, function: Some(function), calls, bits }
}

/// Two threads; the first is as deep as the second is wide.
fn contents() -> Contents {
    let first = vec![
        slice(0, 0, 1_000_000, 0, 1, bits::CUT_END),
        slice(1, 10_000, 400_000, 1, 1, 0),
        slice(1, 400_000, 650_000, 2, 1, bits::UNWOUND),
        slice(1, 650_000, 655_000, 5, 1, 0),
        slice(1, 660_000, 990_000, 3, 1, bits::CALLER_UNSURE),
        slice(2, 20_000, 300_000, 4, 1, 0),
        slice(2, 300_000, 390_000, 5, 1200, 0),
    ];
    let second = vec![
        slice(0, 200_000, 900_000, 1, 1, bits::CUT_START),
        slice(1, 200_000, 800_000, 5, 1, bits::AT_MOST),
    ];
    let state = |from, to, state, waits_in| State { from, to, state, woken_by: None, waits_in };
    let mark = |kind, at: u64, to: u64, text: &str| Mark {
        track: 1,
        at,
        to: Some(to).filter(|to| *to > at),
        kind,
        text: text.into(),
        count: 1,
    };
    Contents {
        slices: vec![(1, first), (2, second)],
        states: vec![(
            2,
            vec![
                state(0, 300_000, 0, None),
                state(300_000, 500_000, 1, None),
                state(500_000, 800_000, 2, Some("fu\u{1b}tex")),
                state(800_000, 880_000, 2, Some("clock_nanosleep")),
                state(880_000, 900_000, 2, None),
            ],
        )],
        marks: vec![
            mark("span", 100_000, 300_000, "load"),
            mark("loss", 500_000, 500_000, "17 events lost"),
            mark("loss", 800_000, 900_000, "1000 events lost"),
            mark("log", 600_000, 600_000, "hello\u{1b}]0;title\u{7}"),
        ],
    }
}

fn trace() -> Trace {
    let track =
        |id: u32, name: &str, depth: usize| Track { id, pid: 70, tid: 70 + id, name: name.into(), depth };
    Trace {
        program: "app".into(),
        duration_ns: 1_000_000,
        is_complete: true,
        percent: 100,
        tracks: vec![track(1, "app", 3), track(2, "worker with a long name", 2)],
        ..Trace::default()
    }
}

fn functions() -> Vec<Function> {
    let function = |name: &&str| Function {
        id: 0,
        name: (*name).to_owned(),
        full: (*name).to_owned(),
        module: "app".into(),
        file: Some("/src/app.cpp".into()),
        line: Some(12),
    };
    NAMES.iter().map(function).collect()
}

fn table() -> Table {
    let row = |function: u32, total: u64, own: u64, calls: u64| Row {
        function,
        numbers: [
            Some(total),
            Some(own),
            Some(calls),
            None,
            total.checked_div(calls),
            None,
            None,
            None,
            None,
        ],
    };
    Table {
        rows: vec![
            row(0, 1_000_000, 20_000, 1),
            row(1, 390_000, 20_000, 2),
            row(5, 95_000, 95_000, 1201),
            row(2, 250_000, 250_000, 1),
            row(3, 330_000, 330_000, 1),
            row(4, 280_000, 280_000, 1),
        ],
        calls: 1207,
        has_more_calls: false,
        lacks: Vec::new(),
    }
}

fn tree() -> Tree {
    let node = |function: u32, parent: usize, calls: u64, total_ns: u64, own_ns: u64| TreeNode {
        function,
        parent,
        calls,
        total_ns,
        own_ns,
    };
    Tree {
        nodes: vec![
            node(u32::MAX, 0, 0, 1_000_000, 0),
            node(0, 0, 1, 1_000_000, 30_000),
            node(1, 1, 1, 390_000, 20_000),
            node(2, 1, 1, 250_000, 250_000),
            node(3, 1, 1, 330_000, 330_000),
            node(4, 2, 1, 280_000, 280_000),
            node(5, 2, 1200, 90_000, 90_000),
        ],
        further: 0,
    }
}

struct Seen {
    app: App,
    palette: Palette,
}

impl Seen {
    /// The file was opened, in a terminal of this size.
    fn of(columns: u16, lines: u16) -> Seen {
        let mut app = App::new(Choice { path: "app.ect".into(), ..Choice::default() });
        app.resize(columns, lines);
        assert_eq!(app.requests(), [Request::Trace]);
        app.learn(0, functions());
        app.answer(&Request::Trace, Ok(Answer::Trace(trace())));
        let mut seen = Seen { app, palette: Palette::None };
        seen.serve();
        seen
    }

    /// Answers what is asked, with the same whatever it is.
    fn serve(&mut self) -> Vec<Request> {
        let mut all = Vec::new();
        loop {
            let requests = self.app.requests();
            if requests.is_empty() {
                return all;
            }
            for request in requests {
                let answer = match &request {
                    Request::Trace => Answer::Trace(trace()),
                    Request::Window(window) => Answer::Window(window.clone(), contents()),
                    Request::Details(Position { track, at, depth }) => {
                        Answer::Details(details(*track, *at, *depth))
                    }
                    Request::Next { .. } => Answer::Hit(None),
                    Request::Table(_) => Answer::Table(table()),
                    Request::Tree(_) => Answer::Tree(tree()),
                    Request::Instances { .. } => Answer::Instances(vec![
                        Slow {
                            place: Place { track: 1, depth: 2, from: 20_000, to: 300_000 },
                            own_ns: 280_000,
                            uncertain: false,
                        },
                        Slow {
                            place: Place { track: 2, depth: 1, from: 200_000, to: 210_000 },
                            own_ns: 9_000,
                            uncertain: true,
                        },
                    ]),
                };
                self.app.answer(&request, Ok(answer));
                all.push(request);
            }
        }
    }

    /// Types; `\t`, `\r` and `\u{1b}` are keys.
    fn press(&mut self, keys: &str) -> Flow {
        let mut flow = Flow::Go;
        for key in keys.chars() {
            let code = match key {
                '\t' => KeyCode::Tab,
                '\r' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            flow = self.app.key(KeyEvent::new(code, KeyModifiers::NONE));
            self.serve();
        }
        flow
    }

    fn lines(&self) -> Vec<String> {
        let area = Rect::new(0, 0, self.app.layout.columns, self.app.layout.lines);
        let mut out = Buffer::empty(area);
        draw(&self.app, &self.palette, &mut out);
        let line = |y: u16| {
            let mut text = String::new();
            let mut x = 0;
            while x < area.width {
                let symbol = out[(x, y)].symbol();
                text.push_str(symbol);
                x += (width(symbol) as u16).max(1);
            }
            text.trim_end().to_owned()
        };
        (0..area.height).map(line).collect()
    }

    /// The screen is the kept one.
    #[track_caller]
    fn is(&self, name: &str) {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests").join(format!("{name}.txt"));
        let now = self.lines().join("\n") + "\n";
        if std::env::var_os("EVERYCALL_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &now).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(now, kept, "{name}:\n{now}");
    }
}

fn details(track: u32, at: u64, depth: usize) -> Details {
    let all = contents();
    let (_, slices) = all.slices.iter().find(|(id, _)| *id == track).unwrap();
    let found = slices.iter().find(|slice| slice.depth == depth && slice.from == at);
    let (function, to) = found.map_or((Some(5), at), |slice| (slice.function, slice.to));
    Details {
        place: Place { track, depth, from: at, to },
        function,
        own_ns: 1234,
        error_ns: None,
        labels: vec!["request = 7".into(), "user\u{1b}[0m".into()],
        flags: vec!["caller uncertain"],
        caller: Some(0),
        all_calls: None,
        states: Some(TimesOfStates {
            running_ns: 300_000,
            runnable_ns: 0,
            blocked_ns: 80_000,
            unknown_ns: 0,
            blocked_in: vec![("futex".to_owned(), 78_000)],
        }),
    }
}

#[test]
fn screens_are_the_kept_ones() {
    let mut seen = Seen::of(80, 24);
    seen.is("timeline");
    seen.press("JJ");
    seen.is("selected");
    seen.press("m");
    seen.is("mark");
    seen.press("\u{1b}2");
    seen.is("tree");
    seen.press("3");
    seen.is("table");
    seen.press("\r");
    seen.is("slowest");
    seen.press("?");
    seen.is("help");
    let mut narrow = Seen::of(40, 10);
    narrow.press("J");
    narrow.is("narrow");
    let mut coloured = Seen::of(80, 24);
    coloured.palette = Palette::Basic;
    coloured.is("coloured");
}

#[test]
fn no_cell_of_any_screen_has_what_a_terminal_acts_upon() {
    for (columns, lines) in [(0, 0), (1, 1), (7, 3), (20, 5), (40, 8), (80, 24), (200, 60)] {
        for palette in [Palette::None, Palette::Basic, Palette::Many] {
            let mut seen = Seen::of(columns, lines);
            seen.palette = palette;
            for keys in ["", "J", "L", "m", "m", "m", "2", "E", "/漢", "\r", "3", "fre", "\r", "\r", "?", "q"]
            {
                seen.press(keys);
                let screen = seen.lines();
                assert!(
                    !screen
                        .iter()
                        .any(|line| line.chars().any(char::is_control) || line.contains('\u{202e}'))
                );
                assert!(
                    screen.iter().all(|line| width(line) <= columns.into()),
                    "{columns}x{lines}: {screen:#?}"
                );
            }
        }
    }
}

#[test]
fn zooming_and_panning_stay_within_the_trace() {
    let mut seen = Seen::of(80, 24);
    let window = |seen: &Seen| (seen.app.timeline.from, seen.app.timeline.to);
    assert_eq!(window(&seen), (0, 1_000_000));
    seen.press("+");
    assert_eq!(window(&seen), (250_000, 750_000));
    seen.press("h");
    assert_eq!(window(&seen), (150_000, 650_000));
    seen.press("lllll");
    assert_eq!(window(&seen), (500_000, 1_000_000));
    seen.press("-");
    assert_eq!(window(&seen), (0, 1_000_000));
    seen.press(&"w".repeat(40));
    let (from, to) = window(&seen);
    assert_eq!(to - from, 20);
    seen.press(&"s".repeat(40));
    assert_eq!(window(&seen), (0, 1_000_000));
    seen.press("wg0.2ms\r");
    assert_eq!(window(&seen), (0, 500_000));
    seen.press("g0.7ms\r");
    assert_eq!(window(&seen), (450_000, 950_000));
    seen.press("gsoon\r");
    assert!(seen.app.message.is_some());
    seen.press("0");
    assert_eq!(window(&seen), (0, 1_000_000));
}

/// The call that `--kept` names is selected once it has been read, and only then.
#[test]
fn a_kept_call_is_gone_to() {
    let mut app = App::new(Choice { kept: Some(2), ..Choice::default() });
    app.resize(80, 24);
    let kept = |number, track: Option<u32>, depth| Kept {
        number,
        from: 660_000,
        to: 990_000,
        track,
        depth,
        ..Kept::default()
    };
    let other = kept(1, Some(1), Some(0));
    let mut known = Trace { kept: vec![other, kept(2, None, None)], is_complete: false, ..trace() };
    app.answer(&Request::Trace, Ok(Answer::Trace(known.clone())));
    assert_eq!(app.timeline.selected, None);
    known.kept[1] = kept(2, Some(1), Some(1));
    app.answer(&Request::Trace, Ok(Answer::Trace(known.clone())));
    let place = Place { track: 1, depth: 1, from: 660_000, to: 990_000 };
    assert_eq!(app.timeline.selected.map(|selected| selected.place), Some(place));
    assert!(app.timeline.from > 0 && app.timeline.to == 1_000_000);
    // Afterwards, the user decides.
    app.timeline.selected = None;
    app.answer(&Request::Trace, Ok(Answer::Trace(known)));
    assert_eq!(app.timeline.selected, None);
}

#[test]
fn selecting_goes_along_calls() {
    let mut seen = Seen::of(80, 24);
    let at = |seen: &Seen| {
        let place = seen.app.timeline.selected.unwrap().place;
        (place.track, place.depth, place.from)
    };
    seen.press("J");
    assert_eq!(at(&seen), (1, 0, 0));
    seen.press("J");
    assert_eq!(at(&seen), (1, 1, 10_000));
    seen.press("L");
    assert_eq!(at(&seen), (1, 1, 400_000));
    seen.press("LL");
    assert_eq!(at(&seen), (1, 1, 660_000));
    seen.press("HHH");
    assert_eq!(at(&seen), (1, 1, 10_000));
    seen.press("J");
    assert_eq!(at(&seen), (1, 2, 20_000));
    // It fills the window.
    seen.press("\r");
    assert_eq!((seen.app.timeline.from, seen.app.timeline.to), (6_000, 314_000));
    seen.press("KK");
    assert_eq!(at(&seen), (1, 0, 0));
    seen.press("f");
    assert!(seen.app.timeline.selected.is_none() && seen.app.timeline.folded.contains(&1));
}

#[test]
fn the_tree_folds_searches_and_zooms() {
    let mut seen = Seen::of(80, 24);
    seen.press("2");
    let rows = |seen: &Seen| seen.app.tree.rows.iter().map(|(node, _)| *node).collect::<Vec<_>>();
    assert_eq!(rows(&seen), [1, 2, 4, 3]);
    seen.press("jl");
    assert_eq!(rows(&seen), [1, 2, 5, 6, 4, 3]);
    seen.press("z");
    assert_eq!(rows(&seen), [2, 5, 6]);
    seen.press("Z");
    assert_eq!(rows(&seen), [1, 2, 5, 6, 4, 3]);
    seen.press("C");
    assert_eq!(rows(&seen), [1]);
    seen.press("/leaf\r");
    assert_eq!(seen.app.tree.node(), Some(6));
    seen.press("/漢字\r");
    assert_eq!(seen.app.tree.node(), Some(4));
    seen.press("/nothing such\r");
    assert!(seen.app.message.is_some());
}

#[test]
fn the_table_sorts_filters_and_leads_to_the_slowest_calls() {
    let mut seen = Seen::of(80, 24);
    seen.press("3");
    let shown = |seen: &Seen| {
        seen.app.table.order.iter().map(|at| seen.app.table.table.rows[*at].function).collect::<Vec<_>>()
    };
    assert_eq!(shown(&seen), [3, 4, 2, 5, 0, 1]);
    seen.press(">");
    assert_eq!(shown(&seen)[0], 5);
    seen.press("R");
    assert_eq!(*shown(&seen).last().unwrap(), 5);
    seen.press("fvector");
    assert_eq!(shown(&seen), [4]);
    // A letter there, not the end.
    assert_eq!(seen.press("q"), Flow::Go);
    assert_eq!(shown(&seen), [] as [u32; 0]);
    seen.press("\u{8}\r\r");
    assert_eq!(seen.app.table.instances.as_ref().unwrap().function, 4);
    seen.press("\r");
    assert_eq!(seen.app.view, View::Timeline);
    let place = seen.app.timeline.selected.unwrap().place;
    assert_eq!((place.track, place.depth, place.from, place.to), (1, 2, 20_000, 300_000));
    assert_eq!(seen.press("q"), Flow::Quit);
}

#[test]
fn answers_that_nobody_waits_for_any_more_are_left_out() {
    let mut seen = Seen::of(80, 24);
    seen.press("w3");
    let all = Request::Table(None);
    let range = Some((250_000, 750_000));
    // `r` asks for another part before the first answer.
    seen.app.table.is_there = false;
    assert_eq!(seen.app.requests(), std::slice::from_ref(&all));
    seen.app.key(KeyEvent::new(KeyCode::Char('r'), KeyModifiers::NONE));
    assert_eq!(seen.app.requests(), [Request::Table(range)]);
    seen.app.answer(&all, Ok(Answer::Table(Table { calls: 1, ..table() })));
    assert!(!seen.app.table.is_there);
    seen.app.answer(&Request::Table(range), Ok(Answer::Table(Table { calls: 2, ..table() })));
    assert_eq!(seen.app.table.table.calls, 2);
}

#[test]
fn a_file_that_is_being_opened_is_shown_at_once_and_not_asked_for_calls() {
    let mut app = App::new(Choice { path: "app.ect".into(), ..Choice::default() });
    app.resize(80, 24);
    app.requests();
    let opening = Trace { is_opening: true, is_complete: false, ..trace() };
    app.answer(&Request::Trace, Ok(Answer::Trace(opening)));
    assert_eq!(app.requests(), []);
    let seen = Seen { app, palette: Palette::None };
    let lines = seen.lines();
    assert!(lines[0].ends_with("counting events…") && lines[2].contains("app"), "{lines:#?}");
    // While it is read, the window is asked for again.
    let mut app = seen.app;
    let reading = Trace { is_complete: false, percent: 30, ..trace() };
    app.answer(&Request::Trace, Ok(Answer::Trace(reading.clone())));
    assert!(matches!(app.requests().as_slice(), [Request::Window(Window { from: 0, to: 1_000_000, .. })]));
    app.answer(&Request::Trace, Ok(Answer::Trace(reading)));
    assert!(matches!(app.requests().as_slice(), [Request::Window(_)]));
}

#[test]
fn colours_are_those_that_the_terminal_has() {
    let of = |set: &[(&str, &str)]| {
        let set: Vec<(String, String)> =
            set.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Palette::of_environment(move |name| {
            set.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone())
        })
    };
    assert_eq!(of(&[("TERM", "xterm")]), Palette::Basic);
    assert_eq!(of(&[("TERM", "xterm-256color")]), Palette::Many);
    assert_eq!(of(&[("TERM", "xterm-256color"), ("NO_COLOR", "1")]), Palette::None);
    assert_eq!(of(&[("NO_COLOR", ""), ("COLORTERM", "truecolor")]), Palette::Many);
}
