"""`python -m everycall [OPTIONS] script.py [ARGUMENTS]`: `everycall record`, or `count`, of a Python program.

The program is run by a plain `python script.py`, whose start everycall.pth makes record.
"""

import os
import re
import site
import subprocess
import sys
import sysconfig

import everycall
from everycall import _command

USAGE = """\
Record the calls of a Python program

Usage: python -m everycall [OPTIONS] [--] SCRIPT [ARGUMENTS]...
       python -m everycall [OPTIONS] -m MODULE [ARGUMENTS]...
       python -m everycall [OPTIONS] -c CODE [ARGUMENTS]...
       python3.14 -m everycall attach PID [OPTIONS]     records a program that runs already (attach --help)
       python3.14 -m everycall detach PID

Options:
      --c-functions    Also record calls of builtins and of methods of types in C
      --arguments      Show arguments and results of each call, up to 480 characters
      --events LIST    Show these on the timeline: import, logging, gc, or all
      --selected       Record only functions that are decorated with @everycall.select
      --max-depth N    Record only calls with fewer than N calls around them in their thread
      --count          Count each function's calls instead of recording them
      --time           Count, and measure times: own, with what is called, percentiles
      --memory         Count, and measure what calls allocate: bytes and blocks

The others are those of `everycall record`; the trace is SCRIPT.ect unless -o names another.
With --count, --time or --memory, the others are those of `everycall count`, which prints a table.
Processes that the program starts are recorded into the same file.
"""


def fail(sentence):
    sys.stderr.write(f"everycall: {sentence}\n")
    sys.exit(2)


def valued_options(command, verb):
    """Options of `everycall VERB` that take the next argument, as its help tells."""
    text = subprocess.run([command, verb, "--help"], stdout=subprocess.PIPE, check=False).stdout.decode()
    lines = re.findall(r"^ +(?:(-\w), )?(--[\w-]+) <", text, re.MULTILINE)
    return {option for line in lines for option in line if option}


def divided(arguments, valued):
    """Options, and the program with its arguments as Python takes them."""
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument == "--":
            return arguments[:at], arguments[at + 1 :]
        if argument in ("-m", "-c") or not argument.startswith("-"):
            return arguments[:at], arguments[at:]
        at += 2 if argument in valued else 1
    return arguments, []


def understood(arguments, command):
    """`count` or `record`, its options, and the program with its arguments, which may look like options of ours."""
    for verb in ["count"] * any(argument in COUNTING for argument in arguments) + ["record"]:
        options, program = divided(arguments, valued_options(command, verb) | {"--events", "--max-depth"})
        if verb == "record" or any(option in COUNTING for option in options):
            break
    return verb, options, program


EVENTS = ("import", "logging", "gc")
COUNTING = ("--count", "--time", "--memory")


def own(options):
    """What is wanted by the options that `everycall record` doesn't know, and the other options."""
    wanted, others = [], []
    words = iter(options)
    for word in words:
        if word in ("--c-functions", "--arguments", "--selected"):
            wanted.append(word[2:])
        elif word == "--max-depth" or word.startswith("--max-depth="):
            depth = word.partition("=")[2] if "=" in word else next(words, "")
            if not depth.isdecimal() or not 0 < int(depth) < 2**32:
                fail(f"--max-depth takes a number of calls from 1 on, not {depth!r}")
            wanted.append(f"max-depth={int(depth)}")
        elif word == "--events" or word.startswith("--events="):
            listed = word.partition("=")[2] if "=" in word else next(words, "")
            events = EVENTS if listed == "all" else listed.split(",")
            unknown = [event for event in events if event not in EVENTS]
            if unknown:
                fail(f"--events takes {', '.join(EVENTS)}, with commas between them, or all; not {unknown[0]!r}")
            wanted += events
        else:
            others.append(word)
    return wanted, others


def name_of(program):
    """For the trace's file."""
    if program[0] == "-c":
        return "python"
    if program[0] == "-m":
        return program[1].split(".")[0] if len(program) > 1 else "python"
    return os.path.splitext(os.path.basename(program[0].rstrip("/")))[0] or "python"


def check_installation():
    """Whether a Python that starts finds everycall.pth."""
    if everycall._hook is None:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            fail("this is a free-threaded Python, whose calls everycall can't record: use the build with the global lock (python3)")
        fail(f"this installation isn't for this Python ({everycall._refusal}); in a checkout of everycall, run: {sys.executable} -m pip install --force-reinstall ./python")
    if sys.flags.no_site:
        fail("python -S leaves out the start of everycall: run it without -S")
    folder = os.path.dirname(os.path.dirname(os.path.abspath(everycall.__file__)))
    folders = site.getsitepackages() + ([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])
    is_there = os.path.exists(os.path.join(folder, "everycall.pth"))
    if not is_there or not any(os.path.exists(known) and os.path.samefile(folder, known) for known in folders):
        fail(
            f"{folder} isn't a folder whose .pth files this Python reads, so it can't record from its start; install everycall "
            f"there instead; in a checkout of everycall, run: {sys.executable} -m pip install ./python"
        )


def count_objects():
    """Has Python take each object from the C library, where allocations are counted."""
    if sys.flags.ignore_environment:
        fail("--memory needs PYTHONMALLOC in the environment, which -E and -I have Python ignore: run it without them")
    os.environ.setdefault("PYTHONMALLOC", "malloc")


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.stdout.write(USAGE)
        sys.exit(0 if arguments else 2)
    # A script of that name is ./attach.
    if arguments[0] in ("attach", "detach"):
        from everycall import _attach

        sys.exit(_attach.main(arguments[0], arguments[1:], valued_options, own))
    check_installation()
    command = _command.find() or fail(_command.MISSING)
    verb, options, program = understood(arguments, command)
    wanted, options = own(options)
    if not program:
        fail("which program? Name a script, or -m MODULE, or -c CODE: python -m everycall [OPTIONS] SCRIPT [ARGUMENTS]")
    if verb == "count":
        drawn = [word for word in wanted if word in ("arguments", *EVENTS)]
        if drawn:
            fail(f"--{drawn[-1]} is about a timeline, which a count doesn't have: leave out {' and '.join(set(options) & set(COUNTING))}, or that")
        if "--memory" in options:
            count_objects()
        options = [option for option in options if option != "--count"]
    elif not any(re.match(r"-o|--output($|=)", option) for option in options):
        options = [*options, "-o", name_of(program) + ".ect"]
    wanted = ",".join(["1", *wanted])
    os.environ["EVERYCALL_PYTHON"] = wanted
    # With -E and -I, Python ignores the variable: an option asks this very interpreter.
    option = ["-X", f"everycall={wanted}"] if sys.flags.ignore_environment else []
    python = [sys.executable, *subprocess._args_from_interpreter_flags(), *option, *program]
    line = [command, verb, "--preload", *options, "--", *python]
    try:
        os.execv(command, line)
    except OSError as error:
        fail(f"{command} can't be run: {error.strerror}")


main()
