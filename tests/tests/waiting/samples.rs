//! `record --samples`: what the own time of functions went into. Samples are a share, not a
//! measure: what takes nearly all of a function's processor time has most of its samples.

use std::path::{Path, PathBuf};
use std::process::Command;

use everycall_tests::viewer::Viewer;
use everycall_tests::{Mode, Place, everycall, programs, successful, wait};
use serde_json::Value;

/// Builds the library without hooks, unwind information only, and the program with hooks.
fn build(place: &Place) -> PathBuf {
    let library = place.file("libsampled.so");
    let source = programs().join("sampled_library.c");
    successful(
        Command::new("gcc")
            .args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source),
    );
    let rpath = format!("-Wl,-rpath,{}", place.path().display());
    let library = library.to_str().unwrap();
    place.build(Mode::GCC_NOPS, &["-O2", "-g", "sampled.c", library, &rpath], "sampled")
}

fn json(verb: &[&str], file: &Path) -> Value {
    let text = successful(Command::new(everycall()).args(verb).arg(file));
    serde_json::from_str(&text).unwrap()
}

/// The share of a function's samples whose place passes.
#[track_caller]
fn share(report: &Value, function: &str, passes: impl Fn(&Value) -> bool) -> f64 {
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == function).unwrap();
    let places = row["own_samples"].as_array().unwrap();
    let sum = |places: &mut dyn Iterator<Item = &Value>| -> f64 {
        places.map(|place| place["samples"].as_f64().unwrap()).sum()
    };
    let all = sum(&mut places.iter());
    assert!(all > 0.0, "{row}");
    sum(&mut places.iter().filter(|place| passes(place))) / all
}

#[test]
fn own_time_has_names() {
    let place = Place::new("samples");
    let program = build(&place);
    let file = place.record(&["--samples"], &program, &["300"]).file;
    let samples = json(&["info", "--format", "json"], &file)["samples"].clone();
    if samples["rate"] == 0 {
        // A sandbox: the reason is what the file is about.
        assert!(!samples["text"].as_str().unwrap().is_empty(), "{samples}");
        return;
    }
    let report = json(&["report", "--format", "json"], &file);
    let of_library = |place: &Value| place["name"] == "rounds_of" && place["called"] == "digest";
    let in_library = share(&report, "parse", of_library);
    assert!(in_library > 0.6, "{in_library}: {report:#}");
    let inlined = share(&report, "inlines", |place| place["name"] == "mixes" && place["inlined"] == true);
    assert!(inlined > 0.6, "{inlined}: {report:#}");
    if samples["kernel"] == true {
        let in_kernel = share(&report, "faults", |place| place["module"] == "kernel");
        assert!(in_kernel > 0.5, "{in_kernel}: {report:#}");
        let by_fault = share(&report, "faults", |place| place["name"] == "page faults");
        assert!(by_fault > 0.2, "{by_fault}: {report:#}");
    }
    let text = successful(Command::new(everycall()).args(["report", "--width", "200"]).arg(&file));
    let line = text.lines().skip_while(|line| !line.ends_with("  parse")).nth(1).unwrap();
    assert!(line.contains(" % rounds_of (libsampled.so)"), "{text}");
    // A query counts what the report counts.
    let of_parse = report["rows"].as_array().unwrap().iter().find(|row| row["name"] == "parse").unwrap();
    let counted: u64 = of_parse["own_samples"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|place| place["name"] == "rounds_of")
        .map(|place| place["samples"].as_u64().unwrap())
        .sum();
    let query = "select count(*) from samples where function = 'parse' and place like 'rounds_of%' \
                 and stack like 'rounds_of;%parse;main%'";
    let found = successful(Command::new(everycall()).args(["sql", "-f", "csv"]).arg(&file).arg(query));
    assert_eq!(found.lines().nth(1), Some(&counted.to_string()[..]), "{found}");

    // So do the page about one call, and the viewer.
    let why = json(&["why", "--function", "parse", "--format", "json"], &file);
    let in_why = |name: &str| -> u64 {
        let of_parse = why["samples"].as_array().unwrap().iter().find(|of| of["name"] == "parse").unwrap();
        let places = of_parse["places"].as_array().unwrap().iter();
        places.filter(|of| of["place"] == name).map(|of| of["samples"].as_u64().unwrap()).sum()
    };
    assert_eq!(in_why("rounds_of (libsampled.so)"), counted, "{why:#}");
    let viewer = Viewer::start(&[file.to_str().unwrap()]);
    let mut trace = Value::Null;
    wait::until("the viewer to have read the file", || {
        trace = viewer.get("trace");
        trace["complete"] == true
    });
    let track = &trace["processes"][0]["tracks"][0];
    assert_eq!(track["has_samples"], true, "{trace:#}");
    let call = &why["call"];
    let (at, depth) = (call["start_ns"].as_u64().unwrap(), call["depth"].as_u64().unwrap());
    let slice = viewer.get(&format!("slice?track={}&at={at}&depth={depth}", track["id"]));
    let of_slice = slice["samples"].as_array().unwrap().iter();
    let of_slice: Vec<_> = of_slice.filter(|of| of[0] == "rounds_of (libsampled.so)").collect();
    assert_eq!(of_slice.iter().map(|of| of[1].as_u64().unwrap()).sum::<u64>(), counted, "{slice:#}");
    let window = format!("samples?tracks={}&from={at}&to={}&pixels=1", track["id"], call["end_ns"]);
    let runs = viewer.get(&window);
    let in_parse =
        runs.as_array().unwrap().iter().filter(|run| run["depth"] == depth + 1).collect::<Vec<_>>();
    assert!(in_parse.len() <= 2 && in_parse[0]["text"] == "rounds_of (libsampled.so)", "{runs:#}");
}
