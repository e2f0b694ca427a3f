"""The command `everycall`: that of a wheel that has it, or another one."""

import os
import shutil
import sys
import sysconfig

BINARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "everycall")


def find():
    """Its path: in this package, beside the interpreter, or in the search path. None if it isn't there."""
    if os.access(BINARY, os.X_OK):
        return BINARY
    for folder in (sysconfig.get_path("scripts"), os.path.dirname(sys.executable), None):
        found = shutil.which("everycall", path=folder)
        if found:
            return found
    return None


MISSING = "the command everycall isn't in the search path; in a checkout of everycall, run: cargo install --path crates/cli"


def main():
    os.execv(BINARY, ["everycall", *sys.argv[1:]])
