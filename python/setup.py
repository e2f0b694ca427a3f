"""Builds the hook, and puts everycall.pth beside the package, where Python reads it at its start.

With EVERYCALL_BINARY=PATH, or where the checkout has a release build, the package also has the
command `everycall`, so that a wheel needs nothing else.
"""

import os
import shutil
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit("everycall needs an interpreter with its global lock: use the build of Python that isn't free-threaded")

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.join(HERE, "..", "target", "release", "everycall")
# Empty: none.
BINARY = os.environ.get("EVERYCALL_BINARY", BUILT if os.path.exists(BUILT) else "")
if BINARY and not os.access(BINARY, os.X_OK):
    sys.exit(f"EVERYCALL_BINARY is {BINARY}, which isn't a program: build it with cargo build --release -p everycall")


class WithStartup(build_py):
    def extra(self):
        """Sources and places of what isn't Python."""
        files = [(os.path.join(HERE, "everycall.pth"), os.path.join(self.build_lib, "everycall.pth"))]
        if BINARY:
            files.append((BINARY, os.path.join(self.build_lib, "everycall", "bin", "everycall")))
        return files

    def run(self):
        super().run()
        for source, place in self.extra():
            self.mkpath(os.path.dirname(place))
            shutil.copy(source, place)

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *(place for _, place in self.extra())]


setup(
    cmdclass={"build_py": WithStartup},
    entry_points={"console_scripts": ["everycall = everycall._command:main"]} if BINARY else {},
    ext_modules=[
        Extension(
            "everycall._hook",
            ["everycall/_hook.c"],
            depends=["everycall/_arguments.h", "everycall/_before.h", "everycall/_c_functions.h", "everycall/_loops.h", "everycall/_open_frames.h", "everycall/_said.h", "everycall/_tasks.h", "everycall/_threads.h"],
            include_dirs=[os.path.join(HERE, "..", "crates", "building", "kit", "include")],
        )
    ],
)
