"""The cost of recording pyperformance's programs: `python3 compare.py PYTHON BENCHMARKS`.

PYTHON has everycall installed; BENCHMARKS is pyperformance's folder `data-files/benchmarks`. Each
program is run plain and recorded in turn; printed are medians of the CPU time of the benchmark, their
ratio, the time that recording adds to the program's start and end (wall time), and bytes an event.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Program, loops, more options.
CASES = [
    ("fib.py", 2, []),
    ("bm_richards", 3, []),
    ("bm_json_loads", 60, []),
    ("bm_json_dumps", 3, []),
    ("bm_regex_effbot", 3, []),
    ("bm_regex_compile", 1, []),
    ("bm_async_tree", 1, ["none"]),
    ("fib.py", 2, ["--c-functions"]),
    ("bm_json_loads", 60, ["--c-functions"]),
]


def main():
    python, benchmarks = sys.argv[1:3]
    repetitions = int(os.environ.get("REPETITIONS", "7"))
    print(f"{'program':<34}{'plain s':>9}{'recorded s':>12}{'ratio':>7}{'+wall s':>9}{'events':>12}{'B/event':>9}")
    for name, loops, words in CASES:
        options = [word for word in words if word.startswith("--")]
        arguments = [word for word in words if not word.startswith("--")]
        script = os.path.join(HERE, name) if name.endswith(".py") else os.path.join(benchmarks, name, "run_benchmark.py")
        environment = {**os.environ, "PYTHONPATH": HERE, "LOOPS": str(loops)}
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.ect")
            recording = [python, "-m", "everycall", "-o", trace, *options, script, *arguments]
            sums = {True: [], False: []}
            for _ in range(repetitions):
                for is_recorded in (False, True):
                    command = recording if is_recorded else [python, script, *arguments]
                    start = time.monotonic()
                    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
                    wall = time.monotonic() - start
                    found = re.search(r"^CPU (\S+)", ended.stderr, re.M)
                    if not found:
                        sys.exit(f"{command} failed: {ended.stderr[-500:]}")
                    sums[is_recorded].append((float(found[1]), wall))
            said = re.search(r"everycall: ([\d,]+) events of .*?, ([\d.]+ \w+) in", ended.stderr)
            size = os.path.getsize(trace)
        plain, recorded = (statistics.median(cpu for cpu, _ in sums[is_recorded]) for is_recorded in (False, True))
        rest = [statistics.median(wall - cpu for cpu, wall in sums[is_recorded]) for is_recorded in (False, True)]
        events = int(said[1].replace(",", "")) if said else 0
        print(
            f"{' '.join([name, *words]):<34}{plain:>9.3f}{recorded:>12.3f}{recorded / plain:>7.2f}{rest[1] - rest[0]:>9.3f}"
            f"{events:>12,}{size / max(events, 1):>9.2f}", flush=True,
        )


main()
