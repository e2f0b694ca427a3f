//! `everycall follow`: what it prints while a program runs is what a recording of the same program shows.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everycall_live::{Control, attach};
use everycall_tests::{Mode, Place, Standing, everycall, successful, wait};
use serde_json::Value;

const MODES: [Mode; 4] = [Mode::GCC_NOPS, Mode::GCC_FENTRY, Mode::CLANG19_XRAY, Mode::GCC_FINSTRUMENT];

/// `everycall follow`, with its output in files.
struct Following {
    child: Child,
    place: std::path::PathBuf,
}

impl Following {
    fn start(place: &Place, standing: &mut Standing, words: &[&str]) -> Following {
        Following::start_by(&mut Command::new(everycall()), place, standing, words)
    }

    fn start_by(command: &mut Command, place: &Place, standing: &mut Standing, words: &[&str]) -> Following {
        let folder = place.path().to_owned();
        let output = File::create(folder.join("followed.txt")).unwrap();
        let messages = File::create(folder.join("followed.err")).unwrap();
        command.args(["follow", &standing.pid.to_string()]).args(words);
        let child = command.stdin(Stdio::piped()).stdout(output).stderr(messages).spawn().unwrap();
        let mut following = Following { child, place: folder };
        // A process notices at one of its events that somebody asks for it.
        wait::until("follow to begin", || {
            if following.messages().contains("following") {
                return true;
            }
            assert!(following.child.try_wait().unwrap().is_none(), "{}", following.messages());
            standing.go_on();
            false
        });
        following
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.place.join("followed.err")).unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.place.join("followed.txt")).unwrap()
    }

    fn end(mut self) -> String {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}", self.messages());
        self.text()
    }
}

/// A call as either shows it: its depth, its name, whether it was unwound.
type Shown = (usize, String, bool);
/// With its start and its depth.
type Timed = (u64, u64, Shown);

/// The lines of `follow`, by the name of their thread.
fn followed(text: &str) -> BTreeMap<String, Vec<Shown>> {
    let mut threads: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    let mut open: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for line in text.lines() {
        let (_, rest) = line.split_once("  ").unwrap();
        let (thread, rest) = match rest.strip_prefix('[') {
            Some(rest) => rest.split_once("]  ").unwrap(),
            None => ("", rest),
        };
        let name = thread.split_once(' ').map_or("", |(_, name)| name).to_owned();
        let call = rest.trim_start();
        let depth = (rest.len() - call.len()) / 2;
        let is_unwound = call.contains("unwound");
        let calls = threads.entry(name.clone()).or_default();
        let open = open.entry(thread.to_owned()).or_default();
        let plain = call.trim_start_matches("} ").trim_start_matches("=> ").split(" #").next().unwrap();
        // What a call threw isn't known when it begins.
        let plain = plain.split(" threw ").next().unwrap().to_owned();
        if call.starts_with("} ") {
            let begun = open.pop().unwrap_or_else(|| panic!("ends without a begin: {line}"));
            assert_eq!(calls[begun].1, plain, "{line}");
            calls[begun].2 = is_unwound;
        } else {
            if call.ends_with('{') {
                open.push(calls.len());
            }
            calls.push((depth, plain, is_unwound));
        }
    }
    assert!(open.values().all(Vec::is_empty), "{text}");
    threads
}

/// The calls of a recording, by the name of their thread.
fn recorded(file: &Path) -> BTreeMap<String, Vec<Shown>> {
    let mut command = Command::new(everycall());
    let text = successful(command.args(["replay", "--format", "json", "--function", "^round_of"]).arg(file));
    let mut calls: BTreeMap<(u64, String), Vec<Timed>> = BTreeMap::new();
    for line in text.lines() {
        let call: Value = serde_json::from_str(line).unwrap();
        let Some(start) = call["start_ns"].as_u64() else { continue };
        let depth = call["depth"].as_u64().unwrap();
        let is_unwound = call["remarks"].to_string().contains("unwound");
        let shown = (depth as usize, call["name"].as_str().unwrap().to_owned(), is_unwound);
        let key = (call["tid"].as_u64().unwrap(), call["thread"].as_str().unwrap().to_owned());
        calls.entry(key).or_default().push((start, depth, shown));
    }
    let mut threads: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for ((_, thread), mut calls) in calls {
        // They stand in the order of their ends.
        calls.sort_by_key(|(start, depth, _)| (*start, *depth));
        threads.entry(thread).or_default().extend(calls.into_iter().map(|(_, _, shown)| shown));
    }
    threads
}

/// The calls below the first call of each round.
fn rounds(calls: &[Shown]) -> Vec<Vec<Shown>> {
    let mut rounds: Vec<Vec<Shown>> = Vec::new();
    for call in calls {
        match rounds.last_mut() {
            _ if call.1.starts_with("round_of") => rounds.push(vec![call.clone()]),
            Some(round) => round.push(call.clone()),
            None => {}
        }
    }
    rounds
}

fn program(place: &Place, mode: Mode) -> std::path::PathBuf {
    place.build(mode, &["-O1", "-g", "followed.cpp", "-pthread"], &format!("followed-{}", mode.label()))
}

/// How many sites are on, and the program's functions as they are in memory.
fn on(standing: &Standing, program: &Path) -> (u64, Vec<u8>) {
    let arena = attach(standing.pid).unwrap();
    let now = Control::connect(&arena, Duration::from_secs(30)).unwrap().now().unwrap().0;
    let nm = successful(Command::new("nm").arg("-S").arg(program));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", standing.pid)).unwrap();
    let base = maps.lines().find(|line| line.ends_with(program.to_str().unwrap())).unwrap();
    let base = u64::from_str_radix(base.split('-').next().unwrap(), 16).unwrap();
    let memory = File::open(format!("/proc/{}/mem", standing.pid)).unwrap();
    let mut code = Vec::new();
    for name in [" _Z4leafi", " _Z4slowi", " _Z6hiddeni"] {
        let symbol: Vec<&str> = nm.lines().find(|line| line.ends_with(name)).unwrap().split(' ').collect();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let start = code.len();
        code.resize(start + number(symbol[1]) as usize, 0);
        memory.read_exact_at(&mut code[start..], base + number(symbol[0])).unwrap();
    }
    (now.sites_on, code)
}

#[test]
fn the_followed_tree_is_the_recorded_one() {
    let place = Place::new("follow");
    for mode in MODES {
        let program = program(&place, mode);
        let file = place.path().join("recorded.ect");
        let input = place.path().join("input");
        std::fs::write(&input, "x\n").unwrap();
        let mut record = Command::new(everycall());
        record.args(["record", "-q", "-o"]).arg(&file).arg("--").arg(&program);
        successful(record.stdin(File::open(&input).unwrap()));
        let wanted = recorded(&file);
        let main = wanted.keys().find(|name| *name != "helper").unwrap().clone();

        let mut standing = Standing::alone(&program, &[]);
        let following = Following::start(
            &place,
            &mut standing,
            &["round_of", "*fib*", "*", "--level", "0:helper", "--level", "0:main"],
        );
        for _ in 0..3 {
            standing.go_on();
        }
        let (status, _) = standing.end();
        assert!(status.success());
        let text = following.end();
        let found = followed(&text);
        for thread in [main.as_str(), "helper"] {
            let wanted = rounds(&wanted[thread]);
            assert_eq!(wanted.len(), 1, "{mode:?}");
            let found = rounds(&found[thread]);
            assert!(found.len() >= 3, "{mode:?}: {text}");
            for round in &found[found.len() - 3..] {
                assert_eq!(*round, wanted[0], "{mode:?} {thread}:\n{text}");
            }
        }
        assert!(wanted[&main].iter().any(|(_, _, is_unwound)| *is_unwound), "nothing was thrown");
        // Each function's calls are numbered in the order of time.
        let numbers: Vec<u64> = text
            .lines()
            .filter(|line| line.contains(" leaf(int) #"))
            .map(|line| line.split(" #").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{mode:?}: {numbers:?}");
    }
}

#[test]
fn levels_say_how_much_is_shown_and_change_meanwhile() {
    use std::io::Write as _;
    let place = Place::new("follow-levels");
    let program = program(&place, Mode::GCC_NOPS);
    let mut standing = Standing::alone(&program, &["alone"]);
    let words = ["round_of", "--level", "1:catcher", "--level", "3:hidden", "--commands", "--clock", "trace"];
    let mut following = Following::start(&place, &mut standing, &words);
    standing.go_on();
    wait::until("a whole round", || following.text().contains("} round_of"));
    let text = following.text();
    // One line, and nothing of what it calls; all functions are recorded by default, so all of `hidden`'s are shown.
    assert!(text.lines().any(|line| line.contains("  catcher(int) #") && !line.ends_with('{')), "{text}");
    assert!(!text.contains("thrower") && !text.contains("fibonacci") && !text.contains("slow"), "{text}");
    assert!(text.contains("hidden(int) #1 {") && text.contains("    leaf(int) #1  "), "{text}");
    assert!(!text.contains('['), "one thread needs no name: {text}");
    // From now on something else.
    let input = following.child.stdin.as_mut().unwrap();
    input.write_all(b"0 catcher\n2 slow\nunknown\n1 hiden\n").unwrap();
    wait::until("the commands", || following.messages().contains("hiden"));
    let messages = following.messages();
    assert!(
        messages.contains("`unknown`: write a level") && messages.contains("there is hidden"),
        "{messages}"
    );
    let before = following.text().len();
    wait::until("another round", || {
        standing.go_on();
        following.text()[before..].contains("} round_of")
    });
    standing.go_on();
    following.child.stdin.as_mut().unwrap().write_all(b"quit\n").unwrap();
    let text = following.end();
    assert!(text[before..].contains("slow(int) #") && !text[before..].contains("catcher"), "{text}");
    assert!(standing.end().0.success());
}

#[test]
fn functions_have_levels_by_attribute() {
    let place = Place::new("follow-attributes");
    let include = format!("-I{}", concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/building/kit/include"));
    for mode in MODES {
        let program = place.build(mode, &["-O2", "-g", &include, "levels.c"], &mode.label());
        let shown = |words: &[&str]| {
            let mut command = place.command(everycall());
            let text = successful(command.args(["follow", "-q"]).args(words).arg("--").arg(&program));
            let count = |name: &str| {
                let begins = text.lines().filter(|line| line.contains(&format!(" {name} #")));
                begins.filter(|line| !line.contains("} ")).count()
            };
            (["other", "quiet", "brief", "leaf"].map(count), text)
        };
        // Calls within `quiet` are shown in place of it; of `brief`, one line is.
        let (counts, text) = shown(&["*"]);
        assert_eq!(counts, [3, 0, 3, 3], "{mode:?}: {text}");
        // A level of the command line precedes; sections choose functions.
        assert_eq!(shown(&["*", "--level", "2:quiet", "--level", "2:brief"]).0, [3, 3, 3, 6], "{mode:?}");
        assert_eq!(shown(&["leaf", "quiet"]).0, [0, 0, 0, 6], "{mode:?}");
        assert_eq!(shown(&["section:everycall_level_*"]).0, [3, 0, 3, 0], "{mode:?}");
    }
}

#[test]
fn losses_are_said_in_place() {
    let place = Place::new("follow-losses");
    let program = program(&place, Mode::GCC_NOPS);
    let mut command = Command::new(&program);
    let mut standing = Standing::start(command.env("EVERYCALL_RING_SIZE", "64K"));
    // Once it has said that it follows, the follower stops, before it reads anything: the ring is
    // overwritten many times meanwhile.
    let mut stopped = Command::new("strace");
    stopped.arg("-o").arg(place.file("calls.txt"));
    stopped.args(["-e", "trace=write", "-e", "inject=write:signal=SIGSTOP:when=1"]).arg(everycall());
    let following = Following::start_by(&mut stopped, &place, &mut standing, &["leaf", "round_of"]);
    standing.tell("many\n");
    standing.go_on();
    let (status, _) = standing.end();
    assert!(status.success());
    let follower = wait::children(following.child.id()).first().copied().unwrap();
    successful(Command::new("kill").args(["-CONT", &follower.to_string()]));
    let text = following.end();
    let lost: u64 = text
        .lines()
        .filter_map(|line| line.split("... ").nth(1)?.strip_suffix(" events lost"))
        .map(|count| count.replace(',', "").parse::<u64>().unwrap())
        .sum();
    let leaves = text.lines().filter(|line| line.contains(" leaf(int) #")).count() as u64;
    // Every event of the three million calls is shown or counted; rounds come before and after.
    let rest = 6_000_000_u64.saturating_sub(lost);
    assert!(lost > 0, "nothing was lost of {leaves}");
    // Of a call at a gap, one event may be shown as part of no call.
    let gaps = text.lines().filter(|line| line.ends_with(" events lost")).count() as u64;
    assert!(
        2 * leaves + 4 * gaps >= rest && 2 * leaves <= rest + 4 * gaps + 1000,
        "{leaves} calls are shown, {lost} events lost"
    );
}

#[test]
fn functions_are_off_again_when_the_follower_is_killed() {
    let place = Place::new("follow-killed");
    for mode in MODES {
        let program = program(&place, mode);
        let mut command = Command::new(&program);
        let mut standing = Standing::start(command.env("EVERYCALL_START", "off"));
        // A site that was on once has other bytes when it is off than one that never was.
        let mut before = None;
        for _ in 0..2 {
            assert_eq!(on(&standing, &program).0, 0, "{mode:?}");
            let mut following = Following::start(&place, &mut standing, &["leaf", "slow"]);
            standing.go_on();
            wait::until("calls", || following.text().contains("slow(int) #"));
            if let Some(before) = &before {
                let has_sites = matches!(mode.name, "nops" | "xray");
                assert_eq!(on(&standing, &program) != *before, has_sites, "{mode:?}");
            }
            following.child.kill().unwrap();
            following.child.wait().unwrap();
            wait::until("sites that are off", || on(&standing, &program).0 == 0);
            let after = on(&standing, &program);
            assert!(before.is_none_or(|before| before == after), "{mode:?}");
            before = Some(after);
        }
        standing.go_on();
        assert!(standing.end().0.success());
    }
}

#[test]
fn programs_are_followed_from_their_first_call_to_their_last() {
    let place = Place::new("follow-started");
    for mode in MODES {
        let program = place.build(mode, &["-O1", "talking.c"], &format!("talking-{}", mode.label()));
        let follow = |words: &[&str], arguments: &[&str]| {
            let mut command = Command::new(everycall());
            command
                .arg("follow")
                .args(words)
                .args(["leaf", "before", "after", "main", "--"])
                .arg(&program)
                .args(arguments);
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(7), "{text}");
            (text, String::from_utf8(output.stderr).unwrap())
        };
        // However short it lives.
        for _ in 0..5 {
            let (text, _) = follow(&["--clock", "raw"], &["quick"]);
            let names = ["main", "before", "leaf", "after", "leaf"];
            let depths = [0, 1, 2, 1, 2];
            let wanted: Vec<Shown> =
                depths.into_iter().zip(names).map(|(depth, name)| (depth, name.to_owned(), false)).collect();
            // `leaf` may be called in the place of its caller, as optimizers do; its names stay.
            let found = followed(&text);
            let found: Vec<&str> = found[""].iter().map(|(_, name, _)| name.as_str()).collect();
            assert_eq!(found, names, "{mode:?} {wanted:?}");
        }
        // Its output stands where it was written, between the calls around it.
        let (text, errors) = follow(&["--with-output"], &[]);
        assert!(!errors.contains("error 0"), "{errors}");
        let place_of = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
        for n in 0..5 {
            let (before, after) = (format!("before #{} ", n + 1), format!("  after #{} ", n + 1));
            let error = if n == 4 { "2| no end".to_owned() } else { format!("2| error {n}\n") };
            for line in [format!("1| line {n}\n"), error] {
                let is_last = line.contains("no end");
                assert!(place_of(&before) < place_of(&line), "{mode:?}: {text}");
                assert!(is_last || place_of(&line) < place_of(&after), "{mode:?}: {text}");
            }
        }
    }
    let said = |words: &[&str]| {
        let output = Command::new(everycall()).arg("follow").args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&["leaf", "--", "/bin/true"]).contains("has no traced functions"));
    assert!(said(&["leaf", "--", "./nothing"]).contains("can't be read"));
    assert!(said(&["--", "/bin/true"]).contains("name the functions"));
    assert!(said(&["1", "leaf", "--with-output"]).contains("PROGRAM"));
}

#[test]
fn short_threads_are_shown_or_counted() {
    let place = Place::new("follow-short-threads");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "short_threads.c", "-pthread"], "short_threads");
    for threads in [8, 12_000] {
        let mut command = Command::new(everycall());
        command.args(["follow", "leaf", "middle", "--"]).arg(&program).arg(threads.to_string());
        let text = successful(&mut command);
        let shown = text.lines().filter(|line| line.contains(" leaf #")).count();
        let missed = |line: &str| -> usize {
            let count = line.split("... calls of ").nth(1).and_then(|rest| rest.split(' ').next());
            count.map_or(0, |count| count.replace(',', "").parse().unwrap())
        };
        let missed: usize = text.lines().map(missed).sum();
        assert_eq!(shown + missed, threads, "{missed} missed");
        followed(&text.lines().filter(|line| !line.contains("... ")).collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn a_killed_programs_last_calls_are_shown() {
    let place = Place::new("follow-program-killed");
    let program = program(&place, Mode::GCC_NOPS);
    let mut child =
        Command::new(&program).arg("alone").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let mut input = child.stdin.take().unwrap();
    // It is loaded, and its calls can be followed.
    let mut ready = String::new();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    said.read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let output = File::create(place.path().join("out.txt")).unwrap();
    let errors = File::create(place.path().join("err.txt")).unwrap();
    let mut follow = Command::new(everycall())
        .args(["follow", &pid.to_string(), "round_of", "slow", "leaf"])
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap();
    wait::until("a call that waits", || {
        use std::io::Write as _;
        assert!(follow.try_wait().unwrap().is_none(), "{}", read("err.txt"));
        let _ = input.write_all(b"\n");
        std::thread::sleep(Duration::from_millis(20));
        let text = read("out.txt");
        text.lines().last().is_some_and(|line| line.contains("leaf(int) #")) && text.contains("slow(int) #")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(follow.wait().unwrap().success());
    let text = read("out.txt");
    followed(&text);
    assert!(read("err.txt").contains("has ended"));
    let last: Vec<&str> = text.lines().rev().take(2).collect();
    // It was in one of its pauses, or between two rounds.
    let is_cut = last.iter().all(|line| line.contains("} ") && line.contains("truncated at end"));
    assert!(is_cut || last[0].contains("} round_of"), "{text}");
}

#[test]
fn wrong_input_is_explained() {
    let place = Place::new("follow-wrong");
    let program = program(&place, Mode::GCC_NOPS);
    let mut standing = Standing::alone(&program, &[]);
    let pid = standing.pid.to_string();
    let said = |words: &[&str]| {
        let output = Command::new(everycall()).arg("follow").args(words).output().unwrap();
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&[]).contains("everycall follow 1234"));
    assert!(said(&["leaf"]).contains("`everycall ps` lists"));
    assert!(said(&[&pid]).contains("name the functions"));
    assert!(said(&[&pid, "fibonaci"]).contains("there is fibonacci"));
    assert!(said(&[&pid, "--level", "7:leaf"]).contains("from 0 to 3"));
    assert!(said(&[&pid, "--level", "0:leaf"]).contains("name the functions"));
    standing.go_on();
    assert!(standing.end().0.success());
}
