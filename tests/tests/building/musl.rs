//! Programs of another C library, musl, which doesn't run `.preinit_array`: their calls are counted
//! and recorded from the first initialiser of a library on, and what they allocate is counted.

use std::path::{Path, PathBuf};

use everycall_tests::{Place, everycall, successful};
use serde_json::Value;

const LIBRARY: &str = "__attribute__((noinline)) void in_library(void) { __asm__ volatile(\"\"); }
__attribute__((noinline)) void early(void) { __asm__ volatile(\"\"); }
__attribute__((constructor)) static void construct(void) { early(); }
";
const PROGRAM: &str = "#include <pthread.h>
#include <stdlib.h>
void in_library(void);
__attribute__((noinline)) void *allocate(void)
{
    void *block = malloc(100);
    __asm__ volatile(\"\" : \"+r\"(block));
    in_library();
    return block;
}
static void *work(void *unused)
{
    for (int i = 0; i < 1000; i++) free(allocate());
    return unused;
}
int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, work, 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
";

/// Built with musl (Debian's musl-tools): linked dynamically, and statically.
fn built(place: &Place) -> (PathBuf, PathBuf) {
    let (library, program) = (place.write("library.c", LIBRARY), place.write("program.c", PROGRAM));
    let build = |arguments: &[&str], sources: &[&Path], output: &str| {
        let mut command = place.command(everycall());
        command.args(["cc", "--", "musl-gcc", "-O1", "-g", "-Wl,--build-id"]).args(arguments).args(sources);
        successful(command.arg("-o").arg(place.file(output)));
        place.file(output)
    };
    let shared = build(&["-shared", "-fPIC"], &[&library], "libearly.so");
    let dynamic = build(&[], &[&program, &shared], "dynamic");
    let fixed = build(&["-static"], &[&program, &library], "static");
    (dynamic, fixed)
}

fn rows(json: &str) -> Vec<Value> {
    let table: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    table["rows"].as_array().expect("rows").clone()
}

/// A number of a function.
fn number(rows: &[Value], function: &str, name: &str) -> u64 {
    let row = rows.iter().find(|row| row["name"] == function);
    row.unwrap_or_else(|| panic!("{function}: {rows:#?}"))[name].as_u64().expect("a number")
}

const CALLS: [(&str, u64); 6] =
    [("main", 1), ("work", 2), ("allocate", 2000), ("in_library", 2000), ("construct", 1), ("early", 1)];

#[test]
fn calls_are_counted_and_recorded() {
    let place = Place::new("musl");
    let (dynamic, fixed) = built(&place);
    for program in [&dynamic, &fixed] {
        for options in [&[][..], &["--time"]] {
            let mut command = place.command(everycall());
            command.args(["count", "-f", "json"]).args(options).arg("--").arg(program);
            let counted = rows(&successful(&mut command));
            for (function, calls) in CALLS {
                assert_eq!(number(&counted, function, "calls"), calls, "{options:?}");
            }
        }
        let mut command = place.command(everycall());
        successful(command.args(["record", "-q", "-o", "musl.ect", "--"]).arg(program));
        let recorded =
            rows(&successful(place.command(everycall()).args(["report", "-f", "json", "musl.ect"])));
        for (function, calls) in CALLS {
            assert_eq!(number(&recorded, function, "calls"), calls);
            assert_eq!(number(&recorded, function, "all_calls"), calls);
        }
    }
}

#[test]
fn memory_is_counted() {
    let place = Place::new("musl-memory");
    let (dynamic, _) = built(&place);
    let mut command = place.command(everycall());
    command.args(["count", "--memory", "-f", "json", "--"]).arg(&dynamic);
    let counted = rows(&successful(&mut command));
    assert_eq!(number(&counted, "allocate", "own_allocated_blocks"), 2000);
    assert_eq!(number(&counted, "work", "own_freed_blocks"), 2000);
    let [allocated, freed] =
        [number(&counted, "allocate", "own_allocated_bytes"), number(&counted, "work", "own_freed_bytes")];
    assert!(allocated == freed && (200_000..600_000).contains(&allocated), "{allocated} {freed}");
}
