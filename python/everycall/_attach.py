"""`python -m everycall attach PID` and `detach PID`: records a program that runs already, by a script
that the interpreter has it run (sys.remote_exec() of Python 3.14).
"""

import ast
import ctypes
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

import everycall
from everycall import _command

USAGE = """\
Record a Python program that runs already, then leave it as it was

Usage: python3.14 -m everycall attach PID [OPTIONS]
       python3.14 -m everycall detach PID

Options:
      --only PATTERN    Record these functions only; may be given several times
      --not PATTERN     Leave these out; may be given several times
      --trigger COND    Keep calls that meet a condition, such as 'app.handle > 20ms', as `everycall trigger` does
      --ring-size SIZE  Memory for each thread's newest events, such as 8M [default: 1M]
      --c-functions     Also record calls of builtins and of methods of types in C
      --arguments       Show arguments and results of each call, up to 480 characters
      --events LIST     Show these on the timeline: import, logging, gc, or all
      --stay            Return at once, and let it record until `detach`: `everycall snapshot PID` writes a
                        file, `everycall trace` and `trigger` work as well

The others are those of `everycall trace` (--for 10s, -o FILE, --stream, ...), or with --trigger those of
`everycall trigger`. Without --for, it records until Ctrl-C or the program's end.
The program needs Python 3.14 or later, of the same version as the one that attaches.
"""

# Before it is said what is waited for, and between two attempts to wake the program.
PATIENCE = 2.0
NUDGE_TIME = 0.5

# Run by the program, in a namespace of its own. It says nothing and raises nothing there.
SCRIPT = """\
def answer():
    import os
    try:
        import sys
        package = sys.modules.get("everycall")
        if package is None:
            from importlib.util import module_from_spec, spec_from_file_location
            spec = spec_from_file_location(
                "everycall", os.path.join({package!r}, "__init__.py"), submodule_search_locations=[{package!r}])
            package = sys.modules["everycall"] = module_from_spec(spec)
            try:
                spec.loader.exec_module(package)
            except BaseException:
                del sys.modules["everycall"]
                raise
        from everycall import _attached
        said = _attached.{call}
    except KeyboardInterrupt:
        said = {{"error": "it was interrupted"}}
        import _thread
        _thread.interrupt_main()
    except BaseException as error:
        said = {{"error": f"the program can't load everycall from {package}: {{type(error).__name__}}: {{error}}"}}
    try:
        with open({answers!r} + "/said", "w") as file:
            file.write(repr(said))
        os.rename({answers!r} + "/said", {answers!r} + "/answer")
    except OSError:
        pass
answer()
"""
# In place of one for which nobody waits any more.
GIVEN_UP = "import shutil; shutil.rmtree({folder!r}, ignore_errors=True)\n"


class Refused(Exception):
    """Why a program can't be attached to, as a sentence; and the exit status."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


def version_of(pid):
    """(3, 13), as the names of its files tell; None if it isn't Python."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            text = file.read() + os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None
    found = re.search(r"/(?:lib)?python(\d)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def request(pid, script):
    """Has a process run a script soon."""
    own = "%d.%d" % sys.version_info[:2]
    try:
        sys.remote_exec(pid, script)
        return
    except PermissionError:
        raise Refused(
            f"no permission to change process {pid}: attach as root, or as its user where the kernel lets one (sysctl "
            "kernel.yama.ptrace_scope is 0, and the process isn't protected)"
        ) from None
    except ProcessLookupError:
        raise Refused(f"there is no process {pid}") from None
    except (RuntimeError, OSError) as error:
        said = str(error)
    if not is_running(pid):
        raise Refused(f"there is no process {pid}")
    if said == "Remote debugging is not enabled":
        raise Refused("this Python was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug, so it can't attach: start it without")
    if "not enabled in the remote process" in said:
        raise Refused(f"process {pid} was started with PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote-debug, so it can't be attached to: start it without")
    other = version_of(pid)
    if other is None:
        raise Refused(f"process {pid} doesn't run Python, as far as its files tell ({said})")
    if other < (3, 14):
        raise Refused(
            f"process {pid} runs Python {other[0]}.{other[1]}, which can't be attached to, as 3.14 is the first that can: start it by "
            "python -m everycall, or call everycall.load() in it"
        )
    if other != sys.version_info[:2]:
        raise Refused(f"process {pid} runs Python {other[0]}.{other[1]} and this is {own}: attach by the same version, python{other[0]}.{other[1]} -m everycall attach {pid}")
    raise Refused(f"process {pid} can't be attached to: {said}")


def nudge(pid):
    """Wakes a process's main thread from waiting for events, as an idle event loop does: the kernel
    ends some system calls of a thread that a debugger stops for a moment. Others go on, unnoticed.
    """
    seize, interrupt, detach, of_all_kinds = 0x4206, 0x4207, 17, 0x40000000
    ptrace = ctypes.CDLL(None).ptrace
    ptrace.argtypes, ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
    if ptrace(seize, pid, 0, 0) != 0:
        return
    ptrace(interrupt, pid, 0, 0)
    for _ in range(100):
        stopped, status = os.waitpid(pid, os.WNOHANG | of_all_kinds)
        if stopped:
            # A signal that came at the same time is the program's.
            number = os.WSTOPSIG(status) if os.WIFSTOPPED(status) and not status >> 16 else 0
            ptrace(detach, pid, 0, number)
            return
        time.sleep(0.002)


def make_readable(path, leave_out=None):
    """Lets all users read what is in a folder of ours, by descriptors that follow no link."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _make_readable(folder, leave_out)
    finally:
        os.close(folder)


def _make_readable(folder, leave_out):
    for name in os.listdir(folder):
        if name == leave_out:
            continue
        try:
            entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError:
            continue
        try:
            facts = os.fstat(entry)
            if facts.st_uid != os.geteuid():
                continue
            if stat.S_ISDIR(facts.st_mode):
                _make_readable(entry, None)
            elif stat.S_ISREG(facts.st_mode):
                os.fchmod(entry, 0o755)
        finally:
            os.close(entry)
    os.fchmod(folder, 0o755)


class Place:
    """A folder that both see. Another user's program may read it, and writes into a folder in it."""

    def __init__(self, pid):
        self.pid = pid
        self.folder = tempfile.mkdtemp(prefix="everycall-attach-")
        self.answers = os.path.join(self.folder, "answers")
        try:
            self.owner = os.stat(f"/proc/{pid}")
        except FileNotFoundError:
            self.remove()
            raise Refused(f"there is no process {pid}") from None
        os.mkdir(self.answers, 0o700)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def give(self):
        """Has another user's program reach it."""
        if os.geteuid() == self.owner.st_uid:
            return
        try:
            os.chown(self.answers, self.owner.st_uid, self.owner.st_gid, follow_symlinks=False)
        except PermissionError:
            # What follows says that it may not be attached to.
            return
        # Only what this process has put there, and never what lies in the other user's folder: a link there would
        # lead anywhere.
        make_readable(self.folder, leave_out=os.path.basename(self.answers))

    def answer(self):
        """What the program has answered, which may be anything if it is another user's; None if it hasn't."""
        path = os.path.join(self.answers, "answer")
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(f"process {self.pid} has given no answer: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise Refused(f"process {self.pid} has given an answer that isn't everycall's")
        with open(file, encoding="utf-8", errors="replace") as file:
            text = file.read(65536)
        os.unlink(path)
        try:
            said = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise Refused(f"process {self.pid} has given an answer that isn't everycall's")
        return said

    def ask(self, call, while_waiting):
        """Has the program do something, and returns what it answers; None if it ends meanwhile."""
        script = os.path.join(self.folder, "script.py")
        package = os.path.dirname(os.path.abspath(everycall.__file__))
        with open(script, "w", encoding="utf-8") as file:
            file.write(SCRIPT.format(package=package, call=call, answers=self.answers))
        self.give()
        try:
            is_seen = os.path.samefile(f"/proc/{self.pid}/root{script}", script)
        except PermissionError:
            is_seen = True
        except OSError:
            is_seen = False
        if not is_seen and os.path.exists(f"/proc/{self.pid}/root"):
            raise Refused(f"process {self.pid} has another file system, as in a container: attach from within it, with everycall installed there")
        request(self.pid, script)
        begin = nudged = time.monotonic()
        is_said = False
        try:
            while True:
                said = self.answer()
                if said is not None:
                    break
                now = time.monotonic()
                if not is_running(self.pid):
                    return None
                if now - nudged > NUDGE_TIME:
                    nudge(self.pid)
                    nudged = now
                if now - begin > PATIENCE and not is_said:
                    is_said = True
                    say(f"the main thread of process {self.pid} waits in a call that isn't Python's; {while_waiting} when that returns")
                time.sleep(0.005)
        except KeyboardInterrupt:
            with open(script, "w", encoding="utf-8") as file:
                file.write(GIVEN_UP.format(folder=self.folder))
            self.folder = os.path.join(self.folder, "is left to the program")
            raise Refused("given up", 130) from None
        for kind in ("error", "note"):
            text = "".join(character if character.isprintable() else "?" for character in str(said.get(kind) or ""))
            if text and kind == "error":
                raise Refused(f"process {self.pid}: {text}")
            if text:
                say(f"process {self.pid}: {text}")
        return said


def ring_size_of(text):
    """What the runtime takes: it would refuse others in the program's own output."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]] if found else 0
    if not 1 << 16 <= size <= 1 << 30 or size & size - 1:
        raise Refused(f"--ring-size takes a power of two from 64K to 1G, such as 256K or 8M, not {text!r}", 2)
    return text


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def say(sentence):
    sys.stderr.write(f"everycall: {sentence}\n")


def chosen(only, left_out):
    """Patterns of the command for what is chosen."""
    for pattern in left_out:
        if " & " in pattern:
            raise Refused(f"--not takes one condition here, not {pattern!r}; write it into the patterns of --only", 2)
    return [" & ".join([pattern, *("!" + other for other in left_out)]) for pattern in only or ["*"]]


def ending_signals():
    """Those that aren't ignored, as nohup has it."""
    all_of_them = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in all_of_them if signal.getsignal(number) != signal.SIG_IGN]


def end_with_parent():
    """If this process is killed, its child ends, too, and writes its file."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGTERM), 0, 0, 0)


def run(line):
    """Runs a command to its end; signals end it first, and it writes its file."""
    child = subprocess.Popen(line, process_group=0, preexec_fn=end_with_parent)
    handlers = {
        number: signal.signal(number, lambda number, frame: child.send_signal(number)) for number in ending_signals()
    }
    status = child.wait()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return status if status >= 0 else 128 - status


class Options:
    """Those of `attach`: its own, and those for `everycall trace` or `trigger`."""

    def __init__(self, arguments, valued_options, own, command):
        self.pid, self.stays, self.ring_size = None, False, None
        self.only, self.left_out, self.triggers, self.others = [], [], [], []
        lists = {"--only": self.only, "--not": self.left_out, "--trigger": self.triggers}
        wanted, arguments = own(arguments)
        self.wanted = tuple(wanted)
        verb = "trigger" if any(re.match("--trigger($|=)", argument) for argument in arguments) else "trace"
        valued = valued_options(command, verb)
        words = iter(arguments)
        for word in words:
            name, has_value, value = word.partition("=")
            if name in lists or name == "--ring-size":
                if not has_value:
                    value = next(words, None)
                    if value is None:
                        raise Refused(f"{name} takes a value", 2)
                if name in lists:
                    lists[name].append(value)
                else:
                    self.ring_size = ring_size_of(value)
            elif word == "--stay":
                self.stays = True
            elif word.startswith("-"):
                self.others.append(word)
                if word in valued:
                    self.others.append(next(words, ""))
            elif self.pid is None and word.isdecimal() and int(word) > 0:
                self.pid = int(word)
            else:
                raise Refused(f"{word!r} isn't a process id" if self.pid is None else f"{word!r} is too much: patterns stand behind --only", 2)
        if self.pid is None:
            raise Refused("which process? python3.14 -m everycall attach PID", 2)
        if self.stays and self.triggers:
            raise Refused("--stay returns at once, and --trigger keeps calls until its end: leave one of them out", 2)
        if self.stays and any(word not in ("-q", "--quiet") for word in self.others):
            word = next(word for word in self.others if word not in ("-q", "--quiet"))
            raise Refused(f"--stay writes no file, so {word} has no meaning: everycall snapshot {self.pid} writes one", 2)
        self.patterns = chosen(self.only, self.left_out)


def check():
    if sys.version_info < (3, 14):
        raise Refused(
            "a program that runs can be attached to from Python 3.14 on, and this is %d.%d: run this by the program's own interpreter" % sys.version_info[:2]
        )
    if not everycall._hook:
        raise Refused(everycall._refusal)


def attach(options, command):
    place = Place(options.pid)
    try:
        _command.put_runtime(place.folder)
        owner = None if options.stays else os.getpid()
        call = f"begin({place.folder!r}, {options.ring_size!r}, {options.wanted!r}, {owner!r})"
        if place.ask(call, "recording begins") is None:
            raise Refused(f"process {options.pid} ended before recording began")
        try:
            status = record(options, command)
        except BaseException:
            end(place, command)
            raise
        if options.stays and status == 0:
            if not {"-q", "--quiet"} & set(options.others):
                say(f"process {options.pid} records from now on: everycall snapshot {options.pid} writes a file, python3.14 -m everycall detach {options.pid} ends it")
        else:
            end(place, command)
        return status
    finally:
        place.remove()


def end(place, command):
    """Has the program be as before, if it is still there."""
    try:
        said = place.ask("end()", "the hook is taken off")
    except Refused:
        if is_running(place.pid):
            raise
        return
    if said and said.get("is_alone"):
        subprocess.run([command, "disable", "-q", str(place.pid)], stderr=subprocess.DEVNULL, check=False)


def record(options, command):
    pid = str(options.pid)
    if not options.stays and not options.triggers:
        return run([command, "trace", pid, *options.others, *options.patterns])
    selection = ["--only", pid, *options.patterns] if options.only or options.left_out else [pid]
    status = run([command, "enable", "-q", *selection])
    if status == 0 and options.triggers:
        status = run([command, "trigger", pid, *options.others, *options.triggers])
    return status


def detach(arguments, command):
    if len(arguments) != 1 or not arguments[0].isdecimal():
        raise Refused("which process? python3.14 -m everycall detach PID", 2)
    place = Place(int(arguments[0]))
    try:
        if not is_running(place.pid):
            raise Refused(f"there is no process {place.pid}")
        end(place, command)
    finally:
        place.remove()
    return 0


def main(verb, arguments, valued_options, own):
    """Runs the verb; the exit status."""
    if "-h" in arguments or "--help" in arguments or not arguments:
        sys.stdout.write(USAGE)
        return 0 if arguments else 2
    # These end it as Ctrl-C does.
    for number in ending_signals():
        signal.signal(number, signal.default_int_handler)
    try:
        check()
        command = _command.find()
        if not command:
            raise Refused(_command.MISSING)
        if verb == "detach":
            return detach(arguments, command)
        return attach(Options(arguments, valued_options, own, command), command)
    except (Refused, RuntimeError) as refused:
        say(refused)
        return getattr(refused, "status", 1)
    except KeyboardInterrupt:
        return 130
