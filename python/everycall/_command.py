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


MISSING = "the command everycall isn't in the search path; in a checkout of everycall, run: cargo install --path crates/command/cli"


# What put_runtime() puts into a folder: the runtime's library, and a copy of the hook.
RUNTIME = os.path.join("lib", "everycall", "libeverycall.so")
HOOK = "_hook.so"


def put_runtime(folder):
    """Puts what a running program has to load into a folder. Raises RuntimeError with a sentence."""
    import subprocess

    import everycall

    command = find()
    if not command:
        raise RuntimeError(MISSING)
    written = subprocess.run([command, "integrate", folder], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False)
    if not os.path.exists(os.path.join(folder, RUNTIME)):
        raise RuntimeError(f"{command} integrate failed: {written.stderr.decode(errors='replace').strip()}")
    shutil.copy(everycall._hook.__file__, os.path.join(folder, HOOK))


def main():
    os.execv(BINARY, ["everycall", *sys.argv[1:]])
