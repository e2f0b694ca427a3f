//! Snapshots and streams with obstacles: a full disk, a limit, a folder without write permission,
//! another snapshot or stream at the same time. An error message is printed, and the program
//! continues.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use everycall_tests::{Mode, Mount, Place, TraceView, everycall, successful, wait};

/// A command whose standard output said "ready", and that ends with its standard input.
struct Standing(Child);

impl Standing {
    fn start(command: &mut Command) -> Standing {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{command:?}");
        Standing(child)
    }

    /// The process that a recorder has started.
    fn recorded(&self) -> u32 {
        wait::children(self.0.id()).into_iter().next().unwrap()
    }

    /// Ends it. Returns its messages, and whether it succeeded.
    fn end(mut self) -> (String, bool) {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = self.0.wait().unwrap();
        (said, status.success())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn standing(place: &Place) -> PathBuf {
    place.build(Mode::GCC_NOPS, &["-O1", "standing.c", "-pthread"], "standing")
}

/// A stream pins segments of its own, and so does a snapshot. Each gets all.
#[test]
fn a_snapshot_beside_a_stream() {
    let place = Place::new("beside");
    let program = standing(&place);
    for options in [&["--stream"][..], &["--stream", "--stall"]] {
        let mut command = place.command(everycall());
        command.arg("record").args(options).args(["-o", "stream.ect", "--"]).arg(&program);
        let running = Standing::start(command.args(["3", "0", "1", "5000"]));
        let pid = running.recorded().to_string();
        for number in 0..2 {
            let name = format!("beside-{number}.ect");
            let mut command = place.command(everycall());
            let output = command.args(["snapshot", "-o", &name, &pid]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{options:?}: {said}");
            let trace = TraceView::tallies_only(&place.file(&name));
            assert_eq!(trace.warnings, [] as [String; 0], "{options:?}");
            assert_eq!(trace.losses(), 0, "{options:?}");
            let blocked: Vec<_> =
                trace.threads.iter().filter(|thread| &*thread.info.name == "blocked").collect();
            assert_eq!(blocked.len(), 3, "{options:?}");
            assert!(blocked.iter().all(|thread| thread.tallies["waiting_leaf"].exits == 5000));
        }
        let (said, well) = running.end();
        assert!(well, "{options:?}: {said}");
        if options.contains(&"--stall") {
            assert!(said.contains("no event was lost"), "{said}");
            let trace = TraceView::tallies_only(&place.file("stream.ect"));
            assert_eq!(trace.calls("waiting_leaf"), 15_000, "{options:?}");
        }
    }
}

/// A stream has its program's children, each with all its calls.
#[test]
fn streams_of_programs_that_fork() {
    let place = Place::new("stream-forks");
    for mode in [Mode::GCC_NOPS, Mode::CLANG19_XRAY] {
        let program = place.build(mode, &["-O1", "dying.c", "-pthread"], "dying");
        for how in ["child-exit", "child-kill", "child-_exit"] {
            let mut command = place.command(everycall());
            command.args(["record", "--stream", "--stall", "--ring-size", "64K", "--stream-memory", "64K"]);
            command.args(["-o", "forks.ect", "--"]).arg(&program).args([how, "30000", "2"]);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.contains("in 2 processes"), "{how}: {said}");
            assert!(said.contains("no event was lost"), "{how}: {said}");
            let trace = TraceView::tallies_only(&place.file("forks.ect"));
            assert_eq!(trace.warnings, [] as [String; 0], "{mode:?} {how}");
            // Two threads and twice the first one; the child's.
            assert_eq!((trace.calls("leaf"), trace.calls("child_leaf")), (120_000, 30_000), "{mode:?} {how}");
            assert_eq!(trace.losses(), 0, "{mode:?} {how}");
        }
    }
}

/// A disk that becomes full in the middle of a snapshot, and in the middle of a stream.
#[test]
fn disks_that_become_full_meanwhile() {
    let place = Place::new("meanwhile");
    let program = standing(&place);
    let Some(disk) = Mount::tmpfs(&place, "disk", "64k") else { return };
    let arguments = ["8", "0", "0", "60000"];
    let running = Standing::start(
        Command::new(&program)
            .args(arguments)
            .env("EVERYCALL_SNAPSHOT_SIGNAL", "USR1")
            .env("EVERYCALL_SNAPSHOT_FOLDER", disk.path()),
    );
    let pid = running.0.id().to_string();
    // Compact, eight such rings are less than that; other pages of the disk are taken first.
    fs::write(disk.path().join("other"), vec![1; 60 << 10]).unwrap();
    let output = {
        let mut command = place.command(everycall());
        command.args(["snapshot", "-o"]).arg(disk.path().join("full.ect")).arg(&pid).output().unwrap()
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("full.ect") && said.contains("free some space"), "{said}");
    // A snapshot by signal on a full disk: no file, no harm.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    let before = threads();
    successful(Command::new("kill").args(["-USR1", &pid]));
    let is_pending = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|line| line.starts_with("ShdPnd:") && !line.ends_with("\t0000000000000000"))
    };
    wait::until("nothing stays of the signal's snapshot", || {
        let left = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name());
        !is_pending() && threads() == before && left.eq(["other"])
    });
    // No segment is pinned any more: another snapshot gets all.
    successful(place.command(everycall()).args(["snapshot", "-q", "-o", "well.ect", &pid]));
    let trace = TraceView::tallies_only(&place.file("well.ect"));
    assert_eq!(trace.threads.iter().filter(|thread| &*thread.info.name == "blocked").count(), 8);
    assert!(running.end().1);

    // A stream: the events until then can be read; the program ends as usual.
    fs::remove_file(disk.path().join("other")).unwrap();
    let stream = disk.path().join("stream.ect");
    for options in [&["--stream"][..], &["--stream", "--stall"]] {
        let _ = fs::remove_file(&stream);
        let mut command = place.command(everycall());
        command.arg("record").args(options).arg("-o").arg(&stream).arg("--").arg(&program);
        let running = Standing::start(command.args(["2", "4", "4", "100"]));
        wait::until_written(&stream);
        let (said, well) = running.end();
        assert!(
            !well && said.contains("stream.ect") && said.contains("free some space"),
            "{options:?}: {said}"
        );
        let shown = place.command(everycall()).args(["info"]).arg(&stream).output().unwrap();
        assert!(shown.status.success(), "{options:?}: {}", String::from_utf8_lossy(&shown.stderr));
    }
}

/// Files may have 64 KiB at most, and a folder isn't to be written to.
#[test]
fn limits_and_folders_of_streams() {
    let place = Place::new("limits");
    let program = standing(&place);
    let shell = |script: &str, file: &Path| -> (String, bool) {
        let mut command = place.command("sh");
        let running = Standing::start(command.args(["-c", script]));
        wait::until_written(file);
        running.end()
    };
    let (everycall, program) = (everycall().display(), program.display());
    // The arena, a memory file, has to fit as well: the limit is set for the file alone.
    let script = format!(
        "exec {everycall} record --stream -o limited.ect -- sh -c 'prlimit --pid $PPID --fsize=65536:unlimited; exec {program} 2 2 0 100'"
    );
    let (said, well) = shell(&script, &place.file("limited.ect"));
    assert!(!well && said.contains("limited.ect"), "{said}");
    assert!(said.contains("ulimit -f"), "{said}");

    let closed = place.file("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let can = Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("not run: it needs root");
        return;
    }
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--clear-groups"]).args(arguments).current_dir(place.path());
        command.output().unwrap()
    };
    let binary = Path::new(&format!("{everycall}")).to_owned();
    let output = as_nobody(&[
        binary.to_str().unwrap(),
        "record",
        "--stream",
        "-o",
        "closed/x.ect",
        "--",
        "./standing",
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("closed/x.ect"), "{said}");
    assert!(said.contains("Permission denied") || said.contains("may write"), "{said}");
}
