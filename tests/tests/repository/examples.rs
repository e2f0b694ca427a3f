//! Each program in `examples` is built and run as its reader would. `demo` and `service` are run by
//! `documented`, `reader` by the tests of `analysis` and of the command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use everycall_tests::rust::{command, copy, said};
use everycall_tests::{Place, everycall};

/// A copy of an example, with a search path that has the command.
struct Example {
    _place: Place,
    folder: PathBuf,
    path: String,
}

impl Example {
    fn new(name: &str) -> Example {
        let place = Place::new(name);
        let folder = place.file(name);
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        copy(&workspace.join("examples").join(name), &folder);
        // Crates of the workspace are where they were.
        let manifest = folder.join("Cargo.toml");
        if let Ok(text) = fs::read_to_string(&manifest) {
            let text = text.replace("\"../../", &format!("\"{}/", workspace.display()));
            fs::write(manifest, text).unwrap();
        }
        let tools = place.file("tools");
        fs::create_dir(&tools).unwrap();
        symlink(everycall(), tools.join("everycall")).unwrap();
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
        Example { _place: place, folder, path }
    }

    fn run(&self, line: &str) -> Output {
        let mut shell = command("bash", &self.folder);
        shell.args(["-c", line]).env("PATH", &self.path).output().unwrap()
    }

    /// The standard output of lines of shell that must succeed.
    fn must(&self, lines: &str) -> String {
        let output = self.run(&format!("set -e; {lines}"));
        assert!(output.status.success(), "{lines}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_daemon_keeps_its_slow_answers() {
    let example = Example::new("daemon");
    let readme = include_str!("../../../examples/README.md");
    let block = readme.split("```").nth(1).expect("the commands of the daemon");
    let said = example.must(block);
    assert!(said.contains("answer {") && said.contains("usleep"), "{said}");
}

#[test]
fn the_gate_tells_slower_programs_from_others() {
    let example = Example::new("gate");
    example.must(
        "everycall cc -- gcc -O2 -g work.c -o old; everycall cc -- gcc -O2 -g -DSLOW work.c -o new; cp old again",
    );
    let gate = |new: &str| example.run(&format!("RUNS=2 ./gate.sh ./old ./{new} 'calls(checksum) > +0%'"));
    let slower = gate("new");
    assert_eq!(slower.status.code(), Some(3), "{}", said(&slower));
    assert!(said(&slower).contains("checksum"), "{}", said(&slower));
    let as_before = gate("again");
    assert_eq!(as_before.status.code(), Some(0), "{}", said(&as_before));
}

#[test]
fn a_preset_of_cmake_builds_a_traced_program() {
    let example = Example::new("cmake");
    let printed = example.must(
        "cmake --preset traced && cmake --build build/traced && \
         everycall record --quiet -o app.ect -- build/traced/app && everycall report app.ect",
    );
    assert!(printed.lines().any(|line| line.starts_with("1,000 ") && line.contains("area")), "{printed}");
}

#[test]
fn a_rust_service_labels_its_requests() {
    let example = Example::new("rust-service");
    let printed = example.must(
        "everycall cargo run --quiet --release --offline && everycall replay --label request=23 rust-service.ect",
    );
    assert!(printed.contains("rust_service::look_up  ") && printed.contains("@ request = 23"), "{printed}");
}
