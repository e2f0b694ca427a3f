//! Commands that aren't run as written: placeholders, commands that need preparations, and those
//! that can't be run here.

/// Placeholders of the documents and their values in the test: names of variables that are set for
/// each command.
pub const PLACEHOLDERS: [(&str, &str); 9] = [
    ("PID", "$SERVER"),
    ("CORE", "core.1234"),
    ("FILE", "$CRASH_FILE"),
    ("FOLDER", "my-crashes"),
    ("DIR", "integration"),
    ("F", "handle_request"),
    ("1234", "$SERVER"),
    ("/var/tmp/my-crashes", "my-crashes"),
    ("/var/tmp/my-crashes/server-1234.arena", "$CRASH_FILE"),
];

/// How a command is run.
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// By this line of shell, which contains the command as far as possible.
    So(&'static str),
    /// It can't be: why.
    Not(&'static str),
}

use Run::{Not, So};

const SUITE: &str = "the test suite itself, or a part of it";
const RUST: &str = "as the command above with other options; tested by `rust`";
const ATTACHED: &str = "needs Python 3.14; tested in python_attach.rs";
const INTEL_PT: &str = "needs a CPU with Intel PT; made-up files are imported by imports.rs";
const ARM: &str = "needs a cross-compiler and QEMU; tested by `trees`";
const LONG: &str = "takes too long for a test";
const ANSWERS: &str = "needs programs of other packages; run by answers.rs";
pub const STARTS_A_SERVER: &str = "rm -f called; ./server & server=$!; until [ -e called ]; do sleep 0.1; done; kill -USR2 $server; \
     until ls server-$server-*.ect; do sleep 0.1; done; kill $server";

/// By the text of the document.
pub const TABLE: &[(&str, Run)] = &[
    (
        "everycall cc --not 'luaD_hook*' --not rethook --not 'luaD_p*call' --not 'pre*' --not 'luaG_trace*' -- gcc -O2 -c ldo.c",
        So(
            "echo 'int rethook(int x) { return x; } int luaD_throw(int x) { return x; }' > ldo.c && everycall cc --not 'luaD_hook*' --not rethook --not 'luaD_p*call' --not 'pre*' --not 'luaG_trace*' -- gcc -O2 -c ldo.c",
        ),
    ),
    (
        "everycall record --only '*Command' --args 'getCommand(key = arg1:ptr[10][1][1]:str)' -o redis.ect -- redis-server",
        Not(ANSWERS),
    ),
    ("everycall report --tails --by 'getCommand(key)' redis.ect", Not(ANSWERS)),
    (
        "everycall record --only 'ngx_http_*' --only ngx_open_cached_file --args 'ngx_open_cached_file(path = arg2:ptr[1]:str)' -o nginx.ect -- nginx -g 'daemon off; master_process off;'",
        Not(ANSWERS),
    ),
    ("everycall report --by 'ngx_open_cached_file(path)' nginx.ect", Not(ANSWERS)),
    (
        "everycall record --modules 'libsqlite3*' --only sqlite3_prepare_v2 --args 'sqlite3_prepare_v2(sql = arg2:str)' --args-text 200 -o sql.ect -- sqlite3 app.db '.read queries.sql'",
        Not(ANSWERS),
    ),
    ("everycall report --by 'sqlite3_prepare_v2(sql)' sql.ect", Not(ANSWERS)),
    ("everycall record --args '*respond(path)' -o routes.ect -- ./routes", Not(ANSWERS)),
    ("everycall report --by '*respond(path)' routes.ect", Not(ANSWERS)),
    // In a folder of their own: some of them write files beside the script.
    ("python3 -m pip install ./python", Not("needs pip; the package's own setup.py is run by `python`")),
    (
        "python3 -m everycall app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall app.py && everycall replay app.ect | grep -q handle",
        ),
    ),
    (
        "python3 -m everycall app.py ARGUMENTS",
        So("mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall app.py a b"),
    ),
    (
        "python3 -m everycall -m package",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall -m package && everycall info package.ect",
        ),
    ),
    (
        "python3 -m everycall -c 'print(1)'",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall -c 'print(1)' && everycall info python.ect",
        ),
    ),
    (
        "python3 -m everycall -o t.ect --stream app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall -o t.ect --stream -- app.py && everycall info t.ect",
        ),
    ),
    ("cargo build --release -p everycall", Not("builds everycall itself")),
    ("python3 -m pip wheel --no-deps ./python", Not("needs pip; tested in python_wheel.rs")),
    ("%%everycall -o handled.ect c-functions gc", Not("a magic of IPython; tested in python_wheel.rs")),
    (
        "EVERYCALL_PYTHON=1,c-functions,gc",
        So(
            "EVERYCALL_PYTHON=1,c-functions,gc everycall record -o t.ect --preload -- python3 app.py && everycall replay t.ect | grep -q builtins.",
        ),
    ),
    (
        "--events import",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --events import app.py && everycall replay app.ect | grep -q ' import '",
        ),
    ),
    (
        "--events import,gc",
        So("mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --events import,gc app.py"),
    ),
    (
        "python3 -m everycall --c-functions app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --c-functions app.py && everycall replay app.ect | grep -q builtins.",
        ),
    ),
    (
        "python3 -m everycall --trigger 'app.handle > 20ms' app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --trigger 'app.handle > 20ms' app.py 2>&1 | grep -q 'app.handle > 20ms: '",
        ),
    ),
    (
        "python3 -m everycall --count app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --count --limit 0 app.py | grep -q handle",
        ),
    ),
    (
        "python3 -m everycall --count --only 'app.*' app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --count --only 'app.*' app.py 2>&1 | grep -q handle",
        ),
    ),
    (
        "python3 -m everycall --memory app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --memory app.py | grep -q own-allocated",
        ),
    ),
    (
        "python3 -m everycall --selected app.py",
        So("mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --selected app.py"),
    ),
    (
        "python3 -m everycall --max-depth 10 app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --max-depth 10 app.py && everycall replay app.ect | grep -q handle",
        ),
    ),
    (
        "python3 -m everycall --only 'app.*' app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --only 'app.*' app.py && everycall replay app.ect | grep -q handle",
        ),
    ),
    ("python3.14 -m everycall detach PID", Not(ATTACHED)),
    ("--only 'app.*'", Not(ATTACHED)),
    ("--not PATTERN", Not(ATTACHED)),
    ("--trigger 'app.handle > 20ms'", Not(ATTACHED)),
    ("--ring-size 8M", Not(ATTACHED)),
    ("--events LIST", Not(ATTACHED)),
    ("everycall trigger PID 'app.handle > 20ms'", Not("tested in python_chosen.rs")),
    ("everycall trace PID 'app.*' --for 10s", Not("tested in python_chosen.rs")),
    ("everycall disable PID 'json.*'", Not("tested in python_chosen.rs")),
    (
        "everycall record --trigger 'Account.withdraw > 20ms' -- ./app",
        Not("a made-up interpreter; tested in frames.rs"),
    ),
    ("everycall record --only 'bank.*' -- ./app", Not("a made-up interpreter; tested in frames.rs")),
    (
        "python3 -m everycall --arguments app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --arguments app.py && everycall replay app.ect | grep -q '> returned None'",
        ),
    ),
    (
        "python3 -m everycall --events all app.py",
        So(
            "mkdir -p apart && cp app.py apart && cd apart && python3 -m everycall --events all app.py && everycall replay app.ect | grep -q ' import '",
        ),
    ),
    ("everycall record --preload -- python3 app.py", So("everycall record --preload -- python3 app.py")),
    (
        "everycall record --preload -- python3 ...",
        So(
            "EVERYCALL_PYTHON=1 everycall record -o t.ect --preload -- python3 app.py && everycall replay t.ect | grep -q handle",
        ),
    ),
    // Its drawing is tested in live_table.rs and in crates/showing/tui.
    (
        "everycall tui app.ect",
        So("printf q | script -qec 'everycall tui app.ect' /dev/null | grep -q '1 timeline'"),
    ),
    // The page is tested in view.rs and in crates/showing/view.
    (
        "everycall view app.ect",
        So(
            "BROWSER=true everycall view app.ect > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall view",
        So(
            "everycall view --no-browser app.ect > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall view old.ect new.ect",
        So(
            "everycall view --no-browser app.ect app.ect > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall view PID",
        So(
            "everycall view --no-browser $SERVER > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    // Just after the program's end, other signals are taken for the program's.
    (
        "everycall view --live -- ./app",
        So(
            "everycall view --no-browser --live -- ./app args > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill -9 $view",
        ),
    ),
    (
        "--live -- ./app",
        So(
            "everycall view --no-browser --live -- ./app args > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill -9 $view",
        ),
    ),
    (
        "--keep SIZE",
        So(
            "everycall view --no-browser --keep 4M $SERVER > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall view --frame Tick app.ect",
        So(
            "everycall view --no-browser --frame Tick app.ect > url.txt & view=$!; until grep -q frame=Tick url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall view PID --no-browser --port 7777",
        So(
            "everycall view --no-browser $SERVER > url.txt & view=$!; until grep -q 127.0.0.1 url.txt; do sleep 0.1; done; kill $view",
        ),
    ),
    (
        "everycall import -o app.ect uftrace.data",
        So("everycall import -q -o import.ect uftrace.data && everycall replay import.ect | grep -q fib"),
    ),
    (
        "everycall import --binary ./app xray-log.app.Xw6bA1",
        So(
            "everycall import -o import.ect xray-log.app.Xw6bA1 && everycall replay import.ect | grep -q 'function 2'",
        ),
    ),
    ("perf record -e intel_pt//u -- ./app", Not(INTEL_PT)),
    ("everycall import -o app.ect perf.data", Not(INTEL_PT)),
    ("everycall import perf.data", Not(INTEL_PT)),
    ("cargo run --release -p everycall-import --example pt_sample FOLDER 3 60000000", Not(LONG)),
    (
        "cargo run --release -p everycall-intel-pt --example decode FOLDER/raw.pt FOLDER/code.bin 555555551000",
        Not(LONG),
    ),
    (
        "everycall import -o app.ect funtrace.raw",
        So(
            "everycall import -q -o import.ect funtrace.raw && everycall info import.ect | grep -q '^imported '",
        ),
    ),
    (
        "unshare --mount-proc -p -f everycall record -- ./app",
        So(
            "! unshare --mount-proc -p -f true || { unshare --mount-proc -p -f everycall record -q -o in.ect -- ./app && everycall replay in.ect | grep -q handle; }",
        ),
    ),
    ("record --states", So("everycall record -q --states -o app.ect -- ./app args")),
    (
        "--sort allocated",
        So(
            "everycall count --memory -o memory.ect -- ./server 10 && everycall report --sort allocated memory.ect",
        ),
    ),
    (
        "report --sort own-allocated --diff old.ect new.ect",
        So(
            "for run in before after; do everycall count --memory -o $run.ect -- ./server 10 || exit 1; done; everycall report --sort own-allocated --diff before.ect after.ect",
        ),
    ),
    (
        "--fail-if 'allocated(handle) > 1M'",
        So(
            "everycall count --memory -o memory.ect -- ./server 10 && everycall report --fail-if 'allocated(handle_request) > 1G' memory.ect",
        ),
    ),
    ("report --never", So("everycall report --never old.ect")),
    (
        "everycall trace PID 'parse_*' --counts --for 10s -o parse.ect",
        So("everycall trace $SERVER 'handle*' --counts --for 1s -o parse.ect && everycall report parse.ect"),
    ),
    (
        "everycall trace PID 'parse_*' --for 10s -o parse.ect",
        So("everycall trace $SERVER 'handle*' --for 1s -o parse.ect && everycall info parse.ect"),
    ),
    (
        "everycall report --by 'handle_request(call_site)' sites.ect",
        So(
            "everycall record --embed --call-sites=handle_request -q -o sites.ect -- ./app args && everycall report --by 'handle_request(call_site)' sites.ect | grep -q app.cpp:",
        ),
    ),
    (
        "everycall report --callers handle_request sites.ect",
        So(
            "everycall record --embed --call-sites=handle_request -q -o sites.ect -- ./app args && everycall report --callers handle_request sites.ect | grep -q 'at app.cpp:5'",
        ),
    ),
    (
        "everycall trigger PID 'handle_request entered if id % 100 == 7' --for 2s -o slow.ect",
        So(
            "everycall trigger $SERVER 'handle_request entered if id % 100 == 7' --for 1s -o slow.ect && everycall info slow.ect",
        ),
    ),
    (
        "everycall replay --where 'call_site == \"app.cpp:5\"' sites.ect",
        So(
            "everycall record --call-sites=handle_request -q -o sites.ect -- ./app args && everycall replay --where 'call_site == \"app.cpp:5\"' sites.ect | grep -q 'handle_request(int) at app.cpp:5'",
        ),
    ),
    (
        "everycall resolve --args handle_request -o server.eca ./server",
        So("everycall resolve --args handle_request -o server.eca ./server"),
    ),
    (
        "EVERYCALL_ARGS=server.eca ./server",
        So(
            "everycall resolve -q --args handle_request -o server.eca ./server && EVERYCALL_ARGS=$PWD/server.eca ./server 100",
        ),
    ),
    (
        "everycall trace PID --args 'handle(path)' --for 10s -o FILE",
        So(
            "everycall trace $SERVER --args 'handle_request(id)' --for 1s -o traced.ect && everycall info traced.ect",
        ),
    ),
    (
        "everycall trace PID PATTERN... --counts --for 10s -o FILE",
        So(
            "everycall trace $SERVER 'handle*' --counts --for 1s -o traced.ect && everycall report traced.ect",
        ),
    ),
    (
        "echo 'select count(*) as calls from slices' > query.sql",
        So("echo 'select count(*) as calls from slices' > query.sql"),
    ),
    (
        "everycall sql app.ect @query.sql",
        So(
            "echo 'select count(*) as calls from slices' > query.sql; everycall sql app.ect @query.sql | grep -q calls",
        ),
    ),
    (
        "everycall sql -f json app.ect - < query.sql",
        So(
            "echo 'select count(*) as calls from slices' > query.sql; everycall sql -f json app.ect - < query.sql | grep -q calls",
        ),
    ),
    ("everycall sql", So("everycall sql app.ect 'select function from functions' | grep -q handle_request")),
    (
        "everycall sql app.ect 'select ...'",
        So("everycall sql app.ect 'select count(*) as calls from slices' | grep -q calls"),
    ),
    ("mkdir -p fleet", So("mkdir -p fleet")),
    ("everycall export -f FORMAT app.ect", So("everycall export -f folded app.ect")),
    (
        "everycall export -f folded -o - app.ect | inferno-flamegraph --countname ns > flame.svg",
        So("everycall export -f folded -o - app.ect | grep -q ';handle_request'"),
    ),
    ("cargo install inferno", Not("a tool of others")),
    (
        "everycall embed",
        So("everycall embed -q app.ect && everycall info app.ect | grep -q 'its symbols are in the file'"),
    ),
    (
        "record --embed",
        So("everycall record --embed -q -o st.ect -- ./app && everycall info st.ect | grep -q 'its symbols'"),
    ),
    (
        "everycall record --with-output",
        So(
            "everycall record --with-output -q -o st.ect -- ./app && everycall replay st.ect | grep -q handle",
        ),
    ),
    ("record --args", So("everycall record --args handle_request -q -o args.ect -- ./app args")),
    ("--args connect", Not("needs a C library that was built with the prefix; tested by `values`")),
    (
        "report --callers",
        So(
            "everycall record --call-sites=handle_request -q -o sites.ect -- ./app args && everycall report --callers handle_request sites.ect",
        ),
    ),
    ("cargo install", Not("what a user of the crate would run")),
    ("--call-graph dwarf", Not("perf's option: why it shows nothing there")),
    ("--results FUNCTION", So("everycall record --results main -q -o results.ect -- ./app args")),
    (
        "--results 'save(returned, errno)'",
        So("everycall record --results 'main(returned, errno)' -q -o results.ect -- ./app args"),
    ),
    ("--results open", Not("needs a C library that was built with the prefix, or its debug information")),
    ("--where 'errno == ENOENT'", Not("needs calls of the C library that fail")),
    ("--where 'threw == \"std::out_of_range\"'", Not("needs calls that throw")),
    ("report --by 'handle(threw)'", Not("needs calls that throw")),
    (
        "--args-text 200",
        So("everycall record --args-text 200 --args handle_request -q -o args.ect -- ./app args"),
    ),
    (
        "--where CONDITION",
        So(
            "everycall record --args handle_request -q -o where.ect -- ./app args && everycall replay --where 'id == 7' where.ect | grep -q 'id=7'",
        ),
    ),
    ("--where 'not (x == 1)'", So("everycall replay --where 'not (x == 1)' app.ect")),
    ("--log FILE", So("everycall record --log app.log -q -o st.ect -- ./app")),
    ("--log app.log", So("everycall record --log app.log -q -o st.ect -- ./app")),
    (
        "everycall record --states",
        So("everycall record --states -q -o st.ect -- ./app && everycall info st.ect | grep -q '^states '"),
    ),
    (
        "everycall record --states ./app",
        So("everycall record --states -q -o st.ect -- ./app && everycall replay st.ect | grep -q handle"),
    ),
    (
        "everycall record --samples",
        So("everycall record --samples -q -o st.ect -- ./app && everycall info st.ect | grep -q '^samples '"),
    ),
    (
        "everycall record --counters",
        So(
            "everycall record --counters -q -o st.ect -- ./app && everycall info st.ect | grep -q '^Counters of'",
        ),
    ),
    (
        "record --counters",
        So(
            "everycall record --counters -q -o st.ect -- ./app && everycall info st.ect | grep -q '^Counters of'",
        ),
    ),
    (
        "everycall record --waits",
        So("everycall record --waits -q -o st.ect -- ./app && everycall replay st.ect | grep -q handle"),
    ),
    (
        "record --waits",
        So("everycall record --waits -q -o st.ect -- ./app && everycall replay st.ect | grep -q handle"),
    ),
    (
        "--trigger 'pthread_mutex_lock > 5ms'",
        So("everycall record --waits --trigger 'pthread_mutex_lock > 5ms' -q -o st.ect -- ./app"),
    ),
    // Their effects are tested in states.rs: they need root, and change the machine.
    (
        "sudo everycall setup-tracefs --user alice",
        So("everycall setup-tracefs --user 'no user' 2>&1 | grep -qE 'no user|only root'"),
    ),
    (
        "sudo everycall setup-tracefs --user alice --undo",
        So("everycall setup-tracefs --user 'no user' --undo 2>&1 | grep -qE 'no user|only root'"),
    ),
    (
        "everycall record --states=perf ./app",
        So(
            "everycall record --states=perf -q -o st.ect -- ./app && everycall info st.ect | grep -q '^states '",
        ),
    ),
    // Building.
    (
        "everycall cc --",
        So("everycall cc -- gcc -c app.c -o app.o && everycall cc -- gcc app.o -o app_c && ./app_c"),
    ),
    (
        "-DCMAKE_CXX_COMPILER_LAUNCHER=\"everycall;cc;--\" -DCMAKE_CXX_LINKER_LAUNCHER=\"everycall;cc;--\"",
        So(
            "cmake -S . -B cmake -DCMAKE_CXX_COMPILER_LAUNCHER=\"everycall;cc;--\" -DCMAKE_CXX_LINKER_LAUNCHER=\"everycall;cc;--\" && \
            cmake --build cmake && everycall record -q -o c.ect -- cmake/app && everycall info c.ect | grep -q handle",
        ),
    ),
    (
        "./configure CC='everycall cc -- gcc' CXX='everycall cc -- g++'",
        So(
            "printf '#!/bin/sh\\nfor word; do export \"$word\"; done\\n$CC app.c -o configured\\n' > configure && chmod +x configure && \
             ./configure CC='everycall cc -- gcc' CXX='everycall cc -- g++' && everycall record -q -o configured.ect -- ./configured && \
             everycall replay configured.ect | grep -q handle",
        ),
    ),
    (
        "CC='everycall cc -- gcc' CXX='everycall cc -- g++'",
        So("! command -v meson || { mkdir meson && cp app.c meson && cd meson && \
             printf \"project('app', 'c')\\nexecutable('app', 'app.c')\\n\" > meson.build && \
             CC='everycall cc -- gcc' CXX='everycall cc -- g++' meson setup build && ninja -C build && \
             everycall record -q -o m.ect -- build/app && everycall replay m.ect | grep -q handle; }"),
    ),
    (
        "EVERYCALL_TRIGGERS=server.ecs ./server",
        So(
            "everycall resolve -q --trigger 'handle_request > 20ms' -o server.ecs ./server && EVERYCALL_TRIGGERS=server.ecs ./server 100",
        ),
    ),
    (
        "everycall report --diff old-1.ect old-2.ect --against new-1.ect new-2.ect --fail-if 'p99(handle_request) > +10%'",
        So(
            "everycall report --diff old-1.ect old-2.ect --against new-1.ect new-2.ect --fail-if 'p99(handle_request) > +10%'; case $? in 0|3|4) true;; *) false;; esac",
        ),
    ),
    ("everycall cc -- ccache gcc", So("everycall cc -- ccache gcc app.c -o app_c && ./app_c")),
    ("everycall cc -- ccache gcc ...", So("everycall cc -- ccache gcc app.c -o app_c && ./app_c")),
    ("ccache everycall-gcc", So("ccache everycall-gcc app.c -o app_c && ./app_c")),
    ("ccache everycall-gcc ...", So("ccache everycall-gcc app.c -o app_c && ./app_c")),
    (
        "everycall cc --mode M -- ...",
        So(
            "for M in nops fentry finstrument; do everycall cc --mode $M -- gcc app.c -o app_c && ./app_c || exit 1; done",
        ),
    ),
    (
        "everycall cc -- clang++ -O2 -fxray-instrument app.cpp -o app",
        So("everycall cc -- clang++-19 -O2 -fxray-instrument app.cpp -o app_x && ./app_x"),
    ),
    ("--mode xray", So("everycall cc --mode xray -- clang-19 app.c -o app_c && ./app_c")),
    (
        "everycall man --install ~/.local/share/man",
        So(
            "everycall man --install pages && for verb in record replay export; do test -s pages/man1/everycall-$verb.1 || exit 1; done",
        ),
    ),
    (
        "everycall completions bash > ~/.local/share/bash-completion/completions/everycall",
        So("everycall completions bash > completions.bash && bash -n completions.bash"),
    ),
    ("everycall completions zsh", So("everycall completions zsh | grep -q '#compdef everycall'")),
    ("everycall completions fish", So("everycall completions fish | grep -q 'complete -c everycall'")),
    // Recording.
    ("record --min-duration", So("everycall record --min-duration 500ns -o app.ect -- ./app args")),
    ("record --min-duration 500ns", So("everycall record --min-duration 500ns -o app.ect -- ./app args")),
    ("--budget 3%", So("everycall record --budget 3% -o budget.ect -- ./app args")),
    ("EVERYCALL_BUDGET=3% ./server", So("EVERYCALL_BUDGET=3% ./server 10")),
    ("info -f json", So("everycall info -f json app.ect > info.json")),
    (
        "everycall record --clock bounded -- ./app",
        So(
            "everycall record --clock bounded -o bounded.ect -- ./app args && everycall info bounded.ect | grep -q '^times'",
        ),
    ),
    (
        "everycall record --clock bounded ./app",
        So("everycall record --clock bounded -o bounded.ect ./app args"),
    ),
    ("EVERYCALL_CLOCK=bounded ./server", So("EVERYCALL_CLOCK=bounded ./server 10")),
    ("record --budget", So("everycall record --budget 3% -o app.ect -- ./app args")),
    ("record --stream", So("everycall record --stream -o app.ect -- ./app args")),
    ("record --stream --stall", So("everycall record --stream --stall -o app.ect -- ./app args")),
    (
        "everycall record --stream --stall -- stream 2 40000000",
        So("everycall record --stream --stall -- ./app 2 40000000"),
    ),
    (
        "--keep-files 10 --file-age 1m",
        So("everycall record --stream --keep-files 10 --file-age 1m -o app.ect -- ./app args"),
    ),
    ("record --wait", So("everycall record --wait -o app.ect -- ./app args")),
    ("record --no-follow", So("everycall record --no-follow -o app.ect -- ./app args")),
    (
        "--keep-size 256M",
        So("everycall record --trigger 'handle_request > 5ms' --keep-size 256M -- ./server 100"),
    ),
    ("--temp-size 20G", So("everycall sql --temp-size 20G app.ect 'select count(*) from slices'")),
    ("--timeout 30s", So("everycall sql --timeout 30s app.ect 'select count(*) from slices'")),
    ("python3.14 -m everycall attach", Not(ATTACHED)),
    (
        "--keep-by slowest",
        So("everycall record --trigger 'handle_request > 5ms' --keep-by slowest -- ./server 100"),
    ),
    (
        "--keep-every 1s",
        So("everycall record --trigger 'handle_request > 5ms' --keep-every 1s -- ./server 100"),
    ),
    ("--trigger 'signal USR1'", So("everycall record --trigger 'signal USR1' -- ./server 100")),
    (
        "record --trigger 'handle_request > 20ms'",
        So("everycall record --trigger 'handle_request > 20ms' -- ./server 200"),
    ),
    (
        "record --trigger 'handle_request > 20ms' --keep 20 -- ./server",
        So("everycall record --trigger 'handle_request > 20ms' --keep 20 -o kept.ect -- ./server 200"),
    ),
    ("record --trigger", So("everycall record --trigger 'handle_request > 20ms' -- ./server 200")),
    (
        "--keep-by newest --keep-every 10s",
        So(
            "everycall record --trigger 'handle_request > 5ms' --keep-by newest --keep-every 10s -- ./server 100",
        ),
    ),
    // Looking.
    (
        "--tid --since --until --last --min-duration --function REGEX --depth",
        So("everycall replay --tid 1 --since 1ms --until 1h app.ect && \
            everycall export --last 5m --min-duration 1us --function 'handle.*' --depth 3 -o f.json app.ect"),
    ),
    ("replay --inlines", So("everycall replay --inlines app.ect")),
    ("replay --numbers", So("everycall replay --numbers app.ect")),
    ("export --inlines", So("everycall export --inlines -o i.json app.ect")),
    ("info --format json", So("everycall info --format json app.ect")),
    (
        "export -f vizviewer|perfetto|chrome|speedscope|firefox|flamegraph|folded|pprof|callgrind|dot|mermaid|csv|jsonl|parquet",
        So(
            "for f in vizviewer perfetto chrome speedscope firefox flamegraph folded pprof callgrind dot mermaid csv jsonl parquet; do everycall export -f $f -o out app.ect || exit 1; done",
        ),
    ),
    (
        "replay --function F --min-duration 20ms",
        So("everycall replay --function handle_request --min-duration 20ms kept.ect"),
    ),
    ("everycall replay --label request=42", So("everycall replay --label request=42 app.ect")),
    // Crash files, cores, gdb.
    ("EVERYCALL_CRASH=FOLDER ./app", So("EVERYCALL_CRASH=my-crashes ./app")),
    ("EVERYCALL_CRASH=FOLDER", So("EVERYCALL_CRASH=my-crashes ./app")),
    ("mkdir -m 700 /var/tmp/my-crashes", So("mkdir -m 700 their-crashes")),
    ("EVERYCALL_CRASH=/var/tmp/my-crashes ./server", So("EVERYCALL_CRASH=my-crashes ./server 100")),
    ("everycall core core.1234", So("everycall core core.1234 && everycall replay core.1234.ect")),
    (
        "everycall core -o app.ect /var/lib/systemd/coredump/core.app.1000.*.zst",
        So("everycall core -o core-app.ect core.app.1000.*.zst"),
    ),
    (
        "coredumpctl dump -o core app && everycall core core",
        Not("needs a machine that systemd-coredump runs on"),
    ),
    ("everycall replay core.ect", So("everycall core core.1234 -o core.ect && everycall replay core.ect")),
    ("everycall gdb-script", So("everycall gdb-script > everycall-gdb.py")),
    (
        "gdb -x everycall-gdb.py -p 1234",
        So("everycall gdb-script > everycall-gdb.py && gdb -batch -nx -x everycall-gdb.py -p $SERVER"),
    ),
    (
        "(gdb) everycall snapshot app.ect",
        So(
            "everycall gdb-script > everycall-gdb.py && gdb -batch -nx -x everycall-gdb.py -p $SERVER -ex 'everycall snapshot gdb.ect' && everycall info gdb.ect",
        ),
    ),
    ("everycall snapshot FILE", Not("a command within gdb; the block of docs/reference/cores.md is run")),
    (
        "--source-folder FOLDER",
        So(
            "mkdir -p other && everycall record -q -o s.ect -- ./app && everycall export --source-folder other -o s.json s.ect",
        ),
    ),
    // Plugins.
    (
        "export LD_PRELOAD=$PWD/DIR/lib/everycall/libeverycall.so",
        So("everycall integrate DIR && ls DIR/lib/everycall/libeverycall.so"),
    ),
    (
        "EVERYCALL_CRASH=FOLDER ./host ./plugin.so",
        So(
            "export LD_PRELOAD=$PWD/DIR/lib/everycall/libeverycall.so; rm -f called; EVERYCALL_CRASH=my-crashes ./host ./plugin.so long & \
            until [ -e called ]; do sleep 0.1; done; kill -9 $!; unset LD_PRELOAD; everycall replay my-crashes/host-$!.arena | grep plugged",
        ),
    ),
    (
        "EVERYCALL_TRIGGERS=plugin.ecs ./host ./plugin.so",
        So(
            "LD_PRELOAD=$PWD/DIR/lib/everycall/libeverycall.so EVERYCALL_TRIGGERS=plugin.ecs ./host ./plugin.so && ls host-*-kept-*.ect",
        ),
    ),
    (
        "EVERYCALL_SNAPSHOT_SIGNAL=USR2 ./host ./plugin.so",
        So(
            "rm -f called; LD_PRELOAD=$PWD/DIR/lib/everycall/libeverycall.so EVERYCALL_SNAPSHOT_SIGNAL=USR2 ./host ./plugin.so long & \
            until [ -e called ]; do sleep 0.1; done; kill -USR2 $!; until everycall replay host-$!-1.ect | grep plugged; do sleep 0.1; done; kill $!",
        ),
    ),
    (
        "record --preload",
        So(
            "everycall record --preload -o plug.ect -- ./host ./plugin.so && everycall replay plug.ect | grep plugged",
        ),
    ),
    // Without `record`.
    ("EVERYCALL_SNAPSHOT_SIGNAL=USR2", So(STARTS_A_SERVER)),
    (
        "everycall resolve --trigger 'handle_request > 20ms' --keep 20 -o /etc/server.ecs ./server plugin.so",
        So("everycall resolve --trigger 'handle_request > 20ms' --keep 20 -o server.ecs ./server plugin.so"),
    ),
    (
        "EVERYCALL_TRIGGERS=/etc/server.ecs EVERYCALL_SNAPSHOT_FOLDER=/var/tmp/server ./server",
        So(
            "mkdir -p kept && EVERYCALL_TRIGGERS=server.ecs EVERYCALL_SNAPSHOT_FOLDER=kept ./server 300 && ls kept/server-*-kept-*.ect",
        ),
    ),
    (
        "EVERYCALL_KEEP_ENDED=SIZE[,TIME]",
        So("for KEEP in 64M 16M,10s 0,5m; do EVERYCALL_KEEP_ENDED=$KEEP ./app || exit 1; done"),
    ),
    ("EVERYCALL_START=on|off", So("EVERYCALL_START=on ./app && EVERYCALL_START=off ./app")),
    ("everycall trace", Not("what `info` calls a file, or the verb without what it needs")),
    // Following.
    ("everycall follow PID PATTERN...", So("everycall follow $SERVER 'handle*' --for 1s")),
    ("everycall follow PID 'handle_*'", So("everycall follow $SERVER 'handle_*' --for 1s")),
    (
        "everycall follow 1234 'handle_*' --level 1:'parse_*' --for 10s",
        So("everycall follow $SERVER 'handle_*' --level 1:'handle_*' --for 1s"),
    ),
    ("everycall follow PATTERN... -- PROGRAM ARGUMENTS", So("everycall follow 'handle*' -- ./app args")),
    (
        "everycall follow --with-output 'handle_*' -- ./app args",
        So("everycall follow --with-output 'handle_*' -- ./app args"),
    ),
    ("--level N:PATTERN", So("everycall follow $SERVER 'handle_*' --level 1:'handle_*' --for 1s")),
    ("--clock trace", So("everycall follow --clock trace 'handle*' -- ./app args")),
    (
        "--clock wall",
        So("everycall record -q -o app.ect -- ./app args && everycall replay --clock wall app.ect"),
    ),
    (
        "--clock raw",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall export -f csv --clock raw -o - app.ect",
        ),
    ),
    // Choosing functions.
    (
        "everycall cc --not 'size:<10' -- gcc -O2 -c app.c",
        So("everycall cc --not 'size:<10' -- gcc -O2 -c app.c"),
    ),
    (
        "everycall cc --not 'size:<10 & !has:loop' --not 'file:third_party/*' -- g++ -O2 -c app.cpp",
        So("everycall cc --not 'size:<10 & !has:loop' --not 'file:third_party/*' -- g++ -O2 -c app.cpp"),
    ),
    (
        "everycall cc --only @functions.txt -- clang -O2 -c app.c",
        So("echo 'handle*' > functions.txt && everycall cc --only @functions.txt -- clang-19 -O2 -c app.c"),
    ),
    (
        "everycall-gcc '--everycall-not=@functions.txt' -O2 -c app.c",
        So("echo 'handle*' > functions.txt && everycall-gcc '--everycall-not=@functions.txt' -O2 -c app.c"),
    ),
    ("everycall functions FILE PATTERN", So("everycall functions ./server 'handle*'")),
    ("everycall functions PID|FILE [PATTERN...]", So("everycall functions ./server 'handle*'")),
    ("everycall functions 1234 'handle_*'", So("everycall functions $SERVER 'handle_*'")),
    ("everycall enable PID PATTERN", So("everycall enable $SERVER 'handle_*'")),
    (
        "everycall trace 1234 'parse_*' --for 10s --clock bounded -o parse.ect",
        So(
            "everycall disable $SERVER && everycall trace $SERVER 'handle_*' --for 0.2s --clock bounded -o parse.ect; everycall enable $SERVER",
        ),
    ),
    (
        "everycall enable 1234 --clock bounded",
        So("everycall enable $SERVER --clock bounded && everycall enable $SERVER --clock exact"),
    ),
    (
        "--clock bounded",
        So(
            "everycall disable $SERVER && everycall trace $SERVER 'handle_*' --for 0.2s --clock bounded -o parse.ect; everycall enable $SERVER",
        ),
    ),
    (
        "trace --clock",
        So(
            "everycall disable $SERVER && everycall trace $SERVER 'handle_*' --for 0.2s --clock bounded -o parse.ect; everycall enable $SERVER",
        ),
    ),
    (
        "enable --clock",
        So("everycall enable --clock bounded $SERVER && everycall enable $SERVER --clock exact"),
    ),
    ("everycall enable PID PATTERN...", So("everycall enable $SERVER 'handle_*'")),
    ("disable PID PATTERN", So("everycall disable $SERVER 'handle_*' && everycall enable $SERVER")),
    (
        "everycall disable PID PATTERN...",
        So("everycall disable $SERVER 'handle_*' && everycall enable $SERVER"),
    ),
    (
        "everycall enable --only PID PATTERN...",
        So("everycall enable --only $SERVER 'handle_*' && everycall enable $SERVER"),
    ),
    (
        "everycall trace 1234 'parse_*' --stream --for 10m -o parse.ect",
        So("everycall trace $SERVER 'handle_*' --stream --for 10ms -o parse.ect"),
    ),
    (
        "everycall enable --later --only 1234 'plugin_*'",
        So("timeout -s INT 1 everycall enable --later --only $SERVER 'plugin_*'; everycall enable $SERVER"),
    ),
    ("everycall disable PID", So("everycall disable $SERVER && everycall enable $SERVER")),
    (
        "everycall disable 1234 'size:<20 & !has:loop'",
        So("everycall disable $SERVER 'size:<20 & !has:loop' && everycall enable $SERVER"),
    ),
    (
        "everycall trace 1234 --within handle_request --for 10s -o requests.ect",
        So(
            "everycall trace $SERVER --within 'handle*' --for 1s -o requests.ect && everycall info requests.ect | grep within",
        ),
    ),
    (
        "everycall trace 1234 '*' --thread 'worker*' --for 10s -o workers.ect",
        So(
            "everycall trace $SERVER '*' --thread '*' --for 1s -o workers.ect && everycall info workers.ect | grep session",
        ),
    ),
    (
        "everycall trace 1234 --crossing --for 10s -o api.ect",
        So(
            "everycall trace $SERVER --crossing --for 1s -o api.ect && everycall info api.ect | grep 'another module'",
        ),
    ),
    (
        "everycall trace 1234 'parse_*' --for 10m --max-events 50M -o parse.ect",
        So(
            "everycall trace $SERVER 'handle*' --for 1s --max-events 50M -o parse.ect && everycall info parse.ect",
        ),
    ),
    (
        "everycall trace PID PATTERN... --for 10s -o FILE",
        So("everycall trace $SERVER 'handle*' --for 1s -o traced.ect && everycall info traced.ect"),
    ),
    (
        "everycall trace PID 'handle_*' --for 10s -o slow.ect",
        So("everycall trace $SERVER 'handle*' --for 1s -o slow.ect && everycall info slow.ect"),
    ),
    ("everycall trigger", Not("the verb without what it needs")),
    (
        "everycall trigger PID 'handle_* > 20ms' -o FILE",
        So("everycall trigger $SERVER 'handle_* > 1us' --for 1s -o kept.ect && everycall info kept.ect"),
    ),
    (
        "everycall trigger PID 'f > 20ms' -o FILE",
        So("everycall trigger $SERVER 'handle_* > 1us' --limit 1 -o kept.ect && everycall info kept.ect"),
    ),
    (
        "everycall trigger PID 'handle_request > 20ms' -o slow.ect",
        So(
            "everycall trigger $SERVER 'handle_request > 1us' --for 1s -o slow.ect && everycall info slow.ect",
        ),
    ),
    ("EVERYCALL_START=off ./server", So("EVERYCALL_START=off ./server 10")),
    ("EVERYCALL_START=off ./server &", So("EVERYCALL_START=off ./server 10")),
    (
        "everycall trace $! 'handle_*' --for 10s -o slow.ect",
        So(
            "rm -f called; EVERYCALL_START=off ./server 100000 & server=$!; until [ -e called ]; do sleep 0.1; done; \
             everycall trace $server 'handle*' --for 1s -o slow.ect; kill $server; everycall info slow.ect | grep -q handle",
        ),
    ),
    ("everycall record --only PATTERN -- ./app", So("everycall record --only 'handle*' -- ./server 10")),
    ("everycall record --not PATTERN -- ./app", So("everycall record --not 'handle*' -- ./server 10")),
    ("--within PATTERN", So("everycall trace $SERVER --within 'handle*' --for 1s -o within.ect")),
    (
        "--thread children-of:TID",
        So("everycall trace $SERVER 'handle*' --thread children-of:$SERVER --for 10ms -o new.ect || \
            [ $(cat /proc/sys/kernel/perf_event_paranoid) -gt 2 ]"),
    ),
    ("--thread TID|NAME|new", So("everycall trace $SERVER 'handle*' --thread new --for 1s -o new.ect")),
    ("-- => usleep (not traced, at most) 30.1 ms --", Not("what `replay` prints, no command")),
    ("record --not", So("everycall record --not 'handle*' -- ./server 10")),
    ("resolve --not", So("everycall resolve --not 'handle*' -o not.ecs ./server")),
    ("record --only", So("everycall record --only 'handle*' -- ./server 10")),
    (
        "everycall resolve --only PATTERN -o app.ecs ./app",
        So("everycall resolve --only 'handle*' -o only.ecs ./server && EVERYCALL_ONLY=only.ecs ./server 10"),
    ),
    (
        "EVERYCALL_ONLY=app.ecs ./app",
        So("everycall resolve --only 'handle*' -o only.ecs ./server && EVERYCALL_ONLY=only.ecs ./server 10"),
    ),
    (
        "EVERYCALL_ONLY=app.ecs",
        So("everycall resolve --only 'handle*' -o only.ecs ./server && EVERYCALL_ONLY=only.ecs ./server 10"),
    ),
    ("nsenter --target PID --net everycall enable PID ...", Not("needs a container")),
    // Counts.
    ("everycall count -- ./app", So("everycall count -- ./server 10")),
    (
        "everycall count --by 'handle(path)' -- ./app",
        So("everycall count --by 'handle_request(id)' -- ./server 10 | grep -q 'calls %  id'"),
    ),
    (
        "everycall count --untouched --by 'f(arg1:int)' -- ./app",
        So(
            "cp /usr/bin/perl perl && everycall count --untouched --by 'Perl_newSVpvn(arg3:u64)' -- ./perl -e 1 | grep -q arg3",
        ),
    ),
    (
        "everycall count PID --by 'handle(path)'",
        So(
            "everycall count --by 'handle_request(id)' -- ./server 100000 > by.txt & count=$!; sleep 1; server=$(pgrep -P $count); everycall count $server --by 'handle_request(id)' | grep -q 'calls %'; status=$?; kill $server; exit $status",
        ),
    ),
    (
        "everycall report --by 'handle(path)'",
        So(
            "everycall count --by 'handle_request(id)' -o by.ect -- ./server 10 && everycall report --by 'handle_request(id)' by.ect | grep -q 'calls %'",
        ),
    ),
    // Programs as they are.
    ("cargo run --release -p everycall-rewrite --example plan -- FILE", Not(LONG)),
    ("cargo run --release -p everycall-plans --example kept -- FILE", Not(LONG)),
    (
        "everycall attach PID",
        So(
            "sleep 600 & pid=$!; sleep 1; everycall attach --all --modules 'libc.*' $pid; code=$?; everycall detach $pid; kill $pid; exit $code",
        ),
    ),
    ("everycall attach --stay PID", Not("tested in the command's tests: untouched.rs")),
    ("everycall detach PID", Not("runs with `everycall attach PID`")),
    (
        "everycall record -- ./app",
        So("cp /bin/ls plain && everycall record -- ./plain / 2>&1 | grep -q 'recorded as it is'"),
    ),
    (
        "everycall record --untouched -- python3 app.py",
        So(
            "cp /bin/sh plain && everycall record --untouched -- ./plain -c 'echo 1' && everycall report plain.ect",
        ),
    ),
    (
        "everycall record --modules 'libssl*,libcrypto*' -- ./app",
        So("cp /bin/ls plain && everycall record --modules 'libselinux*' -o modules.ect -- ./plain /"),
    ),
    (
        "everycall record --modules '*json*' -- /usr/bin/python3 app.py",
        So("cp /bin/ls plain && everycall record --modules '*json*' -o later.ect -- ./plain /"),
    ),
    (
        "everycall record --all -- ./app",
        So(
            "cp /bin/ls plain && everycall record --all -o all-of-it.ect -- ./plain / && everycall info all-of-it.ect | grep -q 'complete    yes'",
        ),
    ),
    (
        "everycall record --untouched --only 'handle_*' -- ./app",
        So("cp /bin/ls plain && everycall record --untouched --only 'size:>=20' -o only.ect -- ./plain /"),
    ),
    (
        "everycall record --untouched -- perl -e 'print \"hello\\n\"'",
        So("cp /bin/ls plain && everycall record --untouched -o perl.ect -- ./plain /"),
    ),
    ("--only 'size:>=15'", So("everycall record --untouched --only 'size:>=15' -o ls.ect -- /bin/ls /")),
    ("everycall functions --untouched ./app", So("everycall functions --untouched ./server")),
    (
        "everycall count --untouched -- ./app",
        So("cp /bin/ls plain && everycall count --untouched -- ./plain / | grep -q plain"),
    ),
    (
        "everycall count --untouched --modules 'libsqlite*,libz*' -- ./app",
        So("cp /bin/ls plain && everycall count --untouched --modules 'libsqlite*,libz*' -- ./plain /"),
    ),
    (
        "everycall count --untouched -f json -- ./app",
        So("cp /bin/ls plain && everycall count --untouched -f json -- ./plain / | grep -q '\"rows\"'"),
    ),
    (
        "everycall count --untouched --by module -- ./app",
        So("cp /bin/ls plain && everycall count --untouched --by module -- ./plain / | grep -q plain"),
    ),
    ("everycall count --time -- ./app", So("everycall count --time -- ./server 10")),
    ("everycall count --memory -- ./app", So("everycall count --memory -- ./server 10")),
    ("everycall count -o app.ect -- ./app", So("everycall count -o counts.ect -- ./server 10")),
    (
        "everycall merge --sum -o all.ecp old.ect new.ect",
        So(
            "everycall count -o counts.ect -- ./server 10 && everycall merge --sum -o all.ecp counts.ect counts.ect",
        ),
    ),
    ("EVERYCALL_COUNT=calls ./server", So("EVERYCALL_COUNT=calls ./server 10")),
    ("EVERYCALL_COUNT=calls", So("EVERYCALL_COUNT=calls ./server 10")),
    ("EVERYCALL_COUNT=time", So("EVERYCALL_COUNT=time ./server 10")),
    (
        "everycall count PID",
        So(
            "rm -f called; EVERYCALL_COUNT=calls ./server 100000 & server=$!; until [ -e called ]; do sleep 0.1; done; everycall count $server | grep -q handle; kill $server",
        ),
    ),
    (
        "everycall count PID -o before.ect",
        So(
            "rm -f called; EVERYCALL_COUNT=calls ./server 100000 & server=$!; until [ -e called ]; do sleep 0.1; done; everycall count $server -o before.ect | grep -q handle; kill $server",
        ),
    ),
    (
        "everycall count PID --since before.ect",
        So(
            "rm -f called; EVERYCALL_COUNT=calls ./server 100000 & server=$!; until [ -e called ]; do sleep 0.1; done; everycall count $server -o before.ect; sleep 0.3; everycall count $server --since before.ect | grep -q handle; kill $server",
        ),
    ),
    (
        "everycall count PID --every 1s",
        So(
            "rm -f called; EVERYCALL_COUNT=calls ./server 100000 & server=$!; until [ -e called ]; do sleep 0.1; done; timeout 2 everycall count $server --every 1s | grep -q handle; kill $server",
        ),
    ),
    ("everycall count --only 'handle*' -- ./app", So("everycall count --only 'handle*' -- ./server 10")),
    ("--clock order", So("everycall record --clock order -o order.ect -- ./app args")),
    // Reports.
    (
        "everycall replay --corrected app.ect",
        So("everycall record -q -o app.ect -- ./app args && everycall replay --corrected app.ect"),
    ),
    (
        "everycall report --corrected --untraced off.ect app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && EVERYCALL_START=off everycall record -q -o off.ect -- ./app args; \
             everycall report --corrected --untraced off.ect app.ect | grep -q handle_request || \
             everycall report --corrected --untraced off.ect app.ect 2>&1 | grep -q 'must be the same work'",
        ),
    ),
    (
        "EVERYCALL_START=off everycall record -o off.ect -- ./app",
        So("EVERYCALL_START=off everycall record -q -o off.ect -- ./app args"),
    ),
    (
        "everycall report --corrected --untraced 53ms --untraced 55ms app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --corrected --untraced 1us --untraced 2us app.ect",
        ),
    ),
    (
        "everycall report --no-blocked app.ect",
        So(
            "everycall record --states -q -o st.ect -- ./app && { everycall report --no-blocked st.ect || everycall info st.ect | grep -q '^states '; }",
        ),
    ),
    (
        "everycall report --callers F app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --callers handle_request app.ect",
        ),
    ),
    (
        "everycall report --callees F app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --callees handle_request app.ect",
        ),
    ),
    (
        "everycall report --callers handle_request app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --callers handle_request app.ect",
        ),
    ),
    (
        "everycall report --callees main app.ect",
        So("everycall record -q -o app.ect -- ./app args && everycall report --callees main app.ect"),
    ),
    (
        "TZ=UTC everycall replay --clock wall app.ect",
        So("everycall record -q -o app.ect -- ./app args && TZ=UTC everycall replay --clock wall app.ect"),
    ),
    (
        "everycall report --slowest handle_request app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --slowest handle_request app.ect",
        ),
    ),
    (
        "everycall report --explain handle_request app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --explain handle_request app.ect",
        ),
    ),
    (
        "everycall report --fail-if 'p99(handle_request) > 20s' app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --fail-if 'p99(handle_request) > 20s' app.ect",
        ),
    ),
    (
        "everycall report --tree --function '^handle_request' app.ect",
        So(
            "everycall record -q -o app.ect -- ./app args && everycall report --tree --function '^handle_request' app.ect",
        ),
    ),
    (
        "--fail-if 'p99(handle_request) > +10%'",
        So("everycall report --diff old.ect new.ect --fail-if 'calls(handle_request) > +10%'"),
    ),
    ("--function REGEX", So("everycall replay --function handle old.ect")),
    ("--depth 3", So("everycall replay --depth 3 old.ect")),
    ("--min-duration 1ms", So("everycall report --min-duration 1us old.ect")),
    ("--since 1s --until 2s", So("everycall report --since 1us --until 2s old.ect")),
    ("everycall record --ring-size 64K", So("everycall record --ring-size 64K -o app.ect -- ./app args")),
    ("everycall functions FILE", So("everycall functions ./server")),
    (
        "everycall report --kept 1 --slowest F slow.ect",
        So(
            "everycall record -q --trigger 'handle_request > 20ms' -o kept-slow.ect -- ./server 300 && everycall report --kept 1 --slowest handle_request kept-slow.ect",
        ),
    ),
    ("everycall functions --untouched FILE...", So("everycall functions --untouched ./server ./app")),
    ("everycall functions --untouched /usr/bin/perl", So("everycall functions --untouched ./server")),
    (
        "everycall functions --untouched /usr/bin/perl /bin/bash --format json",
        So("everycall functions --untouched ./server ./app --format json"),
    ),
    ("--sort total", So("everycall report --sort total old.ect")),
    ("--sort own", So("everycall report --sort own old.ect")),
    (
        "--by function|symbol|thread|process|module|file|label:NAME|path|'FUNCTION(VALUE)'",
        So(
            "for by in function symbol thread process module file label:request path 'handle_request(id)'; do everycall report --by \"$by\" old.ect || exit 1; done",
        ),
    ),
    (
        "--sort calls|all-calls|total|own|avg|min|p50|p90|p99|p99.9|max|throws|running|runnable|blocked|voluntary|involuntary|allocated|own-allocated|blocks|own-blocks|freed|own-freed|freed-blocks|own-freed-blocks",
        So(
            "for by in calls all-calls total own avg min p50 p90 p99 p99.9 max throws running runnable blocked voluntary involuntary; do everycall report --sort $by old.ect || exit 1; done; everycall count --memory -o memory.ect -- ./server 10 && for by in allocated own-allocated blocks own-blocks freed own-freed freed-blocks own-freed-blocks; do everycall report --sort $by memory.ect || exit 1; done",
        ),
    ),
    ("--limit COUNT", So("everycall report --limit 1 old.ect")),
    (
        "--pid --tid --since --until --last --min-duration --function REGEX --label NAME=VALUE --depth --kept",
        So(
            "everycall report --since 1us --until 1s --last 1s --min-duration 1ns --function handle --label request=7 --depth 1 old.ect | grep -q handle_request",
        ),
    ),
    (
        "--trigger 'handle_request > 20ms if id == 7777'",
        So("everycall record --trigger 'handle_request > 20ms if id == 7777' -o slow.ect -- ./service"),
    ),
    ("--by label:", So("everycall report --by label:request old.ect")),
    ("cargo xtask untouched", Not(LONG)),
    ("cargo xtask bench args", Not(LONG)),
    ("cargo xtask bench count", Not(LONG)),
    ("cargo xtask bench report", Not(LONG)),
    ("cargo xtask bench real", Not(LONG)),
    ("cargo xtask bench corrected --quick", Not(LONG)),
    ("cargo xtask bench corrected", Not(LONG)),
    ("cargo xtask bench exports", Not(LONG)),
    ("everycall cc -- aarch64-linux-gnu-g++ -O2 app.cpp -o app", Not(ARM)),
    ("everycall record -- qemu-aarch64 -L /usr/aarch64-linux-gnu ./app", Not(ARM)),
    ("cargo xtask bench view --events 1000M", Not(LONG)),
    ("cargo run --release -p everycall-view --example large_trace", Not(LONG)),
    ("cargo xtask bench labels", Not(LONG)),
    ("cargo xtask bench states", Not(LONG)),
    ("cargo xtask bench states --quick", Not(LONG)),
    // Rust: tests/tests/rust/rust.rs tests what is in the traces.
    (
        "cargo everycall run --release -- ARGUMENTS",
        So(
            "cargo init -q --vcs none --name app rust && cd rust && cargo everycall run --release --offline -- ARGUMENTS && \
             everycall replay app.ect | grep -q app::main",
        ),
    ),
    (
        "everycall cargo run",
        So(
            "cargo init -q --vcs none --name app rust-2 && cd rust-2 && everycall cargo --not 'core::*' run --offline",
        ),
    ),
    ("cargo everycall run --release -o app.ect", Not(RUST)),
    ("cargo everycall test", Not(RUST)),
    ("cargo everycall bench", Not(RUST)),
    ("cargo everycall --not 'core::*' --not 'alloc::*' --not 'std::*' run", Not(RUST)),
    (
        "everycall cc --start off -- g++ ...",
        So(
            "everycall cc --start off -- g++ -O2 app.cpp -o app_off && ./app_off && everycall record -q -o off.ect ./app_off && everycall info off.ect | grep -q handle_request",
        ),
    ),
    ("everycall cc --start off", So("everycall cc --start off -- gcc app.c -o app_off && ./app_off")),
    ("--start off", So("everycall cc --start off -- gcc app.c -o app_off && ./app_off")),
    (
        "python3 -m everycall app.py args",
        So("mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall app.py args"),
    ),
    (
        "python3 -m everycall -o app.ect app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall -o app.ect app.py && everycall info app.ect",
        ),
    ),
    (
        "python3 -m everycall --ring-size 8M app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall --ring-size 8M app.py",
        ),
    ),
    (
        "python3 -m everycall --min-duration 200us app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall --min-duration 200us app.py",
        ),
    ),
    (
        "python3 -m everycall --only 'app.*' app.py",
        So(
            "mkdir -p apart && cp app.py package.py apart && cd apart && python3 -m everycall --only 'app.*' app.py && everycall replay app.ect | grep -q handle",
        ),
    ),
    (
        "everycall import -o app.ect result.json",
        So("gunzip -c trace.json.gz > result.json && everycall import -o imported.ect result.json"),
    ),
    (
        "everycall record --trigger 'handle_request entered' -- ./server",
        So("everycall record --trigger 'handle_request entered' -o entered.ect -- ./server 50"),
    ),
    (
        "everycall trigger 1234 'handle_request entered' -o slow.ect",
        So(
            "everycall trigger $SERVER 'handle_request entered' --for 1s -o slow.ect && everycall info slow.ect",
        ),
    ),
    (
        "everycall trigger 1234 'handle_request > 20ms' -o slow.ect",
        So(
            "everycall trigger $SERVER 'handle_request > 1us' --for 1s -o slow.ect && everycall info slow.ect",
        ),
    ),
    (
        "everycall follow PID 'handle_*' --max-events 100",
        So("everycall follow $SERVER 'handle_*' --max-events 100"),
    ),
    (
        "make CC='everycall cc -- gcc' CXX='everycall cc -- g++'",
        So("rm -f made && make -f app.mk CC='everycall cc -- gcc' CXX='everycall cc -- g++' && ./made"),
    ),
    ("everycall follow PID 'foo*'", So("everycall follow $SERVER 'handle*' --for 1s")),
    ("everycall record --only 'foo*' -- ./app", So("everycall record --only 'handle*' -o only.ect -- ./app")),
    ("everycall cc -- g++", So("everycall cc -- g++ -O2 app.cpp -o app_x && ./app_x")),
    (
        "everycall cc --not PATTERN -- g++",
        So("everycall cc --not 'handle*' -- g++ -O2 app.cpp -o app_x && ./app_x"),
    ),
    ("cargo everycall --start off build --release", Not(RUST)),
    ("cargo everycall build --release", Not(RUST)),
    ("everycall record -- target/everycall/release/app", Not(RUST)),
    ("cargo everycall --stream --trigger 'app::handle > 20ms' run", Not(RUST)),
    ("cargo everycall --all run", Not(RUST)),
    ("cargo everycall --crate regex-automata run", Not(RUST)),
    (
        "cargo +nightly everycall --all run -Zbuild-std --target x86_64-unknown-linux-gnu",
        Not("needs a nightly toolchain with the sources of the standard library"),
    ),
    // Our own tests and measurements.
    ("cargo xtask test", Not(SUITE)),
    ("cargo xtask models", Not(SUITE)),
    ("cargo xtask dist", Not(LONG)),
    ("cargo xtask demo", Not("run by a test of its own: `the_demo_runs`")),
    (
        "cargo install --locked --path crates/command/cli",
        Not("run by a test of its own: `what_is_installed_is_small`"),
    ),
    ("cargo xtask pictures", Not("takes pictures with a browser, for people to look at")),
    ("cargo xtask soak", Not(LONG)),
    ("cargo xtask kills", Not(LONG)),
    ("cargo xtask storms", Not(LONG)),
    ("cargo xtask bench", Not(LONG)),
    ("cargo xtask bench cost edges --quick", Not(LONG)),
    ("cargo xtask bench --format json", Not(LONG)),
    ("cargo xtask bench snapshots", Not(LONG)),
    ("cargo xtask bench untouched", Not(LONG)),
    ("cargo xtask bench trace-device", Not(LONG)),
    ("cargo build -p everycall-trace-plugin", Not("run by trace_insn.rs")),
    ("everycall cc --mode trace-insn", So("everycall cc --mode trace-insn -- gcc -O2 -c app.c")),
    (
        "everycall cc --mode trace-insn -- gcc -O2 app.c -o app",
        So("everycall cc --mode trace-insn -- gcc -O2 app.c -o with-traces && ./with-traces"),
    ),
    (
        "qemu-x86_64 -plugin libeverycall_trace_plugin.so,out=app.device ./app",
        Not("needs QEMU; run by trace_insn.rs"),
    ),
    ("everycall import app.device", Not("needs QEMU; run by trace_insn.rs")),
    ("cargo xtask bench cost", Not(LONG)),
    ("cargo xtask bench min-duration", Not(LONG)),
    ("cargo xtask bench min-duration --quick", Not(LONG)),
    ("cargo vendor", Not("fetches the sources of another program, which is measured")),
    ("cargo build --release", Not("builds another program, ripgrep, as one of the cases")),
    ("cargo test --release -p everycall-tests --test recording kills::out_of_memory", Not(SUITE)),
    ("cargo test --release -p everycall-tests --test recording many_threads::", Not(SUITE)),
    ("cargo test --release -p everycall-tests --test recording large_files::", Not(SUITE)),
    ("cargo test --release -p everycall-tests --test recording as_counted", Not(SUITE)),
    ("cargo test -p everycall-tests --test reading trees::", Not(SUITE)),
    ("cargo test --release -p everycall-runtime", Not(SUITE)),
    ("cargo test --release -p everycall-runtime dropped", Not(SUITE)),
    ("RUSTFLAGS=\"--cfg loom\" cargo test --release -p everycall-ring --test taken_back", Not(SUITE)),
    ("cargo test --release -p everycall-runtime switch -- --nocapture", Not(SUITE)),
    (
        "cargo +nightly miri test -p everycall-ring -p everycall-format -p everycall-patch -p everycall-reader --lib",
        Not("needs a nightly toolchain; a part of the test suite"),
    ),
    (
        "RUSTFLAGS=\"--cfg loom\" LOOM_MAX_PREEMPTIONS=2 cargo test --release -p everycall-ring --test loom by_pinning",
        Not(SUITE),
    ),
    (
        "LOOM_MAX_PREEMPTIONS=2 RUSTFLAGS=\"--cfg loom\" cargo test --release -p everycall-ring --test loom by_the_segment",
        Not(SUITE),
    ),
    ("RING_STRESS_SECONDS=5 cargo test --release -p everycall-ring --test stress -- --nocapture", Not(SUITE)),
    (
        "RUSTFLAGS=\"-Zsanitizer=thread\" RING_STRESS_SECONDS=30 cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --release -p everycall-ring --test stress -- --nocapture",
        Not("needs a nightly toolchain; a part of the test suite"),
    ),
    (
        "RUSTFLAGS=\"-Zsanitizer=thread\" cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --release -p everycall-runtime --lib tests::scripts",
        Not("needs a nightly toolchain; a part of the test suite"),
    ),
    ("cargo bench -p everycall-ring --bench advance", Not(LONG)),
    ("cargo run --release -p everycall-import --example speed SOURCE", Not(LONG)),
    (
        "cargo run --release -p everycall-symbols --example symbolize -- FILE --quiet",
        Not("an example of ours, for whoever works on it"),
    ),
    ("EVERYCALL_FULL=1", Not(SUITE)),
    ("EVERYCALL_FULL=1 cargo nextest run -p everycall-tests --test rust rust_real::", Not(SUITE)),
    ("cargo nextest run -p everycall-tests --test rust rust_tokio::", Not(SUITE)),
    ("EVERYCALL_PROGRAMS=1800", Not(SUITE)),
    ("EVERYCALL_SCRIPTS=10000", Not(SUITE)),
];
