# A command for gdb: everycall snapshot FILE
#
# Writes a trace of the process that gdb looks at, live or a core, as it stands now. Printed by `everycall gdb-script`, for the
# version of everycall that the program was built with.

import os
import re
import subprocess
import tempfile

import gdb

# The everycall that printed this.
EVERYCALL = @EVERYCALL@
VERSION = @VERSION@
PAGE = 4096
# Where fields lie, and their bytes.
HEADER = @HEADER@
DROPPED = @DROPPED@
THREAD = @THREAD@
SEGMENT = @SEGMENT@
FRAMES = @FRAMES@
KEPT_STATES_SIZE = @KEPT_STATES_SIZE@
DROPPED_FUNCTION_SIZE = @DROPPED_FUNCTION_SIZE@
DROPPED_FUNCTIONS = @DROPPED_FUNCTIONS@
DROPPED_OTHERS = @DROPPED_OTHERS@
TIME_SUMS_SIZE = @TIME_SUMS_SIZE@
FRAMES_SIZE = @FRAMES_SIZE@
THREAD_SIZE = @THREAD_SIZE@
SEGMENT_SIZE = @SEGMENT_SIZE@
CLEARING = @CLEARING@
MODULE_SIZE = @MODULE_SIZE@
CHILD_SIZE = @CHILD_SIZE@
OPEN_CALL_SIZE = @OPEN_CALL_SIZE@
BLOCK = 1 << 20


class Memory:
    """The arena in the process: offsets from its beginning."""

    def __init__(self, inferior, base):
        self.inferior = inferior
        self.base = base

    def read(self, offset, size):
        return bytes(self.inferior.read_memory(self.base + offset, size))

    def number(self, offset, size):
        return int.from_bytes(self.read(offset, size), "little")

    def header(self, name):
        return self.number(*HEADER[name])

    def field(self, structure, at, name):
        offset, size = structure[name]
        return self.number(at + offset, size)


def starts(inferior):
    """Where mappings begin: those of a live process, or the parts of a core."""
    found = set()
    for command, pattern in (
        ("info proc mappings", r"^\s*0x([0-9a-f]+)\s+0x[0-9a-f]+\s"),
        ("maintenance info sections", r"0x([0-9a-f]+)->0x[0-9a-f]+ at 0x[0-9a-f]+: load"),
    ):
        try:
            text = gdb.execute(command, to_string=True)
        except gdb.error:
            continue
        found.update(int(start, 16) for start in re.findall(pattern, text, re.MULTILINE))
    return sorted(found)


def find(inferior):
    """The arena of this process, or else that of its parent."""
    found = []
    for start in starts(inferior):
        memory = Memory(inferior, start)
        try:
            if memory.read(0, 8) == b"everycal" and memory.header("target_pid") != 0:
                found.append(memory)
        except gdb.MemoryError:
            pass
    if not found:
        raise gdb.GdbError(
            "everycall: this process has no everycall arena. Either the program isn't built for tracing (build it with\n"
            "everycall cc -- g++ ...), or the core was written without shared memory (set bit 1 of\n"
            "/proc/PID/coredump_filter before the crash)."
        )
    own = [memory for memory in found if memory.header("target_pid") == inferior.pid]
    memory = (own or found)[0]
    if memory.header("version") != VERSION:
        raise gdb.GdbError(
            "everycall: the program's arena has version %d, and this script reads version %d. Print the script with the\n"
            "everycall that the program was built with: everycall gdb-script" % (memory.header("version"), VERSION)
        )
    if not own:
        print(
            "everycall: these are the calls of process %d, not of %d. It is the parent of a forked child that has no arena of\n"
            "its own yet, or the same process under its number in a container."
            % (memory.header("target_pid"), inferior.pid)
        )
    return memory


def tables(memory):
    """Offsets and sizes of what is in use in front of the threads."""
    count = lambda used, capacity: min(memory.header(used), memory.header(capacity))
    yield 0, PAGE
    yield memory.header("modules_offset"), count("modules", "module_capacity") * MODULE_SIZE
    yield memory.header("children_offset"), count("children", "child_capacity") * CHILD_SIZE
    yield memory.header("paths_offset"), count("paths", "paths_size")


def open_call_bytes(memory, stack, capacity):
    """Bytes of an open-call stack in use: after the sentinel, the first entry whose word is zero ends it."""
    step = 128
    for first in range(1, capacity, step):
        count = min(step, capacity - first)
        entries = memory.read(stack + first * OPEN_CALL_SIZE, count * OPEN_CALL_SIZE)
        for place in range(count):
            at = place * OPEN_CALL_SIZE
            if entries[at : at + 8] == bytes(8):
                return (first + place) * OPEN_CALL_SIZE
    return capacity * OPEN_CALL_SIZE


def threads(memory):
    """Offsets and sizes of what is in use of threads."""
    threads, first = memory.header("threads_offset"), memory.header("open_calls_offset")
    capacity, most = memory.header("open_call_capacity"), memory.header("thread_capacity")
    count = min(memory.header("threads"), most)
    yield threads, count * THREAD_SIZE
    for index in range(count):
        stack = memory.field(THREAD, threads + index * THREAD_SIZE, "open_calls") - 1
        if 0 <= stack < most:
            at = first + stack * memory.header("open_call_stride")
            try:
                size = open_call_bytes(memory, at, capacity)
            except gdb.MemoryError:
                # A core has no stack that wasn't used, as in a process that only counts.
                continue
            yield at, size


def counts(memory):
    """Offsets and sizes of what was counted: calls that aren't recorded, all calls beside the rings, times and memory of
    calls. A core has none of it where nothing was counted."""
    table = memory.header("dropped_offset")
    functions = memory.header("functions") or DROPPED_FUNCTIONS
    try:
        places = min(memory.field(DROPPED, table, "places"), functions)
        is_counting = memory.field(DROPPED, table, "counting") != 0
        drops = memory.field(DROPPED, table, "highest_ns") != 0
    except gdb.MemoryError:
        return
    yield table, PAGE + places * DROPPED_FUNCTION_SIZE
    capacity = memory.header("thread_capacity")
    # Arrays of a thread slot: where the first one is, and the bytes of a function in it.
    arrays = []
    if is_counting or drops:
        arrays.append((memory.header("open_calls_offset") + capacity * memory.header("open_call_stride"), 8))
    if not is_counting:
        arrays.append((memory.header("all_calls_offset"), 8))
    elif memory.header("times_offset") != 0:
        arrays.append((memory.header("times_offset"), TIME_SUMS_SIZE))
    for first, size in arrays:
        for slot in range(min(memory.header("threads"), capacity)):
            at = first + slot * functions * size
            yield at, places * size
            # This place is that of functions that found no other one.
            yield at + DROPPED_OTHERS * size, size


def frames(memory):
    """Offset and size of the names of frames by id, where the program has told some."""
    at = memory.header("frames_offset")
    try:
        used = memory.field(FRAMES, at, "used") if at != 0 and memory.field(FRAMES, at, "is_used") != 0 else 0
    except gdb.MemoryError:
        return
    if used != 0:
        yield at, min(FRAMES_SIZE + used, memory.header("frames_size"))


def segments(memory):
    """Offsets and sizes of the segments that hold something, and of their table."""
    table, first = memory.header("segment_table_offset"), memory.header("segments_offset")
    count = min(memory.header("segments_taken"), memory.header("segment_capacity"))
    yield table, count * SEGMENT_SIZE
    size = memory.header("segment_size")
    entries = memory.read(table, count * SEGMENT_SIZE) if count else b""
    place, width = SEGMENT["pins"]
    for index in range(count):
        at = index * SEGMENT_SIZE + place
        pins = int.from_bytes(entries[at : at + width], "little")
        if pins != 0 and not pins & CLEARING:
            yield first + index * size, size


def states(memory):
    """Offset and size of the scheduling events that the recorder has put there."""
    at = memory.header("states_offset")
    if at != 0:
        yield at, KEPT_STATES_SIZE


def copy(memory, output):
    """Writes the arena as far as it is in use, each part in its place; the rest is a hole."""
    for area in (tables, threads, counts, frames, segments, states):
        for offset, size in area(memory):
            for part in range(0, size, BLOCK):
                try:
                    bytes_there = memory.read(offset + part, min(BLOCK, size - part))
                except gdb.MemoryError:
                    if area not in (counts, frames, states):
                        raise
                    continue
                output.seek(offset + part)
                output.write(bytes_there)
    output.truncate(memory.header("arena_size"))


class Everycall(gdb.Command):
    """Commands for programs that everycall traces."""

    def __init__(self):
        super().__init__("everycall", gdb.COMMAND_DATA, gdb.COMPLETE_NONE, True)


class Snapshot(gdb.Command):
    """Write a trace of this process, live or a core, as it stands now.

Usage: everycall snapshot FILE

FILE is shown by `everycall replay FILE` and the like."""

    def __init__(self):
        super().__init__("everycall snapshot", gdb.COMMAND_DATA, gdb.COMPLETE_FILENAME)

    def invoke(self, argument, from_tty):
        words = gdb.string_to_argv(argument)
        if len(words) != 1:
            raise gdb.GdbError("everycall: name one file to write, as in: everycall snapshot app.ect")
        inferior = gdb.selected_inferior()
        if inferior.pid == 0:
            raise gdb.GdbError("everycall: there is no process; start one (run), attach to one, or open a core (core-file)")
        path = os.path.abspath(os.path.expanduser(words[0]))
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise gdb.GdbError("everycall: there is no folder %s for the trace; create it, or name a file in another one" % folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise gdb.GdbError("everycall: nothing can be written into %s; name a file in a folder that you may write to" % folder)
        memory = find(inferior)
        try:
            # In the same folder: it may be large, and there is room for the trace, too.
            with tempfile.NamedTemporaryFile(dir=folder, prefix=".everycall-") as image:
                copy(memory, image)
                image.flush()
                command = [EVERYCALL, "core", "-o", path, image.name]
                code = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        except OSError as error:
            raise gdb.GdbError("everycall: no trace can be written into %s: %s; name a file in another folder" % (folder, error.strerror or error))
        if code != 0:
            raise gdb.GdbError("everycall: no trace was written; %s ended with %d" % (EVERYCALL, code))


Everycall()
Snapshot()
