"""Calls of Python functions on the timeline of everycall.

`python -m everycall script.py` records a whole program. Within it, these functions say more, and
choose what is recorded. In a program that isn't recorded they do nothing.
"""

import gc as _gc
import os as _os

__all__ = [
    "Error", "counter", "instant", "is_recorded", "label", "leave_out", "load", "now", "recording", "select",
    "snapshot", "span", "start", "status", "stop",
]


class Error(RuntimeError):
    """What couldn't be done, why, and what to do."""


try:
    from . import _hook
except ImportError as _error:
    _hook = None
    _refusal = str(_error)
else:
    _refusal = None
    _hook.leave_out(_os.fsencode(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "")))


def load(ring_size=None):
    """Makes this process one that is recorded, as if it had been started so: `start()`, `stop()` and
    `snapshot()` then work in a program, notebook or server that everycall didn't start.

    `ring_size` is the memory for each thread's newest events, such as "8M". Nothing is recorded until
    `start()`. Raises `Error` if the command everycall isn't there.
    """
    if is_recorded():
        return
    if not _hook:
        raise Error(_refusal)
    import tempfile

    from . import _command

    if ring_size is not None:
        _os.environ["EVERYCALL_RING_SIZE"] = str(ring_size)
    with tempfile.TemporaryDirectory(prefix="everycall-") as folder:
        _do(_command.put_runtime, folder)
        _load_from(folder)
        _hook.disable()


def _load_from(folder):
    """Loads the runtime that _command.put_runtime() has put there. The folder is no longer needed then."""
    global _hook
    import importlib.util
    import sys

    from . import _command

    _do(_hook.load, _os.fsencode(_os.path.join(folder, _command.RUNTIME)))
    # The hook that was loaded before has found no runtime, and stays so: another copy finds it.
    spec = importlib.util.spec_from_file_location(__name__ + "._hook", _os.path.join(folder, _command.HOOK))
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    hook.leave_out(_os.fsencode(_os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "")))
    for code, is_left_out in _marked:
        hook.mark(code, is_left_out)
    _hook = sys.modules[__name__ + "._hook"] = hook


def load_ipython_extension(shell):
    """`%load_ext everycall`."""
    from . import _jupyter

    _jupyter.register(shell)


def _do(function, *arguments):
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise Error(str(error)) from None


# What may be recorded besides calls of Python functions, and the hook's bits for it. (The hook isn't
# told of garbage collections: gc.callbacks tells it.)
WANTED = {"c-functions": 1, "arguments": 2, "import": 4, "logging": 8, "gc": 0, "selected": 16}


def start(*wanted, max_depth=None):
    """Records calls of Python functions from now on, in all threads of the main interpreter, and
    what of these is wanted: "c-functions", "arguments", "import", "logging", "gc"; with "selected",
    only functions that are decorated with `select`.

    With `max_depth`, calls are recorded that have fewer calls around them than that, counted in each
    thread from where recording begins; 0 lifts that.

    Without arguments, what was wanted before still is. Returns whether it records: not in a program
    that isn't recorded (`everycall record --preload`).
    """
    _check(wanted)
    if max_depth is not None and not 0 <= max_depth < 2**32:
        raise ValueError(f"max_depth is a number of calls, not {max_depth!r}")
    if not _hook:
        return False
    return _start(wanted or _wanted, True, max_depth)


def _check(wanted):
    unknown = [word for word in wanted if word not in WANTED]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(WANTED)}")


def _start(asked, is_base, max_depth=None):
    """Starts; without `is_base`, what sessions and triggers want is recorded, and no more."""
    global _wanted, _max_depth
    from . import _texts

    depth = _max_depth if max_depth is None else max_depth
    is_started = _do(_hook.start, sum({WANTED[word] for word in asked}), _texts, is_base, depth)
    if is_started:
        _wanted, _max_depth = asked, depth
        _gc_callback("gc" in asked)
    return is_started


def _start_words(words, is_base):
    """Starts with what `python -m everycall` wants: words, and perhaps `max-depth=N`."""
    depths = [word for word in words if word.startswith("max-depth=")]
    wanted = [word for word in words if word not in depths]
    _check(wanted)
    return _start(tuple(wanted), is_base, int(depths[-1].partition("=")[2]) if depths else None)


_wanted = ()
_max_depth = 0


def _gc_callback(is_wanted):
    is_there = _hook.on_gc in _gc.callbacks
    if is_wanted and not is_there:
        _gc.callbacks.append(_hook.on_gc)
    elif is_there and not is_wanted:
        _gc.callbacks.remove(_hook.on_gc)


def stop():
    """Records nothing until `start()`; calls of native functions neither."""
    _stop(True)


def _stop(is_base):
    """Stops; without `is_base`, what sessions and triggers want of native functions is still recorded."""
    if _hook:
        _do(_hook.stop, is_base)
        _gc_callback(False)


def is_recorded():
    """Whether this process is recorded by everycall, so that `start()` has an effect."""
    return bool(_hook and _hook.is_there())


def status():
    """A dict of what the hook has done: whether it is `started` and still `in_place`, and
    `c_functions_in_place` in this thread as far as they are wanted, how many
    `functions` were seen, how many `deep_calls` took it off for want of stack (Python 3.11), how many
    functions are `without_id` or `without_name`, and how many calls ended in another greenlet than
    they began in (`misplaced`).
    """
    return _hook.status() if _hook else {"started": False, "in_place": False}


def now():
    """The time in ticks of the trace's clock; 0 if the program isn't recorded."""
    return _hook.now() if _hook else 0


def label(name, value=None):
    """A name, perhaps with an int, of the innermost open call."""
    if _hook:
        _hook.label(name, value)


def instant(name, value=None):
    """An event at this moment, perhaps with an int."""
    if _hook:
        _hook.instant(name, value)


def counter(name, value):
    """A value of a time series from this moment on: an int of 64 bits, or a float. Counters belong to
    the process, so all threads may set one of the same name.
    """
    if _hook:
        _hook.counter(name, value)


# Code of decorated functions, for a hook that is loaded later.
_marked = []


def _mark(function, is_left_out):
    inner = function.__func__ if isinstance(function, (classmethod, staticmethod)) else function
    code = getattr(inner, "__code__", None)
    if code is None:
        raise TypeError(f"{'leave_out' if is_left_out else 'select'} decorates functions of Python, below other decorators, not {function!r}")
    if _hook:
        if not _hook.is_there():
            _marked.append((code, is_left_out))
        _do(_hook.mark, code, is_left_out)
    return function


def leave_out(function):
    """A decorator: calls of the function aren't recorded, nor are those that they make."""
    return _mark(function, True)


def select(function):
    """A decorator: `python -m everycall --selected` records calls of such functions, and no others."""
    return _mark(function, False)


def snapshot(path, since=None, last=None):
    """Writes what the rings hold to a trace file: all, or from `since` (a value of `now()`) on, or
    the `last` seconds.

    Returns False in a program that isn't recorded. Raises `Error` if the file can't be written.
    """
    if since is not None and last is not None:
        raise TypeError("snapshot() takes since or last, not both")
    if since is not None and (not isinstance(since, int) or since < 0):
        raise TypeError(f"since is a value of everycall.now(), not {since!r}; last takes seconds")
    if not is_recorded():
        return False
    if last is not None:
        since = max(0, _hook.now() - int(last * _hook.ticks_per_second()))
    _do(_hook.snapshot, _os.fsencode(path), since or 0)
    return True


class _Around:
    """What is done around a `with` block or the calls of a function."""

    __slots__ = ()

    def __call__(self, function):
        code = getattr(function, "__code__", None)
        # Generators, coroutines and asynchronous generators.
        if code is not None and code.co_flags & 0x2A0:
            raise TypeError(f"{type(self).__name__} decorates plain functions only: use `with` inside {function.__qualname__}")
        from functools import update_wrapper

        def around(*arguments, **named):
            with self:
                return function(*arguments, **named)

        return update_wrapper(around, function)


class span(_Around):
    """A span of time in this thread: `with span("load"):`, or `@span("load")` for a function's calls.

    With an int as its value, spans of one name are told apart.
    """

    __slots__ = ("_name", "_value")

    def __init__(self, name, value=None):
        self._name, self._value = name, value

    def __enter__(self):
        if _hook:
            _hook.span_begin(self._name, self._value)
        return self

    def __exit__(self, *exception):
        if _hook:
            _hook.span_end(self._name, self._value)


class recording(_Around):
    """Records within a block or a function's calls: `with recording():`, `@recording()`.

    After the outermost one it is as it was before: recording stops, unless it was on already.
    """

    __slots__ = ()
    _open = 0
    _was_on = False

    def __enter__(self):
        if recording._open == 0:
            recording._was_on = status()["started"]
        recording._open += 1
        if not status()["started"]:
            start()
        return self

    def __exit__(self, *exception):
        recording._open -= 1
        if recording._open == 0 and not recording._was_on:
            stop()
