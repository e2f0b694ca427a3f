//! Whatever the kernel refuses, the trace is whole, `info` says why states are missing or coarse,
//! and nothing is left in the kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use everycall_tests::{Place, everycall, successful, wait};
use serde_json::Value;

use super::{NOBODY, TraceFs, folder_of_user, info, lines, may_be_another, one_line, phases, program};

/// refuse CALL NUMBER COMMAND...: a command for which a system call fails with this error, as under
/// a container's filter.
const REFUSE: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    int call = !strcmp(arguments[1], "mkdir") ? SYS_mkdir : SYS_perf_event_open;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | atoi(arguments[2])),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return 125;
    execvp(arguments[3], arguments + 3);
    return 126;
}
"#;

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;

struct Refused {
    place: Place,
    program: PathBuf,
    /// The program that refuses.
    refuse: PathBuf,
    /// Where the other user finds all that is needed; `None` if this is no privileged user.
    of_user: Option<PathBuf>,
}

impl Refused {
    fn new(name: &str) -> Refused {
        let place = Place::new(name);
        let program = program(&place);
        let source = place.write("refuse.c", REFUSE);
        let refuse = place.file("refuse");
        successful(Command::new("gcc").arg("-o").arg(&refuse).arg(source));
        let of_user = may_be_another().then(|| {
            let folder = folder_of_user(&place, &program, NOBODY);
            std::fs::copy(&refuse, folder.join("refuse")).unwrap();
            folder
        });
        Refused { place, program, refuse, of_user }
    }

    /// Records with `states`, after the words of `before`; returns the states of `info` in JSON.
    /// All calls are in the trace, and `info` says what it says in one line.
    fn record(&self, before: &[&str], states: &str) -> Value {
        self.check(
            self.place.command("env").args(before).arg(everycall()),
            states,
            &self.program,
            self.place.path(),
        )
    }

    /// Records with `states` as another user, after the words of `before`.
    fn record_as_user(&self, before: &[&str], states: &str) -> Option<Value> {
        let folder = self.of_user.as_ref()?;
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), "--clear-groups", "env", "-C"]).arg(folder);
        command.arg(format!("XDG_CACHE_HOME={}", folder.display())).args(before).arg("./everycall");
        Some(self.check(&mut command, states, Path::new("./phases"), folder))
    }

    fn check(&self, command: &mut Command, states: &str, program: &Path, folder: &Path) -> Value {
        command.args(["record", "-q", states, "-o", "a.ect", "--"]).arg(program);
        assert_eq!(phases(&successful(command)).len(), 7, "{command:?}");
        let file = folder.join("a.ect");
        let calls = lines(&file).iter().filter(|line| line["name"].is_string()).count();
        assert_eq!(calls, 8, "seven phases and main");
        let states = info(&file)["states"].clone();
        let text = states["text"].as_str().unwrap();
        assert!(!text.contains('\n'), "{text}");
        let page = one_line(&file);
        assert!(page.contains(&text.split_whitespace().collect::<Vec<_>>().join(" ")), "{page}\n{text}");
        assert_eq!(page.contains("states not recorded: "), states["source"].is_null(), "{page}");
        states
    }
}

#[track_caller]
fn says(states: &Value, words: &str) {
    assert!(states["text"].as_str().unwrap().contains(words), "{states}\n{words}");
}

/// A container's filter, with each error that such filters have, as root and as another user.
#[test]
fn perf_event_open() {
    let refused = Refused::new("states-refused");
    let refuse = refused.refuse.to_str().unwrap();
    for error in [EPERM, EACCES, ENOSYS] {
        let number = error.to_string();
        let states = refused.record(&[refuse, "perf_event_open", &number], "--states=perf");
        assert!(states["source"].is_null(), "{states}");
        says(&states, "a container's filter of system calls does that");
        let of_user = refused.record_as_user(&["./refuse", "perf_event_open", &number], "--states=perf");
        if let Some(states) = of_user {
            assert!(states["source"].is_null(), "{states}");
            says(&states, "a container's filter of system calls does that");
        }
    }
    // Without a chosen source, it takes one that is left.
    let number = EPERM.to_string();
    let states = refused.record(&[refuse, "perf_event_open", &number], "--states");
    assert!(["schedstat", "tracefs"].contains(&states["source"].as_str().unwrap()), "{states}");
    says(&states, "perf_event_open is refused");
    if let Some(states) = refused.record_as_user(&["./refuse", "perf_event_open", &number], "--states") {
        assert_eq!(states["source"], "schedstat", "{states}");
        says(&states, "perf_event_open is refused");
    }
}

/// Without samples, the calls are recorded all the same, and the reason is said at once.
#[test]
fn sampled_stacks() {
    let refused = Refused::new("samples-refused");
    let mut command = refused.place.command(&refused.refuse);
    command.args(["perf_event_open", &EACCES.to_string()]).arg(everycall());
    command.args(["record", "--samples", "-o", "a.ect", "--"]).arg(&refused.program);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no stacks are sampled (--samples): perf_event_open is refused"), "{said}");
    let file = refused.place.file("a.ect");
    let samples = info(&file)["samples"].clone();
    assert_eq!((&samples["rate"], &samples["samples"]), (&0.into(), &0.into()), "{samples}");
    says(&samples, "a container's filter of system calls does that");
    assert!(one_line(&file).contains("samples not recorded: perf_event_open is refused"));
    assert_eq!(lines(&file).iter().filter(|line| line["name"].is_string()).count(), 8);
}

/// Debian's setting: `perf_event_open` fails then, for others than root.
#[test]
fn a_high_perf_event_paranoid() {
    let refused = Refused::new("states-paranoid");
    let level = refused.place.write("level", "3\n");
    let enter = "mount --bind \"$0\" /proc/sys/kernel/perf_event_paranoid && exec \"$@\"";
    let alone = ["unshare", "-m", "sh", "-c", enter, level.to_str().unwrap()];
    let may = Command::new(alone[0]).args(&alone[1..]).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        println!("this user may not mount: not tried");
        return;
    }
    let root = [&alone[..], &[refused.refuse.to_str().unwrap(), "perf_event_open", "13"]].concat();
    let states = refused.record(&root, "--states=perf");
    says(&states, "kernel.perf_event_paranoid is 3, which forbids perf_event_open");
    says(&states, "`sudo sysctl kernel.perf_event_paranoid=2`");
    let folder = refused.of_user.as_ref().unwrap();
    let mut command = Command::new(alone[0]);
    command.args(&alone[1..]).args(["setpriv", &format!("--reuid={NOBODY}"), "--clear-groups", "env", "-C"]);
    command.arg(folder).arg(format!("XDG_CACHE_HOME={}", folder.display()));
    command.args(["./refuse", "perf_event_open", "13", "./everycall"]);
    let states = refused.check(&mut command, "--states", Path::new("./phases"), folder);
    assert_eq!(states["source"], "schedstat", "{states}");
    says(&states, "kernel.perf_event_paranoid is 3");
}

#[track_caller]
fn is_without_tracefs(states: &Value) {
    assert!(!states["source"].to_string().contains("tracefs"), "{states}");
}

#[test]
fn tracefs() {
    let refused = Refused::new("states-no-tracefs");
    // Not mounted.
    let unmount = "umount -a -t tracefs; exec \"$0\" \"$@\"";
    let alone = ["unshare", "-m", "sh", "-c", unmount];
    if Command::new(alone[0]).args(&alone[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        let states = refused.record(&alone, "--states=tracefs");
        assert!(states["source"].is_null(), "{states}");
        says(&states, "isn't mounted (`sudo mount -t tracefs tracefs /sys/kernel/tracing`)");
        let states = refused.record(&alone, "--states");
        is_without_tracefs(&states);
        says(&states, "isn't mounted");
    }
    let Some(tracefs) = TraceFs::find() else { return };
    // No permission.
    if let Some(states) = refused.record_as_user(&[], "--states=tracefs") {
        assert!(states["source"].is_null(), "{states}");
        says(
            &states,
            "is for root, and for whom root gives access (`sudo everycall setup-tracefs --user 65534`)",
        );
    }
    // The program has other numbers there than in the kernel's events.
    let container = ["unshare", "--pid", "--fork", "--mount-proc"];
    let states = refused.record(&container, "--states=tracefs");
    assert!(states["source"].is_null(), "{states}");
    says(&states, "has other numbers of threads than this container (PID namespace)");
    is_without_tracefs(&refused.record(&container, "--states"));
    // No more instances.
    let refuse = refused.refuse.to_str().unwrap();
    for (error, words) in [
        (ENOMEM, "has no room for one more instance (Cannot allocate memory"),
        (ENOSPC, "has no room for one more instance (No space left"),
        (EPERM, "is for root"),
        // It is taken for one of a killed recorder, and isn't there.
        (EEXIST, "can't be used: No such file"),
    ] {
        let states = refused.record(&[refuse, "mkdir", &error.to_string()], "--states=tracefs");
        assert!(states["source"].is_null(), "{states}");
        says(&states, words);
    }
    // The kernel's lockdown is no more than a file that says so and a refusal, for whoever meets
    // it. At its lower level, tracefs is open, and refused for another reason.
    for (level, words) in [
        ("none integrity [confidentiality]", "is closed by the kernel's lockdown (confidentiality)"),
        ("none [integrity] confidentiality", "is for root"),
    ] {
        let file = refused.place.write("lockdown", level);
        let security =
            "mount -t tmpfs tmpfs /sys/kernel/security && cp \"$0\" /sys/kernel/security/ && exec \"$@\"";
        let alone = ["unshare", "-m", "sh", "-c", security, file.to_str().unwrap(), refuse, "mkdir", "1"];
        let states = refused.record(&alone, "--states=tracefs");
        assert!(states["source"].is_null(), "{states}");
        says(&states, words);
        is_without_tracefs(&refused.record(&alone, "--states"));
    }
    assert_eq!(tracefs.instances(), [""; 0]);
}

/// Recorders that are killed at any moment leave no instance.
#[test]
fn killed_recorders_leave_nothing_in_the_kernel() {
    let place = Place::new("states-kills");
    let Some(tracefs) = TraceFs::find() else { return };
    let mut seen = 0;
    for round in 0..20_u64 {
        let mut command = place.command(everycall());
        command.args(["record", "-q", "--states", "--launcher", "-o", "a.ect", "--", "sleep", "0.3"]);
        let mut recorder = command.stdout(Stdio::null()).spawn().unwrap();
        let pid = recorder.id();
        if round % 2 == 0 {
            wait::until("its instance is there", || {
                tracefs.has_instance_of(pid) || recorder.try_wait().unwrap().is_some()
            });
            seen += usize::from(tracefs.has_instance_of(pid));
        }
        // Moments of its start, and, as it takes longer on a busy machine, whatever it does then.
        let wait = (round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 20_000;
        std::thread::sleep(Duration::from_micros(wait));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        wait::until("its instance is gone", || !tracefs.has_instance_of(pid));
    }
    assert!(seen > 5, "{seen} recorders were killed while they had an instance");
    // One that was killed before may be about to make it.
    wait::until("none is left", || tracefs.instances().is_empty());
}
