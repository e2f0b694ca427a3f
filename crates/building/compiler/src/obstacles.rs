//! Obstacles to tracing, in general or in a mode: the prefix refuses the command and gives advice.

use std::io;
use std::path::Path;

use everycall_format::arch::Machine;

use crate::arch;
use crate::args::{Invocation, Obstacle};
use crate::compiler::Family;
use crate::mode::Mode;
use crate::probe::{self, Feature};

/// Why the command can't be run in this mode; a sentence for the user.
pub(crate) fn first(
    mode: Mode,
    family: Family,
    machine: Machine,
    compiler: &Path,
    invocation: &Invocation,
) -> Option<String> {
    other_family(mode, family)
        .or_else(|| other_machine(compiler))
        .or_else(|| not_there(mode, family, machine))
        .or_else(|| linker_of(mode, family, invocation))
        .or_else(|| sleds_beside_calls(mode, family, invocation))
        .or_else(|| invocation.obstacles.iter().find_map(|obstacle| option_of(mode, family, obstacle)))
}

/// Features that a mode needs for this command and that not every version of its compiler has; the
/// oldest versions lack the first.
pub(crate) fn features_of(
    mode: Mode,
    family: Family,
    machine: Machine,
    invocation: &Invocation,
) -> &'static [Feature] {
    match mode {
        Mode::Nops if mode.has_marks(family, machine) => &[Feature::LinkedOrder],
        Mode::Nops => &[Feature::ReturnHooks, Feature::LinkedOrder],
        Mode::Fentry => &[Feature::ReturnHooks],
        Mode::TraceInsn if family == Family::Gcc => &[Feature::ReturnHooks],
        _ if mode.has_sleds(family) && invocation.compiles && invocation.has_interface_unit => {
            &[Feature::SledsInInterfaceUnits]
        }
        Mode::Xray | Mode::Finstrument | Mode::AfterInlining | Mode::TraceInsn => &[],
    }
}

/// Why this compiler is too old for the mode; a sentence for the user.
pub(crate) fn missing_feature(
    mode: Mode,
    family: Family,
    machine: Machine,
    compiler: &Path,
    invocation: &Invocation,
) -> io::Result<Option<String>> {
    for feature in features_of(mode, family, machine, invocation) {
        if probe::has(compiler, &invocation.program_folders, *feature)? {
            continue;
        }
        let compiler = compiler.display();
        let (lack, other) = match feature {
            Feature::ReturnHooks => (
                format!("`{compiler}` doesn't know -minstrument-return=call (gcc 9 and newer do)"),
                Mode::second_of(family),
            ),
            Feature::LinkedOrder => (
                format!(
                    "the assembler of `{compiler}` doesn't know sections with the flag `o` (binutils 2.35 and newer do)"
                ),
                if Mode::Fentry.works_for(family, machine) { Mode::Fentry } else { Mode::second_of(family) },
            ),
            Feature::SledsInInterfaceUnits | Feature::NoXrayLinkDeps => (
                format!("`{compiler}` makes no sleds in interface units of C++20 modules (clang 22 does)"),
                Mode::second_of(family),
            ),
        };
        return Ok(Some(format!(
            "mode {mode} isn't possible here: {lack}; use mode {other}, which is the default then, or a newer version"
        )));
    }
    Ok(None)
}

fn other_family(mode: Mode, family: Family) -> Option<String> {
    if mode.works_with(family) {
        return None;
    }
    let works = |mode: &Mode| mode.works_with(family);
    let modes = Mode::ALL.into_iter().filter(works).map(Mode::name).collect::<Vec<_>>().join(", ");
    let family = family.name();
    Some(format!("{family} does not support mode {mode}; its modes are {modes}"))
}

/// The machines whose programs can be traced, for messages.
fn machines() -> String {
    Machine::ALL.map(Machine::name).join(" and ")
}

fn other_machine(compiler: &Path) -> Option<String> {
    let name = compiler.file_name()?.to_str()?;
    let is_other = name.contains('-') && arch::is_other_machine(name);
    is_other
        .then(|| format!("`{name}` compiles for another machine; only {} Linux can be traced", machines()))
}

/// The mode doesn't exist for the machine yet.
fn not_there(mode: Mode, family: Family, machine: Machine) -> Option<String> {
    if mode.works_for(family, machine) {
        return None;
    }
    let works = |mode: &Mode| mode.works_for(family, machine);
    let modes = Mode::ALL.into_iter().filter(works).map(Mode::name).collect::<Vec<_>>().join(", ");
    Some(format!(
        "mode {mode} isn't there for {}; {}'s modes for it are {modes}",
        machine.name(),
        family.name()
    ))
}

fn linker_of(mode: Mode, family: Family, invocation: &Invocation) -> Option<String> {
    if mode.has_sites() && invocation.links() && invocation.linker.as_deref() == Some("gold") {
        return Some(format!(
            "the linker gold drops the list of sites that mode {mode} makes; use -fuse-ld=bfd or -fuse-ld=lld, or another mode"
        ));
    }
    if mode.has_sleds(family) && invocation.has_compiled_module {
        return Some(format!(
            "mode {mode} isn't possible here: clang makes no sleds from a module's compiled form (.pcm); use mode after-inlining, which is the default then, or compile the module's source"
        ));
    }
    // The assembler step completes the unwind information at sleds; the linker generates code without that step.
    (mode.has_sleds(family) && invocation.optimises_at_link).then(|| {
        let why = match mode {
            Mode::TraceInsn => "the linker generates the code, and no assembler step makes TRACE instructions in it",
            _ => "unwind information at the sleds would be wrong, and profilers and thread cancellation would crash the program",
        };
        format!("mode {mode} can't be used with -flto: {why}; use mode after-inlining, the default with -flto, or leave out -flto (or add -fno-lto)")
    })
}

fn sleds_beside_calls(mode: Mode, family: Family, invocation: &Invocation) -> Option<String> {
    let is_both = invocation.asks_for_xray && invocation.compiles && !mode.has_sleds(family);
    is_both.then(|| {
        format!(
            "-fxray-instrument makes sleds beside the hook calls of mode {mode}, and every call would be recorded twice; leave that option out (or add -fno-xray-instrument), or use mode xray, which can't be used with -flto"
        )
    })
}

fn option_of(mode: Mode, family: Family, obstacle: &Obstacle) -> Option<String> {
    match obstacle {
        Obstacle::Target(option) => {
            Some(format!("{option} compiles for another machine; only {} Linux can be traced", machines()))
        }
        Obstacle::LargeModel => Some(format!(
            "-mcmodel=large puts functions out of the hooks' reach in mode {mode}; use -mcmodel=medium"
        )),
        Obstacle::IntelSyntax if mode == Mode::Fentry => Some(
            "gcc writes hook calls of mode fentry in AT&T syntax even with -masm=intel, which can't be assembled; use mode nops or finstrument".to_owned(),
        ),
        Obstacle::ClaimsHooks(option) if mode.needs_specs(family) => Some(format!(
            "{option} already uses gcc's entry and exit hooks, so mode {mode} can't use them; leave it out or \
            use mode finstrument"
        )),
        Obstacle::IntelSyntax | Obstacle::ClaimsHooks(_) => None,
    }
}
