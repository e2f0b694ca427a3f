"""Texts of what calls say on the timeline, for the hook: short ones, and none of them raises."""

import reprlib

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = _shown.maxlong = 60
_shown.maxlevel = 3
_LONGEST = 480


def _text(value):
    try:
        return _shown.repr(value)
    except BaseException as error:  # whatever a program's own __repr__ does
        return f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"


def _cut(text):
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def arguments(pairs):
    """Of a list of names and values."""
    return _cut("(" + ", ".join(f"{name}={_text(value)}" for name, value in pairs) + ")")


def result(what, value):
    return _cut(f"{what} {_text(value)}")


def record(record):
    """Of a logging.LogRecord."""
    try:
        return _cut(f"{record.levelname} {record.name}: {record.getMessage()}")
    except BaseException as error:  # whatever a program's own objects do
        return f"a record of logging, whose message raised {type(error).__name__}"
