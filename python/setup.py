"""Builds the hook, and puts everycall.pth beside the package, where Python reads it at its start."""

import os
import sys
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    sys.exit("everycall needs an interpreter with its global lock: use the build of Python that isn't free-threaded")

HERE = os.path.dirname(os.path.abspath(__file__))


class WithStartup(build_py):
    def run(self):
        super().run()
        self.mkpath(self.build_lib)
        self.copy_file(os.path.join(HERE, "everycall.pth"), os.path.join(self.build_lib, "everycall.pth"))

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), os.path.join(self.build_lib, "everycall.pth")]


setup(
    cmdclass={"build_py": WithStartup},
    ext_modules=[
        Extension(
            "everycall._hook",
            ["everycall/_hook.c"],
            include_dirs=[os.path.join(HERE, "..", "crates", "kit", "include")],
        )
    ],
)
