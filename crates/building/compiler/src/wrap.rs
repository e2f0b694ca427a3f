//! Functions that are wrapped at the link. The wrappers report unwound frames (jumps, throws, landing
//! pads, thread ends) and fiber stacks to the runtime, and keep its memory from being locked. The
//! kit's objects define them.
//!
//! The linker's `--wrap` only renames references: no link gets two definitions of a function, and
//! objects that the prefix doesn't link are not affected. The functions of the C library are
//! wrapped by members of an archive, which GNU ld takes only where an input refers to the function:
//! nothing refers to a function because of its wrapper. (lld takes every member whose function some
//! library has.) Functions that not every library has are referred to weakly. A weak reference
//! takes no member out of an archive, and the program's own reference has been renamed: `-u` takes
//! the member instead.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::args::{Invocation, Stage};
use crate::compiler::{self, Family};
use crate::kit_files::{
    BOOST_CONTEXT_OBJECT, CLEANED_OBJECT, CLEANUPS_ARCHIVE, EXCEPTIONS_OBJECT, FRAMES_ARCHIVE, RUST_OBJECT,
    TOKIO_OBJECT, for_executable,
};
use crate::weak;

/// Functions that one object of the kit wraps. If the object lies in an archive, it is linked only
/// where the program refers to the functions.
pub struct Wrapper {
    object: &'static str,
    /// Functions that every such link has: the object refers to them strongly.
    always: &'static [&'static str],
    /// Other functions, with the archives where static links find them. Not every archive has all
    /// of them, and a static link must contain the functions that it wraps.
    others: &'static [(&'static str, &'static str)],
}

const FRAMES: Wrapper = Wrapper {
    object: FRAMES_ARCHIVE,
    always: &[],
    others: &[
        ("longjmp", "libc.a"),
        ("_longjmp", "libc.a"),
        ("siglongjmp", "libc.a"),
        ("__longjmp_chk", "libc.a"),
        ("pthread_exit", "libc.a"),
        ("thrd_exit", "libc.a"),
        ("pthread_cancel", "libc.a"),
        ("__pthread_register_cancel", "libc.a"),
        ("__pthread_register_cancel_defer", "libc.a"),
        ("makecontext", "libc.a"),
        ("mlockall", "libc.a"),
        ("setrlimit", "libc.a"),
        ("setrlimit64", "libc.a"),
        ("getrlimit", "libc.a"),
        ("getrlimit64", "libc.a"),
        ("prlimit", "libc.a"),
        ("prlimit64", "libc.a"),
    ],
};

/// Every form of the library has this function. `-u` takes it out of an archive, as the program's own
/// reference has been renamed.
const BOOST_CONTEXT: Wrapper =
    Wrapper { object: BOOST_CONTEXT_OBJECT, always: &["make_fcontext"], others: &[] };

const EXCEPTIONS: Wrapper = Wrapper {
    object: EXCEPTIONS_OBJECT,
    always: &["__gxx_personality_v0", "__cxa_throw", "__cxa_rethrow"],
    others: &[
        ("_ZSt17rethrow_exceptionNSt15__exception_ptr13exception_ptrE", "libstdc++.a"),
        ("_ZSt17rethrow_exceptionSt13exception_ptr", "libc++.a"),
        ("__cxa_begin_catch", "libstdc++.a"),
        ("__cxa_begin_catch", "libc++abi.a"),
    ],
};

/// Also in C++: with link-time optimisation, gcc uses it for functions that only clean up.
const CLEANUPS: Wrapper =
    Wrapper { object: CLEANUPS_ARCHIVE, always: &[], others: &[("__gcc_personality_v0", "libgcc_eh.a")] };

/// Rust's standard library, in any form, calls these of the unwinder's library.
const RUST: [&str; 2] = ["_Unwind_SetGR", "_Unwind_RaiseException"];

/// The hook that functions call, which the kit's object for tokio wraps. The runtime defines it.
const TOKIO: [&str; 1] = ["__fentry__"];

/// Whether all code of a link reports the exits of inlined calls also when an exception leaves them
/// (in modes that report inlined calls). clang's code doesn't.
pub fn reports_all_exits(family: Family, invocation: &Invocation) -> bool {
    family == Family::Gcc && !links_clangs_code(invocation)
}

/// Whether an object or archive that is linked contains the name that clang writes into its objects.
/// A file may contain it for another reason. Then readers take the compiler from the debugging
/// information.
fn links_clangs_code(invocation: &Invocation) -> bool {
    files(invocation).any(|file| names_clang(&file).unwrap_or(false))
}

/// The objects and archives that are linked.
fn files(invocation: &Invocation) -> impl Iterator<Item = PathBuf> {
    let find = |library: &String| {
        let name = library.strip_prefix(':').map_or(format!("lib{library}.a"), str::to_owned);
        invocation.library_folders.iter().map(|folder| folder.join(&name)).find(|archive| archive.exists())
    };
    let archives = invocation.libraries.iter().filter_map(find);
    let is_shared = |file: &Path| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".so") || name.contains(".so.")
    };
    invocation.linked.iter().cloned().chain(archives).filter(move |file| !is_shared(file) && file.is_file())
}

fn names_clang(file: &Path) -> io::Result<bool> {
    const NAME: &[u8] = b"clang version ";
    let mut file = File::open(file)?;
    let (mut bytes, mut kept) = (vec![0; READ_AT_ONCE], 0);
    let mut is_first = true;
    loop {
        let read = file.read(&mut bytes[kept..])?;
        let seen = &bytes[..kept + read];
        // The members of a thin archive are in other files.
        if is_first && seen.starts_with(b"!<thin>\n") || memchr::memmem::find(seen, NAME).is_some() {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // The name may be split between two reads.
        let end = kept + read;
        kept = end.min(NAME.len() - 1);
        bytes.copy_within(end - kept..end, 0);
        is_first = false;
    }
}

/// Bytes of a file that are read at once.
const READ_AT_ONCE: usize = 1 << 20;

/// Options of a link. `reports_all_exits`: see the function of that name.
pub fn options(
    invocation: &Invocation,
    compiler: &Path,
    kit: &Path,
    reports_all_exits: bool,
) -> Vec<OsString> {
    if invocation.without_libraries {
        return Vec::new();
    }
    let mut options = Vec::new();
    if invocation.names_boost_context {
        let wrapped = wrapper(&BOOST_CONTEXT, invocation, compiler, kit);
        if !wrapped.is_empty() {
            options.push("-Wl,-u,make_fcontext".into());
        }
        options.extend(wrapped);
    }
    if is_cxx(invocation, compiler) && !invocation.without_exceptions {
        options.extend(wrapper(&EXCEPTIONS, invocation, compiler, kit));
    }
    let cleaned = object_of(CLEANED_OBJECT, invocation, kit);
    if reports_all_exits && cleaned.exists() {
        options.extend(["-Xlinker".into(), cleaned.into_os_string()]);
    }
    options
}

/// Options of a link that must follow the objects.
pub fn archives(invocation: &Invocation, compiler: &Path, kit: &Path) -> Vec<OsString> {
    // lld takes an object that defines a wrapper out of its archive even without a reference. C programs
    // would then need the unwinder's library.
    let takes_as_needed = matches!(invocation.linker.as_deref(), None | Some("bfd"));
    let has_exceptions = is_cxx(invocation, compiler) && !invocation.without_exceptions;
    if invocation.without_libraries {
        return Vec::new();
    }
    let mut options = frames(invocation, compiler, kit);
    if takes_as_needed || invocation.has_static_libc || has_exceptions {
        options.extend(wrapper(&CLEANUPS, invocation, compiler, kit));
    }
    options
}

/// The wrappers of the C library's functions, but those that the user wraps.
fn frames(invocation: &Invocation, compiler: &Path, kit: &Path) -> Vec<OsString> {
    let archive = object_of(FRAMES.object, invocation, kit);
    let is_ours = |function: &&'static str| !is_users(invocation, [*function].iter());
    let functions: Vec<&str> = match invocation.has_static_libc {
        true => offered(&FRAMES, invocation, compiler).into_iter().filter(is_ours).collect(),
        false => FRAMES.others.iter().map(|(function, _)| *function).filter(is_ours).collect(),
    };
    if functions.is_empty() || !archive.exists() {
        return Vec::new();
    }
    // Libraries behind the archive refer to them, or a reference takes nothing out of an archive.
    let forced = match invocation.has_static_libc || invocation.has_static_parts {
        true => functions.clone(),
        false => weak::references(files(invocation), &functions),
    };
    let mut text = String::from(WRAP);
    for function in functions {
        text += &format!(",--wrap={function}");
        if forced.contains(&function) {
            text += &format!(",-u,__wrap_{function}");
        }
        if invocation.has_static_libc {
            text += &format!(",-u,{function}");
        }
    }
    vec![text.into(), "-Xlinker".into(), archive.into_os_string()]
}

/// Options of a link of Rust's code, beside the others.
pub fn rust(invocation: &Invocation, kit: &Path) -> Vec<OsString> {
    always(&RUST, RUST_OBJECT, invocation, kit)
}

/// Options of a link with tokio, beside those.
pub fn tokio(invocation: &Invocation, kit: &Path) -> Vec<OsString> {
    always(&TOKIO, TOKIO_OBJECT, invocation, kit)
}

/// Options of a link that certainly has these functions.
fn always(functions: &[&str], object: &str, invocation: &Invocation, kit: &Path) -> Vec<OsString> {
    let object = object_of(object, invocation, kit);
    if is_users(invocation, functions.iter()) || !object.exists() {
        return Vec::new();
    }
    let mut text = String::from(WRAP);
    for function in functions {
        text += &format!(",--wrap={function}");
        if invocation.is_static {
            text += &format!(",-u,{function}");
        }
    }
    vec![text.into(), "-Xlinker".into(), object.into_os_string()]
}

/// Functions that the user wraps are left to the user.
fn is_users<'f>(invocation: &Invocation, mut functions: impl Iterator<Item = &'f &'f str>) -> bool {
    let is_wrapped = |function: &&str| invocation.wrapped.iter().any(|name| name == "*" || name == function);
    functions.any(is_wrapped)
}

fn is_cxx(invocation: &Invocation, compiler: &Path) -> bool {
    compiler::links_cxx(compiler) || invocation.names_cxx_library
}

/// The form of an object that fits this link.
pub(crate) fn object_of(name: &str, invocation: &Invocation, kit: &Path) -> PathBuf {
    match invocation.stage {
        Stage::LinkShared => kit.join(name),
        _ => kit.join(for_executable(name)),
    }
}

fn wrapper(wrapper: &Wrapper, invocation: &Invocation, compiler: &Path, kit: &Path) -> Vec<OsString> {
    let object = object_of(wrapper.object, invocation, kit);
    let functions = wrapper.always.iter().chain(wrapper.others.iter().map(|(function, _)| function));
    if is_users(invocation, functions) || !object.exists() {
        return Vec::new();
    }
    let mut text = String::from(WRAP);
    for function in wrapper.always {
        text += &format!(",--wrap={function}");
    }
    let is_archive = wrapper.object.ends_with(".a");
    if !invocation.is_static || is_archive && !invocation.has_static_libc {
        for (function, _) in wrapper.others {
            text += &format!(",--wrap={function}");
            if is_archive && invocation.splits_stacks {
                text += &format!(",-u,__wrap_{function}");
            }
        }
    } else {
        for function in offered(wrapper, invocation, compiler) {
            let needed = if is_archive { "__wrap_" } else { "" };
            text += &format!(",--wrap={function},-u,{needed}{function}");
        }
    }
    if text == WRAP {
        // No function is certain to be linked.
        return Vec::new();
    }
    vec![text.into(), "-Xlinker".into(), object.into_os_string()]
}

/// The functions that the libraries of a static link certainly have.
fn offered(wrapper: &Wrapper, invocation: &Invocation, compiler: &Path) -> Vec<&'static str> {
    // Both C++ libraries may be installed, but only one is linked.
    let is_linked = |library: &str| match invocation.is_libcxx {
        true => library != "libstdc++.a",
        false => !library.starts_with("libc++"),
    };
    let mut archive = ("", None);
    let mut functions = Vec::new();
    for (function, library) in wrapper.others.iter().filter(|(_, library)| is_linked(library)) {
        if archive.0 != *library {
            archive = (library, static_library(library, invocation, compiler));
        }
        if archive.1.as_deref().is_some_and(|archive| offers(archive, function)) {
            functions.push(*function);
        }
    }
    functions
}

/// Beginning of the option that names the wrapped functions.
const WRAP: &str = "-Wl";

/// The content of one of the compiler's libraries, if it is certain that this file will be linked.
fn static_library(name: &str, invocation: &Invocation, compiler: &Path) -> Option<Vec<u8>> {
    let is_other = compiler.to_string_lossy().contains("musl") || invocation.other_root;
    if is_other {
        return None;
    }
    let question = format!("-print-file-name={name}");
    let answer = Command::new(compiler).arg(question).stdin(Stdio::null()).output().ok()?;
    std::fs::read(String::from_utf8(answer.stdout).ok()?.trim_end()).ok()
}

/// Whether an archive's symbol table has a function. The table is the first member, `/`: a count, as
/// many offsets (all big endian), and the names.
fn offers(archive: &[u8], function: &str) -> bool {
    let Some((head, rest)) =
        archive.split_at_checked(68).filter(|(head, _)| head.starts_with(b"!<arch>\n/ "))
    else {
        return false;
    };
    let size = std::str::from_utf8(&head[56..66]).ok().and_then(|size| size.trim_end().parse().ok());
    let table = rest.get(..size.unwrap_or(0)).unwrap_or_default();
    let count = table.first_chunk().map_or(0, |count| u32::from_be_bytes(*count));
    let names = (count as usize).checked_mul(4).and_then(|bytes| table.get(bytes + 4..)).unwrap_or_default();
    names.split(|byte| *byte == 0).any(|name| name == function.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(line: &str, compiler: &str) -> String {
        let kit = std::env::temp_dir().join(format!("everycall-wrap-{}", std::process::id()));
        std::fs::create_dir_all(&kit).unwrap();
        for object in
            [FRAMES_ARCHIVE, BOOST_CONTEXT_OBJECT, EXCEPTIONS_OBJECT, CLEANED_OBJECT, CLEANUPS_ARCHIVE]
        {
            for name in [object, &for_executable(object)] {
                std::fs::write(kit.join(name), "").unwrap();
            }
        }
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let (invocation, compiler) = (Invocation::read(&args), Path::new(compiler));
        let before = options(&invocation, compiler, &kit, line.contains("reports"));
        let behind = archives(&invocation, compiler, &kit);
        before.iter().chain(&behind).map(|option| option.to_string_lossy() + " ").collect()
    }

    #[test]
    fn tables_of_symbols() {
        let mut archive =
            format!("!<arch>\n/               0           0     0     0       {:<10}`\n", 16).into_bytes();
        archive.extend_from_slice(b"\0\0\0\x01\0\0\0\x50longjmp\0jump\0");
        assert!(offers(&archive, "longjmp") && !offers(&archive, "jmp") && !offers(&archive, "jump"));
        assert!(!offers(b"", "longjmp") && !offers(b"!<arch>\n/", "longjmp"));
    }

    #[test]
    fn code_of_clangs() {
        let folder = std::env::temp_dir().join(format!("everycall-clangs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("gccs.o", "\x7fELF GCC: (Debian 12.2.0) 12.2.0"),
            ("clangs.o", "\x7fELF Debian clang version 19.1.7"),
            ("libclangs.a", "!<arch>\n clang version 22"),
            ("libthin.a", "!<thin>\n"),
            ("libclangs.so", "clang version 22"),
            ("long.o", &("x".repeat(READ_AT_ONCE - 5) + "clang version 22")),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let dir = folder.display();
        for (line, has) in [
            (format!("{dir}/gccs.o -L{dir} -lgccs -L /nowhere -lm"), false),
            (format!("{dir}/gccs.o {dir}/clangs.o"), true),
            (format!("-L {dir} -lclangs"), true),
            (format!("-L {dir} -l:libthin.a"), true),
            (format!("{dir}/libclangs.so"), false),
            (format!("{dir}/long.o"), true),
            (format!("-Wl,-L{dir},-lclangs"), true),
            (format!("-Wl,--whole-archive,{dir}/libclangs.a"), true),
        ] {
            let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let invocation = Invocation::read(&args);
            assert_eq!(links_clangs_code(&invocation), has, "{line}");
            assert_eq!(reports_all_exits(Family::Gcc, &invocation), !has, "{line}");
            assert!(!reports_all_exits(Family::Clang, &invocation), "{line}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_wrapped() {
        let (c, cxx) = (options_of("a.o", "gcc"), options_of("a.o", "g++"));
        let frames = &for_executable(FRAMES_ARCHIVE)[..];
        assert!(
            options_of("-shared a.o", "gcc").contains(FRAMES_ARCHIVE)
                && frames == "everycall-frames-executable.a"
        );
        assert!(c.contains("--wrap=longjmp") && c.contains(frames) && !c.contains("__cxa_throw"), "{c}");
        assert!(!c.contains("-u,longjmp"));
        assert!(c.contains("--wrap=makecontext") && c.contains("--wrap=mlockall"), "{c}");
        let partly = options_of("a.o -static-libstdc++", "g++");
        assert!(partly.contains("-u,__wrap_longjmp") && !partly.contains("-u,longjmp"), "{partly}");
        assert!(cxx.contains("--wrap=__cxa_throw") && !cxx.contains("-u,"), "{cxx}");
        assert_eq!(cxx, options_of("a.o -lstdc++", "gcc"));
        assert!(cxx.contains("--wrap=__cxa_begin_catch") && !c.contains("begin_catch"), "{cxx}");
        let cleaned = &for_executable(CLEANED_OBJECT)[..];
        for compiler in ["gcc", "g++"] {
            assert_eq!(options_of("reports.o", compiler).matches(cleaned).count(), 1);
            assert!(!options_of("a.o", compiler).contains(cleaned));
        }
        assert_eq!(c, options_of("a.o -fno-exceptions", "g++-12"));
        let cleanups = &for_executable(CLEANUPS_ARCHIVE)[..];
        assert!(c.contains("--wrap=__gcc_personality_v0") && c.contains(cleanups), "{c}");
        assert!(cxx.contains(cleanups) && options_of("a.o -fuse-ld=lld", "g++").contains(cleanups), "{cxx}");
        assert!(!options_of("a.o -fuse-ld=lld", "clang").contains("personality"));
        let boost = options_of("a.o -lboost_context", "g++");
        assert!(boost.contains("-u,make_fcontext") && boost.contains("--wrap=make_fcontext"), "{boost}");
        assert!(
            boost.contains(&for_executable(BOOST_CONTEXT_OBJECT)) && !cxx.contains("make_fcontext"),
            "{boost}"
        );
        // For a static library, it must be certain.
        let musl = options_of("a.o -static", "musl-gcc");
        assert!(!musl.contains("longjmp_chk"), "{musl}");
        for line in ["a.o -static", "a.o -static --sysroot=/"] {
            let options = options_of(line, if line.contains("sysroot") { "gcc" } else { "musl-gcc" });
            assert!(options.split(' ').all(|option| option != "-Wl"), "{options}");
        }
        assert_eq!(options_of("a.o -nostdlib", "g++"), "");
        let own = options_of("a.o -Wl,--wrap=longjmp", "g++");
        assert!(!own.contains("--wrap=longjmp") && own.contains("--wrap=siglongjmp"), "{own}");
    }
}
