"""Does what tracers may trip over, and prints what came of it."""

import sys
import threading


def f(n):
    return 0 if n == 0 else 1 + f(n - 1)


def endless(n):
    return endless(n + 1)


def settrace():
    lines = []

    def trace(frame, event, argument):
        if frame.f_code.co_name == "f":
            lines.append((event, frame.f_lineno))
        return trace

    sys.settrace(trace)
    f(2)
    sys.settrace(None)
    f(1)
    print(lines)


def profilers():
    import cProfile
    import pstats

    with cProfile.Profile() as profile:
        f(10)
    print(sorted((name[2], row[1]) for name, row in pstats.Stats(profile).stats.items() if name[2] == "f"))


def recursion():
    for limit in (100, 1000):
        sys.setrecursionlimit(limit)
        try:
            endless(0)
        except RecursionError as error:
            print(error)
        f(limit - 50)
    sys.setrecursionlimit(1_000_000)
    print(f(60_000))
    for size in (0, 65536):
        threading.stack_size(size)
        thread = threading.Thread(target=lambda: print(f(30_000)))
        thread.start()
        thread.join()
    print(f(10))


def interpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = __import__(name)
        except ImportError:
            continue
        other = interpreters.create()
        interpreters.run_string(other, "def g(): return 1\ng()\nprint('there', flush=True)")
        interpreters.destroy(other)
        break
    print(f(3))


def tools():
    """All tool ids that everycall may take are taken before it starts."""
    import everycall

    everycall.stop()
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "another")
    try:
        everycall.start()
    except everycall.Error as error:
        print(error)
    print(f(3), sys.monitoring.get_tool(3))


def taken():
    """Another tool takes the hook off."""
    if sys.version_info >= (3, 12):
        sys.monitoring.set_events(3, 0)
    else:
        import ctypes

        interpreter = ctypes.pythonapi.PyInterpreterState_Main
        interpreter.restype = ctypes.c_void_p
        default = ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p)
        ctypes.pythonapi._PyInterpreterState_SetEvalFrameFunc(ctypes.c_void_p(interpreter()), default)
    print(f(3))


def profiled():
    """Another tool sets a profile function, and keeps it."""
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    len("abc")
    print("c_call" in calls)


def at_once():
    """Ends without the interpreter's end, in a thread that was forked, too."""
    import os
    import warnings

    warnings.simplefilter("ignore")

    def fork():
        child = os.fork()
        if child == 0:
            f(2)
            os._exit(3)
        print(os.waitpid(child, 0)[1])

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    print(f(3), flush=True)
    os._exit(5)


def code():
    """Code objects that die: as many as there are, each is its own function."""
    for i in range(300):
        space = {}
        exec(compile(f"def dying_{i}(): pass", "dying.py", "exec"), space)
        space[f"dying_{i}"]()
        del space


def held():
    """No frame and no object outlives its call."""
    import gc
    import weakref

    class Thing:
        pass

    def use():
        thing = Thing()
        return weakref.ref(thing)

    gc.disable()
    print(sum(use()() is not None for _ in range(100)), sys.getrefcount(f) < 5)


def daemon():
    """A thread that still runs when the interpreter ends."""
    def forever():
        while True:
            f(3)

    threading.Thread(target=forever, daemon=True).start()
    print(f(3))


def uncaught():
    {}["no such key"]


def status():
    sys.exit(7)


def killed():
    import os
    import signal

    print("to be killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


globals()[sys.argv[1]]()
