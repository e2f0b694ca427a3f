//! Files for builds that use no prefix: pkg-config modules and a CMake package, with what they point to.
//!
//! ```text
//! FOLDER/lib/everycall/    as, hook-calls.specs, everycall-rt.o, everycall-module.o, libeverycall.so
//! FOLDER/lib/everycall/    everycall-xray.a and its form for executables: XRay's interface
//! FOLDER/lib/everycall/include/    everycall.h, compat/funtrace.h, compat/xray
//! FOLDER/lib/pkgconfig/    everycall-MODE.pc for executables, everycall-MODE-module.pc for shared objects
//! FOLDER/lib/cmake/everycall/everycall-config.cmake
//! ```
//!
//! All paths in them are relative to themselves, so the folder can be moved, but `as`, which is a link to the program.

use std::fs;
use std::io;
use std::path::Path;

use everycall_format::arch::Machine;

use crate::compiler::Family;
use crate::kit_files::{
    EXPORTS_LIST, INCLUDE_FOLDER, Kit, MODULE_OBJECT, RUNTIME_OBJECT, RUNTIME_SYMBOL, START_OFF_OBJECT,
    XRAY_ARCHIVE, for_executable,
};
use crate::mode::Mode;
use crate::start::Start;
use crate::toolbox::{SPECS_FILE, Toolbox, folder_of};

/// The library that is preloaded into programs without a runtime of their own; kits may lack it.
const PRELOADED_LIBRARY: &str = "libeverycall.so";

/// The headers of the kit; kits may lack them.
const HEADERS: [&str; 4] =
    ["everycall.h", "compat/funtrace.h", "compat/xray/xray_interface.h", "compat/xray/xray_log_interface.h"];

/// Writes the pkg-config modules and the CMake package into `folder`; `as` becomes a link to
/// `program`. New files are written beside their final places first. If that fails, for example on
/// a full disk, the previous files are unchanged and no new ones remain.
///
/// # Errors
///
/// Those of the file system and of the kit; the text names the file.
pub fn write_integration(folder: &Path, program: &Path, start: Start, kit: Kit<'_>) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|part| !part.as_os_str().is_empty() && !part.exists());
    let made: Vec<&Path> = missing.collect();
    let draft = folder.join(format!(".draft-{}", std::process::id()));
    let written = write_files(&draft, program, start, kit).and_then(|()| put_in_place(&draft, folder));
    let _ = fs::remove_dir_all(&draft);
    if written.is_err() {
        // Removes only empty folders.
        made.iter().for_each(|part| drop(fs::remove_dir(part)));
    }
    written
}

fn write_files(folder: &Path, program: &Path, start: Start, kit: Kit<'_>) -> io::Result<()> {
    let lib = folder.join("lib");
    let tools = lib.join("everycall");
    Toolbox::create(&tools, program)?;
    let kit = kit()?;
    if start == Start::Off {
        fs::copy(kit.join(START_OFF_OBJECT), tools.join(START_OFF_OBJECT))
            .map_err(|error| named(Path::new(START_OFF_OBJECT), &error))?;
    }
    for name in [RUNTIME_OBJECT, MODULE_OBJECT, EXPORTS_LIST, PRELOADED_LIBRARY] {
        let source = kit.join(name);
        if name != PRELOADED_LIBRARY || source.exists() {
            fs::copy(&source, tools.join(name)).map_err(|error| named(Path::new(name), &error))?;
        }
    }
    // Kits may lack it.
    let has_xray = kit.join(XRAY_ARCHIVE).exists();
    for name in [XRAY_ARCHIVE.to_owned(), for_executable(XRAY_ARCHIVE)] {
        if has_xray {
            fs::copy(kit.join(&name), tools.join(&name)).map_err(|error| named(Path::new(&name), &error))?;
        }
    }
    for header in HEADERS {
        let (source, target) =
            (kit.join(INCLUDE_FOLDER).join(header), tools.join(INCLUDE_FOLDER).join(header));
        if source.exists() {
            fs::create_dir_all(target.parent().unwrap_or(&tools))
                .and_then(|()| fs::copy(&source, &target))
                .map_err(|error| named(Path::new(header), &error))?;
        }
    }
    for mode in Mode::ALL.into_iter().filter(|mode| mode.has_runtime()) {
        for is_module in [false, true] {
            let suffix = if is_module { "-module" } else { "" };
            write(
                &lib,
                &format!("pkgconfig/everycall-{mode}{suffix}.pc"),
                &pkg_config(mode, start, is_module, has_xray),
            )?;
        }
    }
    write(&lib, "cmake/everycall/everycall-config.cmake", &cmake_package(start, has_xray))?;
    write(&lib, "cmake/everycall/everycall-config-version.cmake", &cmake_version())
}

/// Moves the contents of `draft`, folder by folder, over those of `folder`.
fn put_in_place(draft: &Path, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
    for entry in fs::read_dir(draft)? {
        let entry = entry?;
        let target = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() && target.exists() {
            put_in_place(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), &target).map_err(|error| named(&target, &error))?;
        }
    }
    Ok(())
}

fn write(lib: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = lib.join(name);
    let parent = path.parent().unwrap_or(lib);
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| named(Path::new(name), &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Options of a mode; files in them are relative to `tools`.
fn compile_options(mode: Mode, tools: &str) -> Vec<String> {
    let family = family_of(mode);
    let mut options = driver_options(mode, tools);
    options.push(format!("-I{tools}/{INCLUDE_FOLDER}"));
    let mut words = mode.compile_options(family).iter();
    while let Some(word) = words.next() {
        // These two belong together.
        let next = if *word == "-Xclang" { words.next() } else { None };
        options.push([*word].into_iter().chain(next.copied()).collect::<Vec<_>>().join(" "));
    }
    options
}

/// The family whose options the files have.
fn family_of(mode: Mode) -> Family {
    if mode.works_with(Family::Clang) { Family::Clang } else { Family::Gcc }
}

/// Options that link-time optimisation also needs on the link line.
fn driver_options(mode: Mode, tools: &str) -> Vec<String> {
    let mut options = Vec::new();
    let family = family_of(mode);
    if mode.needs_specs(family) {
        options.push(format!("-specs={tools}/{SPECS_FILE}"));
    }
    options.extend(
        mode.assembler_step(family, Machine::OWN).map(|step| format!("-B{tools}/{}", folder_of(step))),
    );
    options
}

/// Linker options, and last the object.
fn link_options(is_module: bool, export: String) -> (Vec<String>, &'static str) {
    let collect = "-Wl,-z,start-stop-gc".to_owned();
    if is_module { (vec![collect], MODULE_OBJECT) } else { (vec![collect, export], RUNTIME_OBJECT) }
}

/// The object by which a program starts with tracing off.
fn start_object(start: Start, is_module: bool) -> Option<&'static str> {
    (start == Start::Off && !is_module).then_some(START_OFF_OBJECT)
}

/// XRay's interface, which must follow the program's objects.
fn xray_archive(mode: Mode, is_module: bool) -> Option<String> {
    let name = if is_module { XRAY_ARCHIVE.to_owned() } else { for_executable(XRAY_ARCHIVE) };
    (mode == Mode::Xray).then_some(name)
}

fn pkg_config(mode: Mode, start: Start, is_module: bool, has_xray: bool) -> String {
    let (suffix, what) = if is_module { ("-module", "shared objects") } else { ("", "executables") };
    let tools = "${tools}";
    // pkgconf keeps a path with spaces together behind -L, but not as a word of its own or behind
    // -Wl: no list of exports, but the option of newer linkers.
    let (options, object) = link_options(is_module, format!("-Wl,--export-dynamic-symbol={RUNTIME_SYMBOL}"));
    let mut found = vec![format!("-L{tools}"), format!("-l:{object}")];
    found.extend(start_object(start, is_module).map(|name| format!("-l:{name}")));
    let archive = xray_archive(mode, is_module).filter(|_| has_xray);
    found.extend(archive.map(|name| format!("-l:{name}")));
    let libs = [driver_options(mode, tools), options, found].concat();
    format!(
        "tools=${{pcfiledir}}/../everycall\n\n\
         Name: everycall-{mode}{suffix}\n\
         Description: Function-call tracing of {what}, mode {mode}\n\
         Version: {version}\n\
         Cflags: {cflags}\n\
         Libs: {libs}\n",
        version = env!("CARGO_PKG_VERSION"),
        cflags = compile_options(mode, tools).join(" "),
        libs = libs.join(" "),
    )
}

fn cmake_package(start: Start, has_xray: bool) -> String {
    let modes: String = Mode::ALL
        .into_iter()
        .filter(|mode| mode.has_runtime())
        .map(|mode| cmake_target(mode, start, has_xray))
        .collect();
    format!("{CMAKE_HEAD}{modes}{}", cmake_default_target())
}

const CMAKE_HEAD: &str = "# Targets that make what links to them traceable:\n\
         #   find_package(everycall REQUIRED)\n\
         #   target_link_libraries(app PRIVATE everycall::everycall)\n\
         # everycall::MODE names a mode; everycall::everycall is the best one of the compiler in use.\n\
         cmake_minimum_required(VERSION 3.13)\n\
         get_filename_component(_everycall_tools \"${CMAKE_CURRENT_LIST_DIR}/../../everycall\" ABSOLUTE)\n\
         set(_everycall_type \"$<TARGET_PROPERTY:TYPE>\")\n\
         set(_everycall_is_module \"$<OR:$<STREQUAL:${_everycall_type},SHARED_LIBRARY>,$<STREQUAL:${_everycall_type},MODULE_LIBRARY>>\")\n\
         set(_everycall_is_program \"$<STREQUAL:${_everycall_type},EXECUTABLE>\")\n\
         set(_everycall_is_traced \"$<OR:$<COMPILE_LANGUAGE:C>,$<COMPILE_LANGUAGE:CXX>>\")\n";

fn cmake_target(mode: Mode, start: Start, has_xray: bool) -> String {
    let tools = "${_everycall_tools}";
    let mut lines = Vec::new();
    for option in compile_options(mode, tools) {
        // CMake drops repeated options, unless `SHELL:` marks one that has two words.
        let shell = if option.starts_with("-Xclang ") { "SHELL:" } else { "" };
        lines.push(format!(
            "target_compile_options(everycall::{mode} INTERFACE \"{shell}$<${{_everycall_is_traced}}:{option}>\")"
        ));
    }
    for option in driver_options(mode, tools) {
        lines.push(format!("target_link_options(everycall::{mode} INTERFACE \"{option}\")"));
    }
    for (is_module, condition) in [(true, "_everycall_is_module"), (false, "_everycall_is_program")] {
        let export = format!("-Wl,--dynamic-list={tools}/{EXPORTS_LIST}");
        let (options, object) = link_options(is_module, export);
        let objects = [object].into_iter().chain(start_object(start, is_module));
        let objects = objects.map(|object| format!("{tools}/{object}"));
        for option in options.into_iter().chain(objects) {
            lines.push(format!(
                "target_link_options(everycall::{mode} INTERFACE \"$<${{{condition}}}:{option}>\")"
            ));
        }
    }
    for (is_module, condition) in [(true, "_everycall_is_module"), (false, "_everycall_is_program")] {
        lines.extend(xray_archive(mode, is_module).filter(|_| has_xray).map(|name| {
            format!(
                "target_link_libraries(everycall::{mode} INTERFACE \"$<${{{condition}}}:{tools}/{name}>\")"
            )
        }));
    }
    let lines = lines.join("\n  ");
    format!(
        "\nif(NOT TARGET everycall::{mode})\n  add_library(everycall::{mode} INTERFACE IMPORTED)\n  {lines}\nendif()\n"
    )
}

/// The target for the compiler in use.
fn cmake_default_target() -> String {
    format!(
        "\nif(NOT TARGET everycall::everycall)\n  \
           add_library(everycall::everycall INTERFACE IMPORTED)\n  \
           if(\"${{CMAKE_CXX_COMPILER_ID}};${{CMAKE_C_COMPILER_ID}}\" MATCHES \"Clang\")\n    \
             target_link_libraries(everycall::everycall INTERFACE everycall::{clang})\n  \
           else()\n    \
             target_link_libraries(everycall::everycall INTERFACE everycall::{gcc})\n  \
           endif()\nendif()\n",
        clang = Mode::default_of(Family::Clang),
        gcc = Mode::default_of(Family::Gcc),
    )
}

fn cmake_version() -> String {
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n  set(PACKAGE_VERSION_EXACT TRUE)\nendif()\n",
        version = env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a full disk: the last files can't be written.
    #[test]
    fn failed_writes_leave_no_files() {
        let root = std::env::temp_dir().join(format!("everycall-integration-{}", std::process::id()));
        let (kit, folder) = (root.join("kit"), root.join("new/build files"));
        fs::create_dir_all(&kit).unwrap();
        let names = |folder: &Path| -> Vec<_> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let integrate = || write_integration(&folder, Path::new("/bin/true"), Start::On, &|| Ok(kit.clone()));
        fs::write(kit.join(RUNTIME_OBJECT), "runtime").unwrap();
        fs::write(kit.join(EXPORTS_LIST), "").unwrap();
        let error = integrate().unwrap_err().to_string();
        assert!(error.contains(MODULE_OBJECT), "{error}");
        assert_eq!(names(&root), ["kit"]);

        fs::write(kit.join(MODULE_OBJECT), "module").unwrap();
        integrate().unwrap();
        assert_eq!(names(&folder), ["lib"]);
        let object = folder.join("lib/everycall").join(RUNTIME_OBJECT);
        assert_eq!(fs::read(&object).unwrap(), b"runtime");

        // The existing files stay unchanged, and the next call replaces them.
        fs::write(kit.join(RUNTIME_OBJECT), "another").unwrap();
        fs::remove_file(kit.join(MODULE_OBJECT)).unwrap();
        integrate().unwrap_err();
        assert_eq!(names(&folder), ["lib"]);
        assert_eq!(fs::read(&object).unwrap(), b"runtime");
        fs::write(kit.join(MODULE_OBJECT), "module").unwrap();
        integrate().unwrap();
        assert_eq!(fs::read(&object).unwrap(), b"another");
        fs::remove_dir_all(&root).unwrap();
    }
}
