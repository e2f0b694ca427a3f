//! Cost of recording for real programs, beside hooks that only read the clock.

use std::fs;
use std::path::{Path, PathBuf};

use super::lab::{Lab, Mode};
use super::rounds::{Rounds, Words, words};
use super::stats::Spread;
use super::table::{Cell, Table, Target};
use crate::step::workspace;

/// Target: no more than the clock itself.
const MOST: f64 = 1.0;
/// Options that make gcc call hooks at each entry and exit.
const HOOKED: [&str; 3] = ["-pg", "-mfentry", "-minstrument-return=call"];
/// The folder of funtrace's sources, if it is to be measured, too.
const FUNTRACE: &str = "EVERYCALL_FUNTRACE";

/// A program.
pub struct Real {
    /// Its name.
    pub name: &'static str,
    compiler: &'static str,
    /// From the workspace; the first one is ours.
    driver: &'static str,
    /// Whether the driver marks the part that is measured. If not, that is `main`.
    has_region: bool,
    /// Of the folder of third-party sources; `*` stands for any name.
    sources: &'static [&'static str],
    /// Names of sources don't contain these.
    except: &'static [&'static str],
    includes: &'static [&'static str],
    options: &'static [&'static str],
    arguments: &'static [&'static str],
    /// A header without which it can't be built.
    needs: Option<&'static str>,
}

const PLAIN: Real = Real {
    name: "fibonacci",
    compiler: "gcc",
    driver: "benches/programs/fibonacci.c",
    has_region: true,
    sources: &[],
    except: &[],
    includes: &[],
    options: &["-w"],
    arguments: &["32"],
    needs: None,
};

/// All that are measured.
pub const PROGRAMS: [Real; 5] = [
    PLAIN,
    Real {
        name: "sqlite",
        driver: "benches/programs/sqlite.c",
        sources: &["libsqlite3-sys/sqlite3/sqlite3.c"],
        includes: &["libsqlite3-sys/sqlite3"],
        options: &[
            "-w",
            "-DSQLITE_THREADSAFE=2",
            "-DSQLITE_DEFAULT_MEMSTATUS=0",
            "-DSQLITE_OMIT_LOAD_EXTENSION",
        ],
        arguments: &["40000"],
        ..PLAIN
    },
    Real {
        name: "lua",
        driver: "tests/workloads/drivers/lua.c",
        has_region: false,
        sources: &["lua-src/lua-5.4.7/*.c"],
        includes: &["lua-src/lua-5.4.7"],
        options: &["-w", "-DLUA_USE_POSIX"],
        arguments: &["tests/workloads/drivers/work.lua", "200"],
        ..PLAIN
    },
    Real {
        name: "leveldb",
        compiler: "g++",
        driver: "tests/workloads/drivers/leveldb.cc",
        has_region: false,
        sources: &[
            "leveldb-sys/deps/leveldb-1.22/db/*.cc",
            "leveldb-sys/deps/leveldb-1.22/table/*.cc",
            "leveldb-sys/deps/leveldb-1.22/util/*.cc",
            "leveldb-sys/deps/leveldb-1.22/helpers/memenv/memenv.cc",
        ],
        except: &["_test", "bench", "windows", "leveldbutil", "testharness", "testutil", "_helper"],
        includes: &["leveldb-sys/deps/leveldb-1.22", "leveldb-sys/deps/leveldb-1.22/include"],
        options: &[
            "-w",
            "-std=c++17",
            "-DLEVELDB_PLATFORM_POSIX=1",
            "-DLEVELDB_IS_BIG_ENDIAN=0",
            "-DHAVE_FDATASYNC=1",
        ],
        arguments: &["20000", "1"],
        needs: None,
    },
    Real {
        name: "json",
        compiler: "g++",
        driver: "benches/programs/json.cc",
        arguments: &["25"],
        needs: Some("/usr/include/nlohmann/json.hpp"),
        options: &["-w", "-std=c++17"],
        ..PLAIN
    },
];

/// Measures.
///
/// # Errors
/// Nothing: what can't be measured is a row that says so.
pub fn run(lab: &Lab, is_quick: bool) -> Result<Vec<Table>, String> {
    let rounds = if is_quick { 5 } else { 25 };
    let mut table =
        Table::new("Real programs", &["program", "hooks", "of the clock", "target", "times slower"]);
    table.note(format!(
        "CPU time beyond the uninstrumented program's, in that of hooks which do nothing but `rdtsc`; pinned, {rounds} rounds in turn, \
         medians (quartiles). \"Times slower\" is CPU time of the uninstrumented program's. {FUNTRACE}=FOLDER measures funtrace, too."
    ));
    for real in &PROGRAMS {
        match real.measured(lab, rounds) {
            Ok(rows) => rows.into_iter().for_each(|row| table.row(row)),
            Err(why) => table.failure(real.name, &why),
        }
    }
    Ok(vec![table])
}

impl Real {
    fn measured(&self, lab: &Lab, rounds: usize) -> Result<Vec<Vec<Cell>>, String> {
        self.check()?;
        let everycall = self.built(lab, "nops", Some(Mode::NOPS.name), &[], &[])?;
        let floor = lab.compile(lab.compiler("gcc", None), "floor.S", &[], "floor.o")?;
        let mut ways = vec![
            ("none", self.run_of(&self.built(lab, "plain", None, &[], &[])?, None)),
            ("the clock", self.run_of(&self.built(lab, "clock", None, &HOOKED, &[&floor])?, None)),
            ("everycall", self.run_of(&everycall, None)),
            ("everycall, 64 MiB", self.run_of(&everycall, Some("EVERYCALL_RING_SIZE=64M"))),
            ("everycall, bounded", self.run_of(&everycall, Some("EVERYCALL_CLOCK=bounded"))),
            ("everycall, order", self.run_of(&everycall, Some("EVERYCALL_CLOCK=order"))),
        ];
        if let Some(folder) = std::env::var_os(FUNTRACE).map(PathBuf::from) {
            ways.push(("funtrace", self.run_of(&self.with_funtrace(lab, &folder)?, None)));
        }
        let commands: Vec<Words> = ways.iter().map(|(_, command)| command.clone()).collect();
        let measured = Rounds::run(lab, rounds, true, &commands)?;
        let of_round = |which: usize| measured.all(which).map(|run| run.region_or_cpu_ns());
        let mut rows = Vec::new();
        for (which, (name, _)) in ways.iter().enumerate().skip(1) {
            let slower =
                measured.pairs(0, which, |plain, run| run.region_or_cpu_ns() / plain.region_or_cpu_ns());
            let added = of_round(0).zip(of_round(1)).zip(of_round(which));
            let added =
                Spread::of(added.map(|((plain, clock), own)| (own - plain) / (clock - plain)).collect())?;
            let target = if *name == "everycall" {
                Cell::Target(Target::Most(MOST), added.median)
            } else {
                Cell::Empty
            };
            rows.push(vec![
                Cell::text(self.name),
                Cell::text(*name),
                Cell::Measured(added, 3),
                target,
                Cell::Measured(slower?, 2),
            ]);
        }
        Ok(rows)
    }

    /// Whether it can be built.
    ///
    /// # Errors
    /// The missing part, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        match self.needs.filter(|header| !Path::new(header).exists()) {
            Some(header) => Err(format!("{header} isn't there")),
            None => Ok(()),
        }
    }

    /// The command that runs it, with a variable.
    pub fn run_of(&self, program: &Path, variable: Option<&str>) -> Words {
        let mut command: Words = variable.into_iter().map(Into::into).collect();
        command.extend(words([program.as_os_str()]));
        // Files among the arguments are the workspace's.
        let argument = |word: &&str| match word.contains('/') {
            true => workspace().join(word).into_os_string(),
            false => (*word).into(),
        };
        command.extend(self.arguments.iter().map(argument));
        command
    }

    /// Compiled with the prefix in a mode or with options, and linked with further objects.
    ///
    /// # Errors
    /// A compiler's own, as a sentence.
    pub fn built(
        &self,
        lab: &Lab,
        label: &str,
        mode: Option<&str>,
        options: &[&str],
        more: &[&Path],
    ) -> Result<PathBuf, String> {
        let vendored = lab.third_party()?;
        let includes: Vec<String> =
            self.includes.iter().map(|folder| format!("-I{}", vendored.join(folder).display())).collect();
        let options: Vec<&str> =
            options.iter().chain(self.options).copied().chain(includes.iter().map(String::as_str)).collect();
        let mut sources = vec![workspace().join(self.driver)];
        for pattern in self.sources {
            sources.extend(self.matching(&vendored.join(pattern))?);
        }
        let mut objects = vec![lab.compile(lab.compiler("gcc", None), "region.c", &[], "region.o")?];
        if !self.has_region {
            objects.push(lab.compile(lab.compiler("gcc", None), "whole.c", &[], "whole.o")?);
        }
        for (number, source) in sources.iter().enumerate() {
            let name = format!("real {} {label} {number}.o", self.name);
            objects.push(lab.compile(lab.compiler(self.compiler, mode), source, &options, &name)?);
        }
        let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).chain(more.iter().copied()).collect();
        let mut linked = vec!["-pthread", "-lm", "-ldl", "-lstdc++"];
        linked.extend((!self.has_region).then_some("-Wl,--wrap=main"));
        lab.link(lab.compiler(self.compiler, mode), &objects, &linked, &format!("real {} {label}", self.name))
    }

    fn with_funtrace(&self, lab: &Lab, folder: &Path) -> Result<PathBuf, String> {
        let part = |file: &str, object: &str| {
            lab.compile(lab.compiler("g++", None), folder.join(file), &["-w", "-fpermissive"], object)
        };
        let (runtime, hooks) = (part("funtrace.cpp", "funtrace.o")?, part("funtrace_pg.S", "funtrace-pg.o")?);
        self.built(lab, "funtrace", None, &HOOKED, &[&runtime, &hooks])
    }

    /// The files that a pattern stands for.
    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((begin, end)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
        let folder = pattern.parent().unwrap_or(pattern);
        let entries =
            fs::read_dir(folder).map_err(|error| format!("can't read {}: {error}", folder.display()))?;
        let is_wanted = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(begin)
                && name.ends_with(end)
                && !self.except.iter().any(|part| name.contains(part))
        };
        let mut found: Vec<PathBuf> =
            entries.filter_map(Result::ok).map(|entry| entry.path()).filter(is_wanted).collect();
        found.sort();
        Ok(found)
    }
}
