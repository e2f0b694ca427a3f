//! Access of other users to a traced program: `docs/reference/security.md`. The other
//! user is a real one, so these tests need root.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use everycall_format::arena::ArenaHeader;
use everycall_format::hub::{HubHeader, SPARES};
use everycall_tests::{Mode, Place, everycall, successful, wait};

/// A user that owns nothing.
const OTHER: u32 = 65_533;
const ARENA: &str = "/memfd:everycall-arena";
const SEGMENT: &str = "/SYSV";

/// Whether there is a second user to be; it is said where not.
fn has_other_user() -> bool {
    let can = Command::new("true").uid(OTHER).gid(OTHER).status().is_ok_and(|status| status.success());
    if !can {
        eprintln!("skipped: only root can act as a second user");
    }
    can
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Copies a program. Another process does so: while a process forked by another test has it open
/// for writing, it can't be executed.
fn copy(from: &Path, to: &Path) {
    successful(Command::new("cp").args([from, to]));
}

/// A folder of the other user's, in a place that everybody can get at.
fn folder_of_other(place: &Place, name: &str) -> PathBuf {
    mode(place.path(), 0o755);
    let path = place.file(name);
    fs::create_dir(&path).unwrap();
    chown(&path, Some(OTHER), Some(OTHER)).unwrap();
    path
}

fn program(place: &Place) -> PathBuf {
    place.build(Mode::GCC_NOPS, &["-O1", "rights.c"], "rights")
}

/// `record` of a program that waits; ended when dropped.
struct Waiting {
    recorder: Child,
    pid: u32,
}

impl Waiting {
    fn begin(command: &mut Command) -> Waiting {
        let mut recorder =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Waiting { pid: line.trim().parse().unwrap(), recorder }
    }

    /// The variable in the program's environment that names its recorder.
    fn hub(&self) -> String {
        let environment = fs::read(format!("/proc/{}/environ", self.pid)).unwrap();
        let mut words = environment.split(|byte| *byte == 0);
        let value = words.find_map(|word| word.strip_prefix(b"EVERYCALL_RECORDER="));
        String::from_utf8(value.unwrap().to_vec()).unwrap()
    }

    /// The recorder's memory files of this name: path, inode, mode.
    fn memory(&self, name: &str) -> Vec<(PathBuf, u64, u32)> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.recorder.id())).unwrap();
        let paths = open.map(|entry| entry.unwrap().path());
        let named = paths.filter(|path| {
            fs::read_link(path)
                .is_ok_and(|target| target.to_str().is_some_and(|target| target.starts_with(name)))
        });
        named
            .map(|path| {
                let facts = fs::metadata(&path).unwrap();
                (path, facts.ino(), facts.mode() & 0o7777)
            })
            .collect()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.recorder.stdin.take());
        let _ = self.recorder.wait();
    }
}

fn shown(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The inode of the mapping in a line of the list.
fn inode(line: &str) -> u64 {
    line.split_ascii_whitespace().nth(4).unwrap().parse().unwrap()
}

#[test]
fn root_takes_no_memory_of_another_users_recorder() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-recorder");
    let program = program(&place);
    let theirs = folder_of_other(&place, "theirs");
    let everycall_copy = place.file("everycall");
    copy(everycall(), &everycall_copy);
    mode(&everycall_copy, 0o755);
    let mut record = Command::new(&everycall_copy);
    record.args(["record", "-o", "out.ect", "--"]).arg(&program).arg("wait");
    let waiting = Waiting::begin(record.current_dir(&theirs).uid(OTHER).gid(OTHER));
    for (_, _, mode) in waiting.memory("/memfd:everycall-") {
        assert_eq!(mode & 0o777, 0o600);
    }

    let run = |recorder: &str, what: &str| {
        shown(Command::new(&program).arg(what).env("EVERYCALL_RECORDER", recorder))
    };
    for what in ["show", "fork"] {
        let (maps, said) = run(&waiting.hub(), what);
        assert!(!maps.contains("/memfd:everycall"), "{maps}");
        assert!(maps.contains(SEGMENT) && said.contains("isn't a recorder of this program's user"), "{said}");
    }
    // Nor other entries of this form: a file of root's, a device, a pipe without a writer.
    let hub = waiting.memory("/memfd:everycall-hub").remove(0).0;
    let plain = place.file("hub");
    fs::write(&plain, fs::read(&hub).unwrap()).unwrap();
    mode(&plain, 0o600);
    let fifo = place.file("fifo");
    successful(Command::new("mkfifo").arg(&fifo));
    for path in [plain.as_path(), Path::new("/dev/null"), &fifo, &PathBuf::from("/proc/self/fd/0")] {
        let (maps, said) = run(path.to_str().unwrap(), "show");
        assert!(!maps.contains("/memfd:everycall") && said.contains("isn't a recorder"), "{path:?} {said}");
    }
    // A copy of a hub in a file of our own: it isn't sealed.
    let file = File::open(&plain).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    let (maps, said) = run(&format!("/proc/{}/fd/{number}", std::process::id()), "show");
    assert!(!maps.contains("/memfd:everycall") && said.contains("isn't a recorder"), "{said}");
    assert!(!maps.contains("hub"), "{maps}");
}

#[test]
fn claimed_memory_belongs_to_one_process() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-claimed");
    let program = program(&place);
    let waiting =
        Waiting::begin(place.command(everycall()).arg("record").arg("--").arg(&program).arg("wait"));
    let maps = fs::read_to_string(format!("/proc/{}/maps", waiting.pid)).unwrap();
    let own = inode(maps.lines().find(|line| line.contains(ARENA)).unwrap());
    // The recorder sees the claim a moment later.
    let mut all = Vec::new();
    wait::until("the mark is taken away", || {
        all = waiting.memory(ARENA);
        all.iter().any(|(_, inode, mode)| *inode == own && *mode == 0o600)
    });
    for (_, inode, mode) in &all {
        assert_eq!(*mode, if *inode == own { 0o600 } else { 0o1600 });
    }

    // Like a process that has it and has been taken over since: it offers its own memory to the
    // next one.
    let signal = |signal: &str| {
        successful(Command::new("kill").arg(signal).arg(waiting.recorder.id().to_string()));
    };
    signal("-STOP");
    let arena = &all.iter().find(|(_, inode, _)| *inode == own).unwrap().0;
    let number: u32 = arena.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let write = |path: &Path, offset: usize, value: u32| {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&value.to_le_bytes(), offset as u64).unwrap();
    };
    let hub = waiting.hub();
    write(arena, offset_of!(ArenaHeader, target_pid), 0);
    for place in 0..SPARES {
        write(Path::new(&hub), offset_of!(HubHeader, spares) + 4 * place, number + 1);
    }
    // It could also lead to another process's descriptors.
    write(Path::new(&hub), offset_of!(HubHeader, recorder_pid), waiting.pid);
    let (maps, _) = shown(Command::new(&program).arg("show").env("EVERYCALL_RECORDER", &hub));
    write(arena, offset_of!(ArenaHeader, target_pid), waiting.pid);
    signal("-CONT");
    assert!(maps.lines().all(|line| inode(line) != own), "{maps}");
}

#[test]
fn children_without_rights_cannot_write_where_their_parents_hooks_do() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-drop");
    let program = program(&place);
    let other = OTHER.to_string();
    let record = |follow: &[&str], arguments: &[&str]| {
        let mut command = place.command(everycall());
        shown(command.args(["record", "-q"]).args(follow).arg("--").arg(&program).args(arguments)).0
    };
    assert!(record(&[], &["fork"]).contains(ARENA), "a child with all rights is traced");
    for follow in [&[][..], &["--no-follow"]] {
        let maps = record(follow, &["drop", &other]);
        assert!(!maps.contains(ARENA) && !maps.contains(SEGMENT), "{maps}");
    }
}

#[test]
fn segments_are_no_way_into_what_has_more_rights() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-segments");
    mode(place.path(), 0o755);
    let program = program(&place);
    let other = OTHER.to_string();
    let maps = |arguments: &[&str]| shown(Command::new(&program).args(arguments)).0;
    assert!(maps(&["show"]).contains(SEGMENT) && maps(&["fork"]).contains(SEGMENT));
    // Files that a child makes while it acts as another user would be that user's.
    for what in ["act", "drop"] {
        let maps = maps(&[what, &other]);
        assert!(!maps.contains(SEGMENT) && maps.contains("/dev/zero"), "{what}: {maps}");
    }

    let as_other = |program: &Path, capabilities: &str| {
        let mut command = Command::new("setpriv");
        let ids = [format!("--reuid={OTHER}"), format!("--regid={OTHER}"), "--clear-groups".to_owned()];
        command
            .args(ids)
            .arg(format!("--inh-caps={capabilities}"))
            .arg(format!("--ambient-caps={capabilities}"));
        shown(command.arg(program).arg("show")).0
    };
    assert!(as_other(&program, "-all").contains(SEGMENT), "an ordinary program of an ordinary user");
    // Capabilities that it was started with: the user's other programs don't have them, and may not
    // touch it.
    let capable = as_other(&program, "+net_bind_service");
    assert!(!capable.contains(SEGMENT) && capable.contains("/dev/zero"), "{capable}");
    let setuid = place.file("setuid");
    copy(&program, &setuid);
    mode(&setuid, 0o4755);
    let raised = as_other(&setuid, "-all");
    assert!(!raised.contains(SEGMENT) && raised.contains("/dev/zero"), "{raised}");
}

/// Has a link lead to one folder and to another until it is ended: run as another user by the test
/// below.
#[test]
#[ignore = "an attacker, for the test below"]
fn attacker() {
    let Some(folder) = std::env::var_os("EVERYCALL_TEST_ATTACKED").map(PathBuf::from) else { return };
    let [link, next, theirs] = ["cache", "next", "evil"].map(|name| folder.join(name));
    let runtime = theirs.join(std::env::var_os("EVERYCALL_TEST_RUNTIME").unwrap());
    let marked = folder.join("marked.o");
    let length = |path: &Path| fs::metadata(path).map_or(0, |facts| facts.len());
    for target in ["good", "evil"].iter().cycle() {
        // It was found to be another, and mended.
        if length(&runtime) != length(&marked) {
            let _ = fs::remove_file(&runtime);
            let _ = fs::copy(&marked, &runtime);
        }
        let _ = fs::remove_file(&next);
        let _ = symlink(target, &next).and_then(|()| fs::rename(&next, &link));
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// An attacker; ended when dropped.
struct Attacker(Child);

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn builds_link_only_the_users_own_runtime() {
    const MARK: &str = "somebody-elses-runtime";
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-cache");
    let theirs = folder_of_other(&place, "theirs");
    let cache = theirs.join("cache");
    let evil = theirs.join("evil");
    let source = place.write("main.c", "int main(void) { return 0; }");
    let build = |cache: &Path, name: &str| {
        let output = place.file(name);
        let mut command = place.command(everycall());
        command.args(["cc", "--", "gcc"]).arg(&source).arg("-o").arg(&output);
        // One that fails is no harm but to itself.
        let is_built = command.env("XDG_CACHE_HOME", cache).output().unwrap().status.success();
        is_built.then(|| fs::read(output).unwrap())
    };
    // A cache as everycall itself fills it; the attacker's has more in it.
    let safe = place.file("safe");
    assert!(build(&safe, "first").is_some());
    for folder in [&theirs.join("good"), &evil] {
        successful(Command::new("cp").arg("-r").args([&safe, folder]));
    }
    let mark = place.write("mark.c", &format!("const char mark[] = \"{MARK}\";"));
    let object = place.file("mark.o");
    successful(Command::new("gcc").arg("-c").arg(mark).arg("-o").arg(&object));
    let mut marked = Vec::new();
    for folder in fs::read_dir(evil.join("everycall")).unwrap() {
        let runtime = folder.unwrap().path().join(everycall_kit::RUNTIME_OBJECT);
        let real = place.file("real.o");
        if fs::copy(&runtime, &real).is_ok() {
            let marked_object = theirs.join("marked.o");
            successful(Command::new("ld").arg("-r").args([&real, &object]).arg("-o").arg(&marked_object));
            mode(&marked_object, 0o644);
            marked.push(runtime.strip_prefix(&evil).unwrap().to_owned());
        }
    }
    let [runtime] = &marked[..] else { panic!("{marked:?}") };
    successful(Command::new("chown").arg("-R").arg(OTHER.to_string()).arg(&evil));
    let is_evil = |program: &[u8]| program.windows(MARK.len()).any(|part| part == MARK.as_bytes());

    let binary = place.file("attacker");
    copy(&std::env::current_exe().unwrap(), &binary);
    mode(&binary, 0o755);
    let mut attack = Command::new(binary);
    attack.args(["--ignored", "--exact", "security::attacker"]).env("EVERYCALL_TEST_ATTACKED", &theirs);
    attack.env("EVERYCALL_TEST_RUNTIME", runtime);
    let mut attacker =
        Attacker(attack.current_dir(&theirs).uid(OTHER).gid(OTHER).stdout(Stdio::null()).spawn().unwrap());
    let programs = (0..40).filter_map(|number| build(&cache, &format!("built-{number}")));
    let programs: Vec<Vec<u8>> = programs.collect();
    let evil = programs.iter().filter(|program| is_evil(program)).count();
    assert_eq!((programs.len(), evil), (40, 0));
    assert!(attacker.0.try_wait().unwrap().is_none(), "it was there all the while");
}

/// In a sticky folder, another user's file can't be replaced: that is found out before anything is
/// recorded.
#[test]
fn in_sticky_folders_files_are_their_owners() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-sticky");
    mode(place.path(), 0o755);
    let program = program(&place);
    // A file that only its owner keeps from being replaced.
    const PRECIOUS: &str = "everycall trace\nprecious";
    let (sticky, binary) = (place.file("sticky"), place.file("everycall"));
    copy(everycall(), &binary);
    mode(&binary, 0o755);
    fs::create_dir(&sticky).unwrap();
    mode(&sticky, 0o1777);
    fs::write(sticky.join("rights.ect"), PRECIOUS).unwrap();
    mode(&sticky.join("rights.ect"), 0o666);
    let record = |other: bool| {
        let mut command = Command::new(&binary);
        command.args(["record", "-q", "--"]).arg(&program).arg("show").current_dir(&sticky);
        if other { command.uid(OTHER).gid(OTHER).output() } else { command.output() }.unwrap()
    };
    let output = record(true);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(fs::read_to_string(sticky.join("rights.ect")).unwrap(), PRECIOUS);
    // Whose file it is, and root, may.
    chown(sticky.join("rights.ect"), Some(OTHER), Some(OTHER)).unwrap();
    assert!(record(true).status.success() && record(false).status.success());
    let facts = fs::metadata(sticky.join("rights.ect")).unwrap();
    assert_eq!((facts.uid(), facts.mode() & 0o7777), (0, 0o600));
}

/// Another user can read neither a recording nor a program without one.
#[test]
fn other_users_have_no_access() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-others");
    mode(place.path(), 0o755);
    let program = program(&place);
    let (theirs, binary) = (folder_of_other(&place, "theirs"), place.file("everycall"));
    copy(everycall(), &binary);
    mode(&binary, 0o755);
    let recorded =
        Waiting::begin(place.command(everycall()).arg("record").arg("--").arg(&program).arg("wait"));
    let alone = Waiting::begin(place.command(&program).arg("wait"));
    for waiting in [&recorded, &alone] {
        let ask = |other: bool| {
            let mut command = Command::new(&binary);
            command
                .args(["snapshot", "-q", "-o", "out.ect"])
                .arg(waiting.pid.to_string())
                .current_dir(&theirs);
            if other { command.uid(OTHER).gid(OTHER).output() } else { command.output() }.unwrap()
        };
        let output = ask(true);
        assert!(!output.status.success() && !theirs.join("out.ect").exists(), "{output:?}");
        assert!(ask(false).status.success());
        assert_eq!(fs::metadata(theirs.join("out.ect")).unwrap().mode() & 0o7777, 0o600);
        fs::remove_file(theirs.join("out.ect")).unwrap();
    }
    let opened = Command::new("cat").arg(recorded.hub()).uid(OTHER).gid(OTHER).output().unwrap();
    assert!(!opened.status.success() && opened.stdout.is_empty());
}

#[test]
fn what_record_writes_is_its_users() {
    let place = Place::new("security-modes");
    let program = program(&place);
    let bits = |name: &str| fs::metadata(place.file(name)).unwrap().mode() & 0o7777;
    let run = |arguments: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(everycall()).args(arguments);
        successful(command.current_dir(place.path()));
    };
    let program = program.to_str().unwrap();
    run(&["record", "-q", "-o", "plain.ect", "--", program, "fork"]);
    run(&["record", "-q", "--stream", "-o", "stream.ect", "--", program, "fork"]);
    run(&["resolve", "--trigger", "main > 1ms", "-o", "set.ecs", program]);
    assert_eq!((bits("plain.ect"), bits("stream.ect")), (0o600, 0o600));
    assert_eq!(bits("set.ecs") & 0o022, 0);

    // A link that somebody has left there in the hope that it is followed.
    let victim = place.write("victim", "precious");
    symlink(&victim, place.file("rights.ect")).unwrap();
    let mut record = place.command(everycall());
    let output = record.args(["record", "-q", "--", program, "fork"]).output().unwrap();
    let mut text = String::new();
    File::open(&victim).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "precious", "{output:?}");
}

/// The package's `attach` as root, in the folder that it shares with another user's program: the
/// program may put anything there, and nothing but root's own files changes.
#[test]
fn attaching_as_root_follows_no_links() {
    if !has_other_user() {
        return;
    }
    let place = Place::new("security-attach");
    mode(place.path(), 0o755);
    let secret = place.file("secret");
    fs::write(&secret, "secret").unwrap();
    mode(&secret, 0o600);
    // The package from its sources: attaching itself needs a Python 3.14, which is left out here.
    let script = r#"
import os, sys
from everycall import _attach
pid, secret = int(sys.argv[1]), sys.argv[2]
hostile = """
import os, sys
folder, secret = sys.argv[1:]
os.makedirs(folder + '/sub', exist_ok=True)
for at in ('/x', '/sub/x', '/script.py'):
    if not os.path.islink(folder + at):
        os.symlink(secret, folder + at)
open(folder + '/said', 'w').write("{'note': None}")
os.rename(folder + '/said', folder + '/answer')
"""
def request(pid, script):
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            sys.argv = ["", place.answers, secret]
            exec(hostile, {})
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
_attach.request = request
place = _attach.Place(pid)
for call in ("begin()", "end()"):
    assert place.ask(call, "x") == {"note": None}
script = os.stat(place.folder + "/script.py")
assert script.st_mode & 0o777 == 0o755, oct(script.st_mode)
place.remove()
assert not os.path.exists(place.folder)
"#;
    let mut other = Command::new("sleep").arg("600").uid(65_534).gid(65_534).spawn().unwrap();
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../python");
    let output = Command::new("python3")
        .args(["-B", "-c", script, &other.id().to_string()])
        .arg(&secret)
        .env("PYTHONPATH", package)
        .output()
        .unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
}
