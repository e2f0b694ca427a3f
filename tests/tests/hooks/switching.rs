//! Sites go off and on while all threads run, whatever else happens to the process.
//! `EVERYCALL_SWITCHINGS` is the number of switches in each test.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use everycall_format::arena::counter;
use everycall_tests::{Mode, Place, everycall, number_asked, successful};

/// Each kind of site, and of plain calls.
const MODES: [Mode; 5] =
    [Mode::GCC_NOPS, Mode::CLANG19_XRAY, Mode::CLANG22_XRAY, Mode::GCC_FENTRY, Mode::GCC_FINSTRUMENT];
/// Those with sites.
const SITED: [Mode; 2] = [Mode::GCC_NOPS, Mode::CLANG19_XRAY];
/// The program's message if the system doesn't support what it was to try.
const CANT: i32 = 77;

fn times() -> String {
    number_asked("EVERYCALL_SWITCHINGS").unwrap_or(1000).to_string()
}

fn program(place: &Place, mode: Mode) -> PathBuf {
    let name = format!("switching-{}", mode.label());
    place.build(mode, &["-O2", "switching.c", "-pthread"], &name)
}

fn run(place: &Place, program: &Path, how: &str) -> Output {
    place.command(program).args([how, &times()]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_fine(output: &Output, what: &str) {
    assert!(output.status.success(), "{what}: {output:?}");
    assert!(text(&output.stdout).starts_with("fine "), "{what}: {output:?}");
}

#[test]
fn results_stay_right_while_sites_are_switched() {
    let place = Place::new("switching");
    for mode in MODES {
        let program = program(&place, mode);
        for how in ["plain", "both"] {
            is_fine(&run(&place, &program, how), &format!("{mode:?}, {how}"));
        }
        let recording = place.record(&["--ring-size", "256K"], &program, &["both", "200"]);
        is_fine(&recording.output, "recorded");
        let trace = recording.trace();
        assert!(trace.calls("mixed") >= 3, "{mode:?}: on at the end");
        assert_eq!(trace.counters[counter::SITES_UNPATCHED], 0, "{mode:?}");
        assert!(trace.warnings.is_empty(), "{mode:?}: {:?}", trace.warnings);
    }
}

/// Sites are NOPs while tracing is off, and a thread that could not notice it still reports the
/// gap.
#[test]
fn a_thread_without_events_meanwhile_has_its_gap() {
    let place = Place::new("switching-phases");
    for mode in MODES {
        let program = program(&place, mode);
        let recording = place.record(&[], &program, &["phases"]);
        let entry = match mode.name {
            "nops" => "e8 ?? ??, 0f 1f 44, e8 ?? ??, fine",
            "xray" => "0f 1f 00, 0f 1f 84, 0f 1f 00, fine",
            _ => "",
        };
        let shown = recording.stdout();
        let is_like = |(shown, wanted): (char, char)| shown == wanted || wanted == '?';
        assert!(shown.chars().zip(entry.chars()).all(is_like), "{mode:?}: {shown}");
        assert!(shown.ends_with("fine\n"), "{mode:?}: {recording:?}");
        let trace = recording.trace();
        assert_eq!((trace.calls("mixed"), trace.calls("unseen")), (2, 0), "{mode:?}");
        assert!(trace.warnings.is_empty(), "{mode:?}: {:?}", trace.warnings);
        let replayed = successful(place.command(everycall()).arg("replay").arg(&recording.file));
        assert_eq!(replayed.matches("tracing was disabled").count(), 1, "{mode:?}\n{replayed}");
    }
}

/// A child has the sites that its parent had in the middle of a switch.
#[test]
fn children_forked_in_the_middle_of_a_switch_are_whole() {
    let place = Place::new("switching-forks");
    for mode in SITED {
        is_fine(&run(&place, &program(&place, mode), "forks"), &format!("{mode:?}"));
    }
}

/// If text must not be written, it isn't: the program continues, is switched by its hooks alone, or
/// stays off.
#[test]
fn hardened_processes_are_left_alone() {
    let place = Place::new("switching-hardened");
    for mode in SITED {
        let program = program(&place, mode);
        for how in ["mdwe", "filter-refuses", "filter-kills"] {
            let recording = place.record(&[], &program, &[how, "100"]);
            if recording.output.status.code() == Some(CANT) {
                continue;
            }
            let what = format!("{mode:?}, {how}");
            is_fine(&recording.output, &what);
            let trace = recording.trace();
            // They had been switched on before.
            assert_eq!(trace.counters[counter::SITES_UNPATCHED], 0, "{what}");
            assert!(trace.calls("mixed") >= 3, "{what}");
        }
        for how in ["under-mdwe", "under-filter"] {
            let output = place.command(&program).args([how, "100"]).output().unwrap();
            if output.status.code() == Some(CANT) {
                continue;
            }
            is_fine(&output, how);
            let recording = place.record(&[], &program, &[how, "100"]);
            let what = format!("{mode:?}, {how}");
            is_fine(&recording.output, &what);
            let mut info = place.command(everycall());
            let shown = successful(info.arg("info").arg(&recording.file));
            assert!(shown.contains("could not be switched on"), "{what}: {shown}");
        }
    }
}

/// The trace of a process that was killed in the middle of a switch can be read.
#[test]
fn killed_in_the_middle_of_a_switch() {
    let place = Place::new("switching-killed");
    for mode in SITED {
        let program = program(&place, mode);
        for delay in 0..5 {
            let file = place.file("killed.ect");
            let mut record = Command::new(everycall());
            record.arg("record").arg("-o").arg(&file).arg("--").arg("sh").arg("-c");
            record.arg(format!("echo $$; exec '{}' endless 100", program.display()));
            let mut running = record.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
            let pid = lines.next().unwrap().unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "toggling");
            sleep(Duration::from_micros(5000 + 777 * delay));
            assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
            let _ = running.wait().unwrap();
            let shown =
                successful(Command::new(everycall()).arg("info").arg(&file).current_dir(place.path()));
            assert!(shown.contains("switching"), "{mode:?}: {shown}");
        }
    }
}

/// Breakpoints at the sites themselves: gdb's bytes stay, and after their removal the original
/// bytes run.
#[test]
fn breakpoints_and_switches_leave_each_other_alone() {
    if Command::new("gdb").arg("--version").output().is_err() {
        eprintln!("no gdb: not tested");
        return;
    }
    let place = Place::new("switching-gdb");
    for mode in SITED {
        let program = place.build(mode, &["-O2", "-no-pie", "switching.c", "-pthread"], mode.name);
        // All functions' first bytes: hit some times, then deleted, while the program keeps
        // switching.
        let symbols = successful(place.command("nm").arg(&program));
        let address =
            |name: &str| symbols.lines().find_map(|line| line.strip_suffix(name)?.split(' ').next());
        let places = ["leaf", "sum", "tail", "check"].map(|name| address(&format!(" T {name}")).unwrap());
        let places: String = places.iter().map(|address| format!("break *0x{address}\n")).collect();
        let script = format!(
            "set pagination off\nset breakpoint pending off\nset confirm off\ntbreak main\nrun plain 300\n{places}continue\n\
             ignore 2 400\nignore 3 100\nignore 4 200\nignore 5 50\ncontinue\ncontinue\ncontinue\ndelete\ncontinue\n"
        );
        let script = place.write("commands", &script);
        let output =
            place.command("gdb").args(["-nx", "-batch", "-x"]).arg(&script).arg(&program).output().unwrap();
        let shown = text(&output.stdout);
        assert!(shown.contains("fine "), "{mode:?}: {shown} {}", text(&output.stderr));
        assert!(shown.contains("exited normally"), "{mode:?}: {shown}");
        assert!(shown.contains("hit Breakpoint"), "{mode:?}: {shown}");
    }
}
