//! Python programs: each function's calls are those that the interpreter itself counts, and
//! programs behave as they do untraced. With Debian's Python 3.11, and with later ones where they
//! are.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use everycall_tests::python::{Python, SYSTEM, assert_calls_are_counted, script};

#[test]
fn calls_are_those_that_the_interpreter_counts() {
    for python in Python::all() {
        let file = script("calls.py").display().to_string();
        let counting = python.run(&[&file, "count"]);
        let printed = String::from_utf8(counting.stdout).unwrap();
        let (output, calls) = python.record(&[&file]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_calls_are_counted(&python, &calls, &file, &printed);
        // Each ends as it does: nothing is left open, nothing is missing.
        let cut = calls
            .of_kind("call")
            .filter(|line| line["file"] == file && line["remarks"].contains("truncated"));
        assert_eq!(cut.count(), 0);
        assert_eq!(calls.of_kind("lost").count(), 0);
        // The interpreter counts the same while it is recorded.
        let output = python.recorded(&[&file, "count"]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
    }
}

#[test]
fn calls_nest_as_they_do() {
    for python in Python::all() {
        let file = script("tree.py").display().to_string();
        let (_, calls) = python.record(&[&file]);
        assert_eq!(
            calls.tree(&file, "begin"),
            "begin(outer(leaf inner(leaf leaf)) consume(numbers(leaf) leaf numbers leaf numbers) \
             catching(middle!(raising!(leaf)) leaf))",
            "{}",
            python.version()
        );
        let thrown: Vec<&str> = calls.of_kind("throw").map(|line| line["function"].as_str()).collect();
        assert!(thrown.contains(&"LookupError"), "{thrown:?}");
    }
}

#[test]
fn children_are_in_the_same_file() {
    for python in Python::all() {
        let file = script("children.py").display().to_string();
        let (output, calls) = python.record(&[&file]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        for (kind, times) in [
            ("itself", 3),
            ("fork", 4),
            ("fork_of_thread", 5),
            ("subprocess", 6),
            ("name", 7),
            ("system", 8),
            ("multiprocessing_fork", 9),
            ("multiprocessing_spawn", 9),
            ("multiprocessing_forkserver", 9),
        ] {
            assert_eq!(calls.count(&format!("in_{kind}")), times, "{kind}, {}", python.version());
        }
        let (output, calls) = python.record(&[&file, "exec"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(calls.count("in_exec"), 10);
    }
}

/// `-E` and `-I` have Python ignore the environment, and so they do everycall's variable: only an
/// interpreter that was asked by `python -I -m everycall` itself is recorded.
#[test]
fn a_python_that_ignores_the_environment_is_left_alone() {
    let code = "import sys; print('everycall' in sys.modules)";
    for python in Python::all() {
        for (option, is_loaded) in [("-B", "True"), ("-E", "False"), ("-I", "False")] {
            let mut command = python.command(&[option, "-c", code]);
            let output = command.env("EVERYCALL_PYTHON", "1").output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), is_loaded, "{option}: {output:?}");
        }
        for option in ["-E", "-I"] {
            let file = script("tree.py").display().to_string();
            let output = python.run(&[option, "-m", "everycall", "-o", "t.ect", &file]);
            assert_eq!(output.status.code(), Some(0), "{option}: {output:?}");
            assert!(python.calls("t.ect").count("begin") > 0, "{option}: {output:?}");
        }
    }
}

/// Both outputs of a program, and its exit code.
fn seen(output: &Output) -> (String, Vec<String>, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&output.stderr);
    // The lines of `record` itself are behind it.
    let own = errors.lines().take_while(|line| !line.starts_with("everycall: ")).map(str::to_owned);
    (text(&output.stdout), own.collect(), output.status.code())
}

#[test]
fn programs_behave_as_they_do_untraced() {
    for python in Python::all() {
        let strangers = script("strangers.py").display().to_string();
        let arguments = python.place.write(
            "arguments.py",
            "import sys\nprint(sys.argv, __name__, sys.path[0], __file__, __builtins__ is not None, sys.flags)\n",
        );
        python
            .place
            .write("package.py", "import sys\nprint(sys.argv, __name__, sys.path[0], __spec__.name)\n");
        let arguments = arguments.to_str().unwrap();
        let mut cases: Vec<Vec<&str>> = vec![
            vec![arguments, "a", "--b", "-o", "x y"],
            vec!["-m", "package", "a"],
            vec!["-c", "import sys; print(sys.argv, __name__, sys.path[0]); 1 / 0", "a"],
            vec!["no-such-file.py"],
            vec!["-m", "no_such_module"],
        ];
        let kinds = [
            "settrace",
            "profilers",
            "recursion",
            "interpreters",
            "at_once",
            "code",
            "held",
            "daemon",
            "uncaught",
            "status",
        ];
        cases.extend(kinds.map(|kind| vec![strangers.as_str(), kind]));
        for case in cases {
            let plain = python.run(&case);
            let traced = python.recorded(&case);
            assert_eq!(seen(&traced), seen(&plain), "{case:?}, {}", python.version());
            if case.last() == Some(&"code") {
                let calls = python.calls("t.ect");
                let dying: Vec<usize> = (0..300).map(|i| calls.count(&format!("dying_{i}"))).collect();
                assert_eq!(dying, [1; 300]);
            }
            if case.last() == Some(&"at_once") {
                // Of f(2) in the child and f(3) in its parent.
                assert_eq!(python.calls("t.ect").count("f"), 3 + 4, "{}", python.version());
            }
            if case.last() == Some(&"interpreters") {
                let calls = python.calls("t.ect");
                assert_eq!((calls.count("f"), calls.count("g")), (4, 0));
                let said = "not recorded: calls in a sub-interpreter";
                assert_eq!(calls.of_kind("instant").filter(|line| line["function"] == said).count(), 1);
            }
            if case.last() == Some(&"recursion") && !python.is_monitored() {
                let calls = python.calls("t.ect");
                let deep =
                    calls.of_kind("span").filter(|line| line["function"].contains("quarter of the stack"));
                assert_eq!(deep.count(), 3);
            }
        }
        // It ends by a signal, and so does `record`.
        let (killed, calls) = python.record(&[&strangers, "killed"]);
        assert_eq!(String::from_utf8_lossy(&killed.stdout), "to be killed\n");
        assert_eq!(calls.count("killed"), 1);
        // Interpreter options hold for the program, too.
        let options = ["-X", "utf8", "-O", "-W", "ignore"];
        let record = [&options[..], &["-m", "everycall", "-o", "t.ect", arguments]].concat();
        let plain = [&options[..], &[arguments]].concat();
        assert_eq!(seen(&python.run(&record)), seen(&python.run(&plain)));
    }
}

#[test]
fn other_tools_that_have_all_places_are_named() {
    for python in Python::all().iter().filter(|python| python.is_monitored()) {
        let (output, calls) = python.record(&[script("strangers.py").to_str().unwrap(), "tools"]);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            printed.starts_with("other tools have the tool ids 3 and 4")
                && printed.ends_with("\n3 another\n"),
            "{printed}"
        );
        assert_eq!(calls.count("f"), 0);
    }
}

#[test]
fn tools_that_take_the_hook_off_are_noticed() {
    for python in Python::all() {
        let strangers = script("strangers.py").display().to_string();
        let said = |arguments: &[&str]| {
            let output = python.recorded(arguments);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        let sentence = "everycall: another tool has taken the hook off";
        assert_eq!(said(&[&strangers, "taken"]).matches(sentence).count(), 1, "{}", python.version());
        assert_eq!(python.calls("t.ect").count("f"), 0);
        let sentence = "everycall: another tool has set a profile function";
        let errors = said(&["--c-functions", &strangers, "profiled"]);
        assert_eq!(errors.contains(sentence), !python.is_monitored(), "{errors}");
        // Without functions in C, both work beside each other.
        assert!(!said(&[&strangers, "profiled"]).contains("another tool"));
    }
}

/// As in a build of Python that is free-threaded: there is no hook for it, and none is built.
#[test]
fn free_threaded_builds_are_refused() {
    let python = Python::new(Path::new(SYSTEM));
    let simulated = |what: &str| {
        format!(
            "import sysconfig, sys, runpy; real = sysconfig.get_config_var\n\
             sysconfig.get_config_var = lambda name: 1 if name == 'Py_GIL_DISABLED' else real(name)\n{what}"
        )
    };
    let packages = python.environment.packages.join("everycall");
    for entry in fs::read_dir(&packages).unwrap().map(Result::unwrap) {
        if entry.path().extension().is_some_and(|extension| extension == "so") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let refused = |code: &str, status: i32, sentence: &str| {
        let output = python.run(&["-c", &simulated(code)]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(sentence) && errors.lines().count() == 1, "{errors}");
    };
    let run = "sys.argv[1:] = ['x.py']; runpy.run_module('everycall', run_name='__main__')";
    refused(run, 2, "this is a free-threaded Python");
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("python/setup.py");
    refused(&format!("runpy.run_path({:?})", setup.display().to_string()), 1, "isn't free-threaded");
    // A program in it runs as ever, with a sentence.
    let output = python.command(&["-c", "print(1)"]).env("EVERYCALL_PYTHON", "1").output().unwrap();
    assert_eq!(output.stdout, b"1\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("calls of Python functions are not recorded"));
}

#[test]
fn a_program_says_things_itself_and_chooses_what_is_recorded() {
    for python in Python::all() {
        let file = python.place.write(
            "says.py",
            "import everycall, sys\n\
             def before(): pass\n\
             def within(): everycall.label('request', 7)\n\
             def left_out(): pass\n\
             @everycall.span('decorated')\n\
             def decorated(): within()\n\
             @everycall.recording()\n\
             def recorded(): pass\n\
             recorded()\n\
             before()\n\
             with everycall.span('spanned', 5): within()\n\
             decorated()\n\
             everycall.instant('now')\n\
             print(everycall.snapshot('first.ect'))\n\
             everycall.stop()\n\
             left_out()\n\
             recorded()\n\
             left_out()\n\
             everycall.start()\n\
             recorded()\n\
             within()\n\
             try: everycall.snapshot('t.ect', since=0.5)\n\
             except TypeError as error: print(error)\n\
             try: everycall.span('no')(x for x in ())\n\
             except AttributeError: pass\n\
             def generator(): yield\n\
             try: everycall.span('no')(generator)\n\
             except TypeError as error: print(error)\n\
             try: everycall.snapshot('no/such/folder/t.ect')\n\
             except everycall.Error as error: print(error)\n",
        );
        let file = file.to_str().unwrap();
        let plain = python.run(&[file]);
        let since = "since is a value of everycall.now(), not 0.5; last takes seconds";
        let printed = format!("{since}\nspan decorates plain functions only: use `with` inside generator\n");
        assert_eq!(seen(&plain), (format!("False\n{printed}"), Vec::new(), Some(0)));
        let (output, calls) = python.record(&[file]);
        let printed = format!(
            "True\n{printed}the trace file can't be made: a folder of its path isn't there; make the folder first\n"
        );
        assert_eq!(seen(&output), (printed, Vec::new(), Some(0)), "{output:?}");
        for (function, count) in
            [("before", 1), ("within", 3), ("left_out", 0), ("decorated", 1), ("recorded", 3)]
        {
            assert_eq!(calls.count(function), count, "{function}, {}", python.version());
        }
        let named = |kind, name: &str| calls.of_kind(kind).filter(|line| line["function"] == name).count();
        assert_eq!((named("span", "spanned"), named("span", "decorated")), (1, 1));
        assert_eq!((named("label", "request"), named("instant", "now")), (3, 1));
        let first = python.calls("first.ect");
        assert_eq!((first.count("within"), first.count("recorded")), (2, 1));
    }
}

#[test]
fn what_cant_be_done_is_said() {
    let python = Python::new(Path::new(SYSTEM));
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let run = |arguments: &[&str]| python.command(&[&["-m", "everycall"], arguments].concat());
    let attaching = run(&["attach", "1"]).output().unwrap();
    assert_eq!(attaching.status.code(), Some(1));
    assert!(String::from_utf8(attaching.stderr).unwrap().contains("from Python 3.14 on, and this is 3.11"));
    assert!(said(&mut run(&["-o", "t.ect"])).contains("which program?"));
    assert!(
        said(
            python
                .command(&["-S", "-m", "everycall", "x.py"])
                .env("PYTHONPATH", &python.environment.packages)
        )
        .contains("without -S")
    );
    fs::remove_file(python.environment.bin.join("everycall")).unwrap();
    assert!(said(run(&["x.py"]).env("PATH", "/usr/bin")).contains("cargo install --path crates/command/cli"));
    // Whatever may be missing, a program whose start ought to record runs.
    let hook = fs::read_dir(python.environment.packages.join("everycall"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in hook.filter(|path| path.extension().is_some_and(|extension| extension == "so")) {
        fs::remove_file(path).unwrap();
    }
    let output = python
        .command(&["-c", "import everycall; print(everycall.start())"])
        .env("EVERYCALL_PYTHON", "1")
        .output()
        .unwrap();
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"False\n"[..], Some(0)), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.starts_with("everycall: calls of Python functions are not recorded: ")
            && errors.lines().count() == 1,
        "{errors}"
    );
}
