//! Every command of README.md and docs is run, as its reader would: in a folder with a real
//! program. A document may not contain a command that isn't known here, and the list of commands
//! that can't be run may not contain one that is in no document.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use everycall_tests::python::{Environment, SYSTEM};
use everycall_tests::{Mode, Place, everycall, is_full, wait};

use extract::{Documented, commands, documents};
use table::{PLACEHOLDERS, Run, TABLE};

mod extract;
mod table;

const APP_CPP: &str = "#include <everycall.h>\n#include <string>\n#include <unistd.h>\n\
    __attribute__((noinline)) void handle_request(int id) { everycall_label(\"request\", id); usleep(100); }\n\
    int main() { for (int id = 0; id < 50; id++) handle_request(id); }\n";
const APP_C: &str = "__attribute__((noinline)) void handle(void) { __asm__ volatile(\"\"); }\nint main(void) { handle(); return 0; }\n";
/// `server [MILLISECONDS]`: without, it runs until it is killed.
const SERVER_C: &str = "#include <fcntl.h>\n#include <stdlib.h>\n#include <time.h>\n#include <unistd.h>\n\
    __attribute__((noinline)) void handle_request(int id) { usleep(id % 5 ? 500 : 25000); }\n\
    int main(int count, char **arguments) {\n\
        struct timespec begin, now;\n\
        clock_gettime(CLOCK_MONOTONIC, &begin);\n\
        for (int id = 0;; id++) {\n\
            handle_request(id);\n\
            if (id == 30) close(creat(\"called\", 0600));\n\
            clock_gettime(CLOCK_MONOTONIC, &now);\n\
            if (count > 1 && (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 > atoi(arguments[1])) return 0;\n\
        }\n\
    }\n";
const PLUGIN_C: &str = "#include <unistd.h>\nint calls;\nvoid plugged(void) { usleep(3000); calls++; }\nvoid handle_request(int id) { (void)id; }\n";
/// A program as it is, which loads a plugin.
const HOST_C: &str = "#include <dlfcn.h>\n#include <fcntl.h>\n#include <unistd.h>\n\
    int main(int count, char **arguments) {\n\
        void *plugin = dlopen(arguments[1], RTLD_NOW);\n\
        if (!plugin) return count;\n\
        void (*plugged)(void) = (void (*)(void))dlsym(plugin, \"plugged\");\n\
        for (int round = 0; round < 50 || count > 2; round++) {\n\
            plugged(); usleep(5000);\n\
            if (round == 10) close(creat(\"called\", 0600));\n\
        }\n\
        return 0;\n\
    }\n";
const APP_PY: &str =
    "import everycall\ndef handle(): everycall.label('request', 7)\neverycall.start()\nhandle()\n";
const APP_MK: &str = "made: app.c\n\t$(CC) -O1 app.c -o made\n";
const CMAKE: &str = "cmake_minimum_required(VERSION 3.21)\nproject(app CXX)\nadd_executable(app app.cpp)\n\
     execute_process(COMMAND everycall integrate integration)\n";
/// Longest time that a command takes.
const TIME_MAX: Duration = Duration::from_secs(300);

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn all_commands() -> Vec<Documented> {
    let read = |path: PathBuf| {
        let name = path.strip_prefix(workspace()).unwrap().display().to_string();
        commands(&name, &fs::read_to_string(&path).unwrap())
    };
    documents(&workspace()).into_iter().flat_map(read).collect()
}

/// A folder with programs, a running server, and the files of a process that died.
struct Scene {
    place: Place,
    path: String,
    server: Option<Child>,
    crash_file: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Scene {
    fn set() -> Scene {
        let place = Place::new("documented");
        let tools = place.file("tools");
        fs::create_dir(&tools).unwrap();
        for name in ["everycall", "everycall-gcc", "everycall-g++"] {
            std::os::unix::fs::symlink(everycall(), tools.join(name)).unwrap();
        }
        let subcommand = everycall().with_file_name("cargo-everycall");
        std::os::unix::fs::symlink(subcommand, tools.join("cargo-everycall")).unwrap();
        let python = Environment::new(Path::new(SYSTEM), &place.file("environment"));
        let path = format!("{}:{}", tools.display(), python.search_path());
        for (name, text) in [
            ("app.cpp", APP_CPP),
            ("app.c", APP_C),
            ("app.py", APP_PY),
            ("package.py", APP_PY),
            ("server.c", SERVER_C),
            ("app.mk", APP_MK),
            ("CMakeLists.txt", CMAKE),
            ("plugin.c", PLUGIN_C),
            ("host.c", HOST_C),
            ("service.cpp", include_str!("../../../examples/service/service.cpp")),
        ] {
            place.write(name, text);
        }
        place.build(Mode::GCC_NOPS, &["-O1", "-g", "server.c"], "server");
        place.build(Mode::GCC_NOPS, &["-O1", "-shared", "-fPIC", "plugin.c"], "plugin.so");
        let mut scene = Scene { place, path, server: None, crash_file: PathBuf::new() };
        scene.must("mkdir -m 700 my-crashes; gcc host.c -o host && everycall resolve -q --trigger 'plugged > 1ms' -o plugin.ecs ./plugin.so");
        scene.must(
            " everycall cc -- g++ -O2 -g app.cpp -o app && everycall record -q -o app.ect -- ./app args",
        );
        scene.must(
            "for run in old old-1 old-2 new new-1 new-2 a b; do everycall record -q -o $run.ect -- ./app args || exit 1; done; \
             everycall merge -q -o runs.ecp old-1.ect old-2.ect",
        );
        // Traces of other tools.
        let others = workspace().join("crates/importing/import/tests/data");
        scene.must(&format!(
            "cd '{}' && cp -r uftrace.data funtrace.raw '{here}' && cp xray-basic19.log '{here}/xray-log.app.Xw6bA1' && \
             gzip -c llvm-xray.json > '{here}/trace.json.gz' && \
             echo 'app 8 [001] 10.000000100:  call  (/bin/app )  main' > '{here}/calls.txt'",
            others.display(),
            here = scene.place.file("").display()
        ));
        let mut died = scene.start("my-crashes");
        died.kill().unwrap();
        died.wait().unwrap();
        scene.crash_file = scene.place.file(&format!("my-crashes/server-{}.arena", died.id()));
        scene.server = Some(scene.start(""));
        scene.must("gdb -batch -nx -p $SERVER -ex 'generate-core-file core.1234' && zstd -q core.1234 -o core.app.1000.1.zst");
        scene
    }

    /// A server that has made calls.
    fn start(&self, crash: &str) -> Child {
        let mut command = self.place.command("./server");
        if !crash.is_empty() {
            command.env("EVERYCALL_CRASH", crash);
        }
        let called = self.place.file("called");
        let _ = fs::remove_file(&called);
        let child = command.spawn().unwrap();
        wait::until("the server makes calls", || called.exists());
        child
    }

    fn must(&self, line: &str) {
        if let Err(said) = self.run(line, &[]) {
            panic!("{line}: {said}");
        }
    }

    /// Runs a line of shell.
    fn run(&self, line: &str, variables: &[(String, String)]) -> Result<(), String> {
        let server = self.server.as_ref().map_or(0, Child::id).to_string();
        let [out, err] = ["stdout", "stderr"].map(|name| self.place.file(name));
        let mut command = self.place.command("bash");
        command
            .args(["-c", line])
            .env("PATH", &self.path)
            .env("SERVER", server)
            .env("CRASH_FILE", &self.crash_file);
        command.envs(variables.iter().cloned()).stdin(Stdio::null());
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if begin.elapsed() > TIME_MAX => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let said =
            [out, err].map(|file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()).concat();
        match status {
            // Variables that a program doesn't understand are no errors of it.
            Some(status) if status.success() && !said.contains("isn't understood") => Ok(()),
            Some(status) => Err(format!("{status}: {said}")),
            None => Err(format!("takes longer than {TIME_MAX:?}: {said}")),
        }
    }
}

/// Replaces placeholders that are whole words of a command.
fn substituted(text: &str) -> String {
    let word = |word: &str| {
        let known = PLACEHOLDERS.iter().find(|(placeholder, _)| *placeholder == word);
        known.map_or(word, |(_, value)| value).to_owned()
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Names alone: of the command, of files of the kit, of a verb, of a variable.
fn is_name(text: &str) -> bool {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [word] => !word.contains('='),
        ["everycall" | "cargo", verb] => verb.bytes().all(|byte| byte.is_ascii_lowercase()) && verb != "ps",
        _ => false,
    }
}

/// `NAME=value ...` and nothing else.
fn settings(text: &str) -> Option<Vec<(String, String)>> {
    fn pair(word: &str) -> Option<(String, String)> {
        let (name, value) = word.split_once('=')?;
        name.starts_with("EVERYCALL_").then(|| (name.to_owned(), value.to_owned()))
    }
    text.split(' ').map(pair).collect()
}

#[test]
fn every_command_of_the_documents_runs() {
    let all = all_commands();
    assert!(all.len() > 100, "{} commands", all.len());
    let scene = Scene::set();
    let (mut done, mut failed) = (BTreeSet::new(), Vec::new());
    for command in &all {
        if !done.insert(command.text.clone()) {
            continue;
        }
        let listed = TABLE.iter().find(|(text, _)| *text == command.text).map(|(_, run)| *run);
        let outcome = match listed {
            Some(Run::Not(_)) => Ok(()),
            Some(Run::So(line)) => {
                let signal = ("EVERYCALL_SNAPSHOT_SIGNAL".to_owned(), "USR2".to_owned());
                let variables = if line == table::STARTS_A_SERVER { vec![signal] } else { Vec::new() };
                scene.run(line, &variables)
            }
            None if is_name(&command.text) => name_is_known(&scene, &command.text),
            None => match settings(&command.text) {
                Some(variables) => scene.run("./server 50", &variables),
                None if command.text.starts_with("everycall ") => scene.run(&substituted(&command.text), &[]),
                None => {
                    Err("isn't known: write into tests/tests/repository/documented/table.rs how it is run"
                        .to_owned())
                }
            },
        };
        if let Err(said) = outcome {
            failed.push(format!("{}: `{}`: {said}", command.place, command.text));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A single word must be a verb, a file of the kit, or a name in the sources.
fn name_is_known(scene: &Scene, text: &str) -> Result<(), String> {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["everycall", verb] => scene.run(&format!("everycall {verb} --help"), &[]),
        ["cargo", _] => {
            Err("isn't known: write into tests/tests/repository/documented/table.rs how it is run".to_owned())
        }
        [name] => {
            let known = Command::new("grep")
                .args(["-rqF", "--include=*.rs", "--include=*.h", "--include=*.c", "--include=*.toml", name])
                .args(["crates", "tests", "xtask"])
                .current_dir(workspace())
                .status();
            if known.unwrap().success() { Ok(()) } else { Err("is in no source".to_owned()) }
        }
        _ => Ok(()),
    }
}

/// Who takes a command out of the documents takes it out of the table, too.
#[test]
fn the_table_has_only_commands_of_documents() {
    let all: BTreeSet<String> = all_commands().into_iter().map(|command| command.text).collect();
    let stale: Vec<&str> = TABLE.iter().map(|(text, _)| *text).filter(|text| !all.contains(*text)).collect();
    assert!(stale.is_empty(), "{stale:?}");
    for (text, run) in TABLE {
        assert!(!matches!(run, Run::Not("")), "{text}: no reason");
    }
}

/// The binary that `cargo install --locked --path crates/command/cli` installs. Optimising
/// everything takes minutes: done with `EVERYCALL_FULL`.
#[test]
fn what_is_installed_is_small() {
    if !is_full() {
        println!("skipped: nothing was installed; EVERYCALL_FULL=1 does it");
        return;
    }
    let place = Place::new("installed");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["install", "--quiet", "--locked", "--path", "crates/command/cli", "--root"])
        .arg(place.path());
    let output = cargo.current_dir(workspace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let binary = place.file("bin/everycall");
    let size = fs::metadata(&binary).unwrap().len();
    // With the formats of data frames and flame graphs, and the page of `everycall view`.
    assert!(size < 25_000_000, "{size} bytes");
    // It does what it is for.
    place.write("app.c", APP_C);
    for arguments in [
        &["cc", "--", "gcc", "-O1", "-g", "app.c", "-o", "app"][..],
        &["record", "-q", "-o", "app.ect", "--", "./app"],
        &["replay", "app.ect"],
    ] {
        let output = place.command(&binary).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// With the binary under test; with `EVERYCALL_FULL`, as the README has it.
#[test]
fn the_demo_runs() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["xtask", "demo"]).current_dir(workspace());
    if !is_full() {
        cargo.arg("--with").arg(everycall());
    }
    let output = cargo.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Functions of the C API that documents name are in its header.
#[test]
fn functions_of_the_documents_exist() {
    let header = fs::read_to_string(workspace().join("crates/building/kit/include/everycall.h")).unwrap();
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    for document in documents(&workspace()) {
        let text = fs::read_to_string(&document).unwrap();
        for (at, _) in text.match_indices("everycall_") {
            let rest = &text[at..];
            let name = &rest[..rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len())];
            let is_called = rest[name.len()..].starts_with('(');
            let is_whole = !text[..at].ends_with(is_of_name);
            let is_there = header.contains(&format!("{name}("));
            assert!(!is_called || !is_whole || is_there, "{}: there is no {name}", document.display());
        }
    }
}
