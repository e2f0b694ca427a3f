//! A debugger that stops at any instruction of a hook finds the traced function and its callers,
//! and the registers that these hold: the unwind tables of the hooks and of their sites are right.
//! Needs gdb with Python.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use everycall_tests::abi::{BACKTRACE_PY, CALLERS_C};
use everycall_tests::selections::file_with_only;
use everycall_tests::{Mode, Place, everycall, is_full, successful};

/// Stacks that may stand above a hook, innermost first: calls, and functions that were jumped to. A
/// debugger may know where the jump was.
const STACKS: [&str; 6] = [
    "inner outer hold main",
    "outer hold main",
    "inner tail_outer hold main",
    "tail_outer hold main",
    "tail_inner hold main",
    "tail_inner tail_outer hold main",
];
/// `__cyg_profile` exits may be jumps themselves.
const STACKS_JUMPED: [&str; 1] = ["hold main"];

#[test]
fn a_debugger_finds_the_callers_at_every_instruction() {
    let place = Place::new("unwinding");
    place.write("callers.c", CALLERS_C);
    let script = place.write("backtrace.py", BACKTRACE_PY);
    let with_frame_pointers: &[&str] = &["-O2", "-fno-omit-frame-pointer"];
    for (is_always, mode, flags) in [
        (false, Mode::GCC_NOPS, with_frame_pointers),
        (true, Mode::GCC_NOPS, &["-O2"][..]),
        (false, Mode::GCC_FENTRY, with_frame_pointers),
        (true, Mode::GCC_FINSTRUMENT, &["-O2"]),
        (false, Mode::CLANG19_XRAY, with_frame_pointers),
        (false, Mode::CLANG19_XRAY, &["-O2"]),
    ] {
        if !is_always && !is_full() {
            continue;
        }
        let program = place.build(mode, &[&["-g", "callers.c"], flags].concat(), &mode.label());
        // Of functions whose values are copied, too.
        let copies = mode == Mode::GCC_NOPS && flags.len() == 1;
        let captures = place.file(&format!("{}.eca", mode.label()));
        if copies {
            let mut resolve = place.command(everycall());
            resolve.args(["resolve", "--args", "inner", "--results", "inner", "-o"]).arg(&captures);
            successful(resolve.arg(&program));
        }
        let stepped = |selection: Option<&Path>| {
            let mut gdb = place.command("gdb");
            gdb.args(["-batch", "-nx", "-x"]).arg(&script).arg(&program);
            gdb.env("EVERYCALL_RING_SIZE", "64K").env_remove("DEBUGINFOD_URLS");
            gdb.envs(selection.map(|file| ("EVERYCALL_ONLY", file)));
            gdb.envs(copies.then_some(("EVERYCALL_ARGS", &captures)));
            successful(&mut gdb)
        };
        let mut printed = stepped(None);
        if matches!(mode.name, "finstrument" | "fentry") {
            // Hooks that look which functions are selected.
            let only = file_with_only(&place, &program, &["inner", "tail_outer", "hold"]);
            printed += &stepped(Some(&only));
        }
        let (mut places, mut stops) = (BTreeSet::new(), BTreeMap::<_, BTreeSet<String>>::new());
        for line in printed.lines() {
            let mut words = line.splitn(4, ' ');
            let kind = words.next();
            let (Some(symbol), Some(offset)) = (words.next(), words.next()) else { continue };
            let at = (symbol.to_owned(), offset.to_owned());
            if kind == Some("place") {
                places.insert(at);
            } else if kind == Some("stop") {
                stops.entry(at).or_default().insert(words.next().unwrap_or("").to_owned());
            }
        }
        let label = mode.label();
        for (at, stacks) in &stops {
            for stack in stacks {
                let allowed = STACKS.contains(&&stack[..])
                    || mode.is_body() && !at.0.ends_with("enter") && STACKS_JUMPED.contains(&&stack[..]);
                assert!(allowed, "{label}: at {at:?} the callers were {stack:?}");
            }
        }
        // Each instruction that normally runs was checked, below each function.
        let hooks: &[&str] = match mode.name {
            "finstrument" => &["__cyg_profile_func_enter", "__cyg_profile_func_exit"],
            "fentry" => &["__fentry__", "__return__", "everycall_entry", "everycall_exit"],
            _ => &["everycall_entry", "everycall_exit"],
        };
        let copying: &[&str] = if copies {
            &["everycall_capture_entry", "everycall_capture_exit", "everycall_capture_common"]
        } else {
            &[]
        };
        for hook in hooks.iter().chain(copying) {
            let of_hook = |at: &&(String, String)| at.0 == *hook;
            let (all, seen) = (places.iter().filter(of_hook).count(), stops.keys().filter(of_hook).count());
            // Code for modules that are off or being switched, for exits by jump, and for functions
            // whose values are copied.
            let rare = match hook.starts_with("__") {
                // Conditions, values in vector registers, longer texts, short calls, and what an
                // optimised function has no use for.
                _ if hook.contains("capture") => 200,
                true if !mode.is_body() => 12,
                true => 7,
                false => 0,
            };
            let least = if hook.starts_with("everycall_") && !hook.contains("capture") { 20 } else { 10 };
            assert!(seen >= least && seen + rare >= all, "{label}: {seen} of {all} instructions of {hook}");
            let stacks: BTreeSet<_> =
                stops.iter().filter(|(at, _)| at.0 == *hook).flat_map(|(_, stacks)| stacks).collect();
            let least = if hook.contains("capture") { 2 } else { 3 };
            assert!(stacks.len() >= least, "{label}: {hook} below {stacks:?} only");
        }
        let slow = stops.keys().filter(|at| at.0 == "everycall_slow_common").count();
        let slow_all = places.iter().filter(|at| at.0 == "everycall_slow_common").count();
        // All but the restoring of a direction flag that was set, and the search where a stack is
        // taken.
        assert!(
            slow >= 80 && slow + 6 >= slow_all,
            "{label}: {slow} of {slow_all} instructions of the slow path"
        );
    }
}
