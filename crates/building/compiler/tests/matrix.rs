//! Every function has its hooks, in every mode and with every build flag that changes what a
//! compiler or linker does.
//!
//! By default a part of the matrix runs; all of it with `EVERYCALL_TEST_MATRIX=all` (about 20
//! minutes).

// A test may panic.
#![allow(clippy::disallowed_methods)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::image::{Image, is_thunk, whole};
use support::{CLANGS, Lab};

/// The default slice takes every n-th case; coprime to the length of each axis, so that each value of each comes up.
const SLICE: usize = 41;

const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
const FORMS: [&str; 5] = ["-pie", "-no-pie", "-static", "-static-pie", "-shared"];
const VARIANTS: [&str; 3] = ["", "-flto", "-ffunction-sections -fdata-sections"];
const LINKERS: [&str; 2] = ["bfd", "lld"];

#[derive(Debug, Clone)]
struct Case {
    c: String,
    cxx: String,
    mode: &'static str,
    level: &'static str,
    form: &'static str,
    variant: &'static str,
    linker: &'static str,
}

fn cases() -> Vec<Case> {
    let mut compilers = vec![("gcc".to_owned(), "g++".to_owned(), vec!["nops", "fentry", "finstrument"])];
    for version in CLANGS {
        let modes = vec!["xray", "finstrument", "after-inlining"];
        compilers.push((format!("clang-{version}"), format!("clang++-{version}"), modes));
    }
    let mut cases = Vec::new();
    for (c, cxx, modes) in compilers {
        for mode in modes {
            for level in LEVELS {
                for form in FORMS {
                    for variant in VARIANTS {
                        for linker in LINKERS {
                            let case =
                                Case { c: c.clone(), cxx: cxx.clone(), mode, level, form, variant, linker };
                            // lld can't read the objects of gcc's link-time optimisation; the prefix refuses it in xray.
                            let is_lto = variant == "-flto";
                            if !(is_lto && (mode == "xray" || c == "gcc" && linker == "lld")) {
                                cases.push(case);
                            }
                        }
                    }
                }
            }
        }
    }
    cases
}

#[test]
fn every_function_has_its_hooks() {
    let mut chosen = cases();
    if !support::env_is_set("EVERYCALL_TEST_MATRIX") {
        chosen = chosen.into_iter().step_by(SLICE).collect();
    }
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let lab = Lab::new();
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    lab.clear();
                    lab.take_programs();
                    let result = catch_unwind(AssertUnwindSafe(|| check(&lab, case)));
                    if let Err(cause) = result {
                        let cause = cause.downcast_ref::<String>().cloned().unwrap_or_default();
                        failures.lock().unwrap().push(format!("{case:?}\n{cause}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let shown = &failures[..failures.len().min(12)];
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), chosen.len(), shown.join("\n\n"));
}

fn check(lab: &Lab, case: &Case) {
    let Case { c, cxx, mode, level, form, variant, linker } = case;
    let (prefix, plain) = (format!("everycall cc --mode {mode} --"), String::new());
    let position = match *form {
        "-no-pie" => "-fno-pie",
        "-shared" => "-fPIC",
        _ => "-fPIE",
    };
    let compile = format!("{level} {position} {variant} -c");
    for (compiler, source) in [(c, "plain.c"), (cxx, "shapes.cpp"), (cxx, "main.cpp")] {
        lab.sh(&format!("{prefix} {compiler} {compile} {source}"));
    }
    let gc = if variant.starts_with("-ffunction-sections") { "-Wl,--gc-sections" } else { "" };
    let link = |prefix: &str, name: &str| {
        let flags = format!("{level} {variant} {gc} -fuse-ld={linker}");
        if *form == "-shared" {
            lab.sh(&format!("{prefix} {cxx} {flags} -shared plain.o shapes.o -o lib{name}.so"));
            lab.sh(&format!("{prefix} {cxx} {flags} main.o ./lib{name}.so -pthread -o {name}"));
        } else {
            lab.sh(&format!("{prefix} {cxx} {flags} {form} main.o plain.o shapes.o -pthread -o {name}"));
        }
    };
    link(&prefix, "traced");

    let files: &[&str] = if *form == "-shared" { &["traced", "libtraced.so"] } else { &["traced"] };
    let images: BTreeMap<_, _> =
        files.iter().map(|name| (*name, Image::read(&lab.work().join(name), mode))).collect();
    for (name, image) in &images {
        let complaints = image.complaints();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
        assert!(
            !image.functions.is_empty() && !image.is_stack_executable && !image.has_text_relocations,
            "{name}"
        );
        let is_dead_code_kept = image.functions.contains_key("t_dead_function");
        assert!(gc.is_empty() || *form == "-shared" || !is_dead_code_kept, "{name} keeps dead functions");
    }

    let printed = lab.ok(lab.command("./traced").env("ORACLE_OUT", "counts"));
    assert!(printed.ends_with("106 42400 42400\n"), "{printed}");
    check_counts(case, &String::from_utf8(lab.read("counts")).unwrap(), &images);

    // Objects with sites don't refer to our symbols.
    if matches!(*mode, "nops" | "xray") && *variant != "-flto" {
        link(&plain, "plain");
        assert_eq!(lab.sh("./plain"), printed);
    }
    assert!(!lab.names().contains("gmon.out"));
}

fn check_counts(case: &Case, counts: &str, images: &BTreeMap<&str, Image>) {
    let mut threads = BTreeSet::new();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in counts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        threads.insert(fields[0]);
        let address = u64::from_str_radix(fields[2], 16).unwrap();
        let image = images.get(fields[1]).unwrap_or_else(|| panic!("unknown module in {line}"));
        let Some(name) = image.function_at(address) else { continue };
        // gcc calls only the exit hook in thunks that it expands; mode nops drops those calls, mode fentry has them.
        if case.mode == "fentry" && is_thunk(name) {
            continue;
        }
        let sum = sums.entry(whole(name).to_owned()).or_default();
        sum.0 += fields[3].parse::<u64>().unwrap();
        sum.1 += fields[4].parse::<u64>().unwrap();
    }
    assert_eq!(threads.len(), 3, "the main thread and two others");
    for (name, (entries, exits)) in &sums {
        assert!(exits <= entries, "{name}: {entries} entries, {exits} exits");
    }
    let comdat = sums.iter().filter(|(name, _)| name.starts_with("_ZN2tt6comdatEi"));
    let comdat = comdat.fold((0, 0), |sum, (_, counts)| (sum.0 + counts.0, sum.1 + counts.1));
    assert_eq!(comdat, (400, 400), "each of 2 threads calls it 200 times");
}
