//! The machine on which figures were measured.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Programs whose versions belong beside the figures, each with a part of its first line that
/// doesn't.
const PROGRAMS: [&str; 8] =
    ["gcc", "clang-19", "clang-22", "ld.bfd", "ld.lld-19", "uftrace", "valgrind", "rustc"];

/// The machine and the programs on it.
#[derive(Debug)]
pub struct Machine {
    facts: Vec<(String, String)>,
}

impl Machine {
    /// This one.
    pub fn new() -> Machine {
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let of_cpu = |field: &str| {
            let found =
                cpus.lines().find(|line| line.starts_with(field)).and_then(|line| line.split_once(':'));
            found.map_or("unknown", |(_, value)| value.trim()).to_owned()
        };
        let guest = if of_cpu("flags").split(' ').any(|flag| flag == "hypervisor") {
            ", virtual machine"
        } else {
            ""
        };
        let numbers = format!("family {} model {}", of_cpu("cpu family"), of_cpu("model\t"));
        let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
        let mut facts = vec![
            ("cpu".to_owned(), format!("{} ({numbers}, {count} CPUs{guest})", of_cpu("model name"))),
            ("kernel".to_owned(), line("/proc/sys/kernel/osrelease")),
            (
                "load at the start".to_owned(),
                line("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            ),
        ];
        facts.extend(PROGRAMS.iter().filter_map(|&program| Some((program.to_owned(), version(program)?))));
        Machine { facts }
    }

    /// For people.
    pub fn shown(&self) -> String {
        self.facts.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    /// For programs.
    pub fn value(&self) -> Value {
        self.facts
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

/// The first line of what `PROGRAM --version` says; `None` where it isn't installed.
pub fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The CPU that pinned programs run on: the last, which is interrupted least.
pub fn measuring_cpu() -> String {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (count - 1).to_string()
}
