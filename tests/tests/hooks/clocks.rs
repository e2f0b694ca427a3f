//! Calendar time and ticks in every output: what a program reads from the system's clock and the time-stamp counter
//! around its calls encloses them.

use std::path::Path;
use std::process::Command;

use everycall_tests::{Mode, Place, everycall, successful};
use serde_json::Value;

/// Half an hour off, and no database of zones needed.
const ZONE: &str = "XYZ-05:30";

/// The program's own record of one call.
struct Call {
    number: usize,
    realtime_ns: (i128, i128),
    ticks: (u64, u64),
    utc: String,
    local: String,
}

fn calls(text: &str) -> Vec<Call> {
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        Call {
            number: words[0].parse().unwrap(),
            realtime_ns: (words[1].parse().unwrap(), words[2].parse().unwrap()),
            ticks: (words[3].parse().unwrap(), words[4].parse().unwrap()),
            utc: words[5].to_owned(),
            local: words[6].to_owned(),
        }
    };
    text.lines().map(call).collect()
}

fn run(file: &Path, words: &[&str]) -> String {
    successful(Command::new(everycall()).args(words).arg(file).env("TZ", ZONE))
}

fn objects(text: &str) -> Vec<Value> {
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|call| call["name"].as_str().is_some_and(|name| name.starts_with("work"))).collect()
}

fn number(value: &Value) -> i128 {
    value.as_u64().unwrap_or_else(|| panic!("{value}")).into()
}

#[test]
fn outputs_agree_with_the_programs_clock() {
    let place = Place::new("clocks");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "clocks.c"], "clocks");
    let file = place.path().join("clocks.ect");
    let mut command = Command::new(everycall());
    command.args(["record", "-q", "-o"]).arg(&file).arg("--").arg(&program).env("TZ", ZONE);
    let calls = calls(&successful(&mut command));
    assert_eq!(calls.len(), 100);

    let info: Value = serde_json::from_str(&run(&file, &["info", "--format", "json"])).unwrap();
    let accuracy = &info["clock"]["realtime"];
    let error =
        number(&accuracy["error_ns"]) + number(&accuracy["drift_ns"]) + number(&accuracy["set_by_ns"]);
    assert!(number(&accuracy["error_ns"]) > 0);
    let encloses = |call: &Call, start: i128, end: i128| {
        let (before, after) = call.realtime_ns;
        let number = call.number;
        assert!(before - error <= start, "{number}: {start} is {} ns too early", before - start);
        assert!(end <= after + error, "{number}: {end} is {} ns too late", end - after);
    };

    // JSON: calendar time, and the same as text.
    let wall = objects(&run(&file, &["replay", "--format", "json", "--clock", "wall"]));
    assert_eq!(wall.len(), calls.len());
    for (call, object) in calls.iter().zip(&wall) {
        let start = number(&object["start_realtime_ns"]);
        encloses(call, start, start + number(&object["dur_ns"]));
        let time = object["start_time"].as_str().unwrap();
        assert!(time.ends_with("+05:30"), "{time}");
    }
    // Text: local time of day.
    let text = run(&file, &["replay", "--clock", "wall"]);
    assert!(text.contains("calendar time from 20") && text.contains("(+05:30), exact to "), "{text}");
    let shown: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("work"))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let shown = shown.iter().map(|line| line.rsplit(' ').next().unwrap());
    let of_day = |text: &str| -> i128 {
        let (hours, rest) = text.split_once(':').unwrap();
        let (minutes, seconds) = rest.split_once(':').unwrap();
        let (seconds, places) = seconds.split_once('.').unwrap();
        let number = |text: &str| text.parse::<i128>().unwrap();
        ((number(hours) * 60 + number(minutes)) * 60 + number(seconds)) * 1_000_000_000 + number(places)
    };
    let day = 86_400_000_000_000;
    let mut count = 0;
    for (call, shown) in calls.iter().zip(shown) {
        let after = (of_day(shown) - of_day(&call.local) + error).rem_euclid(day);
        assert!(after <= call.realtime_ns.1 - call.realtime_ns.0 + 2 * error, "{shown}, {}", call.local);
        count += 1;
    }
    assert_eq!(count, calls.len());
    // CSV.
    let csv = run(&file, &["export", "-f", "csv", "--clock", "wall", "-o", "-"]);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().contains(",start_realtime_ns,duration_ns,"));
    let rows: Vec<Vec<&str>> =
        lines.filter(|line| line.contains(",work")).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), calls.len());
    for (call, row) in calls.iter().zip(rows) {
        let start: i128 = row[5].parse().unwrap();
        encloses(call, start, start + row[6].parse::<i128>().unwrap());
    }
    // Chrome JSON: relative to a beginning that is named.
    let chrome: Value =
        serde_json::from_str(&run(&file, &["export", "-f", "chrome", "--clock", "wall", "-o", "-"])).unwrap();
    let origin: i128 = chrome["otherData"]["start_realtime_ns"].as_str().unwrap().parse().unwrap();
    let first = wall[0]["start_realtime_ns"].as_u64().unwrap();
    assert!(origin <= i128::from(first) && origin + 10_000_000_000 > i128::from(first));
    // The slowest call.
    let slowest: Value = serde_json::from_str(&run(
        &file,
        &["report", "--slowest", "work", "--limit", "1", "--format", "json", "--clock", "wall"],
    ))
    .unwrap();
    let row = &slowest["rows"][0];
    let start = number(&row["start_realtime_ns"]);
    let call = calls.iter().min_by_key(|call| (call.realtime_ns.0 - start).abs()).unwrap();
    encloses(call, start, start + number(&row["dur_ns"]));
    assert!(row["start_time"].as_str().unwrap().ends_with("+05:30"));

    // Ticks, exactly; the same nanoseconds as without; and where the function is.
    let plain = objects(&run(&file, &["replay", "--format", "json"]));
    let raw = objects(&run(&file, &["replay", "--format", "json", "--clock", "raw"]));
    assert_eq!((plain.len(), raw.len()), (calls.len(), calls.len()));
    let nm = successful(Command::new("nm").arg("-S").arg(&program));
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let symbol: Vec<&str> = nm.lines().find(|line| line.ends_with(" work")).unwrap().split(' ').collect();
    let symbol = hex(symbol[0])..hex(symbol[0]) + hex(symbol[1]);
    for ((call, plain), raw) in calls.iter().zip(&plain).zip(&raw) {
        let (start, length) = (raw["start_ticks"].as_u64().unwrap(), raw["dur_ticks"].as_u64().unwrap());
        assert!(call.ticks.0 <= start && start + length <= call.ticks.1, "{}", call.number);
        for key in ["start_ns", "dur_ns", "name", "tid", "depth"] {
            assert_eq!(plain[key], raw[key], "{key}");
        }
        let address = hex(raw["address"].as_str().unwrap().strip_prefix("0x").unwrap());
        assert!(symbol.contains(&address), "{address:#x} {symbol:x?}");
    }
    let text = run(&file, &["replay", "--clock", "raw"]);
    assert!(text.contains(&raw[7]["start_ticks"].to_string()) && text.contains(" ticks"), "{text}");

    // Ranges: from between two calls to between two others.
    let between = |number: usize| (calls[number - 1].realtime_ns.1 + calls[number].realtime_ns.0) / 2;
    let second = 1_000_000_000;
    let utc = |ns: i128, call: &Call| {
        // The time between calls may lie in the next second.
        let seconds = ns / second - call.realtime_ns.0 / second;
        assert!((-1..=0).contains(&seconds));
        (seconds == 0).then(|| format!("{}.{:09}Z", &call.utc[..19], ns % second))
    };
    let within = (20..80).filter(|number| utc(between(*number), &calls[*number]).is_some());
    let within: Vec<usize> = within.collect();
    let (from, to) = (within[3], within[within.len() - 3]);
    let (since, until) = (utc(between(from), &calls[from]).unwrap(), utc(between(to), &calls[to]).unwrap());
    let local = |number: usize| {
        let ns = between(number);
        format!("{}.{:09}", &calls[number].local[..8], ns % second)
    };
    for (since, until) in [(since, until), (local(from), local(to))] {
        for clock in ["trace", "wall", "raw"] {
            let words =
                ["replay", "--format", "json", "--clock", clock, "--since", &since, "--until", &until];
            let found = objects(&run(&file, &words));
            assert_eq!(found.len(), to - from, "{since} {until} {clock}");
            assert_eq!(found[0]["start_ns"], plain[from]["start_ns"]);
        }
        let report = run(&file, &["report", "--format", "csv", "--since", &since, "--until", &until]);
        assert!(report.contains(&format!("{},", to - from)), "{report}");
    }

    // Times that formats can't hold, and words that are no time.
    let failed = |words: &[&str]| {
        let output = Command::new(everycall()).args(words).arg(&file).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(failed(&["export", "-f", "perfetto", "--clock", "raw", "-o", "-"]).contains("csv --clock raw"));
    assert!(failed(&["replay", "--since", "25:00:00"]).contains("2026-11-23T10:00:00.5Z"));
    assert!(failed(&["replay", "--since", "soon"]).contains("10:00:00.5"));
}

/// The calls of the program's functions, as `replay` has them.
fn lines(file: &Path) -> Vec<Value> {
    let text = run(file, &["replay", "--format", "json"]);
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|line| line["name"].is_string() && line["depth"].is_u64()).collect()
}

/// `record --clock`: what calls there were is exact, and durations are within what is said of them.
#[test]
fn events_without_times_have_bounds_that_hold() {
    let place = Place::new("clocks-bounded");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "bounded.c"], "bounded");
    let record = |clock: &str| {
        let file = place.path().join(format!("{clock}.ect"));
        let mut command = Command::new(everycall());
        command.args(["record", "-q", "--ring-size", "16M", "--clock", clock, "-o"]).arg(&file);
        let said = successful(command.arg("--").arg(&program));
        (file, said)
    };
    let (exact, _) = record("exact");
    let tree = |lines: &[Value]| -> Vec<(u64, String)> {
        lines.iter().map(|line| (line["depth"].as_u64().unwrap(), line["name"].to_string())).collect()
    };
    let exact_lines = lines(&exact);
    assert_eq!(exact_lines.len(), 200 * (1 + 40 * 3));
    for text in [
        run(&exact, &["replay"]),
        run(&exact, &["replay", "-f", "json"]),
        run(&exact, &["report", "-f", "json"]),
        run(&exact, &["info"]),
        run(&exact, &["export", "-f", "csv", "-o", "-"]),
    ] {
        assert!(!text.contains('\u{b1}') && !text.contains("_low") && !text.contains("times  "), "{text}");
    }
    for clock in ["bounded", "order"] {
        let (file, said) = record(clock);
        let info: Value = serde_json::from_str(&run(&file, &["info", "-f", "json"])).unwrap();
        assert_eq!(info["times"]["processes"][0]["wanted"], clock);
        let found = lines(&file);
        assert!(tree(&found) == tree(&exact_lines), "{clock}: other calls than with all times");
        if info["times"]["processes"][0]["clock"] == "exact" {
            // The C library is too old.
            continue;
        }
        assert_eq!(info["times"]["processes"][0]["clock"], clock);
        let events = |key: &str| info["times"]["events"][key].clone();
        let (all, without) = (events("events").as_u64().unwrap(), events("without_time"));
        assert_eq!(all, 2 * found.len() as u64);
        // Those of the first segment have times, as nothing is known of the functions then; also
        // those after each interruption.
        assert!(without["events"].as_u64().unwrap() * 4 > all, "{clock}: {without}");
        if clock == "bounded" {
            assert!(without["median_ns"].as_u64().unwrap() < 100_000, "{without}");
        }
        let per_second = info["clock"]["ticks_per_second"].as_u64().unwrap() as f64;
        let outer: Vec<&Value> = found.iter().filter(|line| line["name"] == "outer").collect();
        let told: Vec<Vec<u64>> = said
            .lines()
            .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
            .collect();
        assert_eq!((outer.len(), told.len()), (200, 200));
        for (call, told) in outer.into_iter().zip(told) {
            let ns = |from: usize, to: usize| (told[to] - told[from]) as f64 * 1e9 / per_second;
            let took = call["dur_ns"].as_f64().unwrap();
            let bound = |key: &str| call[key].as_f64().unwrap_or(took);
            let (low, high) = (bound("dur_low_ns"), bound("dur_high_ns"));
            assert!(low <= took && took <= high, "{call}");
            assert!(low <= ns(0, 3) * 1.001 + 20.0, "{call}: it took {} ns at most", ns(0, 3));
            assert!(high >= ns(1, 2) * 0.999 - 20.0, "{call}: it took {} ns at least", ns(1, 2));
        }
        // Of all calls, the same.
        let report: Value = serde_json::from_str(&run(&file, &["report", "-f", "json"])).unwrap();
        for row in report["rows"].as_array().unwrap() {
            let number = |key: &str| number(&row[key]);
            assert!(number("total_low_ns") <= number("total_ns"), "{row}");
            assert!(number("total_ns") <= number("total_high_ns"), "{row}");
            assert!(number("own_low_ns") <= number("own_ns"), "{row}");
            assert!(number("own_ns") <= number("own_high_ns"), "{row}");
        }
        assert!(run(&file, &["replay"]).contains('\u{b1}'), "{clock}");
        let csv = run(&file, &["export", "-f", "csv", "-o", "-"]);
        assert!(csv.lines().next().unwrap().ends_with(",duration_low,duration_high"), "{csv}");
    }
    let refused = Command::new(everycall())
        .args(["record", "--clock", "order", "--min-duration", "1us", "-o"])
        .arg(place.path().join("refused.ect"))
        .arg(&program)
        .output()
        .unwrap();
    let sentence = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{sentence}");
    assert!(sentence.contains("leave out one of the two") && sentence.lines().count() == 1, "{sentence}");
}
