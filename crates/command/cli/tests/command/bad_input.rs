//! Every kind of bad input causes a message that names the input, an exit code, and no partial
//! file.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Outcome, Workplace, is_failure};

#[test]
fn programs_that_cant_be_traced() {
    let here = Workplace::new();
    here.write("plain.c", "int main(void) { return 0; }\n");
    assert_eq!(here.shell("gcc -static plain.c -o static").code, Some(0));
    here.write("noise", [0, 1, 2, 3]);
    here.write("cut", b"\x7fELF\x02\x01\x01");
    assert_eq!(here.shell("chmod +x noise cut").code, Some(0));
    let how = ["has no traced functions", "everycall cc -- g++"];
    here.fail("record -o t.ect -- ./static", 125, &[&["./static"][..], &how].concat());
    here.fail("record -o t.ect -- ./noise", 126, &["./noise", "neither an ELF file nor a script"]);
    here.fail("record -o t.ect -- ./cut", 126, &["./cut", "link it again"]);
    here.fail("record -o t.ect -- ./plain.c", 126, &["./plain.c", "can't be executed"]);
    here.fail("record -o t.ect -- ./nowhere", 127, &["./nowhere", "does not exist"]);
    here.fail("record -o t.ect -- .", 126, &["is a folder"]);
    here.fail("record", 2, &["PROGRAM"]);
    assert!(!here.files().iter().any(|name| name.contains("ect")), "{:?}", here.files());
}

/// System calls that Rust's library needs, refused by filters: a sentence and a code, no abort and
/// no panic.
#[test]
fn refused_system_calls_are_named() {
    let here = Workplace::new();
    here.build_app();
    // Its first argument is the number of the call that the filter refuses.
    here.write(
        "refusing.c",
        "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stdlib.h>\n\
         #include <sys/prctl.h>\n#include <unistd.h>\n\
         int main(int count, char **words) {\n\
           struct sock_filter all[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),\n\
             BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(words[1]), 0, 1),\n\
             BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};\n\
           struct sock_fprog filter = {4, all};\n\
           prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);\n\
           return prctl(PR_SET_SECCOMP, 2, &filter) ? 99 : execvp(words[2], words + 2);\n\
         }\n",
    );
    assert_eq!(here.shell("gcc refusing.c -o refusing").code, Some(0));
    here.succeed("record -q -o kept.ect -- ./app");
    let (poll, receive, time) = (7, 45, 228);
    for (number, line, code) in [
        (poll, "record -o t.ect -- ./app", 125),
        (poll, "info kept.ect", 1),
        (receive, "record -o t.ect -- ./app", 125),
        (time, "record -o t.ect -- ./app", 125),
    ] {
        let everycall = env!("CARGO_BIN_EXE_everycall");
        let outcome = here.shell(&format!("env -u RUST_BACKTRACE ./refusing {number} {everycall} {line}"));
        let named = format!("{number}: {line}");
        // The clock may be read without the kernel.
        if number == time && outcome.code == Some(0) {
            continue;
        }
        is_failure(&named, &outcome, code, &["refuses", "filter (seccomp)", "outside"]);
        assert!(!outcome.stderr.contains("panicked"), "{named}: {}", outcome.stderr);
    }
}

/// Sites without a runtime stay off; the message advises to link through the prefix.
#[test]
fn programs_linked_without_the_runtime() {
    let here = Workplace::new();
    here.write("plain.c", "int main(void) { return 0; }\n");
    here.succeed("cc -- gcc -c plain.c -o plain.o");
    assert_eq!(here.shell("gcc plain.o -o plain && ./plain").code, Some(0));
    here.fail(
        "record -o t.ect -- ./plain",
        125,
        &["linked without everycall's runtime", "link it through the prefix"],
    );
}

/// These already have the runtime: building them through the prefix again would not help.
#[test]
fn programs_that_never_come_to_the_runtime() {
    let here = Workplace::new();
    here.write(
        "bare.c",
        // Brings the C library's start code, and a replacement for it.
        "static int twice(int x) { return 2 * x; }\n\
         void _init(void) {}\n\
         void _fini(void) {}\n\
         void _dl_relocate_static_pie(void) {}\n\
         void _start(void) {\n\
           __asm__ volatile(\"and $-16, %rsp\");\n\
           __asm__ volatile(\"syscall\" : : \"a\"(231), \"D\"(twice(2)));\n\
           for (;;);\n\
         }\n",
    );
    here.succeed("cc -- gcc -nostartfiles -static -O0 bare.c -o bare");
    let bare = here.run("record -o bare.ect -- ./bare");
    assert_eq!(bare.code, Some(4), "{bare:?}");
    for words in [
        "nothing was traced",
        "./bare contains everycall's runtime",
        "-nostartfiles",
        "bare.ect contains no calls",
    ] {
        assert!(bare.stderr.contains(words), "no {words:?} in {bare:?}");
    }
    assert!(!bare.stderr.contains("everycall cc"), "{bare:?}");
}

#[test]
fn compilers_and_modes() {
    let here = Workplace::new();
    here.write("plain.c", "int main(void) { return 0; }\n");
    here.fail("cc -- no-such-gcc plain.c", 127, &["no-such-gcc"]);
    here.fail("cc -- ./no-such-gcc plain.c", 127, &["./no-such-gcc"]);
    here.fail("cc -- ./plain.c x", 126, &["./plain.c", "is not executable"]);
    here.fail("cc -- ./ x", 126, &["is not executable"]);
    here.fail("cc --mode xray -- gcc plain.c", 2, &["xray", "gcc"]);
    here.fail("cc --mode invalid -- gcc plain.c", 2, &["invalid", "nops"]);
    // The compiler's diagnostics are unchanged.
    here.write("wrong.c", "int main(void) { return }\n");
    let ours = here.run("cc -- gcc -c wrong.c");
    let plain = here.shell("gcc -c wrong.c");
    assert_eq!((ours.code, ours.stderr), (plain.code, plain.stderr));
    assert_eq!(here.files(), ["plain.c", "wrong.c"]);
}

#[test]
fn outputs_that_cant_be_written() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    here.fail("record -o nowhere/app.ect -- ./app", 125, &["nowhere/app.ect", "folder must exist"]);
    here.fail("record -o /proc/app.ect -- ./app", 125, &["/proc/app.ect"]);
    here.fail("record -o . -- ./app", 125, &["name a file in it"]);
    // No program is started if the output's name is impossible.
    for output in ["sub/", "sub/.", "nowhere/sub/"] {
        let line = format!("record -o {output} -- ./app 9");
        let outcome = here.run(&line);
        is_failure(&line, &outcome, 125, &[output]);
        assert_eq!(outcome.stdout, "", "{line}: it ran");
    }
    here.fail("export -o nowhere/app.json app.ect", 1, &["nowhere/app.json", "folder must exist"]);
    here.fail("export -o /dev/full app.ect", 1, &["/dev/full", "free some space"]);
    let replay = here.shell("$EVERYCALL replay app.ect > /dev/full");
    is_failure("replay", &replay, 1, &["standard output", "free some space"]);
    // The program has run by then, and its own exit code is kept.
    here.fail(
        "record -o /dev/full -- ./app 9",
        125,
        &["/dev/full", "free some space", "the program itself exited with 9"],
    );
    assert_eq!(here.files(), ["app", "app.cpp", "app.ect"]);
}

/// `record -o app ./app` is a typing error that must not overwrite the program.
#[test]
fn outputs_that_are_the_program() {
    let here = Workplace::new();
    here.build_app();
    here.write("script", "#!/bin/sh\n./app\n");
    assert_eq!(here.shell("chmod +x script && ln -s app link && mkdir bin && ln app bin/shop").code, Some(0));
    let before = here.read("app");
    for line in [
        "record -o app -- ./app",
        "record -o ./app ./app",
        "record --stream -o app -- ./app",
        "record -o link -- ./app",
        "record -o app -- ./link",
        "record -o app -- shop",
        "record -o app -- env ./app",
        "record -o script -- ./script",
    ] {
        let outcome: Outcome = here
            .command()
            .env("PATH", format!("bin:{}", std::env::var("PATH").unwrap()))
            .args(line.split_whitespace())
            .output()
            .unwrap()
            .into();
        is_failure(line, &outcome, 125, &["is the program", "-o", ".ect"]);
        assert_eq!(outcome.stdout, "", "{line}: it ran");
    }
    assert_eq!(here.read("app"), before);
    assert_eq!(here.files(), ["app", "app.cpp", "bin", "link", "script"]);
    // Older traces are replaced as usual, whether or not they are arguments.
    let old = b"everycall trace\nold";
    here.write("old.ect", old);
    here.succeed("record -q -o old.ect -- env ./app 0 old.ect");
    assert_ne!(here.read("old.ect"), old);
    assert_eq!(here.read("old.ect.old"), old);
}

#[test]
fn limits_of_the_process() {
    let here = Workplace::new();
    here.build_app();
    let record = |limit: &str| here.shell(&format!("{limit}; exec $EVERYCALL record -o app.ect -- ./app 5"));
    // Enough for a smaller arena.
    for limit in ["ulimit -v 3000000", "ulimit -f 500000"] {
        let outcome = record(limit);
        assert_eq!((outcome.code, &*outcome.stdout), (Some(5), "done\n"), "{limit}: {outcome:?}");
        assert!(outcome.stderr.contains("2 threads"), "{limit}: {outcome:?}");
    }
    std::fs::remove_file(here.path("app.ect")).unwrap();
    is_failure("ulimit -f", &record("ulimit -f 10"), 125, &["RLIMIT_FSIZE", "ulimit -f", "--ring-size"]);
    // Enough for the command itself, unoptimized, and not for the smallest arena.
    is_failure("ulimit -v", &record("ulimit -v 60000"), 125, &["RLIMIT_AS", "ulimit -v", "--ring-size"]);
    is_failure("ulimit -n", &record("ulimit -n 8"), 125, &["open files", "ulimit -n"]);
    // The file itself outgrows the limit.
    here.succeed("record -q -o app.ect -- ./app");
    let outcome = here.shell("ulimit -f 1; exec $EVERYCALL export -o app.json app.ect");
    is_failure("export", &outcome, 1, &["app.json", "ulimit -f"]);
    assert_eq!(here.files(), ["app", "app.cpp", "app.ect", "app.ect.old"]);
}

#[test]
fn files_that_are_no_traces() {
    let here = Workplace::new();
    here.write("empty.ect", "");
    here.write("text.ect", "hello\n");
    here.write("json.ect", "{\"traceEvents\":[]}");
    here.write("zeros.ect", [0; 4096]);
    assert_eq!(here.shell("mkfifo fifo.ect").code, Some(0));
    for verb in ["info", "replay", "export -o out.json"] {
        here.fail(&format!("{verb} empty.ect"), 1, &["empty.ect", "an empty file", "everycall record"]);
        here.fail(&format!("{verb} text.ect"), 1, &["text.ect", "text"]);
        here.fail(&format!("{verb} json.ect"), 1, &["JSON"]);
        here.fail(&format!("{verb} zeros.ect"), 1, &["zeros"]);
        here.fail(&format!("{verb} /bin/sh"), 1, &["ELF file"]);
        here.fail(&format!("{verb} nowhere.ect"), 1, &["nowhere.ect", "can't be read"]);
        here.fail(&format!("{verb} ."), 1, &["not a regular file"]);
        here.fail(&format!("{verb} /dev/zero"), 1, &["not a regular file"]);
        here.fail(&format!("{verb} fifo.ect"), 1, &["fifo.ect", "not a regular file"]);
        here.fail(verb, 2, &["TRACE"]);
    }
    here.fail("core fifo.ect", 1, &["fifo.ect", "not a regular file"]);
    assert!(!here.files().contains(&"out.json".to_owned()));
}

#[test]
fn damaged_traces() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    let whole = here.read("app.ect");
    // A newer major version.
    let mut newer = whole.clone();
    newer[16] += 1;
    let checksum = crc32fast::hash(&newer[..28]).to_le_bytes();
    newer[28..32].copy_from_slice(&checksum);
    here.write("newer.ect", &newer);
    for verb in ["info", "replay", "export -o -", "report", "report --never", "report --diff app.ect"] {
        here.fail(&format!("{verb} newer.ect"), 1, &["newer.ect", "format 3.", "reads up to 2"]);
    }
    for cut in [1, 31, 32, 40, whole.len() / 4, whole.len() / 2, whole.len() - 1] {
        here.write("cut.ect", &whole[..cut]);
        let outcome = here.run("info cut.ect");
        is_told(&outcome, &["cut"]);
        is_told(&here.run("replay cut.ect"), &["cut"]);
    }
    // A flipped bit in various places is reported or harmless, and never causes a panic.
    for at in (0..whole.len()).step_by(whole.len() / 60 + 1) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        here.write("damaged.ect", &damaged);
        for verb in ["info", "replay --format json", "export -o -"] {
            is_told(&here.run(&format!("{verb} damaged.ect")), &[]);
        }
    }
}

/// The command fails with a message, or succeeds and reports what was missing.
fn is_told(outcome: &Outcome, words: &[&str]) {
    assert!(matches!(outcome.code, Some(0 | 1)), "{outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
    let told = format!("{}{}", outcome.stdout, outcome.stderr);
    for word in words {
        assert!(told.contains(word), "no {word:?} in {outcome:?}");
    }
}

#[test]
fn binaries_without_their_information() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q --no-embed -o app.ect -- ./app");
    here.write("keep.sh", "mkdir kept && cp app kept/app\n");
    assert_eq!(here.shell("sh keep.sh").code, Some(0));
    // Rebuilt since: refused by build id.
    let source = String::from_utf8(here.read("app.cpp")).unwrap().replace("2 * x", "3 * x");
    here.write("app.cpp", source);
    here.succeed("cc -- g++ -O1 -g -pthread app.cpp -o app");
    let changed = here.succeed("replay app.ect");
    assert!(changed.stderr.contains("is not the file that was traced"), "{changed:?}");
    assert!(changed.stdout.contains("app+0x") && !changed.stdout.contains("leaf"), "{changed:?}");
    // A copy elsewhere is accepted.
    let kept = here.path("kept");
    let map = format!("{}={}", here.path("").display(), kept.display());
    let mapped = here.succeed(&format!("replay --map-path {map} app.ect"));
    assert!(mapped.stdout.contains("shop::leaf(int)"), "{mapped:?}");
    here.fail("replay --map-path invalid app.ect", 2, &["OLD=NEW"]);
    // Stripped, and removed.
    assert_eq!(here.shell("rm app && strip kept/app").code, Some(0));
    let stripped = here.succeed(&format!("replay --map-path {map} app.ect"));
    assert!(stripped.stdout.contains("app+0x"), "{stripped:?}");
    let gone = here.succeed("replay app.ect");
    assert!(gone.stderr.contains("can't be read") && gone.stdout.contains("app+0x"), "{gone:?}");
}

#[test]
fn names_and_sources_that_are_no_utf8() {
    let here = Workplace::new();
    let folder = here.path(std::ffi::OsStr::from_bytes(b"f\xff"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("m.c"), b"// \xff\xfe\nint main(void) { return 0; }\n").unwrap();
    let run = |words: &[&std::ffi::OsStr]| -> Outcome {
        here.command().current_dir(&folder).args(words).output().unwrap().into()
    };
    let words = |line: &'static str| line.split_whitespace().map(std::ffi::OsStr::new).collect::<Vec<_>>();
    let odd = std::ffi::OsStr::from_bytes(b"./p\xfe");
    let built = run(&[&words("cc -- gcc -g m.c -o")[..], &[odd]].concat());
    assert_eq!(built.code, Some(0), "{built:?}");
    let recorded =
        run(&[&words("record -o t.ect --")[..], &[odd, std::ffi::OsStr::from_bytes(b"\x80arg")]].concat());
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    for verb in
        ["info t.ect", "info -f json t.ect", "replay t.ect", "replay -f json t.ect", "export -o t.json t.ect"]
    {
        let outcome = run(&words(verb));
        assert_eq!(outcome.code, Some(0), "{verb}: {outcome:?}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("t.json")).unwrap()).unwrap();
    assert!(json["file_info"]["files"].to_string().contains("int main"), "{json}");
}

/// If sources are missing or changed since the build, the export says so.
#[test]
fn sources_that_are_not_what_was_built() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    let whole = here.succeed("export -o app.json app.ect");
    assert!(!whole.stderr.contains("source"), "{whole:?}");

    let source = here.read("app.cpp");
    let changed = [&source[..], b"// caf\xe9\n"].concat();
    here.write("app.cpp", &changed);
    assert_eq!(here.shell("touch -d '+1 hour' app.cpp").code, Some(0));
    let newer = here.succeed("export -o app.json app.ect");
    for words in ["app.cpp) is newer than the traced program", "app.cpp) is not valid UTF-8"] {
        assert!(newer.stderr.contains(words), "no {words:?} in {newer:?}");
    }
    std::fs::rename(here.path("app.cpp"), here.path("moved.cpp")).unwrap();
    let missing = here.succeed("export -o app.json app.ect");
    for words in ["1 source file (", "app.cpp: No such file", "not shown", "--map-source OLD=NEW"] {
        assert!(missing.stderr.contains(words), "no {words:?} in {missing:?}");
    }
    assert_eq!(missing.stderr.matches("app.cpp").count(), 1, "{missing:?}");
    // A format without sources doesn't report missing ones.
    let chrome = here.succeed("export -f chrome -o app.json app.ect");
    assert!(!chrome.stderr.contains("source"), "{chrome:?}");
}

#[test]
fn options_that_make_no_sense() {
    let here = Workplace::new();
    for (line, word) in [
        ("record --ring-size 3 -- app", "power of two"),
        ("record --ring-size 2G -- app", "64K to 1G"),
        ("replay --since yesterday t.ect", "yesterday"),
        ("replay --function ( t.ect", "regular expression"),
        ("replay --tid main t.ect", "1234,'task 4'"),
        ("replay --pid main t.ect", "thread or process number"),
        ("export -f invalid t.ect", "vizviewer, chrome, perfetto, csv"),
        ("replay --depth 0 t.ect", "--depth"),
        ("invalid", "invalid"),
        ("snapshot app", "write a process id; `everycall ps` lists"),
        ("record --bogus -- ./app", "--bogus is not an option"),
        ("record -o t.ect -x ./app", "-x is not an option"),
    ] {
        here.fail(line, 2, &[word]);
    }
}

#[test]
fn files_that_one_may_not_read() {
    let here = Workplace::new();
    let path = here.write("secret.ect", "x");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
    let outcome = here.run("info secret.ect");
    // Root can read everything.
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("secret.ect"), "{outcome:?}");
}

/// A file that can't be imported is refused with its kind and the formats that can be.
#[test]
fn imports_of_wrong_input() {
    let here = Workplace::new();
    here.write("empty", "");
    here.write("noise", [0xff, 1, 2, 3]);
    here.write("text.txt", "hello\n");
    let known = ["known are", "chrome", "funtrace", "perf", "perf-data", "uftrace", "xray-basic", "xray-fdr"];
    here.fail("import -o t.ect empty", 1, &[&["empty: is empty"][..], &known].concat());
    here.fail("import -o t.ect noise", 1, &[&["noise: is of no format"][..], &known].concat());
    here.fail("import -o t.ect text.txt", 1, &[&["text.txt: is of no format"][..], &known].concat());
    here.fail("import -o t.ect nowhere", 1, &["nowhere: can't be read", "name an existing file"]);
    here.write("t.json", "[]");
    here.fail("import -o t.json t.json", 2, &["t.json is the input"]);
    here.write("core", [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[4, 0], &[0; 46]].concat());
    here.fail("import -o t.ect core", 1, &["core: is a core dump", "everycall core"]);
    here.write("app", [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[3, 0], &[0; 46]].concat());
    here.fail("import -o t.ect app", 1, &["app: is a program or library", "--binary"]);
    here.write("old.ect", "everycall trace\n and more");
    here.fail(
        "import -o t.ect old.ect",
        1,
        &["old.ect: is a trace of everycall already", "everycall replay"],
    );
    here.write("perf.data", "PERFILE2 and more");
    here.fail(
        "import -o t.ect perf.data",
        1,
        &["perf.data: is damaged at byte 0: the header of perf's file is truncated"],
    );
    here.fail("import -o t.ect .", 1, &["not one of uftrace"]);
    here.write("cut.json", "[{\"ph\":");
    here.fail("import -o t.ect cut.json", 1, &["cut.json: is damaged at byte 1", "more of the first event"]);
    here.write("log", [&[3, 0, 0, 0][..], &[0; 28]].concat());
    here.fail("import -o t.ect --binary text.txt log", 1, &["the binary text.txt can't be used"]);
    here.write("new", [&[9, 0, 1, 0][..], &[0; 28]].concat());
    here.fail("import -o t.ect new", 1, &["XRay log of version 9", "1 to 5"]);
    here.fail("import -o t.ect -f funtrace text.txt", 1, &["text.txt: is damaged at byte 0"]);
    here.fail("import -o t.ect -f nothing text.txt", 2, &["nothing", "xray-fdr"]);
    assert!(!here.files().iter().any(|name| name.contains("t.ect")), "{:?}", here.files());
}

/// Queries that aren't SQL, name what isn't there, or want more than to read.
#[test]
fn queries_that_have_no_result() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    let sql = |query: &str| -> Outcome {
        here.command().args(["sql", "app.ect", query]).output().expect("everycall runs").into()
    };
    let refused = "may only read the traces' tables";
    for (query, code, words) in [
        (
            "select *\nform slices",
            2,
            &["near \"form\": syntax error", "line 2, column 1", "\n  form slices\n  ^"][..],
        ),
        (
            "select count(*) from slice",
            2,
            &["no such table: slice", "did you mean slices", "there are slices, functions"],
        ),
        (
            "select duration from slices",
            2,
            &["no such column: duration", "duration_ns", "everycall sql --schema"],
        ),
        ("select s.woken_by from slices s", 2, &["no such column", "it is a column of states"]),
        ("select none_such(1)", 2, &["no such function: none_such"]),
        ("", 2, &["the query is empty"]),
        ("/* nothing */", 2, &["the query is empty"]),
        ("select 1; select 2", 2, &["several queries"]),
        ("select function regexp '(' from slices", 2, &["is not a regular expression"]),
        ("select percentile(duration_ns, 200) from slices", 2, &["a number from 0 to 100"]),
        ("attach 'other.db' as other", 2, &[refused, "attaching files"]),
        ("create table t(x)", 2, &[refused, "writing"]),
        ("create temp view t as select 1", 2, &[refused, "writing"]),
        ("insert into slices values (1)", 2, &[]),
        ("delete from functions", 2, &[]),
        ("drop view slices", 2, &[refused]),
        ("pragma temp_store_directory = '/'", 2, &[refused, "the pragma temp_store_directory"]),
        ("vacuum into 'copy.db'", 2, &[]),
        ("begin", 2, &[refused, "transactions"]),
        ("select load_extension('evil.so')", 2, &[]),
        ("select zeroblob(1000000000)", 1, &["too big"]),
        (
            "select group_concat(x) from (with recursive n(x) as (select 1 union all select x || x from n) select x from n)",
            1,
            &["too big"],
        ),
    ] {
        let outcome = sql(query);
        is_failure(query, &outcome, code, words);
        assert_eq!(outcome.stdout, "", "{query}");
    }
    let deep = format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    here.write("deep.sql", deep);
    let failed = here.run("sql app.ect @deep.sql");
    assert_eq!(failed.code, Some(2), "{}", failed.stderr.chars().take(500).collect::<String>());
    here.fail("sql app.ect", 2, &["a trace and a query are needed"]);
    here.fail("sql app.ect app.ect", 2, &["the query is missing"]);
    here.fail("sql nowhere.ect select", 1, &["nowhere.ect"]);
    here.fail("sql app.ect @nowhere.sql", 1, &["nowhere.sql", "can't be read"]);
    here.write("binary.sql", [0xff, 0xfe]);
    here.fail("sql app.ect @binary.sql", 2, &["UTF-8"]);
    let before = here.files();
    here.fail("sql -o out.csv app.ect select", 2, &[]);
    assert_eq!(here.files(), before);
    // Files that end early show what they have; none ends the program in another way.
    let whole = here.read("app.ect");
    for length in (0..whole.len()).step_by(whole.len() / 12) {
        here.write("cut.ect", &whole[..length]);
        let outcome =
            here.command().args(["sql", "cut.ect", "select count(*) from events, functions"]).output();
        let outcome = Outcome::from(outcome.expect("everycall runs"));
        assert!(matches!(outcome.code, Some(0 | 1)), "{length}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{length}: {outcome:?}");
    }
}

/// A query that never ends is ended by signals. (Where tests are run in the background, SIGINT may
/// be ignored.)
#[test]
fn endless_queries_are_interrupted() {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o app.ect -- ./app");
    let query = "with recursive n(x) as (select 1 union all select x + 1 from n) select x from n";
    let mut command = here.command();
    command.args(["sql", "-f", "csv", "app.ect", query]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().expect("everycall runs");
    // It has begun.
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 8]).expect("rows");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
    // Nobody reads on, so it can't end by itself.
    let status = child.wait().expect("it ends");
    assert_eq!(status.signal(), Some(rustix::process::Signal::TERM.as_raw()), "{status:?}");
}

/// Of inputs that are named, only regular files are read, whoever made them, and within bounds.
#[test]
fn endless_and_waiting_inputs_are_refused() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o t.ect -- ./app");
    assert_eq!(
        here.shell("mkfifo fifo && mkdir uf uz && mkfifo uf/info && ln -s /dev/zero uz/info").code,
        Some(0)
    );
    for odd in ["fifo", "/dev/zero"] {
        for line in [
            "info X",
            "replay X",
            "report X",
            "report --diff X --against X",
            "export -o out X",
            "view --html out X",
            "merge -o out X",
            "cull X",
            "embed X",
            "core -o out X",
            "import -o out X",
            "sql X select",
            "sql t.ect @X",
            "cc --only @X -- gcc -c app.cpp -o app.o",
            "record -o out --only @X -- ./app",
            "record -o out --not @X -- ./app",
            "record -o out --log X -- ./app",
            "resolve -o out --only @X ./app",
            "resolve -o out --trigger 'main > 1s' X",
            "functions X",
            "functions --untouched X",
        ] {
            // A limit ends what reads it all.
            let line = line.replace('X', odd);
            let outcome = here.shell(&format!("ulimit -v 8000000; exec timeout 120 $EVERYCALL {line}"));
            assert!(
                ![Some(0), Some(124), Some(101), Some(134), None].contains(&outcome.code),
                "{line}: {outcome:?}"
            );
            assert!(outcome.stderr.contains(odd), "{line}: {outcome:?}");
        }
    }
    for folder in ["uf", "uz"] {
        here.fail(&format!("import -o out {folder}"), 1, &[folder, "not a regular file"]);
    }
    assert!(!here.path("out").exists());
}

#[test]
fn queries_have_bounds() {
    let here = Workplace::new();
    here.build_app();
    here.succeed("record -q -o t.ect -- ./app");
    let many = "slices a, slices b, slices c, slices d";
    let query =
        |options: &str, query: &str| here.shell(&format!("exec $EVERYCALL sql {options} t.ect \"{query}\""));
    let slow = query("--timeout 100ms", &format!("select count(*) from {many}"));
    is_failure("--timeout", &slow, 1, &["--timeout 100 ms"]);
    let large =
        query("--temp-size 1M", &format!("select a.function from {many} order by hex(randomblob(500))"));
    is_failure("--temp-size", &large, 1, &["more than 1 MiB", "--temp-size"]);
    // A cell that is longer than the widths of formats, in a pipe.
    let wide = query("", "select hex(zeroblob(100000)) as cell, 1 as one");
    assert_eq!(wide.code, Some(0), "{}", wide.stderr);
    assert!(wide.stdout.contains(&"0".repeat(200_000)));
}

/// Somebody who records Python without its package is told how.
#[test]
fn python_alone_is_recorded_by_its_package() {
    let here = Workplace::new();
    here.write("x.py", "print(1)\n");
    let outcome = here.succeed("record -o x.ect -- python3 x.py");
    assert!(outcome.stderr.contains("`python3 -m everycall x.py`"), "{outcome:?}");
    assert!(!outcome.stderr.contains("g++"), "{outcome:?}");
}

/// A process that is stopped can't answer, which is said soon.
#[test]
fn a_stopped_process_is_called_stopped() {
    let here = Workplace::new();
    here.write(
        "loop.c",
        "#include <unistd.h>\n__attribute__((noinline)) void work(void) { usleep(1000); }\nint main() { for (;;) work(); }\n",
    );
    here.succeed("cc -- gcc -O1 loop.c -o loop");
    let mut child = std::process::Command::new(here.path("loop")).spawn().unwrap();
    let pid = child.id();
    let signal = |name: &str| assert_eq!(here.shell(&format!("kill -{name} {pid}")).code, Some(0));
    // It is there when its arena is.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while here.run(&format!("functions {pid}")).code != Some(0) {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for round in ["before it listens", "while it listens"] {
        signal("STOP");
        for line in [format!("enable {pid} work"), format!("trace --for 100ms -o t.ect {pid} work")] {
            let begin = std::time::Instant::now();
            here.fail(&line, 1, &["is stopped", &format!("kill -CONT {pid}")]);
            // Not the minute that an answer may take.
            assert!(begin.elapsed() < std::time::Duration::from_secs(40), "{round}: {line}");
        }
        signal("CONT");
        here.succeed(&format!("enable {pid} work"));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
