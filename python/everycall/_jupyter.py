"""The magic `%%everycall` of IPython and Jupyter."""

import os
import shlex
import subprocess

import everycall
from everycall import _command

USAGE = "%%everycall [-o FILE] [c-functions] [arguments] [import] [logging] [gc]"


def register(shell):
    everycall.load(os.environ.get("EVERYCALL_RING_SIZE", "8M"))

    def record(line, cell):
        """Records the calls of a cell into cell.ect, or the file of -o, and prints the functions that took longest."""
        path, wanted = "cell.ect", []
        words = iter(shlex.split(line))
        for word in words:
            if word == "-o":
                path = next(words, None)
            else:
                wanted.append(word)
        if not path or any(word not in everycall.WANTED for word in wanted):
            print(f"everycall: the magic is used so: {USAGE}")
            return
        since = everycall.now()
        everycall.start(*wanted)
        try:
            shell.run_cell(cell)
        finally:
            everycall.stop()
            ticks = everycall.now() - since
            everycall.snapshot(path, since=since)
        # The file has whole segments, so perhaps the end of an earlier cell, too.
        last = f"{ticks * 1_000_000_000 // everycall._hook.ticks_per_second()}ns"
        report = [_command.find(), "report", "--limit", "10", "--last", last, path]
        shown = subprocess.run(report, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        print(shown.stdout.decode(errors="replace"), end="")
        print(f"everycall view {path} shows the timeline")

    shell.register_magic_function(record, magic_kind="cell", magic_name="everycall")
