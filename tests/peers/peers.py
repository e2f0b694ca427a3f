"""Runs the programs of tests/trees under other tracers, and compares what they show with the programs' expected trees.

    python3 tests/peers/peers.py [--funtrace FOLDER] [--level -O2] [--show] [PROGRAM...]

uftrace has to be installed; FOLDER is a checkout of funtrace with its `funtrace2viz` built (cargo build --release). For each program
and way of instrumentation: `right`, where the same calls are nested in the same way on each stack, or the first difference. What only everycall shows (how
a call ended, `throw` and `catch`) isn't compared. Nor are the tracers' own limits of depth: they are raised.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

TREES = pathlib.Path(__file__).resolve().parent.parent / "trees"
# What a program tells everycall, it tells nobody without it.
HEADERS = TREES.parent.parent / "crates" / "building" / "kit" / "include"
WAYS = {
    # name: (C compiler, C++ compiler, flags, options of `uftrace record`, label of the everycall mode with the same calls)
    "uftrace -pg": ("gcc", "g++", ["-pg"], [], "gcc-fentry"),
    "uftrace fentry": ("gcc", "g++", ["-pg", "-mfentry"], [], "gcc-fentry"),
    "uftrace finstrument": ("gcc", "g++", ["-finstrument-functions"], [], "gcc-finstrument"),
    "uftrace xray": ("clang-19", "clang++-19", ["-fxray-instrument", "-fxray-instruction-threshold=1"], ["-P", "."], "clang-19-xray"),
    "funtrace fentry": ("gcc", "g++", ["-pg", "-mfentry", "-minstrument-return=call"], None, "gcc-fentry"),
    "funtrace finstrument": ("gcc", "g++", ["-finstrument-functions"], None, "gcc-finstrument"),
    "funtrace after-inlining": ("clang-19", "clang++-19", ["-finstrument-functions-after-inlining"], None, "clang-19-after-inlining"),
}
HIDDEN = re.compile(r"^(std::|__gnu_cxx::|__cxa_|operator new|operator delete|new$|delete$|_fini|_init|fresh_|_GLOBAL__)")
SECONDS = 20
AT_EXIT = """
#include "funtrace.h"
extern "C" int traced_main(int, char**);
int main(int count, char** arguments) {
    int status = traced_main(count, arguments);
    funtrace_pause_and_write_current_snapshot();
    return status;
}
"""
sys.setrecursionlimit(300_000)


def head(path):
    """The programs' flags and runs, as tests/tests/reading/trees.rs reads them."""
    flags, library, not_in, rows, hidden, behind = [], None, [], [], [], []
    runs = [([], rows, [])]
    for line in path.read_text().splitlines():
        if not line.startswith("//"):
            break
        if found := re.match(r"//([\w-]*)\| ?(.*)", line):
            runs[-1][1].append((found[1], found[2]))
        elif found := re.match(r"// ([\w ]+): *(.*)", line):
            key, value = found[1], found[2].split()
            if key == "flags":
                flags = value
            elif key == "library":
                library = value[0]
            elif key == "hidden":
                hidden = value
            elif key == "behind":
                behind = behind or value
            elif key == "not in":
                not_in = value
            elif key == "run":
                runs.append((value, [], []))
            elif key == "ends":
                runs[-1][2].append(found[2].strip())
    return flags, library, not_in, [run for run in runs if run[1]], hidden, behind


def name_of(text):
    """A function's plain name: without result, parameters and what part it is."""
    text = text.replace("(anonymous namespace)", "{anonymous}")
    text = re.sub(r" \[\w+\]$", "", text)
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)( const)?", "", text)) != text:
        text = shorter
    return text.split(" ")[-1]


def expected(rows, label):
    """Of each stack, (depth, name) for each call; and which functions call themselves nobody knows how often."""
    stacks, lines, loose = [[]], [], set()

    def end():
        added, drawn = 0, []
        for index, (depth, text) in enumerate(lines):
            while drawn and depth <= drawn[-1][0]:
                added -= drawn.pop()[1]
            if text.startswith(("*", "<")):
                continue
            times, levels = 1, 1
            if found := re.search(r" ([×↓])(\d+|\*)$", text):
                text = text[: found.start()]
                number = 1 if found[2] == "*" else int(found[2])
                if found[2] == "*":
                    loose.add(name_of(text.rstrip("!")))
                times, levels = (number, 1) if found[1] == "×" else (1, number)
            name = name_of(re.sub(r"(!|=>|~|\?|\^)$", "", text))
            for _ in range(times):
                stacks[-1].extend((depth + added + level, name) for level in range(levels))
            if levels > 1:
                drawn.append((depth, levels - 1))
                added += levels - 1

    for mode, text in rows:
        if not label.startswith(mode):
            continue
        if text.startswith("--"):
            end()
            lines, _ = [], stacks.append([])
            continue
        depth = len(text) - len(text.lstrip())
        lines.append((depth // 2, text.strip()))
    end()
    return stacks, loose


def run(command, folder, seconds=SECONDS):
    """What a command says; after so many seconds it and its children are ended."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def build(path, way, folder, level, extra):
    cc, cxx, flags, _, _ = WAYS[way]
    own, library, _, _, _, behind = head(path)
    compiler = cc if path.suffix == ".c" else cxx
    common = [level, "-g", "-idirafter", str(HEADERS), *own, *flags]
    commands = [[compiler, *common, "-c", str(path), "-o", "program.o"]]
    objects = ["program.o"]
    if library:
        commands.append([compiler, *common, "-shared", "-fPIC", str(TREES / library), "-o", "liblibrary.so", *extra["shared"]])
        objects += ["./liblibrary.so"]
    link = [] if way.startswith("funtrace") else [flag for flag in flags if flag != "-finstrument-functions"]
    if way.startswith("funtrace"):
        # It has no trace at exit: its own `main` asks for one when the program's has returned.
        commands.append(["objcopy", "--redefine-sym", "main=traced_main", "program.o"])
    commands.append([cxx, level, *own, *link, *objects, *behind, *extra["link"], "-o", "program"])
    for command in commands:
        result = run(command, folder, 300)
        if result.returncode:
            return "can't be built: " + (result.stderr.strip().splitlines() or ["?"])[-1]
    return None


def of_uftrace(way, folder, arguments):
    options = ["--no-pager", "--max-stack=65535", "-b", "64M", *WAYS[way][3]]
    result = run(["uftrace", "record", *options, "-d", "data", "./program", *arguments], folder)
    text = run(["uftrace", "replay", "--no-pager", "--no-libcall", "--no-merge", "--no-comment", "-f", "tid", "-d", "data"], folder).stdout
    stacks = collections.OrderedDict()
    for line in text.splitlines():
        found = re.match(r"\s*\[ *(\d+)\] \| ( *)(.*)", line)
        if not found:
            continue
        stack = stacks.setdefault(found[1], [])
        if found[3].startswith(("}", "/*")):
            continue
        stack.append((len(found[2]) // 2, name_of(re.sub(r"\(\) \{$|\(\);$| \{$|;$", "", found[3].strip()))))
    said = [line for line in result.stderr.splitlines() if "signal" in line]
    found = re.search(r"signal:? (\d+)", said[0]) if said else None
    return list(stacks.values()), found and f"signal {found[1]}"


def of_funtrace(way, folder, arguments, checkout):
    result = run(["./program", *arguments], folder)
    raw = pathlib.Path(folder, "funtrace.raw")
    if not raw.exists():
        return [], f"signal {-result.returncode}" if result.returncode < 0 else "no trace"
    result2 = run([str(checkout / "target/release/funtrace2viz"), "funtrace.raw", "out"], folder)
    made = sorted(pathlib.Path(folder).glob("out*.json"))
    if not made:
        return [], "funtrace2viz: " + (result2.stderr.strip().splitlines() or ["?"])[-1]
    threads = collections.OrderedDict()
    events = [event for event in json.loads(made[-1].read_text())["traceEvents"] if event.get("ph") == "X"]
    for event in sorted(events, key=lambda event: (float(event["ts"]), -float(event["dur"]))):
        threads.setdefault(event["tid"], []).append(event)
    stacks = []
    for events in threads.values():
        ends, stack = [], []
        for event in events:
            start, dur = float(event["ts"]), float(event["dur"])
            while ends and ends[-1] <= start:
                ends.pop()
            stack.append((len(ends), name_of(re.sub(r" \([^()]*:\d+\)$", "", event["name"])).replace("traced_main", "main")))
            ends.append(start + dur)
        stacks.append(stack)
    return stacks, None if result.returncode == 0 else f"signal {-result.returncode}"


def without_hidden(stack, loose, parts):
    """What hidden functions called takes their place; so with the calls of itself of a function in `loose`."""
    kept, hidden, names = [], [], []
    for depth, name in stack:
        while hidden and hidden[-1] >= depth:
            hidden.pop()
        names[depth:] = [name]
        if HIDDEN.match(name) or any(part in name for part in parts) or (name in loose and names[depth - 1 : depth] == [name]):
            hidden.append(depth)
        else:
            kept.append((depth - len(hidden), name))
    return kept


def difference(wanted, seen):
    if len(seen) != len(wanted):
        what = f"{len(seen)} stacks, not {len(wanted)}; "
    else:
        what = ""
    for number, (left, right) in enumerate(zip(wanted, seen, strict=False)):
        for at in range(max(len(left), len(right))):
            a, b = (stack[at] if at < len(stack) else None for stack in (left, right))
            if a != b:
                show = lambda call: "the end" if call is None else f"{call[1]} at depth {call[0]}"
                before = f" behind {left[at - 1][1]}" if at else ""
                return f"{what}stack {number}, call {at}{before}: {show(b)}, not {show(a)}"
    return what.rstrip("; ") or None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--funtrace", type=pathlib.Path)
    parser.add_argument("--level", default="-O2")
    parser.add_argument("--way", default="")
    parser.add_argument("--show", action="store_true", help="what is seen, call by call")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    programs = [path for path in sorted(TREES.glob("*.c*")) if "_library" not in path.stem]
    if checkout := options.funtrace and options.funtrace.resolve():
        place = tempfile.TemporaryDirectory()
        pathlib.Path(place.name, "at_exit.cpp").write_text(AT_EXIT)
        runtime = [str(pathlib.Path(place.name, f"{name}.o")) for name in ("funtrace", "funtrace_pg", "at_exit")]
        sources = [checkout / "funtrace.cpp", checkout / "funtrace_pg.S", "at_exit.cpp"]
        for source, built in zip(sources, runtime, strict=True):
            run(["g++", "-O2", f"-I{checkout}", "-c", str(source), "-o", built], place.name, 300).check_returncode()
    for path in programs:
        if options.programs and path.name not in options.programs:
            continue
        for way in WAYS:
            if options.way not in way or (way.startswith("funtrace") and not options.funtrace):
                continue
            with tempfile.TemporaryDirectory() as folder:
                extra = {"link": ["-pthread"], "shared": []}
                if way.startswith("funtrace"):
                    extra["link"] += [*runtime, f"-Wl,--dynamic-list={checkout}/funtrace.dyn", "-ldl"]
                error = build(path, way, folder, options.level, extra)
                for arguments, rows, ends in [([], None, [])] if error else head(path)[3]:
                    title = f"{path.name} {' '.join(arguments)}".strip()
                    if error:
                        print(f"{title:34} {way:24} {error}", flush=True)
                        continue
                    for stale in pathlib.Path(folder).glob("funtrace.raw"):
                        stale.unlink()
                    try:
                        if way.startswith("uftrace"):
                            seen, said = of_uftrace(way, folder, arguments)
                        else:
                            seen, said = of_funtrace(way, folder, arguments, checkout)
                    except subprocess.TimeoutExpired:
                        print(f"{title:34} {way:24} hangs", flush=True)
                        continue
                    wanted, loose = expected(rows, WAYS[way][4])
                    seen = [stack for stack in (without_hidden(stack, loose, head(path)[4]) for stack in seen) if stack]
                    if options.show:
                        for stack in seen:
                            print("\n".join("  " * depth + name for depth, name in stack), "\n--")
                    found = difference(wanted, seen)
                    text = "; ".join(text for text in (said if said not in ends else None, found) if text) or "right"
                    print(f"{title:34} {way:24} {text}", flush=True)


main()
