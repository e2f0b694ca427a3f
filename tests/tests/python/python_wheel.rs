//! A wheel with the command in it needs nothing else: no checkout, no compiler, no search path.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use everycall_tests::python::{Python, SYSTEM};
use everycall_tests::{Place, everycall, successful};

#[test]
fn a_wheel_needs_nothing_else() {
    let module = |name: &str| Command::new(SYSTEM).args(["-c", &format!("import {name}")]).output().unwrap();
    for name in ["pip", "setuptools", "wheel", "ensurepip"] {
        if !module(name).status.success() {
            println!(
                "skipped: {SYSTEM} has no module {name}: apt-get install python3-pip python3-wheel python3-venv"
            );
            return;
        }
    }
    let place = Place::new("wheel");
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // pip builds in the folder itself.
    let copy = place.file("checkout");
    fs::create_dir_all(copy.join("crates/building")).unwrap();
    successful(Command::new("cp").arg("-r").arg(checkout.join("python")).arg(&copy));
    symlink(checkout.join("crates/building/kit"), copy.join("crates/building/kit")).unwrap();
    let pip = ["-m", "pip", "--disable-pip-version-check"];
    let mut wheel = Command::new(SYSTEM);
    wheel
        .args(pip)
        .args(["wheel", "-q", "--no-build-isolation", "--no-deps", "-w"])
        .arg(place.file("wheels"));
    successful(wheel.arg(copy.join("python")).env("EVERYCALL_BINARY", everycall()));
    let wheels: Vec<_> =
        fs::read_dir(place.file("wheels")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [wheel] = &wheels[..] else { panic!("{wheels:?}") };
    assert!(wheel.display().to_string().contains("-cp311-"), "{wheels:?}");

    let fresh = place.file("fresh");
    successful(Command::new(SYSTEM).args(["-m", "venv"]).arg(&fresh));
    let plain = |program: &str| {
        let mut command = place.command(fresh.join("bin").join(program));
        command.env("PATH", "/usr/bin:/bin");
        command
    };
    successful(plain("python").args(pip).args(["install", "-q", "--no-index"]).arg(wheel));
    fs::remove_dir_all(&copy).unwrap();
    place.write("app.py", "def handle(): return 1\nprint(handle())\n");
    assert_eq!(successful(plain("python").args(["-m", "everycall", "app.py"])), "1\n");
    let replay = successful(plain("everycall").args(["replay", "app.ect"]));
    assert!(replay.lines().any(|line| line.contains(" handle ")), "{replay}");
}

/// A program that everycall didn't start, and a shell with the two functions of IPython's that
/// `%load_ext` and `%%everycall` need.
#[test]
fn a_program_that_runs_already_is_recorded() {
    for python in Python::all() {
        let file = python.place.write(
            "notebook.py",
            "import everycall, threading\n\
             def handle(n): return n and handle(n - 1)\n\
             def before(): pass\n\
             def after(): pass\n\
             everycall.label('nothing')\n\
             print(everycall.start(), everycall.is_recorded())\n\
             everycall.load('2M')\n\
             everycall.load()\n\
             before()\n\
             print(everycall.start(), everycall.is_recorded())\n\
             handle(400)\n\
             thread = threading.Thread(target=handle, args=(2,))\n\
             thread.start(), thread.join()\n\
             everycall.stop()\n\
             after()\n\
             print(everycall.snapshot('t.ect'))\n\
             class Shell:\n\
             \x20   def register_magic_function(self, function, magic_kind, magic_name):\n\
             \x20       print(magic_kind, magic_name)\n\
             \x20       self.magic = function\n\
             \x20   def run_cell(self, cell): exec(cell, globals())\n\
             shell = Shell()\n\
             everycall.load_ipython_extension(shell)\n\
             shell.magic('-o cell.ect c-functions', 'handle(9)\\nlen(\"a\")')\n\
             shell.magic('no-such-thing', 'after()')\n",
        );
        let output = python.run(&[file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines[..4], ["False False", "True True", "True", "cell everycall"], "{printed}");
        assert!(
            lines
                .iter()
                .any(|line| line.trim_start().starts_with("10 ") && line.ends_with(" notebook.handle")),
            "{printed}"
        );
        assert!(lines.iter().any(|line| line.contains("everycall view cell.ect")), "{printed}");
        assert!(lines.last().unwrap().contains("the magic is used so"), "{printed}");
        let calls = python.calls("t.ect");
        assert_eq!((calls.count("before"), calls.count("handle"), calls.count("after")), (0, 401 + 3, 0));
        let info = successful(python.place.command(everycall()).args(["info", "-f", "json", "t.ect"]));
        assert!(info.contains("\"ring_size\": 2097152"), "{info}");
        // By then, Python has changed the environment, so that is no longer on the stack.
        let odd = ["suspended", "orphan exit"].map(|kind| calls.of_kind(kind).count());
        assert_eq!(odd, [0, 0], "{}", python.version());
        assert_eq!(python.calls("cell.ect").count("builtins.len"), 1);
    }
    let python = Python::new(Path::new(SYSTEM));
    fs::remove_file(python.environment.bin.join("everycall")).unwrap();
    let load = "import everycall\ntry: everycall.load()\nexcept everycall.Error as error: print(error)";
    let output = python.command(&["-c", load]).env("PATH", "/usr/bin").output().unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("cargo install --path crates/command/cli"),
        "{output:?}"
    );
}
