//! `record --args` and `--results`: what is shown of calls, against what the program prints itself.

use everycall_tests::{Mode, Place, everycall, successful};

/// Prints each of its calls as `replay` shows it.
const PROGRAM: &str = r#"
#include <cstdio>
#include <dlfcn.h>
#include <string>
enum Mode { READ = 1, WRITE = 2 };
struct Request { const char *method; int sizes[3]; double weight; Mode mode; };
[[gnu::noinline]] long handle(const std::string &path, const Request *request, unsigned char level, float part) {
    asm volatile("" ::: "memory");
    return static_cast<long>(path.size()) * request->sizes[1] - level - (part > 0);
}
[[gnu::noinline]] bool is_even(long long number) { asm volatile("" ::: "memory"); return number % 2 == 0; }
[[gnu::noinline]] void throws(int number) { if (number == 3) throw number; asm volatile("" ::: "memory"); }
int main(int, char **arguments) {
    Request request = {"GET", {1, 2, 3}, 0.5, READ};
    for (int i = 0; i < 6; i++) {
        std::string path = "/item/" + std::to_string(i) + std::string(i * 8, 'x');
        request.method = i % 2 ? "POST" : "GET";
        request.mode = i % 2 ? WRITE : READ;
        long result = handle(path, &request, i, i * 0.25f);
        printf("handle(path=\"%s\", request->method=\"%s\", request->sizes[1]=2, request->mode=%s, level=%d, part=%s) = %ld\n",
               path.c_str(), request.method, i % 2 ? "WRITE" : "READ", i, (const char *[]){"0.0", "0.25", "0.5", "0.75", "1.0", "1.25"}[i], result);
        long long number = (1LL << 40) * -i + i;
        bool even = is_even(number);
        printf("is_even(number=%lld) = %s\n", number, even ? "true" : "false");
        try { throws(i); } catch (int) {}
        printf("throws(number=%d)\n", i);
    }
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    auto plugged = reinterpret_cast<int (*)(const char *)>(dlsym(plugin, "plugged"));
    printf("plugged(text=\"from the program\") = %d\n", plugged("from the program"));
}
"#;
const PLUGIN: &str = "__attribute__((noinline)) int plugged(const char *text) { return text[0]; }\n";

/// The calls in the output of `replay`, without times.
fn shown(replayed: &str) -> Vec<String> {
    let lines = replayed.lines().filter_map(|line| line.trim_start().split_once(" ms "));
    let calls = lines.map(|(_, call)| call.trim());
    let calls = calls.filter(|call| {
        ["handle(", "is_even(", "throws(", "plugged("].iter().any(|name| call.starts_with(name))
    });
    // Behind two spaces is the duration; a call with something in it ends by a brace.
    let call =
        |call: &str| call.rsplit_once("  ").map_or(call, |(call, _)| call).trim_end_matches(" {").to_owned();
    calls.map(call).collect()
}

#[test]
fn values_are_those_of_the_program() {
    let place = Place::new("arguments");
    place.write("arguments.cpp", PROGRAM);
    place.write("plugin.c", PLUGIN);
    place.build(Mode::GCC_NOPS, &["-O1", "-g", "-shared", "-fPIC", "plugin.c"], "plugin.so");
    let program = place.build(Mode::GCC_NOPS, &["-O2", "-g", "arguments.cpp"], "arguments");
    let wanted = [
        "--args",
        "handle(path, request->method, request->sizes[1], request->mode, level, part)",
        "--results",
        "handle",
        "--args",
        "is_even",
        "--results",
        "is_even",
        "--args",
        "throws",
        "--args",
        "plugged",
        "--results",
        "plugged",
    ];
    let recording = place.record(&wanted, &program, &["./plugin.so"]);
    let printed = recording.stdout();
    let mut expected: Vec<String> = printed.lines().map(str::to_owned).collect();
    // Texts are copied up to 64 bytes, as all of these are shorter.
    assert_eq!(expected.len(), 19, "{printed}");
    let replay = |options: &[&str]| {
        let file = recording.file.to_str().unwrap();
        successful(place.command(everycall()).arg("replay").args(options).arg(file))
    };
    let replayed = replay(&[]);
    assert_eq!(shown(&replayed), expected, "{replayed}");
    // Conditions.
    let posts = replay(&["--where", "request->method == \"POST\" and level > 1"]);
    expected.retain(|call| call.contains("POST") && !call.contains("level=1"));
    assert_eq!(shown(&posts), expected);
    assert_eq!(shown(&replay(&["--where", "returned == false"])).len(), 3);
    assert_eq!(shown(&replay(&["--where", "request.mode == WRITE"])).len(), 3);
    // A table by value, and SQL.
    let file = recording.file.to_str().unwrap();
    let report = ["report", "--by", "handle(request->method)", "--format", "csv", file];
    let table = successful(place.command(everycall()).args(report));
    let groups: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(groups.len(), 2, "{table}");
    let query = "select sum(arguments ->> 'level'), count(result) from slices where arguments is not null";
    let sums = successful(place.command(everycall()).args(["sql", "--format", "csv", file, query]));
    assert!(sums.lines().nth(1).is_some_and(|line| line == "15,14"), "{sums}");
}

#[test]
fn mistakes_end_before_the_program_starts() {
    let place = Place::new("arguments-wrong");
    let program = place.build(Mode::GCC_NOPS, &["-O1", "-g", "values.c"], "values");
    for (option, value, said) in [
        ("--args", "nothing_such", "matches no function"),
        ("--args", "main(cuont)", "there is no parameter `cuont`"),
        ("--args", "main@arg1/i32", "uftrace"),
        ("--args", "main(", "main("),
        ("--results", "", ""),
        ("--results", "main(count)", "`count` isn't known any more when the function returns"),
        ("--results", "main(arg1:int)", "`arg1` isn't known any more when the function returns"),
    ] {
        let mut command = place.command(everycall());
        let output = command.args(["record", "-o", "no.ect", option, value]).arg(&program).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{value}: {message}");
        assert!(message.contains(said), "{value}: {message}");
        assert!(output.stdout.is_empty(), "{value}: the program ran");
        assert!(!place.file("no.ect").exists(), "{value}");
    }
}
