//! The ways in which compilers insert hooks, and the options that each needs.

use std::fmt;
use std::str::FromStr;

use everycall_format::arch::Machine;

use crate::arch;
use crate::compiler::Family;

/// How functions get their hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// gcc: NOPs at entry and exits, listed in a section; made by the assembler step.
    Nops,
    /// gcc: plain calls of `__fentry__` and `__return__`.
    Fentry,
    /// gcc and clang: calls of `__cyg_profile_func_enter` and `_exit`, placed before inlining.
    Finstrument,
    /// clang: the same calls, placed after inlining.
    AfterInlining,
    /// clang: XRay sleds, without clang's own runtime.
    Xray,
    /// gcc and clang: the TRACE instruction of `docs/design/trace-instruction.md`: a NOP on
    /// all CPUs that exist. There is no runtime: a device, or QEMU with a plugin, writes the trace.
    TraceInsn,
}

impl Mode {
    /// All modes, in the order in which messages list them.
    pub const ALL: [Mode; 6] =
        [Mode::Nops, Mode::Fentry, Mode::Finstrument, Mode::AfterInlining, Mode::Xray, Mode::TraceInsn];

    /// The mode's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Nops => "nops",
            Mode::Fentry => "fentry",
            Mode::Finstrument => "finstrument",
            Mode::AfterInlining => "after-inlining",
            Mode::Xray => "xray",
            Mode::TraceInsn => "trace-insn",
        }
    }

    /// The mode of a compiler if the user names none; docs/design/compiler-modes.md has the measurements.
    pub fn default_of(family: Family) -> Mode {
        match family {
            Family::Gcc => Mode::Nops,
            Family::Clang => Mode::Xray,
        }
    }

    /// The default mode of a compiler for this machine.
    pub(crate) fn default_for(family: Family, machine: Machine) -> Mode {
        let default = Mode::default_of(family);
        if default.works_for(family, machine) { default } else { Mode::second_of(family) }
    }

    /// Whether gcc marks entries for this mode, and the assembler step does all else.
    pub(crate) fn has_marks(self, family: Family, machine: Machine) -> bool {
        self == Mode::Nops && family == Family::Gcc && !arch::has_hook_calls(machine)
    }

    /// The mode where a compiler or a command can't have the default one.
    pub(crate) fn second_of(family: Family) -> Mode {
        match family {
            Family::Gcc => Mode::Finstrument,
            Family::Clang => Mode::AfterInlining,
        }
    }

    /// Whether inlined calls are reported.
    pub fn reports_inlined(self) -> bool {
        self == Mode::Finstrument
    }

    /// Whether compilers of this family support it.
    pub fn works_with(self, family: Family) -> bool {
        match self {
            Mode::Nops | Mode::Fentry => family == Family::Gcc,
            Mode::Finstrument | Mode::TraceInsn => true,
            Mode::AfterInlining | Mode::Xray => family == Family::Clang,
        }
    }

    /// Whether compilers of this family support it for this machine.
    pub fn works_for(self, family: Family, machine: Machine) -> bool {
        let is_there = match self {
            Mode::Nops | Mode::Finstrument | Mode::AfterInlining => true,
            Mode::Fentry | Mode::TraceInsn => arch::has_hook_calls(machine),
            Mode::Xray => arch::has_sleds(machine),
        };
        is_there && self.works_with(family)
    }

    /// Whether the objects list patchable sites, which linkers must keep with their functions.
    pub fn has_sites(self) -> bool {
        matches!(self, Mode::Nops | Mode::Xray)
    }

    /// Whether programs get the runtime, which hooks need.
    pub fn has_runtime(self) -> bool {
        self != Mode::TraceInsn
    }

    /// Whether clang makes XRay's sleds.
    pub(crate) fn has_sleds(self, family: Family) -> bool {
        family == Family::Clang && matches!(self, Mode::Xray | Mode::TraceInsn)
    }

    /// Whether gcc needs a specs file to emit the hook calls.
    ///
    /// Given to gcc's own passes rather than to its driver, `-p` reaches link-time optimisation too, brings
    /// no profiling start file (so no `gmon.out`), and doesn't conflict with `-fomit-frame-pointer`.
    pub(crate) fn needs_specs(self, family: Family) -> bool {
        family == Family::Gcc && matches!(self, Mode::Nops | Mode::Fentry | Mode::TraceInsn)
    }

    /// The assembler step of this mode, if the mode needs one: plain calls within a function's body
    /// leave the slots alone that unwind information names.
    pub(crate) fn assembler_step(self, family: Family, machine: Machine) -> Option<Step> {
        match (self, family) {
            (Mode::Nops, _) if self.has_marks(family, machine) => Some(Step::Marks),
            (Mode::Nops, _) => Some(Step::Sites),
            (Mode::Fentry | Mode::Xray, _) => Some(Step::Exits),
            (Mode::TraceInsn, Family::Gcc) => Some(Step::Traces),
            (Mode::TraceInsn, Family::Clang) => Some(Step::Sleds),
            (Mode::Finstrument | Mode::AfterInlining, _) => None,
        }
    }

    /// Options for compilations, beyond what needs a file.
    pub(crate) fn compile_options(self, family: Family) -> &'static [&'static str] {
        match (self, family) {
            (Mode::Nops | Mode::Fentry, _) | (Mode::TraceInsn, Family::Gcc) => &[],
            (Mode::Finstrument, _) => &["-finstrument-functions"],
            (Mode::AfterInlining, _) => &["-finstrument-functions-after-inlining"],
            // The options go to the compiling pass only: at a link, clang's driver would add XRay's
            // own runtime, and versions differ in the option that prevents it. The assembler step
            // adds the unwind information that is missing at sleds.
            (Mode::Xray | Mode::TraceInsn, _) => &[
                "-Xclang",
                "-fxray-instrument",
                "-Xclang",
                "-fxray-instruction-threshold=1",
                "-fno-integrated-as",
            ],
        }
    }

    /// The option of mode `xray` that clang compares between a module and what imports it.
    pub(crate) const XRAY_LANGUAGE: [&str; 2] = ["-Xclang", "-fxray-instrument"];

    /// Options for compilations in mode `xray` where the user gives options of XRay's, which
    /// clang's driver passes on only if it knows that there is instrumentation, and which come
    /// after these.
    pub(crate) const XRAY_BESIDE_THE_USERS: [&str; 3] =
        ["-fxray-instrument", "-fxray-instruction-threshold=1", "-fno-integrated-as"];
}

/// How the assembler step changes a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hook calls become sites; unwind information at exits is completed.
    Sites,
    /// Hook calls and sleds stay; unwind information at exits is completed.
    Exits,
    /// Hook calls become TRACE instructions.
    Traces,
    /// Sleds become TRACE instructions.
    Sleds,
    /// Marked entries, and the instructions that leave their functions, get sites.
    Marks,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Mode, String> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let all = Mode::ALL.map(Mode::name).join(", ");
            format!("`{name}` is not a mode; the modes are {all}")
        })
    }
}
