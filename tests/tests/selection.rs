//! Other processes choose which functions a running program records.

use std::path::Path;
use std::time::Duration;

use everycall_control::{Module, SelectionSet};
use everycall_live::{Control, LiveArena, attach};
use everycall_tests::{Mode, Place, Standing, TraceView};
use object::{Object, ObjectSymbol};

/// Modes whose sites are switched.
const SITED: [Mode; 2] = [Mode::GCC_NOPS, Mode::CLANG19_XRAY];
const PATIENCE: Duration = Duration::from_secs(30);

fn program(place: &Place, mode: Mode) -> std::path::PathBuf {
    place.build(mode, &["-O2", "selected.c", "-pthread"], &format!("selected-{}", mode.label()))
}

/// A selection of these functions of a program, by its symbol table.
fn only(program: &Path, functions: &[&str]) -> Vec<u8> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let named = |name: &&str| {
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        (symbol.address(), symbol.address() + symbol.size())
    };
    let mut ranges: Vec<_> = functions.iter().map(named).collect();
    ranges.sort_unstable();
    let build_id = file.build_id().unwrap().unwrap().to_vec();
    let modules = vec![Module { path: program.to_owned(), build_id, ranges }];
    let rules = functions.iter().map(|name| format!("+ {name}")).collect();
    SelectionSet { rules, others: false, modules }.bytes().unwrap()
}

fn arena(standing: &Standing) -> LiveArena {
    attach(standing.pid).unwrap()
}

/// How often red, green and blue were recorded so far.
fn counts(place: &Place, standing: &Standing) -> [u64; 3] {
    let (file, _) = standing.snapshot(place, &["-q"]);
    let trace = TraceView::open(&file);
    ["red", "green", "blue"].map(|name| trace.calls(name))
}

#[test]
fn functions_are_recorded_as_selected() {
    let place = Place::new("selection");
    for mode in SITED {
        let program = program(&place, mode);
        let mut standing = Standing::alone(&program, &[]);
        assert_eq!(counts(&place, &standing), [20, 20, 10], "{mode:?}");
        // The request is noticed at the next event of an epoch of the clock.
        let arena = arena(&standing);
        let mut control = std::thread::scope(|scope| {
            let connecting = scope.spawn(|| Control::connect(&arena, PATIENCE));
            while !connecting.is_finished() {
                standing.go_on();
                std::thread::sleep(Duration::from_millis(50));
            }
            connecting.join().unwrap().unwrap()
        });
        let [_, green, blue] = counts(&place, &standing);
        let (now, set) = control.now().unwrap();
        assert!(set.is_empty() && now.on == 1 && now.has_base == 0 && now.pid == standing.pid, "{now:?}");

        let reply = control.set(true, &only(&program, &["red"])).unwrap();
        assert!(reply.sites_on > 0 && reply.sites_off > 0, "{reply:?}");
        assert_eq!((reply.foreign, reply.failed), (0, 0), "{reply:?}");
        let before = counts(&place, &standing);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 20, green, blue], "{mode:?}");
        // What is recorded outlives the connection.
        drop(control);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 40, green, blue], "{mode:?}");

        // The process listens on, so a request needs no event.
        let mut control = Control::connect(&arena, PATIENCE).unwrap();
        let (_, set) = control.now().unwrap();
        assert_eq!(SelectionSet::rules_of(&set).unwrap().rules, ["+ red"]);
        assert_eq!(control.set(false, &[]).unwrap().sites_on, 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 40, green, blue], "{mode:?}");
        assert_eq!(control.set(true, &[]).unwrap().sites_off, 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [before[0] + 60, green + 20, blue + 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}

/// A session records what it names in addition, and is gone with its owner.
#[test]
fn sessions_end_with_their_connections() {
    let place = Place::new("selection-sessions");
    for mode in SITED {
        let program = program(&place, mode);
        let mut command = place.command(&program);
        let mut standing = Standing::start(command.arg("1").env("EVERYCALL_START", "off"));
        let arena = arena(&standing);
        let mut reds = Control::connect(&arena, PATIENCE).unwrap();
        let mut blues = Control::connect(&arena, PATIENCE).unwrap();
        reds.open("reds", &only(&program, &["red"])).unwrap();
        blues.open("blues", &only(&program, &["blue", "red"])).unwrap();
        assert_eq!(blues.now().unwrap().0.sites_on, 0, "not active yet");
        assert!(reds.activate().unwrap().sites_on > 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [20, 0, 0], "{mode:?}");
        blues.activate().unwrap();
        let (_, sessions) = reds.sessions().unwrap();
        let named = |index: usize| everycall_format::until_nul(&sessions[index].name).to_vec();
        assert_eq!((named(0), named(1), sessions.len()), (b"reds".to_vec(), b"blues".to_vec(), 2));
        assert!(sessions.iter().all(|session| session.active == 1 && session.sites > 0 && session.since > 0));
        assert_eq!(sessions[0].owner, std::process::id());
        standing.go_on();
        assert_eq!(counts(&place, &standing), [40, 0, 10], "{mode:?}");
        drop(blues);
        everycall_tests::wait::until("the session is gone", || reds.sessions().unwrap().1.len() == 1);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [60, 0, 10], "{mode:?}");
        drop(reds);
        let mut control = Control::connect(&arena, PATIENCE).unwrap();
        everycall_tests::wait::until("all is off", || control.now().unwrap().0.sites_on == 0);
        standing.go_on();
        assert_eq!(counts(&place, &standing), [60, 0, 10], "{mode:?}");
        let (status, printed) = standing.end();
        assert!(status.success() && printed.ends_with(" 0 wrong\n"), "{printed}");
    }
}
