//! Compiles the runtime into the three files of the kit, and the wrappers beside it.
//!
//! ```text
//! cargo rustc -p everycall-runtime --crate-type staticlib, for each form
//!   ld -r --gc-sections      one relocatable object, only what its roots reach
//!   objcopy                  all symbols local but those that the linker has to see
//!   cc -shared               for the form that is preloaded
//! ```
//!
//! Needs the linker and objcopy of binutils, which any machine with a C compiler has.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

/// A machine for which the runtime is built.
struct Machine {
    /// The folder with what is of it in the C sources. Its files in the kit are in a folder of that
    /// name, unless they are the host's.
    architecture: &'static str,
    is_host: bool,
    /// The beginning of the names of its compiler and of binutils.
    tools: &'static str,
    /// The name of its C compiler, behind that.
    compiler: &'static str,
    /// For Rust's compiler: the target, if it isn't the host's, and flags.
    target: Option<&'static str>,
    flags: &'static str,
    /// For its C compiler: no marks of branches in objects that others don't have.
    c_flags: &'static [&'static str],
    /// Hooks that it has beside [`HOOKS`].
    own_hooks: &'static [&'static str],
    wrappers: &'static [&'static str],
    archived: &'static [(&'static str, &'static [&'static str])],
}

/// The machine that this is built on.
const HOST: Machine = Machine {
    architecture: "x86_64",
    is_host: true,
    tools: "",
    compiler: "cc",
    target: None,
    flags: "",
    c_flags: &["-fcf-protection=none"],
    own_hooks: &HOST_HOOKS,
    wrappers: &WRAPPERS,
    archived: &ARCHIVED,
};

/// The other one. Its runtime is compiled for a target that has no floating-point and vector
/// registers: what the hooks don't save, it must not touch.
const SECOND: Machine = Machine {
    architecture: "aarch64",
    is_host: false,
    tools: "aarch64-linux-gnu-",
    compiler: "gcc",
    target: Some("aarch64-unknown-none-softfloat"),
    flags: "-C relocation-model=pic -C force-unwind-tables=yes",
    c_flags: &["-mbranch-protection=none", "-mno-outline-atomics"],
    own_hooks: &[],
    wrappers: &SECOND_WRAPPERS,
    archived: &SECOND_ARCHIVED,
};

impl Machine {
    /// Symbols that a runtime with hooks offers to the program's link.
    fn offered(&self) -> Vec<&'static str> {
        [&HOOKS[..], self.own_hooks, &INLINED[..]].concat()
    }

    fn tool(&self, name: &str) -> Command {
        Command::new(format!("{}{name}", self.tools))
    }

    fn compiler(&self) -> Command {
        self.tool(self.compiler)
    }

    /// Whether all is there that builds its runtime.
    fn can_be_built(&self) -> bool {
        let answers = |mut command: Command| command.output().is_ok_and(|output| output.status.success());
        let has_tool = |name: &str| {
            let mut tool = self.tool(name);
            tool.arg("--version");
            answers(tool)
        };
        let has_target = self.target.is_none_or(|target| {
            let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
            rustc.args(["--print", "target-libdir", "--target", target]);
            let folder =
                rustc.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            folder.is_ok_and(|folder| Path::new(&folder).is_dir())
        });
        has_target && [self.compiler, "ld", "objcopy", "ar", "nm"].into_iter().all(has_tool)
    }
}

/// Hooks that the second machine doesn't have: `__fentry__`, and those of XRay's sites.
const HOST_HOOKS: [&str; 4] = ["__fentry__", "__return__", "everycall_called_entry", "everycall_called_exit"];
/// Symbols that stay visible to the program's link, in the forms that have hooks, on each machine.
const HOOKS: [&str; 6] = [
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "everycall_module",
    "everycall_entry",
    "everycall_exit",
    "everycall_tail_exit",
];
/// Functions that clang names though they exist only inlined: `x86_64/inlined.rs` of the hooks says
/// why.
const INLINED: [&str; 8] = [
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_use_local_dataEv",
    "_ZNSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEE17_M_use_local_dataEv",
    "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE17_M_init_local_bufEv",
    "_ZNSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEE17_M_init_local_bufEv",
    "_ZNSaIcE8allocateEm",
    "_ZNSaIcE10deallocateEPcm",
    "_ZNSaIwE8allocateEm",
    "_ZNSaIwE10deallocateEPwm",
];
/// The kit's files that are made of the runtime.
const BUILT: [&str; 3] = ["everycall-rt.o", "everycall-module.o", "libeverycall.so"];
/// Sources of wrappers: of each there is an object for shared objects, and one for executables.
const WRAPPERS: [&str; 6] = ["exceptions", "cleaned", "boost_context", "rust", "tokio", "start_off"];
/// Of the second machine: tokio's tasks are told by `__fentry__`.
const SECOND_WRAPPERS: [&str; 5] = ["exceptions", "cleaned", "boost_context", "rust", "start_off"];
/// Of the second machine: without sites of XRay, there is no interface of theirs.
const SECOND_ARCHIVED: [(&str, &[&str]); 2] = [ARCHIVED[0], ARCHIVED[1]];
/// Archives, and the wrappers whose objects they contain. A linker takes an object out of an
/// archive where the program refers to its function: so no program refers to a function because of
/// its wrapper.
const ARCHIVED: [(&str, &[&str]); 3] = [
    ("cleanups", &["cleanups"]),
    (
        "frames",
        &[
            "longjmp",
            "_longjmp",
            "siglongjmp",
            "__longjmp_chk",
            "pthread_exit",
            "thrd_exit",
            "pthread_cancel",
            "__pthread_register_cancel",
            "__pthread_register_cancel_defer",
            "cleanup_landing",
            "makecontext",
            "mlockall",
            "setrlimit",
            "setrlimit64",
            "getrlimit",
            "getrlimit64",
            "prlimit",
            "prlimit64",
        ],
    ),
    ("xray", &["xray", "xray_log"]),
];
/// Sources of wrappers that aren't named like their function.
const NAMED: [(&str, &str); 17] = [
    ("longjmp", "jump"),
    ("_longjmp", "jump"),
    ("siglongjmp", "jump"),
    ("__longjmp_chk", "jump"),
    ("pthread_exit", "thread_end"),
    ("thrd_exit", "thread_end"),
    ("pthread_cancel", "cancel"),
    ("__pthread_register_cancel", "register_cancel"),
    ("__pthread_register_cancel_defer", "register_cancel"),
    ("makecontext", "fibers"),
    ("mlockall", "memory_lock"),
    ("setrlimit", "limit_set"),
    ("setrlimit64", "limit_set"),
    ("getrlimit", "limit_get"),
    ("getrlimit64", "limit_get"),
    ("prlimit", "limit_both"),
    ("prlimit64", "limit_both"),
];
/// The one symbol that an executable exports, for linkers of all ages: GNU ld has
/// `--export-dynamic-symbol` from 2.35 on.
const EXPORTS: (&str, &str) = ("everycall-exports.list", "{ everycall_runtime_v1; };\n");
/// The libraries that are preloaded to record more, their sources, and whether their functions are
/// traced.
const PRELOADED: [(&str, &str, bool); 4] = [
    ("libeverycall-waits.so", "waits.c", true),
    ("libeverycall-output.so", "output.c", false),
    ("libeverycall-memory.so", "memory.c", false),
    ("libeverycall-exec.so", "exec.c", false),
];
const HEADERS: [&str; 4] = [
    "include/everycall.h",
    "include/compat/funtrace.h",
    "include/compat/xray/xray_interface.h",
    "include/compat/xray/xray_log_interface.h",
];
/// Behind the names of wrappers for executables.
const EXECUTABLE: &str = "-executable";
const TABLE: &str = "everycall_runtime_v1";
/// Where functions lead by which calls are left, in programs that were built without everycall.
const LEAVING: &str = "everycall_leaving";
/// Makes unwind information of code known, in such programs.
const FRAMES: &str = "everycall_frames";
/// The C library's pointer to the environment.
const VARIABLES: &str = "environ";
/// The entry that the dynamic linker keeps for debuggers.
const OBJECTS: &str = "_r_debug";
/// Undefined symbols that the program's linker resolves, or leaves null.
const WEAK: [&str; 16] = [
    "everycall_starts_off",
    "everycall_xray_entry",
    "everycall_xray_exit",
    "everycall_xray_tail_exit",
    "__start_everycall_sites",
    "__stop_everycall_sites",
    "__start_xray_instr_map",
    "__stop_xray_instr_map",
    "__ehdr_start",
    "_GLOBAL_OFFSET_TABLE_",
    "__rseq_offset",
    "__rseq_size",
    "__register_atfork",
    "pthread_atfork",
    "__errno_location",
    OBJECTS,
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let crates = manifest.ancestors().nth(2).expect("the crate lies in the workspace").to_path_buf();
    for part in ["traced", "shared"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    for machine in [HOST, SECOND] {
        println!("cargo::rerun-if-changed={}", manifest.join(machine.architecture).display());
    }

    let offered = HOST.offered();
    let has_second = SECOND.can_be_built();
    // Side by side: each is optimised as a whole, on one processor.
    let (executable, module, shared) = thread::scope(|scope| {
        let build = || {
            let shared = object(&HOST, &out, &crates, "shared", &[], &[TABLE], &[]);
            if has_second {
                second(&out, &manifest, &crates);
            }
            shared
        };
        let shared = thread::Builder::new().spawn_scoped(scope, build).expect("a thread can be started");
        let executable = object(&HOST, &out, &crates, "executable", &offered, &[TABLE], &[VARIABLES]);
        let module = object(&HOST, &out, &crates, "module", &offered, &[], &[TABLE, OBJECTS]);
        (executable, module, shared.join().expect("the runtime compiles"))
    });
    let [runtime, module_object, library] = BUILT;
    merge(&HOST, &out, &executable, runtime);
    merge(&HOST, &out, &module, module_object);

    flatten(&out);
    fs::write(out.join(EXPORTS.0), EXPORTS.1).expect("write the list of exports");
    wrappers(&HOST, &out, &manifest);

    let script = out.join("exports.map");
    fs::write(&script, format!("{{ global: {TABLE}; {LEAVING}; {FRAMES}; local: *; }};\n"))
        .expect("write the version script");
    run(HOST
        .compiler()
        .args([
            "-shared",
            "-nostdlib",
            "-Wl,-z,nodelete",
            "-Wl,-z,now",
            "-Wl,-z,noexecstack",
            "-Wl,--build-id",
        ])
        // Before the initialisers of the traced libraries that look for it.
        .arg("-Wl,-z,initfirst")
        .args(["-Wl,-soname,libeverycall.so", "-Wl,--gc-sections"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .arg("-o")
        .arg(out.join(library))
        .arg(shared)
        .arg(wrapper(&HOST, &out, &manifest.join("wrappers"), "leaving", "")));
    for (library, source, is_traced) in PRELOADED {
        let module_object = is_traced.then(|| out.join(module_object));
        preloaded(&out, &manifest, module_object, library, source);
    }
    println!("cargo::rerun-if-changed={}", manifest.join("include").display());
    let mut files = files(&out, &manifest);
    if has_second {
        files.extend(second_files(&out));
    }
    let listed: String =
        files.iter().map(|(name, path)| format!("    ({name:?}, include_bytes!({path:?})),\n")).collect();
    fs::write(out.join("files.rs"), format!("&[\n{listed}]\n")).expect("write the list of files");
    println!("cargo::rustc-env=EVERYCALL_KIT_CHECKSUM={:016x}", checksum(&files));
}

/// Builds what programs of the second machine are linked with.
fn second(out: &Path, manifest: &Path, crates: &Path) {
    let folder = out.join(SECOND.architecture);
    fs::create_dir_all(&folder).expect("make a folder for the second machine");
    let offered = SECOND.offered();
    let executable = object(&SECOND, &folder, crates, "executable", &offered, &[TABLE], &[VARIABLES]);
    let module = object(&SECOND, &folder, crates, "module", &offered, &[], &[TABLE, OBJECTS]);
    merge(&SECOND, &folder, &executable, BUILT[0]);
    merge(&SECOND, &folder, &module, BUILT[1]);
    fs::write(folder.join(EXPORTS.0), EXPORTS.1).expect("write the list of exports");
    wrappers(&SECOND, &folder, manifest);
}

/// Compiles the wrappers of a machine, and makes the archives of some.
fn wrappers(machine: &Machine, out: &Path, manifest: &Path) {
    let folder = manifest.join("wrappers");
    for suffix in ["", EXECUTABLE] {
        for name in machine.wrappers {
            wrapper(machine, out, &folder, name, suffix);
        }
        for (name, members) in machine.archived {
            let archive = out.join(format!("everycall-{name}{suffix}.a"));
            let _ = fs::remove_file(&archive);
            let objects = members.iter().map(|name| wrapper(machine, out, &folder, name, suffix));
            run(machine.tool("ar").arg("rcsD").arg(archive).args(objects));
        }
    }
}

/// The names of a machine's wrappers and archives.
fn linked(machine: &Machine) -> impl Iterator<Item = String> {
    ["", EXECUTABLE].into_iter().flat_map(move |suffix| {
        let objects = machine.wrappers.iter().map(move |name| wrapper_object(name, suffix));
        objects.chain(machine.archived.iter().map(move |(name, _)| format!("everycall-{name}{suffix}.a")))
    })
}

/// The kit's files: their names and where they are.
fn files(out: &Path, manifest: &Path) -> Vec<(String, PathBuf)> {
    let made = BUILT
        .iter()
        .chain(PRELOADED.iter().map(|(library, ..)| library))
        .chain([&EXPORTS.0])
        .map(|name| (*name).to_owned())
        .chain(linked(&HOST))
        .map(|name| (out.join(&name), name));
    let headers = HEADERS.iter().map(|name| (manifest.join(name), (*name).to_owned()));
    made.chain(headers).map(|(path, name)| (name, path)).collect()
}

/// As [`files`], of the second machine.
fn second_files(out: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let own = BUILT.iter().take(2).chain([&EXPORTS.0]).map(|name| (*name).to_owned());
    own.chain(linked(&SECOND)).map(|name| {
        let name = format!("{}/{name}", SECOND.architecture);
        let path = out.join(&name);
        (name, path)
    })
}

/// Name of a wrapper's object.
fn wrapper_object(name: &str, suffix: &str) -> String {
    format!("everycall-{}{suffix}.o", name.replace('_', "-"))
}

/// FNV-1a over all files. Made here, as compilers are called through the kit thousands of times in
/// a build.
fn checksum(files: &[(String, PathBuf)]) -> u64 {
    files
        .iter()
        .flat_map(|(_, path)| fs::read(path).expect("a file of the kit can be read"))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Where the runtime is compiled: beside the folders of the profiles, because it is the same one
/// for each of them. Else `cargo install` would compile it once more than the tests did.
fn shared_folder(out: &Path) -> PathBuf {
    // TARGET/PROFILE/build/PACKAGE/out
    out.ancestors().nth(4).unwrap_or(out).join("everycall-runtime")
}

/// Compiles one form into one object.
fn object(
    machine: &Machine,
    out: &Path,
    crates: &Path,
    form: &str,
    hooks: &[&str],
    table: &[&str],
    undefined: &[&str],
) -> PathBuf {
    let place = if machine.is_host { out } else { out.parent().unwrap_or(out) };
    let folder = if machine.is_host { form.to_owned() } else { format!("{}-{form}", machine.architecture) };
    let target = shared_folder(place).join(folder);
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    // The flags, wrappers and profiles of the outer build are for the host.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let foreign = name.starts_with("CARGO_") && !matches!(&name[..], "CARGO_HOME" | "CARGO_NET_OFFLINE")
            || matches!(
                &name[..],
                "RUSTFLAGS" | "RUSTC_WRAPPER" | "RUSTC_WORKSPACE_WRAPPER" | "CLIPPY_ARGS" | "LOOM_LOG"
            );
        if foreign && !name.starts_with("CARGO_REGISTRIES_") && !name.starts_with("CARGO_SOURCE_") {
            cargo.env_remove(name);
        }
    }
    let built = match machine.target {
        Some(name) => {
            cargo.env("CARGO_BUILD_TARGET", name);
            target.join(name)
        }
        None => target.clone(),
    };
    run(cargo
        .env("RUSTFLAGS", machine.flags)
        .args(["rustc", "--quiet", "--profile", "runtime", "--crate-type", "staticlib", "--features", form])
        .arg("--manifest-path")
        .arg(crates.join("traced/runtime/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target));

    let all = out.join(format!("{form}-all.o"));
    let mut ld = machine.tool("ld");
    ld.args(["-r", "--gc-sections", "-z", "noexecstack"]);
    for root in hooks.iter().chain(table) {
        ld.args(["-u", root]);
    }
    run(ld.arg("-o").arg(&all).arg(built.join("runtime/libeverycall_runtime.a")));

    let kept = out.join(format!("{form}.o"));
    let mut objcopy = machine.tool("objcopy");
    objcopy.args(["--strip-debug", "--remove-section=.comment"]);
    objcopy.arg(format!("--weaken-symbol={VARIABLES}"));
    for name in hooks.iter().chain(table).chain(undefined).chain(&WEAK) {
        objcopy.arg(format!("--keep-global-symbol={name}"));
    }
    run(objcopy.arg(&all).arg(&kept));
    let missing: Vec<String> = undefined_symbols(machine, &kept)
        .into_iter()
        .filter(|name| !WEAK.contains(&&name[..]) && !undefined.contains(&&name[..]))
        .collect();
    assert!(missing.is_empty(), "the {form} runtime needs {missing:?}, which no program has to offer");
    kept
}

/// Few sections instead of one for each function: a third of what an object costs the linker of
/// each program.
const MERGED: &str = "SECTIONS {
    .text 0 : { *(.text .text.*) }
    .rodata 0 : { *(.rodata .rodata.*) }
    .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
    .data 0 : { *(.data .data.*) }
    .bss 0 : { *(.bss .bss.*) }
}
";

/// Writes the same object with its sections merged; others than those above stay as they are.
fn merge(machine: &Machine, out: &Path, object: &Path, name: &str) {
    let script = out.join("merged.ld");
    fs::write(&script, MERGED).expect("write the linker script");
    run(machine
        .tool("ld")
        .args(["-r", "-z", "noexecstack", "-T"])
        .arg(script)
        .arg(object)
        .arg("-o")
        .arg(out.join(name)));
}

/// Hooks, and places in them, in the order of `everycall_format::trampoline::hook`.
const FLAT: [&str; 13] = [
    "everycall_entry",
    "everycall_exit",
    "everycall_tail_exit",
    "everycall_count_entry",
    "everycall_time_entry",
    "everycall_time_exit",
    "everycall_unstamped_entry",
    "everycall_unstamped_exit",
    "everycall_unstamped_start",
    "everycall_unstamped_end",
    "everycall_unstamped_abort",
    "everycall_capture_entry",
    "everycall_capture_exit",
];

/// The descriptor's page, then the hooks.
const FLAT_SCRIPT: &str = "SECTIONS {
    .descriptor 0 : { *(.bss.everycall_module) }
    .hooks 0x1000 : { *(.text) *(.rodata.everycall_blocked_signals) }
    .eh_frame 0x100000 : { KEEP(*(.eh_frame)) }
    /DISCARD/ : { *(*) }
}
";

/// Writes the hooks of shared objects as plain bytes that may lie anywhere, one page behind their
/// descriptor, where each one is, and their unwind information.
fn flatten(out: &Path) {
    let (script, linked) = (out.join("flat.ld"), out.join("hooks.elf"));
    fs::write(&script, FLAT_SCRIPT).expect("write the linker script");
    let mut ld = Command::new("ld");
    ld.args(["-e", FLAT[0], "-T"]).arg(&script).arg(out.join("module-all.o")).arg("-o").arg(&linked);
    run(&mut ld);
    let missing = undefined_symbols(&HOST, &linked);
    assert!(missing.is_empty(), "the hooks need {missing:?}");
    let code = out.join("hooks.bin");
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".hooks"]).arg(&linked).arg(&code));
    let frames = out.join("hooks.frames");
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".eh_frame"]).arg(&linked).arg(&frames));
    let output = Command::new("nm").arg(&linked).output().expect("nm, of binutils");
    let symbols = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = |name: &str| {
        let line = symbols.lines().find(|line| line.split_whitespace().last() == Some(name));
        let address = line.and_then(|line| u32::from_str_radix(line.split_whitespace().next()?, 16).ok());
        address.unwrap_or_else(|| panic!("there is no {name}")) - 0x1000
    };
    let places: Vec<String> = FLAT.iter().map(|name| place(name).to_string()).collect();
    fs::write(out.join("hooks.rs"), format!("[{}]", places.join(", "))).expect("write the hooks' places");
}

/// Compiles one of the wrappers, which need only the runtime's table and the functions that they
/// wrap.
fn wrapper(machine: &Machine, out: &Path, folder: &Path, name: &str, suffix: &str) -> PathBuf {
    println!("cargo::rerun-if-changed={}", folder.display());
    let object = out.join(wrapper_object(name, suffix));
    let source = NAMED.iter().find(|(named, _)| *named == name).map_or(name, |(_, source)| source);
    let mut compiler = machine.compiler();
    if suffix == EXECUTABLE {
        compiler.arg("-DEVERYCALL_FOR_EXECUTABLES");
    }
    run(compiler
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-ffreestanding"])
        .args(["-fno-stack-protector", "-fomit-frame-pointer"])
        .args(machine.c_flags)
        // Exceptions go through them.
        .args(["-fasynchronous-unwind-tables", "-fno-lto", "-ffunction-sections", "-c"])
        .arg(format!("-DEVERYCALL_NAME={name}"))
        .arg("-I")
        .arg(folder.with_file_name(machine.architecture))
        .arg(folder.join(format!("{source}.c")))
        .arg("-o")
        .arg(&object));
    let strange: Vec<String> = undefined_symbols(machine, &object)
        .into_iter()
        .filter(|name| {
            let known = [
                "__real_",
                "_Unwind_GetCFA",
                "_Unwind_GetRegionStart",
                "__cxa_current_exception_type",
                // Of C++ libraries: weak.
                "_ZNKSt11logic_error4whatEv",
                "_ZNKSt13runtime_error4whatEv",
                "_ZTVN10__cxxabiv120__si_class_type_infoE",
                "__errno_location",
                // Of the C library of the second machine: tells how it mangles.
                "_setjmp",
                "everycall_cleanups_tell_of_exits",
                "everycall_cleanup_landing",
                "everycall_module",
                "everycall_called_entry",
                "everycall_called_exit",
                "everycall_tail_exit",
                "__start_everycall_tasks",
                "__start_xray_fn_idx",
                "__stop_xray_fn_idx",
                "__xray_remove_handler",
                "environ",
                TABLE,
            ];
            name != "_GLOBAL_OFFSET_TABLE_" && !known.iter().any(|known| name.starts_with(known))
        })
        .collect();
    assert!(strange.is_empty(), "the wrapper {name} needs {strange:?}, which no program has to offer");
    object
}

/// Links a library that is preloaded to record more; with `module_object` a traced library, whose
/// functions call the hooks themselves. It names no version of the C library's functions, so it
/// loads wherever programs do.
fn preloaded(out: &Path, manifest: &Path, module_object: Option<PathBuf>, library: &str, source: &str) {
    let folder = manifest.join("preloaded");
    println!("cargo::rerun-if-changed={}", folder.display());
    run(Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fPIC",
            "-fno-lto",
            "-fvisibility=hidden",
        ])
        .args(["-fno-stack-protector", "-U_FORTIFY_SOURCE"])
        .args(HOST.c_flags)
        // Threads are cancelled in them.
        .args(["-fexceptions", "-fasynchronous-unwind-tables"])
        .args(["-shared", "-nostdlib", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,noexecstack"])
        .args(["-Wl,--build-id", "-Wl,-z,start-stop-gc", "-Wl,--gc-sections", "-Wl,--strip-debug"])
        .arg(format!("-Wl,-soname,{library}"))
        .arg("-I")
        .arg(manifest.join("include"))
        .arg("-I")
        .arg(manifest.join(HOST.architecture))
        .arg(folder.join(source))
        .args(module_object)
        // Before glibc 2.34, dlsym is in a library that a program may not have.
        .args(["-Wl,--no-as-needed", "-l:libdl.so.2"])
        .arg("-o")
        .arg(out.join(library)));
}

fn undefined_symbols(machine: &Machine, object: &Path) -> Vec<String> {
    let output = machine.tool("nm").arg("-u").arg(object).output().expect("nm, of binutils");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect()
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
