//! Everycall's modes beside other tracers, on the same programs.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::decode::Trace;
use super::lab::{Lab, Mode};
use super::machine;
use super::rounds::{Rounds, Words, words};
use super::table::{Cell, Table};
use super::workload::Workload;

const WORKLOADS: [Workload; 3] = [Workload::LOOP, Workload::FIBONACCI, Workload::SQLITE];

/// Something that sees calls.
#[derive(Clone, Copy, Debug)]
struct Tracer {
    name: &'static str,
    /// How the program is compiled: by itself, or by everycall.
    compiler: &'static str,
    mode: Option<Mode>,
    options: &'static [&'static str],
    link_options: &'static [&'static str],
    /// Source that is compiled without the options.
    runtime: Option<&'static str>,
    /// Words before the program; `{}` is the place for a trace.
    before: &'static [&'static str],
    /// The mode that has the same hooks, with which events are counted.
    counted_by: Mode,
    /// Whether it sees entries alone.
    entries_only: bool,
    /// Whether it is so slow that short runs have to do.
    is_slow: bool,
    /// A program without which it can't be used.
    needs: &'static str,
}

const FINSTRUMENT: Mode = Mode { compiler: "gcc", name: "finstrument" };

const fn everycall(name: &'static str, mode: Mode) -> Tracer {
    Tracer {
        name,
        compiler: mode.compiler,
        mode: Some(mode),
        options: &[],
        link_options: &[],
        runtime: None,
        before: &[],
        counted_by: mode,
        entries_only: false,
        is_slow: false,
        needs: mode.compiler,
    }
}

const fn gcc_peer(name: &'static str, options: &'static [&'static str], needs: &'static str) -> Tracer {
    Tracer { mode: None, options, needs, ..everycall(name, Mode::NOPS) }
}

const XRAY_OPTIONS: [&str; 2] = ["-fxray-instrument", "-fxray-instruction-threshold=1"];

const TRACERS: [Tracer; 12] = [
    everycall("everycall gcc nops", Mode::NOPS),
    everycall("everycall gcc fentry", Mode { compiler: "gcc", name: "fentry" }),
    everycall("everycall gcc finstrument", FINSTRUMENT),
    everycall("everycall clang-19 xray", Mode::XRAY),
    everycall("everycall clang-19 after-inlining", Mode { compiler: "clang-19", name: "after-inlining" }),
    everycall("everycall clang-22 xray", Mode { compiler: "clang-22", name: "xray" }),
    Tracer {
        link_options: &["-no-pie"],
        before: &["uftrace", "record", "--no-libcall", "-d", "{}"],
        ..gcc_peer("uftrace -mfentry", &["-pg", "-mfentry", "-fno-pie"], "uftrace")
    },
    Tracer {
        before: &["uftrace", "record", "--no-libcall", "-d", "{}"],
        counted_by: FINSTRUMENT,
        ..gcc_peer("uftrace -finstrument-functions", &["-finstrument-functions"], "uftrace")
    },
    Tracer {
        mode: None,
        options: &XRAY_OPTIONS,
        link_options: &["-fxray-instrument"],
        runtime: Some("xray_fdr.cc"),
        before: &["XRAY_OPTIONS=patch_premain=true xray_mode=xray-fdr xray_logfile_base={}."],
        ..everycall("XRay flight recorder (clang-19)", Mode::XRAY)
    },
    Tracer {
        mode: None,
        options: &XRAY_OPTIONS,
        link_options: &["-fxray-instrument"],
        before: &[
            "XRAY_OPTIONS=patch_premain=true xray_mode=xray-basic xray_logfile_base={}.",
            "XRAY_BASIC_OPTIONS=func_duration_threshold_us=0",
        ],
        is_slow: true,
        ..everycall("XRay basic (clang-19)", Mode::XRAY)
    },
    Tracer {
        link_options: &["-pg", "-no-pie"],
        entries_only: true,
        ..gcc_peer("gprof (counts only)", &["-pg", "-fno-pie"], "gcc")
    },
    Tracer {
        before: &["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file={}"],
        is_slow: true,
        ..gcc_peer("callgrind (counts only)", &["-g"], "valgrind")
    },
];

/// Measures.
///
/// # Errors
/// Only where nothing can be measured: a tracer that fails is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let mut cost = Table::new(
        "Beside other tracers: CPU ns per event",
        &["tracer", "loop", "fibonacci", "sqlite", "sqlite, times slower", "sqlite, all CPU"],
    );
    cost.note(
        "(traced - untraced CPU time of the measured part) / events; same compiler, -O2, same program; median (quartiles) of pairs. \
         \"times slower\": CPU time of the measured part; \"all CPU\": of the whole command, recorders and writing included.",
    );
    cost.note("Events are counted by everycall's mode with the same hooks; gprof sees entries alone, callgrind counts instructions besides.");
    if !Path::new("/sys/devices/system/cpu/cpu0/tsc_freq_khz").exists() {
        cost.note("The kernel doesn't tell the counter's frequency here, so XRay reads the time with clock_gettime.");
    }
    let mut decoding =
        Table::new("Other tracers' decoders", &["what", "million events", "million events/s", "peak MiB"]);
    decoding.note("Of CPU time, SQLite's trace, output thrown away.");
    let mut counted = Counted::default();
    for tracer in TRACERS {
        if machine::version(tracer.needs).is_none() || machine::version(tracer.compiler).is_none() {
            cost.note(format!("{}: not installed", tracer.name));
            continue;
        }
        eprintln!("bench: {}", tracer.name);
        match tracer.row(lab, &mut counted, is_quick) {
            Ok(cells) => cost.row(cells),
            Err(why) => cost.failure(tracer.name, &why),
        }
        for (name, decoder, record_bytes) in tracer.decoders(lab) {
            match decoded(lab, name, decoder, tracer.trace_bytes(lab) / record_bytes) {
                Ok(cells) => decoding.row(cells),
                Err(why) => decoding.failure(name, &why),
            }
        }
        tracer.remove_trace(lab);
    }
    Ok(vec![cost, decoding])
}

impl Tracer {
    fn row(self, lab: &Lab, counted: &mut Counted, is_quick: bool) -> Result<Vec<Cell>, String> {
        let mut cells = vec![Cell::text(self.name)];
        for workload in WORKLOADS {
            let plain = build(lab, workload, self.compiler, None)?;
            let traced = self.build(lab, workload)?;
            let argument = workload.argument(true);
            let mut events = counted.events(lab, workload, self.counted_by)?;
            if self.entries_only {
                events /= 2.0;
            }
            let commands = [
                words([plain.as_os_str(), argument.as_ref()]),
                [self.before(lab), words([traced.as_os_str(), argument.as_ref()])].concat(),
            ];
            let pairs = if self.is_slow || is_quick { 3 } else { 15 };
            let rounds = Rounds::run(lab, pairs, false, &commands)?;
            let ns = rounds.pairs(0, 1, |plain, traced| {
                (traced.region_or_cpu_ns() - plain.region_or_cpu_ns()) / events
            })?;
            cells.push(Cell::Measured(ns, 1));
            if workload.name == Workload::SQLITE.name {
                let times = rounds
                    .pairs(0, 1, |plain, traced| traced.region_or_cpu_ns() / plain.region_or_cpu_ns())?;
                let all = rounds.pairs(0, 1, |plain, traced| traced.cpu_ns / plain.cpu_ns)?;
                cells.extend([Cell::Measured(times, 2), Cell::Measured(all, 2)]);
            }
        }
        Ok(cells)
    }

    fn build(self, lab: &Lab, workload: Workload) -> Result<PathBuf, String> {
        if let Some(mode) = self.mode {
            return build(lab, workload, mode.compiler, Some(mode));
        }
        let name = format!("peer {} {}", workload.name, self.name.replace(['(', ')'], ""));
        let mut objects = workload.compile(lab, || lab.compiler(self.compiler, None), self.options, &name)?;
        let mut linker = lab.compiler(self.compiler, None);
        if let Some(runtime) = self.runtime {
            let cxx = self.compiler.replace("clang", "clang++");
            objects.push(lab.compile(lab.command(&cxx), runtime, &[], &format!("{name} runtime.o"))?);
            linker = lab.command(cxx);
        }
        link(lab, linker, &objects, self.link_options, &name)
    }

    fn before(self, lab: &Lab) -> Words {
        let trace = self.trace(lab).display().to_string();
        self.before.iter().map(|word| word.replace("{}", &trace).into()).collect()
    }

    /// Where it puts its trace, or how the names of its traces begin.
    fn trace(self, lab: &Lab) -> PathBuf {
        let name: String = self.name.chars().filter(char::is_ascii_alphanumeric).collect();
        lab.path(&format!("trace-{name}"))
    }

    /// Everything that begins with the name of the trace, newest last.
    fn traces(self, lab: &Lab) -> Vec<PathBuf> {
        let trace = self.trace(lab);
        let name = trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entries = fs::read_dir(lab.path("")).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&name))
            .map(|entry| entry.path())
            .collect();
        paths.sort_by_key(|path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok());
        paths
    }

    fn remove_trace(self, lab: &Lab) {
        for path in self.traces(lab) {
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }

    /// Bytes of records in the trace that it left last.
    fn trace_bytes(self, lab: &Lab) -> f64 {
        let size = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let folder = self.trace(lab);
        if folder.is_dir() {
            let is_data = |name: &str| {
                name.ends_with(".dat")
                    && name.bytes().all(|byte| !byte.is_ascii_alphabetic() || b"dat".contains(&byte))
            };
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            return entries
                .filter(|entry| is_data(&entry.file_name().to_string_lossy()))
                .map(|entry| size(&entry.path()) as f64)
                .sum();
        }
        self.traces(lab).last().map_or(0.0, |path| size(path) as f64)
    }

    /// Its decoders with the size of a record.
    fn decoders(self, lab: &Lab) -> Vec<(&'static str, Words, f64)> {
        let uftrace = |name, arguments: &[&str]| {
            let mut command = words(["uftrace"]);
            command.extend(words(arguments));
            command.extend(words(["-d".as_ref(), self.trace(lab).as_os_str()]));
            (name, command, 16.0)
        };
        match self.name {
            "uftrace -mfentry" => vec![
                uftrace("uftrace dump --chrome", &["dump", "--chrome"]),
                uftrace("uftrace replay", &["replay", "--no-pager"]),
            ],
            "XRay basic (clang-19)" if machine::version("llvm-xray-19").is_some() => {
                let Some(log) = self.traces(lab).pop() else { return Vec::new() };
                let program = lab.path(&format!(
                    "peer {} {}",
                    Workload::SQLITE.name,
                    self.name.replace(['(', ')'], "")
                ));
                let mut command =
                    words(["llvm-xray-19", "convert", "--symbolize", "-f", "trace_event", "-o", "-"]);
                command.extend(words(["-m".as_ref(), program.as_os_str(), log.as_os_str()]));
                vec![("llvm-xray convert -f trace_event", command, 32.0)]
            }
            _ => Vec::new(),
        }
    }
}

fn build(lab: &Lab, workload: Workload, compiler: &str, mode: Option<Mode>) -> Result<PathBuf, String> {
    let through = mode.map(|mode| mode.name);
    let name = format!("peer {} {compiler} {}", workload.name, through.unwrap_or("plain"));
    let objects = workload.compile(lab, || lab.compiler(compiler, through), &[], &name)?;
    link(lab, lab.compiler(compiler, through), &objects, &[], &name)
}

fn link(
    lab: &Lab,
    linker: Command,
    objects: &[PathBuf],
    options: &[&str],
    name: &str,
) -> Result<PathBuf, String> {
    let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
    lab.link(linker, &objects, &[options, &["-lm", "-lpthread"]].concat(), name)
}

fn decoded(lab: &Lab, name: &str, command: Words, events: f64) -> Result<Vec<Cell>, String> {
    if events < 1.0 {
        return Err("there is no trace to decode".to_owned());
    }
    let rounds = Rounds::run(lab, 1, false, &[command])?;
    Ok(vec![
        Cell::text(name),
        Cell::Number(events / 1e6, 1),
        Cell::Measured(rounds.figure(0, |run| events / run.cpu_ns * 1e3)?, 2),
        Cell::Number(rounds.figure(0, |run| run.peak_kib)?.median / 1024.0, 1),
    ])
}

/// Events of the workloads, by the hooks that a mode makes.
#[derive(Default)]
struct Counted {
    known: HashMap<(String, &'static str), f64>,
}

impl Counted {
    fn events(&mut self, lab: &Lab, workload: Workload, mode: Mode) -> Result<f64, String> {
        let key = (mode.label(), workload.name);
        if let Some(&events) = self.known.get(&key) {
            return Ok(events);
        }
        let program = build(lab, workload, mode.compiler, Some(mode))?;
        let events = Trace::record(lab, &program, workload.argument(true))?.events;
        self.known.insert(key, events);
        Ok(events)
    }
}
