"""Begins to record as Python starts: everycall.pth imports it where EVERYCALL_PYTHON begins with 1.

Behind the 1, what is wanted besides calls of Python functions: `1,c-functions,gc`. A Python that
ignores the environment (-E, -I) ignores the variable, too: only `-X everycall=1` is for it.
"""

import os
import sys

import everycall


def _say(sentence):
    try:
        sys.__stderr__.write(f"everycall: {sentence}\n")
    except (AttributeError, OSError, ValueError):
        pass


def _at_exit():
    status = everycall.status()
    if status["started"] and not status["in_place"]:
        _say("another tool has taken the hook off, so later calls of Python functions are not in the trace: run without that tool")
    elif status["started"] and not status["c_functions_in_place"]:
        _say("another tool has set a profile function, so functions in C are not in the trace from then on: run without that tool")
    if status.get("misplaced"):
        _say(f"{status['misplaced']} calls ended where they hadn't begun: something switches between stacks of calls and doesn't tell, so the nesting of calls is in doubt")
        everycall.instant("nesting in doubt: calls ended where they hadn't begun", status["misplaced"])
    if status.get("without_name"):
        _say(f"{status['without_name']} functions have no name in the trace: there was no room for more names")


def _begin():
    if everycall._hook is None:
        # An installation for another Python.
        _say(f"calls of Python functions are not recorded: {everycall._refusal}")
        return
    if not everycall._hook.is_main():
        everycall.instant("not recorded: calls in a sub-interpreter")
        return
    try:
        wanted = str(sys._xoptions.get("everycall") or os.environ["EVERYCALL_PYTHON"])
        words = [word for word in wanted.split(",")[1:] if word]
        is_started = everycall._start_words(words, True)
    except (everycall.Error, ValueError) as error:
        _say(f"calls of Python functions are not recorded: {error}")
        return
    if is_started:
        import atexit

        atexit.register(_at_exit)


_begin()
